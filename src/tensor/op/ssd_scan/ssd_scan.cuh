/* What the CUDA kernels of ssd_scan share. A block walks along time with one head of a sequence and
 * up to 64 of its channels; the state stays in shared memory while chunks pass by. Formulas are
 * those of ssd_scan_cpu.h; products of bf16 run on the tensor units, those of f32 do not. */
#ifndef LS_TENSOR_OP_SSD_SCAN_CUH
#define LS_TENSOR_OP_SSD_SCAN_CUH

#include <mma.h>
#include <type_traits>

#include "tensor/cuda/cuda.cuh"

extern "C" {
#include "tensor/op/ssd_scan/ssd_scan.h"
}

enum {
    LS_SSD_WARPS = 8,
    LS_SSD_THREADS = 32 * LS_SSD_WARPS,
    LS_SSD_SLICE = 64 * 128, /* numbers of a state that a block has at most, in up to 64 channels */
};

/* Rows [batch,T,heads or groups,width], in elements. */
typedef struct ls_ssd_rows {
    void *data;
    int64_t batch, row, head;
} ls_ssd_rows;

typedef struct ls_ssd_job {
    int64_t batch, T;
    int H, G, P, N;
    int slices, slice; /* of the channels of a head; channels of each */
    int rows;          /* of a chunk */
    float dt_min, dt_max;
    bool wide_D;
    ls_ssd_rows x, dt, B, C;
    const float *A_log, *D, *bias; /* D and bias may be NULL */
    const float *before;
} ls_ssd_job;

/* Where a block is. */
typedef struct ls_ssd_place {
    int b, h, g, first, count; /* its first channel and their number */
} ls_ssd_place;

static __host__ __device__ inline int ls_ssd_round(int n) {
    return (n + 15) / 16 * 16;
}
/* Strides of shared rows: 16 bytes on, so that rows below one another lie in other banks. */
static __host__ __device__ inline int ls_ssd_stride(int width) {
    return ls_ssd_round(width) + 8;
}

/* ---- on the device ---- */

template <typename T>
static __device__ __forceinline__ T *ls_ssd_row(const ls_ssd_rows &x, int b, int64_t t, int h) {
    return (T *)x.data + (b * x.batch + t * x.row + h * x.head);
}

/* Where element (0, 0) of a block's part of a state lies, in states [..,H,P,N]; `which` counts
 * sequences or kept states. */
static __device__ __forceinline__ int64_t ls_ssd_state(const ls_ssd_job &s, const ls_ssd_place &at,
                                                       int64_t which) {
    return ((which * s.H + at.h) * s.P + at.first) * (int64_t)s.N;
}

/* Steps and decays of a head over a chunk, as in ssd_scan_cpu.h; those of rows that are not there
 * are 0, and no decay. */
typedef struct ls_ssd_steps {
    float step[LS_SSD_CHUNK], slope[LS_SSD_CHUNK], high[LS_SSD_CHUNK], low[LS_SSD_CHUNK];
    float enter[LS_SSD_CHUNK], leave[LS_SSD_CHUNK];
    float whole;
} ls_ssd_steps;

/* log(1 + e^x) and its slope. */
static __device__ __forceinline__ float ls_ssd_softplus(float x, float *slope) {
    const float e = expf(-fabsf(x));
    *slope = (x < 0 ? e : 1.0f) / (1.0f + e);
    return fmaxf(x, 0.0f) + log1pf(e);
}

/* By the first warp. */
template <typename T>
static __device__ void ls_ssd_find_steps(const ls_ssd_job &s, const ls_ssd_place &at, int64_t first,
                                         int n, float A, ls_ssd_steps &to) {
    const int lane = (int)threadIdx.x, each = (s.rows + 31) / 32;
    if (lane >= 32) return;
    double sum = 0, mine[2] = {0, 0};
    for (int r = 0; r < each; r++) {
        const int i = lane * each + r;
        float step = 0, slope = 0;
        if (i < n) {
            float in = ls_cuda_wide(*ls_ssd_row<const T>(s.dt, at.b, first + i, at.h));
            if (s.bias != NULL) in += s.bias[at.h];
            step = ls_ssd_softplus(in, &slope);
            if (step < s.dt_min || step > s.dt_max) {
                step = step < s.dt_min ? s.dt_min : s.dt_max;
                slope = 0;
            }
            const float by = step * A;
            sum += (double)(by < -1000.0f ? -1000.0f : by) * 1.4426950408889634;
        }
        mine[r] = sum;
        if (i < s.rows) {
            to.step[i] = step;
            to.slope[i] = slope;
        }
    }
    double before = sum; /* becomes the sum over the lanes up to this one */
#pragma unroll
    for (int by = 1; by < 32; by *= 2) {
        const double other = __shfl_up_sync(0xffffffffu, before, by);
        if (lane >= by) before += other;
    }
    const double end = __shfl_sync(0xffffffffu, before, 31);
    before -= sum;
    for (int r = 0; r < each; r++) {
        const int i = lane * each + r;
        if (i >= s.rows) break;
        const double c = before + mine[r];
        to.high[i] = (float)c;
        to.low[i] = (float)(c - (double)to.high[i]);
        to.enter[i] = exp2f((float)c);
        to.leave[i] = exp2f((float)(end - c));
    }
    if (lane == 0) to.whole = exp2f((float)end);
}

