/* longshot train: a recipe becomes a run folder; the same command goes on where it stopped. */
#include <inttypes.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "api/trained.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/task_keys.h"
#include "data/data.h"
#include "tensor/engine/kernel.h"
#include "tensor/engine/machine.h"
#include "train/checkpoint.h"
#include "train/train.h"

enum { PATH_BYTES = 4096, CONFIG_MOST = 1 << 20 };

typedef struct train_keys {
    char out[LS_OPTION_TEXT_BYTES], task[LS_OPTION_TEXT_BYTES];
} train_keys;
static const ls_option keys[] = {
    {"out", LS_OPTION_TEXT, offsetof(train_keys, out), "", 0, 0, NULL,
     "Run folder; empty: runs/MIXER-POSITION, after the task if there is one."},
    {"task", LS_OPTION_TEXT, offsetof(train_keys, task), "", 0, 0, NULL,
     "Train on a task, whose options are task.KEY, instead of a corpus: `longshot inspect tasks`."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, train_keys);

typedef struct preset_key {
    char preset[LS_OPTION_TEXT_BYTES];
} preset_key;
static const ls_option preset_keys[] = {
    {"preset", LS_OPTION_TEXT, offsetof(preset_key, preset), "", 0, 0, NULL,
     "Start from a named model: see `longshot inspect presets`."},
};
static const ls_option_table preset_table = LS_OPTIONS(preset_keys, preset_key);

/* Everything a run is made of. */
typedef struct training {
    ls_cli *cli;
    train_keys keys;
    ls_data_settings data_settings;
    ls_task task; /* type NULL: a corpus */
    ls_train_settings train;
    ls_model_config config;
    ls_dataset data;
    ls_model *model;
    ls_loader *loader;       /* of a corpus */
    ls_task_batches batches; /* of a task */
    ls_text yaml;            /* config.yaml */
} training;

static ls_status put_number(ls_cli *cli, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ls_settings_put(&cli->ctx, &cli->settings, key, text);
}

/* Without a recipe and without a word about the model: minutes on two cores. A task has its own
 * length. */
static ls_status take_small_default(ls_cli *cli, bool corpus) {
    static const char *const words[][2] = {{"model.preset", "tiny"},
                                           {"train.batch", "8"},
                                           {"train.lr", "2e-3"},
                                           {"model.length", "256"}};
    const size_t count = sizeof words / sizeof words[0] - !corpus;
    for (size_t i = 0; i < cli->settings.count; i++)
        if (cli->recipe_read || strncmp(cli->settings.items[i].key, "model.", 6) == 0) return LS_OK;
    for (size_t i = 0; i < count; i++)
        if (ls_settings_get(&cli->settings, words[i][0]) == NULL)
            LS_TRY(ls_settings_put(&cli->ctx, &cli->settings, words[i][0], words[i][1]));
    return LS_OK;
}

/* runs/MIXER-POSITION, with all mixers of a hybrid and after the task. */
static void name_folder(training *run) {
    char *out = run->keys.out;
    size_t used = (size_t)snprintf(out, sizeof run->keys.out, "runs/%s%s",
                                   run->task.type == NULL ? "" : run->task.type->name,
                                   run->task.type == NULL ? "" : "-");
    for (int i = 0; i < run->config.mixers && used < 400; i++)
        used += (size_t)snprintf(out + used, sizeof run->keys.out - used, "%s%.24s",
                                 i == 0 ? "" : "+", run->config.mixer[i].name);
    snprintf(out + used, sizeof run->keys.out - used, "-%.64s", run->config.position.type->name);
}

/* All settings are read and checked before any data are touched. */
static ls_status read_settings(training *run) {
    ls_cli *cli = run->cli;
    ls_ctx *ctx = &cli->ctx;
    LS_TRY(ls_cli_read(cli, "", &key_table, &run->keys));
    LS_TRY(ls_task_read(ctx, &cli->settings, &run->task));
    LS_TRY(take_small_default(cli, run->task.type == NULL));
    if (run->task.type != NULL) LS_TRY(ls_task_settle(ctx, &run->task, &cli->settings));
    LS_TRY(ls_cli_read(cli, "data", &ls_data_options, &run->data_settings));
    LS_TRY(ls_model_config_read(ctx, &cli->settings, &run->config));
    if (ls_settings_get(&cli->settings, "train.length") == NULL)
        LS_TRY(put_number(cli, "train.length", run->config.model.length));
    if (ls_settings_get(&cli->settings, "train.seed") == NULL)
        LS_TRY(put_number(cli, "train.seed", cli->common.seed));
    LS_TRY(ls_cli_read(cli, "train", &ls_train_options, &run->train));
    LS_TRY(ls_cli_finish_settings(cli));
    if (run->config.position.extensions > 0)
        return LS_FAIL(ctx, LS_EUSE, "extend acts at test time: give it to `longshot eval`");
    if (run->keys.out[0] == '\0') name_folder(run);
    return LS_OK;
}

static ls_status open_task(training *run, ls_train_source *out) {
    ls_ctx *ctx = &run->cli->ctx;
    LS_TRY(ls_task_open(ctx, &run->task, LS_TASK_TRAIN));
    run->batches = (ls_task_batches){.task = &run->task,
                                     .batch = run->train.batch,
                                     .length = run->train.length,
                                     .threads = run->cli->ctx.threads,
                                     .seed = (uint64_t)run->train.seed};
    if (run->config.encoder_layers > 0) {
        const size_t room = (size_t)(2 * run->train.batch * run->train.length);
        run->batches.whole = ls_new(ctx, room, sizeof *run->batches.whole);
        if (run->batches.whole == NULL) return LS_ENOMEM;
    }
    return ls_train_source_of_task(ctx, &run->batches, run->config.model.vocabulary, out);
}

/* The tokenizer decides the vocabulary, so the model is described again once it is known. */
static ls_status open_data(training *run) {
    ls_cli *cli = run->cli;
    ls_ctx *ctx = &cli->ctx;
    char cache[PATH_BYTES];
    LS_TRY(ls_cli_cache(cli, cache, sizeof cache));
    LS_TRY(ls_data_open(ctx, &run->data_settings, cache, &run->data));
    int64_t has = ls_tokenizer_vocabulary(run->data.tokenizer);
    if (run->config.model.vocabulary != 0 && run->config.model.vocabulary < has)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.vocabulary=%" PRId64 " is too small: the tokenizer has %" PRId64
                       " ids",
                       run->config.model.vocabulary, has);
    if (run->config.model.vocabulary == 0) {
        ls_model_config_clear(ctx, &run->config);
        LS_TRY(put_number(cli, "model.vocabulary", has));
        LS_TRY(ls_model_config_read(ctx, &cli->settings, &run->config));
    }
    return ls_data_loader(ctx, &run->data, &run->data_settings, run->train.batch, run->train.length,
                          (uint64_t)run->train.seed, &run->loader);
}

