/* Learned positions: the rows of a table at the positions of the chunk. */
#include "tensor/op/position_rows/position_rows.h"

static const ls_op position_rows_grad = {.name = "position_rows_grad"};

/* The rows' gradients are added to the parameter's in the store, where few rows of a long table may
 * have one. */
static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_record(p, &position_rows_grad, node->attributes,
              node->attributes == NULL ? 0 : sizeof(int64_t), 2, (ls_tensor *[]){dy, node->in[0]},
              0, NULL);
}

static const ls_op position_rows = {.name = "position_rows", .backward = backward};

ls_tensor *ls_position_rows(ls_program *p, ls_tensor *table, int64_t T, int64_t offset) {
    if (table == NULL) return NULL;
    if (table->rank != 2 || table->role != LS_ROLE_PARAMETER) {
        ls_refuse(p, LS_EBUG, "position_rows: the table must be a parameter [rows, width]");
        return NULL;
    }
    ls_tensor *rows = ls_activation(p, ls_type(p), LS_DIMS(T, table->dim[1]));
    if (rows == NULL) return NULL;
    ls_param_gated(p, table);
    ls_record(p, &position_rows, offset == 0 ? NULL : &offset, offset == 0 ? 0 : sizeof offset, 1,
              &table, 1, &rows);
    return rows;
}
