/* What the cross-entropy operation and its kernels share. */
#ifndef LS_TENSOR_OP_CROSS_ENTROPY_H
#define LS_TENSOR_OP_CROSS_ENTROPY_H

#include "tensor/engine/program.h"

/* Loss of the joined output projection and softmax cross-entropy: loss[n] = -log softmax(x W^T)
 * [target[n]], in pieces of rows, so that whole logits never exist. Rows with target < 0 have loss
 * 0. With `grad` the objective sum_n weight[n] * loss[n] seeds the backward part. ids and weights
 * are [B,T]; loss is [B,T] in the wide type. With a label smoothing s > 0 the loss is (1 - s) of
 * that and s of its mean over all targets. */
ls_tensor *ls_linear_cross_entropy(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                                   ls_tensor *targets, ls_tensor *weights, double smoothing);

/* ---- for the kernels ---- */

/* The share of a target that is spread evenly over the vocabulary: the node's attributes, NULL
 * where none is. */
static inline double ls_cross_entropy_smoothing(const ls_node *node) {
    return node->attributes == NULL ? 0 : *(const double *)node->attributes;
}

#endif
