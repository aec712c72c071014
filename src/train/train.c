#include "train/train.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "train/checkpoint.h"
#include "train/validation.h"

enum { PATH_BYTES = 4096, CONFIG_MAX = 1 << 20, REJECTIONS_MAX = 1000 };

/* A rejected step, for rejected.json. */
typedef struct rejection {
    int64_t step, batch;
    double loss, norm;
    ls_guard_verdict verdict;
} rejection;

/* A whole batch in the caller's memory. */
typedef struct batch_rows {
    int64_t number; /* -1: none yet */
    int32_t *inputs, *targets;
    bool *fresh;
    int64_t tokens, scored;
    bool wrong; /* a token is outside the vocabulary */
} batch_rows;

typedef struct loop {
    ls_ctx *ctx;
    const ls_train_job *job;
    const ls_train_settings *settings;
    int64_t inputs, targets; /* of a row */
    ls_optimizer *optimizer;
    ls_guard guard;
    ls_schedule schedule;
    ls_metrics *metrics;
    ls_state **carried;    /* one per part of the batch; NULL where nothing is carried */
    batch_rows rows[2];    /* this batch and the next, by the parity of their numbers */
    void *reals;           /* what goes in and out of one run: one for each target */
    rejection *rejections; /* those in a row */
    char checkpoints[PATH_BYTES];
    uint64_t config_hash;
    /* where the run is: what a checkpoint stores */
    int64_t step, updates, batch, tokens;
    double seconds; /* up to this call */
    ls_best best;   /* by validation */
    /* since this call began */
    int64_t saved_step, rollbacks;
    double started, loss;
    double auxiliary; /* what is minimised beside the loss, of the last step */
    int64_t first_step;
    /* since the last line of the log */
    int64_t fresh_steps, fresh_tokens;
    double logged_at;
} loop;

/* ---- beginning ---- */

/* The first line in which two texts differ. */
static void first_difference(const char *a, const char *b, char *line_a, char *line_b,
                             size_t bytes) {
    for (;;) {
        size_t m = strcspn(a, "\n"), n = strcspn(b, "\n");
        if (m != n || memcmp(a, b, m) != 0 || a[m] != b[n] || a[m] == '\0') {
            snprintf(line_a, bytes, "%.*s", (int)m, a);
            snprintf(line_b, bytes, "%.*s", (int)n, b);
            return;
        }
        a += m + 1;
        b += n + 1;
    }
}

/* config.yaml is written once; a folder with another one is another run. */
static ls_status settle_config(loop *l) {
    char path[PATH_BYTES];
    size_t length = strlen(l->job->config);
    LS_TRY(ls_path_join(l->ctx, path, sizeof path, l->job->folder, "config.yaml"));
    l->config_hash = ls_hash(l->job->config, length);
    if (!ls_path_exists(path)) return ls_file_write(l->ctx, path, l->job->config, length);
    ls_text stored = {0};
    ls_status status = ls_file_read(l->ctx, path, CONFIG_MAX, &stored);
    if (status == LS_OK &&
        (stored.length != length || memcmp(stored.bytes, l->job->config, length))) {
        char there[160], here[160];
        first_difference(stored.bytes, l->job->config, there, here, sizeof there);
        status =
            LS_FAIL(l->ctx, LS_EUSE,
                    "%s is the run of other settings: there `%s`, here `%s`; use another `out`",
                    l->job->folder, there, here);
    }
    ls_text_clear(l->ctx, &stored);
    return status;
}

static ls_status check_program(loop *l) {
    static const char *const names[] = {"tokens", "targets", "weights", "loss"};
    const ls_train_settings *s = l->settings;
    for (int i = 0; i < 4; i++) {
        const ls_tensor *tensor = ls_program_find(l->job->program, names[i]);
        int64_t each = i == 0 ? l->inputs : l->targets;
        if (tensor == NULL || ls_count(tensor) * s->accumulate != s->batch * each ||
            (i < 2) != (tensor->type == LS_I32))
            return LS_FAIL(l->ctx, LS_EBUG, "the training program has no fitting `%s`", names[i]);
    }
    return LS_OK;
}

