/* Windows that are read whole: masked language models, which see both sides of a token, and
 * encoders with decoders, which read the first half and go on with the second.
 *
 * A masked token is found from the others. Every mask_every-th token of a window is masked at once,
 * and the window read that many times, so that each token is scored once. With one token at a time
 * the sum is the pseudo-log-likelihood of Salazar et al. 2020 (arXiv 1910.14659). */
#include "base/clock.h"
#include "eval/score.h"
#include "eval/shared.h"

typedef struct whole {
    const ls_scoring *how;
    int64_t batch, longest; /* rows; text tokens of the longest window */
    int32_t *text;          /* [longest] */
    int32_t *inputs, *targets;
    double *loss;
    ls_program *program;
    int64_t source, length; /* of that program */
    size_t memory;
    ls_shared shared;
} whole;

static int64_t frame_tokens(const ls_frame *frame) {
    return frame->before_count + frame->after_count;
}

static ls_status init(const ls_scoring *how, const ls_windows *windows, whole *w) {
    ls_ctx *ctx = how->model->ctx;
    *w = (whole){.how = how,
                 .batch = ls_eval_batch(how->batch, windows->longest, (int64_t)windows->count),
                 .longest = windows->longest,
                 .shared = ls_shared_of(ctx, how->hooks->ranks, 1)};
    const size_t cells = (size_t)(w->batch * (w->longest + frame_tokens(&how->frame)));
    w->text = ls_new(ctx, (size_t)w->longest, sizeof *w->text);
    w->inputs = ls_new(ctx, cells, sizeof *w->inputs);
    w->targets = ls_new(ctx, cells, sizeof *w->targets);
    w->loss = ls_new(ctx, cells, sizeof *w->loss);
    return w->text == NULL || w->inputs == NULL || w->targets == NULL || w->loss == NULL ? LS_ENOMEM
                                                                                         : LS_OK;
}

static void clear(ls_ctx *ctx, whole *w) {
    ls_shared_clear(&w->shared);
    ls_program_free(w->program);
    ls_free(ctx, w->text);
    ls_free(ctx, w->inputs);
    ls_free(ctx, w->targets);
    ls_free(ctx, w->loss);
}

/* The program for rows of `length` tokens behind a source. */
static ls_status settle_program(whole *w, int64_t source, int64_t length) {
    if (w->program != NULL && w->source == source && w->length == length) return LS_OK;
    ls_program_free(w->program);
    w->program = NULL;
    const ls_recording about = {.use = LS_MODEL_LOSS, .source = source};
    const ls_program_options options = {.batch = w->batch, .length = length};
    LS_TRY(ls_model_record(w->how->model, &about, options, &w->program));
    w->source = source;
    w->length = length;
    w->memory = (size_t)ls_max((int64_t)w->memory, (int64_t)ls_program_bytes(w->program));
    return LS_OK;
}

/* The losses of all targets, [batch, length]. */
static ls_status run_program(whole *w) {
    ls_model *model = w->how->model;
    LS_TRY(ls_eval_check_stop(model->ctx, w->how->hooks->stop, w->how->length));
    if (ls_shared_computes(&w->shared)) {
        LS_TRY(ls_model_put_tokens(model, w->program, "tokens", w->inputs));
        LS_TRY(ls_model_put_tokens(model, w->program, "targets", w->targets));
        LS_TRY(ls_program_run(w->program, NULL, 0, 0));
        LS_TRY(ls_model_read(w->program, "loss", w->loss));
    }
    return ls_shared_losses(&w->shared, w->targets, w->loss, w->batch * w->length);
}

/* ---- masked ---- */

/* A row of T: the frame and the window with every `each`-th token masked, from `pass` on. */
static void fill_masked(const whole *w, const ls_window *window, int64_t each, int64_t pass,
                        int64_t T, int32_t *inputs, int32_t *targets) {
    const ls_frame *frame = &w->how->frame;
    const int32_t mask = (int32_t)w->how->model->config->model.mask_token;
    int64_t at = 0;
    for (int64_t t = 0; t < T; t++) targets[t] = -1;
    if (window != NULL) {
        ls_token_file_read(w->how->file, window->begin + 1, window->length, w->text);
        for (int64_t i = 0; i < frame->before_count; i++) inputs[at++] = frame->before[i];
        for (int64_t i = 0; i < window->length; i++, at++) {
            const bool masked = i >= window->skip && i % each == pass;
            inputs[at] = masked ? mask : w->text[i];
            if (masked) targets[at] = w->text[i];
        }
        for (int64_t i = 0; i < frame->after_count; i++) inputs[at++] = frame->after[i];
    }
    while (at < T) inputs[at++] = -1;
}

