/* Attention for every type, width and feature: a warp takes a row of queries (or of keys, or of a
 * table), its lanes take the other side of 32 pairs at once, and then the elements of a head.
 * What is summed over pairs lies in shared memory, in a fixed order. */
#include "tensor/op/attention/attention_plain.cuh"

enum { WARPS = 4, PARTS_WANTED = 8192, PART_ROWS_LEAST = 128 };

/* The part of shared memory that belongs to a warp: what its lanes tell each other, then sums. */
typedef struct scratch {
    float *weight, *other; /* [32] */
    int *row, *place;      /* [32] */
    float *sums;
} scratch;

static __device__ scratch scratch_of(int sums) {
    extern __shared__ __align__(16) unsigned char arena[];
    float *at = (float *)(void *)arena + (threadIdx.x / 32) * (unsigned)(128 + sums);
    scratch mine = {at, at + 32, (int *)(void *)(at + 64), (int *)(void *)(at + 96), at + 128};
    return mine;
}

static size_t scratch_bytes(int64_t sums) {
    return (size_t)(WARPS * (128 + sums)) * sizeof(float);
}

static __device__ void clear(float *sums, int count, int lane) {
    for (int e = lane; e < count; e += 32) sums[e] = 0;
    __syncwarp();
}

/* ---- forward ---- */

/* The rows that a query or a key meets on the other side: every step-th of an interval, or those of
 * the blocks of a list. */
typedef struct row_walk {
    int first, step, count;
    const int32_t *at, *times; /* of the list's row; NULL: an interval */
    int64_t size, origin;      /* block x begins at row x * size + origin */
    int rows;                  /* there are on the other side */
} row_walk;

static __device__ row_walk listed_rows(const ls_block_rows &list, int h, int64_t position,
                                       int64_t other_position, int rows) {
    const int64_t row = ls_cuda_list_row(list, h, position);
    const int first = list.first[row];
    row_walk walk = {0,
                     1,
                     (int)((list.first[row + 1] - first) * list.size),
                     list.at + first,
                     list.times + first,
                     list.size,
                     -list.shift - other_position,
                     rows};
    return walk;
}

static __device__ row_walk rows_between(ls_cuda_span span, int64_t from_position,
                                        int64_t to_position, int64_t step, int rows) {
    const int first = ls_cuda_aligned(span.first, from_position, to_position, step);
    row_walk walk = {first, 1, 0, NULL, NULL, 0, 0, rows};
    if (first >= span.end) return walk;
    /* a step beyond all rows is never taken */
    walk.step = step > rows ? rows : (int)step;
    walk.count = (span.end - first - 1) / walk.step + 1;
    return walk;
}

static __device__ row_walk keys_of_query(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                                         int h, int i) {
    const int64_t n = job.start + i, step = ls_cuda_step(s, h);
    if (s.seen_by_queries.first != NULL)
        return listed_rows(s.seen_by_queries, h, n, s.key_position, s.keys);
    return rows_between(ls_cuda_keys_of(s, n, n, step, false), s.key_position, n, step, s.keys);
}

static __device__ row_walk queries_of_key(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                                          int h, int j) {
    const int64_t m = s.key_position + j, step = ls_cuda_step(s, h);
    if (s.seen_by_keys.first != NULL) return listed_rows(s.seen_by_keys, h, m, job.start, job.T);
    return rows_between(ls_cuda_queries_of(job, s, m, m, step, false), job.start, m, step, job.T);
}

/* Row number `index` of a walk, below its count, and how often it counts: 0 where a block reaches
 * beyond the rows. */
static __device__ int walk_row(const row_walk &walk, int index, int *times) {
    *times = 1;
    if (walk.at == NULL) return walk.first + index * walk.step;
    const int entry = (int)(index / walk.size);
    const int64_t row = walk.at[entry] * walk.size + walk.origin + index % walk.size;
    const bool there = row >= 0 && row < walk.rows;
    *times = there ? walk.times[entry] : 0;
    return there ? (int)row : 0;
}

