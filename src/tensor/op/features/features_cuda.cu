/* Positive features of queries and keys. Pieces of rows, all heads of a token side by side, become
 * z = scale x in f32; a product with the directions; then row by row. Rows of one piece are few
 * enough for the products to stay in the cache. */
#include "tensor/cuda/move_rows.cuh"
#include "tensor/cuda/product.cuh"

extern "C" {
#include "tensor/op/features/features.h"
}

typedef struct job {
    ls_features_kind kind;
    ls_stable stable;
    float scale, epsilon, share; /* share: 1 / sqrt(M) */
    int64_t B, T, H, K, M;
    int64_t rows;  /* of all: row (b T + t) H + h */
    int64_t piece; /* rows of a piece */
    bool projects; /* there are directions */
    ls_cuda_valid valid;
    float *z, *a;   /* [piece,K], [piece,M]; without directions a is z */
    float *largest; /* of ALL_PRODUCTS: per sequence and head */
    float *of_row;  /* of ALL_PRODUCTS: per row */
    size_t bytes;   /* of the workspace */
} job;

static bool needs_survey(const job *s) {
    return s->kind == LS_FEATURES_EXP && s->stable == LS_STABLE_ALL_PRODUCTS;
}

static job job_of(const ls_node *node, char *base) {
    enum { PIECE_FLOATS = 1 << 23, STEP = 256 };
    const ls_features_options *about = (const ls_features_options *)node->attributes;
    const ls_tensor *x = node->in[LS_FEATURES_X];
    const ls_tensor *directions = node->in[LS_FEATURES_DIRECTIONS];
    job s = {};
    s.kind = about->kind;
    s.stable = about->stable;
    s.scale = (float)about->scale;
    s.epsilon = (float)about->epsilon;
    s.B = x->dim[0], s.T = x->dim[1], s.H = x->dim[2], s.K = x->dim[3];
    s.projects = directions != NULL;
    s.M = s.projects ? directions->dim[0] : s.K;
    s.share = s.kind == LS_FEATURES_EXP ? (float)(1 / sqrt((double)s.M)) : 1.0f;
    s.rows = s.B * s.T * s.H;
    s.piece = ls_min(s.rows, ls_max(STEP, PIECE_FLOATS / ls_max(s.M, s.K) / STEP * STEP));
    const int64_t count[] = {s.piece * s.K, s.projects ? s.piece * s.M : 0,
                             needs_survey(&s) ? s.B * s.H : 0, needs_survey(&s) ? s.rows : 0};
    float **place[] = {&s.z, &s.a, &s.largest, &s.of_row};
    for (int i = 0; i < 4; i++) {
        *place[i] = base == NULL ? NULL : (float *)(base + s.bytes);
        s.bytes += (size_t)ls_round_up(count[i] * (int64_t)sizeof(float), 256);
    }
    if (!s.projects) s.a = s.z;
    return s;
}

static job job_at(const ls_run *run, const ls_node *node) {
    job s = job_of(node, (char *)run->workspace);
    s.valid = ls_cuda_valid_of(node->in[LS_FEATURES_VALID]);
    return s;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return job_of(node, NULL).bytes;
}

/* ---- rows of heads ---- */

typedef struct row_name {
    int64_t b, t, h;
} row_name;

static __device__ __forceinline__ row_name name_of(const job &s, int64_t row) {
    return {row / s.H / s.T, row / s.H % s.T, row % s.H};
}

/* BACK: x = scale z; else z = scale x. A warp has a row. */
template <bool BACK, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    scale_kernel(const job s, int64_t first, int64_t count, const ls_cuda_heads<T> x, float *z) {
    const int64_t i = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (i >= count) return;
    const row_name at = name_of(s, first + i);
    T *outside = x.at(at.b, at.t, at.h);
    float *inside = z + i * s.K;
    for (int64_t e = threadIdx.x % 32; e < s.K; e += 32) {
        if (BACK)
            outside[e] = ls_cuda_narrow<T>(inside[e] * s.scale);
        else
            inside[e] = ls_cuda_wide(outside[e]) * s.scale;
    }
}

static unsigned warps_for(int64_t rows) {
    return ls_cuda_blocks(rows, LS_CUDA_THREADS / 32);
}

