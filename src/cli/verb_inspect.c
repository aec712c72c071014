/* longshot inspect SUBJECT: the registries, or what a run folder or a file holds. */
#include "api/catalogue.h"
#include "base/file.h"
#include "cli/cli.h"
#include "train/describe.h"

static ls_status print_json(ls_cli *cli, json_t *json,
                            void (*print)(ls_ctx *ctx, const json_t *json, ls_text *out)) {
    if (cli->json) return ls_cli_print_json(cli, json);
    ls_text text = {0};
    print(&cli->ctx, json, &text);
    json_decref(json);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE,
                       "say what to inspect: mixers, positions, extensions, presets, tasks, "
                       "suites, operations, a run folder, a .safetensors or a .gguf file");
    const char *subject = cli->words[0];
    json_t *json = ls_catalogue(subject);
    if (json != NULL) return print_json(cli, json, ls_catalogue_print);
    if (!ls_path_exists(subject))
        return LS_FAIL(ctx, LS_EUSE,
                       "%s is neither a list (mixers, positions, extensions, presets, tasks, "
                       "suites, operations) nor a folder or file",
                       subject);
    LS_TRY(ls_path_is_folder(subject) ? ls_describe_run(ctx, subject, &json)
                                      : ls_describe_file(ctx, subject, &json));
    return print_json(cli, json, ls_describe_print);
}

const ls_verb ls_verb_inspect = {
    .name = "inspect",
    .place = 11,
    .summary = "List what there is to choose from, or tell what a run or a file holds",
    .usage = "mixers|positions|extensions|presets|tasks|suites|operations|FOLDER|FILE [--json]",
    .about = "With a run folder: its settings, its checkpoints and whether each is intact. With a\n"
             "public checkpoint (a folder with config.json, a .gguf file): what it means in our\n"
             "settings. With another file: its tensors with types and shapes.\n",
    .run = run,
};
