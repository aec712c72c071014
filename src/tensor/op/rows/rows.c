/* Chosen rows of every sequence, taken out and put back. Each is the other's gradient. */
#include "tensor/op/rows/rows.h"

static void take_backward(ls_program *p, const ls_node *node);
static void put_backward(ls_program *p, const ls_node *node);
static const ls_op take_op = {.name = "take_rows", .backward = take_backward};
/* in: x or NULL for zeros, rows or NULL for zeros, where they go */
static const ls_op put_op = {.name = "put_rows", .backward = put_backward};

/* The axes after the second lie together. */
static bool has_rows(const ls_tensor *tensor) {
    int64_t packed = 1;
    for (int axis = tensor->rank - 1; axis >= 2; axis--) {
        if (tensor->dim[axis] > 1 && tensor->stride[axis] != packed) return false;
        packed *= tensor->dim[axis];
    }
    return tensor->rank >= 2;
}

static ls_tensor *places(ls_program *p, int64_t T, int64_t count, const int64_t *at) {
    double *wide = ls_new(ls_program_ctx(p), (size_t)count, sizeof *wide);
    if (wide == NULL) {
        ls_refuse(p, LS_ENOMEM, "no memory for the places of %lld rows", (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (double)at[i];
        if (at[i] < 0 || at[i] >= T || (i > 0 && at[i] <= at[i - 1]))
            ls_refuse(p, LS_EBUG, "rows: place %lld is not after the one before, or not below %lld",
                      (long long)at[i], (long long)T);
    }
    ls_tensor *tensor = ls_constant(p, LS_I32, LS_DIMS(count), wide);
    ls_free(ls_program_ctx(p), wide);
    return tensor;
}

ls_tensor *ls_take_rows(ls_program *p, ls_tensor *x, int64_t count, const int64_t *at) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (!has_rows(x) || count < 1) {
        ls_refuse(p, LS_EBUG, "take_rows: %lld rows of a tensor whose rows do not lie together",
                  (long long)count);
        return NULL;
    }
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[1] = count;
    ls_tensor *index = places(p, x->dim[1], count, at);
    ls_tensor *y = ls_activation(p, x->type, x->rank, dim);
    ls_record(p, &take_op, NULL, 0, 2, (ls_tensor *[]){x, index}, 1, &y);
    return y;
}

ls_tensor *ls_put_rows(ls_program *p, ls_tensor *x, ls_tensor *rows, int64_t count,
                       const int64_t *at) {
    if (ls_failed(p) || x == NULL || rows == NULL) return NULL;
    bool fits = has_rows(x) && has_rows(rows) && x->rank == rows->rank && x->type == rows->type &&
                x->dim[0] == rows->dim[0] && rows->dim[1] == count &&
                ls_row_bytes(x) == ls_row_bytes(rows);
    if (!fits) {
        ls_refuse(p, LS_EBUG, "put_rows: %lld rows do not fit", (long long)count);
        return NULL;
    }
    ls_tensor *index = places(p, x->dim[1], count, at);
    ls_tensor *y = ls_activation(p, x->type, x->rank, x->dim);
    ls_record(p, &put_op, NULL, 0, 3, (ls_tensor *[]){x, rows, index}, 1, &y);
    return y;
}

static void take_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &put_op, NULL, 0, 3, (ls_tensor *[]){NULL, dy, node->in[1]}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}

static void put_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *x = node->in[0], *rows = node->in[1];
    if (dy == NULL) return;
    if (x->needs_grad) {
        ls_tensor *dx = ls_grad_target(p, x);
        ls_record(p, &put_op, NULL, 0, 3, (ls_tensor *[]){dy, NULL, node->in[2]}, 1, &dx);
        ls_grad_add(p, x, dx);
    }
    if (rows->needs_grad) {
        ls_tensor *drows = ls_grad_target(p, rows);
        ls_record(p, &take_op, NULL, 0, 2, (ls_tensor *[]){dy, node->in[2]}, 1, &drows);
        ls_grad_add(p, rows, drows);
    }
}