/* z and a of some rows. */
template <typename T>
static void project(const ls_run *run, const ls_node *node, const job *s, int64_t first,
                    int64_t count) {
    scale_kernel<false, T><<<warps_for(count), LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        *s, first, count, ls_cuda_heads_of<T>(node->in[LS_FEATURES_X]), s->z);
    ls_cuda_launched(run, "features");
    if (!s->projects) return;
    ls_cuda_product g = {0};
    g.m = count, g.n = s->M, g.k = s->K;
    g.a = {s->z, LS_F32, s->K, false};
    g.b = {ls_data(node->in[LS_FEATURES_DIRECTIONS]), LS_F32, s->K, true};
    g.c = s->a;
    g.c_type = LS_F32;
    g.c_stride = s->M;
    ls_cuda_product_run(run, &g, NULL);
}

/* ---- what is taken off ---- */

/* These are asked of a warp, each lane of which gets the answer. */
static __device__ __forceinline__ float largest_product(const job &s, const float *a) {
    float most = -INFINITY;
    for (int64_t i = threadIdx.x % 32; i < s.M; i += 32) most = fmaxf(most, a[i]);
    return ls_cuda_warp_max(most);
}

static __device__ __forceinline__ float half_square(const job &s, const float *z) {
    float sum = 0;
    if (!s.projects) return 0;
    for (int64_t e = threadIdx.x % 32; e < s.K; e += 32) sum += z[e] * z[e];
    return ls_cuda_warp_sum(sum) / 2;
}

/* |z|^2 / 2 where there are directions, and what keeps the rest in bounds. */
static __device__ __forceinline__ float taken_off(const job &s, row_name at, const float *z,
                                                  const float *a) {
    if (s.kind != LS_FEATURES_EXP) return 0;
    switch (s.stable) {
    case LS_STABLE_ROW:
        return largest_product(s, a); /* |z|^2 / 2 is on both sides */
    case LS_STABLE_ROW_PRODUCT:
        return largest_product(s, a) + half_square(s, z);
    case LS_STABLE_ALL_PRODUCTS:
        return s.largest[at.b * s.H + at.h] + half_square(s, z);
    default:
        return half_square(s, z);
    }
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    row_most_kernel(const job s, int64_t first, int64_t count) {
    const int64_t i = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (i >= count) return;
    const row_name at = name_of(s, first + i);
    const float most = s.valid.at(at.b, at.t) ? largest_product(s, s.a + i * s.M) : -INFINITY;
    if (threadIdx.x % 32 == 0) s.of_row[first + i] = most;
}

/* A block has a head. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS) head_most_kernel(const job s) {
    const int64_t b = blockIdx.x / s.H, h = blockIdx.x % s.H;
    float most = -INFINITY;
    for (int64_t t = threadIdx.x; t < s.T; t += LS_CUDA_THREADS)
        most = fmaxf(most, s.of_row[(b * s.T + t) * s.H + h]);
    most = ls_cuda_block_max<LS_CUDA_THREADS>(most);
    if (threadIdx.x == 0) s.largest[blockIdx.x] = most == -INFINITY ? 0.0f : most;
}

/* The largest product of each head, over all rows that count. */
template <typename T> static void survey(const ls_run *run, const ls_node *node, const job *s) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (!needs_survey(s)) return;
    for (int64_t first = 0; first < s->rows; first += s->piece) {
        const int64_t count = ls_min(s->piece, s->rows - first);
        project<T>(run, node, s, first, count);
        row_most_kernel<<<warps_for(count), LS_CUDA_THREADS, 0, stream>>>(*s, first, count);
    }
    head_most_kernel<<<(unsigned)(s->B * s->H), LS_CUDA_THREADS, 0, stream>>>(*s);
    ls_cuda_launched(run, "features");
}

/* ---- forward ---- */

static __device__ __forceinline__ float exponential(const job &s, float a, float off,
                                                    bool *within) {
    float exponent = a - off;
    *within = s.stable != LS_STABLE_NONE || exponent <= (float)LS_FEATURES_MAX;
    if (!*within) exponent = (float)LS_FEATURES_MAX;
    return expf(exponent);
}

