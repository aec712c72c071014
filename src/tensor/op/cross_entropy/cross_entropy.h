/* What the cross-entropy operation and its kernels share. */
#ifndef LS_TENSOR_OP_CROSS_ENTROPY_H
#define LS_TENSOR_OP_CROSS_ENTROPY_H

#include "tensor/engine/program.h"

/* Loss of the joined output projection and softmax cross-entropy: loss[n] = -log softmax(x W^T)
 * [target[n]], in pieces of rows, so that whole logits never exist. Rows with target < 0 have loss
 * 0. With `grad` the objective sum_n weight[n] * loss[n] seeds the backward part. ids and weights
 * are [B,T]; loss is [B,T] in the wide type. With a label smoothing s > 0 the loss is (1 - s) of
 * that and s of its mean over all targets. With a cap > 0 logits are cap tanh(logit / cap). */
ls_tensor *ls_linear_cross_entropy(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                                   ls_tensor *targets, ls_tensor *weights, double smoothing,
                                   double cap);

/* ---- for the kernels ---- */

/* The node's attributes; NULL where both are 0. */
typedef struct ls_cross_entropy_attributes {
    double smoothing; /* the share of a target that is spread evenly over the vocabulary */
    double cap;       /* of logits */
} ls_cross_entropy_attributes;
static inline ls_cross_entropy_attributes ls_cross_entropy_about(const ls_node *node) {
    const ls_cross_entropy_attributes none = {0, 0};
    return node->attributes == NULL ? none : *(const ls_cross_entropy_attributes *)node->attributes;
}

#endif
