/* Products of heads: C = A B + u w^T for every head of every sequence at once, where the operands
 * are rows of tensors [B,T,H,W] or of matrices of the workspace. In tiles of 64 x 64; in bf16 on
 * the tensor cores, with sums in f32 always. Long sums can be cut in parts. */
#ifndef LS_TENSOR_CUDA_HEAD_PRODUCT_H
#define LS_TENSOR_CUDA_HEAD_PRODUCT_H

#include <mma.h>

#include "tensor/cuda/rows.cuh"

enum { LS_HEAD_M = 64, LS_HEAD_N = 64, LS_HEAD_K = 32, LS_HEAD_THREADS = 128 };

/* The matrix of each head: its stored rows are `stride` elements apart. */
template <typename T> struct ls_cuda_head_matrix {
    T *data;
    int64_t b_step, h_step, stride;
    __host__ __device__ T *at(int64_t b, int64_t h) const { return data + b * b_step + h * h_step; }
    bool in_lanes(int64_t width) const {
        return (b_step | h_step | stride | width) % (int64_t)(16 / sizeof(T)) == 0 &&
               ls_cuda_aligned(data);
    }
};

template <typename T> static ls_cuda_head_matrix<T> ls_cuda_head_rows(const ls_tensor *x) {
    if (x == NULL) return {NULL, 0, 0, 0};
    return {(T *)ls_data(x), x->stride[0], x->stride[2], x->stride[1]};
}

template <typename A, typename B, typename C> struct ls_cuda_head_product {
    int64_t batch, heads;
    int64_t m, n, k;
    ls_cuda_head_matrix<A> a;           /* [m,k]; with TURN_A stored [k,m] */
    ls_cuda_head_matrix<B> b;           /* [k,n]; with TURN_B stored [n,k] */
    ls_cuda_head_matrix<C> c;           /* [m,n] */
    ls_cuda_head_matrix<const float> u; /* [m], elements `stride` apart; without data: all 1 */
    const float *w;                     /* [batch,heads,n], or NULL: nothing is added */
    bool add;                           /* C += instead of C = */
    int64_t part, part_step; /* k of a part, a multiple of LS_HEAD_K; where its result lies: so many
                                elements behind the one before */
};

/* ---- on the device ---- */

/* A tile as it is stored: OUTER rows of INNER elements, zeros where there is nothing left. */
template <int OUTER, int INNER, int LD, bool WIDE, typename E, typename S>
static __device__ __forceinline__ void ls_cuda_head_load(E *tile, const S *from, int64_t stride,
                                                         int64_t outer_left, int64_t inner_left) {
    constexpr int LANES = WIDE ? (int)(16 / sizeof(S)) : 1, PACKS = INNER / LANES;
#pragma unroll 4
    for (int first = 0; first < OUTER * PACKS; first += LS_HEAD_THREADS) {
        const int index = first + (int)threadIdx.x;
        const int outer = index / PACKS, inner = index % PACKS * LANES;
        float values[LANES] = {};
        if (outer < outer_left && inner < inner_left)
            ls_cuda_load<LANES>(from + outer * stride + inner, values);
        E *to = tile + outer * LD + inner;
        if constexpr (sizeof(E) == sizeof(S)) {
            ls_cuda_store<LANES>(to, values);
        } else if constexpr (LANES % 2 == 0) {
#pragma unroll
            for (int i = 0; i < LANES; i += 2)
                *(uint32_t *)(to + i) = ls_cuda_narrow_two(values[i], values[i + 1]);
        } else {
            *to = ls_cuda_narrow<E>(values[0]);
        }
    }
}

/* What a block has to do with its tiles of A and B; `out` gets the sums at last. */
template <typename E, bool TURN_A, bool TURN_B, int LD_A, int LD_B> struct ls_cuda_head_tiles;

