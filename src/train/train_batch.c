/* One batch: its rows, and its gradient. */
#include "base/clock.h"
#include "train/train_loop.h"

static ls_status check_program(ls_loop *l) {
    static const char *const names[] = {"tokens", "targets", "weights", "loss"};
    const ls_train_settings *s = l->settings;
    for (int i = 0; i < 4; i++) {
        const ls_tensor *tensor = ls_program_find(l->job->program, names[i]);
        int64_t each = i == 0 ? l->inputs : l->targets;
        if (tensor == NULL ||
            ls_count(tensor) * ls_train_parts(s) * s->context != s->batch * each ||
            (i < 2) != (tensor->type == LS_I32))
            return LS_FAIL(l->ctx, LS_EBUG, "the training program has no fitting `%s`", names[i]);
    }
    return LS_OK;
}

static ls_status make_rows(ls_loop *l) {
    const ls_train_settings *s = l->settings;
    size_t inputs = (size_t)(s->batch * l->inputs), targets = (size_t)(s->batch * l->targets);
    l->rejections = ls_new(l->ctx, LS_LOOP_REJECTIONS, sizeof *l->rejections);
    l->reals = ls_new(l->ctx, targets, sizeof(double));
    if (l->reals == NULL || l->rejections == NULL) return LS_ENOMEM;
    for (int i = 0; i < 2; i++) {
        ls_batch_rows *rows = &l->rows[i];
        *rows = (ls_batch_rows){.number = -1};
        rows->inputs = ls_new(l->ctx, inputs, sizeof *rows->inputs);
        rows->targets = ls_new(l->ctx, targets, sizeof *rows->targets);
        rows->fresh = ls_new(l->ctx, (size_t)s->batch, sizeof *rows->fresh);
        if (l->job->drawn != NULL) rows->places = ls_new(l->ctx, inputs, sizeof *rows->places);
        if (rows->inputs == NULL || rows->targets == NULL || rows->fresh == NULL ||
            (l->job->drawn != NULL && rows->places == NULL))
            return LS_ENOMEM;
    }
    return LS_OK;
}

ls_status ls__loop_make_batches(ls_loop *l) {
    const int64_t each = l->settings->accumulate;
    LS_TRY(check_program(l));
    LS_TRY(ls_leaves_init(l->ctx, l->job->store, l->settings->shards, l->settings->context,
                          l->ranks, &l->leaves));
    l->part = l->leaves.first * each;
    l->part_end = l->part + l->leaves.own * each;
    LS_TRY(make_rows(l));
    LS_TRY(ls__loop_make_context(l));
    /* a rank that hands states on uses the ranks itself until its last run is over */
    if (l->settings->context == 1 || (l->context.before < 0 && l->context.after < 0))
        LS_TRY(ls_overlap_new(l->ctx, l->job->program, l->optimizer, &l->leaves, &l->overlap));
    if (l->settings->context > 1) return LS_OK;
    if (!ls_program_about(l->job->program)->streaming) return LS_OK;
    const int64_t own = l->part_end - l->part;
    l->carried = ls_new(l->ctx, (size_t)own, sizeof(ls_state *));
    if (l->carried == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < own; i++) LS_TRY(ls_state_new(l->job->program, &l->carried[i]));
    return LS_OK;
}

void ls__loop_free_batches(ls_loop *l) {
    ls_overlap_free(l->overlap);
    for (int i = 0; i < 2; i++) {
        ls_free(l->ctx, l->rows[i].inputs);
        ls_free(l->ctx, l->rows[i].targets);
        ls_free(l->ctx, l->rows[i].places);
        ls_free(l->ctx, l->rows[i].fresh);
    }
    ls_free(l->ctx, l->reals);
    ls_free(l->ctx, l->rejections);
    for (int64_t i = 0; l->carried != NULL && i < l->part_end - l->part; i++)
        if (l->carried[i] != NULL) ls_state_free(l->ctx, l->carried[i]);
    ls_free(l->ctx, l->carried);
    ls__loop_free_context(l);
    ls_leaves_clear(l->ctx, &l->leaves);
}

