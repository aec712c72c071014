/* Landmark attention that looks up blocks: checks, recording, cost; and the landmarks of a text. */
#include "tensor/op/landmark_retrieve/landmark_retrieve.h"

#include <stdio.h>

#include "tensor/op/row_groups/row_groups.h"

/* The rows that a query sees when the text is long, and a landmark for each block. */
static double flops(const ls_node *node) {
    const ls_retrieve_attributes *at = node->attributes;
    const ls_tensor *q = node->in[LS_RETRIEVE_Q], *v = node->in[LS_RETRIEVE_V];
    const double queries = (double)(q->dim[0] * q->dim[1] * q->dim[2]);
    const double seen = (double)ls_min(at->about.top, at->most) * (double)at->about.block +
                        (double)at->about.local / 2;
    return 2 * queries *
           ((double)(q->dim[3] + v->dim[3]) * seen + (double)q->dim[3] * (double)at->most);
}

static const ls_op retrieve_op = {.name = "landmark_retrieve", .parts = true, .flops = flops};
static const ls_op rows_op = {.name = "landmark_rows"};

static bool fits(const ls_tensor *q, const ls_tensor *k, const ls_tensor *v, const ls_tensor *l) {
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || l->rank != 4) return false;
    if (q->dim[3] != k->dim[3] || l->dim[3] != k->dim[3]) return false;
    if (k->dim[2] < 1 || q->dim[2] % k->dim[2] != 0) return false;
    if (v->dim[1] != k->dim[1] || v->dim[2] != k->dim[2] || l->dim[2] != k->dim[2]) return false;
    return q->dim[0] == k->dim[0] && q->dim[0] == v->dim[0] && q->dim[0] == l->dim[0];
}

ls_tensor *ls_landmark_retrieve(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                                ls_tensor *landmarks, const ls_retrieval *about) {
    if (ls_failed(p) || q == NULL || k == NULL || v == NULL || landmarks == NULL) return NULL;
    const ls_rotary *rotary = &about->rotary;
    if (!fits(q, k, v, landmarks) || about->block < 2 || about->top < 0 || about->local < 1 ||
        about->local % about->block != 0 || rotary->dynamic != NULL || rotary->learned != NULL ||
        rotary->xpos.pairs > 0 || 2 * rotary->pairs > q->dim[3] || ls_begins_differ(p)) {
        ls_refuse(p, LS_EBUG, "landmark_retrieve: the operands do not fit");
        return NULL;
    }
    const bool part = ls_in_parts(p, k);
    const int64_t rows = part ? ls_program_about(p)->capacity : k->dim[1];
    const ls_retrieve_attributes attributes = {*about, rows / about->block};
    ls_tensor *out[2] = {
        ls_activation(p, ls_type(p), LS_DIMS(q->dim[0], q->dim[1], q->dim[2], v->dim[3])), NULL};
    if (part) out[1] = ls_activation(p, ls_wide_type(p), LS_DIMS(q->dim[0], q->dim[2], q->dim[1]));
    ls_record(p, &retrieve_op, &attributes, sizeof attributes, 4,
              (ls_tensor *[]){q, k, v, landmarks}, 2, out);
    if (part) ls_merge_parts(p, &out[0], &out[1]);
    return out[0];
}

ls_tensor *ls_landmark_rows(ls_program *p, const char *name, ls_tensor *x, int64_t block) {
    if (ls_failed(p) || x == NULL) return NULL;
    const ls_program_options *about = ls_program_about(p);
    const ls_row_rule rule = {.each = block, .every = block};
    int64_t dim[LS_RANK_MAX];
    char kept[64];
    memcpy(dim, x->dim, sizeof dim);
    dim[1] = about->streaming ? ls_ceil_div(x->dim[1], block) : ls_max(1, x->dim[1] / block);
    ls_tensor *y = ls_activation(p, x->type, x->rank, dim);
    ls_tensor *port = ls_extent_port(p, name, rule);
    if (y != NULL && port != NULL) y->port = port->port;
    ls_record(p, &rows_op, &block, sizeof block, 1, &x, 1, &y);
    snprintf(kept, sizeof kept, "%s.kept", name);
    return ls_rows_append(p, kept, y, about->capacity / block,
                          ls_ceil_div(about->chunk_max, block));
}
