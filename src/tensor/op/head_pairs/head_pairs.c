/* Outer products within heads, and their way back to vectors (H3 with heads wider than 1): see
 * ops.h. */
#include "tensor/op/head_pairs/head_pairs.h"

static void outer_backward(ls_program *p, const ls_node *node);
static void contract_backward(ls_program *p, const ls_node *node);
static double outer_flops(const ls_node *node) {
    return (double)ls_count(node->out[0]);
}
static double contract_flops(const ls_node *node) {
    return 2 * (double)ls_count(node->in[1]);
}
static const ls_op outer_op = {
    .name = "head_outer", .backward = outer_backward, .flops = outer_flops};
static const ls_op contract_op = {
    .name = "head_contract", .backward = contract_backward, .flops = contract_flops};

static bool is_vector(const ls_program *p, const ls_tensor *x, int64_t heads) {
    int64_t rows, width, stride;
    return x->rank == 3 && x->type == ls_type(p) && ls_rows(x, &rows, &width, &stride) &&
           heads > 0 && width % heads == 0;
}

static bool is_pairs(const ls_program *p, const ls_tensor *s, const ls_tensor *x, int64_t heads) {
    int64_t rows, width, stride, W = x->dim[2] / heads;
    return s->rank == 3 && s->type == ls_type(p) && ls_rows(s, &rows, &width, &stride) &&
           s->dim[0] == x->dim[0] * W * W && s->dim[1] == x->dim[1] && s->dim[2] == heads;
}

static void record(ls_program *p, const ls_op *op, ls_head_pairs_attributes about, ls_tensor *a,
                   ls_tensor *b, ls_tensor *out) {
    ls_record(p, op, &about, sizeof about, 2, (ls_tensor *[]){a, b}, 1, &out);
}

ls_tensor *ls_head_outer(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *c) {
    if (ls_failed(p) || a == NULL || c == NULL) return NULL;
    if (!is_vector(p, a, heads) || !is_vector(p, c, heads) || ls_count(a) != ls_count(c)) {
        ls_refuse(p, LS_EBUG, "head_outer: the operands do not fit %lld heads", (long long)heads);
        return NULL;
    }
    int64_t W = a->dim[2] / heads;
    ls_tensor *s = ls_activation(p, ls_type(p), LS_DIMS(a->dim[0] * W * W, a->dim[1], heads));
    record(p, &outer_op, (ls_head_pairs_attributes){.heads = heads}, a, c, s);
    return s;
}

ls_tensor *ls_head_contract(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *s) {
    if (ls_failed(p) || a == NULL || s == NULL) return NULL;
    if (!is_vector(p, a, heads) || !is_pairs(p, s, a, heads)) {
        ls_refuse(p, LS_EBUG, "head_contract: the operands do not fit %lld heads",
                  (long long)heads);
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), a->rank, a->dim);
    record(p, &contract_op,
           (ls_head_pairs_attributes){.heads = heads, .interleaved = {false, true}}, a, s, y);
    return y;
}

/* The gradient of one vector is the sum of s's gradient with the other. */
static void outer_backward(ls_program *p, const ls_node *node) {
    ls_head_pairs_attributes about = *(const ls_head_pairs_attributes *)node->attributes;
    for (int axis = 0; axis < 2; axis++) {
        about.over_second = axis == 0;
        ls_tensor *vector = node->in[axis];
        if (!vector->needs_grad) continue;
        ls_tensor *gradient = ls_grad_target(p, vector);
        record(p, &contract_op, about, node->in[1 - axis], ls_grad_of(node->out[0]), gradient);
        ls_grad_add(p, vector, gradient);
    }
}

static void contract_backward(ls_program *p, const ls_node *node) {
    ls_head_pairs_attributes about = *(const ls_head_pairs_attributes *)node->attributes;
    ls_tensor *a = node->in[0], *s = node->in[1], *dy = ls_grad_of(node->out[0]);
    if (s->needs_grad) { /* before the axis is transposed: a runs along i, dy along j */
        ls_tensor *ds = ls_grad_target(p, s);
        record(p, &outer_op, about, a, dy, ds);
        ls_grad_add(p, s, ds);
    }
    if (!a->needs_grad) return;
    about.over_second = true;
    ls_tensor *da = ls_grad_target(p, a);
    record(p, &contract_op, about, dy, s, da);
    ls_grad_add(p, a, da);
}
