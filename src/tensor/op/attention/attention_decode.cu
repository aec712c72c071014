/* Attention of one token of each sequence to what is cached: the step of a stream.
 *
 * A block has a part of the keys and one to four heads that share them, so that a cached row is
 * read once for all of these. LANES lanes have a key, 16 bytes each; a block passes over
 * THREADS / LANES keys at once, each group of lanes with a running softmax of its own. These are
 * joined in a fixed order at the end, and so are the parts of the keys. The last key is found on the
 * device, and the number of parts follows from the room of the cache: launches are the same at
 * every position. */
#include "tensor/op/attention/attention_job.cuh"

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

enum { THREADS = 128, AHEAD = 4 };

typedef struct decode_job {
    int H, G, D, splits;
    ls_cuda_start start;
    int64_t key_position, hi;
    float scale, cap;
    bool off_by_one;
    const float *slopes;
    const float *log_decay; /* of xPos, as in ls_cuda_key_set; NULL: none */
    int64_t decay_block;
    int decay_pairs;
    bool decay_halves;
    ls_cuda_rows q, k, v, out;
    float *lse, *part_out, *part_lse;
} decode_job;

/* The keys of a block: rows first .. end - 1 of the cache. */
static __device__ __forceinline__ ls_cuda_span keys_of_block(const decode_job &job, int64_t n) {
    const int64_t last = n - job.key_position, reached = last - job.hi;
    const int64_t first = reached > 0 ? reached : 0, count = last + 1 - first;
    const int64_t split = blockIdx.x;
    return {(int)(first + count * split / job.splits),
            (int)(first + count * (split + 1) / job.splits)};
}

/* Rates of the decays of a lane's elements; 0 where there are none. */
template <int EACH>
static __device__ __forceinline__ void load_rates(const decode_job &job, int e,
                                                  float (&rate)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = e + i, pairs = job.decay_pairs;
        const int pair = !job.decay_halves ? at / 2 : at < pairs ? at : at - pairs;
        rate[i] = at < 2 * pairs ? job.log_decay[pair] : 0;
    }
}

/* What a group of lanes has of one head. */
template <int EACH> struct running { float most, sum, out[EACH]; };

/* Scores of AHEAD keys join the running softmax; `w` become weights. */
template <int EACH>
static __device__ __forceinline__ float soften(running<EACH> &here, float (&w)[AHEAD]) {
    float higher = here.most;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) higher = fmaxf(higher, w[u]);
    const float base = higher == -INFINITY ? 0 : higher, rescale = exp2f(here.most - base);
    here.most = higher;
    here.sum *= rescale;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        w[u] = exp2f(w[u] - base);
        here.sum += w[u];
    }
    return rescale;
}

/* What the groups of a block have: of group i, head h, element e. */
template <int LANES, int HEADS, int EACH> struct shared_parts {
    float most[THREADS / LANES][HEADS], sum[THREADS / LANES][HEADS];
    float out[THREADS / LANES][HEADS][LANES * EACH];
};

/* Joins the groups; thread by thread the elements of the block's heads. */
template <typename T, int LANES, int HEADS, int EACH>
static __device__ void finish(const decode_job &job, int b, int head,
                              const shared_parts<LANES, HEADS, EACH> &s) {
    enum { GROUPS = THREADS / LANES };
    for (int i = (int)threadIdx.x; i < HEADS * job.D; i += THREADS) {
        const int h = i / job.D, e = i % job.D;
        const bool one = job.off_by_one && job.splits == 1;
        float most = one ? 0 : -INFINITY, value = 0;
        for (int g = 0; g < GROUPS; g++) most = fmaxf(most, s.most[g][h]);
        const float base = most == -INFINITY ? 0 : most;
        float sum = one ? exp2f(-base) : 0;
        for (int g = 0; g < GROUPS; g++) {
            const float by = exp2f(s.most[g][h] - base);
            sum += by * s.sum[g][h];
            value += by * s.out[g][h][e];
        }
        value = sum == 0 ? 0 : value / sum;
        const float lse = sum == 0 ? -INFINITY : base + log2f(sum);
        const int64_t row = (int64_t)b * job.H + head + h;
        if (job.splits == 1) {
            ls_cuda_row<T>(job.out, b, 0, head + h)[e] = ls_cuda_narrow<T>(value);
            if (e == 0) job.lse[row] = lse * LS_CUDA_LN_2;
        } else {
            const int64_t part = (int64_t)blockIdx.x * gridDim.z * job.H + row;
            job.part_out[part * job.D + e] = value;
            if (e == 0) job.part_lse[part] = lse;
        }
    }
}

