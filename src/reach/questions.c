/* One job: questions of a suite, or what measure.c does. */
#include <stdio.h>

#include "reach/reach.h"
#include "suite/suite.h"

static ls_status put_int(ls_ctx *ctx, ls_settings *settings, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return ls_settings_put(ctx, settings, key, text);
}

/* One question or more at every depth. Contexts that are short have room for few. */
static ls_status needle_settings(const ls_reach *reach, const ls_reach_job *job,
                                 ls_settings *settings) {
    const int64_t each = ls_max(1, ls_reach_planned(reach, "needle_tokens"));
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
        status = put_int(ctx, &settings, key, ls_reach_planned(reach, shared[i]));
    }
    if (status == LS_OK) status = put_int(ctx, &settings, "suite.samples", 1);
    if (status == LS_OK) status = put_int(ctx, &settings, "suite.resamples", 0);
    if (status == LS_OK)
        status =
            put_int(ctx, &settings, "suite.chunk", ls_min(256, ls_reach_planned(reach, "chunk")));
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
        return ls_reach_resolution(reach, job->size, result);
    default:
        return ask(reach, job, result);
    }
}
