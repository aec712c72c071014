/* A whole model against reference values: weights under the names of public code, pieces of a text
 * one after the other with what is carried between them, outputs, losses, states and gradients. */
#include "cli/apply_model.h"

#include "cli/apply.h"

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

static ls_status make_model(ls_trial *trial) {
    const ls_model_config *config = &trial->config;
    LS_TRY(ls_model_config_read(trial->ctx, &trial->cli->settings, &trial->config));
    LS_TRY(ls_cli_finish_settings(trial->cli));
    LS_TRY(
        ls_model_plan(trial->ctx, config, ls_cli_dtype(trial->keys->dtype), true, &trial->model));
    trial->mixers = ls_new(trial->ctx, (size_t)(config->layers + config->encoder_layers),
                           sizeof *trial->mixers);
    trial->set = ls_new(trial->ctx, trial->model->store->count + 1, sizeof *trial->set);
    trial->moving = ls_new(trial->ctx, trial->file.count + 1, sizeof *trial->moving);
    if (trial->mixers == NULL || trial->set == NULL || trial->moving == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < config->layers; i++) trial->mixers[i] = ls_model_mixer(config, i);
    for (int64_t i = 0; i < config->encoder_layers; i++)
        trial->mixers[config->layers + i] = ls_model_encoder_mixer(config, i);
    return LS_OK;
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

static ls_status apply(ls_trial *trial) {
    const ls_apply_keys *keys = trial->keys;
    if (keys->golden[0] == '\0')
        return LS_FAIL(trial->ctx, LS_EUSE,
                       "apply model compares with reference values: give golden=");
    if (keys->mixer[0] != '\0' || keys->position[0] != '\0')
        return LS_FAIL(trial->ctx, LS_EUSE, "a model's are model.mixer= and model.position=");
    LS_TRY(ls_naming_read(trial->ctx, keys->names, &trial->naming));
    LS_TRY(ls_safetensors_open(trial->ctx, keys->golden, &trial->file));
    trial->file_open = true;
    LS_TRY(ls_trial_check_names(trial));
    LS_TRY(make_model(trial));
    LS_TRY(ls_trial_read_inputs(trial));
    trial->given = trial->T;
    LS_TRY(ls_trial_cut_pieces(trial));
    LS_TRY(ls_trial_load_weights(trial, false));
    LS_TRY(ls_trial_make_series(trial));
    LS_TRY(ls_comparison_scale(trial->ctx, &trial->file, &trial->comparison));
    LS_TRY(run_all(trial, false));
    if (has_auxiliary(trial)) LS_TRY(run_all(trial, true));
    return ls_comparison_print(trial->cli, &trial->comparison);
}

ls_status ls_apply_model(ls_cli *cli, const ls_apply_keys *keys) {
    ls_trial trial = {.cli = cli, .ctx = &cli->ctx, .keys = keys};
    ls_status status = apply(&trial);
    for (size_t i = 0; trial.moving != NULL && i < trial.file.count; i++)
        ls_free(trial.ctx, trial.moving[i]);
    for (int i = 0; i < LS_OUTPUT_SERIES; i++) {
        ls_free(trial.ctx, trial.series[i].value);
        ls_free(trial.ctx, trial.series[i].cot);
    }
    json_decref(trial.comparison.rows);
    ls_free(trial.ctx, trial.moving);
    ls_free(trial.ctx, trial.set);
    ls_free(trial.ctx, trial.mixers);
    ls_free(trial.ctx, trial.tokens);
    ls_free(trial.ctx, trial.source);
    ls_free(trial.ctx, trial.first);
    ls_free(trial.ctx, trial.length);
    ls_naming_clear(trial.ctx, &trial.naming);
    if (trial.file_open) ls_safetensors_close(trial.ctx, &trial.file);
    ls_model_free(trial.model);
    ls_model_config_clear(trial.ctx, &trial.config);
    return status;
}