template <bool TURN_A, bool TURN_B, int LD_A, int LD_B>
struct ls_cuda_head_tiles<float, TURN_A, TURN_B, LD_A, LD_B> {
    enum { ROWS = 8, COLUMNS = 4 }; /* of a thread; 8 threads have 64 rows, 16 have 64 columns */
    float sum[ROWS][COLUMNS];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[i][j] = 0;
    }
    __device__ __forceinline__ void add(const float *a, const float *b) {
        const int row = (int)threadIdx.x / 16 * ROWS, column = (int)threadIdx.x % 16 * COLUMNS;
#pragma unroll 8
        for (int k = 0; k < LS_HEAD_K; k++) {
            float left[ROWS], right[COLUMNS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                left[i] = TURN_A ? a[k * LD_A + row + i] : a[(row + i) * LD_A + k];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                right[j] = TURN_B ? b[(column + j) * LD_B + k] : b[k * LD_B + column + j];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) sum[i][j] += left[i] * right[j];
        }
    }
    template <int LD> __device__ __forceinline__ void put(float *out) const {
        const int row = (int)threadIdx.x / 16 * ROWS, column = (int)threadIdx.x % 16 * COLUMNS;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) out[(row + i) * LD + column + j] = sum[i][j];
    }
};

/* Four warps have 32 x 32 each. */
template <bool TURN_A, bool TURN_B, int LD_A, int LD_B>
struct ls_cuda_head_tiles<ls_cuda_bf16, TURN_A, TURN_B, LD_A, LD_B> {
    using by_rows = nvcuda::wmma::row_major;
    using by_columns = nvcuda::wmma::col_major;
    using layout_a = std::conditional_t<TURN_A, by_columns, by_rows>;
    using layout_b = std::conditional_t<TURN_B, by_columns, by_rows>;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sum[2][2];
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++) nvcuda::wmma::fill_fragment(sum[i][j], 0.0f);
    }
    static __device__ __forceinline__ int row_of() {
        return (int)threadIdx.x / 64 * 32;
    }
    static __device__ __forceinline__ int column_of() {
        return (int)threadIdx.x / 32 % 2 * 32;
    }
    __device__ __forceinline__ void add(const ls_cuda_bf16 *left_tile,
                                        const ls_cuda_bf16 *right_tile) {
        namespace wmma = nvcuda::wmma;
        const __nv_bfloat16 *a = (const __nv_bfloat16 *)left_tile;
        const __nv_bfloat16 *b = (const __nv_bfloat16 *)right_tile;
#pragma unroll
        for (int k = 0; k < LS_HEAD_K; k += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, layout_a> left[2];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, layout_b> right[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = row_of() + 16 * i, column = column_of() + 16 * i;
                wmma::load_matrix_sync(left[i], a + (TURN_A ? k * LD_A + row : row * LD_A + k),
                                       LD_A);
                wmma::load_matrix_sync(right[i],
                                       b + (TURN_B ? column * LD_B + k : k * LD_B + column), LD_B);
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 2; j++) wmma::mma_sync(sum[i][j], left[i], right[j], sum[i][j]);
        }
    }
    template <int LD> __device__ __forceinline__ void put(float *out) const {
        namespace wmma = nvcuda::wmma;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                wmma::store_matrix_sync(out + (row_of() + 16 * i) * LD + column_of() + 16 * j,
                                        sum[i][j], LD, wmma::mem_row_major);
    }
};