/* A warp has a row. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    forward_kernel(const job s, int64_t first, int64_t count, const ls_cuda_heads<T> y) {
    const int64_t row = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (row >= count) return;
    const row_name at = name_of(s, first + row);
    const bool counts = s.valid.at(at.b, at.t);
    const float *a = s.a + row * s.M;
    const float off = counts ? taken_off(s, at, s.z + row * s.K, a) : 0.0f;
    T *out = y.at(at.b, at.t, at.h);
    for (int64_t i = threadIdx.x % 32; i < s.M; i += 32) {
        bool within;
        float value = 0;
        if (counts && s.kind == LS_FEATURES_RELU)
            value = fmaxf(a[i], 0.0f) + s.epsilon;
        else if (counts)
            value = s.share * (exponential(s, a[i], off, &within) + s.epsilon);
        out[i] = ls_cuda_narrow<T>(value);
    }
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const job s = job_at(run, node);
    survey<T>(run, node, &s);
    for (int64_t first = 0; first < s.rows; first += s.piece) {
        const int64_t count = ls_min(s.piece, s.rows - first);
        project<T>(run, node, &s, first, count);
        forward_kernel<T><<<warps_for(count), LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
            s, first, count, ls_cuda_heads_of<T>(node->out[0]));
        ls_cuda_launched(run, "features");
    }
}

/* ---- backward ---- */

/* The first place in a row that has this product; 0 where none has. */
static __device__ __forceinline__ int64_t place_of(const job &s, const float *a, float product) {
    int place = INT32_MAX;
    for (int64_t i = threadIdx.x % 32; i < s.M && place == INT32_MAX; i += 32)
        if (a[i] == product) place = (int)i;
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        place = min(place, __shfl_xor_sync(0xffffffffu, place, step));
    return place == INT32_MAX ? 0 : place;
}

/* A warp has a row: from the features' gradient to that of the products, which takes the products'
 * place; z becomes -z sum, what |z|^2 / 2 adds to its gradient. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    backward_kernel(const job s, int64_t first, int64_t count, const ls_cuda_heads<const T> dy) {
    const int64_t row = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (row >= count) return;
    const row_name at = name_of(s, first + row);
    const bool counts = s.valid.at(at.b, at.t);
    float *a = s.a + row * s.M, *z = s.z + row * s.K;
    const T *from = dy.at(at.b, at.t, at.h);
    const float off = counts ? taken_off(s, at, z, a) : 0.0f;
    /* the exponent that is taken off had |z|^2 / 2 too */
    const bool passes_on = counts && s.kind == LS_FEATURES_EXP && s.stable == LS_STABLE_ROW;
    const int64_t place = passes_on ? place_of(s, a, off) : 0;
    __syncwarp();
    float sum = 0;
    for (int64_t i = threadIdx.x % 32; i < s.M; i += 32) {
        float d = 0;
        if (counts && s.kind == LS_FEATURES_RELU) {
            d = a[i] > 0 ? ls_cuda_wide(from[i]) : 0.0f;
        } else if (counts) {
            bool within;
            const float e = exponential(s, a[i], off, &within);
            d = within ? ls_cuda_wide(from[i]) * (s.share * e) : 0.0f;
            sum += d;
        }
        a[i] = d;
    }
    sum = ls_cuda_warp_sum(sum);
    if (passes_on) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) a[place] -= sum;
        sum = 0;
    }
    if (s.projects)
        for (int64_t e = threadIdx.x % 32; e < s.K; e += 32) z[e] *= -sum;
}

/* dz = -z sum + da directions */
static void add_products(const ls_run *run, const ls_node *node, const job *s, int64_t count) {
    ls_cuda_product g = {0};
    g.m = count, g.n = s->K, g.k = s->M;
    g.a = {s->a, LS_F32, s->M, false};
    g.b = {ls_data(node->in[LS_FEATURES_DIRECTIONS]), LS_F32, s->K, false};
    g.c = s->z;
    g.c_type = LS_F32;
    g.c_stride = s->K;
    g.add = true;
    ls_cuda_product_run(run, &g, NULL);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const job s = job_at(run, node);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    survey<T>(run, node, &s);
    for (int64_t first = 0; first < s.rows; first += s.piece) {
        const int64_t count = ls_min(s.piece, s.rows - first);
        project<T>(run, node, &s, first, count);
        backward_kernel<T><<<warps_for(count), LS_CUDA_THREADS, 0, stream>>>(
            s, first, count, ls_cuda_heads_of<const T>(node->in[LS_FEATURES_DY]));
        ls_cuda_launched(run, "features_grad");
        if (s.projects) add_products(run, node, &s, count);
        scale_kernel<true, T><<<warps_for(count), LS_CUDA_THREADS, 0, stream>>>(
            s, first, count, ls_cuda_heads_of<T>(node->out[0]), s.z);
        ls_cuda_launched(run, "features_grad");
    }
}

LS_CUDA_DECLARE_TABLE(features);
const ls_kernel LS_CUDA_TABLE(features)[] = {
    {"features", {NULL, forward<float>, forward<ls_cuda_bf16>}, workspace},
    {"features_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, workspace},
    {},
};
