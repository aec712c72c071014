/* A matrix transposed over: see ops.h. */
#include "tensor/op/transpose/transpose.h"

static void backward(ls_program *p, const ls_node *node);
static const ls_op transpose_op = {.name = "transpose", .pure = true, .backward = backward};

ls_tensor *ls_transpose(ls_program *p, ls_tensor *x) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->rank != 2) {
        ls_refuse(p, LS_EBUG, "transpose: the operand has %d axes", x->rank);
        return NULL;
    }
    ls_tensor *y = ls_activation(p, x->type, LS_DIMS(x->dim[1], x->dim[0]));
    ls_record(p, &transpose_op, NULL, 0, 1, &x, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &transpose_op, NULL, 0, 1, &dy, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}
