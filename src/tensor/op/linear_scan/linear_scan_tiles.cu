/* A walk of the linear recurrence on the tensor units: bf16 rows, the state in f32 in registers.
 *
 * A block has a head of a sequence and up to 128 columns of its state, 16 for each warp. A warp
 * holds its columns transposed over, as sums of products of 16 columns by 8 of the depth: rounded
 * and paired, these are at once the right factors of queries times state. Chunks of 64 rows pass
 * by, the next one on its way while one is worked on; the weights within a chunk are computed by
 * all warps together and go through shared memory. See attention_tiles.h for how lanes hold
 * parts. */
#include "tensor/op/attention/attention_tiles.cuh"
#include "tensor/op/linear_scan/linear_scan.cuh"

enum {
    ROWS = 64,
    BANDS = ROWS / 16,
    COLUMNS = 128,
    WARPS = COLUMNS / 16,
    FEW = 16, /* fewer rows in all are not worth a tile */
    TILE_DEPTH_MAX = 256,
    VALUE_STRIDE = COLUMNS + LS_TILE_PAD,
    WEIGHT_STRIDE = ROWS + LS_TILE_PAD,
};

template <int DEPTH> struct alignas(16) shared_walk {
    enum { STRIDE = DEPTH + LS_TILE_PAD };
    ls_cuda_bf16 query[2][ROWS * STRIDE], key[2][ROWS * STRIDE], value[2][ROWS * VALUE_STRIDE];
    ls_cuda_bf16 weights[ROWS * WEIGHT_STRIDE];
    float power[ROWS + 4];                         /* g^m */
    float root[ROWS];                              /* of this chunk's rows */
    float fade[DEPTH > COLUMNS ? DEPTH : COLUMNS]; /* f^n of this chunk */
};

/* Where a warp is. */
typedef struct place {
    int b, h;
    int64_t end;      /* of its strip */
    int block_column; /* the block's first */
    int column;       /* the warp's first */
    float log_decay;
} place;

/* ---- tiles in ---- */

/* Asks for n rows from step `done` on, `columns` of them from `first` on; the rest is zeros. */
static __device__ __forceinline__ void ask(const ls_linear_walk &walk, const ls_linear_rows &x,
                                           const place &at, int64_t done, int n, int first,
                                           int columns, int stride, ls_cuda_bf16 *to) {
    const int pieces = columns / 8;
    for (int i = (int)threadIdx.x; i < ROWS * pieces; i += (int)blockDim.x) {
        const int m = i / pieces, piece = i % pieces, column = first + 8 * piece;
        const int64_t t = ls_linear_time(walk, done + m);
        ls_cuda_bf16 *cell = to + m * stride + 8 * piece;
        if (m < n && column < x.width && x.data != NULL) {
            ls_copy_16(cell, ls_linear_row<const ls_cuda_bf16>(x, at.b, t, at.h) + column, true);
            continue;
        }
        uint4 rest = make_uint4(0, 0, 0, 0);
        if (m < n && x.ended && column == x.width)
            rest.x = ls_pair(ls_linear_end(x, at.b, t, at.h), 0);
        *reinterpret_cast<uint4 *>(cell) = rest;
    }
}

template <int DEPTH, bool RESULTS>
static __device__ __forceinline__ void ask_chunk(const ls_linear_walk &walk, const place &at,
                                                 int64_t done, int buffer, shared_walk<DEPTH> &s) {
    enum { STRIDE = shared_walk<DEPTH>::STRIDE };
    if (done < at.end) {
        const int n = (int)(at.end - done < ROWS ? at.end - done : ROWS);
        if (RESULTS) ask(walk, walk.query, at, done, n, walk.first, DEPTH, STRIDE, s.query[buffer]);
        ask(walk, walk.key, at, done, n, walk.first, DEPTH, STRIDE, s.key[buffer]);
        ask(walk, walk.value, at, done, n, at.block_column, (int)blockDim.x / 2, VALUE_STRIDE,
            s.value[buffer]);
    }
    ls_copies_end();
}

/* f^steps of a feature, which lies along `width` elements; 1 beyond them. */
static __device__ __forceinline__ float feature_power(const ls_linear_walk &walk, int feature,
                                                      int width, int steps) {
    return feature < width ? ls_linear_power(walk.feature[feature], steps) : 1;
}

