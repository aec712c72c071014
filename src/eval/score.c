#include "eval/score.h"

#include <stdlib.h>

#include "base/clock.h"
#include "eval/shared.h"

/* Tokens of the windows that go together: their states must stay small at any length. */
enum { TOGETHER = 16384, BATCH_MAX = 64 };

ls_status ls_eval_check_stop(ls_ctx *ctx, const volatile sig_atomic_t *stop, int64_t length) {
    if (stop == NULL || *stop == 0) return LS_OK;
    return LS_FAIL(ctx, LS_ESTOP, "stopped at length %lld", (long long)length);
}

size_t ls_eval_weight_bytes(const ls_model *model) {
    const ls_parameters *store = model->store;
    const size_t master = (size_t)store->master_total * ls_dtype_size(store->master_type);
    return master + (store->shadow == NULL ? 0 : (size_t)store->total * sizeof *store->shadow);
}

/* What the windows of a batch work in: [batch, chunk] each. */
typedef struct scratch {
    int64_t batch, chunk, capacity;
    int32_t *inputs, *targets;
    double *loss;
    double *window_loss; /* [batch] */
    ls_stream *stream;
    ls_shared shared;
} scratch;

static void scratch_clear(ls_ctx *ctx, scratch *d) {
    ls_shared_clear(&d->shared);
    ls_stream_free(d->stream);
    ls_free(ctx, d->inputs);
    ls_free(ctx, d->targets);
    ls_free(ctx, d->loss);
    ls_free(ctx, d->window_loss);
}

int64_t ls_eval_batch(int64_t batch, int64_t length, int64_t count) {
    if (batch == 0) batch = ls_max(1, ls_min(BATCH_MAX, TOGETHER / length));
    return ls_ceil_div(count, ls_ceil_div(count, batch));
}

static ls_status scratch_init(const ls_scoring *how, const ls_windows *windows, scratch *d) {
    ls_ctx *ctx = how->model->ctx;
    *d = (scratch){.batch = ls_eval_batch(how->batch, windows->longest, (int64_t)windows->count),
                   .chunk = ls_min(how->chunk, windows->longest),
                   .capacity = windows->longest,
                   .shared = ls_shared_of(ctx, how->hooks->ranks, how->context)};
    size_t cells = (size_t)(d->batch * d->chunk);
    d->inputs = ls_new(ctx, cells, sizeof *d->inputs);
    d->targets = ls_new(ctx, cells, sizeof *d->targets);
    d->loss = ls_new(ctx, cells, sizeof *d->loss);
    d->window_loss = ls_new(ctx, (size_t)d->batch, sizeof *d->window_loss);
    if (d->inputs == NULL || d->targets == NULL || d->loss == NULL || d->window_loss == NULL)
        return LS_ENOMEM;
    const ls_parts parts = ls_shared_parts(&d->shared, how->context);
    LS_TRY(ls_stream_new_parts(how->model, d->batch, 0, d->capacity, d->chunk, &parts, &d->stream));
    if (!ls_stream_in_parts(d->stream)) ls_shared_part_ways(&d->shared);
    return LS_OK;
}

/* Tokens to feed when `left` are left of the longest window at `first`. Padding is harmless, a
 * program for every possible rest is not: so few lengths occur. */
static int64_t chunk_length(const scratch *d, int64_t first, int64_t left) {
    int64_t quarter = ls_max(1, d->chunk / 4);
    return ls_min(ls_min(d->chunk, d->capacity - first), ls_round_up(left, quarter));
}

/* Columns [0, count) of a row: the window's tokens from `first` on. What is not scored has no
 * target; past the window's end nothing matters. */
static void fill_row(const ls_token_file *file, const ls_window *window, int64_t first,
                     int64_t count, int32_t *inputs, int32_t *targets) {
    int64_t real = window == NULL ? 0 : ls_max(0, ls_min(count, window->length - first));
    if (real > 0) {
        ls_token_file_read(file, window->begin + first, real, inputs);
        ls_token_file_read(file, window->begin + first + 1, real, targets);
    }
    for (int64_t t = 0; t < real && first + t < window->skip; t++) targets[t] = -1;
    for (int64_t t = real; t < count; t++) {
        inputs[t] = 0;
        targets[t] = -1;
    }
}

void ls_score_row(const ls_scoring *how, const ls_window *window, int64_t first, int64_t count,
                  const int32_t *targets, const double *loss, double *window_loss, ls_scores *out) {
    for (int64_t t = 0; t < count; t++) {
        if (targets[t] < 0) continue;
        out->by_position.sum[first + t] += loss[t];
        out->by_position.count[first + t]++;
        *window_loss += loss[t];
        if (out->every != NULL)
            out->every[out->tokens] = (ls_token_loss){window->begin + first + t + 1, loss[t]};
        out->tokens++;
        if (how->token_bytes != NULL) out->bytes += how->token_bytes[targets[t]];
    }
}

