#ifndef LS_TENSOR_OP_POSITION_ROWS_H
#define LS_TENSOR_OP_POSITION_ROWS_H

#include "tensor/engine/program.h"

/* y[T,D] = table[min(start + t + offset, R - 1)]: learned positions. A caller that does not want
 * the last row repeated sees to it that start + T + offset <= R. */
ls_tensor *ls_position_rows(ls_program *p, ls_tensor *table, int64_t T, int64_t offset);

/* ---- for the kernels ---- */

/* The offset is the node's attribute; NULL: 0. */
static inline int64_t ls_position_rows_offset(const ls_node *node) {
    return node->attributes == NULL ? 0 : *(const int64_t *)node->attributes;
}

#endif