static ls_status print_config(training *run) {
    ls_ctx *ctx = &run->cli->ctx;
    ls_model_config_print(ctx, &run->config, true, &run->yaml);
    if (run->task.type != NULL)
        ls_task_print(ctx, &run->task, &run->yaml);
    else
        ls_settings_print(ctx, "data", &ls_data_options, &run->data_settings, &run->yaml);
    ls_settings_print(ctx, "train", &ls_train_options, &run->train, &run->yaml);
    return ls_text_status(&run->yaml);
}

static ls_status take_settings(ls_ctx *ctx, const ls_settings *settings, training *out) {
    LS_TRY(ls_task_read(ctx, settings, &out->task));
    LS_TRY(ls_model_config_read(ctx, settings, &out->config));
    LS_TRY(ls_options_default(ctx, &ls_data_options, &out->data_settings));
    LS_TRY(ls_settings_apply(ctx, settings, "data", &ls_data_options, &out->data_settings));
    LS_TRY(ls_options_default(ctx, &ls_train_options, &out->train));
    LS_TRY(ls_settings_apply(ctx, settings, "train", &ls_train_options, &out->train));
    return ls_settings_finish(ctx, settings, NULL);
}

/* The settings of a run as its config.yaml has them, with the defaults of what it does not name. */
static ls_status read_config(ls_ctx *ctx, const char *path, const ls_text *text, training *out) {
    ls_settings settings = {0};
    ls_status status = ls_settings_parse(ctx, &settings, text->bytes, text->length, path);
    if (status == LS_OK) status = take_settings(ctx, &settings, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

/* A run that an older version began does not name what came later. Where its settings are the same
 * with the defaults of that, it goes on as it was described. */
static ls_status keep_older_config(training *run) {
    ls_ctx *ctx = &run->cli->ctx;
    char path[PATH_BYTES];
    ls_text stored = {0};
    training older = {.cli = run->cli};
    LS_TRY(ls_path_join(ctx, path, sizeof path, run->keys.out, "config.yaml"));
    if (!ls_path_exists(path)) return LS_OK;
    ls_status status = ls_file_read(ctx, path, CONFIG_MOST, &stored);
    if (status == LS_OK) status = read_config(ctx, path, &stored, &older);
    if (status == LS_OK) status = print_config(&older);
    if (status == LS_OK && strcmp(older.yaml.bytes, run->yaml.bytes) == 0) {
        const ls_text ours = run->yaml;
        run->yaml = stored;
        stored = ours;
    }
    ls_task_clear(ctx, &older.task);
    ls_model_config_clear(ctx, &older.config);
    ls_text_clear(ctx, &older.yaml);
    ls_text_clear(ctx, &stored);
    if (status == LS_ENOMEM) return status;
    ctx->error = (ls_error){0}; /* what cannot be read is another run's: training will say so */
    return LS_OK;
}

/* What the run was computed with: for people; nothing reads it back. */
static ls_status write_environment(training *run) {
    ls_ctx *ctx = &run->cli->ctx;
    char path[PATH_BYTES];
    ls_machine machine;
    ls_machine_describe(&machine);
    LS_TRY(ls_path_join(ctx, path, sizeof path, run->keys.out, "env.json"));
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:s, s:s, s:I, s:s, s:s}", "longshot", LS_VERSION, "compiler",
        __VERSION__, "cpu", machine.name, "isa", ls_kernel_isa(ctx->isa), "threads", ctx->threads,
        "onednn", machine.onednn, "instructions", machine.instructions, "memory_bytes",
        (json_int_t)machine.memory_bytes, "system", machine.system, "release", machine.release);
    if (json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for %s", path);
    ls_status status = ls_json_write(ctx, path, json);
    json_decref(json);
    return status;
}

/* The run keeps its own copy of the tokenizer, so that the folder can be moved and read alone. */
static ls_status keep_tokenizer(training *run) {
    ls_ctx *ctx = &run->cli->ctx;
    char path[PATH_BYTES];
    if (run->task.type != NULL) return LS_OK;
    LS_TRY(ls_path_join(ctx, path, sizeof path, run->keys.out, "tokenizer"));
    if (ls_path_is_folder(path)) return LS_OK;
    LS_TRY(ls_folder_make(ctx, path));
    return ls_tokenizer_save(ctx, run->data.tokenizer, path);
}

static void show_progress(void *user, const ls_metrics_row *row, const char *line) {
    (void)row;
    ls_cli_live(((training *)user)->cli, line);
}

static ls_status print_result(training *run, const ls_train_result *result) {
    ls_cli *cli = run->cli;
    if (cli->json)
        return ls_cli_print_json(
            cli, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f}", "folder", run->keys.out,
                           "parameters", (json_int_t)ls_parameters_elements(run->model->store),
                           "resumed", (json_int_t)result->resumed, "step", (json_int_t)result->step,
                           "tokens", (json_int_t)result->tokens, "rejected",
                           (json_int_t)result->rejected, "loss", result->loss));
    ls_text text = {0};
    if (result->resumed >= result->step && result->step > 0)
        ls_text_printf(&cli->ctx, &text, "%s: all %" PRId64 " steps were done before\n",
                       run->keys.out, result->step);
    else
        ls_text_printf(&cli->ctx, &text, "%s: step %" PRId64 ", loss %.4f, %" PRId64 " tokens\n",
                       run->keys.out, result->step, result->loss, result->tokens);
    return ls_cli_print_text(cli, &text);
}

