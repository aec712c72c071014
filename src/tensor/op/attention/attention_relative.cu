/* Attention with relative keys (Transformer-XL) in tiles: score = scale (q k + u r), where r is the
 * relative key of the pair's distance.
 *
 * The distances of a tile of queries and one of keys are few, 127 where keys are as far apart as
 * queries. They are taken by strips of 64: a warp multiplies its queries u with the relative keys
 * of a strip, leaves the products on its scratch, and each score takes the one of its distance.
 * Gradients go the other way round: those of scores are laid out by distance, and that matrix is
 * multiplied with relative keys (the gradient of u) and, transposed, with u (that of the relative
 * keys).
 *
 * The blocks that compute gradients of queries have all pairs of those. Each sums the gradient of
 * relative keys over its share of a head's queries, in a part of its own, and the parts are added
 * up: nothing is ever added to by two blocks. As long as tiles share a strip, its sums stay in
 * registers. */
#include "tensor/op/attention/attention_softmax.cuh"

enum {
    TILE = LS_ATTENTION_TILE, /* queries, keys, and distances of a strip */
    SCRATCH_ROW = TILE + 8,   /* floats of a row of scratch memory */
    PART_BLOCKS = 264,        /* wanted of those that sum by distance */
    FAR = 1 << 29,            /* coordinates are cut to this */
    NO_STRIP = -1
};
static_assert(LS_TILE_WARPS * 16 == TILE, "a band of each tile for each warp");

/* A tile of queries, one of keys and a strip of relative keys. A pair's distance is the sum of the
 * offsets of its query and its key. */
template <typename T, int D> struct tiles {
    static const int STRIDE = ls_tile_shape<T, D>::STRIDE;
    T q[TILE * STRIDE], u[TILE * STRIDE], k[TILE * STRIDE], v[TILE * STRIDE], strip[TILE * STRIDE];
    float scratch[LS_TILE_WARPS][16 * SCRATCH_ROW];
    ls_tile_bounds bounds[TILE]; /* of keys */
    int query_offset[TILE], key_offset[TILE];
};

/* A sheet has the queries of the tile as rows, and a column for each key or distance. */
template <typename T> struct sheet_shape { static const int ROW = ls_tile_shape<T, TILE>::STRIDE; };

/* What gradients need besides. */
template <typename T, int D> struct grad_tiles {
    tiles<T, D> common;
    T d_out[TILE * ls_tile_shape<T, D>::STRIDE];
    T weights[TILE * sheet_shape<T>::ROW], sheet[TILE * sheet_shape<T>::ROW];
    float lse[TILE], dot[TILE];
};

/* ---- products with a matrix that lies in shared memory ---- */

/* c += a b: 16 rows of a, of TILE columns, and the TILE rows of b. */
template <int D>
static __device__ void add_product(float c[1][D / 8][4], const ls_cuda_bf16 *a,
                                   const ls_cuda_bf16 *b, bool transposed) {
    enum {
        STRIDE = ls_tile_shape<ls_cuda_bf16, D>::STRIDE,
        SHEET = sheet_shape<ls_cuda_bf16>::ROW
    };
    const int lane = (int)threadIdx.x % 32;
    const ls_cuda_bf16 *b_lane = b + (lane % 16) * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < TILE; k += 16) {
        uint32_t left[4];
        if (transposed) /* a's columns are the rows */
            ls_load_matrices_transposed(left, a + (k + lane % 8 + lane / 16 * 8) * SHEET +
                                                  lane / 8 % 2 * 8);
        else
            ls_load_matrices(left, a + (lane % 16) * SHEET + lane / 16 * 8 + k);
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t right[4];
            ls_load_matrices_transposed(right, b_lane + k * STRIDE + n * 16);
            ls_multiply(c[0][2 * n], left, right[0], right[1]);
            ls_multiply(c[0][2 * n + 1], left, right[2], right[3]);
        }
    }
}