/* Block (tile of a head, part of k). */
template <bool TURN_A, bool TURN_B, bool WIDE, typename A, typename B, typename C>
static __global__ void __launch_bounds__(LS_HEAD_THREADS)
    ls_cuda_head_product_kernel(const ls_cuda_head_product<A, B, C> g) {
    using E = std::remove_const_t<A>; /* of the tiles */
    constexpr int PAD = (int)(16 / sizeof(E)), LD = LS_HEAD_N + 4;
    constexpr int OUTER_A = TURN_A ? LS_HEAD_K : LS_HEAD_M;
    constexpr int INNER_A = TURN_A ? LS_HEAD_M : LS_HEAD_K, LD_A = INNER_A + PAD;
    constexpr int OUTER_B = TURN_B ? LS_HEAD_N : LS_HEAD_K;
    constexpr int INNER_B = TURN_B ? LS_HEAD_K : LS_HEAD_N, LD_B = INNER_B + PAD;
    __shared__ __align__(128) E tile_a[OUTER_A * LD_A];
    __shared__ __align__(128) E tile_b[OUTER_B * LD_B];
    __shared__ __align__(128) float out[LS_HEAD_M * LD];
    const int64_t across = (g.n + LS_HEAD_N - 1) / LS_HEAD_N;
    const int64_t down = (g.m + LS_HEAD_M - 1) / LS_HEAD_M;
    int64_t index = blockIdx.x;
    const int64_t column = index % across * LS_HEAD_N;
    index /= across;
    const int64_t row = index % down * LS_HEAD_M, piece = index / down;
    const int64_t batch = piece / g.heads, head = piece % g.heads;
    const int64_t first = blockIdx.y * g.part, end = min(g.k, first + g.part);
    const A *a = g.a.at(batch, head) + (TURN_A ? row : row * g.a.stride);
    const B *b = g.b.at(batch, head) + (TURN_B ? column * g.b.stride : column);
    ls_cuda_head_tiles<E, TURN_A, TURN_B, LD_A, LD_B> tiles;
    tiles.clear();
    for (int64_t k = first; k < end; k += LS_HEAD_K) {
        ls_cuda_head_load<OUTER_A, INNER_A, LD_A, WIDE>(tile_a, a + (TURN_A ? k * g.a.stride : k),
                                                        g.a.stride, TURN_A ? end - k : g.m - row,
                                                        TURN_A ? g.m - row : end - k);
        ls_cuda_head_load<OUTER_B, INNER_B, LD_B, WIDE>(tile_b, b + (TURN_B ? k : k * g.b.stride),
                                                        g.b.stride, TURN_B ? g.n - column : end - k,
                                                        TURN_B ? end - k : g.n - column);
        __syncthreads();
        tiles.add(tile_a, tile_b);
        __syncthreads();
    }
    tiles.template put<LD>(out);
    __syncthreads();
    C *c = g.c.at(batch, head) + blockIdx.y * g.part_step;
    const float *w = g.w == NULL ? NULL : g.w + piece * g.n, *u = g.u.at(batch, head);
    for (int i = (int)threadIdx.x; i < LS_HEAD_M * LS_HEAD_N; i += LS_HEAD_THREADS) {
        const int64_t r = row + i / LS_HEAD_N, s = column + i % LS_HEAD_N;
        if (r >= g.m || s >= g.n) continue;
        float value = out[i / LS_HEAD_N * LD + i % LS_HEAD_N];
        if (w != NULL) value += (g.u.data == NULL ? 1.0f : u[r * g.u.stride]) * w[s];
        C *to = c + r * g.c.stride + s;
        *to = ls_cuda_narrow<C>(g.add ? ls_cuda_wide(*to) + value : value);
    }
}

/* ---- on the host ---- */

template <bool TURN_A, bool TURN_B, typename A, typename B, typename C>
static void ls_cuda_head_product_run(const ls_run *run, ls_cuda_head_product<A, B, C> g,
                                     int64_t parts, const char *what) {
    const int64_t tiles = ls_ceil_div(g.m, LS_HEAD_M) * ls_ceil_div(g.n, LS_HEAD_N);
    if (parts == 1) g.part = g.k;
    const bool wide = g.a.in_lanes(TURN_A ? g.m : g.k) && g.b.in_lanes(TURN_B ? g.k : g.n);
    dim3 blocks((unsigned)(g.batch * g.heads * tiles), (unsigned)parts);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (wide)
        ls_cuda_head_product_kernel<TURN_A, TURN_B, true>
            <<<blocks, LS_HEAD_THREADS, 0, stream>>>(g);
    else
        ls_cuda_head_product_kernel<TURN_A, TURN_B, false>
            <<<blocks, LS_HEAD_THREADS, 0, stream>>>(g);
    ls_cuda_launched(run, what);
}

#endif
