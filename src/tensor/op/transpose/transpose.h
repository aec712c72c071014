#ifndef LS_TENSOR_OP_TRANSPOSE_H
#define LS_TENSOR_OP_TRANSPOSE_H

#include "tensor/engine/program.h"

/* y[c,r] = x[r,c], of any real type. */
ls_tensor *ls_transpose(ls_program *p, ls_tensor *x);

#endif
