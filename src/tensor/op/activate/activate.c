/* Pointwise functions, alone or as gates (the GLU family: Shazeer 2020). */
#include "tensor/op/activate/activate.h"

static void backward(ls_program *p, const ls_node *node);
static ls_tensor *again(ls_program *p, const ls_node *node) {
    const ls_activate_attributes *attributes = node->attributes;
    return ls_activate(p, attributes->kind, attributes->gated, node->in[0]);
}
static const ls_op activate_op = {
    .name = "activate", .any_batch = true, .backward = backward, .again = again};
static const ls_op grad_op = {.name = "activate_grad"};

ls_tensor *ls_activate(ls_program *p, ls_act_kind kind, bool gated, ls_tensor *x) {
    if (ls_failed(p) || x == NULL) return NULL;
    int64_t rows, width, stride, dim[LS_RANK_MAX];
    if (!ls_rows(x, &rows, &width, &stride) || (gated && width % 2 != 0)) {
        ls_refuse(p, LS_EBUG, "activate: a gated axis must be even, not %lld", (long long)width);
        return NULL;
    }
    memcpy(dim, x->dim, sizeof dim);
    if (gated) dim[x->rank - 1] /= 2;
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, dim);
    ls_activate_attributes attributes = {kind, gated};
    ls_record(p, &activate_op, &attributes, sizeof attributes, 1, &x, 1, &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_activate_attributes), 2,
              (ls_tensor *[]){node->in[0], ls_grad_of(node->out[0])}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}

/* ---- gate and value in two tensors ---- */

static void gate_backward(ls_program *p, const ls_node *node);
static ls_tensor *gate_again(ls_program *p, const ls_node *node) {
    return ls_gate(p, *(const ls_act_kind *)node->attributes, node->in[0], node->in[1]);
}
static const ls_op gate_op = {
    .name = "gate", .any_batch = true, .backward = gate_backward, .again = gate_again};
static const ls_op gate_grad_op = {.name = "gate_grad"};

ls_tensor *ls_gate(ls_program *p, ls_act_kind kind, ls_tensor *gate, ls_tensor *value) {
    if (ls_failed(p) || gate == NULL || value == NULL) return NULL;
    int64_t rows, width, stride, value_rows, value_width;
    if (!ls_rows(gate, &rows, &width, &stride) ||
        !ls_rows(value, &value_rows, &value_width, &stride) || rows != value_rows ||
        width != value_width) {
        ls_refuse(p, LS_EBUG, "gate: the operands have different shapes");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), gate->rank, gate->dim);
    ls_record(p, &gate_op, &kind, sizeof kind, 2, (ls_tensor *[]){gate, value}, 1, &y);
    return y;
}

static void gate_backward(ls_program *p, const ls_node *node) {
    ls_tensor *gate = node->in[0], *value = node->in[1];
    ls_tensor *out[2] = {ls_grad_target(p, gate), NULL};
    out[1] = value == gate ? ls_activation(p, value->type, value->rank, value->dim)
                           : ls_grad_target(p, value);
    ls_record(p, &gate_grad_op, node->attributes, sizeof(ls_act_kind), 3,
              (ls_tensor *[]){gate, value, ls_grad_of(node->out[0])}, 2, out);
    ls_grad_add(p, gate, out[0]);
    ls_grad_add(p, value, out[1]);
}
