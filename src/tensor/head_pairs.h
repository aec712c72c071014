#ifndef LS_TENSOR_HEAD_PAIRS_H
#define LS_TENSOR_HEAD_PAIRS_H

#include "tensor/ops.h"

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
