#include "train/train.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "tensor/op/pointwise/pointwise.h"
#include "train/checkpoint.h"
#include "train/growth.h"
#include "train/optimizer_ranks.h"
#include "train/train_loop.h"

/* Whether the validation loss has not fallen for so long that training ends. */
static bool is_exhausted(const ls_loop *l) {
    return l->job->validation != NULL && l->settings->patience > 0 &&
           l->best.stale >= l->settings->patience;
}

/* Measures the validation loss where it is due, into the row of this step. Not amid rejections, as
 * with checkpoints. */
static ls_status validate(ls_loop *l, ls_metrics_row *row, bool *better) {
    const ls_train_settings *s = l->settings;
    *better = false;
    if (l->job->validation == NULL || l->step % s->validate_every != 0 || l->guard.in_a_row > 0)
        return LS_OK;
    const double begun = ls_clock();
    LS_TRY(ls_validation_measure(l->job->validation, &row->validation));
    if (l->ranks != NULL) /* unlike machines round differently, and all decide alike */
        LS_TRY(ls_ranks_broadcast(l->ctx, l->ranks, &row->validation, sizeof row->validation));
    row->validated = true;
    *better = ls_best_take(&l->best, l->step, row->validation);
    l->logged_at += ls_clock() - begun; /* what follows is training's speed */
    return LS_OK;
}

