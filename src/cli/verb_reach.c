/* longshot reach: how far a model reaches, within a time budget. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "reach/reach.h"

typedef struct reach_arithmetic {
    int dtype;
} reach_arithmetic;
#define FIELD(name) reach_arithmetic, name
static const ls_option keys[] = {
    LS_CHOICE("dtype", FIELD(dtype), "auto", "auto|" LS_CLI_DTYPES,
              "Arithmetic; auto: as the model was trained."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, reach_arithmetic);

static void show_job(void *user, const char *line) {
    ls_cli_live(user, line);
}

static ls_status print_finding(ls_cli *cli, const ls_reach *reach) {
    const json_t *state = reach->state;
    ls_text text = {0};
    if (cli->json)
        return ls_cli_print_json(cli, json_pack("{s:s, s:O, s:O}", "folder", reach->folder,
                                                "sentence", json_object_get(state, "sentence"),
                                                "finding", json_object_get(state, "finding")));
    ls_text_printf(&cli->ctx, &text, "%s\n\n%s/reach.html\n",
                   json_string_value(json_object_get(state, "sentence")), reach->folder);
    const size_t left = json_array_size(json_object_get(state, "left_out"));
    if (left > 0)
        ls_text_printf(&cli->ctx, &text,
                       "%zu measurements did not fit into the budget: the same command goes on.\n",
                       left);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    reach_arithmetic about;
    ls_reach_keys settings;
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    LS_TRY(ls_cli_read(cli, "", &ls_reach_options, &settings));
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which model: longshot reach runs/first");
    const ls_dtype type = about.dtype == 0 ? LS_F32 : ls_cli_dtype(about.dtype - 1);
    const ls_reach_request request = {.path = cli->words[0],
                                      .settings = &cli->settings,
                                      .keys = &settings,
                                      .type = about.dtype == 0 ? NULL : &type,
                                      .cache = cli->common.cache,
                                      .seed = (uint64_t)cli->common.seed};
    const ls_reach_hooks hooks = {
        .stop = ls_cli_stop(), .progress = cli->live ? show_job : NULL, .user = cli};
    ls_reach reach;
    ls_status status = ls_reach_open(ctx, &request, &reach);
    if (status == LS_OK) status = ls_cli_finish_settings(cli);
    if (status == LS_OK) status = ls_reach_run(&reach, &hooks);
    ls_cli_progress_end(cli);
    if (status == LS_OK) status = print_finding(cli, &reach);
    ls_reach_clear(&reach);
    return status;
}

static const ls_section sections[] = {
    {"", &key_table}, {"", &ls_reach_options}, {"data", &ls_data_options}, {0}};
const ls_verb ls_verb_reach = {
    .name = "reach",
    .place = 5,
    .summary = "Say how far a model reaches, on one page",
    .usage = "RUN|CHECKPOINT|FOLDER|FILE.gguf [budget=5m] [out=FOLDER] [key=value ...]",
    .about =
        "Finds the trained length, then measures within the budget: perplexity from half to\n"
        "sixteen times that length, loss by position, needles by depth and length, key-value\n"
        "pairs by place, attention resolution and what every head does, speed and memory; the\n"
        "loss, and needles with the best, with the test-time extensions that apply; LAMBADA where\n"
        "its file is given. Writes reach.json and reach.html, which opens with one sentence. The\n"
        "same command goes on with what the budget left out. docs/reach.md has the definitions.\n",
    .sections = sections,
    .orderly = true,
    .computes = true,
    .run = run,
};
