#ifndef LS_TENSOR_OP_LINEAR_H
#define LS_TENSOR_OP_LINEAR_H

#include "tensor/engine/program.h"

/* y[.., out] = x[.., in] weight[out, in]^T + bias[out]; bias may be NULL. Where x and weight are
 * wide, so is y. */
ls_tensor *ls_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias);
/* y[.., in] = x[.., out] weight[out, in]: the same weight the other way round. */
ls_tensor *ls_linear_transposed(ls_program *p, ls_tensor *x, ls_tensor *weight);

#endif