/* Row m of a tile, times f^(sign (m + 1 - ahead)). */
static __device__ void fade_tile(const ls_linear_walk &walk, int first, int columns, int width,
                                 int stride, int sign, ls_cuda_bf16 *tile) {
    for (int i = (int)threadIdx.x; i < ROWS * columns; i += (int)blockDim.x) {
        const int m = i / columns, e = i % columns;
        const float factor =
            feature_power(walk, first + e, width, sign * (m + 1 - (int)walk.backwards));
        ls_cuda_bf16 *x = tile + m * stride + e;
        *x = ls_cuda_narrow<ls_cuda_bf16>(ls_cuda_wide(*x) * factor);
    }
}

template <int DEPTH, bool RESULTS>
static __device__ void fade_chunk(const ls_linear_walk &walk, const place &at, int n, int buffer,
                                  shared_walk<DEPTH> &s) {
    enum { STRIDE = shared_walk<DEPTH>::STRIDE };
    const int columns = (int)blockDim.x / 2, deep = walk.feature_along_depth;
    if (deep) {
        if (RESULTS) fade_tile(walk, walk.first, DEPTH, walk.depth, STRIDE, 1, s.query[buffer]);
        fade_tile(walk, walk.first, DEPTH, walk.depth, STRIDE, -1, s.key[buffer]);
    } else {
        fade_tile(walk, at.block_column, columns, walk.width, VALUE_STRIDE, -1, s.value[buffer]);
    }
    for (int e = (int)threadIdx.x; e < (deep ? DEPTH : columns); e += (int)blockDim.x)
        s.fade[e] = feature_power(walk, (deep ? walk.first : at.block_column) + e,
                                  deep ? walk.depth : walk.width, n);
    __syncthreads();
}

/* ---- the chunk's own weights ---- */

/* weights[m][j] = g^(m-j) a_m . b_j (r_j) for j <= m: tiles of 16 x 16 on and below the diagonal,
 * shared out among the warps. */
template <int DEPTH>
static __device__ __forceinline__ void weigh(const ls_linear_walk &walk, int buffer,
                                             shared_walk<DEPTH> &s) {
    enum { STRIDE = shared_walk<DEPTH>::STRIDE };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    for (int u = (int)threadIdx.x / 32; u < BANDS * (BANDS + 1) / 2; u += (int)blockDim.x / 32) {
        const int band = u >= 6 ? 3 : u >= 3 ? 2 : u >= 1 ? 1 : 0;
        const int m = 16 * band, j = 16 * (u - band * (band + 1) / 2);
        float c[1][2][4];
        ls_tile_scores<DEPTH, 1, 16>(c, s.query[buffer] + m * STRIDE, s.key[buffer] + j * STRIDE);
#pragma unroll
        for (int tile = 0; tile < 2; tile++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = m + g + 8 * half, source = j + 8 * tile + 2 * t;
                float w[2];
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int steps = row - source - i;
                    w[i] = steps < 0 ? 0 : c[0][tile][2 * half + i] * s.power[steps];
                    if (walk.roots == LS_LINEAR_SOURCE_ROOTS) w[i] *= s.root[source + i];
                }
                *reinterpret_cast<uint32_t *>(s.weights + row * WEIGHT_STRIDE + source) =
                    ls_pair(w[0], w[1]);
            }
    }
}

/* ---- results ---- */

/* Four columns of a row. */
template <bool FADING>
static __device__ __forceinline__ void put(const ls_linear_walk &walk, const place &at, int m,
                                           int64_t t, int column, float (&x)[4]) {
    if (FADING && !walk.feature_along_depth)
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] *= feature_power(walk, column + i, walk.width, m + 1 - (int)walk.backwards);
    if (column < walk.out.width) {
        uint2 *to = reinterpret_cast<uint2 *>(ls_linear_row<ls_cuda_bf16>(walk.out, at.b, t, at.h) +
                                              column);
        if (walk.add) {
            const uint2 was = *to;
            x[0] += __uint_as_float(was.x << 16), x[1] += __uint_as_float(was.x & 0xffff0000u);
            x[2] += __uint_as_float(was.y << 16), x[3] += __uint_as_float(was.y & 0xffff0000u);
        }
        *to = make_uint2(ls_pair(x[0], x[1]), ls_pair(x[2], x[3]));
    } else if (column == walk.out.width && walk.out.ends != NULL) {
        float *to = ls_linear_end_place(walk.out, at.b, t, at.h);
        *to = walk.add ? *to + x[0] : x[0];
    }
}