template <int D>
static __device__ void add_product(float c[1][D / 8][4], const float *a, const float *b,
                                   bool transposed) {
    enum { STEPS = 4, SHEET = sheet_shape<float>::ROW };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int first = 0; first < TILE / 8; first += STEPS) {
        ls_split_left<1, STEPS> left;
#pragma unroll
        for (int k = 0; k < STEPS; k++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int row = g + i % 2 * 8, column = 8 * (first + k) + 2 * t + i / 2;
                ls_split(transposed ? a[column * SHEET + row] : a[row * SHEET + column],
                         left.high[0][k][i], left.low[0][k][i]);
            }
        ls_split_gather<D, 1, STEPS>(c, left, b + 8 * first * ls_tile_shape<float, D>::STRIDE);
    }
}

template <int D> static __device__ void clear(float c[1][D / 8][4]) {
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) c[0][n][i] = 0;
}

/* Puts a warp's 16 rows of a tile of scores on a sheet. */
template <typename T> static __device__ void put_on_sheet(T *sheet, const float c[1][TILE / 8][4]) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            ls_tile_put(sheet + (g + 8 * half) * sheet_shape<T>::ROW + n * 8 + 2 * t,
                        c[0][n][2 * half], c[0][n][2 * half + 1]);
}

/* ---- distances ---- */

static __device__ int offset(int64_t coordinate) {
    return (int)ls_cuda_clamp(coordinate, -FAR, FAR);
}

template <typename T, int D>
static __device__ void mark_queries(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                    int row, int64_t origin, tiles<T, D> &at) {
    for (int r = (int)threadIdx.x; r < TILE; r += LS_TILE_THREADS)
        at.query_offset[r] =
            offset(ls_cuda_whole_query_at(s, b, job.start + min(row + r, job.T - 1)) - origin);
}

/* Keys that are absent go on where the last one stands, so that each has a place of its own. */
template <typename T, int D>
static __device__ void mark_keys(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                 int row, int64_t origin, tiles<T, D> &at) {
    for (int r = (int)threadIdx.x; r < TILE; r += LS_TILE_THREADS) {
        at.key_offset[r] = offset(origin - ls_cuda_whole_at(s.key_at, s.key_position + row + r));
        at.bounds[r] = ls_tile_key_bounds(job, s, b, row + r);
    }
}

/* Distances of a tile's pairs, cut to those that there are relative keys for; the end lies behind
 * the last. The same in every thread. */
template <typename T, int D>
static __device__ ls_cuda_span distances(const ls_cuda_key_set &s, const tiles<T, D> &at) {
    const int lane = (int)threadIdx.x % 32, last = s.relative_rows - 1;
    if (s.relative.data == NULL) return ls_cuda_span{0, 0};
    const int *q = at.query_offset, *k = at.key_offset;
    const int least = __reduce_min_sync(~0u, min(q[lane], q[lane + 32])) +
                      __reduce_min_sync(~0u, min(k[lane], k[lane + 32]));
    const int most = __reduce_max_sync(~0u, max(q[lane], q[lane + 32])) +
                     __reduce_max_sync(~0u, max(k[lane], k[lane + 32]));
    return ls_cuda_span{min(max(least, 0), last), min(max(most, 0), last) + 1};
}

/* Where the last strip of those distances begins. */
static __device__ int last_strip(ls_cuda_span range) {
    return range.first + max(range.end - range.first - 1, 0) / TILE * TILE;
}

/* Reads the strip from distance `first` on, when all have done with the one before. */
template <typename T, int D>
static __device__ void take_strip(const ls_cuda_attention &job, const ls_cuda_key_set &s, int h,
                                  int first, tiles<T, D> &at) {
    __syncthreads();
    ls_tile_ask<D, TILE>(at.strip, s.relative, 0, h, first, s.relative_rows, job.K);
    ls_copies_end();
    ls_copies_wait<0>();
    __syncthreads();
}

