#ifndef LS_TENSOR_OP_RESIDUAL_NORM_H
#define LS_TENSOR_OP_RESIDUAL_NORM_H

#include "tensor/engine/program.h"

typedef enum { LS_NORM_LAYER, LS_NORM_RMS } ls_norm_kind;
/* sum = x + delta (delta may be NULL: sum is x), y = norm(sum) * weight + bias, over the last axis.
 * weight and bias may be NULL (1 and 0), and *sum where it is not wanted. */
ls_tensor *ls_residual_norm(ls_program *p, ls_norm_kind kind, double epsilon, ls_tensor *x,
                            ls_tensor *delta, ls_tensor *weight, ls_tensor *bias, ls_tensor **sum);

/* ---- for the kernels ---- */

typedef struct ls_residual_norm_attributes {
    ls_norm_kind kind;
    double epsilon;
} ls_residual_norm_attributes;

#endif
