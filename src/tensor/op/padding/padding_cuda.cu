/* Rows that are padding: which they are, blanking them, and making one row of the others. */
#include "tensor/cuda/move_rows.cuh"
#include "tensor/op/padding/padding.h"

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    valid_kernel(const int32_t *ids, int64_t count, uint8_t *valid) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i < count) valid[i] = ids[i] >= 0;
}

static void valid_rows(const ls_run *run, const ls_node *node) {
    int64_t count = ls_count(node->in[0]);
    valid_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                   ls_cuda_of(run)->stream>>>((const int32_t *)ls_data(node->in[0]), count,
                                              (uint8_t *)ls_data(node->out[0]));
    ls_cuda_launched(run, "valid_rows");
}

/* The result may lie over what it was made from. */
struct mask_where {
    char *to;
    const char *from;
    int64_t to_step, from_step; /* bytes */
    const uint8_t *valid;
    __device__ ls_cuda_moved_row operator()(int64_t row) const {
        return {to + row * to_step, valid[row] == 0 ? NULL : from + row * from_step};
    }
};

static void mask_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const int64_t size = (int64_t)ls_dtype_size(x->type);
    int64_t rows, width, from, to;
    ls_rows(x, &rows, &width, &from);
    ls_rows(y, &rows, &width, &to);
    mask_where where = {(char *)ls_data(y), (const char *)ls_data(x), to * size, from * size,
                        (const uint8_t *)ls_data(node->in[1])};
    uint64_t bits = (uint64_t)(uintptr_t)where.to | (uint64_t)(uintptr_t)where.from |
                    (uint64_t)where.to_step | (uint64_t)where.from_step;
    ls_cuda_move_rows(run, rows, (size_t)(width * size), bits, where, "mask_rows");
}

/* ---- pooling: y = sum_t weight_t x_t, and so dx_t = weight_t dy ---- */

/* The valid rows of a sequence; first = length, last = -1 where there is none. */
typedef struct span {
    int32_t first, last, count;
} span;

/* A block has a sequence. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    span_kernel(ls_cuda_valid valid, int64_t T, span *spans) {
    __shared__ span all;
    const int64_t b = blockIdx.x;
    if (threadIdx.x == 0) all = {(int32_t)T, -1, 0};
    __syncthreads();
    span mine = {(int32_t)T, -1, 0};
    for (int64_t t = threadIdx.x; t < T; t += LS_CUDA_THREADS) {
        if (!valid.at(b, t)) continue;
        if (mine.count++ == 0) mine.first = (int32_t)t;
        mine.last = (int32_t)t;
    }
    atomicMin(&all.first, mine.first);
    atomicMax(&all.last, mine.last);
    atomicAdd(&all.count, mine.count);
    __syncthreads();
    if (threadIdx.x == 0) spans[b] = all;
}

typedef struct pool {
    ls_pool_kind kind;
    int64_t B, T, D;
    ls_cuda_valid valid;
    const span *spans;
} pool;

static __device__ __forceinline__ float weight_of(const pool &p, const span &s, int64_t b,
                                                  int64_t t) {
    if (p.kind == LS_POOL_FIRST) return t == s.first ? 1.0f : 0.0f;
    if (p.kind == LS_POOL_LAST) return t == s.last ? 1.0f : 0.0f;
    return p.valid.at(b, t) ? (float)(1 / (double)s.count) : 0.0f;
}

/* x is what has all the rows: x or dx. */
static pool pool_of(const ls_run *run, const ls_node *node, const ls_tensor *x) {
    pool p = {*(const ls_pool_kind *)node->attributes,
              x->dim[0],
              x->dim[1],
              x->dim[2],
              ls_cuda_valid_of(node->in[1]),
              (const span *)run->workspace};
    span_kernel<<<(unsigned)p.B, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        p.valid, p.T, (span *)run->workspace);
    ls_cuda_launched(run, "pool_rows");
    return p;
}

static size_t span_bytes(int64_t B) {
    return (size_t)ls_round_up(B * (int64_t)sizeof(span), 256);
}

/* Rows are cut in pieces until there are enough threads. */
static int64_t pool_pieces(int64_t B, int64_t T, int64_t D, ls_pool_kind kind) {
    enum { THREADS_WANTED = 1 << 18, LEAST = 16, MOST = 1024 };
    if (kind != LS_POOL_MEAN) return 1;
    int64_t wanted = ls_ceil_div(THREADS_WANTED, B * ls_ceil_div(D, 8));
    return ls_max(1, ls_min(ls_min(wanted, ls_ceil_div(T, LEAST)), MOST));
}

static size_t pool_workspace(const ls_node *node, int threads) {
    (void)threads;
    const int64_t *dim = node->in[0]->dim;
    int64_t pieces = pool_pieces(dim[0], dim[1], dim[2], *(const ls_pool_kind *)node->attributes);
    return span_bytes(dim[0]) + (size_t)(pieces * dim[0] * dim[2]) * sizeof(float);
}

static size_t pool_grad_workspace(const ls_node *node, int threads) {
    (void)threads;
    return span_bytes(node->in[0]->dim[0]);
}

/* Piece blockIdx.y of the rows; a thread has LANES columns of a sequence.
 * partial is [pieces][B D]. */
