/* What every arm would cost. Memory is not estimated: each job is prepared as it would run, in a
 * context whose memory costs nothing and whose programs do not compute (ls_ctx.rehearsal), and what
 * it took is counted. Then some steps of each training are done and timed, if they are small. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/meter.h"
#include "eval/evaluation.h"
#include "study/study.h"
#include "tensor/engine/machine.h"
#include "train/task_keys.h"
#include "train/training.h"

typedef struct cost {
    int64_t parameters, tokens, longest;
    size_t train_bytes, test_bytes; /* at most at one time; 0: not known */
    double operations;              /* of a step */
    double seconds;                 /* of a training; 0: not known */
} cost;

typedef struct rehearsal {
    const ls_study *study;
    const ls_study_arm *arm;
    ls_settings config; /* what the run's config.yaml would say */
    char
        tokenizer[LS_OPTION_TEXT_BYTES]; /* where that of the run can be loaded from; empty: none */
    cost cost;
} rehearsal;

static ls_status copy_settings(ls_ctx *ctx, const ls_settings *from, ls_settings *to) {
    for (size_t i = 0; i < from->count; i++)
        if (!from->items[i].optional) LS_TRY(ls_settings_copy(ctx, to, &from->items[i]));
    return LS_OK;
}

/* An error in the copy of a context is one of the context. */
static ls_status pass_on(ls_ctx *ctx, const ls_ctx *copy, ls_status status) {
    if (status != LS_OK && ctx->error.code == LS_OK) ctx->error = copy->error;
    return status;
}

/* Of the arm's training; with the run that it goes on from, which need not be there yet. */
static ls_status training_settings(const rehearsal *r, ls_ctx *ctx, ls_settings *out) {
    const int64_t own = r->arm->parent;
    const int64_t base = own < 0 ? r->arm->begins : r->study->arms[own].begins;
    char from[LS_STUDY_PATH_BYTES];
    LS_TRY(copy_settings(ctx, &r->arm->training, out));
    if (base < 0) return LS_OK;
    LS_TRY(ls_study_folder(r->study, (size_t)base, r->arm->seeds.at[0], from, sizeof from));
    return ls_settings_put(ctx, out, "train.from", from);
}

static ls_status train(rehearsal *r, ls_ctx *ctx, ls_settings *settings, ls_training *training) {
    const ls_training_hooks hooks = {0};
    const ls_training_request request = {.settings = settings,
                                         .folder = "rehearsal",
                                         .cache = r->study->from.cache,
                                         .seed = r->arm->seeds.at[0],
                                         .paths = r->study->keys.out};
    ls_train_result result;
    LS_TRY(training_settings(r, ctx, settings));
    LS_TRY(ls_training_read(ctx, &request, training));
    LS_TRY(ls_training_run(training, &hooks, &result));
    const ls_train_settings *train = &training->settings.train;
    r->cost.tokens = train->steps * train->batch * train->length;
    r->cost.operations = result.step_operations;
    return LS_OK;
}

/* A few steps as a job would do them, on the processor alone. What would take long or much memory
 * is not tried: who asks for the cost wants it soon, and perhaps on another machine. */
static ls_status time_training(rehearsal *r) {
    const double operations_max = 2e12;
    const ls_training_hooks hooks = {.trial = true};
    ls_ctx quiet = *r->study->ctx;
    ls_settings settings = {0};
    ls_training training = {0};
    ls_train_result result;
    ls_machine machine;
    ls_machine_describe(&machine);
    if (r->cost.operations > operations_max || strcmp(r->study->from.device, "cpu") != 0 ||
        (double)r->cost.train_bytes > 0.25 * (double)machine.memory_bytes)
        return LS_OK;
    quiet.log = NULL;
    quiet.threads = (int)r->study->threads;
    const ls_training_request request = {.settings = &settings,
                                         .folder = "trial",
                                         .cache = r->study->from.cache,
                                         .seed = r->arm->seeds.at[0],
                                         .paths = r->study->keys.out,
                                         .rough = true};
    ls_status status = training_settings(r, &quiet, &settings);
    if (status == LS_OK) status = ls_training_read(&quiet, &request, &training);
    if (status == LS_OK) status = ls_training_run(&training, &hooks, &result);
    if (status == LS_OK)
        r->cost.seconds = result.step_seconds * (double)training.settings.train.steps;
    if (training.ctx != NULL) ls_training_clear(&training);
    ls_settings_clear(&quiet, &settings);
    return pass_on(r->study->ctx, &quiet, status);
}

