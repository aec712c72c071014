#ifndef LS_TENSOR_OP_LANDMARK_ATTENTION_H
#define LS_TENSOR_OP_LANDMARK_ATTENTION_H

#include "tensor/engine/program.h"

/* Landmark attention over a whole text (arXiv 2305.16300). Rows come in blocks of `block`, the last
 * row of each being its landmark. A query shares one softmax p between the rows of its own block up
 * to itself, landmark excepted, and the landmarks c of all earlier blocks. A row j of an earlier
 * block then has the weight p_c softmax_j over that block's rows, its landmark excepted; landmarks
 * themselves have none, so their values are never read. q [B,T,H,K], k [B,T,G,K] and v [B,T,G,V]
 * are rotated already -> [B,T,H,V]. Memory is linear in T. Only where the program does not
 * stream. */
ls_tensor *ls_landmark_attention(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                                 int64_t block, double scale);

/* ---- for the kernels ---- */

/* landmark_attention:      in q, k, v; out y, lse (wide [B,H,T], of the shared softmax)
 * landmark_attention_grad: in q, k, v, y, lse, dy; out dq, dk, dv, each may be NULL */
typedef struct ls_landmark_attributes {
    int64_t block;
    double scale;
} ls_landmark_attributes;
enum { LS_GROUPED_Q, LS_GROUPED_K, LS_GROUPED_V, LS_GROUPED_Y, LS_GROUPED_LSE, LS_GROUPED_DY };

#endif