/* A lane's elements of a tile of scores: what(element, row of the band, distance). */
template <typename T, int D, typename WHAT>
static __device__ __forceinline__ void each_pair(const tiles<T, D> &at, int band, WHAT what) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int query[2] = {at.query_offset[band + g], at.query_offset[band + g + 8]};
#pragma unroll
    for (int n = 0; n < TILE / 8; n++) {
        const int2 key = *(const int2 *)(const void *)(at.key_offset + n * 8 + 2 * t);
#pragma unroll
        for (int i = 0; i < 4; i++)
            what(n, i, g + i / 2 * 8, query[i / 2] + (i % 2 == 0 ? key.x : key.y));
    }
}

/* The scores of a warp's 16 queries and the tile's keys, before they are scaled. The last strip
 * stays. */
template <typename T, int D>
static __device__ void score(const ls_cuda_attention &job, const ls_cuda_key_set &s, int h,
                             ls_cuda_span range, tiles<T, D> &at, float scores[1][TILE / 8][4]) {
    enum { STRIDE = ls_tile_shape<T, D>::STRIDE };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp = (int)threadIdx.x / 32, band = warp * 16;
    float *scratch = at.scratch[warp];
    ls_tile_scores<D, 1, TILE>(scores, at.q + band * STRIDE, at.k);
    for (int first = range.first; first < range.end; first += TILE) {
        float products[1][TILE / 8][4];
        take_strip(job, s, h, first, at);
        ls_tile_scores<D, 1, TILE>(products, at.u + band * STRIDE, at.strip);
#pragma unroll
        for (int n = 0; n < TILE / 8; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(void *)(scratch + (g + 8 * half) * SCRATCH_ROW + n * 8 + 2 * t) = {
                    products[0][n][2 * half], products[0][n][2 * half + 1]};
        __syncwarp();
        each_pair(at, band, [&](int n, int i, int row, int distance) {
            const int column = min(max(distance, 0), s.relative_rows - 1) - first;
            if ((unsigned)column < (unsigned)TILE)
                scores[0][n][i] += scratch[row * SCRATCH_ROW + column];
        });
        __syncwarp();
    }
}

/* Scores of pairs that are not admitted become -infinity. `row`: of the warp's first query. */
static __device__ void admit(float scores[1][TILE / 8][4], const ls_tile_bounds *keys, int row) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const ls_tile_bounds key = keys[n * 8 + 2 * t + i % 2];
            const int query = row + g + i / 2 * 8;
            if (query < key.first || query >= key.end) scores[0][n][i] = -INFINITY;
        }
}

/* ---- forward ---- */

/* A block takes 64 queries of a head and passes over their keys. */
template <typename T, int D>
__global__ static void __launch_bounds__(LS_TILE_THREADS)
    forward(const __grid_constant__ ls_cuda_attention job) {
    extern __shared__ __align__(16) unsigned char arena[];
    tiles<T, D> &at = *(tiles<T, D> *)(void *)arena;
    const int count = (job.T + TILE - 1) / TILE;
    /* the last queries have the most keys: they come first */
    const int row = (count - 1 - (int)blockIdx.x) * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z;
    const int rows = min((int)TILE, job.T - row), warp_row = row + (int)threadIdx.x / 32 * 16;
    ls_tile_running<D, 1> state;
    ls_tile_begin(state, job.off_by_one);
    for (int number = 0; number < job.sets; number++) {
        const ls_cuda_key_set &s = job.set[number];
        const ls_tile_range range = ls_key_tiles<TILE>(job, s, row, rows);
        const int64_t origin = ls_cuda_whole_query_at(s, b, job.start + row);
        __syncthreads();
        ls_tile_ask<D, TILE>(at.q, s.q, b, h, row, job.T, job.K);
        if (s.relative.data != NULL)
            ls_tile_ask<D, TILE>(at.u, s.relative_q, b, h, row, job.T, job.K);
        mark_queries(job, s, b, row, origin, at);
        for (int tile = range.first; tile < range.end; tile++) {
            float scores[1][TILE / 8][4];
            __syncthreads();
            ls_tile_ask<D, TILE>(at.k, s.k, b, h, tile * TILE, s.keys, job.K);
            ls_tile_ask<D, TILE>(at.v, s.v, b, h, tile * TILE, s.keys, job.K);
            ls_copies_end();
            mark_keys(job, s, b, tile * TILE, origin, at);
            ls_copies_wait<0>();
            __syncthreads();
            score(job, s, h, distances(s, at), at, scores);
#pragma unroll
            for (int n = 0; n < TILE / 8; n++)
#pragma unroll
                for (int i = 0; i < 4; i++) scores[0][n][i] *= job.scale * LS_CUDA_LOG2_E;
            if (!ls_tile_is_full(range, tile)) admit(scores, at.bounds, warp_row);
            ls_tile_soften<D, 1, TILE>(scores, 1, state);
            ls_tile_gather<D, 1, TILE>(state.out, scores, at.v);
        }
        ls_copies_end(); /* of queries that have no keys */
        ls_copies_wait<0>();
    }
    ls_tile_store<T, D, 1>(job, state, b, h, warp_row, ls_part_rows{});
}

