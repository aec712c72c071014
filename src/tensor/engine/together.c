/* Sequences at places of their own, a chunk further together: see program.h.
 *
 * A model recorded for B sequences and for one has the same nodes in the same order. Nodes that any
 * batch computes alike run in the program of B. Of the others every sequence has its own, in a
 * program of one whose tensors with a part of each sequence lie in the program of B: so they read
 * and write their rows there. What has no such part (a table of angles at a position) stays in the
 * sequence's own arena. Nodes run one after the other for all sequences, as the plan of the arena
 * demands. */
#include <string.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

struct ls_together {
    ls_ctx *ctx;
    int64_t count;
    ls_program *many;
    ls_program *one[LS_TOGETHER_MOST]; /* borrowed */
    struct {
        bool at_once;
        bool small; /* not worth waking another thread for, all sequences together */
    } * node;
};

static const ls_tensor *owner_of(const ls_tensor *tensor) {
    return tensor->base == NULL ? tensor : tensor->base;
}

/* Whether a tensor is that of one sequence `count` times, one after the other. */
static bool repeats(const ls_tensor *many, const ls_tensor *one, int64_t count) {
    if (many->rank < 1 || many->rank != one->rank || many->type != one->type ||
        many->dim[0] != count * one->dim[0])
        return false;
    for (int i = 1; i < one->rank; i++)
        if (many->dim[i] != one->dim[i]) return false;
    return true;
}

static bool is_made(const ls_tensor *tensor) {
    return tensor->role == LS_ROLE_ACTIVATION || tensor->role == LS_ROLE_INPUT;
}