static ls_status score_batch(const ls_scoring *how, const ls_window *windows, int64_t rows,
                             scratch *d, ls_scores *out) {
    ls_stream_reset(d->stream);
    for (int64_t r = 0; r < rows; r++) d->window_loss[r] = 0;
    for (int64_t first = 0, count; first < windows[0].length; first += count) {
        LS_TRY(ls_eval_check_stop(how->model->ctx, how->hooks->stop, how->length));
        count = chunk_length(d, first, windows[0].length - first);
        for (int64_t r = 0; r < d->batch; r++)
            fill_row(how->file, r < rows ? &windows[r] : NULL, first, count,
                     d->inputs + r * d->chunk, d->targets + r * d->chunk);
        LS_TRY(ls_token_file_status(how->model->ctx, how->file));
        if (ls_shared_computes(&d->shared))
            LS_TRY(ls_stream_loss(d->stream, d->inputs, d->targets, count, d->chunk, d->loss));
        for (int64_t r = 0; r < rows; r++)
            LS_TRY(ls_shared_losses(&d->shared, d->targets + r * d->chunk, d->loss + r * d->chunk,
                                    count));
        for (int64_t r = 0; r < rows; r++)
            ls_score_row(how, &windows[r], first, count, d->targets + r * d->chunk,
                         d->loss + r * d->chunk, &d->window_loss[r], out);
    }
    for (int64_t r = 0; r < rows; r++) {
        out->loss += d->window_loss[r];
        out->window_means += d->window_loss[r] / (double)(windows[r].length - windows[r].skip);
    }
    return LS_OK;
}

static int by_place(const void *a, const void *b) {
    int64_t x = ((const ls_token_loss *)a)->at, y = ((const ls_token_loss *)b)->at;
    return (x > y) - (x < y);
}

static ls_status make_room(ls_ctx *ctx, const ls_windows *windows, ls_scores *out) {
    int64_t tokens = 1;
    for (size_t i = 0; i < windows->count; i++)
        tokens += windows->at[i].length - windows->at[i].skip;
    out->every = ls_new(ctx, (size_t)tokens, sizeof *out->every);
    return out->every == NULL ? LS_ENOMEM : LS_OK;
}

void ls_scores_clear(ls_ctx *ctx, ls_scores *scores) {
    ls_position_losses_clear(ctx, &scores->by_position);
    ls_free(ctx, scores->every);
    scores->every = NULL;
}

static ls_status score_streams(const ls_scoring *how, const ls_windows *windows, ls_scores *out) {
    ls_ctx *ctx = how->model->ctx;
    const int64_t count = (int64_t)windows->count;
    const double start = ls_clock();
    scratch d = {0};
    ls_status status;
    LS_TRY_GOTO(scratch_init(how, windows, &d));
    for (int64_t at = 0; at < count; at += d.batch) {
        if (how->hooks->progress != NULL)
            how->hooks->progress(how->hooks->user, how->what, how->length,
                                 (double)at / (double)count);
        bool wanted;
        LS_TRY_GOTO(ls_shared_begin(&d.shared, at / d.batch, d.batch * d.capacity, &wanted));
        if (!wanted) continue;
        LS_TRY_GOTO(score_batch(how, windows->at + at, ls_min(d.batch, count - at), &d, out));
        LS_TRY_GOTO(ls_shared_end(&d.shared));
    }
    out->seconds = ls_clock() - start;
    out->memory = ls_eval_weight_bytes(how->model) + ls_stream_bytes(d.stream);
    out->state = ls_stream_state_bytes(d.stream) / (size_t)d.batch;
    out->uncut = how->context > 1 && !ls_stream_in_parts(d.stream);
fail:
    scratch_clear(ctx, &d);
    return status;
}

ls_status ls_score_windows(const ls_scoring *how, const ls_windows *windows, ls_scores *out) {
    ls_ctx *ctx = how->model->ctx;
    *out = (ls_scores){0};
    LS_TRY(ls_position_losses_init(ctx, windows->longest, &out->by_position));
    if (how->every) LS_TRY(make_room(ctx, windows, out));
    LS_TRY(how->objective == LS_OBJECTIVE_NEXT ? score_streams(how, windows, out)
                                               : ls_score_whole(how, windows, out));
    if (out->every != NULL) qsort(out->every, (size_t)out->tokens, sizeof *out->every, by_place);
    return LS_OK;
}
