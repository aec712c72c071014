/* A whole model against reference values: weights under the names of public code, pieces of a text
 * one after the other with what is carried between them, outputs, losses, states and gradients. */
#include "compare/model_trial.h"

#include <stdio.h>
#include <string.h>

#include "model/fit.h"

static ls_status run_piece(ls_trial *trial, ls_trial_run *run, const char *prefix) {
    for (int64_t i = 0; i < trial->config.layers; i++) trial->mixers[i].start = run->first;
    LS_TRY(ls_trial_load_weights(trial, true));
    LS_TRY(ls_trial_put_inputs(trial, run));
    LS_TRY(ls_program_run(run->program, run->state, 0, 0));
    if (!run->trains) LS_TRY(ls_trial_take_series(trial, run));
    LS_TRY(ls_trial_compare_run(trial, run));
    return ls_trial_gather_moving(trial, prefix);
}

/* All pieces. `trains`: as in training, for the auxiliary losses and their gradients. */
static ls_status run_all(ls_trial *trial, bool trains) {
    const char *prefix = trains ? "grad.aux." : "grad.w.";
    ls_trial_run run = {.piece = trial->streams ? 0 : -1,
                        .count = trial->streams ? trial->length[0] : trial->T,
                        .trains = trains};
    ls_status status = LS_OK;
    ls_parameters_clear_gradient(trial->model->store);
    LS_TRY_GOTO(ls_trial_record(trial, &run));
    if (trial->streams) LS_TRY_GOTO(ls_state_new(run.program, &run.state));
    for (;;) {
        LS_TRY_GOTO(run_piece(trial, &run, prefix));
        if (!trial->streams || run.piece + 1 == trial->pieces) break;
        run.piece++;
        run.first = trial->first[run.piece];
        if (trial->length[run.piece] == run.count) continue;
        run.count = trial->length[run.piece];
        ls_program_free(run.program);
        run.program = NULL;
        LS_TRY_GOTO(ls_trial_record(trial, &run));
    }
    if (!trains) LS_TRY_GOTO(ls_trial_compare_outputs(trial));
    status = ls_trial_compare_gradients(trial, prefix);
fail:
    ls_program_free(run.program);
    ls_state_free(trial->ctx, run.state);
    return status;
}

/* A whole-number option of a mixer of the model; 0 where it has none of this name. */
static int64_t number_option(const ls_model_config *config, int mixer, const char *key) {
    const ls_option *option = ls_options_find(&config->mixer[mixer].type->options, key);
    if (option == NULL || option->type != LS_OPTION_INT) return 0;
    return *(const int64_t *)((const char *)config->mixer[mixer].options + option->offset);
}

/* A model's segment starts afresh: where a mixer has it in one piece, what the mixer would remember
 * has no effect. Who asks for it all the same is told. */
static ls_status check_memory(const ls_trial *trial, const ls_settings *settings) {
    const ls_model_config *config = &trial->config;
    const int64_t segment = config->model.segment;
    for (int i = 0; segment > 0 && i < config->mixers; i++) {
        const char *const names[] = {"", config->mixer[i].type->name, config->mixer[i].name};
        if (number_option(config, i, "memory") == 0 ||
            number_option(config, i, "segment") < segment)
            continue;
        for (int n = 0; n < 3; n++) {
            char key[128];
            snprintf(key, sizeof key, "mixer.%s%smemory", names[n], n == 0 ? "" : ".");
            if (ls_settings_has(settings, key))
                return LS_FAIL(trial->ctx, LS_EUSE,
                               "%s has no effect: with model.segment=%lld nothing before a segment "
                               "is remembered, and mixer.segment cuts none",
                               key, (long long)segment);
        }
    }
    return LS_OK;
}

/* A file with rows in place of tokens is of blocks alone: without embedding, head and last norm. */
static ls_status take_rows_model(ls_comparer *comparer) {
    static const char *const words[][2] = {{"model.embedding", "false"},
                                           {"model.head", "none"},
                                           {"model.vocabulary", "1"},
                                           {"model.last_norm", "false"}};
    const ls_trial *trial = comparer->own;
    bool rows = false;
    for (size_t i = 0; i < trial->file.count; i++)
        rows |= ls_trial_gives_rows(trial, trial->file.items[i].name);
    for (size_t i = 0; rows && i < sizeof words / sizeof words[0]; i++) {
        if (ls_settings_get(comparer->settings, words[i][0]) != NULL) continue;
        LS_TRY(ls_settings_put(trial->ctx, comparer->settings, words[i][0], words[i][1]));
        comparer->settings->items[comparer->settings->count - 1].optional = true;
    }
    return LS_OK;
}

