#ifndef LS_TENSOR_LONG_CONV_H
#define LS_TENSOR_LONG_CONV_H

#include "tensor/ops.h"

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
