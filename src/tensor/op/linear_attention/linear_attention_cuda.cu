/* Attention without a softmax where every query sees every key. S = sum of k v^T and z = sum of k
 * are f32; in bf16 the products round S to bf16 as they read it, while the denominators q z stay in
 * f32. Long texts are added up in parts, then the parts in order. */
#include "tensor/cuda/head_product.cuh"

typedef struct sizes {
    int64_t B, T, H, K, V, heads; /* heads: of all sequences */
    int64_t part, parts;          /* rows of a part */
} sizes;

static sizes sizes_of(const ls_node *node) {
    enum { BLOCKS_WANTED = 1024, LEAST = 256, MOST = 256 };
    const int64_t *dim = node->in[0]->dim;
    sizes s = {dim[0], dim[1], dim[2], dim[3], node->in[2]->dim[3], dim[0] * dim[2], 0, 0};
    const int64_t tiles = s.heads * ls_ceil_div(s.K, LS_HEAD_M) * ls_ceil_div(s.V, LS_HEAD_N);
    int64_t parts = ls_min(ls_ceil_div(BLOCKS_WANTED, tiles), ls_ceil_div(s.T, LEAST));
    parts = ls_max(1, ls_min(parts, MOST));
    s.part = ls_round_up(ls_ceil_div(s.T, parts), LS_HEAD_K);
    s.parts = ls_ceil_div(s.T, s.part);
    return s;
}

typedef struct scratch {
    float *S, *z;   /* [B,H,K,V], [B,H,K] */
    float *dS, *dz; /* the same, backward */
    float *partial; /* [parts] of the larger */
    size_t bytes;
} scratch;

static scratch lay_scratch(const sizes *s, bool backward, char *base) {
    size_t used = 0;
    scratch d = {};
    const int64_t matrices = s->heads * s->K * s->V, vectors = s->heads * s->K;
    float **place[] = {&d.S, &d.z, &d.dS, &d.dz, &d.partial};
    const int64_t count[] = {matrices, vectors, backward ? matrices : 0, backward ? vectors : 0,
                             s->parts > 1 ? s->parts * matrices : 0};
    for (int i = 0; i < 5; i++) {
        *place[i] = base == NULL ? NULL : (float *)(base + used);
        used += (size_t)ls_round_up(count[i] * (int64_t)sizeof(float), 256);
    }
    d.bytes = used;
    return d;
}

static size_t forward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const sizes s = sizes_of(node);
    return lay_scratch(&s, false, NULL).bytes;
}
static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const sizes s = sizes_of(node);
    return lay_scratch(&s, true, NULL).bytes;
}

/* ---- sums over rows ---- */

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    add_parts_kernel(const float *partial, int64_t parts, int64_t count, float *to) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    float sum = 0;
#pragma unroll 4
    for (int64_t part = 0; part < parts; part++) sum += partial[part * count + i];
    to[i] = sum;
}

static void add_parts(const ls_run *run, const sizes *s, const float *partial, int64_t count,
                      float *to) {
    add_parts_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                       ls_cuda_of(run)->stream>>>(partial, s->parts, count, to);
    ls_cuda_launched(run, "linear_attention");
}

/* to[part][head][i] = sum over the part's rows of weight x[i]; weights [B,T,H], NULL: 1. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    vector_kernel(const sizes s, const ls_cuda_head_matrix<const T> x, const float *weights,
                  float *to) {
    int64_t index = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (index >= s.heads * s.K) return;
    const int64_t head = index / s.K, i = index % s.K, b = head / s.H, h = head % s.H;
    const int64_t first = blockIdx.y * s.part, end = min(s.T, first + s.part);
    const T *column = x.at(b, h) + i;
    float sum = 0;
#pragma unroll 8
    for (int64_t t = first; t < end; t++) {
        const float value = ls_cuda_wide(column[t * x.stride]);
        sum += weights == NULL ? value : weights[(b * s.T + t) * s.H + h] * value;
    }
    to[blockIdx.y * s.heads * s.K + index] = sum;
}

template <typename T>
static void sum_vectors(const ls_run *run, const sizes *s, const ls_tensor *x, const float *weights,
                        const scratch *d, float *to) {
    const int64_t count = s->heads * s->K;
    dim3 blocks(ls_cuda_blocks(count, LS_CUDA_THREADS), (unsigned)s->parts);
    vector_kernel<T><<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        *s, ls_cuda_head_rows<const T>(x), weights, s->parts > 1 ? d->partial : to);
    ls_cuda_launched(run, "linear_attention");
    if (s->parts > 1) add_parts(run, s, d->partial, count, to);
}

/* A matrix of every head in the workspace. */
template <typename T> static ls_cuda_head_matrix<T> matrices(const sizes *s, T *data) {
    return {data, s->H * s->K * s->V, s->K * s->V, s->V};
}

