#ifndef LS_TENSOR_RESIDUAL_NORM_H
#define LS_TENSOR_RESIDUAL_NORM_H

#include "tensor/ops.h"

typedef struct ls_residual_norm_attributes {
    ls_norm_kind kind;
    double epsilon;
} ls_residual_norm_attributes;

#endif