/* train.from: another run's weights, unless this one has a checkpoint of its own. */
static ls_status begin_with_weights(training *run) {
    ls_ctx *ctx = &run->cli->ctx;
    char folder[PATH_BYTES], own[PATH_BYTES];
    ls_trained other;
    int64_t step;
    if (run->train.from[0] == '\0') return LS_OK;
    LS_TRY(ls_path_join(ctx, folder, sizeof folder, run->keys.out, "checkpoints"));
    if (ls_checkpoint_find(ctx, folder, own, sizeof own, &step) == LS_OK) return LS_OK;
    ctx->error = (ls_error){0};
    ls_status status = ls_trained_find(ctx, run->train.from, &other);
    size_t missing = 0, all = run->model->store->count;
    if (status == LS_OK)
        status = ls_model_load(run->model, other.weights, run->train.from_part ? &missing : NULL);
    ls_trained_clear(&other);
    if (status == LS_OK && missing == all)
        return LS_FAIL(ctx, LS_EUSE, "%s has none of this model's weights", run->train.from);
    if (status == LS_OK && missing > 0)
        ls_say(ctx, "%zu of %zu tensors are not in %s: they are drawn", missing, all,
               run->train.from);
    return status;
}

static ls_status train(training *run) {
    ls_cli *cli = run->cli;
    ls_ctx *ctx = &cli->ctx;
    ls_train_result result = {0};
    ls_train_source source = {0};
    LS_TRY(read_settings(run));
    if (run->task.type != NULL)
        LS_TRY(open_task(run, &source));
    else
        LS_TRY(open_data(run));
    LS_TRY(print_config(run));
    LS_TRY(keep_older_config(run));
    LS_TRY(ls_model_new(ctx, &run->config, ls_train_dtype(&run->train), (uint64_t)run->train.seed,
                        true, &run->model));
    LS_TRY(begin_with_weights(run));
    if (run->task.type == NULL)
        ls_say(ctx, "%s: %" PRId64 " training tokens", run->keys.out,
               ls_token_file_tokens(run->data.train));
    LS_TRY(ls_folder_make(ctx, run->keys.out));
    LS_TRY(keep_tokenizer(run));
    LS_TRY(write_environment(run));
    ls_train_job job = {.folder = run->keys.out,
                        .config = run->yaml.bytes,
                        .settings = &run->train,
                        .source = source,
                        .stop = ls_cli_stop(),
                        .progress = show_progress,
                        .user = run};
    LS_TRY(ls_machine_peak(ctx, ls_train_dtype(&run->train), &job.peak));
    if (run->task.type != NULL)
        LS_TRY(ls_train_model_on(ctx, run->model, &job, &result));
    else
        LS_TRY(ls_train_model(ctx, run->model, run->loader, &job, &result));
    return print_result(run, &result);
}

