/* What the cross-entropy operation and its kernels share. */
#ifndef LS_TENSOR_CROSS_ENTROPY_H
#define LS_TENSOR_CROSS_ENTROPY_H

#include "tensor/ops.h"

/* The share of a target that is spread evenly over the vocabulary: the node's attributes, NULL
 * where none is. */
static inline double ls_cross_entropy_smoothing(const ls_node *node) {
    return node->attributes == NULL ? 0 : *(const double *)node->attributes;
}

#endif