static ls_status make_buffers(loop *l) {
    const ls_train_settings *s = l->settings;
    size_t inputs = (size_t)(s->batch * l->inputs), targets = (size_t)(s->batch * l->targets);
    l->rejections = ls_new(l->ctx, REJECTIONS_MAX, sizeof *l->rejections);
    l->reals = ls_new(l->ctx, targets, sizeof(double));
    if (l->reals == NULL || l->rejections == NULL) return LS_ENOMEM;
    for (int i = 0; i < 2; i++) {
        batch_rows *rows = &l->rows[i];
        *rows = (batch_rows){.number = -1};
        rows->inputs = ls_new(l->ctx, inputs, sizeof *rows->inputs);
        rows->targets = ls_new(l->ctx, targets, sizeof *rows->targets);
        rows->fresh = ls_new(l->ctx, (size_t)s->batch, sizeof *rows->fresh);
        if (rows->inputs == NULL || rows->targets == NULL || rows->fresh == NULL) return LS_ENOMEM;
    }
    if (!ls_program_about(l->job->program)->streaming) return LS_OK;
    l->carried = ls_new(l->ctx, (size_t)s->accumulate, sizeof(ls_state *));
    if (l->carried == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < s->accumulate; i++)
        LS_TRY(ls_state_new(l->job->program, &l->carried[i]));
    return LS_OK;
}

static void free_buffers(loop *l) {
    for (int i = 0; i < 2; i++) {
        ls_free(l->ctx, l->rows[i].inputs);
        ls_free(l->ctx, l->rows[i].targets);
        ls_free(l->ctx, l->rows[i].fresh);
    }
    ls_free(l->ctx, l->reals);
    ls_free(l->ctx, l->rejections);
    for (int64_t i = 0; l->carried != NULL && i < l->settings->accumulate; i++)
        if (l->carried[i] != NULL) ls_state_free(l->ctx, l->carried[i]);
    ls_free(l->ctx, l->carried);
    ls_optimizer_free(l->ctx, l->optimizer);
}

/* ---- checkpoints ---- */

typedef struct memory_file {
    ls_ctx *ctx;
    FILE *file;
    const char *path;
} memory_file;

static ls_status put_bytes(void *user, const void *bytes, size_t length) {
    const memory_file *to = user;
    return ls_file_put(to->ctx, to->file, to->path, bytes, length);
}

/* Each carried state after its length, eight bytes little-endian. */
static ls_status put_memory(void *user, FILE *file, const char *path) {
    loop *l = user;
    memory_file to = {l->ctx, file, path};
    for (int64_t i = 0; i < l->settings->accumulate; i++) {
        const uint64_t length = ls_state_length(l->carried[i]);
        uint8_t bytes[8];
        for (int b = 0; b < 8; b++) bytes[b] = (uint8_t)(length >> 8 * b);
        LS_TRY(put_bytes(&to, bytes, sizeof bytes));
        LS_TRY(ls_state_put(l->ctx, l->carried[i], put_bytes, &to));
    }
    return LS_OK;
}

static ls_status unpack_memory(loop *l, const ls_map *from) {
    ls_reader in = {from->bytes, from->length};
    for (int64_t i = 0; l->carried != NULL && i < l->settings->accumulate; i++) {
        uint64_t length;
        const uint8_t *bytes;
        if (!ls_reader_u64(&in, &length) || !ls_reader_take(&in, (size_t)length, &bytes))
            return LS_FAIL(l->ctx, LS_EINPUT, "%s: the carried memories end too early",
                           l->checkpoints);
        LS_TRY(ls_state_load(l->ctx, l->carried[i], bytes, (size_t)length));
    }
    if (in.left != 0)
        return LS_FAIL(l->ctx, LS_EINPUT, "%s: the carried memories are those of another run",
                       l->checkpoints);
    return LS_OK;
}

/* What a rollback goes back to are the checkpoints of the schedule alone, also the one of step 0:
 * one that was made because the run was stopped would make it another run. 0: it never does. */
static int64_t rollback_schedule(const loop *l) {
    if (l->guard.settings.policy != LS_GUARD_ROLLBACK) return 0;
    return l->settings->checkpoint_every > 0 ? l->settings->checkpoint_every : INT64_MAX;
}

