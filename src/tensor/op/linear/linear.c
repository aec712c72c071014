/* y = x W^T + b over all rows of x. */
#include "tensor/op/linear/linear.h"

#include <math.h>

#include "tensor/op/fp8/fp8.h"
#include "tensor/op/pointwise/pointwise.h"

static void backward(ls_program *p, const ls_node *node);
static double flops(const ls_node *node) {
    const ls_tensor *weight = node->in[1];
    return 2.0 * (double)(ls_count(node->in[0]) / node->in[0]->dim[node->in[0]->rank - 1]) *
           (double)ls_count(weight);
}
static const ls_op linear_op = {
    .name = "linear", .any_batch = true, .backward = backward, .flops = flops};
/* in: dy, weight; out: dx */
static const ls_op input_grad_op = {.name = "linear_input_grad", .flops = flops};
/* in: dy, x, weight, bias: adds to the parameters' gradients */
static double weight_flops(const ls_node *node) {
    const ls_tensor *dy = node->in[0];
    return 2.0 * (double)ls_count(dy) * (double)node->in[1]->dim[node->in[1]->rank - 1];
}
static const ls_op weight_grad_op = {.name = "linear_weight_grad", .flops = weight_flops};

static ls_tensor *product(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias) {
    if (ls_failed(p) || x == NULL || weight == NULL) return NULL;
    int64_t rows, width, stride;
    int last = x->rank - 1;
    if (!ls_rows(x, &rows, &width, &stride) || weight->rank != 2 || weight->dim[1] != width ||
        weight->role != LS_ROLE_PARAMETER || weight->type != x->type ||
        (bias != NULL && (bias->type != ls_wide_type(p) || ls_count(bias) != weight->dim[0]))) {
        ls_refuse(p, LS_EBUG, "linear: an input of width %lld does not fit its weight or bias",
                  (long long)x->dim[last]);
        return NULL;
    }
    if (ls_fp8_fits(p, x, weight)) return ls_fp8_linear(p, x, weight, bias);
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[last] = weight->dim[0];
    ls_tensor *y = ls_activation(p, x->type, x->rank, dim);
    if (y != NULL) y->port = x->port;
    ls_param_gated(p, weight);
    ls_record(p, &linear_op, NULL, 0, 3, (ls_tensor *[]){x, weight, bias}, 1, &y);
    return y;
}

/* s B A drop(x): see adapter.h. The factor goes to the narrowest rows. */
static ls_tensor *adapted(ls_program *p, ls_tensor *x, const ls_tensor *weight) {
    const ls_adapter *adapter = ls_adapter_of(p);
    const int64_t in = weight->dim[1], out = weight->dim[0], rank = adapter->rank;
    const ls_init drawn = {.kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)in)};
    ls_tensor *A = ls_param_beside(p, weight, "lora_A.weight", LS_DIMS(rank, in), drawn);
    ls_tensor *B = ls_param_beside(p, weight, "lora_B.weight", LS_DIMS(out, rank), (ls_init){0});
    ls_tensor *rows = product(p, ls_dropout(p, x, adapter->dropout), A, NULL);
    return product(p, ls_times(p, rows, ls_adapter_scale(adapter)), B, NULL);
}

ls_tensor *ls_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias) {
    ls_tensor *y = product(p, x, weight, bias);
    if (y == NULL || ls_adapter_of(p)->rank == 0 ||
        !ls_adapter_targets(ls_adapter_of(p), ls_param_name(p, weight)))
        return y;
    if (weight->base != NULL) {
        ls_refuse(p, LS_EUSE, "%s is used in parts: it cannot be adapted (train.lora.targets)",
                  ls_param_name(p, weight));
        return NULL;
    }
    ls_tensor *sum = ls_plus(p, y, adapted(p, x, weight));
    if (sum != NULL) sum->port = y->port;
    return sum;
}

/* ---- transposed: what is a product's gradient for one way is the product for the other ---- */

static void transposed_backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *weight = node->in[1], *dy = ls_grad_of(node->out[0]);
    if (weight->needs_grad)
        ls_record(p, &weight_grad_op, NULL, 0, 4, (ls_tensor *[]){x, dy, weight, NULL}, 0, NULL);
    if (!x->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, x);
    ls_record(p, &linear_op, NULL, 0, 3, (ls_tensor *[]){dy, weight, NULL}, 1, &dx);
    ls_grad_add(p, x, dx);
}
static const ls_op transposed_op = {
    .name = "linear_input_grad", .backward = transposed_backward, .flops = flops};

ls_tensor *ls_linear_transposed(ls_program *p, ls_tensor *x, ls_tensor *weight) {
    if (ls_failed(p) || x == NULL || weight == NULL) return NULL;
    int64_t rows, width, stride, dim[LS_RANK_MAX];
    if (!ls_rows(x, &rows, &width, &stride) || weight->rank != 2 || weight->dim[0] != width ||
        weight->role != LS_ROLE_PARAMETER || weight->type != x->type) {
        ls_refuse(p, LS_EBUG, "linear_transposed: an input of width %lld does not fit its weight",
                  (long long)x->dim[x->rank - 1]);
        return NULL;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] = weight->dim[1];
    ls_tensor *y = ls_activation(p, x->type, x->rank, dim);
    ls_param_gated(p, weight);
    ls_record(p, &transposed_op, NULL, 0, 2, (ls_tensor *[]){x, weight}, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *weight = node->in[1], *bias = node->in[2];
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (weight->needs_grad)
        ls_record(p, &weight_grad_op, NULL, 0, 4, (ls_tensor *[]){dy, x, weight, bias}, 0, NULL);
    if (!x->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, x);
    ls_record(p, &input_grad_op, NULL, 0, 2, (ls_tensor *[]){dy, weight}, 1, &dx);
    ls_grad_add(p, x, dx);
}
