/* Products of some rows with a weight, more than few_rows.cu takes and still so few that reading the
 * weight is most of the work: C = A B in bf16 with at most 32 rows of A, B stored [n, k], on the tensor
 * units. A result's sum has the same order whatever the number of rows. */
#ifndef LS_TENSOR_CUDA_FEW_TILES_H
#define LS_TENSOR_CUDA_FEW_TILES_H

#include "tensor/cuda/product.cuh"

/* LONGSHOT_CUDA_TILES=1 takes them; else cuBLASLt does. */
bool ls_cuda_few_tiles_fit(const ls_cuda_product *g);
void ls_cuda_few_tiles(const ls_run *run, const ls_cuda_product *g);

#endif