/* The state of this moment; clear *out in any case. */
static ls_status describe(loop *l, ls_checkpoint *out) {
    json_t *guard = NULL, *state;
    char identity[17];
    snprintf(identity, sizeof identity, "%016llx", (unsigned long long)l->job->source.identity);
    *out = (ls_checkpoint){
        .step = l->step, .config_hash = l->config_hash, .every = rollback_schedule(l)};
    LS_TRY(ls_guard_save(l->ctx, &l->guard, &guard));
    state = json_pack(
        "{s:I,s:I,s:I,s:I,s:I,s:s,s:I,s:f,s:o}", "rollbacks", (json_int_t)l->rollbacks, "step",
        (json_int_t)l->step, "updates", (json_int_t)l->updates, "batch", (json_int_t)l->batch,
        "tokens", (json_int_t)l->tokens, "data", identity, "seed", (json_int_t)l->settings->seed,
        "seconds", l->seconds + ls_clock() - l->started, "guard", guard);
    out->state = state;
    if (state == NULL || (l->job->validation != NULL &&
                          json_object_set_new(state, "validation", ls_best_save(&l->best)) != 0))
        return LS_FAIL(l->ctx, LS_ENOMEM, "no memory for the state");
    if (l->carried != NULL) {
        out->put_memory = put_memory;
        out->user = l;
    }
    return LS_OK;
}

static ls_status save(loop *l) {
    const int64_t every = rollback_schedule(l);
    ls_checkpoint checkpoint;
    if (every == 0 || l->step % every == 0) l->rollbacks = 0;
    if (l->metrics != NULL) LS_TRY(ls_metrics_sync(l->ctx, l->metrics));
    ls_status status = describe(l, &checkpoint);
    if (status == LS_OK)
        status = ls_checkpoint_save(l->ctx, l->checkpoints, &checkpoint, l->optimizer,
                                    l->settings->keep);
    ls_checkpoint_clear(&checkpoint);
    LS_TRY(status);
    l->saved_step = l->step;
    return LS_OK;
}

static ls_status save_best(loop *l) {
    ls_checkpoint checkpoint;
    ls_status status = describe(l, &checkpoint);
    if (status == LS_OK)
        status = ls_checkpoint_save_best(l->ctx, l->checkpoints, &checkpoint, l->optimizer);
    ls_checkpoint_clear(&checkpoint);
    return status;
}

/* Step, updates and tokens; with `all` also what a rollback leaves as it is. */
static ls_status restore(loop *l, const ls_checkpoint *checkpoint, bool all) {
    const char *what = l->checkpoints, *identity;
    /* what is counted in batches, rows or tokens stays countable */
    const int64_t count_max = INT64_MAX / 4;
    const int64_t batch_max = count_max / ls_max(1, l->settings->batch * l->inputs);
    const json_t *state = checkpoint->state;
    ls_ctx *ctx = l->ctx;
    char expected[17];
    LS_TRY(ls_json_int(ctx, state, "step", what, checkpoint->step, checkpoint->step, &l->step));
    LS_TRY(ls_json_int(ctx, state, "updates", what, 0, l->step, &l->updates));
    LS_TRY(ls_json_int(ctx, state, "tokens", what, 0, count_max, &l->tokens));
    l->saved_step = l->step;
    if (!all) return LS_OK;
    if (checkpoint->config_hash != l->config_hash)
        return LS_FAIL(ctx, LS_EUSE, "%s: the checkpoint is that of other settings", what);
    LS_TRY(ls_json_text(ctx, state, "data", what, &identity));
    snprintf(expected, sizeof expected, "%016llx", (unsigned long long)l->job->source.identity);
    if (strcmp(identity, expected) != 0)
        return LS_FAIL(ctx, LS_EUSE, "%s: the data are others than those the run began with",
                       l->job->folder);
    LS_TRY(ls_json_int(ctx, state, "batch", what, l->step, batch_max, &l->batch));
    LS_TRY(ls_json_real(ctx, state, "seconds", what, 0, (double)count_max, &l->seconds));
    LS_TRY(ls_guard_load(ctx, json_object_get(state, "guard"), what, &l->guard));
    if (json_object_get(state, "rollbacks") != NULL) /* older versions did not keep it */
        LS_TRY(ls_json_int(ctx, state, "rollbacks", what, 0, count_max, &l->rollbacks));
    if (l->job->validation != NULL)
        LS_TRY(ls_best_load(ctx, json_object_get(state, "validation"), what, l->batch, &l->best));
    return unpack_memory(l, &checkpoint->memory);
}

