/* What every arm would cost, without running one. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "data/data.h"
#include "eval/eval.h"
#include "model/model.h"
#include "study/study.h"
#include "train/task_keys.h"
#include "train/train.h"
#include "train/trained.h"

typedef struct estimate {
    int64_t parameters, tokens, longest;
    double kept_bytes; /* weights, gradients and the optimiser's means, for the whole run */
    double step_bytes; /* activations of one part of a batch */
    double test_bytes; /* state and programs of one text of the largest length */
} estimate;

static ls_status vocabulary(ls_ctx *ctx, const ls_data_settings *data, int64_t *out) {
    ls_tokenizer *tokenizer = NULL;
    *out = data->vocabulary;
    if (strcmp(data->tokenizer, "train") == 0) return LS_OK;
    LS_TRY(ls_tokenizer_load(ctx, data->tokenizer, &tokenizer));
    *out = ls_tokenizer_vocabulary(tokenizer);
    ls_tokenizer_free(ctx, tokenizer);
    return LS_OK;
}

/* The vocabulary that the task or the tokenizer will have. */
static ls_status settle(ls_ctx *ctx, ls_settings *all) {
    ls_data_settings data;
    ls_task task;
    int64_t size = 0;
    char text[32];
    ls_status status = ls_task_read(ctx, all, ls_training_facts, &task);
    bool chosen = task.type != NULL;
    if (status == LS_OK && chosen) status = ls_task_settle(ctx, &task, all);
    ls_task_clear(ctx, &task);
    if (status != LS_OK || chosen) return status;
    LS_TRY(ls_options_default(ctx, &ls_data_options, &data));
    LS_TRY(ls_settings_apply(ctx, all, "data", &ls_data_options, ls_training_facts, &data));
    LS_TRY(vocabulary(ctx, &data, &size));
    snprintf(text, sizeof text, "%" PRId64, size);
    if (ls_settings_get(all, "model.vocabulary") != NULL) return LS_OK;
    return ls_settings_put(ctx, all, "model.vocabulary", text);
}

/* All sections of an arm's settings. */
static ls_status read_arm(ls_ctx *ctx, const ls_study_arm *arm, ls_model_config *config,
                          ls_train_settings *train, ls_eval_settings *eval) {
    ls_settings all = {0};
    ls_status status;
    const ls_settings *parts[] = {&arm->training, &arm->testing};
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < parts[p]->count; i++)
            LS_TRY_GOTO(ls_settings_copy(ctx, &all, &parts[p]->items[i]));
    LS_TRY_GOTO(settle(ctx, &all));
    LS_TRY_GOTO(ls_options_default(ctx, &ls_train_options, train));
    LS_TRY_GOTO(ls_settings_apply(ctx, &all, "train", &ls_train_options, NULL, train));
    LS_TRY_GOTO(ls_model_config_read(ctx, &all, config));
    LS_TRY_GOTO(ls_options_default(ctx, &ls_eval_options, eval));
    LS_TRY_GOTO(ls_settings_apply(ctx, &all, "eval", &ls_eval_options,
                                  ls_eval_facts(ls_settings_has(&all, "task"), config), eval));
    if (ls_settings_get(&all, "train.length") == NULL) train->length = config->model.length;
fail:
    ls_settings_clear(ctx, &all);
    return status;
}

/* The same of an arm that a checkpoint describes. */
static ls_status read_checkpoint(const ls_study *study, const ls_study_arm *arm,
                                 ls_model_config *config, ls_train_settings *train,
                                 ls_eval_settings *eval) {
    ls_ctx *ctx = study->ctx;
    ls_trained trained = {.ctx = ctx};
    ls_status status;
    LS_TRY_GOTO(ls_study_checkpoint(study, arm, &trained));
    LS_TRY_GOTO(ls_options_default(ctx, &ls_train_options, train));
    LS_TRY_GOTO(ls_settings_apply(ctx, &arm->training, "train", &ls_train_options, NULL, train));
    LS_TRY_GOTO(ls_options_default(ctx, &ls_eval_options, eval));
    LS_TRY_GOTO(ls_settings_apply(
        ctx, &arm->testing, "eval", &ls_eval_options,
        ls_eval_facts(ls_settings_has(&trained.settings, "task"), &trained.config), eval));
    *config = trained.config; /* it goes on with the caller */
    trained.config = (ls_model_config){0};
    if (ls_settings_get(&arm->training, "train.length") == NULL)
        train->length = config->model.length;
fail:
    ls_trained_clear(&trained);
    return status;
}

