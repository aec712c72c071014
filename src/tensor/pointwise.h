#ifndef LS_TENSOR_POINTWISE_H
#define LS_TENSOR_POINTWISE_H

#include "tensor/ops.h"

typedef struct ls_dropout_attributes {
    double share;
    uint32_t stream; /* of random numbers: one per node */
} ls_dropout_attributes;

#endif