static ls_status load(loop *l, bool all, bool *found) {
    ls_checkpoint checkpoint;
    LS_TRY(all ? ls_checkpoint_load(l->ctx, l->checkpoints, l->optimizer, &checkpoint, found)
               : ls_checkpoint_load_scheduled(l->ctx, l->checkpoints, rollback_schedule(l),
                                              l->optimizer, &checkpoint, found));
    ls_status status = *found ? restore(l, &checkpoint, all) : LS_OK;
    ls_checkpoint_clear(&checkpoint);
    return status;
}

/* ---- one step ---- */

/* One batch as the source gave it. */
static void fetch_batch(loop *l, batch_rows *rows, int64_t number) {
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
    rows->number = number;
}

static void put_weights(loop *l, const ls_tensor *tensor, const int32_t *targets, double each) {
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        double weight = targets[i] < 0 ? 0 : each;
        if (tensor->type == LS_F64)
            ((double *)l->reals)[i] = weight;
        else
            ((float *)l->reals)[i] = (float)weight;
    }
    ls_tensor_put(l->job->program, tensor, l->reals);
}

static ls_status weighted_loss(loop *l, const ls_tensor *loss, const int32_t *targets, double each,
                               double *sum) {
    LS_TRY(ls_tensor_get(l->job->program, loss, l->reals));
    double all = 0;
    for (int64_t i = 0; i < ls_count(loss); i++)
        if (targets[i] >= 0)
            all += loss->type == LS_F64 ? ((const double *)l->reals)[i]
                                        : (double)((const float *)l->reals)[i];
    *sum += all * each;
    return LS_OK;
}

/* Before a run: a row's state starts anew where the row is fresh, and where it has reached its
 * capacity. Unless the program has resets, all rows of a part do so together. */
