/* longshot inspect SUBJECT: the registries, or what a run, a study, a corpus or a file holds. */
#include <string.h>

#include "api/catalogue.h"
#include "base/file.h"
#include "cli/cli.h"
#include "data/stats.h"
#include "model/family.h"
#include "study/study.h"
#include "train/describe.h"

typedef void printer(ls_ctx *ctx, const json_t *json, ls_text *out);

static ls_status print_json(ls_cli *cli, json_t *json, printer *print) {
    if (cli->json) return ls_cli_print_json(cli, json);
    ls_text text = {0};
    print(&cli->ctx, json, &text);
    json_decref(json);
    return ls_cli_print_text(cli, &text);
}

/* Texts: a folder in which nothing was trained, or a file that is named as one. */
static bool is_corpus(const char *path) {
    static const char *const own[] = {"config.yaml",   "config.json",       "checkpoints",
                                      "manifest.json", "model.safetensors", "weights.safetensors",
                                      "reach.json",    "results.json"};
    static const char *const endings[] = {".txt", ".text", ".md", ".jsonl"};
    const size_t length = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const size_t part = strlen(endings[i]);
        if (length > part && strcmp(path + length - part, endings[i]) == 0) return true;
    }
    if (!ls_path_is_folder(path) || ls_family_is_at(path)) return false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        char inside[4096];
        ls_ctx quiet = {0};
        if (ls_path_join(&quiet, inside, sizeof inside, path, own[i]) != LS_OK ||
            ls_path_exists(inside))
            return false;
    }
    return true;
}

static ls_status inspect_corpus(ls_cli *cli, const char *path) {
    ls_data_settings settings;
    ls_dataset data;
    ls_data_stats stats;
    ls_text text = {0};
    LS_TRY(ls_settings_put(&cli->ctx, &cli->settings, "data.corpus", path));
    LS_TRY(ls_options_default(&cli->ctx, &ls_data_options, &settings));
    LS_TRY(ls_data_read(&cli->ctx, &cli->settings, NULL, &settings));
    LS_TRY(ls_data_open(&cli->ctx, &settings, cli->common.cache, NULL, &data));
    ls_status status = ls_data_stats_take(&cli->ctx, &data, &settings, &stats);
    if (status == LS_OK && !cli->json) ls_data_stats_print(&cli->ctx, &stats, &text);
    if (status == LS_OK)
        status = cli->json ? ls_cli_print_json(cli, ls_data_stats_json(&stats))
                           : ls_cli_print_text(cli, &text);
    ls_data_close(&cli->ctx, &data);
    return status;
}

static ls_status fail_unknown(ls_ctx *ctx, const char *subject) {
    char nearest[64];
    ls_catalogue_nearest(subject, nearest, sizeof nearest);
    if (nearest[0] != '\0')
        return LS_FAIL(ctx, LS_EUSE, "there is no %s to inspect: did you mean %s?", subject,
                       nearest);
    return LS_FAIL(ctx, LS_EUSE,
                   "%s is neither a list (mixers, positions, extensions, presets, tasks, suites, "
                   "operations), nor the name of something in one, nor a folder or file",
                   subject);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE,
                       "say what to inspect: mixers, positions, extensions, presets, tasks, "
                       "suites, operations, the name of one, a run folder, a study, a corpus, a "
                       ".safetensors or a .gguf file");
    const char *subject = cli->words[0];
    json_t *json = ls_catalogue(subject);
    if (json == NULL) json = ls_catalogue_named(ctx, subject);
    if (json != NULL) return print_json(cli, json, ls_catalogue_print);
    if (!ls_path_exists(subject)) return fail_unknown(ctx, subject);
    const bool study = ls_study_is_at(subject);
    if (!study && is_corpus(subject)) return inspect_corpus(cli, subject);
    LS_TRY(study                        ? ls_study_describe(ctx, subject, &json)
           : ls_path_is_folder(subject) ? ls_describe_run(ctx, subject, &json)
                                        : ls_describe_file(ctx, subject, &json));
    return print_json(cli, json, study ? ls_study_describe_print : ls_describe_print);
}

const ls_verb ls_verb_inspect = {
    .name = "inspect",
    .place = 11,
    .summary = "List what there is to choose from, or tell what a run, study, corpus or file holds",
    .usage = "mixers|positions|extensions|presets|tasks|suites|operations|NAME|PATH [--json]",
    .about =
        "With the name of a mixer, a suite or another entry: its keys with what they may be. Of\n"
        "a position method that rotates also the score that is expected at each distance.\n"
        "With a run folder: its settings, its checkpoints and whether each is intact. With a\n"
        "public checkpoint (a folder with config.json, a .gguf file): what it means in our\n"
        "settings. With a study file or folder: its arms. With a folder of texts, or a .txt,\n"
        ".md or .jsonl file: documents and tokens. With another file: its tensors with types\n"
        "and shapes.\n",
    .run = run,
};
