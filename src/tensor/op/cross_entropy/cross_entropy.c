/* Output projection and softmax cross-entropy as one operation.
 *
 * Rows are taken in pieces: logits of a piece, loss, and while the piece is at hand its share of
 * the gradients. Three products, no recomputation, and the logits of a long context never exist.
 * The objective is sum_n weight[n] loss[n]; its gradient needs nothing from later nodes, so it is
 * made on the way forward. */
#include "tensor/op/cross_entropy/cross_entropy.h"

static void backward(ls_program *p, const ls_node *node) {
    (void)p; /* dx was seeded when the node was recorded */
    (void)node;
}
static double flops(const ls_node *node) {
    double forward = 2.0 * (double)ls_count(node->in[0]) * (double)node->in[1]->dim[0];
    if (node->out[1] == NULL) return forward;
    return (node->in[1]->needs_grad ? 3 : 2) * forward;
}
static const ls_op cross_entropy_op = {
    .name = "linear_cross_entropy", .backward = backward, .flops = flops};

ls_tensor *ls_linear_cross_entropy(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                                   ls_tensor *targets, ls_tensor *weights, double smoothing,
                                   double cap) {
    if (ls_failed(p) || x == NULL || weight == NULL || targets == NULL) return NULL;
    int64_t rows, width, stride;
    bool grad = ls_program_about(p)->grad;
    if (!ls_rows(x, &rows, &width, &stride) || stride != width || weight->rank != 2 ||
        weight->dim[1] != width || weight->role != LS_ROLE_PARAMETER || targets->type != LS_I32 ||
        ls_count(targets) != rows || (grad && (weights == NULL || ls_count(weights) != rows)) ||
        (bias != NULL && (bias->type != ls_wide_type(p) || ls_count(bias) != weight->dim[0]))) {
        ls_refuse(p, LS_EBUG, "linear_cross_entropy: operands do not fit");
        return NULL;
    }
    ls_tensor *loss = ls_activation(p, ls_wide_type(p), targets->rank, targets->dim);
    ls_tensor *dx = grad && x->needs_grad ? ls_activation(p, ls_type(p), x->rank, x->dim) : NULL;
    const ls_cross_entropy_attributes about = {smoothing, cap};
    ls_param_gated(p, weight);
    const bool plain = smoothing == 0 && cap == 0;
    ls_record(p, &cross_entropy_op, plain ? NULL : &about, plain ? 0 : sizeof about, 5,
              (ls_tensor *[]){x, weight, bias, targets, grad ? weights : NULL}, 2,
              (ls_tensor *[]){loss, dx});
    if (dx != NULL) ls_seed_gradient(p, x, dx);
    return loss;
}
