/* Places in a run that somebody wants to hear of, and the device's graphs that end there. */
#include <string.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

ls_status ls_program_watch(ls_program *p, const ls_watch *watch) {
    const size_t count = watch == NULL ? 0 : watch->count;
    for (size_t i = 0; i < count; i++)
        if (watch->at[i] >= p->nodes.count || (i > 0 && watch->at[i] <= watch->at[i - 1]))
            return LS_FAIL(p->ctx, LS_EBUG, "watched places of a program must ascend within it");
    ls__graphs_forget(p); /* they end elsewhere from now on */
    p->runs = ls_min(p->runs, 1);
    p->watch = (ls_watch){0};
    if (count == 0) return LS_OK;
    p->graphs = ls__pool(p, count, sizeof *p->graphs);
    if (p->graphs == NULL) return LS_ENOMEM;
    p->watch = *watch;
    return LS_OK;
}

size_t ls_program_nodes(const ls_program *p) {
    return p->nodes.count;
}

size_t ls_program_count(const ls_program *p, const char *op) {
    const size_t length = strlen(op);
    size_t count = 0;
    for (size_t i = 0; i < p->nodes.count; i++) {
        const char *name = ((const ls_node *)p->nodes.at[i])->op->name;
        count += name != NULL && strncmp(name, op, length) == 0 &&
                 (name[length] == '\0' || name[length] == '+');
    }
    return count;
}

/* Kernels add to the gradients of parameters among a node's operands, and to no others. */
void ls_program_gradients_end(const ls_program *p, size_t *after) {
    memset(after, 0, p->store->count * sizeof *after);
    for (size_t i = 0; i < p->nodes.count; i++) {
        const ls_node *node = p->nodes.at[i];
        for (int j = 0; j < node->in_count + node->out_count; j++) {
            const ls_tensor *x = j < node->in_count ? node->in[j] : node->out[j - node->in_count];
            if (x != NULL && x->parameter >= 0) after[x->parameter] = i + 1;
        }
    }
}

static void **graph_before(ls_program *p, size_t place) {
    return place == 0 ? &p->graph : &p->graphs[place - 1];
}

void ls__graphs_next(ls_program *p, size_t place) {
    ls_device *device = p->ctx->device;
    *graph_before(p, place) = device->captured(device);
    if (place < p->watch.count) device->capture(device);
}

void ls__graphs_replay(ls_program *p) {
    ls_device *device = p->ctx->device;
    for (size_t place = 0; place <= p->watch.count; place++) {
        void *graph = *graph_before(p, place);
        if (graph != NULL) device->replay(device, graph);
        if (place < p->watch.count) p->watch.reached(p->watch.user, place);
    }
}

void ls__graphs_forget(ls_program *p) {
    for (size_t place = 0; p->graph != NULL && place <= p->watch.count; place++) {
        void **graph = graph_before(p, place);
        if (*graph != NULL) p->ctx->device->forget(p->ctx->device, *graph);
        *graph = NULL;
    }
}