/* ---- gradients ---- */

/* Asks for what belongs to a tile of queries. */
template <typename T, int D>
static __device__ void take_queries(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                    int h, int row, int64_t origin, grad_tiles<T, D> &at) {
    const int64_t head = ((int64_t)b * job.H + h) * job.T;
    ls_tile_ask<D, TILE>(at.common.q, s.q, b, h, row, job.T, job.K);
    if (s.relative.data != NULL)
        ls_tile_ask<D, TILE>(at.common.u, s.relative_q, b, h, row, job.T, job.K);
    ls_tile_ask<D, TILE>(at.d_out, job.dout, b, h, row, job.T, job.K);
    ls_copies_end();
    mark_queries(job, s, b, row, origin, at.common);
    for (int r = (int)threadIdx.x; r < TILE; r += LS_TILE_THREADS) {
        const bool there = row + r < job.T;
        at.lse[r] = there ? job.row_lse[head + row + r] : INFINITY;
        at.dot[r] = there ? job.row_dot[head + row + r] : 0;
    }
}

template <typename T, int D>
static __device__ void take_keys(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                 int h, int row, int64_t origin, grad_tiles<T, D> &at) {
    ls_tile_ask<D, TILE>(at.common.k, s.k, b, h, row, s.keys, job.K);
    ls_tile_ask<D, TILE>(at.common.v, s.v, b, h, row, s.keys, job.K);
    ls_copies_end();
    mark_keys(job, s, b, row, origin, at.common);
}

/* The weights of a warp's queries and the tile's keys, and the gradients of their scores. */
template <typename T, int D>
static __device__ void differentiate(const ls_cuda_attention &job, const ls_cuda_key_set &s, int h,
                                     int row, bool full, ls_cuda_span range, grad_tiles<T, D> &at,
                                     float p[1][TILE / 8][4], float ds[1][TILE / 8][4]) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, band = (int)threadIdx.x / 32 * 16;
    score(job, s, h, range, at.common, p);
    if (!full) admit(p, at.common.bounds, row + band);
    ls_tile_scores<D, 1, TILE>(ds, at.d_out + band * ls_tile_shape<T, D>::STRIDE, at.common.v);
#pragma unroll
    for (int n = 0; n < TILE / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int r = band + g + i / 2 * 8;
            /* -infinity stays so whatever the scale's sign */
            const float scaled =
                p[0][n][i] == -INFINITY ? -INFINITY : p[0][n][i] * (job.scale * LS_CUDA_LOG2_E);
            p[0][n][i] = ls_exp2(scaled - at.lse[r]);
            ds[0][n][i] = p[0][n][i] * (ds[0][n][i] - at.dot[r]);
        }
}

/* Lays a warp's gradients of scores out by the distances of a strip. Keys differ in theirs, but for
 * those that are cut to the first or the last relative key. */
