/* Queries that grow with the logarithm of their position. */
#include "tensor/op/row_growth/row_growth.h"

static void backward(ls_program *p, const ls_node *node);
static const ls_op row_growth = {.name = "row_growth", .backward = backward, .in_place = true};

static ls_tensor *record(ls_program *p, ls_tensor *x, ls_tensor *begins,
                         const ls_growth_attributes *about, ls_tensor *y) {
    ls_record(p, &row_growth, about, sizeof *about, 2, (ls_tensor *[]){x, begins}, 1, &y);
    return y;
}

/* dx = dy times the same factors. */
static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_grad_add(p, node->in[0], record(p, dy, node->in[1], node->attributes, dx));
}

ls_tensor *ls_row_growth(ls_program *p, ls_tensor *x, ls_growth growth) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->rank != 4 || x->port >= 0 || !(growth.length > 1) ||
        (growth.whole && ls_begins_differ(p))) {
        ls_refuse(p, LS_EBUG, "row_growth: rows [B,T,H,K] of a chunk and a length above 1");
        return NULL;
    }
    const ls_growth_attributes about = {growth, ls_program_about(p)->length};
    return record(p, x, ls_begins(p), &about, ls_activation(p, x->type, x->rank, x->dim));
}