/* The sums of rows m + g and m + g + 8. Neighbouring lanes trade halves, so that each has four
 * columns side by side and a row's 16 columns are written at once. */
template <bool FADING>
static __device__ __forceinline__ void put_band(const ls_linear_walk &walk, const place &at,
                                                int64_t done, int n, int m, const float *root,
                                                const float (&c)[2][4]) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bool odd = t % 2 == 1;
    const int column = at.column + (odd ? 8 + 2 * (t - 1) : 2 * t);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = m + g + 8 * half;
        const float by = walk.roots == LS_LINEAR_QUERY_ROOTS ? root[row] : 1;
        float x[4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float low = c[0][2 * half + i] * by, high = c[1][2 * half + i] * by;
            const float other = __shfl_xor_sync(0xffffffffu, odd ? low : high, 1);
            x[i] = odd ? other : low;
            x[2 + i] = odd ? high : other;
        }
        if (row < n) put<FADING>(walk, at, row, ls_linear_time(walk, done + row), column, x);
    }
}

/* Values of a warp's columns, 16 rows of them: right factors of a product with weights. With the
 * middle two exchanged they are left factors, transposed over. */
typedef uint32_t value_parts[BANDS][4];

/* Two bands of rows from m on: queries times the state, and weights times values. */
template <int DEPTH, bool FADING>
static __device__ __forceinline__ void
read_state(const ls_linear_walk &walk, const place &at, int64_t done, int n, int pair, int buffer,
           const shared_walk<DEPTH> &s, const float (&state)[DEPTH / 8][4],
           const value_parts &values) {
    enum { STRIDE = shared_walk<DEPTH>::STRIDE };
    const int lane = (int)threadIdx.x % 32, m = 32 * pair, ahead = walk.backwards;
    const ls_cuda_bf16 *query = s.query[buffer] + (m + lane % 16) * STRIDE + lane / 16 * 8;
    const ls_cuda_bf16 *weights = s.weights + (m + lane % 16) * WEIGHT_STRIDE + lane / 16 * 8;
    float c[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < DEPTH / 16; k++) {
        const float *near = state[2 * k], *far = state[2 * k + 1];
        const uint32_t right[4] = {ls_pair(near[0], near[1]), ls_pair(far[0], far[1]),
                                   ls_pair(near[2], near[3]), ls_pair(far[2], far[3])};
#pragma unroll
        for (int band = 0; band < 2; band++) {
            uint32_t left[4];
            ls_load_matrices(left, query + band * 16 * STRIDE + 16 * k);
            ls_multiply(c[band][0], left, right[0], right[1]);
            ls_multiply(c[band][1], left, right[2], right[3]);
        }
    }
#pragma unroll
    for (int band = 0; band < 2; band++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float power = s.power[m + 16 * band + lane / 4 + 8 * half + 1 - ahead];
#pragma unroll
            for (int tile = 0; tile < 2; tile++) {
                c[band][tile][2 * half] *= power;
                c[band][tile][2 * half + 1] *= power;
            }
        }
#pragma unroll
    for (int k = 0; k < BANDS; k++)
#pragma unroll
        for (int band = 0; band < 2; band++) {
            if (k > 2 * pair + band) continue;
            uint32_t left[4];
            ls_load_matrices(left, weights + band * 16 * WEIGHT_STRIDE + 16 * k);
            ls_multiply(c[band][0], left, values[k][0], values[k][1]);
            ls_multiply(c[band][1], left, values[k][2], values[k][3]);
        }
#pragma unroll
    for (int band = 0; band < 2; band++)
        put_band<FADING>(walk, at, done, n, m + 16 * band, s.root, c[band]);
}

/* ---- the state ---- */

static __device__ __forceinline__ uint32_t times(uint32_t two, float low, float high) {
    return ls_pair(__uint_as_float(two << 16) * low, __uint_as_float(two & 0xffff0000u) * high);
}

/* What is left of source j at the end of a chunk of n rows. */
template <int DEPTH>
static __device__ __forceinline__ float left_of(const ls_linear_walk &walk,
                                                const shared_walk<DEPTH> &s, int n, int j) {
    if (j >= n) return 0;
    const float power = s.power[n - 1 - j + (int)walk.backwards];
    return walk.roots == LS_LINEAR_SOURCE_ROOTS ? power * s.root[j] : power;
}