/* The settings were tried before: no draw fails. */
static void draw_places(ls_loop *l, ls_batch_rows *rows, int64_t number) {
    for (int64_t row = 0; rows->places != NULL && row < l->settings->batch; row++) {
        const ls_place_draw about = {.seed = (uint64_t)l->settings->seed,
                                     .batch = number,
                                     .row = row,
                                     .length = l->inputs,
                                     .model_length = l->job->model_length};
        ls_places_drawn drawn = {.places = rows->places + row * l->inputs};
        ls_position_draw(l->ctx, l->job->drawn, &about, &drawn);
        rows->scale = (int32_t)drawn.scale;
    }
}

/* One batch as the source gave it. */
static void fetch_batch(ls_loop *l, ls_batch_rows *rows, int64_t number) {
    const ls_train_settings *s = l->settings;
    const ls_train_source *source = &l->job->source;
    const int64_t answers = source->answers > 0 ? source->answers : source->vocabulary;
    const int32_t lowest = source->padded ? -1 : 0;
    if (rows->number == number) return;
    source->rows(source->user, number, 0, s->batch, rows->inputs, rows->targets, rows->fresh);
    rows->tokens = rows->scored = 0;
    rows->wrong = false;
    for (int64_t i = 0; i < s->batch * l->inputs; i++) {
        rows->wrong |= rows->inputs[i] < lowest || rows->inputs[i] >= source->vocabulary;
        rows->tokens += rows->inputs[i] >= 0;
    }
    for (int64_t i = 0; i < s->batch * l->targets; i++) {
        if (i % l->targets < source->untrained) rows->targets[i] = -1;
        rows->wrong |= rows->targets[i] >= answers;
        rows->scored += rows->targets[i] >= 0;
    }
    draw_places(l, rows, number);
    rows->number = number;
}

void ls__loop_put_weights(ls_loop *l, const int32_t *targets, double each) {
    const ls_tensor *tensor = ls_program_find(l->job->program, "weights");
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        double weight = targets[i] < 0 ? 0 : each;
        if (tensor->type == LS_F64)
            ((double *)l->reals)[i] = weight;
        else
            ((float *)l->reals)[i] = (float)weight;
    }
    ls_tensor_put(l->job->program, tensor, l->reals);
}

ls_status ls__loop_take_losses(ls_loop *l, const int32_t *targets, double each, ls_leaf *leaf) {
    const ls_tensor *loss = ls_program_find(l->job->program, "loss");
    LS_TRY(ls_tensor_get(l->job->program, loss, l->reals));
    double all = 0, more;
    for (int64_t i = 0; i < ls_count(loss); i++)
        if (targets[i] >= 0)
            all += loss->type == LS_F64 ? ((const double *)l->reals)[i]
                                        : (double)((const float *)l->reals)[i];
    leaf->loss += all * each;
    LS_TRY(ls_program_auxiliary(l->job->program, &more));
    leaf->auxiliary += more;
    return LS_OK;
}

/* Before a run: a row's state starts anew where the row is fresh, and where it has reached its
 * capacity. Unless the program has resets, all rows of a part do so together. */
static ls_status settle_state(ls_loop *l, bool *all_fresh, int64_t part, int64_t rows) {
    enum { POSITION_MAX = 1 << 30 }; /* what 32 bits hold, by far */
    ls_state *state = l->carried[part - l->part];
    bool *fresh = all_fresh + part * rows;
    const ls_program_options *about = ls_program_about(l->job->program);
    const bool ends = ls_state_position(state) + about->length > POSITION_MAX;
    int64_t count = 0;
    for (int64_t i = 0; i < rows; i++) {
        fresh[i] |=
            ls_state_age(state, i) + about->length > about->capacity || (ends && about->resets);
        count += fresh[i];
    }
    if (about->resets)
        ls_state_reset_rows(state, fresh);
    else if (count == rows)
        ls_state_reset(state);
    else if (count != 0)
        return LS_FAIL(l->ctx, LS_EBUG, "rows begin at different batches, which nothing foretold");
    return LS_OK;
}