template <typename T>
static __device__ void add_values(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                  int g, const scratch &mine, float rescale, int lane) {
    for (int e = lane; e < job.V; e += 32) {
        float sum = mine.sums[e] * rescale;
        for (int l = 0; l < 32; l++)
            if (mine.weight[l] != 0)
                sum += mine.weight[l] * ls_cuda_wide(ls_cuda_row<T>(s.v, b, mine.row[l], g)[e]);
        mine.sums[e] = sum;
    }
    __syncwarp();
}

template <typename T> __global__ static void forward(const ls_cuda_attention job) {
    const int64_t rows = (int64_t)job.B * job.H * job.T;
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int split = (int)blockIdx.y, lane = (int)threadIdx.x % 32;
    if (row >= rows) return;
    const int b = (int)(row / ((int64_t)job.H * job.T)), h = (int)(row / job.T % job.H);
    const int i = (int)(row % job.T), g = h / (job.H / job.G);
    const scratch mine = scratch_of(job.V);
    clear(mine.sums, job.V, lane);
    float most = job.off_by_one && job.splits == 1 ? 0 : -INFINITY;
    float sum = job.off_by_one && job.splits == 1 ? 1 : 0;
    int64_t total = 0, before = 0;
    for (int s = 0; s < job.sets; s++) total += keys_of_query(job, job.set[s], h, i).count;
    const int64_t from = total * split / job.splits, end = total * (split + 1) / job.splits;
    for (int at = 0; at < job.sets; at++) {
        const ls_cuda_key_set &s = job.set[at];
        const row_walk walk = keys_of_query(job, s, h, i);
        const ls_cuda_span mine_here = ls_cuda_cut(from - before, end - before, walk.count);
        before += walk.count;
        for (int key = mine_here.first; key < mine_here.end; key += 32) {
            const bool there = key + lane < mine_here.end;
            int times = 0;
            const int j = there ? walk_row(walk, key + lane, &times) : 0;
            float score = -INFINITY;
            if (times > 0 && ls_cuda_key_valid(s, b, j))
                score = ls_cuda_score<T>(job, s, b, h, i, j, times);
            const float higher = fmaxf(most, ls_cuda_warp_max(score));
            const float base = higher == -INFINITY ? 0 : higher;
            const float rescale = exp2f(most - base);
            mine.weight[lane] = exp2f(score - base);
            mine.row[lane] = j;
            sum = sum * rescale + ls_cuda_warp_sum(mine.weight[lane]);
            most = higher;
            __syncwarp();
            add_values<T>(job, s, b, g, mine, rescale, lane);
        }
    }
    const float lse = sum == 0 ? -INFINITY : most + log2f(sum), unit = sum == 0 ? 0 : 1 / sum;
    if (job.splits > 1) {
        const int64_t part = split * rows + row;
        for (int e = lane; e < job.V; e += 32) job.part_out[part * job.V + e] = mine.sums[e] * unit;
        if (lane == 0) job.part_lse[part] = lse;
        return;
    }
    T *out = ls_cuda_row<T>(job.out, b, i, h);
    for (int e = lane; e < job.V; e += 32) out[e] = ls_cuda_narrow<T>(mine.sums[e] * unit);
    if (lane == 0) job.lse[row] = lse * LS_CUDA_LN_2;
}

template <typename T> static void launch_forward(const ls_run *run, const ls_cuda_attention *job) {
    const int64_t rows = (int64_t)job->B * job->H * job->T;
    const dim3 grid((unsigned)((rows + WARPS - 1) / WARPS), (unsigned)job->splits);
    forward<T><<<grid, 32 * WARPS, scratch_bytes(job->V), ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "attention, plain");
}