static ls_status settle_state(loop *l, bool *all_fresh, int64_t part, int64_t rows) {
    enum { POSITION_MAX = 1 << 30 }; /* what 32 bits hold, by far */
    ls_state *state = l->carried[part];
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

/* Gradients and the mean loss of the whole batch. */
static ls_status compute(loop *l, double *loss) {
    const ls_train_settings *s = l->settings;
    ls_program *program = l->job->program;
    const ls_tensor *tokens = ls_program_find(program, "tokens");
    const ls_tensor *targets = ls_program_find(program, "targets");
    const ls_tensor *weights = ls_program_find(program, "weights");
    const ls_tensor *losses = ls_program_find(program, "loss");
    int64_t rows = s->batch / s->accumulate;
    batch_rows *now = &l->rows[l->batch % 2];
    fetch_batch(l, now, l->batch);
    if (l->job->source.status != NULL) LS_TRY(l->job->source.status(l->ctx, l->job->source.user));
    if (now->wrong)
        return LS_FAIL(l->ctx, LS_EINPUT, "batch %lld has a token outside the vocabulary",
                       (long long)l->batch);
    double each = now->scored > 0 ? 1 / (double)now->scored : 0;
    *loss = l->auxiliary = 0;
    for (int64_t part = 0; part < s->accumulate; part++) {
        const int32_t *wanted = now->targets + part * rows * l->targets;
        ls_tensor_put(program, tokens, now->inputs + part * rows * l->inputs);
        ls_tensor_put(program, targets, wanted);
        put_weights(l, weights, wanted, each);
        if (l->carried != NULL) LS_TRY(settle_state(l, now->fresh, part, rows));
        LS_TRY(ls_program_run(program, l->carried == NULL ? NULL : l->carried[part],
                              (uint64_t)s->seed, (uint32_t)(l->step * s->accumulate + part)));
        /* a device is at work now: the next batch is made meanwhile */
        if (part == s->accumulate - 1 && l->step + 1 < s->steps)
            fetch_batch(l, &l->rows[(l->batch + 1) % 2], l->batch + 1);
        LS_TRY(weighted_loss(l, losses, wanted, each, loss));
        double more;
        LS_TRY(ls_program_auxiliary(program, &more));
        l->auxiliary += more;
    }
    l->tokens += now->tokens;
    l->fresh_tokens += now->tokens;
    l->fresh_steps++;
    return LS_OK;
}

/* Whether the validation loss has not fallen for so long that training ends. */
static bool is_exhausted(const loop *l) {
    return l->job->validation != NULL && l->settings->patience > 0 &&
           l->best.stale >= l->settings->patience;
}

/* Measures the validation loss where it is due, into the row of this step. Not amid rejections, as
 * with checkpoints. */
static ls_status validate(loop *l, ls_metrics_row *row, bool *better) {
    const ls_train_settings *s = l->settings;
    *better = false;
    if (l->job->validation == NULL || l->step % s->validate_every != 0 || l->guard.in_a_row > 0)
        return LS_OK;
    const double begun = ls_clock();
    LS_TRY(ls_validation_measure(l->job->validation, &row->validation));
    row->validated = true;
    *better = ls_best_take(&l->best, l->step, row->validation);
    l->logged_at += ls_clock() - begun; /* what follows is training's speed */
    return LS_OK;
}

static ls_status log_row(loop *l, double rate, double norm, const ls_metrics_row *measured) {
    double now = ls_clock(), passed = now - l->logged_at;
    ls_metrics_row row = {.step = l->step,
                          .loss = l->loss,
                          .rate = rate,
                          .norm = norm,
                          .auxiliary = l->auxiliary,
                          .tokens = l->tokens,
                          .rejected = l->guard.rejected,
                          .seconds = l->seconds + now - l->started,
                          .validated = measured->validated,
                          .validation = measured->validation};
    double operations = (double)l->settings->accumulate * ls_program_flops(l->job->program);
    if (passed > 0) row.tokens_per_second = (double)l->fresh_tokens / passed;
    if (passed > 0 && l->job->peak > 0)
        row.peak_share = (double)l->fresh_steps * operations / passed / l->job->peak;
    l->logged_at = now;
    l->fresh_tokens = l->fresh_steps = 0;
    LS_TRY(ls_metrics_add(l->ctx, l->metrics, &row));
    if (l->job->progress == NULL) return LS_OK;
    char line[256];
    double per_step = (now - l->started) / (double)ls_max(l->step - l->first_step, 1);
    ls_metrics_line(&row, l->settings->steps, per_step * (double)(l->settings->steps - l->step),
                    line, sizeof line);
    l->job->progress(l->job->user, &row, line);
    return LS_OK;
}

static json_t *finite_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* Names the batches that were rejected in a row; a batch's number is enough to make it again. */
static ls_status give_up(loop *l, int64_t count) {
    char path[PATH_BYTES];
    ls_ctx *ctx = l->ctx;
    LS_TRY(ls_path_join(ctx, path, sizeof path, l->job->folder, "rejected.json"));
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        const rejection *r = &l->rejections[i];
        json_array_append_new(
            list, json_pack("{s:I,s:I,s:I,s:s,s:o,s:o}", "step", (json_int_t)r->step, "batch",
                            (json_int_t)r->batch, "rows", (json_int_t)l->settings->batch, "reason",
                            ls_guard_reason(r->verdict), "loss", finite_json(r->loss), "grad_norm",
                            finite_json(r->norm)));
    }
    if (list == NULL || json_array_size(list) != (size_t)count) {
        json_decref(list);
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    }
    ls_status status = ls_json_write(ctx, path, list);
    json_decref(list);
    LS_TRY(status);
    const rejection *last = &l->rejections[count - 1];
    return LS_FAIL(ctx, LS_EINPUT,
                   "training ends at step %lld: %s (loss %g, gradient norm %g), %lld rejected in a "
                   "row; %s names the batches",
                   (long long)last->step, ls_guard_reason(last->verdict), last->loss, last->norm,
                   (long long)l->guard.in_a_row, path);
}

