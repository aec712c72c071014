/* Sums, broadcast sums, multiples, quotients, choices, dropout, and new draws. */
#include "tensor/op/pointwise/pointwise.h"

#include "tensor/engine/program_internal.h"

/* ---- a + b ---- */

static void plus_backward(ls_program *p, const ls_node *node) {
    ls_grad_add(p, node->in[0], ls_grad_of(node->out[0]));
    ls_grad_add(p, node->in[1], ls_grad_of(node->out[0]));
}
static const ls_op plus_op = {.name = "sum", .any_batch = true, .backward = plus_backward};

ls_tensor *ls_plus(ls_program *p, ls_tensor *a, ls_tensor *b) {
    if (ls_failed(p) || a == NULL || b == NULL) return NULL;
    if (a->rank != b->rank || ls_count(a) != ls_count(b)) {
        ls_refuse(p, LS_EBUG, "plus: the operands have different shapes");
        return NULL;
    }
    ls_tensor *out = ls_activation(p, ls_type(p), a->rank, a->dim);
    if (out != NULL) out->port = a->port;
    ls_record(p, &plus_op, NULL, 0, 2, (ls_tensor *[]){a, b}, 1, &out);
    return out;
}

/* ---- x + v, v repeated over x's leading axes ---- */

static const ls_op broadcast_grad_op = {.name = "plus_broadcast_grad"};

static void broadcast_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *v = node->in[1];
    ls_grad_add(p, node->in[0], dy);
    if (!v->needs_grad) return;
    ls_tensor *dv = ls_grad_target(p, v);
    ls_record(p, &broadcast_grad_op, NULL, 0, 1, &dy, 1, &dv);
    ls_grad_add(p, v, dv);
}
static const ls_op broadcast_op = {.name = "plus_broadcast", .backward = broadcast_backward};

ls_tensor *ls_plus_broadcast(ls_program *p, ls_tensor *x, ls_tensor *v) {
    if (ls_failed(p) || x == NULL || v == NULL) return NULL;
    bool fits = v->rank <= x->rank;
    for (int i = 1; fits && i <= v->rank; i++) fits = v->dim[v->rank - i] == x->dim[x->rank - i];
    int64_t rows, width, stride;
    if (!fits || !ls_rows(v, &rows, &width, &stride)) {
        ls_refuse(p, LS_EBUG, "plus_broadcast: the second operand's axes must end the first's");
        return NULL;
    }
    ls_tensor *out = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (out != NULL) out->port = x->port;
    ls_record(p, &broadcast_op, NULL, 0, 2, (ls_tensor *[]){x, v}, 1, &out);
    return out;
}

/* ---- x * factor ---- */

static void times_backward(ls_program *p, const ls_node *node);
static const ls_op times_op = {.name = "times", .any_batch = true, .backward = times_backward};

static void times_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &times_op, node->attributes, sizeof(double), 1, &dy, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}

ls_tensor *ls_times(ls_program *p, ls_tensor *x, double factor) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (factor == 1) return x;
    ls_tensor *out = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (out != NULL) out->port = x->port;
    ls_record(p, &times_op, &factor, sizeof factor, 1, &x, 1, &out);
    return out;
}

/* ---- sequences of one tensor or another; an operand that is not there is 0 ---- */

static void pick_backward(ls_program *p, const ls_node *node);
static const ls_op pick_op = {.name = "pick", .backward = pick_backward};

static void pick_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    for (int i = 1; i < 3; i++) {
        if (!node->in[i]->needs_grad) continue;
        ls_tensor *dx = ls_grad_target(p, node->in[i]);
        ls_tensor *in[3] = {node->in[0], i == 1 ? dy : NULL, i == 2 ? dy : NULL};
        ls_record(p, &pick_op, NULL, 0, 3, in, 1, &dx);
        ls_grad_add(p, node->in[i], dx);
    }
}

ls_tensor *ls_pick(ls_program *p, ls_tensor *which, ls_tensor *a, ls_tensor *b) {
    if (ls_failed(p) || which == NULL || a == NULL || b == NULL) return NULL;
    bool fits = a->rank == b->rank && which->rank == 1 && which->type == LS_U8 &&
                which->dim[0] == a->dim[0] && a != b;
    for (int i = 0; fits && i < a->rank; i++) fits = a->dim[i] == b->dim[i];
    if (!fits) {
        ls_refuse(p, LS_EBUG, "pick: the operands have different shapes");
        return NULL;
    }
    ls_tensor *out = ls_activation(p, ls_type(p), a->rank, a->dim);
    ls_record(p, &pick_op, NULL, 0, 3, (ls_tensor *[]){which, a, b}, 1, &out);
    return out;
}

