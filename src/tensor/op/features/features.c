/* Positive features of queries and keys (FAVOR+, arXiv 2009.14794): see ops.h for the formulas. */
#include "tensor/op/features/features.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    const ls_tensor *directions = node->in[LS_FEATURES_DIRECTIONS];
    double count = (double)ls_count(node->in[LS_FEATURES_X]);
    return directions == NULL ? count : 2 * count * (double)directions->dim[0];
}
static double grad_flops(const ls_node *node) {
    return 2 * flops(node);
}
static const ls_op features_op = {.name = "features", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "features_grad", .flops = grad_flops};

static bool fits(const ls_program *p, const ls_tensor *x, const ls_tensor *directions,
                 const ls_tensor *valid) {
    if (x->rank != 4) return false;
    if (directions != NULL &&
        (directions->rank != 2 || directions->dim[1] != x->dim[3] ||
         directions->type != ls_wide_type(p) || directions->base != NULL || directions->needs_grad))
        return false;
    return valid == NULL || (valid->rank == 2 && valid->type == LS_U8 &&
                             valid->dim[0] == x->dim[0] && valid->dim[1] == x->dim[1]);
}

ls_tensor *ls_features(ls_program *p, ls_tensor *x, ls_tensor *directions, ls_tensor *valid,
                       ls_features_options options) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (!fits(p, x, directions, valid)) {
        ls_refuse(p, LS_EBUG, "features: the operands do not fit");
        return NULL;
    }
    const int64_t M = directions == NULL ? x->dim[3] : directions->dim[0];
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(x->dim[0], x->dim[1], x->dim[2], M));
    ls_record(p, &features_op, &options, sizeof options, LS_FEATURES_IN,
              (ls_tensor *[]){x, directions, valid}, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_FEATURES_GRAD_IN], *dx = ls_grad_target(p, node->in[LS_FEATURES_X]);
    for (int i = 0; i < LS_FEATURES_IN; i++) in[i] = node->in[i];
    in[LS_FEATURES_DY] = ls_grad_of(node->out[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_features_options), LS_FEATURES_GRAD_IN, in,
              1, &dx);
    ls_grad_add(p, node->in[LS_FEATURES_X], dx);
}
