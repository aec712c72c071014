/* Rows that leave a memory in groups, what becomes of them, and where it is kept. */
#include "tensor/op/row_groups/row_groups.h"

#include "tensor/engine/program_internal.h"

ls_row_rule ls_groups_rule(ls_groups groups) {
    return (ls_row_rule){.each = groups.rate, .every = groups.segment, .behind = groups.memory};
}

int64_t ls_groups_due(ls_groups groups, int64_t position) {
    return ls_rows_due(ls_groups_rule(groups), position);
}

int64_t ls_groups_max(ls_groups groups, int64_t chunk, int64_t capacity) {
    int64_t borders = ls_ceil_div(ls_min(chunk, capacity), groups.segment);
    int64_t most = borders * (groups.segment / groups.rate);
    return ls_max(1, ls_min(most, ls_groups_due(groups, capacity)));
}

/* ---- the groups of a run ---- */

static void groups_backward(ls_program *p, const ls_node *node);
static const ls_op groups_op = {.name = "row_groups", .backward = groups_backward};
/* in: dy, y; out: dx */
static const ls_op groups_grad_op = {.name = "row_groups_grad"};

ls_tensor *ls_row_groups(ls_program *p, const char *name, ls_tensor *x, ls_groups groups) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->rank != 3 || groups.rate < 1 || groups.dilation < 1 || groups.segment < 1 ||
        groups.memory < 0 || groups.segment % groups.rate != 0 ||
        groups.memory % groups.rate != 0) {
        ls_refuse(p, LS_EBUG, "row_groups: groups of %lld rows do not fit", (long long)groups.rate);
        return NULL;
    }
    const ls_program_options *about = ls_program_about(p);
    int64_t most = about->streaming ? ls_groups_max(groups, about->length, ls_positions_end(p))
                                    : ls_max(1, ls_groups_due(groups, x->dim[1]));
    ls_begins_fit(p, groups.segment);
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(x->dim[0], most, groups.rate * x->dim[2]));
    ls_tensor *port = ls_extent_port(p, name, ls_groups_rule(groups));
    if (y != NULL && port != NULL) y->port = port->port;
    ls_groups_attributes attributes = {groups, about->length};
    ls_record(p, &groups_op, &attributes, sizeof attributes, 1, &x, 1, &y);
    return y;
}

static void groups_backward(ls_program *p, const ls_node *node) {
    ls_tensor *y = node->out[0], *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &groups_grad_op, node->attributes, sizeof(ls_groups_attributes), 2,
              (ls_tensor *[]){ls_grad_of(y), y}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}

/* ---- keeping them ---- */

static void append_backward(ls_program *p, const ls_node *node);
static const ls_op append_op = {.name = "rows_append", .backward = append_backward};
/* in: the cache's gradient, x; out: dx */
static const ls_op append_grad_op = {.name = "rows_append_grad"};

ls_tensor *ls_rows_cache(ls_program *p, const char *name, ls_tensor *x, ls_row_rule rule,
                         int64_t keep, int64_t most) {
    if (ls_failed(p) || x == NULL) return NULL;
    if (x->dim[1] > most) {
        ls_refuse(p, LS_EBUG, "rows_append: %lld rows where %lld are the most",
                  (long long)x->dim[1], (long long)most);
        return NULL;
    }
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[1] = keep + most;
    return ls_rows_port(p, name, x->type, x->rank, dim, rule);
}

static ls_node *put_rows(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep) {
    if (ls_failed(p) || cache == NULL || x == NULL) return NULL;
    return ls_record(p, &append_op, &keep, sizeof keep, 1, &x, 1, &cache);
}

void ls_rows_put(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep) {
    put_rows(p, cache, x, keep);
}

void ls_rows_put_last(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep) {
    ls_node *node = put_rows(p, cache, x, keep);
    if (node == NULL) return;
    p->nodes.count--; /* when everything else is done */
    ls__list_add(p, &p->writes, node);
}

