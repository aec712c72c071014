/* One job: a measurement of the model that is open. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "eval/score.h"
#include "reach/reach.h"
#include "suite/suite.h"

static const json_t *plan_of(const ls_reach *reach) {
    return json_object_get(reach->state, "plan");
}

static int64_t plan_int(const ls_reach *reach, const char *key) {
    return json_integer_value(json_object_get(plan_of(reach), key));
}

static ls_eval_settings eval_settings(const ls_reach *reach, int64_t length, int64_t tokens) {
    ls_eval_settings s = reach->model.settings;
    snprintf(s.protocol, sizeof s.protocol, "%s",
             json_string_value(json_object_get(plan_of(reach), "protocol")));
    s.lengths = (ls_ints){.count = 1, .at = {length}};
    s.room = plan_int(reach, "room");
    s.tokens = tokens > 0 ? tokens : plan_int(reach, "tokens");
    s.chunk = plan_int(reach, "chunk");
    s.batch = ls_min(plan_int(reach, "batch"), ls_eval_batch(0, length, INT64_MAX / 2));
    s.excess =
        reach->variant == 0; /* others are held against the flat tail of the model as it is */
    return s;
}

ls_status ls_reach_perplexity(ls_reach *reach, int64_t length, int64_t tokens, json_t **result) {
    const ls_eval_settings settings = eval_settings(reach, length, tokens);
    const ls_eval_hooks hooks = {.stop = &reach->deadline.raised};
    ls_eval_results results;
    ls_status status = ls_eval_run(reach->model.trained.model, reach->data.tokenizer,
                                   reach->data.test, &settings, &hooks, &results);
    json_t *all = status == LS_OK ? ls_eval_results_json(&results) : NULL;
    if (status == LS_OK) {
        *result = json_incref(json_array_get(json_object_get(all, "results"), 0));
        if (*result == NULL) status = LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the result");
    }
    json_decref(all);
    ls_eval_results_clear(reach->ctx, &results);
    return status;
}

static ls_status resolution(ls_reach *reach, int64_t length, json_t **result) {
    const ls_eval_settings settings = eval_settings(reach, length, 0);
    const ls_selection selection = {.longest = settings.room,
                                    .tokens = settings.tokens,
                                    .documents = (ls_eval_documents)settings.documents};
    const ls_resolution_request wanted = {.length = length,
                                          .chunk = settings.chunk,
                                          .tokens = settings.resolution_tokens,
                                          .stop = &reach->deadline.raised};
    ls_resolution found;
    ls_status status = ls_resolution_measure(reach->model.trained.model, reach->data.test,
                                             &selection, &wanted, &found);
    if (status == LS_OK)
        *result =
            json_pack("{s:I, s:f, s:f, s:f, s:f, s:I}", "length", (json_int_t)length, "R_head",
                      found.R_head, "R_layer", found.R_layer, "M_head", found.M_head, "M_layer",
                      found.M_layer, "tokens", (json_int_t)found.tokens);
    ls_resolution_clear(reach->ctx, &found);
    if (status == LS_OK && *result == NULL)
        status = LS_FAIL(reach->ctx, LS_EUSE, "the attention's scores are not finite");
    return status;
}

/* ---- suites ---- */

static ls_status put_int(ls_ctx *ctx, ls_settings *settings, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return ls_settings_put(ctx, settings, key, text);
}

/* One question or more at every depth. Contexts that are short have room for few. */
static ls_status needle_settings(const ls_reach *reach, const ls_reach_job *job,
                                 ls_settings *settings) {
    const int64_t each = ls_max(1, plan_int(reach, "needle_tokens"));
    const int64_t questions = ls_max(1, ls_min(10, (job->size - each) / (2 * each)));
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite", "needle"));
    LS_TRY(put_int(reach->ctx, settings, "suite.lengths", job->size));
    return put_int(reach->ctx, settings, "suite.questions", questions);
}

static ls_status middle_settings(const ls_reach *reach, const ls_reach_job *job,
                                 ls_settings *settings) {
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite", "middle"));
    LS_TRY(put_int(reach->ctx, settings, "suite.pairs", job->size));
    return put_int(reach->ctx, settings, "suite.questions", 10);
}

/* Samples are kept as they come, so that a round that was cut goes on. */
static ls_status round_folder(const ls_reach *reach, const ls_reach_job *job, char *out,
                              size_t bytes) {
    char id[256], samples[LS_TRAINED_PATH];
    ls_reach_job_id(reach, job, id, sizeof id);
    for (char *at = id; *at != '\0'; at++)
        if (*at == '/' || *at == ' ') *at = '-';
    LS_TRY(ls_path_join(reach->ctx, samples, sizeof samples, reach->folder, "samples"));
    return ls_path_join(reach->ctx, out, bytes, samples, id);
}

static ls_status run_suite(ls_reach *reach, const ls_reach_job *job, const ls_settings *settings,
                           json_t **result) {
    const ls_suite_hooks hooks = {.stop = &reach->deadline.raised};
    const uint64_t seed = reach->request.seed + 1000003 * (uint64_t)(job->round - 1);
    char folder[LS_TRAINED_PATH];
    ls_suite suite = {.ctx = reach->ctx};
    json_t *all = NULL;
    LS_TRY(round_folder(reach, job, folder, sizeof folder));
    ls_status status = ls_suite_open(reach->ctx, settings, &reach->model.trained, seed, &suite);
    if (status == LS_OK) status = ls_folder_make(reach->ctx, folder);
    if (status == LS_OK) status = ls_suite_run(&suite, folder, &hooks, &all);
    ls_suite_clear(&suite);
    if (status == LS_OK)
        *result = json_pack("{s:O, s:O, s:O}", "measure", json_object_get(all, "measure"), "chance",
                            json_object_get(all, "chance"), "cells", json_object_get(all, "cells"));
    json_decref(all);
    if (status == LS_OK && *result == NULL)
        status = LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the result");
    return status;
}

static ls_status ask(ls_reach *reach, const ls_reach_job *job, json_t **result) {
    ls_ctx *ctx = reach->ctx;
    ls_settings settings = {0};
    ls_status status = job->kind == LS_REACH_NEEDLE ? needle_settings(reach, job, &settings)
                                                    : middle_settings(reach, job, &settings);
    static const char *const shared[] = {"depths", "candidates"};
    for (size_t i = 0; status == LS_OK && i < 2; i++) {
        char key[32];
        snprintf(key, sizeof key, "suite.%s", shared[i]);
        status = put_int(ctx, &settings, key, plan_int(reach, shared[i]));
    }
    if (status == LS_OK) status = put_int(ctx, &settings, "suite.samples", 1);
    if (status == LS_OK) status = put_int(ctx, &settings, "suite.resamples", 0);
    if (status == LS_OK)
        status = put_int(ctx, &settings, "suite.chunk", ls_min(256, plan_int(reach, "chunk")));
    if (status == LS_OK) status = run_suite(reach, job, &settings, result);
    ls_settings_clear(ctx, &settings);
    return status;
}

ls_status ls_reach_do(ls_reach *reach, const ls_reach_job *job, json_t **result) {
    LS_TRY(ls_reach_use(reach, job->variant));
    switch (job->kind) {
    case LS_REACH_PERPLEXITY:
        return ls_reach_perplexity(reach, job->size, 0, result);
    case LS_REACH_RESOLUTION:
        return resolution(reach, job->size, result);
    default:
        return ask(reach, job, result);
    }
}