void ls_cuda_attention_plain(const ls_run *run, const ls_cuda_attention *job, ls_dtype type) {
    if (type == LS_F32)
        launch_forward<float>(run, job);
    else
        launch_forward<ls_cuda_bf16>(run, job);
}

/* ---- backward ---- */

/* The gradient of a pair's score; *p is its weight. */
template <typename T>
static __device__ float pair_gradient(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                      int h, int i, int j, int times, float *p) {
    const int64_t row = ((int64_t)b * job.H + h) * job.T + i;
    const T *v = ls_cuda_row<T>(s.v, b, j, h / (job.H / job.G));
    const float score = ls_cuda_score<T>(job, s, b, h, i, j, times);
    *p = exp2f(score - job.row_lse[row]);
    const float ds = *p * (ls_cuda_dot(ls_cuda_row<T>(job.dout, b, i, h), v, job.V, job.vectors) -
                           job.row_dot[row]);
    return job.cap > 0 ? ds * ls_cuda_cap_slope(score, job.cap) : ds;
}

template <typename T>
static __device__ void add_to_queries(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                      int h, const scratch &mine, int lane) {
    const int g = h / (job.H / job.G);
    for (int e = lane; e < job.K; e += 32) {
        float dq = 0, drelative_q = 0;
        for (int l = 0; l < 32; l++) {
            if (mine.weight[l] == 0) continue;
            float k = ls_cuda_wide(ls_cuda_row<T>(s.k, b, mine.row[l], g)[e]);
            if (s.log_decay != NULL) k *= ls_cuda_decay(s, e, mine.other[l]);
            dq += mine.weight[l] * k;
            if (s.drelative_q.data != NULL)
                drelative_q += mine.weight[l] * ls_cuda_relative_at<T>(s, mine.place[l], h, e);
        }
        mine.sums[e] += dq;
        mine.sums[job.K + e] += drelative_q;
    }
    __syncwarp();
}

/* dq and drelative_q of one set, a warp per query row. */
template <typename T> __global__ static void query_grad(const ls_cuda_attention job, int at) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= (int64_t)job.B * job.H * job.T) return;
    const int b = (int)(row / ((int64_t)job.H * job.T)), h = (int)(row / job.T % job.H);
    const int i = (int)(row % job.T);
    const ls_cuda_key_set &s = job.set[at];
    const scratch mine = scratch_of(2 * job.K);
    clear(mine.sums, 2 * job.K, lane);
    const row_walk walk = keys_of_query(job, s, h, i);
    const int64_t n = job.start + i;
    for (int key = 0; key < walk.count; key += 32) {
        int times = 0;
        const int j = key + lane < walk.count ? walk_row(walk, key + lane, &times) : 0;
        float ds = 0, p;
        if (times > 0 && ls_cuda_key_valid(s, b, j)) {
            ds = pair_gradient<T>(job, s, b, h, i, j, times, &p);
            if (s.log_decay != NULL)
                mine.other[lane] = ls_cuda_decay_distance(s, b, n, s.key_position + j);
            if (s.relative.data != NULL)
                mine.place[lane] = ls_cuda_relative_row(s, b, n, s.key_position + j);
        }
        mine.weight[lane] = ds * job.scale;
        mine.row[lane] = j;
        __syncwarp();
        add_to_queries<T>(job, s, b, h, mine, lane);
    }
    for (int e = lane; e < job.K; e += 32) {
        if (s.dq.data != NULL) ls_cuda_row<T>(s.dq, b, i, h)[e] = ls_cuda_narrow<T>(mine.sums[e]);
        if (s.drelative_q.data != NULL)
            ls_cuda_row<T>(s.drelative_q, b, i, h)[e] = ls_cuda_narrow<T>(mine.sums[job.K + e]);
    }
}

