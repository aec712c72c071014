/* A batch whose sequences are cut (train.context): their parts are leaves of the tree too, on one
 * rank or on neighbouring ones.
 *
 * The forward part goes through the parts of a sequence in their order, each with the state that
 * the one before it left; the backward part goes through them from the end, each with the gradient
 * of the state that it left. Of a part that waits for its turn back only the state that it began
 * with is kept: its forward part runs once more then. The parts of a leaf (train.accumulate) follow
 * one another, so that ranks with different parts of one sequence work at the same time. */
#include <string.h>

#include "train/train_loop.h"

/* Leaves of a sequence are numbered from its end: that is the order in which they are finished. So
 * the rank after this one has the parts before its own. */
static void find_parts(ls_loop *l) {
    ls_context *c = &l->context;
    const ls_leaves *leaves = &l->leaves;
    const int rank = l->ranks == NULL ? 0 : l->ranks->rank;
    c->parts = l->settings->context;
    c->length = l->settings->length / c->parts;
    const int64_t own = ls_min(leaves->own, c->parts);
    c->high = c->parts - leaves->first % c->parts;
    c->low = c->high - own;
    c->before = c->low > 0 ? rank + 1 : -1;
    c->after = c->high < c->parts ? rank - 1 : -1;
}

ls_status ls__loop_make_context(ls_loop *l) {
    ls_context *c = &l->context;
    const int64_t count = l->settings->accumulate;
    const int64_t rows = l->settings->batch / ls_train_parts(l->settings);
    if (l->settings->context == 1) return LS_OK;
    find_parts(l);
    const int64_t own = c->high - c->low;
    c->count = count;
    c->state = ls_new(l->ctx, (size_t)count, sizeof(ls_state *));
    c->gradient = ls_new(l->ctx, (size_t)count, sizeof(ls_state *));
    c->mark = ls_new(l->ctx, (size_t)(count * own), sizeof(ls_state *));
    c->tokens = ls_new(l->ctx, (size_t)(rows * c->length), sizeof *c->tokens);
    c->targets = ls_new(l->ctx, (size_t)(rows * c->length), sizeof *c->targets);
    if (c->state == NULL || c->gradient == NULL || c->mark == NULL || c->tokens == NULL ||
        c->targets == NULL)
        return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        LS_TRY(ls_state_new(l->job->program, &c->state[i]));
        LS_TRY(ls_state_new(l->job->program, &c->gradient[i]));
        for (int64_t k = 0; k < own; k++) LS_TRY(ls_state_mark(c->state[i], &c->mark[i * own + k]));
    }
    if (c->before < 0 && c->after < 0) return LS_OK;
    c->packet_bytes = ls_state_length(c->state[0]);
    c->packet = ls_new_raw(l->ctx, c->packet_bytes, 1);
    return c->packet == NULL ? LS_ENOMEM : LS_OK;
}

void ls__loop_free_context(ls_loop *l) {
    ls_context *c = &l->context;
    const int64_t own = c->high - c->low;
    for (int64_t i = 0; i < c->count; i++) {
        if (c->state != NULL) ls_state_free(l->ctx, c->state[i]);
        if (c->gradient != NULL) ls_state_free(l->ctx, c->gradient[i]);
        for (int64_t k = 0; c->mark != NULL && k < own; k++)
            ls_state_free(l->ctx, c->mark[i * own + k]);
    }
    ls_free(l->ctx, c->state);
    ls_free(l->ctx, c->gradient);
    ls_free(l->ctx, c->mark);
    ls_free(l->ctx, c->tokens);
    ls_free(l->ctx, c->targets);
    ls_free(l->ctx, c->packet);
}

/* ---- between ranks ---- */

typedef struct packing {
    uint8_t *to;
    size_t left;
} packing;

static ls_status pack(void *user, const void *bytes, size_t length) {
    packing *at = user;
    if (length > at->left) return LS_EBUG;
    memcpy(at->to, bytes, length);
    at->to += length;
    at->left -= length;
    return LS_OK;
}

static ls_status send_state(ls_loop *l, int to, const ls_state *state) {
    ls_context *c = &l->context;
    if (l->ctx->rehearsal) /* counted, with caches as full as they may be */
        return ls_ranks_exchange(l->ctx, l->ranks, to, NULL, ls_state_length(state), NULL, 0);
    if (ls_state_put_rows(l->ctx, state, pack, &(packing){c->packet, c->packet_bytes}) != LS_OK)
        return LS_FAIL(l->ctx, LS_EBUG, "a state does not fit where states of its kind do");
    return ls_ranks_send(l->ctx, l->ranks, to, c->packet, ls_state_rows_length(state));
}

static ls_status receive_state(ls_loop *l, int from, ls_state *state) {
    ls_context *c = &l->context;
    size_t length;
    if (l->ctx->rehearsal) return LS_OK;
    LS_TRY(ls_ranks_expect(l->ctx, l->ranks, from, "a state", c->packet_bytes, &length));
    LS_TRY(ls_ranks_exchange(l->ctx, l->ranks, from, NULL, 0, c->packet, length));
    return ls_state_load_rows(l->ctx, state, c->packet, length);
}

