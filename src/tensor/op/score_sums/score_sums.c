/* Division by sums of absolute scores, as torchscale's parallel form of retention (arXiv
 * 2307.08621) has it. Its gradient is the same division, of the gradient. */
#include "tensor/op/score_sums/score_sums.h"

static void backward(ls_program *p, const ls_node *node);

/* A product and a sum for each pair and element of a key. */
static double flops(const ls_node *node) {
    const ls_tensor *k = node->in[LS_SCORE_SUMS_K];
    return (double)ls_count(k) * (double)(k->dim[1] + 1);
}

static const ls_op divide_op = {.name = "divide_by_scores", .backward = backward, .flops = flops};

static bool fits(const ls_tensor *y, const ls_tensor *q, const ls_tensor *k) {
    if (y->rank != 4 || q->rank != 4 || k->rank != 4 || q->dim[3] != k->dim[3]) return false;
    for (int axis = 0; axis < 3; axis++)
        if (q->dim[axis] != k->dim[axis] || q->dim[axis] != y->dim[axis]) return false;
    return true;
}

ls_tensor *ls_divide_by_scores(ls_program *p, ls_tensor *y, ls_tensor *q, ls_tensor *k,
                               const double *log_decay, ls_score_bounds bounds) {
    if (ls_failed(p) || y == NULL || q == NULL || k == NULL) return NULL;
    if (!fits(y, q, k) || !(bounds.least > 0 && bounds.least <= bounds.most) ||
        ls_program_about(p)->streaming) {
        ls_refuse(p, LS_EBUG, "divide_by_scores: the operands do not fit, or come in chunks");
        return NULL;
    }
    ls_tensor *decay = ls_constant(p, ls_wide_type(p), LS_DIMS(y->dim[2]), log_decay);
    ls_tensor *out = ls_activation(p, ls_type(p), 4, y->dim);
    ls_record(p, &divide_op, &bounds, sizeof bounds, LS_SCORE_SUMS_IN,
              (ls_tensor *[]){y, q, k, decay}, 1, &out);
    return out;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *y = node->in[LS_SCORE_SUMS_Y];
    if (!y->needs_grad) return;
    ls_tensor *dy = ls_grad_target(p, y), *in[LS_SCORE_SUMS_IN];
    for (int i = 0; i < LS_SCORE_SUMS_IN; i++) in[i] = node->in[i];
    in[LS_SCORE_SUMS_Y] = ls_grad_of(node->out[0]);
    ls_record(p, &divide_op, node->attributes, sizeof(ls_score_bounds), LS_SCORE_SUMS_IN, in, 1,
              &dy);
    ls_grad_add(p, y, dy);
}