/* Also of an arm that tests another's weights: its run says what they are. */
static ls_status rehearse_training(rehearsal *r) {
    ls_ctx *ctx = r->study->ctx;
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_training training = {0};
    ls_settings settings = {0}; /* what they leave open is put into them */
    metered.log = NULL;
    metered.threads = (int)r->study->threads;
    ls_status status = pass_on(ctx, &metered, train(r, &metered, &settings, &training));
    if (status == LS_OK)
        status = ls_settings_parse(ctx, &r->config, training.config.bytes, training.config.length,
                                   "the settings of a run");
    if (status == LS_OK && r->tokenizer[0] != '\0')
        status = ls_settings_put(ctx, &r->config, "data.tokenizer", r->tokenizer);
    if (training.ctx != NULL) ls_training_clear(&training);
    ls_settings_clear(&metered, &settings);
    r->cost.train_bytes = meter.peak;
    return status;
}

static ls_status test(rehearsal *r, ls_ctx *ctx, const ls_settings *settings,
                      ls_evaluation *evaluation) {
    const char *opened = ls_study_opens(r->study, r->arm);
    ls_dtype type;
    bool typed;
    LS_TRY(ls_trained_dtype(ctx, settings, &type, &typed));
    const ls_evaluation_request request = {.path = opened == NULL ? "" : opened,
                                           .planned = opened == NULL ? &r->config : NULL,
                                           .settings = settings,
                                           .type = typed ? &type : NULL,
                                           .cache = r->study->from.cache,
                                           .paths = r->study->keys.out,
                                           .seed = (uint64_t)r->arm->seeds.at[0]};
    LS_TRY(ls_evaluation_open(ctx, &request, evaluation));
    r->cost.parameters = ls_parameters_elements(evaluation->trained.model->store);
    r->cost.longest = ls_max(r->cost.longest, evaluation->trained.config.trained_length);
    for (int64_t i = 0; i < evaluation->settings.lengths.count; i++)
        r->cost.longest = ls_max(r->cost.longest, evaluation->settings.lengths.at[i]);
    return ls_evaluation_run(evaluation, NULL);
}

static ls_status rehearse_test(rehearsal *r) {
    ls_ctx *ctx = r->study->ctx;
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_evaluation evaluation = {0};
    ls_settings settings = {0};
    metered.log = NULL;
    metered.threads = (int)r->study->threads;
    ls_status status = copy_settings(ctx, &r->arm->testing, &settings);
    if (status == LS_OK) status = pass_on(ctx, &metered, test(r, &metered, &settings, &evaluation));
    if (evaluation.ctx != NULL) ls_evaluation_clear(&evaluation);
    ls_settings_clear(ctx, &settings);
    r->cost.test_bytes = meter.peak;
    return status;
}

/* A corpus is made ready before, because what that takes is no part of a job that finds it so. */
static ls_status prepare_data(rehearsal *r) {
    ls_ctx *ctx = r->study->ctx;
    ls_data_settings settings;
    ls_dataset data;
    if (ls_settings_has(&r->arm->training, "task")) return LS_OK;
    if (ls_settings_has(&r->arm->training, "train.from")) return LS_OK; /* it has a tokenizer */
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings));
    LS_TRY(ls_data_read(ctx, &r->arm->training, ls_training_facts, &settings));
    LS_TRY(ls_data_open(ctx, &settings, r->study->from.cache, r->study->keys.out, &data));
    memcpy(r->tokenizer, data.tokenizer_path, sizeof r->tokenizer);
    ls_data_close(ctx, &data);
    return LS_OK;
}

static ls_status rehearse(rehearsal *r) {
    ls_ctx *ctx = r->study->ctx;
    LS_TRY(ls_check_stop(ctx, "looking at the arms"));
    if (ls_study_opens(r->study, r->arm) == NULL) {
        LS_TRY(prepare_data(r));
        LS_TRY(rehearse_training(r));
    }
    if (!r->arm->trains)
        r->cost = (cost){0};
    else
        LS_TRY(time_training(r));
    return rehearse_test(r);
}