template <typename T>
static __device__ void add_to_keys(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                   int h, int64_t m, const scratch &mine, int lane) {
    for (int e = lane; e < job.K; e += 32) {
        float dk = 0;
        for (int l = 0; l < 32; l++) {
            if (mine.weight[l] == 0) continue;
            float q = ls_cuda_wide(ls_cuda_row<T>(s.q, b, mine.row[l], h)[e]);
            if (s.log_decay != NULL)
                q *= ls_cuda_decay(s, e, ls_cuda_decay_distance(s, b, job.start + mine.row[l], m));
            dk += mine.weight[l] * q;
        }
        mine.sums[e] += dk;
    }
    for (int e = lane; e < job.V; e += 32) {
        float dv = 0;
        for (int l = 0; l < 32; l++)
            if (mine.other[l] != 0)
                dv += mine.other[l] * ls_cuda_wide(ls_cuda_row<T>(job.dout, b, mine.row[l], h)[e]);
        mine.sums[job.K + e] += dv;
    }
    __syncwarp();
}

/* dk and dv of one set, a warp per key row; a key head gathers from all its query heads. */
template <typename T> __global__ static void key_grad(const ls_cuda_attention job, int at) {
    const ls_cuda_key_set &s = job.set[at];
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32, heads = job.H / job.G;
    if (row >= (int64_t)job.B * job.G * s.key_rows) return;
    const int b = (int)(row / ((int64_t)job.G * s.key_rows)), g = (int)(row / s.key_rows % job.G);
    const int j = (int)(row % s.key_rows);
    const int64_t m = s.key_position + j;
    const bool seen = j < s.keys && ls_cuda_key_valid(s, b, j);
    const scratch mine = scratch_of(job.K + job.V);
    clear(mine.sums, job.K + job.V, lane);
    for (int h = g * heads; seen && h < (g + 1) * heads; h++) {
        const row_walk walk = queries_of_key(job, s, h, j);
        for (int query = 0; query < walk.count; query += 32) {
            int times = 0;
            const int i = query + lane < walk.count ? walk_row(walk, query + lane, &times) : 0;
            float ds = 0, p = 0;
            if (times > 0) ds = pair_gradient<T>(job, s, b, h, i, j, times, &p);
            mine.weight[lane] = ds * job.scale;
            mine.other[lane] = p;
            mine.row[lane] = i;
            __syncwarp();
            add_to_keys<T>(job, s, b, h, m, mine, lane);
        }
    }
    for (int e = lane; s.dk.data != NULL && e < job.K; e += 32)
        ls_cuda_row<T>(s.dk, b, j, g)[e] = ls_cuda_narrow<T>(mine.sums[e]);
    for (int e = lane; s.dv.data != NULL && e < job.V; e += 32)
        ls_cuda_row<T>(s.dv, b, j, g)[e] = ls_cuda_narrow<T>(mine.sums[job.K + e]);
}

template <typename T> static void launch_grad(const ls_run *run, const ls_cuda_attention *job) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    for (int at = 0; at < job->sets; at++) {
        const ls_cuda_key_set *s = &job->set[at];
        const int64_t queries = (int64_t)job->B * job->H * job->T;
        const int64_t keys = (int64_t)job->B * job->G * s->key_rows;
        if (s->dq.data != NULL || s->drelative_q.data != NULL) {
            query_grad<T><<<(unsigned)((queries + WARPS - 1) / WARPS), 32 * WARPS,
                            scratch_bytes(2 * job->K), stream>>>(*job, at);
            ls_cuda_launched(run, "attention, plain query gradients");
        }
        if (s->dk.data != NULL || s->dv.data != NULL) {
            key_grad<T><<<(unsigned)((keys + WARPS - 1) / WARPS), 32 * WARPS,
                          scratch_bytes(job->K + job->V), stream>>>(*job, at);
            ls_cuda_launched(run, "attention, plain key gradients");
        }
    }
}

void ls_cuda_attention_plain_grad(const ls_run *run, const ls_cuda_attention *job, ls_dtype type) {
    if (type == LS_F32)
        launch_grad<float>(run, job);
    else
        launch_grad<ls_cuda_bf16>(run, job);
}

