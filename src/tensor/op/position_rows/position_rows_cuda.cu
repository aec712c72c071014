/* y[t] = table[min(start + t + offset, R - 1)], and its gradient, which is added to the
 * parameter's. */
#include "tensor/cuda/move_rows.cuh"

extern "C" {
#include "tensor/op/position_rows/position_rows.h"
}

/* Where a row comes from; the table's last stands for all beyond it. */
struct position_row {
    ls_cuda_row_grid rows, table;
    ls_cuda_start start;
    int64_t offset, last;
    __device__ __forceinline__ ls_cuda_moved_row operator()(int64_t t) const {
        const int64_t from = start.at() + offset + t;
        return {ls_cuda_row_at(rows, 0, t), ls_cuda_row_at(table, 0, from < last ? from : last)};
    }
};

/* Table and rows have the program's compute type: whole rows are copied. */
static void position_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *table = node->in[0], *y = node->out[0];
    const size_t bytes = (size_t)y->dim[1] * ls_dtype_size(y->type);
    const position_row where = {{(char *)ls_data(y), 0, (int64_t)bytes},
                                {(char *)ls_data(table), 0, (int64_t)bytes},
                                ls_cuda_start_of(run),
                                ls_position_rows_offset(node),
                                table->dim[0] - 1};
    ls_cuda_move_rows(run, y->dim[0], bytes,
                      ls_cuda_row_grid_bits(&where.rows) | ls_cuda_row_grid_bits(&where.table),
                      where, "position_rows");
    ls_cuda_steady(run);
}

/* Row blockIdx.y of the table from `first` on; the table's last takes all that is left. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_kernel(const T *dy, int64_t rows, int64_t width, int64_t stride, float *gradient) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x, row = blockIdx.y;
    if (i >= width) return;
    int64_t end = row + 1 == gridDim.y ? rows : row + 1;
    float sum = gradient[row * width + i];
    for (int64_t t = row; t < end; t++) sum += ls_cuda_wide(dy[t * stride + i]);
    gradient[row * width + i] = sum;
}

/* The grid's second axis is short: many rows go in several launches. */
template <typename T> static void grad(const ls_run *run, const ls_node *node) {
    enum { ROWS_MAX = 32768 };
    const ls_tensor *dy = node->in[0], *table = node->in[1];
    int64_t T_count = dy->dim[0], width = dy->dim[1], last = table->dim[0] - 1;
    int64_t first = ls_min(run->start + ls_position_rows_offset(node), last),
            targets = ls_min(T_count, last - first + 1);
    float *gradient = (float *)ls_param_gradient(run, table) + first * width;
    const T *from = (const T *)ls_data(dy);
    for (int64_t done = 0; done < targets; done += ROWS_MAX) {
        int64_t some = ls_min(ROWS_MAX, targets - done);
        int64_t rows = done + some == targets ? T_count - done : some;
        dim3 blocks(ls_cuda_blocks(width, LS_CUDA_THREADS), (unsigned)some);
        grad_kernel<<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
            from + done * dy->stride[0], rows, width, dy->stride[0], gradient + done * width);
    }
    ls_cuda_launched(run, "position_rows_grad");
}

LS_CUDA_DECLARE_TABLE(position_rows);
const ls_kernel LS_CUDA_TABLE(position_rows)[] = {
    {"position_rows", {NULL, position_rows, position_rows}, NULL},
    {"position_rows_grad", {NULL, grad<float>, grad<ls_cuda_bf16>}, NULL},
    {},
};