static bool same_shape(const ls_tensor *a, const ls_tensor *b) {
    return a->rank == b->rank && a->type == b->type &&
           memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* Whether every tensor is either repeated or the same in both, views lying alike. */
static bool tensors_fit(const ls_program *many, const ls_program *one, int64_t count) {
    if (many->tensors.count != one->tensors.count || many->nodes.count != one->nodes.count ||
        many->ports.count != one->ports.count)
        return false;
    for (size_t i = 0; i < many->tensors.count; i++) {
        const ls_tensor *a = many->tensors.at[i], *b = one->tensors.at[i];
        if (a->role != b->role || (a->base == NULL) != (b->base == NULL) || a->offset != b->offset)
            return false;
        if (is_made(a) && a->base == NULL && !repeats(a, b, count) && !same_shape(a, b))
            return false;
    }
    for (size_t i = 0; i < many->nodes.count; i++) {
        const ls_node *a = many->nodes.at[i], *b = one->nodes.at[i];
        if (a->op != b->op || a->in_count != b->in_count || a->out_count != b->out_count)
            return false;
    }
    return true;
}

/* Whether a node's tensor allows it to be run for all at once. */
static bool is_rows(const ls_tensor *many, const ls_tensor *one, int64_t count) {
    if (many == NULL) return true;
    const ls_tensor *a = owner_of(many), *b = owner_of(one);
    if (a->role == LS_ROLE_STATE || many->port >= 0) return false;
    return !is_made(a) || repeats(a, b, count);
}

/* One row of each token: where there are more, a product of all may go another way than that of one
 * sequence. */
static bool runs_at_once(const ls_node *many, const ls_node *one, int64_t count, int64_t length) {
    if (!many->op->any_batch) return false;
    for (int i = 0; i < many->in_count; i++)
        if (!is_rows(many->in[i], one->in[i], count)) return false;
    for (int i = 0; i < many->out_count; i++) {
        const ls_tensor *result = many->out[i];
        if (!is_rows(result, one->out[i], count)) return false;
        if (result == NULL) continue;
        const int64_t rows = ls_count(result) / result->dim[result->rank - 1];
        if (rows != count && rows != count * length) return false;
    }
    return true;
}

/* The sequence's tensors come to lie in the rows of all, unless they do already. */
static void place_rows(const ls_program *many, ls_program *one, int64_t count, int64_t row) {
    if (one->rows_of == many) return;
    one->rows_of = many;
    for (size_t i = 0; i < many->tensors.count; i++) {
        const ls_tensor *all = many->tensors.at[i];
        ls_tensor *own = one->tensors.at[i];
        if (all->base != NULL || !is_made(all) || all->data == NULL || !repeats(all, own, count))
            continue;
        const size_t bytes = (size_t)ls_count(own) * ls_dtype_size(own->type);
        own->data = (char *)all->data + (size_t)row * bytes;
    }
}

ls_status ls_together_new(ls_program *many, ls_program *const *one, int64_t count,
                          ls_together **out) {
    ls_ctx *ctx = many->ctx;
    ls_together *together = ls_new(ctx, 1, sizeof *together);
    *out = NULL;
    if (together != NULL) {
        *together = (ls_together){.ctx = ctx, .count = count, .many = many};
        together->node = ls_new(ctx, many->nodes.count + 1, sizeof *together->node);
    }
    const bool starved = together == NULL || together->node == NULL;
    const int64_t length = many->options.length;
    bool fits = !starved && count >= 1 && length <= LS_TOGETHER_LENGTH &&
                count * length <= LS_TOGETHER_MOST;
    for (int64_t b = 0; fits && b < count; b++) fits = tensors_fit(many, one[b], count);
    if (!fits) {
        ls_program_free(many);
        if (together != NULL) ls_free(ctx, together->node);
        ls_free(ctx, together);
        return starved ? LS_ENOMEM : LS_OK;
    }
    for (size_t i = 0; i < many->nodes.count; i++) {
        const ls_node *node = one[0]->nodes.at[i];
        together->node[i].at_once = runs_at_once(many->nodes.at[i], node, count, length);
        together->node[i].small = (double)count * ls__node_work(node) < (double)ctx->team_work;
    }
    for (int64_t b = 0; b < count; b++) together->one[b] = one[b];
    *out = together;
    return LS_OK;
}

void ls_together_free(ls_together *together) {
    if (together == NULL) return;
    ls_program_free(together->many);
    ls_free(together->ctx, together->node);
    ls_free(together->ctx, together);
}

ls_program *ls_together_program(const ls_together *together) {
    return together->many;
}

static void call_node(const ls_program *program, size_t i, const ls_run *run) {
    const ls_node *node = program->nodes.at[i];
    ls_run here = *run;
    here.workspace = program->workspace;
    if (node->small) here.threads = 1;
    if (node->apart) here.state = NULL, here.start = 0;
    node->call(&here, node);
}

static void call_row(const ls_together *together, size_t i, const ls_run *run,
                     ls_state *const *states, int64_t b) {
    ls_run here = *run;
    if (run->device == NULL) here.threads = 1;
    here.state = states[b];
    here.start = states[b]->position;
    if (run->device != NULL) run->device->begin(run->device, &here); /* kernels read it there */
    call_node(together->one[b], i, &here);
}

/* A node for one sequence after the other: on the processor each may take a thread. A team of one
 * would cost more than a small node. */
static void call_rows(const ls_together *together, size_t i, const ls_run *run,
                      ls_state *const *states) {
    if (run->device != NULL || run->threads == 1 || together->node[i].small) {
        for (int64_t b = 0; b < together->count; b++) call_row(together, i, run, states, b);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < together->count; b++) call_row(together, i, run, states, b);
}

static void run_group(const ls_together *together, ls_run run, ls_state *const *states) {
    const ls_program *many = together->many;
    run.parameters = many->store;
    run.rows_alone = true;
    for (size_t i = 0; i < many->nodes.count; i++) {
        if (((const ls_node *)many->nodes.at[i])->call == NULL) continue;
        if (together->node[i].at_once)
            call_node(many, i, &run);
        else
            call_rows(together, i, &run, states);
    }
}

static ls_status begin_group(const ls_together *together, ls_state *const *states) {
    for (int64_t b = 0; b < together->count; b++) {
        place_rows(together->many, together->one[b], together->count, b);
        LS_TRY(ls__state_begin(together->one[b], states[b], NULL));
    }
    return LS_OK;
}

static void advance_group(const ls_together *together, ls_state *const *states) {
    const ls_program *many = together->many;
    for (int64_t b = 0; b < together->count; b++)
        states[b]->position += many->options.length / many->unit * many->unit;
}

ls_status ls_together_run(ls_together *const *groups, int64_t count, ls_state *const *states) {
    ls_ctx *ctx = groups[0]->ctx;
    ls_state *const *of[LS_GROUPS_MOST];
    for (int64_t g = 0; g < count; states += groups[g++]->count) {
        of[g] = states;
        LS_TRY(begin_group(groups[g], states));
    }
    ls_device *device = ls__device_of(ctx, groups[0]->many->options.type);
    ls_run run = {
        .threads = groups[0]->many->threads, .team_work = ctx->team_work, .device = device};
    if (device != NULL) device->begin(device, &run);
    if (device != NULL || count == 1) {
        for (int64_t g = 0; g < count; g++) run_group(groups[g], run, of[g]);
    } else {
        run.threads = 1;
#pragma omp parallel for schedule(static, 1) num_threads((int)count)
        for (int64_t g = 0; g < count; g++) run_group(groups[g], run, of[g]);
    }
    if (device != NULL && device->shared) LS_TRY(ls_device_settle(ctx));
    for (int64_t g = 0; g < count; g++) advance_group(groups[g], of[g]);
    return LS_OK;
}
