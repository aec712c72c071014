#ifndef LS_TENSOR_OP_PAST_CONV_H
#define LS_TENSOR_OP_PAST_CONV_H

#include "tensor/engine/program.h"

/* The same for a chunk of a stream, summed as defined: y[b,t,d] = sum_s k[s,d] u[b,n-s,d] +
 * skip[d] u[b,n,d], n being the position of t. u is [B,N,D], plain or a cache; rows that it
 * does not hold are 0. k is wide [1,L,D], one lag after the other: plain, or a cache that
 * began with the stream. */
ls_tensor *ls_past_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip);

/* ---- for the kernels ---- */

/* past_conv:      in u, k, skip; out y
 * past_conv_grad: in u, k, skip, dy; out du (or NULL), dk (or NULL); adds to skip's gradient
 * skip may be NULL. */

/* Of the gradient: whether rows from before the chunk have one too. */
typedef struct ls_past_conv_attributes {
    bool past;
} ls_past_conv_attributes;

#endif