template <typename T, int D>
static __device__ void lay_out(const ls_cuda_key_set &s, int first, const tiles<T, D> &at, int band,
                               const float ds[1][TILE / 8][4], T *sheet) {
    enum { SHEET = sheet_shape<T>::ROW, PIECE = ls_tile_shape<T, D>::PIECE };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int last = s.relative_rows - 1;
    float low[2] = {}, high[2] = {};
    for (int i = lane; i < 16 * SHEET / PIECE; i += 32)
        *(uint4 *)(void *)(sheet + PIECE * i) = make_uint4(0, 0, 0, 0);
    __syncwarp();
    each_pair(at, band, [&](int n, int i, int row, int distance) {
        if (distance >= last)
            high[i / 2] += ds[0][n][i];
        else if (distance <= 0)
            low[i / 2] += ds[0][n][i];
        else if ((unsigned)(distance - first) < (unsigned)TILE)
            sheet[row * SHEET + distance - first] = ls_cuda_narrow<T>(ds[0][n][i]);
    });
#pragma unroll
    for (int half = 0; half < 2; half++) {
        for (int apart = 1; apart < 4; apart *= 2) {
            low[half] += __shfl_xor_sync(~0u, low[half], apart);
            high[half] += __shfl_xor_sync(~0u, high[half], apart);
        }
        T *mine = sheet + (g + 8 * half) * SHEET;
        if (t == 0 && first == 0 && last > 0) mine[0] = ls_cuda_narrow<T>(low[half]);
        if (t == 0 && (unsigned)(last - first) < (unsigned)TILE)
            mine[last - first] = ls_cuda_narrow<T>(high[half]);
    }
    __syncwarp();
}

/* Adds a warp's 16 rows of a strip's gradient, from `band` on, to those of a part. */
template <int D>
static __device__ void add_to_part(float *part, int strip, int band, int rows, int width,
                                   const float c[1][D / 8][4]) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (strip == NO_STRIP) return;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int r = strip + band + g + 8 * half;
        if (r >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            if (n * 8 + 2 * t >= width) break;
            float2 *there = (float2 *)(void *)(part + (int64_t)r * width + n * 8 + 2 * t);
            const float2 before = *there;
            *there = {before.x + c[0][n][2 * half], before.y + c[0][n][2 * half + 1]};
        }
    }
}

/* Gradients of q, relative_q and relative keys of one set. A block takes every parts-th tile of
 * a head's queries. */
