/* Sums over rows of products of two matrices, element by element, added to a vector: the gradient
 * of a gain per channel. The order is fixed by the shape: pieces of rows first, then the pieces. */
#ifndef LS_TENSOR_CUDA_COLUMN_PRODUCTS_H
#define LS_TENSOR_CUDA_COLUMN_PRODUCTS_H

#include "tensor/cuda/cuda.cuh"

/* A matrix in rows of one stride. */
typedef struct ls_cuda_strided {
    const void *data;
    int64_t width, stride;
} ls_cuda_strided;
static inline ls_cuda_strided ls_cuda_strided_of(const ls_tensor *tensor, int64_t *rows) {
    ls_cuda_strided m = {ls_data(tensor)};
    ls_rows(tensor, rows, &m.width, &m.stride);
    return m;
}

/* sums[i] += sum over rows of a[row][i] b[row][i % b.width]; both of `type`. `workspace` has
 * ls_cuda_column_products_bytes. */
void ls_cuda_column_products(ls_cuda *cuda, ls_dtype type, int64_t rows, ls_cuda_strided a,
                             ls_cuda_strided b, float *sums, float *workspace);
size_t ls_cuda_column_products_bytes(int64_t rows, int64_t width);

#endif
