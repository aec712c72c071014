/* longshot help [VERB]; and the texts that the build installs. */
#include <string.h>

#include "cli/cli.h"

static ls_status run(ls_cli *cli) {
    static const struct {
        const char *flag;
        void (*write)(ls_ctx *ctx, ls_text *out);
    } texts[] = {{"--man", ls_manual_page},
                 {"--options", ls_manual_options},
                 {"--errors", ls_manual_errors},
                 {"--completion", ls_manual_completion}};
    ls_ctx *ctx = &cli->ctx;
    ls_text text = {0};
    LS_TRY(ls_cli_finish_settings(cli));
    const char *word = cli->word_count == 0 ? "" : cli->words[0];
    if (word[0] == '\0') {
        ls_help_program(ctx, &text);
        return ls_cli_print_text(cli, &text);
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) word = cli->verb->name;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcmp(word, texts[i].flag) == 0) {
            texts[i].write(ctx, &text);
            return ls_cli_print_text(cli, &text);
        }
    const ls_verb *verb;
    LS_TRY(ls_verb_find(ctx, word, &verb));
    ls_help_verb(ctx, verb, &text);
    return ls_cli_print_text(cli, &text);
}

const ls_verb ls_verb_help = {
    .name = "help",
    .place = 14,
    .summary = "Explain a verb and its keys",
    .usage = "[VERB | --man | --options | --errors | --completion]",
    .about = "Without a verb: the list of verbs. --man prints the manual page, --completion the\n"
             "completion for bash, --options and --errors the pages in docs/.\n",
    .run = run,
};