template <int DEPTH, bool FADING>
static __device__ __forceinline__ void
advance(const ls_linear_walk &walk, const place &at, int n, int buffer, const shared_walk<DEPTH> &s,
        float (&state)[DEPTH / 8][4], const value_parts &values) {
    enum { STRIDE = shared_walk<DEPTH>::STRIDE };
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const ls_cuda_bf16 *key = s.key[buffer] + (lane % 16) * STRIDE + lane / 16 * 8;
    const float whole = s.power[n];
#pragma unroll
    for (int k = 0; k < DEPTH / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) state[k][i] *= whole;
#pragma unroll
    for (int band = 0; band < BANDS; band++) {
        const int j = 16 * band + 2 * t;
        const float f0 = left_of(walk, s, n, j), f1 = left_of(walk, s, n, j + 1);
        const float f8 = left_of(walk, s, n, j + 8), f9 = left_of(walk, s, n, j + 9);
        const uint32_t left[4] = {times(values[band][0], f0, f1), times(values[band][2], f0, f1),
                                  times(values[band][1], f8, f9), times(values[band][3], f8, f9)};
#pragma unroll
        for (int k = 0; k < DEPTH / 16; k++) {
            uint32_t right[4];
            ls_load_matrices_transposed(right, key + band * 16 * STRIDE + 16 * k);
            ls_multiply(state[2 * k], left, right[0], right[1]);
            ls_multiply(state[2 * k + 1], left, right[2], right[3]);
        }
    }
    if (FADING) {
#pragma unroll
        for (int k = 0; k < DEPTH / 8; k++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                state[k][i] *= s.fade[walk.feature_along_depth
                                          ? 8 * k + 2 * t + i % 2
                                          : at.column - at.block_column + g + 8 * (i / 2)];
    }
}

/* f(element of the state, its place in memory) for what a lane holds. */
template <int DEPTH, typename F>
static __device__ __forceinline__ void each_element(const ls_linear_walk &walk, const place &at,
                                                    float (&state)[DEPTH / 8][4], F f) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t begin = ls_linear_state(walk, at.b, at.h);
#pragma unroll
    for (int k = 0; k < DEPTH / 8; k++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int depth = 8 * k + 2 * (lane % 4) + i % 2;
            const int column = at.column + lane / 4 + 8 * (i / 2);
            if (depth < walk.count && column < walk.width)
                f(state[k][i], begin + depth * walk.along_depth + column * walk.along_width);
        }
}

/* RESULTS: else the states alone. */
template <int DEPTH, bool FADING, bool RESULTS>
static __global__ void __launch_bounds__(32 * WARPS, DEPTH <= 128 ? 2 : 1)
    walk_tiles(const ls_linear_walk walk, int slices) {
    extern __shared__ __align__(16) char memory[];
    shared_walk<DEPTH> &s = *reinterpret_cast<shared_walk<DEPTH> *>(memory);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int piece = (int)(blockIdx.x / (unsigned)slices);
    const ls_linear_steps strip = ls_linear_strip(walk);
    place at;
    at.b = piece / walk.H;
    at.h = piece % walk.H;
    at.end = strip.end;
    at.block_column = (int)(blockIdx.x % (unsigned)slices) * ((int)blockDim.x / 2);
    at.column = at.block_column + 16 * warp;
    at.log_decay = walk.log_decay[at.h];
    ask_chunk<DEPTH, RESULTS>(walk, at, strip.begin, 0, s);
    for (int m = (int)threadIdx.x; m <= ROWS; m += (int)blockDim.x)
        s.power[m] = ls_linear_power(at.log_decay, m);
    float state[DEPTH / 8][4] = {};
    if (walk.before != NULL)
        each_element<DEPTH>(walk, at, state,
                            [&](float &x, int64_t from) { x = walk.before[from]; });
    int buffer = 0;
    for (int64_t done = strip.begin; done < strip.end; done += ROWS, buffer ^= 1) {
        const int n = (int)(strip.end - done < ROWS ? strip.end - done : ROWS);
        ask_chunk<DEPTH, RESULTS>(walk, at, done + ROWS, buffer ^ 1, s);
        if (walk.roots != LS_LINEAR_NO_ROOTS)
            for (int m = (int)threadIdx.x; m < ROWS; m += (int)blockDim.x)
                s.root[m] =
                    m < n ? ls_linear_root(walk, at.log_decay, at.b, ls_linear_time(walk, done + m))
                          : 0;
        ls_copies_wait<1>();
        __syncthreads();
        if (FADING) fade_chunk<DEPTH, RESULTS>(walk, at, n, buffer, s);
        if (RESULTS) weigh(walk, buffer, s);
        value_parts values;
#pragma unroll
        for (int band = 0; band < BANDS; band++)
            ls_load_matrices_transposed(values[band], s.value[buffer] +
                                                          (16 * band + lane % 16) * VALUE_STRIDE +
                                                          16 * warp + lane / 16 * 8);
        if (RESULTS) {
            __syncthreads();
#pragma unroll 1
            for (int pair = 0; pair < BANDS / 2; pair++)
                read_state<DEPTH, FADING>(walk, at, done, n, pair, buffer, s, state, values);
        }
        if (walk.after != NULL || done + ROWS < strip.end)
            advance<DEPTH, FADING>(walk, at, n, buffer, s, state, values);
        __syncthreads(); /* this chunk's place is asked for again */
    }
    if (walk.after != NULL)
        each_element<DEPTH>(walk, at, state, [&](float &x, int64_t to) { walk.after[to] = x; });
}

