/* The mean of squared differences. A fixed number of blocks add up what is theirs, then one adds up
 * the blocks. */
#include "tensor/cuda/move_rows.cuh"

enum { BLOCKS = 1024 };

typedef struct pair_of_rows {
    ls_cuda_any a, b;
    int64_t rows, width, a_stride, b_stride;
    ls_cuda_divisor by_width, by_step;
    int64_t held; /* of every `step` rows the first `held` count */
    double count; /* of elements that do */
} pair_of_rows;

static pair_of_rows rows_of(const ls_run *run, const ls_tensor *a, const ls_tensor *b) {
    pair_of_rows x = {};
    x.a = ls_cuda_any_of(a);
    x.b = ls_cuda_any_of(b);
    ls_rows(a, &x.rows, &x.width, &x.a_stride);
    ls_rows(b, &x.rows, &x.width, &x.b_stride);
    int64_t step = x.held = x.rows;
    if (a->port >= 0 && a->rank > 2) {
        step = x.rows / a->dim[0];
        x.held = step / a->dim[1] * ls_cache_extent(run, a).count;
    }
    x.by_width = ls_cuda_divisor_of(x.width);
    x.by_step = ls_cuda_divisor_of(step);
    x.count = (double)(x.rows / step * x.held) * (double)x.width;
    return x;
}

/* How far element `index` is apart; 0 where it does not count. */
static __device__ __forceinline__ float apart(const pair_of_rows &x, uint64_t index, uint64_t *row,
                                              uint64_t *column) {
    uint64_t within;
    *row = ls_cuda_divide(index, x.by_width, column);
    ls_cuda_divide(*row, x.by_step, &within);
    if ((int64_t)within >= x.held) return 0;
    return ls_cuda_any_at(x.a, (int64_t)*row * x.a_stride + (int64_t)*column) -
           ls_cuda_any_at(x.b, (int64_t)*row * x.b_stride + (int64_t)*column);
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    part_kernel(const pair_of_rows x, double *parts) {
    double sum = 0;
    const uint64_t elements = (uint64_t)(x.rows * x.width);
    for (uint64_t i = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x; i < elements;
         i += (uint64_t)BLOCKS * LS_CUDA_THREADS) {
        uint64_t row, column;
        const double d = (double)apart(x, i, &row, &column);
        sum += d * d;
    }
    sum = ls_cuda_block_sum<LS_CUDA_THREADS>(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    total_kernel(const double *parts, double count, float *mean) {
    double sum = 0;
    for (int i = (int)threadIdx.x; i < BLOCKS; i += LS_CUDA_THREADS) sum += parts[i];
    sum = ls_cuda_block_sum<LS_CUDA_THREADS>(sum);
    if (threadIdx.x == 0) *mean = count > 0 ? (float)(sum / count) : 0;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)node;
    (void)threads;
    return BLOCKS * sizeof(double);
}

static void mean_square(const ls_run *run, const ls_node *node) {
    const pair_of_rows x = rows_of(run, node->in[0], node->in[1]);
    double *parts = (double *)run->workspace;
    cudaStream_t stream = ls_cuda_of(run)->stream;
    part_kernel<<<BLOCKS, LS_CUDA_THREADS, 0, stream>>>(x, parts);
    total_kernel<<<1, LS_CUDA_THREADS, 0, stream>>>(parts, x.count, (float *)ls_data(node->out[0]));
    ls_cuda_launched(run, "mean_square");
}

/* d may have no data. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_kernel(const pair_of_rows x, const float *dmean, ls_cuda_any da, int64_t da_stride,
                ls_cuda_any db, int64_t db_stride) {
    uint64_t index = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, row, column;
    if (index >= (uint64_t)(x.rows * x.width)) return;
    const double by = x.count > 0 ? 2 * (double)*dmean / x.count : 0;
    const float d = (float)(by * (double)apart(x, index, &row, &column));
    if (da.data != NULL) ls_cuda_any_set(da, (int64_t)row * da_stride + (int64_t)column, d);
    if (db.data != NULL) ls_cuda_any_set(db, (int64_t)row * db_stride + (int64_t)column, -d);
}

static void mean_square_grad(const ls_run *run, const ls_node *node) {
    const pair_of_rows x = rows_of(run, node->in[1], node->in[2]);
    int64_t rows, width, stride[2] = {0, 0};
    for (int side = 0; side < 2; side++)
        if (node->out[side] != NULL) ls_rows(node->out[side], &rows, &width, &stride[side]);
    grad_kernel<<<ls_cuda_blocks(x.rows * x.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                  ls_cuda_of(run)->stream>>>(x, (const float *)ls_data(node->in[0]),
                                             ls_cuda_any_of(node->out[0]), stride[0],
                                             ls_cuda_any_of(node->out[1]), stride[1]);
    ls_cuda_launched(run, "mean_square_grad");
}

LS_CUDA_DECLARE_TABLE(mean_square);
const ls_kernel LS_CUDA_TABLE(mean_square)[] = {
    {"mean_square", {NULL, mean_square, mean_square}, workspace},
    {"mean_square_grad", {NULL, mean_square_grad, mean_square_grad}, NULL},
    {},
};