/* ---- sums by distance ---- */

/* The first key row whose whole coordinate is at least x; coordinates never fall. */
static __device__ int first_key_from(const ls_cuda_key_set &s, int64_t x) {
    if (s.key_at.kind == LS_MAP_IDENTITY) return (int)ls_cuda_clamp(x - s.key_position, 0, s.keys);
    int low = 0, high = s.keys;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ls_cuda_whole_at(s.key_at, s.key_position + middle) >= x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The sum of the gradients of scores of query row i that fall into a column of a table. */
template <typename T>
static __device__ float sum_of_column(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                      int h, int i, int column, int columns, int64_t zero) {
    const int64_t n = job.start + i, step = ls_cuda_step(s, h);
    const int64_t there = ls_cuda_whole_query_at(s, b, n) + zero - column;
    ls_cuda_span span = ls_cuda_keys_of(s, n, n, step, false);
    if (column < columns - 1) span.first = max(span.first, first_key_from(s, there));
    if (column > 0) span.end = min(span.end, first_key_from(s, there + 1));
    float sum = 0, p;
    for (int64_t j = ls_cuda_aligned(span.first, s.key_position, n, step); j < span.end;
         j += step) {
        const int times =
            ls_cuda_key_valid(s, b, (int)j) ? ls_cuda_times(s, h, n, s.key_position + j) : 0;
        if (times > 0) sum += pair_gradient<T>(job, s, b, h, i, (int)j, times, &p);
    }
    return sum;
}

/* Parts of dtable or drelative: a warp per column and head, its lanes take queries. */
template <typename T, bool RELATIVE>
__global__ static void distance_grad(const ls_cuda_attention job, int at, int parts) {
    const ls_cuda_key_set &s = job.set[at];
    const int columns = RELATIVE ? s.relative_rows : s.table_rows;
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (unit >= (int64_t)parts * job.H * columns) return;
    const int column = (int)(unit % columns), h = (int)(unit / columns % job.H);
    const int64_t part = unit / columns / job.H, rows = (int64_t)job.B * job.T;
    const int64_t end = rows * (part + 1) / parts;
    const int64_t zero = RELATIVE ? 0 : s.table_zero;
    const scratch mine = scratch_of(RELATIVE ? job.K : 0);
    if (RELATIVE) clear(mine.sums, job.K, lane);
    float total = 0;
    for (int64_t from = rows * part / parts; from < end; from += 32) {
        const int64_t row = from + lane;
        const int b = (int)(row / job.T), i = (int)(row % job.T);
        const float sum = row < end ? sum_of_column<T>(job, s, b, h, i, column, columns, zero) : 0;
        total += sum;
        if (!RELATIVE) continue;
        mine.weight[lane] = sum;
        __syncwarp();
        for (int e = lane; e < job.K; e += 32)
            for (int l = 0; l < 32; l++) {
                if (mine.weight[l] == 0) continue;
                const int64_t other = from + l;
                const T *u = ls_cuda_row<T>(s.relative_q, other / job.T, other % job.T, h);
                mine.sums[e] += mine.weight[l] * ls_cuda_wide(u[e]);
            }
        __syncwarp();
    }
    if (RELATIVE) {
        for (int e = lane; e < job.K; e += 32) job.by_distance[unit * job.K + e] = mine.sums[e];
    } else {
        total = ls_cuda_warp_sum(total);
        if (lane == 0) job.by_distance[unit] = total;
    }
}

static __device__ float sum_of_parts(const float *from, int64_t step, int parts) {
    float sum = 0;
    for (int part = 0; part < parts; part++) sum += from[part * step];
    return sum;
}

__global__ static void sum_table(const ls_cuda_attention job, int at, int parts) {
    const ls_cuda_key_set &s = job.set[at];
    const int64_t all = (int64_t)job.H * s.table_rows;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= all) return;
    s.dtable[index / s.table_rows * s.dtable_stride + index % s.table_rows] =
        sum_of_parts(job.by_distance + index, all, parts);
}

