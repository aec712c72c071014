/* A warp has EACH_WARP rows of the weight, which pass through once; its lanes have 16 bytes of a row
 * at a time. */
#include "tensor/cuda/few_rows.cuh"

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/reduce.cuh"
#include "tensor/cuda/rows.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, ROWS_MAX = 8, MANY = 8192 };

typedef struct few_job {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    const void *a, *b;
    void *c;
    const float *bias; /* or NULL */
} few_job;

/* 16 bytes of a weight: they are not needed again. */
template <typename T, int EACH>
static __device__ __forceinline__ ls_cuda_pack<T, EACH> read_once(const T *from) {
    const uint4 bits = __ldcs(reinterpret_cast<const uint4 *>(from));
    ls_cuda_pack<T, EACH> pack;
    static_assert(sizeof pack == sizeof bits, "16 bytes");
    memcpy(&pack, &bits, sizeof pack);
    return pack;
}

/* A bias is rounded as cuBLASLt takes it: see product.cuh. */
template <typename C>
static __device__ __forceinline__ float bias_at(const few_job &job, int64_t n) {
    return job.bias == NULL ? 0 : ls_cuda_wide(ls_cuda_narrow<C>(job.bias[n]));
}

/* What a lane has of AHEAD times 512 bytes of each row. */
template <typename T, int EACH_WARP, int AHEAD> struct weight_packs {
    enum { EACH = 16 / sizeof(T) };
    ls_cuda_pack<T, EACH> at[AHEAD][EACH_WARP];
    __device__ __forceinline__ void take(const T *const (&b)[EACH_WARP], int64_t k, int64_t end) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++, k += 32 * EACH)
#pragma unroll
            for (int j = 0; j < EACH_WARP; j++)
                if (k < end) at[u][j] = read_once<T, EACH>(b[j] + k);
    }
};

template <typename T, typename C, int ROWS, int EACH_WARP>
static __global__ void __launch_bounds__(THREADS) few_rows(const few_job job) {
    enum { EACH = 16 / sizeof(T), AHEAD = EACH_WARP == 1 ? 4 : 2 };
    const int lane = (int)threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * EACH_WARP;
    const T *a[ROWS], *b[EACH_WARP];
    float sum[ROWS][EACH_WARP] = {};
    if (first >= job.n) return;
        /* what lies beyond the last row is the last row again, and is not written */
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        a[i] = (const T *)job.a + (i < job.m ? i : job.m - 1) * job.a_stride;
#pragma unroll
    for (int j = 0; j < EACH_WARP; j++)
        b[j] = (const T *)job.b + (first + j < job.n ? first + j : job.n - 1) * job.b_stride;
    /* weights are read before it is known that the rows are there, and ahead of their use */
    weight_packs<T, EACH_WARP, AHEAD> now, next;
    next.take(b, lane * EACH, job.k);
    ls_cuda_after();
    for (int64_t base = lane * EACH; base < job.k; base += AHEAD * 32 * EACH) {
        now = next;
        next.take(b, base + AHEAD * 32 * EACH, job.k);
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t k = base + u * 32 * EACH;
            if (k >= job.k) continue;
            float x[ROWS][EACH];
#pragma unroll
            for (int i = 0; i < ROWS; i++) ls_cuda_load<EACH>(a[i] + k, x[i]);
#pragma unroll
            for (int j = 0; j < EACH_WARP; j++) {
                float w[EACH];
                now.at[u][j].wide(w);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int e = 0; e < EACH; e++) sum[i][j] = fmaf(x[i][e], w[e], sum[i][j]);
            }
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < EACH_WARP; j++) {
            const float whole = ls_cuda_warp_sum(sum[i][j]);
            if (lane == i * EACH_WARP + j && i < job.m && first + j < job.n)
                ((C *)job.c)[i * job.c_stride + first + j] =
                    ls_cuda_narrow<C>(whole + bias_at<C>(job, first + j));
        }
}

/* ---- on the host ---- */

static bool in_vectors(const ls_cuda_matrix *x) {
    return (uintptr_t)x->data % 16 == 0 && (size_t)x->stride * ls_dtype_size(x->type) % 16 == 0;
}

bool ls_cuda_few_rows_fit(const ls_cuda_product *g) {
    const bool types = g->a.type == g->b.type && (g->a.type == LS_F32 || g->a.type == LS_BF16) &&
                       (g->c_type == LS_F32 || g->c_type == LS_BF16) &&
                       !(g->a.type == LS_F32 && g->c_type == LS_BF16);
    return types && g->m >= 1 && g->m <= ROWS_MAX && g->n >= 1 && g->k >= 1 && !g->a.transposed &&
           g->b.transposed && !g->add && g->sums == NULL && in_vectors(&g->a) &&
           in_vectors(&g->b) && (size_t)g->k * ls_dtype_size(g->a.type) % 16 == 0;
}

template <typename T, typename C, int ROWS>
static void launch(const ls_run *run, const few_job *job) {
    const char *what = "a product of few rows";
    if (job->n >= MANY)
        ls_cuda_follow(run, what, few_rows<T, C, ROWS, 4>, ls_cuda_blocks(job->n, 4 * WARPS),
                       THREADS, *job);
    else
        ls_cuda_follow(run, what, few_rows<T, C, ROWS, 1>, ls_cuda_blocks(job->n, WARPS), THREADS,
                       *job);
}

template <typename T, typename C> static void launch_rows(const ls_run *run, const few_job *job) {
    if (job->m == 1)
        launch<T, C, 1>(run, job);
    else if (job->m == 2)
        launch<T, C, 2>(run, job);
    else if (job->m <= 4)
        launch<T, C, 4>(run, job);
    else
        launch<T, C, ROWS_MAX>(run, job);
}

void ls_cuda_few_rows(const ls_run *run, const ls_cuda_product *g) {
    const few_job job = {g->m,        g->n,      g->k,      g->a.stride, g->b.stride,
                         g->c_stride, g->a.data, g->b.data, g->c,        g->bias};
    if (g->a.type == LS_F32)
        launch_rows<float, float>(run, &job);
    else if (g->c_type == LS_F32)
        launch_rows<ls_cuda_bf16, float>(run, &job);
    else
        launch_rows<ls_cuda_bf16, ls_cuda_bf16>(run, &job);
}
