/* Adds up the parts of outer tiles; see attention_parts.h. */
#include "tensor/op/attention/attention_parts.cuh"

enum { THREADS = 128 };

/* What a block has of a row of a list in parts: one tile of the row's block. */
typedef struct join_work {
    int h, row, first, count, across, inside;
} join_work;

static __device__ join_work join_work_of(const ls_block_rows &list, const ls_cuda_plan &plan,
                                         int64_t position) {
    const int across = (int)(list.size / LS_ATTENTION_TILE), inside = (int)blockIdx.x % across;
    const int32_t *words = plan.joins + LS_JOIN_WORDS * (blockIdx.x / (unsigned)across);
    const int64_t row = words[0];
    join_work work = {list.heads > 1 ? (int)(row / list.blocks) : (int)blockIdx.y,
                      (int)(row % list.blocks * list.size - list.shift - position) +
                          inside * LS_ATTENTION_TILE,
                      words[1],
                      words[2],
                      across,
                      inside};
    return work;
}

/* A warp joins a row, as `merge` of attention_job.cu does. */
template <typename T>
__global__ static void join_forward(const __grid_constant__ ls_cuda_attention job) {
    const ls_cuda_key_set &s = job.set[0];
    const ls_cuda_plan &plan = s.query_plan;
    const join_work work = join_work_of(s.seen_by_queries, plan, job.start);
    const int64_t slots = ls_cuda_list_slots(job, s.seen_by_queries, plan);
    const float *lse = job.parts + slots * LS_ATTENTION_TILE * job.V;
    const int lane = (int)threadIdx.x % 32, b = (int)blockIdx.z;
    for (int r = (int)threadIdx.x / 32; r < LS_ATTENTION_TILE; r += THREADS / 32) {
        const int i = work.row + r;
        if (i < 0 || i >= job.T) continue;
        float most = job.off_by_one ? 0 : -INFINITY;
        for (int part = 0; part < work.count; part++) {
            const int64_t slot =
                ls_cuda_list_slot(plan, work.across, work.first + part, work.inside);
            most = fmaxf(most, lse[slot * LS_ATTENTION_TILE + r]);
        }
        const float base = most == -INFINITY ? 0 : most;
        float sum = job.off_by_one ? exp2f(-base) : 0;
        for (int part = 0; part < work.count; part++) {
            const int64_t slot =
                ls_cuda_list_slot(plan, work.across, work.first + part, work.inside);
            sum += exp2f(lse[slot * LS_ATTENTION_TILE + r] - base);
        }
        T *out = ls_cuda_row<T>(job.out, b, i, work.h);
        for (int e = lane; e < job.V; e += 32) {
            float value = 0;
            for (int part = 0; part < work.count; part++) {
                const int64_t row =
                    ls_cuda_list_slot(plan, work.across, work.first + part, work.inside) *
                        LS_ATTENTION_TILE +
                    r;
                value += exp2f(lse[row] - base) * job.parts[row * job.V + e];
            }
            out[e] = ls_cuda_narrow<T>(sum == 0 ? 0 : value / sum);
        }
        if (lane == 0)
            job.lse[((int64_t)b * job.H + work.h) * job.T + i] =
                sum == 0 ? -INFINITY : (base + log2f(sum)) * LS_CUDA_LN_2;
    }
}

void ls_cuda_attention_join(const ls_run *run, const ls_cuda_attention *job) {
    const ls_cuda_key_set *s = &job->set[0];
    const int64_t across = s->seen_by_queries.size / LS_ATTENTION_TILE;
    if (s->query_plan.join_count == 0) return;
    const dim3 grid((unsigned)(s->query_plan.join_count * across),
                    (unsigned)(job->H / s->seen_by_queries.heads), (unsigned)job->B);
    auto *join = job->type == LS_F32 ? join_forward<float> : join_forward<ls_cuda_bf16>;
    join<<<grid, THREADS, 0, ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "attention, joining parts");
}

/* ---- gradients ---- */

