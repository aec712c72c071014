/* Products of a few rows with a weight, where reading the weight is all the work: C = A B with at
 * most 8 rows of A, B stored [n, k]. A result's sum has the same order whatever the number of rows.
 */
#ifndef LS_TENSOR_CUDA_FEW_ROWS_H
#define LS_TENSOR_CUDA_FEW_ROWS_H

#include "tensor/cuda/product.cuh"

bool ls_cuda_few_rows_fit(const ls_cuda_product *g);
void ls_cuda_few_rows(const ls_run *run, const ls_cuda_product *g);

#endif
