/* What the operations on chosen rows and their kernels share: the order of the operands. */
#ifndef LS_TENSOR_OP_ROWS_H
#define LS_TENSOR_OP_ROWS_H

#include "tensor/engine/program.h"

/* Rows of every sequence, `at` rising (copied): y[b,i,..] = x[b,at[i],..] of x [B,T,..] of any
 * type; and x with the rows at[i] replaced by rows[b,i,..]. */
ls_tensor *ls_take_rows(ls_program *p, ls_tensor *x, int64_t count, const int64_t *at);
ls_tensor *ls_put_rows(ls_program *p, ls_tensor *x, ls_tensor *rows, int64_t count,
                       const int64_t *at);

/* ---- for the kernels ---- */

/* Bytes of a row: all axes after the second, which lie together. */
static inline size_t ls_row_bytes(const ls_tensor *tensor) {
    int64_t elements = 1;
    for (int axis = 2; axis < tensor->rank; axis++) elements *= tensor->dim[axis];
    return (size_t)elements * ls_dtype_size(tensor->type);
}

/* Row `row` of sequence b. */
static inline char *ls_row_at(const ls_tensor *tensor, int64_t b, int64_t row) {
    int64_t place = b * tensor->stride[0] + row * tensor->stride[1];
    return (char *)ls_data(tensor) + place * (int64_t)ls_dtype_size(tensor->type);
}

#endif