/* exp of the decays between row j and row i >= j. */
static __device__ __forceinline__ float ls_ssd_between(const ls_ssd_steps &now, int i, int j) {
    return exp2f((now.high[i] - now.high[j]) + (now.low[i] - now.low[j]));
}

/* n rows, `count` elements of them from `column` on, to `rows` rows of `width` in shared memory;
 * what is beyond, up to whole tiles, is 0. */
template <typename T>
static __device__ void ls_ssd_load(const ls_ssd_rows &x, int b, int64_t first, int h, int column,
                                   int n, int count, int rows, int width, T *to) {
    const int padded = ls_ssd_round(width), stride = ls_ssd_stride(width);
    for (int k = (int)threadIdx.x; k < rows * padded; k += LS_SSD_THREADS) {
        const int i = k / padded, e = k % padded;
        T value = ls_cuda_narrow<T>(0.0f);
        if (i < n && e < count) value = ls_ssd_row<const T>(x, b, first + i, h)[column + e];
        to[i * stride + e] = value;
    }
}

/* `count` channels of a state, f32, to rows of shared memory; zeros where from is NULL. */
template <typename T>
static __device__ void ls_ssd_load_state(const float *from, int count, int slice, int N, T *to) {
    const int rows = ls_ssd_round(slice), padded = ls_ssd_round(N), stride = ls_ssd_stride(N);
    for (int k = (int)threadIdx.x; k < rows * padded; k += LS_SSD_THREADS) {
        const int p = k / padded, n = k % padded;
        const bool there = from != NULL && p < count && n < N;
        to[p * stride + n] = ls_cuda_narrow<T>(there ? from[(int64_t)p * N + n] : 0.0f);
    }
}

static __device__ inline void ls_ssd_store_state(const float *from, int count, int N, float *to) {
    const int stride = ls_ssd_stride(N);
    for (int k = (int)threadIdx.x; k < count * N; k += LS_SSD_THREADS)
        to[k] = from[k / N * stride + k % N];
}

/* The state as an operand: a copy of the rows' type, or itself. */
static __device__ inline void ls_ssd_narrow(const float *from, int count, int N, ls_cuda_bf16 *to) {
    const int padded = ls_ssd_round(N), stride = ls_ssd_stride(N);
    for (int k = (int)threadIdx.x; k < ls_ssd_round(count) * padded; k += LS_SSD_THREADS) {
        const int at = k / padded * stride + k % padded;
        to[at] = ls_cuda_narrow<ls_cuda_bf16>(from[at]);
    }
}
static __device__ inline void ls_ssd_narrow(const float *, int, int, float *) {}

/* c[m,n] = a b, or c += a b, of tiles of 16 x 16 in shared memory; A_TRANSPOSED: a is stored [k,m],
 * B_TRANSPOSED: b is stored [n,k]. */
template <bool A_TRANSPOSED, bool B_TRANSPOSED>
static __device__ __forceinline__ void ls_ssd_tile(int k, const ls_cuda_bf16 *a, int lda,
                                                   const ls_cuda_bf16 *b, int ldb, float *c,
                                                   int ldc, bool add) {
    using namespace nvcuda;
    typedef
        typename std::conditional<A_TRANSPOSED, wmma::col_major, wmma::row_major>::type a_layout;
    typedef
        typename std::conditional<B_TRANSPOSED, wmma::col_major, wmma::row_major>::type b_layout;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, a_layout> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, b_layout> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    if (add)
        wmma::load_matrix_sync(sum, c, (unsigned)ldc, wmma::mem_row_major);
    else
        wmma::fill_fragment(sum, 0.0f);
    for (int i = 0; i < k; i += 16) {
        const ls_cuda_bf16 *at = A_TRANSPOSED ? a + i * lda : a + i;
        wmma::load_matrix_sync(left, (const __nv_bfloat16 *)at, (unsigned)lda);
        at = B_TRANSPOSED ? b + i : b + i * ldb;
        wmma::load_matrix_sync(right, (const __nv_bfloat16 *)at, (unsigned)ldb);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c, sum, (unsigned)ldc, wmma::mem_row_major);
}

