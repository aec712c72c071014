/* Evaluation from the installed interface. */
#include <math.h>

#include "api/api.h"
#include "eval/evaluation.h"

typedef struct listener {
    longshot_engine *engine;
    const longshot_eval_options *options;
} listener;

static void on_progress(void *user, const char *what, int64_t length, double share) {
    const listener *to = user;
    if (to->options->on_progress(to->options->user, what, length, share) != 0)
        longshot_stop(to->engine);
}

static ls_status tell_row(ls_ctx *ctx, const longshot_eval_options *options,
                          const ls_eval_row *row) {
    const longshot_eval_row told = {.size = sizeof told,
                                    .protocol = row->protocol,
                                    .length = row->length,
                                    .stride = row->stride,
                                    .loss = row->loss,
                                    .perplexity = row->perplexity,
                                    .token_loss = row->token_loss,
                                    .bits_per_byte = row->bits_per_byte,
                                    .flat = row->flat,
                                    .excess = row->excess,
                                    .tokens = row->tokens,
                                    .windows = row->windows,
                                    .documents = row->documents,
                                    .accuracy = row->judged ? row->accuracy : (double)NAN,
                                    .exact = row->judged ? row->exact : (double)NAN,
                                    .seconds = row->seconds,
                                    .tokens_per_second = row->tokens_per_second,
                                    .bytes = (int64_t)row->bytes};
    if (options->on_row(options->user, &told) == 0) return LS_OK;
    return LS_FAIL(ctx, LS_ESTOP, "stopped at a row of the results");
}

/* What a finished evaluation gives: rows, the file beside the run, the text. */
static ls_status tell(const ls_evaluation *evaluation, const longshot_eval_options *options,
                      char **json) {
    ls_ctx *ctx = evaluation->ctx;
    for (size_t i = 0; options->on_row != NULL && i < evaluation->results.count; i++)
        LS_TRY(tell_row(ctx, options, &evaluation->results.rows[i]));
    if (json == NULL && options->write == 0) return LS_OK;
    json_t *all = ls_evaluation_json(evaluation);
    if (all == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the result");
    ls_status status = options->write == 0 ? LS_OK : ls_evaluation_write(evaluation, all);
    if (status == LS_OK && json != NULL) return ls__api_give_json(ctx, all, json);
    json_decref(all);
    return status;
}

static ls_status evaluate(longshot_engine *engine, const char *path,
                          const longshot_eval_options *options, const ls_settings *settings,
                          char **json) {
    static const ls_section sections[] = {
        {"eval", &ls_eval_options}, {"data", &ls_data_options}, {"task", &ls_task_options}, {0}};
    ls_ctx *ctx = &engine->ctx;
    ls_dtype type;
    bool typed;
    int64_t seed;
    ls_keys_know(ctx, settings, sections, NULL, &engine->known);
    LS_TRY(ls__api_refuse_engine_keys(ctx, settings));
    LS_TRY(ls_trained_dtype(ctx, settings, &type, &typed));
    LS_TRY(ls__api_read_seed(ctx, settings, &seed));
    const ls_evaluation_request request = {.path = path,
                                           .settings = settings,
                                           .type = typed ? &type : NULL,
                                           .cache = engine->cache,
                                           .seed = (uint64_t)seed};
    listener to = {engine, options};
    const ls_eval_hooks hooks = {.stop = &engine->stop,
                                 .progress = options->on_progress == NULL ? NULL : on_progress,
                                 .user = &to};
    ls_evaluation evaluation;
    ls_status status;
    LS_TRY_GOTO(ls_evaluation_open(ctx, &request, &evaluation));
    LS_TRY_GOTO(ls_settings_finish_sections(ctx, settings, true));
    LS_TRY_GOTO(ls_evaluation_run(&evaluation, &hooks));
    status = tell(&evaluation, options, json);
fail:
    ls_evaluation_clear(&evaluation);
    return status;
}

int longshot_eval(longshot_engine *engine, const char *path, const longshot_eval_options *options,
                  char **json) {
    ls_ctx *ctx = ls__api_begin(engine);
    longshot_eval_options all;
    ls_settings settings = {0};
    if (json != NULL) *json = NULL;
    ls_status status = ls__api_options(ctx, options, &all, sizeof all, "longshot_eval_options");
    if (status == LS_OK) status = ls__api_put_settings(ctx, all.settings, &settings);
    if (status == LS_OK) status = evaluate(engine, path, &all, &settings, json);
    ls_settings_clear(ctx, &settings);
    return ls__api_end(engine, status);
}
