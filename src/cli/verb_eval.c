/* longshot eval: loss of a trained model by protocol and length, by position, and its attention
 * resolution. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/cli.h"
#include "data/data.h"
#include "eval/eval.h"
#include "eval/task.h"
#include "train/trained.h"

enum { PATH_BYTES = 4096 };

typedef struct eval_keys {
    int dtype;
} eval_keys;
static const ls_option keys[] = {
    {"dtype", LS_OPTION_CHOICE, offsetof(eval_keys, dtype), "auto", 0, 0, "auto|" LS_CLI_DTYPES,
     "Arithmetic; auto: as the model was trained."},
};
static const ls_option_table key_table = LS_OPTIONS(keys, eval_keys);

/* The data of the run unless the command names others; always with the run's tokenizer. */
static ls_status open_data(ls_cli *cli, ls_trained *trained, ls_dataset *out) {
    ls_ctx *ctx = &cli->ctx;
    ls_data_settings settings;
    char tokenizer[PATH_BYTES];
    LS_TRY(ls_options_default(ctx, &ls_data_options, &settings));
    LS_TRY(ls_settings_apply(ctx, &trained->settings, "data", &ls_data_options, &settings));
    LS_TRY(ls_settings_apply(ctx, &cli->settings, "data", &ls_data_options, &settings));
    LS_TRY(ls_path_join(ctx, tokenizer, sizeof tokenizer, trained->folder, "tokenizer"));
    if (ls_path_is_folder(tokenizer))
        LS_TRY(ls_options_set(ctx, &ls_data_options, "data.", "tokenizer", tokenizer, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    return ls_data_open(ctx, &settings, cli->common.cache, out);
}

/* The task of the run, with what the command changes of it: more pairs, for example. */
static ls_status read_task(ls_cli *cli, const ls_trained *trained, ls_task *out) {
    ls_ctx *ctx = &cli->ctx;
    ls_settings merged = {0};
    ls_status status = LS_OK;
    const ls_settings *parts[] = {&trained->settings, &cli->settings};
    *out = (ls_task){0};
    for (size_t p = 0; p < 2; p++)
        for (size_t i = 0; i < parts[p]->count; i++) {
            ls_setting *item = &parts[p]->items[i];
            bool named = p == 0 && strcmp(item->key, "task") == 0;
            if (!named && strncmp(item->key, "task.", 5) != 0) continue;
            LS_TRY_GOTO(ls_settings_put(ctx, &merged, item->key, item->value));
            item->used = named || ls_settings_get(&trained->settings, "task") != NULL;
        }
    status = ls_task_read(ctx, &merged, out);
fail:
    ls_settings_clear(ctx, &merged);
    return status;
}

/* Every setting of the evaluation as it was used, so that a result tells how it came about. */
static json_t *settings_json(ls_ctx *ctx, const ls_eval_settings *settings) {
    json_t *json = json_object();
    for (size_t i = 0; i < ls_eval_options.count; i++) {
        const ls_option *option = &ls_eval_options.options[i];
        ls_text value = {0};
        ls_option_print(ctx, option, settings, &value);
        json_object_set_new(json, option->key, json_string(value.bytes == NULL ? "" : value.bytes));
        ls_text_clear(ctx, &value);
    }
    return json;
}

/* extend=NAME and extend.KEY=VALUE, in the order they were given. */
static json_t *extension_json(const ls_settings *settings) {
    json_t *json = json_object();
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].key, "extend") == 0 ||
            strncmp(settings->items[i].key, "extend.", 7) == 0)
            json_object_set_new(json, settings->items[i].key,
                                json_string(settings->items[i].value));
    return json;
}

/* The file's name tells protocols and extension with its options from others; what may not stand in
 * a name becomes an underscore. */
static void file_name(const ls_eval_settings *settings, const ls_settings *model, char *out,
                      size_t bytes) {
    char name[512];
    ls_eval_name(settings, name, sizeof name);
    size_t used = (size_t)snprintf(out, bytes, "%s", name);
    for (size_t i = 0; i < model->count && used < bytes; i++) {
        const ls_setting *item = &model->items[i];
        if (strcmp(item->key, "extend") == 0)
            used += (size_t)snprintf(out + used, bytes - used, "-%s", item->value);
        else if (strncmp(item->key, "extend.", 7) == 0)
            used += (size_t)snprintf(out + used, bytes - used, "-%s%s", item->key + 7, item->value);
    }
    for (char *at = out; *at != '\0'; at++) {
        if (*at == ',') *at = '+';
        if (strchr("/ \\:", *at) != NULL) *at = '_';
    }
}

static ls_status write_result(ls_cli *cli, const ls_trained *trained,
                              const ls_eval_settings *settings, const json_t *json) {
    ls_ctx *ctx = &cli->ctx;
    char folder[PATH_BYTES], path[PATH_BYTES], name[200];
    file_name(settings, &trained->settings, name, sizeof name);
    LS_TRY(ls_path_join(ctx, folder, sizeof folder, trained->folder, "eval"));
    LS_TRY(ls_folder_make(ctx, folder));
    if ((size_t)snprintf(path, sizeof path, "%s/%s.json", folder, name) >= sizeof path)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", folder);
    return ls_json_write(ctx, path, json);
}

