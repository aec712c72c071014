/* Rows that are padding: which they are, blanking them, and making one row of the others. */
#include "tensor/op/padding/padding.h"

static const ls_op valid_op = {.name = "valid_rows"};

ls_tensor *ls_valid_rows(ls_program *p, ls_tensor *ids) {
    if (ls_failed(p) || ids == NULL) return NULL;
    if (ids->type != LS_I32 || ids->rank != 2) {
        ls_refuse(p, LS_EBUG, "valid_rows: token numbers [B,T] are needed");
        return NULL;
    }
    ls_tensor *valid = ls_activation(p, LS_U8, ids->rank, ids->dim);
    ls_record(p, &valid_op, NULL, 0, 1, &ids, 1, &valid);
    return valid;
}

static bool fits(const ls_tensor *x, const ls_tensor *valid) {
    int64_t rows, width, stride;
    return x->rank == 3 && ls_rows(x, &rows, &width, &stride) &&
           (valid == NULL || (valid->type == LS_U8 && valid->rank == 2 &&
                              valid->dim[0] == x->dim[0] && valid->dim[1] == x->dim[1]));
}

/* ---- blanking: the gradient passes through the same mask ---- */

static void mask_backward(ls_program *p, const ls_node *node);
static const ls_op mask_op = {.name = "mask_rows", .backward = mask_backward, .in_place = true};

static ls_tensor *record_mask(ls_program *p, ls_tensor *x, ls_tensor *valid, ls_tensor *out) {
    ls_record(p, &mask_op, NULL, 0, 2, (ls_tensor *[]){x, valid}, 1, &out);
    return out;
}

static void mask_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_grad_add(p, node->in[0], record_mask(p, ls_grad_of(node->out[0]), node->in[1], dx));
}

ls_tensor *ls_mask_rows(ls_program *p, ls_tensor *x, ls_tensor *valid) {
    if (ls_failed(p) || x == NULL || valid == NULL) return x;
    if (!fits(x, valid)) {
        ls_refuse(p, LS_EBUG, "mask_rows: rows [B,T,D] and their validity [B,T] are needed");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (y != NULL) y->port = x->port;
    return record_mask(p, x, valid, y);
}

/* ---- pooling ---- */

static const ls_op pool_grad_op = {.name = "pool_rows_grad"}; /* in: dy, valid; out: dx */

static void pool_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &pool_grad_op, node->attributes, sizeof(ls_pool_kind), 2,
              (ls_tensor *[]){ls_grad_of(node->out[0]), node->in[1]}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}
static double pool_flops(const ls_node *node) {
    return (double)ls_count(node->in[0]);
}
static const ls_op pool_op = {.name = "pool_rows", .backward = pool_backward, .flops = pool_flops};

ls_tensor *ls_pool_rows(ls_program *p, ls_pool_kind kind, ls_tensor *x, ls_tensor *valid) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (!fits(x, valid)) {
        ls_refuse(p, LS_EBUG, "pool_rows: rows [B,T,D] and their validity [B,T] are needed");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(x->dim[0], x->dim[2]));
    ls_record(p, &pool_op, &kind, sizeof kind, 2, (ls_tensor *[]){x, valid}, 1, &y);
    return y;
}