static ls_status score_masked(whole *w, const ls_window *windows, int64_t rows, double *sums,
                              ls_scores *out) {
    const ls_scoring *how = w->how;
    const int64_t T = windows[0].length + frame_tokens(&how->frame);
    const int64_t each = how->mask_every > 0 ? how->mask_every : windows[0].length;
    LS_TRY(settle_program(w, 0, T));
    for (int64_t pass = 0; pass < ls_min(each, windows[0].length); pass++) {
        for (int64_t r = 0; r < w->batch; r++)
            fill_masked(w, r < rows ? &windows[r] : NULL, each, pass, T, w->inputs + r * T,
                        w->targets + r * T);
        LS_TRY(run_program(w));
        for (int64_t r = 0; r < rows; r++) {
            const int64_t first = r * T + how->frame.before_count;
            ls_score_row(how, &windows[r], 0, windows[r].length, w->targets + first,
                         w->loss + first, &sums[r], out);
        }
    }
    return LS_OK;
}

/* ---- continued ---- */

/* A row: the first half of a window as a source, and what follows; padding behind both. */
static void fill_continued(const whole *w, const ls_window *window, int32_t *inputs,
                           int32_t *targets) {
    const int64_t S = w->source, R = w->length;
    for (int64_t i = 0; i < S + R; i++) inputs[i] = -1;
    for (int64_t i = 0; i < R; i++) targets[i] = -1;
    if (window == NULL || window->length < 2) return;
    const int64_t source = ls_objective_source(window->length), rest = window->length - source;
    ls_token_file_read(w->how->file, window->begin + 1, window->length, w->text);
    ls_objective_cut(w->how->model->config, w->text, window->length, inputs, targets);
    for (int64_t i = rest - 1; i >= 0; i--) inputs[S + i] = inputs[source + i];
    for (int64_t i = source; i < S; i++) inputs[i] = -1;
    for (int64_t i = 0; i < rest && source + i < window->skip; i++) targets[i] = -1;
}

static ls_status score_continued(whole *w, const ls_window *windows, int64_t rows, double *sums,
                                 ls_scores *out) {
    const int64_t source = ls_max(ls_objective_source(windows[0].length), 1);
    LS_TRY(settle_program(w, source, ls_max(windows[0].length - source, 1)));
    for (int64_t r = 0; r < w->batch; r++)
        fill_continued(w, r < rows ? &windows[r] : NULL, w->inputs + r * (source + w->length),
                       w->targets + r * w->length);
    LS_TRY(run_program(w));
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first = ls_objective_source(windows[r].length);
        ls_score_row(w->how, &windows[r], first, windows[r].length - first,
                     w->targets + r * w->length, w->loss + r * w->length, &sums[r], out);
    }
    return LS_OK;
}

/* ---- all ---- */

static ls_status score_batch(whole *w, const ls_window *windows, int64_t rows, double *sums,
                             ls_scores *out) {
    const int64_t before = out->tokens;
    for (int64_t r = 0; r < rows; r++) sums[r] = 0;
    LS_TRY(w->how->objective == LS_OBJECTIVE_MASKED ? score_masked(w, windows, rows, sums, out)
                                                    : score_continued(w, windows, rows, sums, out));
    if (out->tokens == before) return LS_OK;
    for (int64_t r = 0; r < rows; r++) {
        const int64_t first =
            w->how->objective == LS_OBJECTIVE_MASKED ? 0 : ls_objective_source(windows[r].length);
        const int64_t scored = windows[r].length - ls_max(windows[r].skip, first);
        out->loss += sums[r];
        if (scored > 0) out->window_means += sums[r] / (double)scored;
    }
    return LS_OK;
}

ls_status ls_score_whole(const ls_scoring *how, const ls_windows *windows, ls_scores *out) {
    ls_ctx *ctx = how->model->ctx;
    const int64_t count = (int64_t)windows->count;
    const double start = ls_clock();
    whole w = {0};
    double *sums = NULL;
    ls_status status;
    LS_TRY_GOTO(init(how, windows, &w));
    sums = ls_new(ctx, (size_t)w.batch, sizeof *sums);
    status = sums == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t at = 0; status == LS_OK && at < count; at += w.batch) {
        if (how->hooks->progress != NULL)
            how->hooks->progress(how->hooks->user, how->what, how->length,
                                 (double)at / (double)count);
        bool wanted = false;
        status = ls_shared_begin(&w.shared, at / w.batch, w.batch * w.longest, &wanted);
        if (!wanted) continue;
        if (status == LS_OK)
            status = score_batch(&w, windows->at + at, ls_min(w.batch, count - at), sums, out);
        if (status == LS_OK) status = ls_shared_end(&w.shared);
    }
    const bool first = how->hooks->ranks == NULL || how->hooks->ranks->rank == 0;
    if (status == LS_OK && out->tokens == 0 && first)
        status = LS_FAIL(ctx, LS_EUSE,
                         "windows of %lld tokens have nothing behind the half that is read: give a "
                         "larger length",
                         (long long)how->length);
    out->seconds = ls_clock() - start;
    out->memory = ls_eval_weight_bytes(how->model) + w.memory;
fail:
    clear(ctx, &w);
    ls_free(ctx, sums);
    return status;
}
