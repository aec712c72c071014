/* sum = x + delta, y = norm(sum) * weight + bias.
 *
 * LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019), with the residual addition that
 * comes before them in every block, so that the stream is read and written once. */
#include "tensor/op/residual_norm/residual_norm.h"

static void backward(ls_program *p, const ls_node *node);
static ls_tensor *again(ls_program *p, const ls_node *node);
static const ls_op norm_op = {
    .name = "residual_norm", .any_batch = true, .backward = backward, .again = again};
static const ls_op grad_op = {.name = "residual_norm_grad"};

ls_tensor *ls_residual_norm(ls_program *p, ls_norm_kind kind, double epsilon, ls_tensor *x,
                            ls_tensor *delta, ls_tensor *weight, ls_tensor *bias, ls_tensor **sum) {
    if (sum != NULL) *sum = NULL;
    if (ls_failed(p) || x == NULL) return NULL;
    int64_t rows, width, stride, delta_rows = 0, delta_width = 0;
    bool fits = ls_rows(x, &rows, &width, &stride) &&
                (weight == NULL || (ls_count(weight) == width && weight->type == ls_wide_type(p) &&
                                    weight->role == LS_ROLE_PARAMETER)) &&
                (bias == NULL || (ls_count(bias) == width && bias->type == ls_wide_type(p)));
    if (delta != NULL)
        fits = fits && ls_rows(delta, &delta_rows, &delta_width, &stride) && delta_rows == rows &&
               delta_width == width;
    if (!fits) {
        ls_refuse(p, LS_EBUG, "residual_norm: operands of width %lld do not fit", (long long)width);
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (y != NULL) y->port = x->port;
    ls_tensor *total = delta == NULL ? NULL : ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_tensor *statistics =
        ls_activation(p, ls_wide_type(p), LS_DIMS(rows, 2)); /* mean, 1/deviation */
    ls_residual_norm_attributes attributes = {kind, epsilon};
    ls_record(p, &norm_op, &attributes, sizeof attributes, 4,
              (ls_tensor *[]){x, delta, weight, bias}, 3, (ls_tensor *[]){y, total, statistics});
    if (sum != NULL) *sum = total == NULL ? x : total;
    return y;
}

/* From the sum, which the gradient needs as well. */
static ls_tensor *again(ls_program *p, const ls_node *node) {
    const ls_residual_norm_attributes *attributes = node->attributes;
    ls_tensor *sum = node->out[1] == NULL ? node->in[0] : node->out[1];
    return ls_residual_norm(p, attributes->kind, attributes->epsilon, sum, NULL, node->in[2],
                            node->in[3], NULL);
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *delta = node->in[1], *total = node->out[1];
    ls_tensor *dy = ls_grad_of(node->out[0]), *dsum = total == NULL ? NULL : ls_grad_of(total);
    if (dy == NULL) { /* the norm is not used: the residual's gradient passes */
        ls_grad_add(p, x, dsum);
        if (delta != NULL) ls_grad_add(p, delta, dsum);
        return;
    }
    ls_tensor *dx = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (dx != NULL) dx->port = x->port;
    ls_record(p, &grad_op, node->attributes, sizeof(ls_residual_norm_attributes), 6,
              (ls_tensor *[]){total == NULL ? x : total, node->in[2], node->in[3], node->out[2], dy,
                              dsum},
              1, &dx);
    ls_grad_add(p, x, dx);
    if (delta != NULL) ls_grad_add(p, delta, dx);
}
