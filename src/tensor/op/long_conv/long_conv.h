#ifndef LS_TENSOR_OP_LONG_CONV_H
#define LS_TENSOR_OP_LONG_CONV_H

#include "tensor/engine/program.h"

/* Causal convolution of any length in every channel, y[b,t,d] = sum_s k[d,s] u[b,t-s,d] + skip[d]
 * u[b,t,d]; with `future` the other side, sum_s k[d,s] u[b,t+1+s,d]. u is [B,T,D], k wide [D,L] of
 * any length, skip a wide parameter [D] or NULL. Long ones go through transforms, of blocks that
 * lie wholly before what they act on: what comes later changes nothing before, to the bit. */
ls_tensor *ls_long_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip, bool future);
/* Operations of one channel of one sequence of T. */
double ls_long_conv_flops(int64_t T);

/* ---- for the kernels ---- */

/* long_conv:      in u, k, skip, roots; out y
 * long_conv_grad: in u, k, skip, roots, dy; out du (or NULL), dk (or NULL); adds to skip's gradient
 * skip may be NULL, roots are NULL where no transform is needed. */
typedef struct ls_long_conv_attributes {
    bool future;
} ls_long_conv_attributes;

/* Sequences up to LS_CONV_DIRECT are summed as defined. Longer ones are cut into blocks of that
 * length, these into groups of LS_CONV_SPLIT, and so on: pairs of different blocks of one group are
 * convolved by transforms of the block's length (a power of 8), pairs of the same block one level
 * below. */
enum { LS_CONV_DIRECT = 64, LS_CONV_SPLIT = 8 };

/* The longest blocks that are transformed for sequences of T; 0 where none are. */
static inline int64_t ls_conv_longest(int64_t T) {
    int64_t m = LS_CONV_DIRECT;
    if (T <= m) return 0;
    while (LS_CONV_SPLIT * m < T) m *= LS_CONV_SPLIT;
    return m;
}

#endif