template <int LANES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    pool_kernel(const pool p, const T *x, int64_t stride, float *partial) {
    const int64_t packs = p.D / LANES;
    int64_t thread = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (thread >= p.B * packs) return;
    const int64_t b = thread / packs, column = thread % packs * LANES;
    int64_t first = p.T * blockIdx.y / gridDim.y, end = p.T * (blockIdx.y + 1) / gridDim.y;
    const span s = p.spans[b];
    if (p.kind == LS_POOL_FIRST) first = s.first, end = min((int64_t)s.first + 1, p.T);
    if (p.kind == LS_POOL_LAST) first = max(s.last, 0), end = (int64_t)s.last + 1;
    float sum[LANES] = {};
#pragma unroll 4
    for (int64_t t = first; t < end; t++) {
        const float weight = weight_of(p, s, b, t);
        if (weight == 0) continue; /* what padding holds does not count, whatever it is */
        float more[LANES];
        ls_cuda_load<LANES>(x + (b * p.T + t) * stride + column, more);
#pragma unroll
        for (int i = 0; i < LANES; i++) sum[i] += weight * more[i];
    }
    ls_cuda_store<LANES>(partial + (blockIdx.y * p.B + b) * p.D + column, sum);
}

template <typename T> static void pool_rows(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const pool p = pool_of(run, node, x);
    int64_t rows, width, stride, pieces = pool_pieces(p.B, p.T, p.D, p.kind);
    ls_rows(x, &rows, &width, &stride);
    const T *from = (const T *)ls_data(x);
    float *partial = (float *)((char *)run->workspace + span_bytes(p.B));
    bool wide = (p.D | stride) % LANES == 0 && ls_cuda_aligned(from);
    dim3 blocks(ls_cuda_blocks(p.B * (wide ? p.D / LANES : p.D), LS_CUDA_THREADS),
                (unsigned)pieces);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (wide)
        pool_kernel<LANES><<<blocks, LS_CUDA_THREADS, 0, stream>>>(p, from, stride, partial);
    else
        pool_kernel<1><<<blocks, LS_CUDA_THREADS, 0, stream>>>(p, from, stride, partial);
    ls_cuda_launched(run, "pool_rows");
    ls_cuda_axes axes = ls_cuda_axes_of(y);
    ls_cuda_layout columns;
    if (ls_cuda_lay_out(run, 1, &axes, &columns))
        ls_cuda_add_pieces(run, partial, pieces, p.B * p.D, &columns, ls_data(y), y->type, false,
                           "pool_rows");
}

/* A thread has LANES columns of a row of dx. */
template <int LANES, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    pool_grad_kernel(const pool p, const ls_cuda_divisor packs, const ls_cuda_divisor length,
                     const T *dy, int64_t dy_stride, T *dx, int64_t dx_stride) {
    uint64_t thread = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, pack, t;
    if (thread >= (uint64_t)(p.B * p.T) * packs.by) return;
    const int64_t row = (int64_t)ls_cuda_divide(thread, packs, &pack);
    const int64_t b = (int64_t)ls_cuda_divide((uint64_t)row, length, &t);
    const int64_t column = (int64_t)pack * LANES;
    const float weight = weight_of(p, p.spans[b], b, (int64_t)t);
    float values[LANES] = {};
    if (weight != 0) ls_cuda_load<LANES>(dy + b * dy_stride + column, values);
#pragma unroll
    for (int i = 0; i < LANES; i++) values[i] *= weight;
    ls_cuda_store<LANES>(dx + row * dx_stride + column, values);
}

template <typename T> static void pool_rows_grad(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const pool p = pool_of(run, node, dx);
    int64_t rows, width, from_stride, to_stride;
    ls_rows(dy, &rows, &width, &from_stride);
    ls_rows(dx, &rows, &width, &to_stride);
    const T *from = (const T *)ls_data(dy);
    T *to = (T *)ls_data(dx);
    bool wide = (p.D | from_stride | to_stride) % LANES == 0 && ls_cuda_aligned(from) &&
                ls_cuda_aligned(to);
    const ls_cuda_divisor packs = ls_cuda_divisor_of(wide ? p.D / LANES : p.D);
    const ls_cuda_divisor length = ls_cuda_divisor_of(p.T);
    unsigned blocks = ls_cuda_blocks(rows * (int64_t)packs.by, LS_CUDA_THREADS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (wide)
        pool_grad_kernel<LANES><<<blocks, LS_CUDA_THREADS, 0, stream>>>(p, packs, length, from,
                                                                        from_stride, to, to_stride);
    else
        pool_grad_kernel<1><<<blocks, LS_CUDA_THREADS, 0, stream>>>(p, packs, length, from,
                                                                    from_stride, to, to_stride);
    ls_cuda_launched(run, "pool_rows_grad");
}

LS_CUDA_DECLARE_TABLE(padding);
const ls_kernel LS_CUDA_TABLE(padding)[] = {
    {"valid_rows", {NULL, valid_rows, valid_rows}, NULL},
    {"mask_rows", {NULL, mask_rows, mask_rows}, NULL},
    {"pool_rows", {NULL, pool_rows<float>, pool_rows<ls_cuda_bf16>}, pool_workspace},
    {"pool_rows_grad",
     {NULL, pool_rows_grad<float>, pool_rows_grad<ls_cuda_bf16>},
     pool_grad_workspace},
    {},
};