/* Only programs are made: arenas that nothing is written to take no memory. */
static ls_status measure(ls_ctx *ctx, const ls_model_config *config, bool trains,
                         const ls_train_settings *train, const ls_eval_settings *eval,
                         estimate *out) {
    ls_model *model = NULL;
    ls_program *program = NULL, *whole = NULL;
    ls_stream *stream = NULL;
    ls_status status;
    LS_TRY_GOTO(ls_model_plan(ctx, config, ls_train_dtype(train), trains, &model));
    out->parameters = ls_parameters_elements(model->store);
    bool narrow = ls_train_dtype(train) == LS_BF16;
    out->kept_bytes = (double)out->parameters * (trains ? 16 + 2 * narrow : 4 - 2 * narrow);
    if (trains) {
        /* a source and what follows it are at most as long as a sample */
        const ls_program_options options = {.batch = train->batch / train->accumulate,
                                            .length = train->length,
                                            .chunk_max = train->length};
        const ls_recording how = {.use = LS_MODEL_TRAIN,
                                  .source = config->encoder_layers > 0 ? train->length : 0};
        LS_TRY_GOTO(ls_model_record(model, &how, options, &program));
        out->step_bytes = (double)ls_program_bytes(program);
        out->tokens = train->steps * train->batch * train->length;
    }
    out->longest = config->model.length;
    for (int64_t i = 0; i < eval->lengths.count; i++)
        out->longest = ls_max(out->longest, eval->lengths.at[i]);
    if (config->model.head == LS_HEAD_LM) {
        const int64_t source = config->encoder_layers > 0 ? out->longest : 0;
        LS_TRY_GOTO(ls_stream_new_reading(model, 1, source, out->longest, eval->chunk, &stream));
        out->test_bytes = (double)ls_stream_bytes(stream);
    } else {
        const ls_program_options options = {.batch = 1, .length = out->longest};
        LS_TRY_GOTO(ls_model_program(model, LS_MODEL_LOGITS, options, &whole));
        out->test_bytes = (double)ls_program_bytes(whole);
    }
fail:
    ls_stream_free(stream);
    ls_program_free(program);
    ls_program_free(whole);
    ls_model_free(model);
    return status;
}

ls_status ls_study_check(const ls_study *study, ls_text *out) {
    ls_ctx *ctx = study->ctx;
    ls_status status = LS_OK;
    ls_text_printf(ctx, out, "%-20s %6s %14s %14s %12s %12s %8s %12s\n", "arm", "seeds",
                   "parameters", "tokens", "weights, MB", "a step, MB", "length", "test, MB");
    for (size_t i = 0; i < study->count && status == LS_OK; i++) {
        const ls_study_arm *arm = &study->arms[i];
        ls_model_config config = {0};
        ls_train_settings train;
        ls_eval_settings eval;
        estimate e = {0};
        const ls_study_arm *base = arm->parent < 0 ? arm : &study->arms[arm->parent];
        status = base->checkpoint[0] != '\0' ? read_checkpoint(study, arm, &config, &train, &eval)
                                             : read_arm(ctx, arm, &config, &train, &eval);
        if (status == LS_OK && train.batch % train.accumulate != 0)
            status = LS_FAIL(ctx, LS_EUSE, "arm %s: train.batch is no multiple of train.accumulate",
                             arm->name);
        if (status == LS_OK) status = measure(ctx, &config, arm->trains, &train, &eval, &e);
        ls_model_config_clear(ctx, &config);
        ls_text_printf(ctx, out,
                       "%-20s %6" PRId64 " %14" PRId64 " %14" PRId64 " %12.1f %12.1f %8" PRId64
                       " %12.1f\n",
                       arm->name, arm->seeds.count, e.parameters, e.tokens, 1e-6 * e.kept_bytes,
                       1e-6 * e.step_bytes, e.longest, 1e-6 * e.test_bytes);
    }
    return status == LS_OK ? ls_text_status(out) : status;
}
