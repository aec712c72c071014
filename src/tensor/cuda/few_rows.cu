/* A warp has EACH_WARP rows of the weight, which pass through once; its lanes have 16 bytes of a row
 * at a time. Weights are asked for before it is known that the rows are there.
 *
 * With a norm before it (engine/join.c) every block norms the rows for itself, a warp for each, into
 * shared memory; the first block writes them too. With an activation behind it a warp has the rows of
 * gates and of their values. Both round where the kernels that stand alone write. */
#include "tensor/cuda/few_rows.cuh"

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/reduce.cuh"
#include "tensor/cuda/rows.cuh"
#include "tensor/op/activate/activate_at.cuh"

enum { THREADS = 128, WARPS = THREADS / 32, ROWS_MAX = 8, SHARED_MAX = 48 << 10 };

typedef struct few_job {
    int64_t m, n, k, a_stride, b_stride, c_stride;
    const void *a, *b;
    void *c;
    const float *bias; /* or NULL */
    bool wide;         /* c is f32, not as a and b are */
    ls_cuda_few_norm norm;
    ls_cuda_few_activation act;
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

/* A number as it would be written, of a result's type. */
template <typename T> static __device__ __forceinline__ float rounded(const few_job &job, float x) {
    return job.wide ? x : ls_cuda_wide(ls_cuda_narrow<T>(x));
}
template <typename T>
static __device__ __forceinline__ void write(const few_job &job, int64_t i, int64_t n, float x) {
    const int64_t at = i * job.c_stride + n;
    if (job.wide)
        ((float *)job.c)[at] = x;
    else
        ((T *)job.c)[at] = ls_cuda_narrow<T>(x);
}

/* A bias is rounded as cuBLASLt takes it: see product.cuh. */
template <typename T>
static __device__ __forceinline__ float bias_at(const few_job &job, int64_t n) {
    return job.bias == NULL ? 0 : rounded<T>(job, job.bias[n]);
}

/* Of a result as it would be written. */
template <typename T>
static __device__ __forceinline__ float activated(const few_job &job, float result) {
    float slope;
    return ls_cuda_activate_at(job.act.kind, rounded<T>(job, result), &slope);
}

/* What a lane has of AHEAD times 512 bytes of each row; what was used makes room for what lies AHEAD
 * further on. */
template <typename T, int EACH_WARP, int AHEAD> struct weight_packs {
    enum { EACH = 16 / sizeof(T) };
    ls_cuda_pack<T, EACH> at[AHEAD][EACH_WARP];
    __device__ __forceinline__ void take(const T *const (&b)[EACH_WARP], int u, int64_t k,
                                         int64_t end) {
#pragma unroll
        for (int j = 0; j < EACH_WARP; j++)
            if (k < end) at[u][j] = read_once<T, EACH>(b[j] + k);
    }
};

/* Shared memory of a norm: its weights and biases, f32 [k] each, which are there before the rows are,
 * and the normed rows [m, k] behind them. */
static __device__ __forceinline__ float *norm_weights() {
    extern __shared__ __align__(16) float of_norm[];
    return of_norm;
}

/* Several are asked for before the first is stored. */
static __device__ __forceinline__ void take_floats(float *to, const float *from, float otherwise,
                                                   int64_t count) {
    enum { PACKS = 4 };
    for (int64_t base = 4 * threadIdx.x; base < count; base += PACKS * 4 * THREADS) {
        float4 pack[PACKS];
#pragma unroll
        for (int u = 0; u < PACKS; u++) {
            const int64_t i = base + u * 4 * THREADS;
            pack[u] = make_float4(otherwise, otherwise, otherwise, otherwise);
            if (from != NULL && i < count) pack[u] = *reinterpret_cast<const float4 *>(from + i);
        }
#pragma unroll
        for (int u = 0; u < PACKS; u++) {
            const int64_t i = base + u * 4 * THREADS;
            if (i < count) *reinterpret_cast<float4 *>(to + i) = pack[u];
        }
    }
}

static __device__ void take_weights(const few_job &job) {
    take_floats(norm_weights(), job.norm.weight, 1, job.k);
    take_floats(norm_weights() + job.k, job.norm.bias, 0, job.k);
    __syncthreads();
}

/* A row of the norm, by a warp: in the order of the kernel that stands alone (residual_norm_cuda.cu)
 * for rows of up to PACKS packs of a lane. */
template <typename T> static __device__ void norm_row(const few_job &job, int64_t row, T *to) {
    enum { EACH = 16 / sizeof(T), PACKS = 4 };
    typedef ls_cuda_pack<T, EACH> pack;
    const ls_cuda_few_norm &by = job.norm;
    const int lane = (int)threadIdx.x % 32;
    const T *x = (const T *)job.a + row * job.a_stride;
    const T *delta = (const T *)by.delta + row * by.delta_stride;
    const float *weights = norm_weights(), *biases = weights + job.k;
    const bool writes = blockIdx.x == 0;
    float sum = 0, square = 0, value[EACH];
    for (int64_t base = lane * EACH; base < job.k; base += PACKS * 32 * EACH) {
        pack here[PACKS], more[PACKS];
#pragma unroll
        for (int u = 0; u < PACKS; u++) {
            const int64_t i = base + u * 32 * EACH;
            if (i >= job.k) continue;
            here[u] = ls_cuda_take<EACH>(x + i);
            if (by.delta != NULL) more[u] = ls_cuda_take<EACH>(delta + i);
        }
#pragma unroll
        for (int u = 0; u < PACKS; u++) {
            const int64_t i = base + u * 32 * EACH;
            if (i >= job.k) continue;
            here[u].wide(value);
            if (by.delta != NULL) {
                float added[EACH];
                more[u].wide(added);
#pragma unroll
                for (int j = 0; j < EACH; j++) added[j] += value[j];
                here[u].narrow(added);
                here[u].wide(value); /* what is stored is what is normed */
                if (writes) *(pack *)((T *)by.total + row * job.k + i) = here[u];
            }
            *(pack *)(to + i) = here[u];
#pragma unroll
            for (int j = 0; j < EACH; j++) sum += value[j];
        }
    }
    const float mean = by.centred ? ls_cuda_warp_sum(sum) / (float)job.k : 0.0f;
    for (int64_t i = lane * EACH; i < job.k; i += 32 * EACH) { /* a lane reads what it wrote */
        ls_cuda_load<EACH>(to + i, value);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            value[j] -= mean;
            square += value[j] * value[j];
        }
    }
    square = ls_cuda_warp_sum(square);
    const float scale = 1.0f / sqrtf(square / (float)job.k + by.epsilon);
    for (int64_t i = lane * EACH; i < job.k; i += 32 * EACH) {
        float weight[EACH], bias[EACH];
        ls_cuda_load<EACH>(to + i, value);
        ls_cuda_load<EACH>(weights + i, weight);
        ls_cuda_load<EACH>(biases + i, bias);
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            value[j] -= mean;
            weight[j] = value[j] * scale * weight[j] + bias[j];
        }
        ls_cuda_store<EACH>(to + i, weight);
        if (writes) ls_cuda_store<EACH>((T *)by.y + row * job.k + i, weight);
    }
    if (writes && lane == 0) by.statistics[row] = make_float2(mean, scale);
}

