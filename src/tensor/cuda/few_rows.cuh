/* Products of a few rows with a weight, where reading the weight is all the work: C = A B with at
 * most 8 rows of A, B stored [n, k]. A result's sum has the same order whatever the number of rows.
 */
#ifndef LS_TENSOR_CUDA_FEW_ROWS_H
#define LS_TENSOR_CUDA_FEW_ROWS_H

#include "tensor/cuda/product.cuh"

extern "C" {
#include "tensor/op/activate/activate.h"
}

bool ls_cuda_few_rows_fit(const ls_cuda_product *g);
void ls_cuda_few_rows(const ls_run *run, const ls_cuda_product *g);

/* A norm whose result the product takes: of A, or of A + delta (residual_norm.h). All but y and
 * statistics may be NULL; rows of total and y lie side by side. */
typedef struct ls_cuda_few_norm {
    const void *delta;
    int64_t delta_stride;
    const float *weight, *bias;
    void *total, *y;
    float2 *statistics;
    float epsilon;
    bool centred;
} ls_cuda_few_norm;

/* C is what an activation makes of the product; gated: of n columns the first half are gates of the
 * others, and C is half as wide. */
typedef struct ls_cuda_few_activation {
    bool there, gated;
    ls_act_kind kind;
} ls_cuda_few_activation;

/* The three in one; false where they do not fit, and nothing is done. */
bool ls_cuda_few_rows_join(const ls_run *run, const ls_cuda_product *g,
                           const ls_cuda_few_norm *norm, const ls_cuda_few_activation *act);

#endif