template <typename T, int D>
__global__ static void __launch_bounds__(LS_TILE_THREADS)
    query_grad(const __grid_constant__ ls_cuda_attention job, int number, int parts) {
    enum { SHEET = sheet_shape<T>::ROW };
    extern __shared__ __align__(16) unsigned char arena[];
    grad_tiles<T, D> &at = *(grad_tiles<T, D> *)(void *)arena;
    const ls_cuda_key_set &s = job.set[number];
    const int h = (int)blockIdx.y, band = (int)threadIdx.x / 32 * 16;
    const int count = (job.T + TILE - 1) / TILE;
    const int64_t part_floats = (int64_t)s.relative_rows * job.K;
    float *part = s.drelative.data == NULL
                      ? NULL
                      : job.by_distance + ((int64_t)blockIdx.x * job.H + h) * part_floats;
    for (int64_t i = threadIdx.x; part != NULL && i < part_floats; i += LS_TILE_THREADS)
        part[i] = 0;
    for (int unit = (int)blockIdx.x; unit < job.B * count; unit += parts) {
        const int b = unit / count, row = unit % count * TILE;
        const ls_tile_range range = ls_key_tiles<TILE>(job, s, row, min((int)TILE, job.T - row));
        const int64_t origin = ls_cuda_whole_query_at(s, b, job.start + row);
        float dq[1][D / 8][4] = {}, du[1][D / 8][4] = {}, dr[1][D / 8][4] = {};
        int summed = NO_STRIP; /* whose gradient dr is */
        __syncthreads();
        take_queries(job, s, b, h, row, origin, at);
        for (int tile = range.first; tile < range.end; tile++) {
            float p[1][TILE / 8][4], ds[1][TILE / 8][4];
            __syncthreads();
            take_keys(job, s, b, h, tile * TILE, origin, at);
            ls_copies_wait<0>();
            __syncthreads();
            const ls_cuda_span strips = distances(s, at.common);
            differentiate(job, s, h, row, ls_tile_is_full(range, tile), strips, at, p, ds);
            ls_tile_gather<D, 1, TILE>(dq, ds, at.common.k);
            /* the last strip is still there, and the next tile's last is this one's first */
            const int last = last_strip(strips);
            for (int first = last; first >= strips.first && first < strips.end; first -= TILE) {
                if (first != last) take_strip(job, s, h, first, at.common);
                lay_out(s, first, at.common, band, ds, at.sheet + band * SHEET);
                add_product<D>(du, at.sheet + band * SHEET, at.common.strip, false);
                if (part == NULL) continue;
                if (first != summed) {
                    add_to_part<D>(part, summed, band, s.relative_rows, job.K, dr);
                    clear<D>(dr);
                    summed = first;
                }
                __syncthreads();
                add_product<D>(dr, at.sheet + band, at.common.u, true);
            }
        }
        if (part != NULL) add_to_part<D>(part, summed, band, s.relative_rows, job.K, dr);
        ls_copies_wait<0>();
        ls_tile_store_rows<T, D, 1>(s.dq, job.K, dq, job.scale, b, h, row + band, job.T, job.T);
        ls_tile_store_rows<T, D, 1>(s.drelative_q, job.K, du, job.scale, b, h, row + band, job.T,
                                    job.T);
    }
}

/* Gradients of keys and values: a block takes 64 keys and passes over the queries that see them. */
template <typename T, int D>
__global__ static void __launch_bounds__(LS_TILE_THREADS)
    key_grad(const __grid_constant__ ls_cuda_attention job, int number) {
    enum { SHEET = sheet_shape<T>::ROW };
    extern __shared__ __align__(16) unsigned char arena[];
    grad_tiles<T, D> &at = *(grad_tiles<T, D> *)(void *)arena;
    const ls_cuda_key_set &s = job.set[number];
    const int row = (int)blockIdx.x * TILE, h = (int)blockIdx.y, b = (int)blockIdx.z;
    const int band = (int)threadIdx.x / 32 * 16;
    ls_tile_range range = {0, 0, 0, 0};
    if (row < s.keys) range = ls_query_tiles<TILE>(job, s, row, min((int)TILE, s.keys - row));
    float dk[1][D / 8][4] = {}, dv[1][D / 8][4] = {};
    if (range.first < range.end) {
        const int64_t origin = ls_cuda_whole_at(s.key_at, s.key_position + row);
        take_keys(job, s, b, h, row, origin, at);
        for (int tile = range.first; tile < range.end; tile++) {
            float p[1][TILE / 8][4], ds[1][TILE / 8][4];
            __syncthreads();
            take_queries(job, s, b, h, tile * TILE, origin, at);
            ls_copies_wait<0>();
            __syncthreads();
            differentiate(job, s, h, tile * TILE, ls_tile_is_full(range, tile),
                          distances(s, at.common), at, p, ds);
            put_on_sheet(at.weights + band * SHEET, p);
            put_on_sheet(at.sheet + band * SHEET, ds);
            __syncthreads();
            add_product<D>(dv, at.weights + band, at.d_out, true);
            add_product<D>(dk, at.sheet + band, at.common.q, true);
        }
    }
    ls_tile_store_rows<T, D, 1>(s.dk, job.K, dk, job.scale, b, h, row + band, s.keys, s.key_rows);
    ls_tile_store_rows<T, D, 1>(s.dv, job.K, dv, 1, b, h, row + band, s.keys, s.key_rows);
}

/* ---- on the host ---- */

static bool whole(double x) {
    return x == floor(x);
}