/* One part of the batch: its gradient is added to the store's, its losses to the leaf's. */
static ls_status compute_part(ls_loop *l, ls_batch_rows *now, int64_t part, double each,
                              ls_leaf *leaf) {
    const ls_train_settings *s = l->settings;
    ls_program *program = l->job->program;
    const int64_t parts = ls_train_parts(s), rows = s->batch / parts;
    const int32_t *wanted = now->targets + part * rows * l->targets;
    ls_state *state = l->carried == NULL ? NULL : l->carried[part - l->part];
    ls_tensor_put(program, ls_program_find(program, "tokens"),
                  now->inputs + part * rows * l->inputs);
    ls_tensor_put(program, ls_program_find(program, "targets"), wanted);
    if (now->places != NULL)
        ls_tensor_put(program, ls_program_find(program, "places"),
                      now->places + part * rows * l->inputs);
    if (now->scale > 0) ls_tensor_put(program, ls_program_find(program, "scale"), &now->scale);
    ls__loop_put_weights(l, wanted, each);
    if (state != NULL) LS_TRY(settle_state(l, now->fresh, part, rows));
    if (part + 1 == l->part_end) ls_overlap_begin(l->overlap);
    LS_TRY(ls_program_run(program, state, (uint64_t)s->seed, (uint32_t)(l->step * parts + part)));
    /* a device is at work now: the next batch is made meanwhile */
    if (part + 1 == l->part_end && l->step + 1 < s->steps)
        fetch_batch(l, &l->rows[(l->batch + 1) % 2], l->batch + 1);
    return ls__loop_take_losses(l, wanted, each, leaf);
}

static ls_status compute_leaves(ls_loop *l, ls_batch_rows *now, double each) {
    const int64_t each_leaf = l->settings->accumulate;
    for (int64_t i = 0; i < l->leaves.own; i++) {
        ls_leaf leaf = {0};
        for (int64_t part = 0; part < each_leaf; part++)
            LS_TRY(compute_part(l, now, l->part + i * each_leaf + part, each, &leaf));
        ls_leaves_add(l->ctx, &l->leaves, i, leaf);
    }
    return LS_OK;
}

unsigned ls__loop_marks(const ls_loop *l) {
    const double minutes = l->settings->max_minutes;
    const bool late = minutes > 0 && ls_clock() - l->started >= 60 * minutes;
    const bool stop = l->job->stop != NULL && *l->job->stop != 0;
    return (late ? LS_LOOP_LATE : 0) | (stop ? LS_LOOP_STOP : 0);
}

ls_status ls__loop_compute(ls_loop *l, double *loss) {
    ls_batch_rows *now = &l->rows[l->batch % 2];
    fetch_batch(l, now, l->batch);
    if (l->job->source.status != NULL) LS_TRY(l->job->source.status(l->ctx, l->job->source.user));
    if (now->wrong)
        return LS_FAIL(l->ctx, LS_EINPUT, "batch %lld has a token outside the vocabulary",
                       (long long)l->batch);
    double each = now->scored > 0 ? 1 / (double)now->scored : 0;
    if (l->settings->context > 1)
        LS_TRY(ls__loop_compute_cut(l, now, each));
    else
        LS_TRY(compute_leaves(l, now, each));
    ls_leaf total;
    LS_TRY(l->overlap == NULL ? ls_optimizer_reduce(l->ctx, l->optimizer)
                              : ls_overlap_end(l->overlap));
    LS_TRY(ls_leaves_total(l->ctx, &l->leaves, ls__loop_marks(l), &total, &l->marks));
    *loss = total.loss;
    l->auxiliary = total.auxiliary;
    l->tokens += now->tokens;
    l->fresh_tokens += now->tokens;
    l->fresh_steps++;
    return LS_OK;
}
