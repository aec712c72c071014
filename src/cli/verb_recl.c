/* longshot recl: relative effective context length, from files that `longshot eval` wrote. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "eval/recl_files.h"

/* MODEL:CONTEXT:FILE */
static ls_status read_word(ls_ctx *ctx, const char *word, ls_recl_file *out) {
    const char *first = strchr(word, ':'), *second = first == NULL ? NULL : strchr(first + 1, ':');
    char number[32] = "";
    if (second != NULL && second - first <= 31)
        snprintf(number, sizeof number, "%.*s", (int)(second - first - 1), first + 1);
    if (second == NULL || first == word || first - word >= LS_RECL_NAME_BYTES ||
        second[1] == '\0' || !ls_parse_int(number, &out->context) || out->context < 1)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is not MODEL:CONTEXT:FILE", word);
    snprintf(out->model, sizeof out->model, "%.*s", (int)(first - word), word);
    out->path = second + 1;
    return LS_OK;
}

static ls_status print_results(ls_cli *cli, json_t *results) {
    if (cli->json) return ls_cli_print_json(cli, results);
    ls_text text = {0};
    ls_recl_print(&cli->ctx, results, &text);
    json_decref(results);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    ls_recl_settings settings;
    json_t *results = NULL;
    LS_TRY(ls_cli_read(cli, "", &ls_recl_options, &settings));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "say what was measured: longshot recl xl:128:A xl:256:B, with files of "
                       "`longshot eval`");
    ls_recl_file *files = ls_new(ctx, cli->word_count, sizeof *files);
    ls_status status = files == NULL ? LS_ENOMEM : LS_OK;
    for (size_t i = 0; i < cli->word_count && status == LS_OK; i++)
        status = read_word(ctx, cli->words[i], &files[i]);
    if (status == LS_OK) status = ls_recl_run(ctx, files, cli->word_count, &settings, &results);
    ls_free(ctx, files);
    return status == LS_OK ? print_results(cli, results) : status;
}

static const ls_section sections[] = {{"", &ls_recl_options}, {0}};
const ls_verb ls_verb_recl = {
    .name = "recl",
    .place = 5,
    .summary = "Compare how much context models of a group make use of",
    .usage = "MODEL:CONTEXT:FILE ... [share=0.1,0.5,1] [least=0.01]",
    .about =
        "Relative effective context length (arXiv 1901.02860, appendix C), from files that\n"
        "`longshot eval RUN eval.losses=FILE` wrote, one for each model and length of context:\n"
        "the longest context up to which each longer one makes the hardest tokens easier than\n"
        "the best model of the group does with less. How a context is limited is the\n"
        "evaluation's: mixer.same_length=true mixer.memory=C, extend=window, or the length of\n"
        "slide. docs/protocols.md has the definition.\n",
    .sections = sections,
    .run = run,
};
