/* Training from the installed interface. */
#include <stdio.h>

#include "api/api.h"
#include "train/training.h"

typedef struct listener {
    longshot_engine *engine;
    const longshot_train_options *options;
} listener;

static void on_step(void *user, const ls_train_step *step) {
    const listener *to = user;
    const longshot_step told = {.size = sizeof told,
                                .step = step->step,
                                .steps = step->steps,
                                .tokens = step->tokens,
                                .loss = step->loss,
                                .learning_rate = step->rate,
                                .gradient_norm = step->norm,
                                .accepted = step->accepted};
    if (to->options->on_step(to->options->user, &told) != 0) longshot_stop(to->engine);
}

/* LS_ESTOP fills the result as well: the run is there and goes on. */
static ls_status train(longshot_engine *engine, const longshot_train_options *options,
                       ls_settings *settings, longshot_train_result *out) {
    static const ls_section sections[] = {{"model", &ls_model_options},
                                          {"data", &ls_data_options},
                                          {"task", &ls_task_options},
                                          {"train", &ls_train_options},
                                          {0}};
    ls_ctx *ctx = &engine->ctx;
    const char *folder = ls_settings_get(settings, "out");
    ls_training_request request = {
        .settings = settings, .folder = folder == NULL ? "" : folder, .cache = engine->cache};
    ls_keys_know(ctx, settings, sections, NULL, &engine->known);
    LS_TRY(ls__api_refuse_engine_keys(ctx, settings));
    LS_TRY(ls__api_read_seed(ctx, settings, &request.seed));
    listener to = {engine, options};
    const ls_training_hooks hooks = {
        .stop = &engine->stop, .step = options->on_step == NULL ? NULL : on_step, .user = &to};
    ls_training training;
    ls_train_result result;
    ls_status status;
    LS_TRY_GOTO(ls_training_read(ctx, &request, &training));
    LS_TRY_GOTO(ls_settings_finish_sections(ctx, settings, false));
    status = ls_training_run(&training, &hooks, &result);
    if (status != LS_OK && status != LS_ESTOP) goto fail;
    snprintf(engine->folder, sizeof engine->folder, "%s", training.folder);
    *out = (longshot_train_result){.folder = engine->folder,
                                   .parameters = ls_parameters_elements(training.model->store),
                                   .resumed = result.resumed,
                                   .step = result.step,
                                   .tokens = result.tokens,
                                   .rejected = result.rejected,
                                   .loss = result.loss};
fail:
    ls_training_clear(&training);
    return status;
}

int longshot_train(longshot_engine *engine, const longshot_train_options *options,
                   longshot_train_result *result) {
    ls_ctx *ctx = ls__api_begin(engine);
    longshot_train_options all;
    longshot_train_result filled = {0};
    ls_settings settings = {0};
    ls_status status;
    LS_TRY_GOTO(ls__api_options(ctx, options, &all, sizeof all, "longshot_train_options"));
    LS_TRY_GOTO(ls__api_check_result(ctx, result, "longshot_train_result"));
    if (all.recipe != NULL) LS_TRY_GOTO(ls_settings_read(ctx, &settings, all.recipe));
    LS_TRY_GOTO(ls__api_put_settings(ctx, all.settings, &settings));
    status = train(engine, &all, &settings, &filled);
    if (status == LS_OK || status == LS_ESTOP) ls__api_put_result(&filled, sizeof filled, result);
fail:
    ls_settings_clear(ctx, &settings);
    return ls__api_end(engine, status);
}