/* Block (part of the keys, heads, sequence). */
template <typename T, int LANES, int HEADS, bool DECAYS>
static __global__ void __launch_bounds__(THREADS) decode(const __grid_constant__ decode_job job) {
    enum { EACH = 16 / sizeof(T), GROUPS = THREADS / LANES };
    typedef ls_cuda_pack<T, EACH> pack;
    __shared__ shared_parts<LANES, HEADS, EACH> s;
    const int group = (int)threadIdx.x / LANES, e = (int)threadIdx.x % LANES * EACH;
    const int b = (int)blockIdx.z, head = (int)blockIdx.y * HEADS, g = head / (job.H / job.G);
    const bool holds = e < job.D;
    ls_cuda_after();
    const int64_t n = job.start.at();
    const ls_cuda_span keys = keys_of_block(job, n);
    const T *k = ls_cuda_row<const T>(job.k, b, 0, g) + e;
    const T *v = ls_cuda_row<const T>(job.v, b, 0, g) + e;
    float q[HEADS][EACH], rate[EACH];
    running<EACH> here[HEADS];
    if (DECAYS) load_rates(job, e, rate);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        pack mine = {};
        if (holds) mine = ls_cuda_take<EACH>(ls_cuda_row<const T>(job.q, b, 0, head + h) + e);
        mine.wide(q[h]);
        here[h].most = -INFINITY;
        here[h].sum = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) here[h].out[i] = 0;
    }
    for (int base = keys.first; base < keys.end; base += GROUPS * AHEAD) {
        pack key[AHEAD], value[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t row = base + u * GROUPS + group;
            key[u] = value[u] = pack{};
            if (row < keys.end && holds) {
                key[u] = ls_cuda_take<EACH>(k + row * job.k.row);
                value[u] = ls_cuda_take<EACH>(v + row * job.v.row);
            }
        }
        float w[HEADS][AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int row = base + u * GROUPS + group;
            float x[EACH];
            key[u].wide(x);
            if (DECAYS) { /* keys are stored relative to their block */
                const int64_t m = job.key_position + row;
                const float distance = (float)(n - m / job.decay_block * job.decay_block);
#pragma unroll
                for (int i = 0; i < EACH; i++) x[i] *= exp2f(rate[i] * distance);
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0;
#pragma unroll
                for (int i = 0; i < EACH; i++) dot += q[h][i] * x[i];
#pragma unroll
                for (int step = LANES / 2; step > 0; step /= 2)
                    dot += __shfl_xor_sync(0xffffffffu, dot, step);
                float score = job.scale * dot;
                if (job.slopes != NULL)
                    score -= job.slopes[head + h] * (float)(n - job.key_position - row);
                score *= LS_CUDA_LOG2_E;
                if (job.cap > 0) score = ls_cuda_cap(score, job.cap);
                w[h][u] = row < keys.end ? score : -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const float rescale = soften(here[h], w[h]);
#pragma unroll
            for (int i = 0; i < EACH; i++) here[h].out[i] *= rescale;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float x[EACH];
            value[u].wide(x);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
#pragma unroll
                for (int i = 0; i < EACH; i++) here[h].out[i] += w[h][u] * x[i];
        }
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (threadIdx.x % LANES == 0) {
            s.most[group][h] = here[h].most;
            s.sum[group][h] = here[h].sum;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) s.out[group][h][e + i] = here[h].out[i];
    }
    __syncthreads();
    finish<T, LANES, HEADS, EACH>(job, b, head, s);
}

/* ---- on the host ---- */