/* Back to the last good checkpoint, but not to its data: the same batches would fail again. */
static ls_status roll_back(loop *l) {
    bool found;
    LS_TRY(load(l, false, &found));
    if (!found) return LS_FAIL(l->ctx, LS_EINPUT, "there is no checkpoint to go back to");
    for (int64_t i = 0; l->carried != NULL && i < l->settings->accumulate; i++)
        ls_state_reset(l->carried[i]);
    l->rollbacks++;
    l->first_step = ls_min(l->first_step, l->step);
    ls_say(l->ctx, "back to step %lld, on with batch %lld", (long long)l->step,
           (long long)l->batch);
    return ls_metrics_rewind(l->ctx, l->metrics, l->step);
}

static ls_status handle_rejection(loop *l, ls_guard_verdict verdict, double norm) {
    int64_t count = ls_min(l->guard.in_a_row, REJECTIONS_MAX);
    l->rejections[count - 1] = (rejection){l->step, l->batch - 1, l->loss, norm, verdict};
    ls_say(l->ctx, "step %lld rejected: %s (loss %g, gradient norm %g)", (long long)l->step,
           ls_guard_reason(verdict), l->loss, norm);
    ls_parameters_clear_gradient(l->job->store);
    if (ls_guard_exhausted(&l->guard)) return give_up(l, count);
    if (l->guard.settings.policy != LS_GUARD_ROLLBACK) return LS_OK;
    /* rejections between accepted steps must not send the run back for ever */
    if (l->rollbacks >= l->guard.settings.rejections) return give_up(l, count);
    return roll_back(l);
}

static ls_status one_step(loop *l) {
    const ls_train_settings *s = l->settings;
    const ls_train_job *job = l->job;
    if (job->fault != NULL)
        job->fault(job->user, LS_TRAIN_BEFORE_RUN, l->step, &l->loss, job->store);
    LS_TRY(compute(l, &l->loss));
    if (job->fault != NULL)
        job->fault(job->user, LS_TRAIN_BEFORE_JUDGE, l->step, &l->loss, job->store);
    double norm;
    LS_TRY(ls_optimizer_norm(l->ctx, l->optimizer, &norm));
    ls_guard_verdict verdict = ls_guard_judge(&l->guard, l->loss, norm);
    double rate = ls_schedule_rate(&l->schedule, l->step) * l->guard.rate_factor;
    l->step++;
    l->batch++;
    if (verdict == LS_GUARD_ACCEPTED)
        ls_optimizer_update(l->ctx, l->optimizer, rate, norm, ++l->updates);
    if (job->step != NULL) {
        const ls_train_step about = {.step = l->step,
                                     .steps = s->steps,
                                     .tokens = l->tokens,
                                     .loss = l->loss,
                                     .rate = rate,
                                     .norm = norm,
                                     .accepted = verdict == LS_GUARD_ACCEPTED};
        job->step(job->user, &about);
    }
    ls_metrics_row measured = {0};
    bool better;
    LS_TRY(validate(l, &measured, &better));
    if (l->step % s->log_every == 0 || l->step == s->steps || measured.validated ||
        verdict != LS_GUARD_ACCEPTED)
        LS_TRY(log_row(l, rate, norm, &measured));
    if (better) LS_TRY(save_best(l));
    if (verdict != LS_GUARD_ACCEPTED) LS_TRY(handle_rejection(l, verdict, norm));
    /* not amid rejections: a checkpoint is a place from which the run is known to go on */
    bool due = s->checkpoint_every > 0 && l->step % s->checkpoint_every == 0;
    return due && l->guard.in_a_row == 0 && l->step != l->saved_step ? save(l) : LS_OK;
}

/* Bit patterns of an interrupted run and an undisturbed one agree because the loop knows nothing
 * but what a checkpoint stores: see `loop`. */
static ls_status run_steps(loop *l) {
    const ls_train_settings *s = l->settings;
    while (l->step < s->steps && !is_exhausted(l)) {
        bool late = s->max_minutes > 0 && ls_clock() - l->started >= 60 * s->max_minutes;
        if (late || (l->job->stop != NULL && *l->job->stop != 0)) {
            if (l->step != l->saved_step) LS_TRY(save(l));
            return LS_FAIL(l->ctx, LS_ESTOP, "stopped after step %lld of %lld%s",
                           (long long)l->step, (long long)s->steps,
                           late ? ": train.max_minutes are over" : "");
        }
        LS_TRY(one_step(l));
    }
    if (is_exhausted(l))
        ls_say(l->ctx,
               "training ends at step %lld: no validation loss below that of step %lld, %.4f, in "
               "%lld measurements",
               (long long)l->step, (long long)l->best.step, l->best.loss, (long long)l->best.stale);
    return l->step == l->saved_step ? LS_OK : save(l);
}

