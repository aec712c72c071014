#include "tensor/cuda/column_products.cuh"

#include "tensor/cuda/column_sums.cuh"

enum { LANES = 32, DEEP = 8, BLOCKS_WANTED = 1024, PIECES_MAX = 256, LEAST_ROWS = 64 };

/* So many pieces that the device is full, none of few rows. */
static int64_t pieces_of(int64_t rows, int64_t width) {
    int64_t pieces = ls_min(ls_ceil_div(BLOCKS_WANTED, ls_ceil_div(width, LANES)), PIECES_MAX);
    return ls_max(1, ls_min(pieces, rows / LEAST_ROWS));
}

size_t ls_cuda_column_products_bytes(int64_t rows, int64_t width) {
    return (size_t)(pieces_of(rows, width) * width) * sizeof(float);
}

template <typename T>
static __global__ void __launch_bounds__(LANES *DEEP)
    piece_products(int64_t rows, ls_cuda_strided a, ls_cuda_strided b, float *partial) {
    __shared__ float lines[DEEP][LANES];
    int64_t column = (int64_t)blockIdx.x * LANES + threadIdx.x, other = column % b.width;
    int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
    const T *x = (const T *)a.data, *y = (const T *)b.data;
    float sum = 0;
    if (column < a.width) {
#pragma unroll 4
        for (int64_t row = begin + threadIdx.y; row < end; row += DEEP)
            sum +=
                ls_cuda_wide(x[row * a.stride + column]) * ls_cuda_wide(y[row * b.stride + other]);
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= a.width) return;
    float total = 0;
    for (int line = 0; line < DEEP; line++) total += lines[line][threadIdx.x];
    partial[(int64_t)blockIdx.y * a.width + column] = total;
}

void ls_cuda_column_products(ls_cuda *cuda, ls_dtype type, int64_t rows, ls_cuda_strided a,
                             ls_cuda_strided b, float *sums, float *workspace) {
    int64_t pieces = pieces_of(rows, a.width);
    dim3 blocks((unsigned)ls_ceil_div(a.width, LANES), (unsigned)pieces), threads(LANES, DEEP);
    if (type == LS_BF16)
        piece_products<ls_cuda_bf16><<<blocks, threads, 0, cuda->stream>>>(rows, a, b, workspace);
    else
        piece_products<float><<<blocks, threads, 0, cuda->stream>>>(rows, a, b, workspace);
    ls_cuda_note(cuda, cudaGetLastError(), "summing products of columns");
    ls_cuda_add_vectors(cuda, workspace, pieces, a.width, sums);
}