template <typename T>
__global__ static void sum_relative(const ls_cuda_attention job, int at, int parts) {
    const ls_cuda_key_set &s = job.set[at];
    const int64_t all = (int64_t)job.H * s.relative_rows * job.K;
    const int64_t index = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= all) return;
    const int e = (int)(index % job.K), row = (int)(index / job.K % s.relative_rows);
    const int h = (int)(index / job.K / s.relative_rows);
    const float sum = job.scale * sum_of_parts(job.by_distance + index, all, parts);
    if (s.relative_wide)
        ls_cuda_row<float>(s.drelative, 0, row, h)[e] = sum;
    else
        ls_cuda_row<T>(s.drelative, 0, row, h)[e] = ls_cuda_narrow<T>(sum);
}

void ls_cuda_attention_relative_join(const ls_run *run, const ls_cuda_attention *job, int set,
                                     ls_dtype type, int parts) {
    const int64_t all = (int64_t)job->H * job->set[set].relative_rows * job->K;
    auto *kernel = type == LS_F32 ? sum_relative<float> : sum_relative<ls_cuda_bf16>;
    kernel<<<(unsigned)((all + 127) / 128), 128, 0, ls_cuda_of(run)->stream>>>(*job, set, parts);
    ls_cuda_launched(run, "attention, gradients of relative keys");
}

int ls_cuda_attention_distance_parts(int64_t B, int64_t T, int64_t H, int64_t rows) {
    if (rows < 1) return 0;
    const int64_t most = (B * T + PART_ROWS_LEAST - 1) / PART_ROWS_LEAST;
    const int64_t parts = PARTS_WANTED / (H * rows);
    return (int)(parts < 1 ? 1 : parts > most ? most : parts);
}

template <typename T>
static void launch_distance_grad(const ls_run *run, const ls_cuda_attention *job, ls_dtype type) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    for (int at = 0; at < job->sets; at++) {
        const ls_cuda_key_set *s = &job->set[at];
        const bool tiles = ls_cuda_attention_tiles_fit(job, type);
        if (tiles && ls_cuda_attention_table_summed(job, at)) {
            /* it is done, with that of queries */
        } else if (s->dtable != NULL && ls_cuda_attention_table_fits(job, at, type)) {
            ls_cuda_attention_table_grad(run, job, at);
        } else if (s->dtable != NULL) {
            const int64_t all = (int64_t)job->H * s->table_rows;
            const int parts =
                ls_cuda_attention_distance_parts(job->B, job->T, job->H, s->table_rows);
            distance_grad<T, false><<<(unsigned)((all * parts + WARPS - 1) / WARPS), 32 * WARPS,
                                      scratch_bytes(0), stream>>>(*job, at, parts);
            sum_table<<<(unsigned)((all + 127) / 128), 128, 0, stream>>>(*job, at, parts);
            ls_cuda_launched(run, "attention, table gradients");
        }
        if (s->drelative.data != NULL) {
            const int64_t all = (int64_t)job->H * s->relative_rows;
            const int parts =
                ls_cuda_attention_distance_parts(job->B, job->T, job->H, s->relative_rows);
            distance_grad<T, true><<<(unsigned)((all * parts + WARPS - 1) / WARPS), 32 * WARPS,
                                     scratch_bytes(job->K), stream>>>(*job, at, parts);
            ls_cuda_attention_relative_join(run, job, at, type, parts);
        }
    }
}

void ls_cuda_attention_distance_grad(const ls_run *run, const ls_cuda_attention *job,
                                     ls_dtype type) {
    if (type == LS_F32)
        launch_distance_grad<float>(run, job, type);
    else
        launch_distance_grad<ls_cuda_bf16>(run, job, type);
}
