#ifndef LS_TENSOR_SHORT_CONV_H
#define LS_TENSOR_SHORT_CONV_H

#include "tensor/ops.h"

/* short_conv:      in x, weight, bias, before; out y, after
 * short_conv_grad: in x, weight, bias, before, dy; out dx; adds to the parameters' gradients */
typedef struct ls_short_conv_attributes {
    bool silu;
} ls_short_conv_attributes;

#endif