/* Whether no two keys have the same coordinate. */
static bool keys_apart(const ls_position_map *map) {
    switch (map->kind) {
    case LS_MAP_IDENTITY:
        return true;
    case LS_MAP_GROUP:
        return map->a == 1 && whole(map->b);
    case LS_MAP_SCALE:
        return map->a >= 1 && whole(map->a) && whole(map->b);
    default:
        return false;
    }
}

bool ls_cuda_attention_relative_fits(const ls_cuda_attention *job, ls_dtype type) {
    const int few = 16; /* queries for which a tile is not worth it */
    /* wider tiles of f32 do not fit into shared memory */
    const int widest = type == LS_BF16 ? 128 : job->wide_tiles ? 64 : 0;
    bool relative = false, fit = job->K <= widest && job->V == job->K && job->H == job->G &&
                                 job->vectors && job->T >= few && job->cap == 0;
    for (int number = 0; number < job->sets; number++) {
        const ls_cuda_key_set *s = &job->set[number];
        relative = relative || s->relative.data != NULL;
        fit = fit && s->dilation == NULL && s->seen_by_queries.first == NULL && s->slopes == NULL &&
              s->table == NULL && s->log_decay == NULL;
        if (s->relative.data != NULL) fit = fit && s->relative_vectors && keys_apart(&s->key_at);
    }
    return fit && relative;
}

int ls_cuda_attention_relative_parts(int64_t B, int64_t T, int64_t H, int64_t rows, int64_t K) {
    const int64_t most_floats = (int64_t)64 << 20, units = B * ((T + TILE - 1) / TILE);
    int64_t parts = (PART_BLOCKS + H - 1) / H;
    if (rows > 0 && parts > most_floats / (H * rows * K)) parts = most_floats / (H * rows * K);
    if (parts > units) parts = units;
    return parts < 1 ? 1 : (int)parts;
}

template <typename SHARED, typename KERNEL, typename... REST>
static void start(const ls_run *run, KERNEL *kernel, dim3 grid, const ls_cuda_attention *job,
                  REST... rest) {
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)sizeof(SHARED)),
                 "attention, asking for shared memory");
    kernel<<<grid, LS_TILE_THREADS, sizeof(SHARED), ls_cuda_of(run)->stream>>>(*job, rest...);
    ls_cuda_launched(run, "attention with relative keys");
}

static unsigned tiles_of(int rows) {
    return (unsigned)((rows + TILE - 1) / TILE);
}

template <typename T, int D>
static void launch_width(const ls_run *run, const ls_cuda_attention *job) {
    const unsigned H = (unsigned)job->H, B = (unsigned)job->B;
    if (job->dout.data == NULL) {
        start<tiles<T, D>>(run, forward<T, D>, dim3(tiles_of(job->T), H, B), job);
        return;
    }
    for (int number = 0; number < job->sets; number++) {
        const ls_cuda_key_set *s = &job->set[number];
        const int parts =
            ls_cuda_attention_relative_parts(job->B, job->T, job->H, s->relative_rows, job->K);
        if (s->dk.data != NULL || s->dv.data != NULL)
            start<grad_tiles<T, D>>(run, key_grad<T, D>, dim3(tiles_of(s->key_rows), H, B), job,
                                    number);
        if (s->dq.data == NULL && s->drelative_q.data == NULL && s->drelative.data == NULL)
            continue;
        start<grad_tiles<T, D>>(run, query_grad<T, D>, dim3((unsigned)parts, H), job, number,
                                parts);
        if (s->drelative.data != NULL)
            ls_cuda_attention_relative_join(run, job, number, job->type, parts);
    }
}

void ls_cuda_attention_relative(const ls_run *run, const ls_cuda_attention *job) {
    if (job->type == LS_F32)
        launch_width<float, 64>(run, job);
    else if (job->K <= 64)
        launch_width<ls_cuda_bf16, 64>(run, job);
    else
        launch_width<ls_cuda_bf16, 128>(run, job);
}
