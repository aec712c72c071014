/* A product along time: rows of a text are mixed into a fixed number of rows (Linformer, arXiv
 * 2006.04768). Every sequence is a product of its own; see ops.h. */
#include "tensor/op/time_linear/time_linear.h"

static void backward(ls_program *p, const ls_node *node);

/* x or its gradient, and a weight, wherever they stand among the operands. */
static double product_flops(const ls_tensor *x, const ls_tensor *weight) {
    return 2.0 * (double)ls_count(x) * (double)weight->dim[weight->rank - 1];
}
static double flops(const ls_node *node) {
    return product_flops(node->in[0], node->in[1]);
}
static double input_flops(const ls_node *node) {
    return product_flops(node->out[0], node->in[1]);
}
static double weight_flops(const ls_node *node) {
    return product_flops(node->in[1], node->in[2]);
}

static const ls_op forward_op = {.name = "time_linear", .backward = backward, .flops = flops};
/* in: dy, weight; out: dx */
static const ls_op input_grad_op = {.name = "time_linear_input_grad", .flops = input_flops};
/* in: dy, x, weight: adds to the parameter's gradient */
static const ls_op weight_grad_op = {.name = "time_linear_weight_grad", .flops = weight_flops};

ls_tensor *ls_time_linear(ls_program *p, ls_tensor *x, ls_tensor *weight) {
    if (ls_failed(p) || x == NULL || weight == NULL) return NULL;
    const int rank = weight->rank;
    bool fits = x->rank == 4 && (rank == 2 || (rank == 3 && weight->dim[0] == x->dim[2])) &&
                weight->role == LS_ROLE_PARAMETER && weight->type == x->type &&
                (x->dim[2] == 1 || x->stride[2] == x->dim[3]) && x->dim[1] <= weight->dim[rank - 2];
    if (!fits) {
        ls_refuse(p, LS_EBUG, "time_linear: the input does not fit its weight");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p),
                                 LS_DIMS(x->dim[0], weight->dim[rank - 1], x->dim[2], x->dim[3]));
    ls_param_gated(p, weight);
    ls_record(p, &forward_op, NULL, 0, 2, (ls_tensor *[]){x, weight}, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *weight = node->in[1], *dy = ls_grad_of(node->out[0]);
    if (weight->needs_grad)
        ls_record(p, &weight_grad_op, NULL, 0, 3, (ls_tensor *[]){dy, x, weight}, 0, NULL);
    if (!x->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, x);
    ls_record(p, &input_grad_op, NULL, 0, 2, (ls_tensor *[]){dy, weight}, 1, &dx);
    ls_grad_add(p, x, dx);
}
