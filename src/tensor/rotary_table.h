#ifndef LS_TENSOR_ROTARY_TABLE_H
#define LS_TENSOR_ROTARY_TABLE_H

#include "tensor/ops.h"

/* rotary_table:      in alpha, beta; out table
 * rotary_table_grad: in alpha, beta, dtable; adds to the gradients of both */
typedef struct ls_rotary_table_attributes {
    double base;
    int64_t zero; /* row of distance 0 */
} ls_rotary_table_attributes;

#endif