/* A lane has two rows of four columns. */
template <bool A_TRANSPOSED, bool B_TRANSPOSED>
static __device__ __forceinline__ void ls_ssd_tile(int k, const float *a, int lda, const float *b,
                                                   int ldb, float *c, int ldc, bool add) {
    const int lane = (int)threadIdx.x % 32, row = lane / 4 * 2, column = lane % 4 * 4;
    float sum[2][4];
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int v = 0; v < 4; v++) sum[u][v] = add ? c[(row + u) * ldc + column + v] : 0;
    for (int i = 0; i < k; i++) {
        float left[2], right[4];
#pragma unroll
        for (int u = 0; u < 2; u++)
            left[u] = A_TRANSPOSED ? a[i * lda + row + u] : a[(row + u) * lda + i];
#pragma unroll
        for (int v = 0; v < 4; v++)
            right[v] = B_TRANSPOSED ? b[(column + v) * ldb + i] : b[i * ldb + column + v];
#pragma unroll
        for (int u = 0; u < 2; u++)
#pragma unroll
            for (int v = 0; v < 4; v++) sum[u][v] += left[u] * right[v];
    }
#pragma unroll
    for (int u = 0; u < 2; u++)
#pragma unroll
        for (int v = 0; v < 4; v++) c[(row + u) * ldc + column + v] = sum[u][v];
}

/* By all warps; m, n and k are multiples of 16. Nothing waits here. */
template <typename T, bool A_TRANSPOSED, bool B_TRANSPOSED>
static __device__ void ls_ssd_product(int m, int n, int k, const T *a, int lda, const T *b, int ldb,
                                      float *c, int ldc, bool add) {
    const int across = n / 16;
    for (int tile = (int)threadIdx.x / 32; tile < m / 16 * across; tile += LS_SSD_WARPS) {
        const int i = tile / across * 16, j = tile % across * 16;
        ls_ssd_tile<A_TRANSPOSED, B_TRANSPOSED>(k, A_TRANSPOSED ? a + i : a + i * lda, lda,
                                                B_TRANSPOSED ? b + j * ldb : b + j, ldb,
                                                c + i * ldc + j, ldc, add);
    }
}

/* to[j] = from[j] * by[j] (* also[j]), rows of a block's channels. */
template <typename T>
static __device__ void ls_ssd_scale(const T *from, int rows, int width, const float *by,
                                    const float *also, T *to) {
    const int padded = ls_ssd_round(width), stride = ls_ssd_stride(width);
    for (int k = (int)threadIdx.x; k < rows * padded; k += LS_SSD_THREADS) {
        const int i = k / padded, at = i * stride + k % padded;
        const float factor = also == NULL ? by[i] : by[i] * also[i];
        to[at] = ls_cuda_narrow<T>(ls_cuda_wide(from[at]) * factor);
    }
}

static __device__ __forceinline__ float ls_ssd_skip(const ls_ssd_job &s, int h, int p) {
    return s.D == NULL ? 0 : s.D[s.wide_D ? h * s.P + p : h];
}

/* Hands out parts of shared memory; without memory it only measures. */
typedef struct ls_ssd_space {
    char *base;
    size_t used;
} ls_ssd_space;
template <typename T>
static __host__ __device__ inline T *ls_ssd_take(ls_ssd_space *from, size_t count) {
    const size_t at = from->used;
    from->used += (count * sizeof(T) + 127) / 128 * 128;
    return from->base == NULL ? NULL : (T *)(from->base + at);
}

/* ---- on the host ---- */

static inline ls_ssd_rows ls_ssd_rows_of(const ls_tensor *tensor) {
    const ls_ssd_rows rows = {ls_data(tensor), tensor->stride[0], tensor->stride[1],
                              tensor->stride[2]};
    return rows;
}

/* What both ways have of a node, before and after its tensors have their places; rows of a chunk
 * are still to be chosen. */
ls_ssd_job ls_ssd_shape_of(const ls_node *node);
ls_ssd_job ls_ssd_job_of(const ls_node *node);
template <typename T> void ls_ssd_backward(const ls_run *run, const ls_node *node);
size_t ls_ssd_cuda_backward_workspace(const ls_node *node, int threads);

#endif
