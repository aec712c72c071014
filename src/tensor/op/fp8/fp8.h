/* Linear layers of training in fp8 (options.fp8): activations and weights are multiplied in e4m3,
 * incoming gradients in e5m2, summed in f32; results are bf16, gradients of weights f32.
 *
 * An operand is a tensor that was cast: its codes, the same transposed where another product runs
 * over its rows, and what a code's value is to be multiplied by, a power of two that follows from
 * the largest absolute value of the tensor as it is now. So nothing is carried from step to step. A
 * tensor with infinity or NaN has a factor of NaN. */
#ifndef LS_TENSOR_OP_FP8_H
#define LS_TENSOR_OP_FP8_H

#include "tensor/engine/program.h"

enum { LS_FP8_MULTIPLE = 16 }; /* of which the sizes of a product are */

/* Whether x weight^T is to be computed, and can be, in fp8. */
bool ls_fp8_fits(const ls_program *p, const ls_tensor *x, const ls_tensor *weight);
/* y[.., out] = x[.., in] weight[out, in]^T + bias[out]; bias may be NULL. */
ls_tensor *ls_fp8_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias);

#endif
