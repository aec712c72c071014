/* One job: a suite, or what measure.c does. */
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

/* The test text, or its beginning, as a file beside the samples: suites read texts, not tokens. */
static ls_status write_text(const ls_reach *reach, char *path, size_t bytes) {
    enum { TOKENS_MOST = 1 << 20, TEXTS = 16 };
    ls_ctx *ctx = reach->ctx;
    const ls_token_file *test = reach->data.test;
    const int64_t wanted = ls_min(TOKENS_MOST, TEXTS * ls_reach_planned(reach, "room"));
    const int64_t count = ls_min(wanted, ls_token_file_tokens(test));
    char folder[LS_TRAINED_PATH];
    ls_text text = {0};
    LS_TRY(ls_path_join(ctx, folder, sizeof folder, reach->folder, "samples"));
    LS_TRY(ls_folder_make(ctx, folder));
    LS_TRY(ls_path_join(ctx, path, bytes, folder, "text.txt"));
    int32_t *ids = ls_new(ctx, (size_t)count, sizeof *ids);
    if (ids == NULL) return LS_ENOMEM;
    ls_token_file_read(test, 0, count, ids);
    ls_status status = ls_token_file_status(ctx, test);
    if (status == LS_OK)
        status = ls_tokenizer_decode_text(ctx, reach->data.tokenizer, ids, (size_t)count,
                                          LS_DECODE_SKIP_SPECIAL | LS_DECODE_UTF8, &text);
    if (status == LS_OK) status = ls_text_status(&text);
    if (status == LS_OK) status = ls_file_write(ctx, path, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    ls_free(ctx, ids);
    return status;
}

static ls_status heads_settings(const ls_reach *reach, const ls_reach_job *job,
                                ls_settings *settings) {
    char path[LS_TRAINED_PATH];
    LS_TRY(write_text(reach, path, sizeof path));
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite", "heads"));
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite.path", path));
    LS_TRY(put_int(reach->ctx, settings, "suite.lengths", job->size));
    LS_TRY(put_int(reach->ctx, settings, "suite.samples", 1));
    return put_int(reach->ctx, settings, "suite.resamples", 0);
}

static ls_status lambada_settings(const ls_reach *reach, const ls_reach_job *job,
                                  ls_settings *settings) {
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite", "lambada"));
    LS_TRY(ls_settings_put(reach->ctx, settings, "suite.path", reach->request.keys->lambada));
    return put_int(reach->ctx, settings, "suite.samples", job->size);
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

/* Of a suite's results: what the page and the sentence need. */
static json_t *what_is_kept(ls_reach_kind kind, const json_t *all) {
    static const char *const by_cell[] = {"measure", "chance", "cells", "model_scores", NULL};
    static const char *const whole[] = {
        "measure", "n", "score", "low", "high", "data", "perplexity", "accuracy_last_token", NULL};
    json_t *out = json_object();
    for (const char *const *key = kind == LS_REACH_LAMBADA ? whole : by_cell; *key != NULL; key++) {
        json_t *value = json_object_get(all, *key);
        if (out != NULL && value != NULL) json_object_set(out, *key, value);
    }
    return out;
}

static ls_status run_suite(ls_reach *reach, const ls_reach_job *job, const ls_settings *settings,
                           json_t **result) {
    const ls_suite_hooks hooks = {.stop = &reach->deadline.raised};
    const uint64_t seed = reach->request.seed + 1000003 * (uint64_t)(ls_max(1, job->round) - 1);
    char folder[LS_TRAINED_PATH];
    ls_suite suite = {.ctx = reach->ctx};
    json_t *all = NULL;
    LS_TRY(round_folder(reach, job, folder, sizeof folder));
    ls_status status = ls_suite_open(reach->ctx, settings, &reach->model.trained, seed, &suite);
    if (status == LS_OK) status = ls_folder_make(reach->ctx, folder);
    if (status == LS_OK) status = ls_suite_run(&suite, folder, &hooks, &all);
    ls_suite_clear(&suite);
    if (status == LS_OK) *result = what_is_kept(job->kind, all);
    json_decref(all);
    if (status == LS_OK && *result == NULL)
        status = LS_FAIL(reach->ctx, LS_ENOMEM, "no memory for the result");
    return status;
}

/* What questions of all rounds have in common. */
static ls_status question_settings(const ls_reach *reach, ls_settings *settings) {
    static const char *const shared[] = {"depths", "candidates"};
    for (size_t i = 0; i < 2; i++) {
        char key[32];
        snprintf(key, sizeof key, "suite.%s", shared[i]);
        LS_TRY(put_int(reach->ctx, settings, key, ls_reach_planned(reach, shared[i])));
    }
    LS_TRY(put_int(reach->ctx, settings, "suite.samples", 1));
    return put_int(reach->ctx, settings, "suite.resamples", 0);
}

static ls_status settings_of(const ls_reach *reach, const ls_reach_job *job,
                             ls_settings *settings) {
    switch (job->kind) {
    case LS_REACH_HEADS:
        return heads_settings(reach, job, settings);
    case LS_REACH_LAMBADA:
        return lambada_settings(reach, job, settings);
    case LS_REACH_NEEDLE:
        LS_TRY(needle_settings(reach, job, settings));
        break;
    default:
        LS_TRY(middle_settings(reach, job, settings));
    }
    return question_settings(reach, settings);
}

static ls_status ask(ls_reach *reach, const ls_reach_job *job, json_t **result) {
    ls_ctx *ctx = reach->ctx;
    ls_settings settings = {0};
    ls_status status = settings_of(reach, job, &settings);
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