bool ls_cuda_attention_decode_fits(const ls_run *run, const ls_node *node,
                                   const ls_cuda_attention *job) {
    const ls_cuda_key_set *s = &job->set[0];
    const int64_t each = 16 / (int64_t)ls_dtype_size(node->in[LS_ATTENTION_Q]->type);
    if (run->state == NULL || node->in[LS_ATTENTION_K]->port < 0 ||
        node->in[LS_ATTENTION_V]->port < 0)
        return false;
    if (job->T != 1 || job->sets != 1 || job->K != job->V || job->K > 32 * each || !job->vectors ||
        job->B > 65535)
        return false;
    if (s->lo != 0 || s->hi < 0 || s->key_first > s->key_position || s->key_end < LS_FAR ||
        s->block > 0 || s->span.block > 0 || s->group > 0 || s->alone || s->shift > 0)
        return false;
    if (s->seen_by_queries.first != NULL || s->query_max != NULL || s->valid != NULL ||
        s->table != NULL || s->relative.data != NULL || s->dilation != NULL ||
        s->query_at.kind != LS_MAP_IDENTITY || s->key_at.kind != LS_MAP_IDENTITY)
        return false;
    return s->key_position + s->keys == job->start + 1; /* the token's own key is the last */
}

template <typename T, int LANES, bool DECAYS>
static void launch(const ls_run *run, const decode_job *job, int64_t batch, int heads) {
    const dim3 blocks((unsigned)job->splits, (unsigned)(job->H / heads), (unsigned)batch);
    const char *what = "attention, one token";
    if (heads == 4)
        ls_cuda_follow(run, what, decode<T, LANES, 4, DECAYS>, blocks, THREADS, *job);
    else if (heads == 2)
        ls_cuda_follow(run, what, decode<T, LANES, 2, DECAYS>, blocks, THREADS, *job);
    else
        ls_cuda_follow(run, what, decode<T, LANES, 1, DECAYS>, blocks, THREADS, *job);
}

template <typename T, int LANES>
static void launch_kind(const ls_run *run, const decode_job *job, int64_t batch, int heads) {
    if (job->log_decay != NULL)
        launch<T, LANES, true>(run, job, batch, heads);
    else
        launch<T, LANES, false>(run, job, batch, heads);
}

template <typename T>
static void launch_width(const ls_run *run, const decode_job *job, int64_t batch, int heads) {
    const int lanes = job->D * (int)sizeof(T) / 16;
    if (lanes <= 4)
        launch_kind<T, 4>(run, job, batch, heads);
    else if (lanes <= 8)
        launch_kind<T, 8>(run, job, batch, heads);
    else if (lanes <= 16)
        launch_kind<T, 16>(run, job, batch, heads);
    else
        launch_kind<T, 32>(run, job, batch, heads);
}

void ls_cuda_attention_decode(const ls_run *run, ls_cuda_attention *given, ls_dtype type) {
    const ls_cuda_key_set *s = &given->set[0];
    given->splits = ls_cuda_attention_decode_splits(given->B, given->H, given->G, s->key_rows);
    decode_job job = {};
    job.H = given->H;
    job.G = given->G;
    job.D = given->K;
    job.splits = given->splits;
    job.start = ls_cuda_start_of(run);
    job.key_position = s->key_position;
    job.hi = s->hi;
    job.scale = given->scale;
    job.cap = given->cap;
    job.off_by_one = given->off_by_one;
    job.slopes = s->slopes;
    job.log_decay = s->log_decay;
    job.decay_block = s->decay_block;
    job.decay_pairs = s->decay_pairs;
    job.decay_halves = s->decay_halves;
    job.q = s->q;
    job.k = s->k;
    job.v = s->v;
    job.out = given->out;
    job.lse = given->lse;
    job.part_out = given->part_out;
    job.part_lse = given->part_lse;
    const int heads = ls_cuda_attention_decode_heads(given->H, given->G);
    if (type == LS_F32)
        launch_width<float>(run, &job, given->B, heads);
    else
        launch_width<ls_cuda_bf16>(run, &job, given->B, heads);
    if (given->splits > 1) ls_cuda_attention_merge(run, given, type);
    ls_cuda_steady(run);
}
