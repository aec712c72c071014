#ifndef LS_TENSOR_OP_ROTARY_TABLE_H
#define LS_TENSOR_OP_ROTARY_TABLE_H

#include "tensor/engine/program.h"

/* Mega's rotary bias: the product of two learned vectors, rotated to two positions, which depends
 * on their distance alone. table[0][r] = Re sum_k A_k conj(B_k) e^{i (r - zero) theta_k}, wide
 * [1,R], with A_k = alpha[k] + i alpha[k + z/2], B_k likewise and theta_k = base^(-2k/z). alpha and
 * beta are wide parameters of z elements. */
ls_tensor *ls_rotary_table(ls_program *p, ls_tensor *alpha, ls_tensor *beta, double base, int64_t R,
                           int64_t zero);
/* Operations of one distance. */
double ls_rotary_table_flops(int64_t z);

/* ---- for the kernels ---- */

/* rotary_table:      in alpha, beta; out table
 * rotary_table_grad: in alpha, beta, dtable; adds to the gradients of both */
typedef struct ls_rotary_table_attributes {
    double base;
    int64_t zero; /* row of distance 0 */
} ls_rotary_table_attributes;

#endif