/* A weight's row by its number j of the warp's: with gates the first half of them are gates. */
template <int EACH_WARP>
static __device__ __forceinline__ int64_t weight_row(const few_job &job, int64_t warp, int j) {
    if (!job.act.gated || EACH_WARP == 1) return warp * EACH_WARP + j;
    enum { PAIRS = EACH_WARP > 1 ? EACH_WARP / 2 : 1 };
    return warp * PAIRS + j % PAIRS + (j < PAIRS ? 0 : job.n / 2);
}

template <typename T, int ROWS, int EACH_WARP, bool JOINED>
static __global__ void __launch_bounds__(THREADS) few_rows(const __grid_constant__ few_job job) {
    enum {
        EACH = 16 / sizeof(T),
        AHEAD = EACH_WARP == 1   ? 8
                : EACH_WARP == 2 ? 4
                                 : 3,
        STAGED = ROWS <= 2
    };
    const int lane = (int)threadIdx.x % 32;
    const int64_t warp = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const T *a[ROWS], *b[EACH_WARP];
    T *normed = JOINED ? (T *)(norm_weights() + 2 * job.k) : NULL;
    float sum[ROWS][EACH_WARP] = {};
    ls_cuda_let_next();
    if (!JOINED && warp * EACH_WARP >= job.n) return;
        /* what lies beyond the last row is the last row again, and is not written */
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = i < job.m ? i : job.m - 1;
        a[i] = JOINED ? normed + row * job.k : (const T *)job.a + row * job.a_stride;
    }