static ls_status log_row(ls_loop *l, double rate, double norm, const ls_metrics_row *measured) {
    if (!l->first) return LS_OK;
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
    const double parts = (double)(l->part_end - l->part); /* this process's share of the work */
    double operations = parts * ls_program_flops(l->job->program);
    if (passed > 0) row.tokens_per_second = (double)l->fresh_tokens / passed;
    if (passed > 0 && l->job->peak > 0)
        row.peak_share = (double)l->fresh_steps * operations / passed / l->job->peak;
    row.shared = l->ranks != NULL;
    if (row.shared && passed > 0)
        row.communication = (l->ranks->seconds - l->logged_waits) / passed;
    if (row.shared) l->logged_waits = l->ranks->seconds;
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
static ls_status give_up(ls_loop *l, int64_t count) {
    char path[LS_LOOP_PATH_BYTES];
    ls_ctx *ctx = l->ctx;
    if (!l->first) return LS_FAIL(ctx, LS_EINPUT, "too many steps were rejected");
    LS_TRY(ls_path_join(ctx, path, sizeof path, l->job->folder, "rejected.json"));
    json_t *list = json_array();
    for (int64_t i = 0; i < count; i++) {
        const ls_rejection *r = &l->rejections[i];
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
    const ls_rejection *last = &l->rejections[count - 1];
    return LS_FAIL(ctx, LS_EINPUT,
                   "training ends at step %lld: %s (loss %g, gradient norm %g), %lld rejected in a "
                   "row; %s names the batches",
                   (long long)last->step, ls_guard_reason(last->verdict), last->loss, last->norm,
                   (long long)l->guard.in_a_row, path);
}

/* Back to the last good checkpoint, but not to its data: the same batches would fail again. */
static ls_status roll_back(ls_loop *l) {
    bool found;
    LS_TRY(ls__loop_load(l, false, &found));
    if (!found) return LS_FAIL(l->ctx, LS_EINPUT, "there is no checkpoint to go back to");
    for (int64_t i = 0; l->carried != NULL && i < l->part_end - l->part; i++)
        ls_state_reset(l->carried[i]);
    l->rollbacks++;
    l->first_step = ls_min(l->first_step, l->step);
    ls_say(l->ctx, "back to step %lld, on with batch %lld", (long long)l->step,
           (long long)l->batch);
    return l->first ? ls_metrics_rewind(l->ctx, l->metrics, l->step) : LS_OK;
}

static ls_status handle_rejection(ls_loop *l, ls_guard_verdict verdict, double norm) {
    int64_t count = ls_min(l->guard.in_a_row, LS_LOOP_REJECTIONS);
    l->rejections[count - 1] = (ls_rejection){l->step, l->batch - 1, l->loss, norm, verdict};
    ls_say(l->ctx, "step %lld rejected: %s (loss %g, gradient norm %g)", (long long)l->step,
           ls_guard_reason(verdict), l->loss, norm);
    ls_parameters_clear_gradient(l->job->store);
    if (ls_guard_exhausted(&l->guard)) return give_up(l, count);
    if (l->guard.settings.policy != LS_GUARD_ROLLBACK) return LS_OK;
    /* rejections between accepted steps must not send the run back for ever */
    if (l->rollbacks >= l->guard.settings.rejections) return give_up(l, count);
    return roll_back(l);
}

static ls_status one_step(ls_loop *l) {
    const ls_train_settings *s = l->settings;
    const ls_train_job *job = l->job;
    if (job->fault != NULL)
        job->fault(job->user, LS_TRAIN_BEFORE_RUN, l->step, &l->loss, job->store);
    LS_TRY(ls__loop_compute(l, &l->loss));
    if (job->fault != NULL)
        job->fault(job->user, LS_TRAIN_BEFORE_JUDGE, l->step, &l->loss, job->store);
    double norm;
    LS_TRY(ls_optimizer_norm(l->ctx, l->optimizer, &norm));
    /* the loss jumps, as it should, and what was remembered tells nothing of it */
    if (ls_redraws(job->program, l->step)) ls_guard_forget(&l->guard);
    ls_guard_verdict verdict = ls_guard_judge(&l->guard, l->loss, norm);
    double rate = ls_schedule_rate(&l->schedule, l->step) * l->guard.rate_factor;
    l->step++;
    l->batch++;
    if (verdict == LS_GUARD_ACCEPTED)
        LS_TRY(ls_optimizer_update(l->ctx, l->optimizer, rate, norm, ++l->updates));
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
    if (better) LS_TRY(ls__loop_save_best(l));
    if (verdict != LS_GUARD_ACCEPTED) LS_TRY(handle_rejection(l, verdict, norm));
    /* not amid rejections: a checkpoint is a place from which the run is known to go on */
    bool due = s->checkpoint_every > 0 && l->step % s->checkpoint_every == 0;
    return due && l->guard.in_a_row == 0 && l->step != l->saved_step ? ls__loop_save(l) : LS_OK;
}

/* Bit patterns of an interrupted run and an undisturbed one agree because the loop knows nothing
 * but what a checkpoint stores: see `loop`. */
static ls_status run_steps(ls_loop *l) {
    const ls_train_settings *s = l->settings;
    while (l->step < s->steps && !is_exhausted(l)) {
        /* ranks end together: after the step in which one of them was asked to */
        const unsigned marks = l->ranks == NULL ? ls__loop_marks(l) : l->marks;
        if (marks != 0) {
            if (l->step != l->saved_step) LS_TRY(ls__loop_save(l));
            return LS_FAIL(l->ctx, LS_ESTOP, "stopped after step %lld of %lld%s",
                           (long long)l->step, (long long)s->steps,
                           (marks & LS_LOOP_LATE) != 0 ? ": train.max_minutes are over" : "");
        }
        LS_TRY(one_step(l));
    }
    if (is_exhausted(l))
        ls_say(l->ctx,
               "training ends at step %lld: no validation loss below that of step %lld, %.4f, in "
               "%lld measurements",
               (long long)l->step, (long long)l->best.step, l->best.loss, (long long)l->best.stale);
    return l->step == l->saved_step ? LS_OK : ls__loop_save(l);
}

/* An own rate needs something that has it. */
static ls_status check_rates(const ls_loop *l) {
    const ls_parameters *store = l->job->store;
    if (l->settings->state_lr <= 0) return LS_OK;
    for (size_t i = 0; i < store->count; i++)
        if (store->items[i].init.own_rate) return LS_OK;
    return LS_FAIL(l->ctx, LS_EUSE,
                   "train.state_lr acts on the state spaces of s4, s4d, s5 and h3 and on the "
                   "network of extend=clex: the model has neither");
}

/* All that a run takes beside its model and program. */
static ls_status take_memory(ls_loop *l) {
    const ls_optimizer_settings how = ls_train_optimizer(l->settings);
    LS_TRY(check_rates(l));
    const ls_guard_settings guard = ls_train_guard(l->settings);
    if (l->optimizer == NULL)
        LS_TRY(ls_optimizer_new_among(l->ctx, l->job->store, &how, l->ranks, &l->optimizer));
    ls_guard_init(&l->guard, &guard);
    l->schedule = ls_train_schedule(l->settings);
    return ls__loop_make_batches(l);
}

/* One step as far as memory and traffic go: nothing is computed and nothing is written. */
static ls_status rehearse(ls_loop *l) {
    LS_TRY(take_memory(l));
    LS_TRY(ls__loop_compute(l, &l->loss));
    LS_TRY(ls__optimizer_share_sums(l->ctx, l->optimizer));
    LS_TRY(ls__optimizer_share_weights(l->ctx, l->optimizer));
    return ls__loop_rehearse_save(l);
}

/* Some steps as they would be done, for less than a second where they are short: the time of the
 * fastest, which others on the machine disturbed least. The first, which settles things, counts
 * only where it is long itself. */
static ls_status try_steps(ls_loop *l, double *seconds) {
    enum { STEPS = 32 };
    const double enough = 0.6;
    double all = 0, norm;
    LS_TRY(take_memory(l));
    ls_parameters_clear_gradient(l->job->store);
    for (int64_t done = 0; done <= STEPS && all < enough; done++) {
        const double begun = ls_clock();
        LS_TRY(ls_check_stop(l->ctx, "timing the steps"));
        LS_TRY(ls__loop_compute(l, &l->loss));
        LS_TRY(ls_optimizer_norm(l->ctx, l->optimizer, &norm));
        l->step++;
        l->batch++;
        LS_TRY(ls_optimizer_update(l->ctx, l->optimizer, ls_schedule_rate(&l->schedule, 0), norm,
                                   ++l->updates));
        const double passed = ls_clock() - begun;
        if (done == 0 && passed < enough) continue;
        *seconds = all == 0 ? passed : fmin(*seconds, passed);
        all += passed;
    }
    return LS_OK;
}

/* A run whose weights were last updated some steps ago has not learnt what it was asked to. */
static ls_status check_end(ls_loop *l) {
    if (l->step < l->settings->steps || l->guard.in_a_row == 0) return LS_OK;
    return LS_FAIL(
        l->ctx, LS_EINPUT,
        "%s: the guard rejected the last %lld of %lld steps, so the weights are those of "
        "the step before (see metrics.jsonl; train.guard, train.lr)",
        l->job->folder, (long long)l->guard.in_a_row, (long long)l->settings->steps);
}

/* The folder is rank 0's alone. */
static ls_status open_folder(ls_loop *l, bool *grows) {
    ls_ctx *ctx = l->ctx;
    *grows = false;
    if (!l->first) return LS_OK;
    LS_TRY(ls_folder_make(ctx, l->job->folder));
    LS_TRY(ls_growth_settle(ctx, l->job->folder, l->job->config, l->settings->steps, grows));
    LS_TRY(ls_path_join(ctx, l->checkpoints, LS_LOOP_PATH_BYTES, l->job->folder, "checkpoints"));
    return ls_checkpoint_sweep(ctx, l->checkpoints);
}

static ls_status begin(ls_loop *l) {
    bool found, grows;
    ls_ctx *ctx = l->ctx;
    const size_t length = strlen(l->job->config);
    l->config_hash = ls_hash(l->job->config, length);
    l->rest_hash = ls_checkpoint_rest_hash(l->job->config, length);
    LS_TRY(open_folder(l, &grows));
    LS_TRY(take_memory(l));
    LS_TRY(ls__loop_load(l, true, &found));
    if (grows) LS_TRY(ls_growth_write(ctx, l->job->folder, l->job->config));
    if (found) {
        ls_say(ctx, "going on from step %lld", (long long)l->step);
        /* a crash may have come between a save and what it removes */
        if (l->first)
            LS_TRY(ls_checkpoint_prune(ctx, l->checkpoints, l->step, ls__loop_rollback_schedule(l),
                                       l->settings->keep));
    }
    ls_parameters_clear_gradient(l->job->store);
    return LS_OK;
}

ls_status ls_train_run(ls_ctx *ctx, const ls_train_job *job, ls_train_result *result) {
    const ls_train_source *source = &job->source;
    const int64_t length = job->settings->length;
    ls_loop l = {.ctx = ctx,
                 .job = job,
                 .settings = job->settings,
                 .ranks = job->ranks != NULL && job->ranks->size > 1 ? job->ranks : NULL,
                 .first = job->ranks == NULL || job->ranks->rank == 0,
                 .inputs = source->inputs > 0 ? source->inputs : length,
                 .targets = source->targets > 0 ? source->targets : length,
                 .optimizer = job->optimizer,
                 .saved_step = -1};
    l.started = l.logged_at = ls_clock();
    *result = (ls_train_result){0};
    const bool runs = !ctx->rehearsal && !job->trial;
    ls_status status = runs             ? begin(&l)
                       : ctx->rehearsal ? rehearse(&l)
                                        : try_steps(&l, &result->step_seconds);
    result->step_operations = (double)(ls_train_parts(job->settings) * job->settings->context) *
                              ls_program_flops(job->program);
    result->resumed = l.first_step = l.step;
    const bool over = l.step >= l.settings->steps || is_exhausted(&l);
    if (status == LS_OK && runs && (!over || l.saved_step < 0)) {
        if (l.first)
            status = ls_metrics_open(ctx, job->folder, l.step, l.settings->log_every,
                                     job->validation != NULL, &l.metrics);
        bool needs_start = l.guard.settings.policy == LS_GUARD_ROLLBACK && l.saved_step < 0;
        if (status == LS_OK && needs_start) status = ls__loop_save(&l);
        if (status == LS_OK) status = run_steps(&l);
        ls_status closed = l.first ? ls_metrics_close(ctx, l.metrics) : LS_OK;
        if (status == LS_OK) status = closed;
    }
    if (status == LS_OK && runs) status = check_end(&l);
    if (status == LS_OK && runs && l.ranks != NULL) status = ls_ranks_barrier(ctx, l.ranks);
    result->step = l.step;
    result->tokens = l.tokens;
    result->rejected = l.guard.rejected;
    result->loss = l.loss;
    result->best_step = l.best.step;
    result->best_loss = l.best.loss;
    result->ended_early = is_exhausted(&l);
    ls__loop_free_batches(&l);
    if (job->optimizer == NULL) ls_optimizer_free(ctx, l.optimizer);
    return status;
}
