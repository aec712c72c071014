#ifndef LS_TENSOR_OP_POSITION_ROWS_H
#define LS_TENSOR_OP_POSITION_ROWS_H

#include "tensor/engine/program.h"

/* y[T,D] = table[min(start + t, R - 1)]: learned positions. A caller that does not want the last
 * row repeated sees to it that start + T <= R. */
ls_tensor *ls_position_rows(ls_program *p, ls_tensor *table, int64_t T);

#endif