#pragma unroll
    for (int j = 0; j < EACH_WARP; j++) {
        const int64_t row = weight_row<EACH_WARP>(job, warp, j);
        b[j] = (const T *)job.b + (row < job.n ? row : job.n - 1) * job.b_stride;
    }
    weight_packs<T, EACH_WARP, AHEAD> ahead;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) ahead.take(b, u, (lane + u * 32) * EACH, job.k);
    if constexpr (JOINED) take_weights(job);
    ls_cuda_after();
    if constexpr (JOINED) {
        for (int64_t row = threadIdx.x / 32; row < job.m; row += WARPS)
            norm_row(job, row, normed + row * job.k);
        __syncthreads();
    }
    for (int64_t base = lane * EACH; base < job.k; base += AHEAD * 32 * EACH) {
        /* of one row or two all that is met by the weights at hand, asked for at once */
        ls_cuda_pack<T, EACH> staged[STAGED ? AHEAD : 1][ROWS];
        if constexpr (STAGED) {
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    if (base + u * 32 * EACH < job.k)
                        staged[u][i] = ls_cuda_take<EACH>(a[i] + base + u * 32 * EACH);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t k = base + u * 32 * EACH;
            if (k >= job.k) continue;
            float x[ROWS][EACH];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if constexpr (!STAGED) staged[0][i] = ls_cuda_take<EACH>(a[i] + k);
                staged[STAGED ? u : 0][i].wide(x[i]);
            }
#pragma unroll
            for (int j = 0; j < EACH_WARP; j++) {
                float w[EACH];
                ahead.at[u][j].wide(w);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int e = 0; e < EACH; e++) sum[i][j] = fmaf(x[i][e], w[e], sum[i][j]);
            }
        }
        if (base - lane * EACH + AHEAD * 32 * EACH >= job.k) break;
#pragma unroll
        for (int u = 0; u < AHEAD; u++) ahead.take(b, u, base + (AHEAD + u) * 32 * EACH, job.k);
    }
    /* a lane has one of the results */
    static_assert(ROWS * EACH_WARP <= 32, "a lane for each result");
    float whole = 0;
#pragma unroll
    for (int at = 0; at < ROWS * EACH_WARP; at++) {
        const float one = ls_cuda_warp_sum(sum[at / EACH_WARP][at % EACH_WARP]);
        if (lane == at) whole = one;
    }
    const int i = lane / EACH_WARP, j = lane % EACH_WARP;
    const int64_t row = weight_row<EACH_WARP>(job, warp, j);
    whole += row < job.n ? bias_at<T>(job, row) : 0;
    /* of a gate its value */
    const float other = JOINED ? __shfl_xor_sync(0xffffffffu, whole, EACH_WARP / 2) : 0;
    if (i >= job.m || row >= job.n) return;
    if (!JOINED || !job.act.there)
        write<T>(job, i, row, whole);
    else if (!job.act.gated)
        write<T>(job, i, row, activated<T>(job, whole));
    else if (j < EACH_WARP / 2 && row < job.n / 2)
        write<T>(job, i, row, activated<T>(job, whole) * rounded<T>(job, other));
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

