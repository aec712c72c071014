#ifndef LS_TENSOR_OP_PLUS_SCALED_H
#define LS_TENSOR_OP_PLUS_SCALED_H

#include "tensor/engine/program.h"

/* y + scale[d] x, scale a wide parameter as long as the last axis; y may be NULL: scale[d] x. */
ls_tensor *ls_plus_scaled(ls_program *p, ls_tensor *y, ls_tensor *x, ls_tensor *scale);

#endif
