#ifndef LS_TENSOR_OP_HEAD_PAIRS_H
#define LS_TENSOR_OP_HEAD_PAIRS_H

#include "tensor/engine/program.h"

/* With `heads` heads of width W in rows [B,T,H W], the outer products [B W W,T,H] and the sums:
 *   s[(b,i,j),t,h] = a[b,t,h W+i] c[b,t,h W+j],   y[b,t,j H+h] = sum_i a[b,t,h W+i]
 * s[(b,i,j),t,h] */
ls_tensor *ls_head_outer(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *c);
ls_tensor *ls_head_contract(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *s);

/* ---- for the kernels ---- */

/* Pairs (i, j) of elements of one head: a matrix of every head, as s[(b,i,j),t,h], and two vectors
 * of every head, one along each of its axes. A vector's element i of head h stands at h W + i, or
 * at i H + h where it is `interleaved`.
 *
 * head_outer:    in a (along i), c (along j); out s = a c
 * head_contract: in a vector, s; out the vector that is their sum over i (or, over_second, over j)
 * The gradients of each are again these two. */
typedef struct ls_head_pairs_attributes {
    int64_t heads;
    bool interleaved[2]; /* the vectors along i and j */
    bool over_second;    /* head_contract */
} ls_head_pairs_attributes;

#endif