static size_t norm_bytes(int64_t m, int64_t k, size_t size) {
    return (size_t)k * (2 * sizeof(float) + (size_t)m * size);
}

template <typename T, int ROWS, int EACH_WARP, bool JOINED>
static void start(const ls_run *run, const few_job *job) {
    const size_t shared = JOINED ? norm_bytes(job->m, job->k, sizeof(T)) : 0;
    ls_cuda_follow_with(run, "a product of few rows", few_rows<T, ROWS, EACH_WARP, JOINED>,
                        ls_cuda_blocks(job->n, EACH_WARP * WARPS), THREADS, shared, *job);
}

/* As many rows of the weight to a warp as leave enough warps for every multiprocessor. */
template <typename T, int ROWS> static void launch(const ls_run *run, const few_job *job) {
    const int64_t enough = 7 * ls_cuda_of(run)->processors;
    if (job->n >= 4 * enough)
        start<T, ROWS, 4, false>(run, job);
    else if (job->n >= 2 * enough)
        start<T, ROWS, 2, false>(run, job);
    else
        start<T, ROWS, 1, false>(run, job);
}

template <typename T> static void launch_rows(const ls_run *run, const few_job *job) {
    if (job->m == 1)
        launch<T, 1>(run, job);
    else if (job->m == 2)
        launch<T, 2>(run, job);
    else if (job->m <= 4)
        launch<T, 4>(run, job);
    else
        launch<T, ROWS_MAX>(run, job);
}

/* One row, as a token has it, or some; a gate and its value are two rows of the weight. */
template <typename T> static void launch_joined(const ls_run *run, const few_job *job) {
    if (job->m == 1)
        start<T, 1, 2, true>(run, job);
    else
        start<T, ROWS_MAX, 2, true>(run, job);
}

static few_job job_of(const ls_cuda_product *g) {
    few_job job = {g->m,      g->n,      g->k, g->a.stride, g->b.stride,        g->c_stride,
                   g->a.data, g->b.data, g->c, g->bias,     g->c_type == LS_F32};
    return job;
}

void ls_cuda_few_rows(const ls_run *run, const ls_cuda_product *g) {
    const few_job job = job_of(g);
    if (g->a.type == LS_F32)
        launch_rows<float>(run, &job);
    else
        launch_rows<ls_cuda_bf16>(run, &job);
}

bool ls_cuda_few_rows_join(const ls_run *run, const ls_cuda_product *g,
                           const ls_cuda_few_norm *norm, const ls_cuda_few_activation *act) {
    const int64_t each = 16 / (int64_t)ls_dtype_size(g->a.type);
    const bool fits = ls_cuda_few_rows_fit(g) && g->c_type == g->a.type &&
                      norm_bytes(g->m, g->k, ls_dtype_size(g->a.type)) <= SHARED_MAX &&
                      norm->delta_stride % each == 0 && ls_cuda_aligned(norm->delta) &&
                      ls_cuda_aligned(norm->weight) && ls_cuda_aligned(norm->bias) &&
                      ls_cuda_aligned(norm->total) && ls_cuda_aligned(norm->y);
    /* every block norms: not for so many that they come one after the other */
    const bool few = g->n <= 64 * (int64_t)ls_cuda_of(run)->processors;
    if (!fits || !few || (act->gated && g->n % 2 != 0)) return false;
    few_job job = job_of(g);
    job.norm = *norm;
    job.act = *act;
    if (g->a.type == LS_F32)
        launch_joined<float>(run, &job);
    else
        launch_joined<ls_cuda_bf16>(run, &job);
    return true;
}
