/* y = v, repeated over the batch, at the start of a sequence, and x after it: a carried value that
 * begins as a parameter. */
#include "tensor/op/begin_with/begin_with.h"

#include "tensor/engine/program_internal.h"

/* in: dy, begins or NULL; out: dv */
static const ls_op begin_with_grad = {.name = "begin_with_grad"};
/* in: dy, begins or NULL; out: dx */
static const ls_op begin_with_grad_x = {.name = "begin_with_grad_x"};

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *v = node->in[1], *x = node->in[0];
    if (x->needs_grad) {
        ls_tensor *dx = ls_grad_target(p, x);
        ls_record(p, &begin_with_grad_x, NULL, 0, 2, (ls_tensor *[]){dy, node->in[2]}, 1, &dx);
        ls_grad_add(p, x, dx);
    }
    if (!v->needs_grad) return;
    ls_tensor *dv = ls_grad_target(p, v);
    ls_record(p, &begin_with_grad, NULL, 0, 2, (ls_tensor *[]){dy, node->in[2]}, 1, &dv);
    ls_grad_add(p, v, dv);
}
static const ls_op begin_with = {.name = "begin_with", .backward = backward};

ls_tensor *ls_begin_with(ls_program *p, ls_tensor *x, ls_tensor *v) {
    if (ls_failed(p) || x == NULL || v == NULL) return NULL;
    if (ls_count(x) != x->dim[0] * ls_count(v)) {
        ls_refuse(p, LS_EBUG, "begin_with: a value for each sequence, of the parameter's size");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, x->type, x->rank, x->dim);
    ls_record(p, &begin_with, NULL, 0, 3, (ls_tensor *[]){x, v, ls_begins(p)}, 1, &y);
    return y;
}
