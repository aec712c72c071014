#ifndef LS_TENSOR_POINTWISE_H
#define LS_TENSOR_POINTWISE_H

#include "tensor/ops.h"

typedef struct ls_dropout_attributes {
    double share;
    uint32_t stream; /* of random numbers: one per node */
} ls_dropout_attributes;

typedef struct ls_drop_rows_attributes {
    ls_dropout_attributes drop;
    int64_t count; /* rows of a sequence that may be left out, from its first on */
} ls_drop_rows_attributes;

#endif