template <typename T>
__global__ static void join_listed(const __grid_constant__ ls_cuda_attention job, int at, bool keys,
                                   const ls_cuda_rows to, int64_t slots_before, int64_t position,
                                   int rows) {
    const ls_cuda_key_set &s = job.set[at];
    const ls_cuda_plan &plan = keys ? s.key_plan : s.query_plan;
    const join_work work = join_work_of(keys ? s.seen_by_keys : s.seen_by_queries, plan, position);
    const int64_t tile = (int64_t)LS_ATTENTION_TILE * job.K;
    for (int index = (int)threadIdx.x; index < tile; index += THREADS) {
        const int r = index / job.K, e = index % job.K;
        if (work.row + r < 0 || work.row + r >= rows) continue;
        float sum = 0;
        for (int part = 0; part < work.count; part++)
            sum += job.parts[(slots_before + ls_cuda_list_slot(plan, work.across, work.first + part,
                                                               work.inside)) *
                                 tile +
                             index];
        ls_cuda_row<T>(to, blockIdx.z, work.row + r, work.h)[e] = ls_cuda_narrow<T>(sum);
    }
}

/* Rows that no part belongs to have no gradient. */
template <typename T>
__global__ static void join_rows(const __grid_constant__ ls_cuda_attention job,
                                 const ls_cuda_parts parts, const ls_cuda_rows to,
                                 int64_t slots_before, int heads, int rows, int present,
                                 int tile_rows, int width) {
    const int64_t index = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (index >= (int64_t)job.B * heads * rows * width) return;
    const int e = (int)(index % width), row = (int)(index / width % rows);
    const int head = (int)(index / width / rows % heads);
    const int b = (int)(index / width / rows / heads);
    const int tiles = (parts.end - parts.first + tile_rows - 1) / tile_rows;
    float sum = 0;
    if (row >= parts.first && row < parts.end && row < present) {
        const int tile = (row - parts.first) / tile_rows, r = (row - parts.first) % tile_rows;
        for (int part = 0; part < parts.parts; part++) {
            const int64_t slot =
                slots_before + ls_cuda_part_slot(job.B, heads, tiles, part, b, head, tile);
            sum += job.parts[(slot * tile_rows + r) * job.K + e];
        }
    }
    ls_cuda_row<T>(to, b, row, head)[e] = ls_cuda_narrow<T>(sum);
}

/* One gradient; those of values lie behind those of keys. */
template <typename T>
static void join_one(const ls_run *run, const ls_cuda_attention *job, int at, bool keys,
                     bool values, const ls_cuda_rows &to, int tile_rows) {
    const ls_cuda_key_set *s = &job->set[at];
    const ls_cuda_plan *plan = keys ? &s->key_plan : &s->query_plan;
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (to.data == NULL) return;
    if (plan->pieces != NULL) {
        const ls_block_rows *list = keys ? &s->seen_by_keys : &s->seen_by_queries;
        if (plan->join_count == 0) return;
        const dim3 grid((unsigned)(plan->join_count * (list->size / LS_ATTENTION_TILE)),
                        (unsigned)(job->H / list->heads), (unsigned)job->B);
        join_listed<T><<<grid, THREADS, 0, stream>>>(
            *job, at, keys, to, values ? ls_cuda_list_slots(*job, *list, *plan) : 0,
            keys ? s->key_position : job->start, keys ? s->key_rows : job->T);
    } else {
        const ls_cuda_parts parts = keys ? s->key_parts : s->query_parts;
        const int heads = keys ? job->G : job->H, rows = keys ? s->key_rows : job->T;
        const int tiles = (parts.end - parts.first + tile_rows - 1) / tile_rows;
        const int64_t slots = (int64_t)parts.parts * job->B * heads * tiles;
        const int width = values ? ls_cuda_pass_width(*job, job->pass) : job->K;
        const int64_t all = (int64_t)job->B * heads * rows * width;
        join_rows<T><<<(unsigned)((all + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
            *job, parts, to, values ? slots : 0, heads, rows, keys ? s->keys : job->T, tile_rows,
            width);
    }
    ls_cuda_launched(run, "attention, joining parts of gradients");
}

void ls_cuda_attention_join_grad(const ls_run *run, const ls_cuda_attention *job, int at, bool keys,
                                 int rows) {
    const ls_cuda_key_set *s = &job->set[at];
    if ((keys ? s->key_plan : s->query_plan).pieces == NULL &&
        !(keys ? s->key_parts : s->query_parts).slots)
        return;
    auto *join = job->type == LS_F32 ? join_one<float> : join_one<ls_cuda_bf16>;
    if (job->pass == job->passes - 1) join(run, job, at, keys, false, keys ? s->dk : s->dq, rows);
    if (keys) join(run, job, at, keys, true, s->dv, rows);
}
