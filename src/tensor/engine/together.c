/* Sequences at places of their own, a chunk further together: see program.h.
 *
 * A model recorded for B sequences and for one has the same nodes in the same order. Nodes that any
 * batch computes alike run in the program of B. Of the others every sequence has its own, in a
 * program of one whose tensors with a part of each sequence lie in the program of B: so they read
 * and write their rows there. What has no such part (a table of angles at a position) stays in the
 * sequence's own arena. Nodes run one after the other for all sequences, as the plan of the arena
 * demands.
 *
 * Forks share one state. Caches that only grow have the rows of the sequence that is being computed
 * behind those of all; so from an append to the last node that reads the cache a sequence goes
 * alone (a passage), and the arena is planned for that. */
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
    /* of forks, else NULL: the node behind the passage of each node; the first of each port */
    size_t *passage, *touched;
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

/* Whether products of all have the bits of one sequence's: both few, or both many. */
static bool sizes_fit(int64_t count, int64_t length) {
    if (count < 1 || count > LS_TOGETHER_MOST) return false;
    return length >= LS_TOGETHER_MANY || count * length <= LS_TOGETHER_MOST;
}

/* One row of each token, or of each sequence where all are few: a product of other numbers may go
 * another way than that of one sequence. */
static bool runs_at_once(const ls_node *many, const ls_node *one, int64_t count, int64_t length) {
    if (!many->op->any_batch) return false;
    for (int i = 0; i < many->in_count; i++)
        if (!is_rows(many->in[i], one->in[i], count)) return false;
    for (int i = 0; i < many->out_count; i++) {
        const ls_tensor *result = many->out[i];
        if (!is_rows(result, one->out[i], count)) return false;
        if (result == NULL) continue;
        const int64_t rows = ls_count(result) / result->dim[result->rank - 1];
        if (rows != count * length && (rows != count || length >= LS_TOGETHER_MANY)) return false;
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
        if (all->prepared) own->data = all->data; /* computed once, for all */
        if (all->base != NULL || !is_made(all) || all->data == NULL || !repeats(all, own, count))
            continue;
        const size_t bytes = (size_t)ls_count(own) * ls_dtype_size(own->type);
        own->data = (char *)all->data + (size_t)row * bytes;
    }
}

/* ---- forks: passages ---- */

static bool touches(const ls_tensor *tensor, int port) {
    return tensor != NULL && (tensor->port == port || owner_of(tensor)->port == port);
}

static bool node_touches(const ls_node *node, int port) {
    bool found = false;
    for (int j = 0; j < node->in_count; j++) found |= touches(node->in[j], port);
    for (int j = 0; j < node->out_count; j++) found |= touches(node->out[j], port);
    return found;
}

/* The first node that has to do with a port; all of them where none has. A value is what it was
 * until everything is done. */
static size_t first_touch(const ls_program *p, size_t port) {
    const size_t count = p->nodes.count;
    size_t i = ((const ls_port *)p->ports.at[port])->kind == LS_PORT_VALUE ? count : 0;
    while (i < count && !node_touches(p->nodes.at[i], (int)port)) i++;
    return i;
}

void ls__find_passages(const ls_program *p, size_t *end) {
    const size_t count = p->nodes.count;
    memset(end, 0, count * sizeof *end);
    for (size_t port = 0; port < p->ports.count; port++) {
        const size_t first = first_touch(p, port);
        size_t last = count;
        while (last > first && !node_touches(p->nodes.at[last - 1], (int)port)) last--;
        for (size_t i = first; i < last; i++)
            if (end[i] < last) end[i] = last;
    }
    /* those that meet are one: what is behind node i is settled when i is reached */
    for (size_t i = count; i-- > 0;)
        while (end[i] > 0 && end[end[i] - 1] > end[i]) end[i] = end[end[i] - 1];
}

