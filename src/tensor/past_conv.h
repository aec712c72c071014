#ifndef LS_TENSOR_PAST_CONV_H
#define LS_TENSOR_PAST_CONV_H

#include "tensor/ops.h"

/* past_conv:      in u, k, skip; out y
 * past_conv_grad: in u, k, skip, dy; out du (or NULL), dk (or NULL); adds to skip's gradient
 * skip may be NULL. */

#endif