/* Columns of the names of arms. */
static int name_columns(const ls_study *study) {
    size_t most = 20;
    for (size_t i = 0; i < study->count; i++)
        if (strlen(study->arms[i].name) > most) most = strlen(study->arms[i].name);
    return (int)most;
}

static void print_cost(ls_ctx *ctx, const ls_study_arm *arm, int columns, const cost *c,
                       ls_text *out) {
    char train[32] = "-", seconds[32] = "-";
    if (c->train_bytes > 0) snprintf(train, sizeof train, "%.1f", 1e-6 * (double)c->train_bytes);
    if (c->seconds > 0)
        snprintf(seconds, sizeof seconds, c->seconds < 100 ? "%.3g" : "%.0f", c->seconds);
    ls_text_printf(ctx, out,
                   "%-*s %6" PRId64 " %14" PRId64 " %14" PRId64 " %12s %8" PRId64 " %12.1f %10s\n",
                   columns, arm->name, arm->seeds.count, c->parameters, c->tokens, train,
                   c->longest, 1e-6 * (double)c->test_bytes, seconds);
}

/* Of the whole study. */
typedef struct total {
    int64_t trainings, evaluations, untimed;
    double seconds;
    size_t bytes; /* the most that a job takes */
} total;

/* How many seeds of an arm are trained, and how many tested: of arms that compete the first is
 * counted as the one that goes on. */
static int64_t seeds_of(const ls_study *study, size_t arm, bool tests) {
    const ls_study_arm *a = &study->arms[arm];
    if (!ls_study_compete(study, arm, arm)) return a->seeds.count;
    const size_t root = ls_study_root(study, arm);
    for (size_t i = 0; i < root; i++)
        if (ls_study_compete(study, i, arm) && ls_study_root(study, i) == i)
            return tests || root != arm ? 0 : 1;
    return a->seeds.count;
}

static void add_cost(const ls_study *study, size_t index, const cost *c, total *all) {
    const ls_study_arm *arm = &study->arms[index];
    const int64_t trained = seeds_of(study, index, false);
    all->evaluations += seeds_of(study, index, true);
    all->bytes = c->train_bytes > all->bytes ? c->train_bytes : all->bytes;
    all->bytes = c->test_bytes > all->bytes ? c->test_bytes : all->bytes;
    if (!arm->trains) return;
    all->trainings += trained;
    all->seconds += (double)trained * c->seconds;
    all->untimed += c->seconds > 0 ? 0 : trained;
}

static void print_time(ls_ctx *ctx, double seconds, ls_text *out) {
    const bool hours = seconds >= 36000, minutes = seconds >= 600;
    const double time = seconds / (hours ? 3600 : minutes ? 60 : 1);
    char text[32];
    snprintf(text, sizeof text, time < 100 ? "%.3g" : "%.0f", time);
    ls_text_printf(ctx, out,
                   "the trainings take about %s %s, by the fastest of some steps of each here, "
                   "without validation and tests\n",
                   text,
                   hours     ? "hours"
                   : minutes ? "minutes"
                             : "s");
}

static void print_total(const ls_study *study, const total *all, ls_text *out) {
    ls_ctx *ctx = study->ctx;
    const int64_t jobs = study->keys.jobs;
    const double seconds = all->seconds / (double)ls_max(1, ls_min(jobs, all->trainings));
    ls_text_printf(
        ctx, out,
        "\n%" PRId64 " training%s and %" PRId64 " evaluation%s, %" PRId64 " at once with %" PRId64
        " thread%s each: at most %.1f MB\n",
        all->trainings, all->trainings == 1 ? "" : "s", all->evaluations,
        all->evaluations == 1 ? "" : "s", jobs, study->threads, study->threads == 1 ? "" : "s",
        1e-6 * (double)all->bytes * (double)ls_min(jobs, ls_max(all->trainings, all->evaluations)));
    if (all->trainings > all->untimed) print_time(ctx, seconds, out);
    if (all->untimed > 0)
        ls_text_printf(ctx, out,
                       "%" PRId64 " trainings are too large to be tried, or not for this "
                       "processor: their time is not known\n",
                       all->untimed);
}

