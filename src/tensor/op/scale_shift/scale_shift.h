#ifndef LS_TENSOR_OP_SCALE_SHIFT_H
#define LS_TENSOR_OP_SCALE_SHIFT_H

#include "tensor/engine/program.h"

/* y[.., i W + j] = x[.., j] gain[i,j] + shift[i,j]: one row of W becomes as many as gain and shift,
 * wide parameters [P,W], have. */
ls_tensor *ls_scale_shift(ls_program *p, ls_tensor *x, ls_tensor *gain, ls_tensor *shift);

#endif