ls_tensor *ls_rows_append(ls_program *p, const char *name, ls_tensor *x, int64_t keep,
                          int64_t most) {
    if (ls_failed(p) || x == NULL || !ls_program_about(p)->streaming) return x;
    const ls_row_rule rule =
        x->port < 0 ? ls_row_of_token : ((const ls_port *)p->ports.at[x->port])->rule;
    ls_tensor *cache = ls_rows_cache(p, name, x, rule, keep, most);
    ls_rows_put(p, cache, x, keep);
    return cache;
}

static void append_backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *dx = ls_grad_target(p, x);
    ls_record(p, &append_grad_op, NULL, 0, 2, (ls_tensor *[]){ls_grad_of(node->out[0]), x}, 1, &dx);
    ls_grad_add(p, x, dx);
}

/* ---- one row of several ---- */

static void blend_backward(ls_program *p, const ls_node *node);
static const ls_op blend_op = {.name = "blend", .backward = blend_backward};
/* in: dy, x; out: dx */
static const ls_op blend_grad_op = {.name = "blend_grad"};

ls_tensor *ls_blend(ls_program *p, ls_blend_kind kind, ls_tensor *x, int64_t rate) {
    if (ls_failed(p) || x == NULL) return NULL;
    int64_t rows, width, stride, dim[LS_RANK_MAX];
    if (!ls_rows(x, &rows, &width, &stride) || rate < 1 || width % rate != 0) {
        ls_refuse(p, LS_EBUG, "blend: a width of %lld is not %lld rows",
                  (long long)x->dim[x->rank - 1], (long long)rate);
        return NULL;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] /= rate;
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, dim);
    if (y != NULL) y->port = x->port;
    ls_record(p, &blend_op, &(ls_blend_attributes){kind, rate}, sizeof(ls_blend_attributes), 1, &x,
              1, &y);
    return y;
}

static void blend_backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0], *dx = ls_grad_target(p, x);
    ls_record(p, &blend_grad_op, node->attributes, sizeof(ls_blend_attributes), 2,
              (ls_tensor *[]){ls_grad_of(node->out[0]), x}, 1, &dx);
    ls_grad_add(p, x, dx);
}

/* ---- the most used ---- */

/* in: x, received, use before; out: y, use after */
static const ls_op most_used_op = {.name = "most_used"};

ls_tensor *ls_most_used(ls_program *p, const char *name, ls_tensor *x, ls_tensor *received,
                        ls_groups groups) {
    if (ls_failed(p) || x == NULL || received == NULL) return NULL;
    const ls_program_options *about = ls_program_about(p);
    const int64_t B = x->dim[0], L = ls_min(groups.segment, about->capacity);
    const int64_t most = ls_groups_max(groups, about->length, ls_positions_end(p));
    ls_begins_fit(p, groups.segment);
    if (ls_begins_differ(p) && groups.memory % groups.segment != 0)
        ls_refuse(p, LS_EUSE,
                  "documents that begin anew each for itself need a memory of whole segments of "
                  "%lld, not %lld, where its most used rows are kept",
                  (long long)groups.segment, (long long)groups.memory);
    ls_scope(p, "%s", name);
    ls_tensor *before = ls_state_read(p, "use", ls_wide_type(p), LS_DIMS(B, L));
    ls_tensor *port = ls_extent_port(p, "rows", ls_groups_rule(groups));
    ls_tensor *out[2] = {ls_activation(p, ls_type(p), LS_DIMS(B, most, x->dim[2])),
                         ls_activation(p, ls_wide_type(p), LS_DIMS(B, L))};
    if (out[0] != NULL && port != NULL) out[0]->port = port->port;
    ls_groups_attributes attributes = {groups, about->length};
    ls_record(p, &most_used_op, &attributes, sizeof attributes, 3,
              (ls_tensor *[]){x, received, before}, 2, out);
    ls_state_write(p, "use", out[1]);
    ls_scope_end(p);
    return out[0];
}
