/* The mean of squared differences, for losses beside the main one. */
#include "tensor/op/mean_square/mean_square.h"

static void backward(ls_program *p, const ls_node *node);
static const ls_op mean_op = {.name = "mean_square", .backward = backward};
/* in: d mean, a, b; out: da, db, either may be NULL */
static const ls_op grad_op = {.name = "mean_square_grad"};

ls_tensor *ls_mean_square(ls_program *p, ls_tensor *a, ls_tensor *b) {
    if (ls_failed(p) || a == NULL || b == NULL) return NULL;
    int64_t rows[2], width[2], stride;
    if (a->rank < 2 || a->type != b->type || !ls_rows(a, &rows[0], &width[0], &stride) ||
        !ls_rows(b, &rows[1], &width[1], &stride) || rows[0] != rows[1] || width[0] != width[1]) {
        ls_refuse(p, LS_EBUG, "mean_square: the operands have different shapes");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_wide_type(p), LS_DIMS(1));
    ls_record(p, &mean_op, NULL, 0, 2, (ls_tensor *[]){a, b}, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *d[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        if (node->in[i]->needs_grad) d[i] = ls_grad_target(p, node->in[i]);
    ls_record(p, &grad_op, NULL, 0, 3,
              (ls_tensor *[]){ls_grad_of(node->out[0]), node->in[0], node->in[1]}, 2, d);
    for (int i = 0; i < 2; i++) ls_grad_add(p, node->in[i], d[i]);
}