/* to = sum of x y^T over all rows; 0 where there is no y. */
template <typename T>
static void sum_matrices(const ls_run *run, const sizes *s, const ls_tensor *x, const ls_tensor *y,
                         const scratch *d, float *to) {
    ls_cuda_head_product<const T, const T, float> g = {};
    g.batch = s->B, g.heads = s->H;
    g.m = s->K, g.n = s->V, g.k = y == NULL ? 0 : s->T;
    g.a = ls_cuda_head_rows<const T>(x);
    g.b = ls_cuda_head_rows<const T>(y);
    g.c = matrices(s, s->parts > 1 ? d->partial : to);
    g.part = s->part;
    g.part_step = s->heads * s->K * s->V;
    ls_cuda_head_product_run<true, false>(run, g, s->parts, "linear_attention");
    if (s->parts > 1) add_parts(run, s, d->partial, g.part_step, to);
}

/* ---- every row by itself ---- */

/* out [T,n] = x [T,k] S, with S [k,n] or, TRANSPOSED, stored [n,k], plus u w^T. */
template <bool TRANSPOSED, typename T>
static void through(const ls_run *run, const sizes *s, const ls_tensor *x, const float *S,
                    const float *u, const float *w, const ls_tensor *out) {
    ls_cuda_head_product<const T, const float, T> g = {};
    g.batch = s->B, g.heads = s->H;
    g.m = s->T, g.n = TRANSPOSED ? s->K : s->V;
    g.k = x == NULL ? 0 : TRANSPOSED ? s->V : s->K;
    g.a = ls_cuda_head_rows<const T>(x);
    g.b = matrices(s, S);
    g.c = ls_cuda_head_rows<T>(out);
    g.u = {u, s->T * s->H, 1, s->H};
    g.w = w;
    ls_cuda_head_product_run<false, TRANSPOSED>(run, g, 1, "linear_attention");
}

/* sums[b,t,h] = q z; a warp has a row of a head. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    sums_kernel(const sizes s, const ls_cuda_head_matrix<const T> q, const float *z, float *sums) {
    int64_t row = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    if (row >= s.heads * s.T) return;
    const int64_t h = row % s.H, t = row / s.H % s.T, b = row / s.H / s.T;
    const T *from = q.at(b, h) + t * q.stride;
    const float *with = z + (b * s.H + h) * s.K;
    float sum = 0;
    for (int64_t i = threadIdx.x % 32; i < s.K; i += 32) sum += ls_cuda_wide(from[i]) * with[i];
    sum = ls_cuda_warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[row] = sum;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const ls_tensor *q = node->in[0], *k = node->in[1], *v = node->in[2];
    const sizes s = sizes_of(node);
    const scratch d = lay_scratch(&s, false, (char *)run->workspace);
    sum_matrices<T>(run, &s, k, v, &d, d.S);
    sum_vectors<T>(run, &s, k, NULL, &d, d.z);
    through<false, T>(run, &s, q, d.S, NULL, NULL, node->out[0]);
    sums_kernel<T><<<ls_cuda_blocks(s.heads * s.T, LS_CUDA_THREADS / 32), LS_CUDA_THREADS, 0,
                     ls_cuda_of(run)->stream>>>(s, ls_cuda_head_rows<const T>(q), d.z,
                                                (float *)ls_data(node->out[1]));
    ls_cuda_launched(run, "linear_attention");
}

/* dS = sum of q dy^T and dz = sum of q dsums; then dq = dy S^T + dsums z^T, dk = v dS^T + dz and
 * dv = k dS, row by row. */
template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const ls_tensor *q = node->in[0], *k = node->in[1], *v = node->in[2], *dy = node->in[3];
    const float *dsums = ls_cuda_floats(node->in[4]);
    const sizes s = sizes_of(node);
    const scratch d = lay_scratch(&s, true, (char *)run->workspace);
    sum_matrices<T>(run, &s, k, v, &d, d.S);
    sum_matrices<T>(run, &s, q, dy, &d, d.dS);
    if (dsums != NULL) {
        sum_vectors<T>(run, &s, k, NULL, &d, d.z);
        sum_vectors<T>(run, &s, q, dsums, &d, d.dz);
    }
    through<true, T>(run, &s, dy, d.S, dsums, dsums == NULL ? NULL : d.z, node->out[0]);
    through<true, T>(run, &s, v, d.dS, NULL, dsums == NULL ? NULL : d.dz, node->out[1]);
    through<false, T>(run, &s, k, d.dS, NULL, NULL, node->out[2]);
}

LS_CUDA_DECLARE_TABLE(linear_attention);
const ls_kernel LS_CUDA_TABLE(linear_attention)[] = {
    {"linear_attention", {NULL, forward<float>, forward<ls_cuda_bf16>}, forward_workspace},
    {"linear_attention_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