static ls_status count_parameters(const ls_study *study, size_t arm, int64_t *out) {
    rehearsal r = {.study = study, .arm = &study->arms[arm]};
    ls_ctx *ctx = study->ctx;
    ls_meter meter;
    ls_ctx metered = ls_meter_of(ctx, true, &meter);
    ls_training_cost taken = {0};
    ls_settings settings = {0};
    metered.log = NULL;
    const ls_training_request request = {.settings = &settings,
                                         .folder = "rehearsal",
                                         .cache = study->from.cache,
                                         .seed = r.arm->seeds.at[0]};
    ls_status status = prepare_data(&r);
    if (status == LS_OK) status = training_settings(&r, &metered, &settings);
    if (status == LS_OK)
        status = pass_on(ctx, &metered, ls_training_rehearse(&metered, &request, &taken));
    ls_settings_clear(&metered, &settings);
    *out = taken.parameters;
    return status;
}

/* Whether two arms say the same of everything but their training: then their models are the
 * same. */
static bool same_model(const ls_study_arm *a, const ls_study_arm *b) {
    const ls_study_arm *both[] = {a, b};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < both[k]->training.count; i++) {
            const ls_setting *own = &both[k]->training.items[i];
            const char *other = ls_settings_get(&both[1 - k]->training, own->key);
            const bool trains = strncmp(own->key, "train.", 6) == 0 &&
                                strncmp(own->key, "train.lora", 10) != 0 &&
                                strcmp(own->key, "train.length") != 0;
            if (!trains && (other == NULL || strcmp(other, own->value) != 0)) return false;
        }
    return true;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

ls_status ls_study_check_sizes(const ls_study *study) {
    ls_ctx *ctx = study->ctx;
    const double allowed = study->keys.equal_parameters;
    ls_status status = LS_OK;
    size_t count = 0;
    if (!(allowed > 0)) return LS_OK;
    int64_t *sizes = ls_new(ctx, 2 * study->count + 1, sizeof *sizes), *sorted;
    if (sizes == NULL) return LS_ENOMEM;
    sorted = sizes + study->count;
    for (size_t i = 0; status == LS_OK && i < study->count; i++) {
        if (!study->arms[i].trains || study->arms[i].begins >= 0) continue;
        for (size_t j = 0; j < i && sizes[i] == 0; j++)
            if (sizes[j] > 0 && same_model(&study->arms[j], &study->arms[i])) sizes[i] = sizes[j];
        if (sizes[i] == 0) status = count_parameters(study, i, &sizes[i]);
        sorted[count++] = sizes[i];
    }
    qsort(sorted, count, sizeof *sorted, by_size);
    const double median = count == 0 ? 0 : (double)sorted[(count - 1) / 2];
    for (size_t i = 0; status == LS_OK && i < study->count; i++) {
        const double off = 100 * ((double)sizes[i] / median - 1);
        if (sizes[i] > 0 && fabs(off) > allowed)
            status = LS_FAIL(ctx, LS_EUSE,
                             "arm %s has %" PRId64 " parameters, %.1f %% %s than the median arm "
                             "(%.0f): equal_parameters allows %g %%; change its model.hidden",
                             study->arms[i].name, sizes[i], fabs(off), off > 0 ? "more" : "fewer",
                             median, allowed);
    }
    ls_free(ctx, sizes);
    return status;
}

ls_status ls_study_check(const ls_study *study, ls_text *out) {
    ls_ctx *ctx = study->ctx;
    ls_status status = LS_OK;
    total all = {0};
    const int columns = name_columns(study);
    ls_text_printf(ctx, out, "%-*s %6s %14s %14s %12s %8s %12s %10s\n", columns, "arm", "seeds",
                   "parameters", "tokens", "train, MB", "length", "test, MB", "train, s");
    for (size_t i = 0; i < study->count && status == LS_OK; i++) {
        rehearsal r = {.study = study, .arm = &study->arms[i]};
        status = rehearse(&r);
        if (status == LS_OK) print_cost(ctx, r.arm, columns, &r.cost, out);
        if (status == LS_OK) add_cost(study, i, &r.cost, &all);
        ls_settings_clear(ctx, &r.config);
    }
    if (status == LS_OK) print_total(study, &all, out);
    if (status == LS_OK) status = ls_study_check_sizes(study);
    return status == LS_OK ? ls_text_status(out) : status;
}
