#ifndef LS_TENSOR_OP_BEGIN_WITH_H
#define LS_TENSOR_OP_BEGIN_WITH_H

#include "tensor/engine/program.h"

/* A carried value that begins as a parameter: v [...] of every sequence that begins with this run,
 * and x [B,...] of one that does not (no gradient passes through x). */
ls_tensor *ls_begin_with(ls_program *p, ls_tensor *x, ls_tensor *v);

#endif