/* ---- y / by ---- */

static void divide_backward(ls_program *p, const ls_node *node);
static const ls_op divide_op = {.name = "divide", .backward = divide_backward};
/* in: the result, by, its gradient; out: dy and dby */
static const ls_op divide_grad_op = {.name = "divide_grad"};

static void divide_backward(ls_program *p, const ls_node *node) {
    ls_tensor *out[2] = {ls_grad_target(p, node->in[0]), ls_grad_target(p, node->in[1])};
    ls_record(p, &divide_grad_op, NULL, 0, 3,
              (ls_tensor *[]){node->out[0], node->in[1], ls_grad_of(node->out[0])}, 2, out);
    for (int i = 0; i < 2; i++) ls_grad_add(p, node->in[i], out[i]);
}

ls_tensor *ls_divide(ls_program *p, ls_tensor *y, ls_tensor *by) {
    if (ls_failed(p) || y == NULL || by == NULL) return NULL;
    bool fits = by->rank == y->rank - 1 && by->type == ls_wide_type(p) && by->base == NULL;
    for (int i = 0; fits && i < by->rank; i++) fits = by->dim[i] == y->dim[i];
    if (!fits) {
        ls_refuse(p, LS_EBUG, "divide: the operands do not fit");
        return NULL;
    }
    ls_tensor *out = ls_activation(p, ls_type(p), y->rank, y->dim);
    ls_record(p, &divide_op, NULL, 0, 2, (ls_tensor *[]){y, by}, 1, &out);
    return out;
}

/* ---- parameters that are drawn anew ---- */

static const ls_op redraw_op = {.name = "redraw"};

void ls_redraw(ls_program *p, ls_tensor *parameter, int64_t every) {
    if (ls_failed(p) || parameter == NULL || every < 1 || !ls_program_about(p)->train) return;
    if (parameter->role != LS_ROLE_PARAMETER || parameter->type != ls_wide_type(p) ||
        parameter->needs_grad) {
        ls_refuse(p, LS_EBUG, "redraw: only whole parameters that are not trained can be redrawn");
        return;
    }
    const ls_redraw_attributes about = {every, ls_max(1, ls_program_about(p)->runs)};
    ls_record(p, &redraw_op, &about, sizeof about, 1, &parameter, 0, NULL);
}

bool ls_redraws(const ls_program *p, int64_t step) {
    for (size_t i = 0; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        if (node->op != &redraw_op) continue;
        const ls_redraw_attributes *about = node->attributes;
        if (step != 0 && step % about->every == 0) return true;
    }
    return false;
}

/* ---- dropout: the gradient passes through the same mask ---- */

static void dropout_backward(ls_program *p, const ls_node *node);
static const ls_op dropout_op = {.name = "dropout", .backward = dropout_backward};

static void dropout_backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &dropout_op, node->attributes, sizeof(ls_dropout_attributes), 1, &dy, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}

static ls_dropout_attributes draws(const ls_program *p, double share) {
    return (ls_dropout_attributes){share, ls_stream_of("dropout") + (uint32_t)p->nodes.count, 1};
}

static ls_tensor *drop(ls_program *p, ls_tensor *x, double share, int64_t rows) {
    if (ls_failed(p) || x == NULL || share == 0 || !ls_program_about(p)->train) return x;
    ls_tensor *out = ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_dropout_attributes attributes = draws(p, share);
    attributes.rows = rows;
    ls_record(p, &dropout_op, &attributes, sizeof attributes, 1, &x, 1, &out);
    return out;
}

ls_tensor *ls_dropout(ls_program *p, ls_tensor *x, double share) {
    return drop(p, x, share, 1);
}

ls_tensor *ls_dropout_tied(ls_program *p, ls_tensor *x, double share) {
    return drop(p, x, share, x == NULL ? 1 : x->dim[1]);
}

/* ---- rows that are left out of what others read ---- */

static const ls_op drop_rows_op = {.name = "drop_rows"};

ls_tensor *ls_drop_rows(ls_program *p, int64_t B, int64_t T, int64_t count, double share) {
    if (ls_failed(p) || share == 0 || count == 0 || !ls_program_about(p)->train) return NULL;
    if (count < 0 || count > T || share < 0 || share >= 1) {
        ls_refuse(p, LS_EBUG, "drop_rows: a share of %g of %lld rows cannot be left out", share,
                  (long long)count);
        return NULL;
    }
    ls_tensor *kept = ls_activation(p, LS_U8, LS_DIMS(B, T));
    const ls_drop_rows_attributes attributes = {draws(p, share), count};
    ls_record(p, &drop_rows_op, &attributes, sizeof attributes, 0, NULL, 1, &kept);
    return kept;
}
