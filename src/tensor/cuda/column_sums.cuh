/* Sums over the rows of a matrix, added to a vector: the gradient of a bias. The order is fixed by
 * the shape: pieces of rows first, then the pieces. */
#ifndef LS_TENSOR_CUDA_COLUMN_SUMS_H
#define LS_TENSOR_CUDA_COLUMN_SUMS_H

#include "tensor/cuda/cuda.cuh"

/* sums[i] += sum of column i; `workspace` has ls_cuda_column_sums_bytes. */
void ls_cuda_column_sums(ls_cuda *cuda, const void *data, ls_dtype type, int64_t rows,
                         int64_t width, int64_t stride, float *sums, float *workspace);
size_t ls_cuda_column_sums_bytes(int64_t rows, int64_t width);
/* sums[i] += the i-th of each of `pieces` vectors that lie one after the other. */
void ls_cuda_add_vectors(ls_cuda *cuda, const float *vectors, int64_t pieces, int64_t width,
                         float *sums);

#endif
