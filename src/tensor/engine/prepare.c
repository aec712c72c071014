/* What follows from the weights alone: tables of distances, kernels of state spaces, their systems.
 *
 * A stream on the processor computes it with its first chunk and keeps it, as long as the weights
 * say nothing else (ls_parameters_changed). Such nodes come first in the program. What later nodes
 * read of them has its place in the arena to itself. That is done in programs of short chunks:
 * there it would be most of the work, and in long ones it takes room for little. */
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

enum { CHUNK_MAX = 64 };

static const ls_tensor *owner_of(const ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

static bool follows(const ls_node *node) {
    const bool view = node->op->name == NULL;
    bool all = view || node->op->pure || node->op->any_batch;
    for (int i = 0; all && i < node->in_count; i++) {
        if (node->in[i] == NULL) continue;
        const ls_tensor *x = owner_of(node->in[i]);
        all = x->role == LS_ROLE_PARAMETER || x->role == LS_ROLE_CONSTANT || x->prepared;
    }
    for (int i = 0; all && !view && i < node->out_count; i++) {
        const ls_tensor *y = node->out[i]; /* a part of a tensor that others write to is not kept */
        all = y == NULL || (y->role == LS_ROLE_ACTIVATION && y->base == NULL);
    }
    return all;
}

void ls__prepare_nodes(ls_program *p) {
    const ls_program_options *o = &p->options;
    if (ls_failed(p) || !o->streaming || o->grad || o->train || o->length > CHUNK_MAX ||
        ls__device_of(p->ctx, o->type) != NULL)
        return;
    ls_list rest = {0};
    for (size_t i = 0; i < p->nodes.count; i++) {
        ls_node *node = p->nodes.at[i];
        if (!follows(node)) {
            if (!ls__list_add(p, &rest, node)) return;
            continue;
        }
        for (int j = 0; j < node->out_count; j++)
            if (node->out[j] != NULL && node->out[j]->base == NULL) node->out[j]->prepared = true;
        p->nodes.at[p->prepared++] = node;
    }
    for (size_t i = 0; i < rest.count; i++) p->nodes.at[p->prepared + i] = rest.at[i];
}

size_t ls__first_node(const ls_program *p) {
    return p->prepared_for == *p->store->version ? p->prepared : 0;
}