/* All that a run takes beside its model and program. */
static ls_status take_memory(loop *l) {
    const ls_optimizer_settings how = ls_train_optimizer(l->settings);
    const ls_guard_settings guard = ls_train_guard(l->settings);
    LS_TRY(check_program(l));
    LS_TRY(ls_optimizer_new(l->ctx, l->job->store, &how, &l->optimizer));
    ls_guard_init(&l->guard, &guard);
    l->schedule = ls_train_schedule(l->settings);
    return make_buffers(l);
}

/* One batch as far as memory goes: nothing is computed and nothing is written. */
static ls_status rehearse(loop *l) {
    LS_TRY(take_memory(l));
    return compute(l, &l->loss);
}

/* A run whose weights were last updated some steps ago has not learnt what it was asked to. */
static ls_status check_end(loop *l) {
    if (l->step < l->settings->steps || l->guard.in_a_row == 0) return LS_OK;
    return LS_FAIL(
        l->ctx, LS_EINPUT,
        "%s: the guard rejected the last %lld of %lld steps, so the weights are those of "
        "the step before (see metrics.jsonl; train.guard, train.lr)",
        l->job->folder, (long long)l->guard.in_a_row, (long long)l->settings->steps);
}

static ls_status begin(loop *l) {
    bool found;
    ls_ctx *ctx = l->ctx;
    LS_TRY(ls_folder_make(ctx, l->job->folder));
    LS_TRY(settle_config(l));
    LS_TRY(ls_path_join(ctx, l->checkpoints, PATH_BYTES, l->job->folder, "checkpoints"));
    LS_TRY(ls_checkpoint_sweep(ctx, l->checkpoints));
    LS_TRY(take_memory(l));
    LS_TRY(load(l, true, &found));
    if (found) {
        ls_say(ctx, "going on from step %lld", (long long)l->step);
        /* a crash may have come between a save and what it removes */
        LS_TRY(ls_checkpoint_prune(ctx, l->checkpoints, l->step, rollback_schedule(l),
                                   l->settings->keep));
    }
    ls_parameters_clear_gradient(l->job->store);
    return LS_OK;
}

ls_status ls_train_run(ls_ctx *ctx, const ls_train_job *job, ls_train_result *result) {
    const ls_train_source *source = &job->source;
    const int64_t length = job->settings->length;
    loop l = {.ctx = ctx,
              .job = job,
              .settings = job->settings,
              .inputs = source->inputs > 0 ? source->inputs : length,
              .targets = source->targets > 0 ? source->targets : length,
              .saved_step = -1};
    l.started = l.logged_at = ls_clock();
    *result = (ls_train_result){0};
    ls_status status = ctx->rehearsal ? rehearse(&l) : begin(&l);
    result->resumed = l.first_step = l.step;
    const bool over = l.step >= l.settings->steps || is_exhausted(&l);
    if (status == LS_OK && !ctx->rehearsal && (!over || l.saved_step < 0)) {
        status = ls_metrics_open(ctx, job->folder, l.step, l.settings->log_every,
                                 job->validation != NULL, &l.metrics);
        bool needs_start = l.guard.settings.policy == LS_GUARD_ROLLBACK && l.saved_step < 0;
        if (status == LS_OK && needs_start) status = save(&l);
        if (status == LS_OK) status = run_steps(&l);
        ls_status closed = ls_metrics_close(ctx, l.metrics);
        if (status == LS_OK) status = closed;
    }
    if (status == LS_OK) status = check_end(&l);
    result->step = l.step;
    result->tokens = l.tokens;
    result->rejected = l.guard.rejected;
    result->loss = l.loss;
    result->best_step = l.best.step;
    result->best_loss = l.best.loss;
    result->ended_early = is_exhausted(&l);
    free_buffers(&l);
    return status;
}