static ls_status report(ls_cli *cli, const ls_trained *trained, const ls_eval_settings *settings,
                        const ls_eval_results *results) {
    ls_ctx *ctx = &cli->ctx;
    const char *corpus = ls_settings_get(&cli->settings, "data.corpus");
    if (corpus == NULL) corpus = ls_settings_get(&trained->settings, "data.corpus");
    json_t *json = ls_eval_results_json(results);
    if (json == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the result");
    json_object_set_new(json, "step", json_integer(trained->step));
    const char *task = ls_settings_get(&trained->settings, "task");
    if (task != NULL)
        json_object_set_new(json, "task", json_string(task));
    else
        json_object_set_new(json, "corpus", json_string(corpus == NULL ? "default" : corpus));
    json_object_set_new(json, "extension", extension_json(&trained->settings));
    json_object_set_new(json, "settings", settings_json(ctx, settings));
    ls_status status;
    LS_TRY_GOTO(write_result(cli, trained, settings, json));
    if (settings->losses[0] != '\0')
        LS_TRY_GOTO(ls_eval_losses_write(ctx, results, settings->losses));
    if (cli->json) return ls_cli_print_json(cli, json);
    ls_text text = {0};
    ls_eval_results_print(ctx, results, &text);
    status = ls_cli_print_text(cli, &text);
fail:
    json_decref(json);
    return status;
}

static void show_progress(void *user, const char *what, int64_t length, double share) {
    char line[128];
    snprintf(line, sizeof line, "%s at %lld tokens: %3.0f %%", what, (long long)length,
             100 * share);
    ls_cli_live(user, line);
}

static ls_status measure(ls_cli *cli, ls_trained *trained, const ls_eval_settings *settings,
                         const ls_task *task) {
    ls_ctx *ctx = &cli->ctx;
    ls_dataset data = {0};
    ls_eval_results results = {0};
    const ls_eval_hooks hooks = {
        .stop = ls_cli_stop(), .progress = cli->live ? show_progress : NULL, .user = cli};
    ls_status status;
    if (task->type != NULL) {
        LS_TRY_GOTO(ls_cli_finish_settings(cli));
        LS_TRY_GOTO(ls_eval_task(trained->model, task, (uint64_t)cli->common.seed, settings, &hooks,
                                 &results));
    } else {
        LS_TRY_GOTO(open_data(cli, trained, &data));
        LS_TRY_GOTO(
            ls_eval_run(trained->model, data.tokenizer, data.test, settings, &hooks, &results));
    }
    ls_cli_progress_end(cli);
    status = report(cli, trained, settings, &results);
fail:
    ls_eval_results_clear(ctx, &results);
    ls_data_close(ctx, &data);
    return status;
}

/* A task is its own protocol. */
static ls_status choose_task(ls_cli *cli, ls_eval_settings *settings) {
    const char *given = ls_settings_get(&cli->settings, "eval.protocol");
    if (given != NULL && strcmp(given, "task") != 0)
        return LS_FAIL(&cli->ctx, LS_EUSE,
                       "the run was trained on a task, which is its own protocol: leave "
                       "eval.protocol=%s out",
                       given);
    snprintf(settings->protocol, sizeof settings->protocol, "task");
    return LS_OK;
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    eval_keys about;
    ls_eval_settings settings;
    ls_trained trained;
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    LS_TRY(ls_cli_read(cli, "eval", &ls_eval_options, &settings));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which run: longshot eval RUN eval.lengths=256,512");
    const ls_dtype *type = about.dtype == 0 ? NULL : &(ls_dtype){ls_cli_dtype(about.dtype - 1)};
    LS_TRY(ls_trained_open(ctx, cli->words[0], &cli->settings, type, &trained));
    ls_task task = {0};
    ls_status status = read_task(cli, &trained, &task);
    if (status == LS_OK && task.type != NULL) status = choose_task(cli, &settings);
    if (status == LS_OK && task.type != NULL) status = ls_task_open(ctx, &task, LS_TASK_TEST);
    if (status == LS_OK) status = measure(cli, &trained, &settings, &task);
    ls_task_clear(ctx, &task);
    ls_trained_clear(&trained);
    return status;
}

static const ls_section sections[] = {{"", &key_table},
                                      {"eval", &ls_eval_options},
                                      {"data", &ls_data_options},
                                      {"task", &ls_task_options},
                                      {0}};
const ls_verb ls_verb_eval = {
    .name = "eval",
    .summary = "Measure loss by protocol and length, or a task's answers",
    .usage = "RUN|CHECKPOINT [eval.protocol=nonoverlap,slide] [eval.lengths=256,512,1024] "
             "[extend=NAME extend.KEY=VALUE] [key=value ...]",
    .about =
        "Perplexity on the test documents under named protocols, each with its excess over a\n"
        "loss that stays flat past the trained length; loss by position; attention resolution.\n"
        "A run trained on a task is tested on it: the share of answers that are right at each\n"
        "length; task.KEY may change the task, seed= draws other samples.\n"
        "docs/protocols.md says what each number means. Also written to eval/ in the run folder,\n"
        "under a name made of the protocols and the extension.\n",
    .sections = sections,
    .model_keys = true,
    .computes = true,
    .run = run,
};