/* ---- on the host ---- */

static bool rows_fit(const ls_linear_rows *x) {
    return (uintptr_t)x->data % 16 == 0 && x->batch % 8 == 0 && x->row % 8 == 0 &&
           x->head % 8 == 0 && x->width % 8 == 0;
}

bool ls_linear_tiles_fit(const ls_cuda *cuda, const ls_linear_walk *walk) {
    return cuda->major >= 8 && sizeof(shared_walk<128>) <= cuda->shared_max && walk->T >= FEW &&
           rows_fit(&walk->query) && rows_fit(&walk->key) && rows_fit(&walk->value) &&
           rows_fit(&walk->out);
}

int ls_linear_tiles_depth(const ls_cuda *cuda) {
    return sizeof(shared_walk<TILE_DEPTH_MAX>) <= cuda->shared_max ? TILE_DEPTH_MAX : 128;
}

template <int DEPTH, bool FADING, bool RESULTS>
static void launch(const ls_run *run, const ls_linear_walk *walk, const char *what) {
    const ls_cuda *cuda = ls_cuda_of(run);
    const int64_t heads = (int64_t)walk->B * walk->H;
    int64_t slices = ls_ceil_div(walk->width, COLUMNS);
    /* narrower slices repeat the weights, but processors without work gain nothing; where there are
     * not two for each block, they would wait for one another instead */
    if (2 * heads * slices * walk->strips <= cuda->processors)
        slices = ls_ceil_div(walk->width, COLUMNS / 2);
    const int64_t warps = ls_ceil_div(ls_ceil_div(walk->width, slices), 16);
    const dim3 blocks((unsigned)(heads * slices), (unsigned)walk->strips);
    const size_t bytes = sizeof(shared_walk<DEPTH>);
    cudaError_t error =
        cudaFuncSetAttribute(walk_tiles<DEPTH, FADING, RESULTS>,
                             cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess) /* two blocks at a time need all there is */
        error = cudaFuncSetAttribute(walk_tiles<DEPTH, FADING, RESULTS>,
                                     cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    ls_cuda_note(ls_cuda_of(run), error, what);
    walk_tiles<DEPTH, FADING, RESULTS>
        <<<blocks, (unsigned)(32 * warps), bytes, cuda->stream>>>(*walk, (int)slices);
    ls_cuda_launched(run, what);
}

template <int DEPTH, bool FADING>
static void launch_kind(const ls_run *run, const ls_linear_walk *walk, const char *what) {
    if (walk->states_only)
        launch<DEPTH, FADING, false>(run, walk, what);
    else
        launch<DEPTH, FADING, true>(run, walk, what);
}

template <int DEPTH>
static void launch_depth(const ls_run *run, const ls_linear_walk *walk, const char *what) {
    if (walk->feature != NULL)
        launch_kind<DEPTH, true>(run, walk, what);
    else
        launch_kind<DEPTH, false>(run, walk, what);
}

void ls_linear_tiles(const ls_run *run, const ls_linear_walk *walk, const char *what) {
    if (walk->count <= 64)
        launch_depth<64>(run, walk, what);
    else if (walk->count <= 128)
        launch_depth<128>(run, walk, what);
    else
        launch_depth<TILE_DEPTH_MAX>(run, walk, what);
}
