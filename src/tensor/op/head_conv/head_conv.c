/* A convolution along time that looks both ways, one row of taps for each head: the way values take
 * around landmarks (arXiv 2102.03902). */
#include "tensor/op/head_conv/head_conv.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    return 2.0 * (double)ls_count(node->in[0]) * (double)node->in[1]->dim[1];
}
static double grad_flops(const ls_node *node) {
    return 2 * flops(node);
}
static const ls_op conv_op = {.name = "head_conv", .backward = backward, .flops = flops};
/* in: x, weight, dy; out: dx, may be NULL; adds to the weight's gradient */
static const ls_op grad_op = {.name = "head_conv_grad", .flops = grad_flops};

ls_tensor *ls_head_conv(ls_program *p, ls_tensor *x, ls_tensor *weight) {
    if (ls_failed(p) || x == NULL || weight == NULL) return NULL;
    bool fits = x->rank == 4 && weight->rank == 2 && weight->role == LS_ROLE_PARAMETER &&
                weight->type == ls_wide_type(p) && weight->dim[0] == x->dim[2] &&
                weight->dim[1] % 2 == 1;
    if (!fits) {
        ls_refuse(p, LS_EBUG, "head_conv: the operands do not fit");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_record(p, &conv_op, NULL, 0, 2, (ls_tensor *[]){x, weight}, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *dx = x->needs_grad ? ls_grad_target(p, x) : NULL;
    ls_record(p, &grad_op, NULL, 0, 3, (ls_tensor *[]){x, node->in[1], ls_grad_of(node->out[0])}, 1,
              &dx);
    if (dx != NULL) ls_grad_add(p, x, dx);
}