static bool find_own_passages(ls_together *together) {
    const ls_program *many = together->many;
    if (!many->options.forks) return true;
    together->passage = ls_new(together->ctx, many->nodes.count + 1, sizeof *together->passage);
    together->touched = ls_new(together->ctx, many->ports.count + 1, sizeof *together->touched);
    if (together->passage == NULL || together->touched == NULL) return false;
    ls__find_passages(many, together->passage);
    for (size_t port = 0; port < many->ports.count; port++)
        together->touched[port] = first_touch(many, port);
    return true;
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
    const bool starved = together == NULL || together->node == NULL || !find_own_passages(together);
    const int64_t length = many->options.length;
    bool fits = !starved && sizes_fit(count, length);
    for (int64_t b = 0; fits && b < count; b++) fits = tensors_fit(many, one[b], count);
    if (!fits) {
        if (together == NULL) ls_program_free(many);
        ls_together_free(together);
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
    ls_free(together->ctx, together->passage);
    ls_free(together->ctx, together->touched);
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

static void call_row(const ls_together *together, size_t i, const ls_run *run, ls_state *state,
                     int64_t b) {
    ls_run here = *run;
    here.state = state;
    here.start = state->position;
    if (run->device != NULL) run->device->begin(run->device, &here); /* kernels read it there */
    call_node(together->one[b], i, &here);
}

/* A node for one sequence after the other: on the processor each may take a thread. A team of one
 * would cost more than a small node. */
static void call_rows(const ls_together *together, size_t i, const ls_run *run,
                      ls_state *const *states) {
    ls_run each = *run;
    if (run->device == NULL) each.threads = 1;
    if (run->device != NULL || run->threads == 1 || together->node[i].small) {
        for (int64_t b = 0; b < together->count; b++) call_row(together, i, &each, states[b], b);
        return;
    }
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < together->count; b++) call_row(together, i, &each, states[b], b);
}

static void call_all(const ls_together *together, size_t i, const ls_run *run,
                     ls_state *const *states) {
    if (((const ls_node *)together->many->nodes.at[i])->call == NULL) return;
    if (together->node[i].at_once)
        call_node(together->many, i, run);
    else
        call_rows(together, i, run, states);
}

static void prepare_run(const ls_together *together, ls_run *run) {
    run->parameters = together->many->store;
    run->rows_alone = together->many->options.length < LS_TOGETHER_MANY;
}

/* What follows from the weights is the same for all sequences. Returns the first node that is
 * not. */
static size_t call_prepared(const ls_together *together, const ls_run *run) {
    ls_program *many = together->many;
    for (size_t i = ls__first_node(many); i < many->prepared; i++)
        if (((const ls_node *)many->nodes.at[i])->call != NULL) call_node(many, i, run);
    many->prepared_for = *many->store->version;
    return many->prepared;
}

static void run_group(const ls_together *together, ls_run run, ls_state *const *states) {
    prepare_run(together, &run);
    for (size_t i = call_prepared(together, &run); i < together->many->nodes.count; i++)
        call_all(together, i, &run, states);
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

/* ---- forks ---- */

/* The passage from node `first` on, for one sequence after the other: each finds the caches as they
 * were. */
static ls_status run_passage(const ls_together *together, size_t first, const ls_run *run,
                             ls_state *state, const ls_state *mark) {
    const size_t end = together->passage[first];
    for (int64_t b = 0; b < together->count; b++) {
        for (size_t port = 0; port < state->ports; port++)
            if (together->touched[port] >= first && together->touched[port] < end)
                LS_TRY(ls__port_back(state, mark, port));
        for (size_t i = first; i < end; i++) {
            const ls_node *node = together->many->nodes.at[i];
            if (node->call != NULL) call_row(together, i, run, state, b);
        }
    }
    return LS_OK;
}

static ls_status run_forks(const ls_together *together, ls_run run, ls_state *state,
                           const ls_state *mark) {
    const ls_program *many = together->many;
    const size_t end = many->nodes.count - many->writes.count; /* new values are not kept */
    ls_state *states[LS_TOGETHER_MOST];
    for (int64_t b = 0; b < together->count; b++) states[b] = state;
    prepare_run(together, &run);
    for (size_t i = call_prepared(together, &run); i < end;) {
        if (together->passage[i] == 0) {
            call_all(together, i++, &run, states);
        } else {
            LS_TRY(run_passage(together, i, &run, state, mark));
            i = together->passage[i];
        }
    }
    return LS_OK;
}

ls_status ls_together_try(ls_together *together, ls_state *state, const ls_state *mark) {
    ls_ctx *ctx = together->ctx;
    ls_state *states[LS_TOGETHER_MOST];
    if (together->passage == NULL || state->position != mark->position || state->begins != NULL)
        return LS_FAIL(ctx, LS_EBUG, "forks go on from a mark, in a program that is made for them");
    for (int64_t b = 0; b < together->count; b++) states[b] = state;
    LS_TRY(begin_group(together, states));
    ls_device *device = ls__device_of(ctx, together->many->options.type);
    ls_run run = {
        .threads = together->many->threads, .team_work = ctx->team_work, .device = device};
    if (device != NULL) device->begin(device, &run);
    LS_TRY(run_forks(together, run, state, mark));
    if (device != NULL && device->shared) LS_TRY(ls_device_settle(ctx));
    return ls_state_back(state, mark);
}