/* ---- parts ---- */

/* Which rows of the batch, and which part of them. */
typedef struct piece {
    int64_t rows, number, part; /* number: of the rows, among those of the batch */
} piece;

static void cut(const ls_loop *l, const piece *at, const int32_t *from, int32_t *to) {
    const int64_t whole = l->settings->length, length = l->context.length;
    for (int64_t row = 0; row < at->rows; row++)
        memcpy(to + row * length, from + (at->number * at->rows + row) * whole + at->part * length,
               (size_t)length * sizeof *to);
}

/* Dropout acts alike in a part's first and second forward run. */
static uint32_t step_of(const ls_loop *l, const piece *at) {
    const int64_t parts = ls_train_parts(l->settings);
    return (uint32_t)((l->step * parts + at->number) * l->context.parts + at->part);
}

static ls_status run_forward(ls_loop *l, const ls_batch_rows *now, const piece *at,
                             ls_state *state) {
    ls_program *program = l->job->forward;
    cut(l, at, now->inputs, l->context.tokens);
    ls_tensor_put(program, ls_program_find(program, "tokens"), l->context.tokens);
    return ls_program_run(program, state, (uint64_t)l->settings->seed, step_of(l, at));
}

/* From the start of a sequence, or what the rank with the part before hands on, to its own last
 * part, or what it hands on itself. */
static ls_status go_forward(ls_loop *l, const ls_batch_rows *now, piece at, int64_t i) {
    ls_context *c = &l->context;
    ls_state *state = c->state[i];
    if (c->before < 0)
        ls_state_reset(state);
    else
        LS_TRY(receive_state(l, c->before, state));
    for (at.part = c->low; at.part < c->high; at.part++) {
        ls_state *mark = c->mark[i * (c->high - c->low) + at.part - c->low];
        if (!l->ctx->rehearsal) LS_TRY(ls_state_mark_again(state, mark));
        if (at.part + 1 < c->parts) LS_TRY(run_forward(l, now, &at, state));
    }
    return c->after < 0 ? LS_OK : send_state(l, c->after, state);
}

static ls_status go_back(ls_loop *l, ls_batch_rows *now, const piece *at, int64_t i, double each,
                         ls_leaf *leaf) {
    ls_context *c = &l->context;
    ls_program *program = l->job->program;
    ls_state *state = c->state[i], *gradient = c->gradient[i];
    const ls_state *mark = c->mark[i * (c->high - c->low) + at->part - c->low];
    if (at->part + 1 == c->parts && !l->ctx->rehearsal)
        ls_state_clear_at(gradient, state);
    else if (at->part + 1 == c->high && c->after >= 0)
        LS_TRY(receive_state(l, c->after, gradient));
    if (l->ctx->rehearsal)
        ls_state_reset(state); /* where it stands is of no consequence */
    else
        LS_TRY(ls_state_back(state, mark));
    cut(l, at, now->inputs, c->tokens);
    cut(l, at, now->targets, c->targets);
    ls_tensor_put(program, ls_program_find(program, "tokens"), c->tokens);
    ls_tensor_put(program, ls_program_find(program, "targets"), c->targets);
    ls__loop_put_weights(l, c->targets, each);
    LS_TRY(ls_program_run_through(program, state, gradient, (uint64_t)l->settings->seed,
                                  step_of(l, at)));
    LS_TRY(ls__loop_take_losses(l, c->targets, each, leaf));
    if (!l->ctx->rehearsal) ls_state_stand_at(gradient, mark);
    return at->part == c->low && c->before >= 0 ? send_state(l, c->before, gradient) : LS_OK;
}

ls_status ls__loop_compute_cut(ls_loop *l, ls_batch_rows *now, double each) {
    ls_context *c = &l->context;
    const int64_t own = c->high - c->low;
    piece at = {.rows = l->settings->batch / ls_train_parts(l->settings)};
    for (int64_t i = 0; i < l->leaves.own; i += own) {
        const int64_t first = (l->leaves.first + i) / c->parts * c->count;
        for (int64_t k = 0; k < c->count; k++) {
            at.number = first + k;
            LS_TRY(go_forward(l, now, at, k));
        }
        for (at.part = c->high - 1; at.part >= c->low; at.part--) {
            ls_leaf leaf = {0};
            for (int64_t k = 0; k < c->count; k++) {
                at.number = first + k;
                if (i + own == l->leaves.own && at.part == c->low && k + 1 == c->count)
                    ls_overlap_begin(l->overlap);
                LS_TRY(go_back(l, now, &at, k, each, &leaf));
            }
            ls_leaves_add(l->ctx, &l->leaves, i + c->high - 1 - at.part, leaf);
        }
    }
    return LS_OK;
}
