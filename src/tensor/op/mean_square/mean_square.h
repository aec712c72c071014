#ifndef LS_TENSOR_OP_MEAN_SQUARE_H
#define LS_TENSOR_OP_MEAN_SQUARE_H

#include "tensor/engine/program.h"

/* The mean of (a - b)^2 over all elements, wide [1]; of the rows of a cache over those it holds (0
 * where it holds none). */
ls_tensor *ls_mean_square(ls_program *p, ls_tensor *a, ls_tensor *b);

#endif
