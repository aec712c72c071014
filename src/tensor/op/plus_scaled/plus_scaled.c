/* y + scale x, a factor per channel: skips past a mixer. */
#include "tensor/op/plus_scaled/plus_scaled.h"

static void backward(ls_program *p, const ls_node *node);
static double flops(const ls_node *node) {
    return 2 * (double)ls_count(node->in[1]);
}
static const ls_op scaled_op = {
    .name = "plus_scaled", .any_batch = true, .backward = backward, .flops = flops};
/* in: dy, x, scale; out: dx or NULL; adds to the gradient of scale */
static double grad_flops(const ls_node *node) {
    return 3 * (double)ls_count(node->in[0]);
}
static const ls_op grad_op = {.name = "plus_scaled_grad", .flops = grad_flops};

static bool same_shape(const ls_tensor *a, const ls_tensor *b) {
    bool same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

ls_tensor *ls_plus_scaled(ls_program *p, ls_tensor *y, ls_tensor *x, ls_tensor *scale) {
    if (ls_failed(p) || x == NULL || scale == NULL) return NULL;
    int64_t rows, width, stride;
    if ((y != NULL && (!same_shape(x, y) || !ls_rows(y, &rows, &width, &stride))) ||
        !ls_rows(x, &rows, &width, &stride) || scale->role != LS_ROLE_PARAMETER ||
        scale->base != NULL || scale->type != ls_wide_type(p) || ls_count(scale) != width) {
        ls_refuse(p, LS_EBUG, "plus_scaled: the operands do not fit each other");
        return NULL;
    }
    ls_tensor *out = ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_record(p, &scaled_op, NULL, 0, 3, (ls_tensor *[]){y, x, scale}, 1, &out);
    return out;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *y = node->in[0], *x = node->in[1];
    if (y != NULL && y->needs_grad) ls_grad_add(p, y, dy);
    ls_tensor *dx = x->needs_grad ? ls_grad_target(p, x) : NULL;
    ls_record(p, &grad_op, NULL, 0, 3, (ls_tensor *[]){dy, x, node->in[2]}, 1, &dx);
    if (dx != NULL) ls_grad_add(p, x, dx);
}
