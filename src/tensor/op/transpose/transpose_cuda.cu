/* y[c,r] = x[r,c], in squares through shared memory. It goes by the size of an element. */
#include "tensor/cuda/rows.cuh"

enum { SQUARE = 32, LINES = 8 };

/* Block number `tile` of the squares, `across` of them side by side in x. */
template <typename Word>
static __global__ void __launch_bounds__(SQUARE *LINES)
    transpose_kernel(const Word *x, int64_t rows, int64_t columns, int64_t x_stride, Word *y,
                     int64_t y_stride, int64_t across) {
    __shared__ Word square[SQUARE][SQUARE + 1];
    int64_t row = blockIdx.x / across * SQUARE, column = blockIdx.x % across * SQUARE;
    for (int line = threadIdx.y; line < SQUARE; line += LINES)
        if (row + line < rows && column + threadIdx.x < columns)
            square[line][threadIdx.x] = x[(row + line) * x_stride + column + threadIdx.x];
    __syncthreads();
    for (int line = threadIdx.y; line < SQUARE; line += LINES)
        if (column + line < columns && row + threadIdx.x < rows)
            y[(column + line) * y_stride + row + threadIdx.x] = square[threadIdx.x][line];
}

template <typename Word> static void transpose(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *y = node->out[0];
    int64_t rows = x->dim[0], columns = x->dim[1], across = ls_ceil_div(columns, SQUARE);
    unsigned blocks = (unsigned)(across * ls_ceil_div(rows, SQUARE));
    if (blocks == 0) return;
    transpose_kernel<<<blocks, dim3(SQUARE, LINES), 0, ls_cuda_of(run)->stream>>>(
        (const Word *)ls_data(x), rows, columns, x->stride[0], (Word *)ls_data(y), y->stride[0],
        across);
    ls_cuda_launched(run, "transpose");
}

static void transpose(const ls_run *run, const ls_node *node) {
    (node->in[0]->type == LS_BF16 ? transpose<uint16_t> : transpose<uint32_t>)(run, node);
}

LS_CUDA_DECLARE_TABLE(transpose);
const ls_kernel LS_CUDA_TABLE(transpose)[] = {
    {"transpose", {NULL, transpose, transpose}, NULL},
    {},
};
