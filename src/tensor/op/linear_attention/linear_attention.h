#ifndef LS_TENSOR_OP_LINEAR_ATTENTION_H
#define LS_TENSOR_OP_LINEAR_ATTENTION_H

#include "tensor/engine/program.h"

/* The same without a past and a future: every query sees every key, y_t[j] = sum_i q_t[i] S[i,j]
 * with S = sum_s k_s v_s^T, and *sums wide [B,T,H] is what y would be for a column of ones. */
ls_tensor *ls_linear_attention(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                               ls_tensor **sums);

#endif
