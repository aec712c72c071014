/* Studies from the installed interface. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "api/api.h"
#include "base/own.h"
#include "data/data.h"
#include "eval/eval.h"
#include "study/study.h"
#include "task/task.h"
#include "train/train.h"

typedef struct listener {
    longshot_engine *engine;
    const longshot_study_options *options;
} listener;

static void on_progress(void *user, const char *line, size_t done, size_t count) {
    const listener *to = user;
    if (to->options->on_progress(to->options->user, line, (int64_t)done, (int64_t)count) != 0)
        longshot_stop(to->engine);
}

/* The program of this installation: beside the library in a build, above it in a pack, else in the
 * bin next to it. */
static ls_status find_program(ls_ctx *ctx, char *out, size_t bytes) {
    static const char *const places[] = {"", "../", "../bin", "../../bin"};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (ls_own_path(out, bytes, places[i], "longshot") && ls_own_trusted(out)) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "the program longshot is not installed beside the library: name it in "
                   "longshot_study_options");
}

/* How the study could be asked for again: results.json tells. */
static void write_command(ls_ctx *ctx, const char *file, const char *const *words, ls_text *out) {
    ls_text_printf(ctx, out, "longshot study %s", file);
    for (; words != NULL && *words != NULL; words++) ls_text_printf(ctx, out, " '%s'", *words);
}

static ls_status run(ls_study *study, const ls_study_hooks *hooks, ls_text *summary) {
    if (study->keys.check) return ls_study_check(study, summary);
    LS_TRY(ls_study_run(study, hooks));
    return ls_study_summary(study, summary);
}

static ls_status study_of(longshot_engine *engine, const ls_study_request *request,
                          const ls_study_hooks *hooks, longshot_study_result *out) {
    static const ls_section sections[] = {{"", &ls_study_options},
                                          {"model", &ls_model_options},
                                          {"data", &ls_data_options},
                                          {"task", &ls_task_options},
                                          {"train", &ls_train_options},
                                          {"eval", &ls_eval_options},
                                          {0}};
    ls_ctx *ctx = &engine->ctx;
    ls_study study;
    ls_text summary = {0};
    ls_status status;
    ls_keys_know(ctx, request->settings, sections, NULL, &engine->known);
    LS_TRY_GOTO(ls_study_read(ctx, request, &study));
    LS_TRY_GOTO(ls_settings_finish_sections(ctx, request->settings, true));
    LS_TRY_GOTO(run(&study, hooks, &summary));
    LS_TRY_GOTO(ls_text_status(&summary));
    snprintf(engine->folder, sizeof engine->folder, "%s", study.keys.out);
    *out = (longshot_study_result){.folder = engine->folder, .summary = summary.bytes};
    summary = (ls_text){0};
fail:
    ls_text_clear(ctx, &summary);
    ls_study_clear(&study);
    return status;
}

static ls_status read_and_run(longshot_engine *engine, const char *file,
                              const longshot_study_options *options, ls_settings *settings,
                              ls_text *command, longshot_study_result *out) {
    ls_ctx *ctx = &engine->ctx;
    ls_study_keys keys;
    char program[PATH_MAX];
    LS_TRY(ls_settings_read(ctx, settings, file));
    LS_TRY(ls__api_put_settings(ctx, options->settings, settings));
    LS_TRY(ls__api_refuse_engine_keys(ctx, settings));
    LS_TRY(ls_options_default(ctx, &ls_study_options, &keys));
    LS_TRY(ls_settings_apply_top(ctx, settings, "study", &ls_study_options, &keys));
    write_command(ctx, file, options->settings, command);
    LS_TRY(ls_text_status(command));
    if (options->program == NULL) LS_TRY(find_program(ctx, program, sizeof program));
    const ls_study_request request = {.settings = settings,
                                      .keys = &keys,
                                      .file = file,
                                      .command = command->bytes,
                                      .program =
                                          options->program == NULL ? program : options->program,
                                      .device = engine->device,
                                      .cache = engine->cache,
                                      .threads = engine->threads};
    listener to = {engine, options};
    const ls_study_hooks hooks = {.stop = &engine->stop,
                                  .progress = options->on_progress == NULL ? NULL : on_progress,
                                  .user = &to};
    return study_of(engine, &request, &hooks, out);
}

int longshot_study(longshot_engine *engine, const char *file, const longshot_study_options *options,
                   longshot_study_result *result) {
    ls_ctx *ctx = ls__api_begin(engine);
    longshot_study_options all;
    longshot_study_result filled = {0};
    ls_settings settings = {0};
    ls_text command = {0};
    ls_status status = ls__api_check_result(ctx, result, "longshot_study_result");
    if (status != LS_OK) return (int)status;
    ls__api_put_result(&filled, sizeof filled, result);
    status = ls__api_options(ctx, options, &all, sizeof all, "longshot_study_options");
    if (status == LS_OK) status = read_and_run(engine, file, &all, &settings, &command, &filled);
    /* a struct too small for the summary leaves nobody to free it */
    if (status == LS_OK && (result == NULL || result->size < sizeof filled)) {
        ls_free(ctx, filled.summary);
        filled.summary = NULL;
    }
    if (status == LS_OK) ls__api_put_result(&filled, sizeof filled, result);
    ls_settings_clear(ctx, &settings);
    ls_text_clear(ctx, &command);
    return ls__api_end(engine, status);
}