static ls_status read(ls_comparer *comparer) {
    ls_trial *trial = comparer->own;
    *trial = (ls_trial){.ctx = comparer->ctx, .keys = comparer->keys};
    LS_TRY(ls_compare_needs_golden(comparer));
    LS_TRY(ls_naming_read(trial->ctx, trial->keys->names, ls_public_names_own, &trial->naming));
    LS_TRY(ls_safetensors_open(trial->ctx, trial->keys->golden, &trial->file));
    trial->file_open = true;
    LS_TRY(ls_trial_check_names(trial));
    LS_TRY(take_rows_model(comparer));
    LS_TRY(ls_fit_model(trial->ctx, comparer->settings, &trial->naming, &trial->file, "w.",
                        &comparer->sizes));
    LS_TRY(ls_model_config_read(trial->ctx, comparer->settings, &trial->config));
    return check_memory(trial, comparer->settings);
}

static ls_status make_model(ls_comparer *comparer) {
    ls_trial *trial = comparer->own;
    LS_TRY(ls_fit_model_mixers(trial->ctx, comparer->settings, &trial->config, &trial->naming,
                               &trial->file, "w.", &comparer->sizes));
    LS_TRY(ls_model_plan(trial->ctx, &trial->config, comparer->dtype, true, &trial->model));
    trial->mixers = ls_public_mixers(trial->ctx, &trial->config);
    trial->set = ls_new(trial->ctx, trial->model->store->count + 1, sizeof *trial->set);
    trial->moving = ls_new(trial->ctx, trial->file.count + 1, sizeof *trial->moving);
    const bool lacks = trial->mixers == NULL || trial->set == NULL || trial->moving == NULL;
    return lacks ? LS_ENOMEM : LS_OK;
}

static bool has_auxiliary(const ls_trial *trial) {
    for (size_t i = 0; i < trial->file.count; i++) {
        const char *name = trial->file.items[i].name;
        const char *output = ls_name_after(name, "out.");
        ls_trial_output out;
        if (ls_name_after(name, "grad.aux.") != NULL) return true;
        if (output != NULL && ls_trial_output_of(trial, output, &out) == LS_OK &&
            out.kind == LS_OUTPUT_AUXILIARY)
            return true;
    }
    return false;
}

static ls_status run(ls_comparer *comparer, ls_comparison *out) {
    ls_trial *trial = comparer->own;
    trial->comparison = out;
    LS_TRY(make_model(comparer));
    LS_TRY(ls_trial_read_inputs(trial));
    trial->given = trial->T;
    LS_TRY(ls_trial_cut_pieces(trial));
    LS_TRY(ls_trial_load_weights(trial, false));
    LS_TRY(ls_trial_make_series(trial));
    LS_TRY(ls_comparison_scale(trial->ctx, &trial->file, out));
    LS_TRY(run_all(trial, false));
    if (has_auxiliary(trial)) LS_TRY(run_all(trial, true));
    return ls_trial_compare_buffers(trial);
}

static void clear(ls_comparer *comparer) {
    ls_trial *trial = comparer->own;
    ls_ctx *ctx = comparer->ctx;
    for (size_t i = 0; trial->moving != NULL && i < trial->file.count; i++)
        ls_free(ctx, trial->moving[i]);
    for (int i = 0; i < LS_OUTPUT_SERIES; i++) {
        ls_free(ctx, trial->series[i].value);
        ls_free(ctx, trial->series[i].cot);
    }
    ls_free(ctx, trial->moving);
    ls_free(ctx, trial->set);
    ls_free(ctx, trial->mixers);
    ls_free(ctx, trial->tokens);
    ls_free(ctx, trial->source);
    ls_free(ctx, trial->mask);
    ls_free(ctx, trial->source_mask);
    ls_free(ctx, trial->types);
    ls_free(ctx, trial->x);
    ls_free(ctx, trial->x_grad);
    ls_free(ctx, trial->first);
    ls_free(ctx, trial->length);
    ls_naming_clear(ctx, &trial->naming);
    if (trial->file_open) ls_safetensors_close(ctx, &trial->file);
    ls_model_free(trial->model);
    ls_model_config_clear(ctx, &trial->config);
}

const ls_comparer_type ls_model_comparer = {
    .name = "model",
    .size = sizeof(ls_trial),
    .read = read,
    .run = run,
    .clear = clear,
};
