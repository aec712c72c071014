/* longshot train: a recipe becomes a run folder; the same command goes on where it stopped. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cli.h"
#include "study/study.h"
#include "train/training.h"

typedef struct train_keys {
    char out[LS_OPTION_TEXT_BYTES], task[LS_OPTION_TEXT_BYTES];
    bool check;
} train_keys;
#define FIELD(name) train_keys, name
static const ls_option keys[] = {
    LS_TEXT("out", FIELD(out), "",
            "Run folder; empty: runs/MIXER-POSITION, after the task if there is one."),
    LS_TEXT("task", FIELD(task), "",
            "Task to train on instead of a corpus, with its options as task.KEY: `longshot "
            "inspect tasks`."),
    LS_BOOL("check", FIELD(check), "false",
            "Whether to say parameters, memory and tokens alone, without training."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, train_keys);

typedef struct preset_key {
    char preset[LS_OPTION_TEXT_BYTES];
} preset_key;
#define PRESET(name) preset_key, name
static const ls_option preset_keys[] = {
    LS_TEXT("preset", PRESET(preset), "", "Named model to start from: `longshot inspect presets`."),
};
static const ls_option_table preset_table = LS_OPTIONS(preset_keys, preset_key);

static void show_progress(void *user, const ls_metrics_row *row, const char *line) {
    (void)row;
    ls_cli_live(user, line);
}

static ls_status print_result(ls_cli *cli, const ls_training *training,
                              const ls_train_result *result) {
    const char *folder = training->folder;
    if (cli->json) return ls_cli_print_json(cli, ls_training_json(training, result));
    ls_text text = {0};
    if (result->resumed >= result->step && result->step > 0)
        ls_text_printf(&cli->ctx, &text, "%s: all %" PRId64 " steps were done before\n", folder,
                       result->step);
    else
        ls_text_printf(&cli->ctx, &text, "%s: step %" PRId64 ", loss %.4f, %" PRId64 " tokens\n",
                       folder, result->step, result->loss, result->tokens);
    if (result->best_step > 0)
        ls_text_printf(&cli->ctx, &text, "lowest validation loss %.4f at step %" PRId64 "\n",
                       result->best_loss, result->best_step);
    return ls_cli_print_text(cli, &text);
}

static json_t *cost_json(const ls_training_forecast *said) {
    const ls_training_cost *cost = &said->alone;
    json_t *all = json_pack("{s:I, s:I, s:I, s:I}", "parameters", (json_int_t)cost->parameters,
                            "trained", (json_int_t)cost->trained, "tokens",
                            (json_int_t)cost->tokens, "bytes", (json_int_t)cost->bytes);
    json_t *list = said->counts > 0 ? json_array() : NULL;
    for (int i = 0; i < said->counts; i++)
        json_array_append_new(list, json_pack("{s:i, s:I, s:I}", "ranks", 2 << i, "bytes",
                                              (json_int_t)said->bytes[i], "sent",
                                              (json_int_t)said->sent[i]));
    if (cost->layers > 0) {
        json_object_set_new(all, "layers", json_integer((json_int_t)cost->layers));
        json_object_set_new(all, "layers_fp8", json_integer((json_int_t)cost->layers_fp8));
    }
    if (list != NULL) json_object_set_new(all, "ranks", list);
    return all;
}

static ls_status check(ls_cli *cli, const ls_training_request *request) {
    ls_training_forecast said;
    ls_text text = {0};
    if (request->ranks->rank > 0) return LS_OK; /* rank 0 speaks */
    LS_TRY(ls_training_foresee(&cli->ctx, request, &said));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->json) return ls_cli_print_json(cli, cost_json(&said));
    ls_text_printf(&cli->ctx, &text,
                   "%" PRId64 " parameters, %" PRId64 " of them trained; %" PRId64
                   " tokens; at most %.1f MB at one time%s\n",
                   said.alone.parameters, said.alone.trained, said.alone.tokens,
                   1e-6 * (double)said.alone.bytes,
                   cli->ctx.device == NULL ? "" : ", on the device and beside it");
    if (said.alone.layers > 0)
        ls_text_printf(&cli->ctx, &text,
                       "%" PRId64 " of %" PRId64
                       " linear layers are multiplied in fp8, the others and the output "
                       "projection in bf16\n",
                       said.alone.layers_fp8, said.alone.layers);
    for (int i = 0; i < said.counts; i++)
        ls_text_printf(&cli->ctx, &text,
                       "on %d ranks at most %.1f MB each, %.3g MB sent in a step\n", 2 << i,
                       1e-6 * (double)said.bytes[i], 1e-6 * (double)said.sent[i]);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    train_keys about;
    if (cli->word_count > 0)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is neither key=value nor the one recipe", cli->words[0]);
    char sweep[LS_OPTION_TEXT_BYTES];
    if (ls_study_sweep_name(&cli->settings, sweep, sizeof sweep))
        return cli->ranks.size > 1 ? LS_FAIL(ctx, LS_EUSE,
                                             "-m is for one process: a sweep starts "
                                             "its own")
                                   : ls_cli_run_study(cli, sweep);
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    if (about.out[0] == '\0' && cli->folder != NULL)
        snprintf(about.out, sizeof about.out, "%s", cli->folder);
    const ls_training_request request = {.settings = &cli->settings,
                                         .folder = about.out,
                                         .resolved = cli->folder != NULL,
                                         .cache = cli->common.cache,
                                         .seed = cli->common.seed,
                                         .ranks = &cli->ranks};
    const ls_training_hooks hooks = {.stop = ls_cli_stop(), .progress = show_progress, .user = cli};
    ls_training training;
    ls_train_result result;
    if (about.check) return check(cli, &request);
    ls_status status = ls_training_read(ctx, &request, &training);
    if (status == LS_OK) status = ls_cli_finish_settings(cli);
    if (status == LS_OK) status = ls_training_run(&training, &hooks, &result);
    if (status == LS_OK && cli->ranks.rank == 0) status = print_result(cli, &training, &result);
    ls_training_clear(&training);
    return status;
}

static const ls_section sections[] = {{"", &key_table},
                                      {"model", &preset_table},
                                      {"model", &ls_model_options},
                                      {"data", &ls_data_options},
                                      {"task", &ls_task_options},
                                      {"train", &ls_train_options},
                                      {0}};
const ls_verb ls_verb_train = {
    .name = "train",
    .place = 3,
    .summary = "Train a model, or go on with a run that was cut",
    .usage = "[RECIPE.yaml|RUN] [key=value ...] [-m KEY=A,B ...]",
    .about =
        "Without a recipe a small model is trained on the default corpus; with task=NAME on that\n"
        "task, at its own length unless train.length says another. The run folder gets\n"
        "config.yaml (all settings), env.json, metrics and checkpoints. The same command on\n"
        "an existing folder continues it; other settings are refused. `longshot train RUN` goes on\n"
        "with a run by its folder, also to more steps (train.steps=N) where its learning rate has\n"
        "not begun to fall. -m KEY=A,B trains with each value, and with several each combination,\n"
        "as a study: runs/sweep-KEY (docs/studies.md). SIGTERM, SIGINT and\n"
        "SIGUSR1 end the run after a checkpoint (exit code 75); a second SIGINT at once. A run whose\n"
        "last steps the guard rejected ends with exit code 3.\n",
    .sections = sections,
    .model_keys = true,
    .recipe = true,
    .kept_recipe = "config.yaml",
    .sweeps = true,
    .orderly = true,
    .computes = true,
    .ranks = true,
    .run = run,
};
