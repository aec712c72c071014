/* Rows of a table by token number; the last row of each sequence, and rows by their numbers. */
#include "tensor/op/embed/embed.h"

/* in: dy, ids, table: adds to the table's gradient */
static const ls_op grad_op = {.name = "embed_grad"};

static void backward(ls_program *p, const ls_node *node) {
    if (!node->in[1]->needs_grad) return;
    ls_record(p, &grad_op, NULL, 0, 3,
              (ls_tensor *[]){ls_grad_of(node->out[0]), node->in[0], node->in[1]}, 0, NULL);
}
static const ls_op embed_op = {.name = "embed", .any_batch = true, .backward = backward};
static const ls_op pick_op = {.name = "embed", .any_batch = true};
static const ls_op last_row_op = {.name = "last_row", .any_batch = true};

ls_tensor *ls_embed(ls_program *p, ls_tensor *ids, ls_tensor *table) {
    if (ls_failed(p) || ids == NULL || table == NULL) return NULL;
    if (ids->type != LS_I32 || ids->rank != 2 || table->rank != 2 ||
        table->role != LS_ROLE_PARAMETER) {
        ls_refuse(p, LS_EBUG, "embed: token numbers [B,T] and a table [V,D] are needed");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(ids->dim[0], ids->dim[1], table->dim[1]));
    ls_param_gated(p, table);
    ls_record(p, &embed_op, NULL, 0, 2, (ls_tensor *[]){ids, table}, 1, &y);
    return y;
}

ls_tensor *ls_last_row(ls_program *p, ls_tensor *x) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->dim[1] == 1) return ls_reshape(p, x, LS_DIMS(x->dim[0], x->dim[2]));
    ls_tensor *y = ls_activation(p, x->type, LS_DIMS(x->dim[0], x->dim[2]));
    ls_record(p, &last_row_op, NULL, 0, 1, &x, 1, &y);
    return y;
}

ls_tensor *ls_pick_rows(ls_program *p, ls_tensor *x, ls_tensor *at) {
    if (ls_failed(p) || x == NULL || at == NULL) return NULL;
    if (at->type != LS_I32 || at->rank != 2 || x->rank != 3) {
        ls_refuse(p, LS_EBUG, "pick_rows: rows [B,T,D] and their numbers [B,n] are needed");
        return NULL;
    }
    ls_tensor *table = ls_reshape(p, x, LS_DIMS(x->dim[0] * x->dim[1], x->dim[2]));
    ls_tensor *y = ls_activation(p, x->type, LS_DIMS(at->dim[0], at->dim[1], x->dim[2]));
    ls_record(p, &pick_op, NULL, 0, 2, (ls_tensor *[]){at, table}, 1, &y);
    return y;
}