static ls_status run_train(ls_cli *cli) {
    if (cli->word_count > 0)
        return LS_FAIL(&cli->ctx, LS_EUSE, "`%s` is neither key=value nor the one recipe",
                       cli->words[0]);
    training run = {.cli = cli};
    ls_status status = train(&run);
    ls_loader_free(&cli->ctx, run.loader);
    ls_model_free(run.model);
    ls_data_close(&cli->ctx, &run.data);
    ls_task_clear(&cli->ctx, &run.task);
    ls_free(&cli->ctx, run.batches.whole);
    ls_model_config_clear(&cli->ctx, &run.config);
    ls_text_clear(&cli->ctx, &run.yaml);
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
    .summary = "Train a model, or go on with a run that was cut",
    .usage = "[RECIPE.yaml] [key=value ...]",
    .about =
        "Without a recipe a small model is trained on the default corpus; with task=NAME on that\n"
        "task, at its own length unless train.length says another. The run folder gets\n"
        "config.yaml (all settings), env.json, metrics and checkpoints. The same command on\n"
        "an existing folder continues it; other settings are refused. SIGTERM, SIGINT and\n"
        "SIGUSR1 end the run after a checkpoint (exit code 75); a second SIGINT at once.\n",
    .sections = sections,
    .model_keys = true,
    .recipe = true,
    .computes = true,
    .run = run_train,
};
