/* longshot report: the page of a study or suite, from its folder alone; the tables of figures. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "report/report.h"

typedef struct keys {
    int to;
    char page[LS_OPTION_TEXT_BYTES];
    bool check;
} keys;

enum { TO_PAGE, TO_LATEX, TO_MARKDOWN };

#define FIELD(name) keys, name
static const ls_option options[] = {
    LS_CHOICE("to", FIELD(to), "page", "page|latex|markdown",
              "What is made: report.html and results.csv in the folder; or tables for a paper, "
              "which are printed."),
    LS_TEXT(
        "page", FIELD(page), "",
        "Markdown page whose tables, charts and numbers are made from the results; empty: none.",
        .needs = "to=markdown"),
    LS_BOOL("check", FIELD(check), "false",
            "Write nothing; exit code 1 where the page is not what the results give.",
            .needs = "page"),
};
static const ls_option_table table_of_options = LS_OPTIONS(options, keys);

static ls_status write_page(ls_cli *cli, const char *folder) {
    bool table;
    LS_TRY(ls_report_write(&cli->ctx, folder, &table));
    ls_text text = {0};
    ls_text_printf(&cli->ctx, &text, "%s/report.html\n", folder);
    if (table) ls_text_printf(&cli->ctx, &text, "%s/results.csv\n", folder);
    return ls_cli_print_text(cli, &text);
}

static bool is_figures(const char *word) {
    const size_t length = strlen(word);
    return length > 5 && strcmp(word + length - 5, ".json") == 0 && !ls_path_is_folder(word);
}

/* Figures of `longshot bench`, from its files. */
static ls_status print_figures(ls_cli *cli, const keys *chosen) {
    ls_text text = {0};
    if (chosen->to == TO_PAGE)
        return LS_FAIL(&cli->ctx, LS_EUSE,
                       "figures of `longshot bench` become tables: add to=markdown or to=latex");
    if (chosen->page[0] != '\0')
        return ls_report_figures_page(&cli->ctx, cli->words, cli->word_count, chosen->page,
                                      chosen->check);
    ls_status status =
        ls_report_figures(&cli->ctx, cli->words, cli->word_count, chosen->to == TO_LATEX, &text);
    if (status == LS_OK) return ls_cli_print_text(cli, &text);
    ls_text_clear(&cli->ctx, &text);
    return status;
}

static ls_status run(ls_cli *cli) {
    keys chosen;
    LS_TRY(ls_cli_read(cli, "", &table_of_options, &chosen));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count > 0 && is_figures(cli->words[0])) return print_figures(cli, &chosen);
    if (cli->word_count != 1)
        return LS_FAIL(&cli->ctx, LS_EUSE, "say which study or suite: longshot report runs/quick");
    if (chosen.to == TO_PAGE) return write_page(cli, cli->words[0]);
    if (chosen.page[0] != '\0')
        return ls_report_document(&cli->ctx, cli->words[0], chosen.page, chosen.check);
    ls_text text = {0};
    ls_status status = ls_report_tables(&cli->ctx, cli->words[0], chosen.to == TO_LATEX, &text);
    if (status == LS_OK) return ls_cli_print_text(cli, &text);
    ls_text_clear(&cli->ctx, &text);
    return status;
}

static const ls_section sections[] = {{"", &table_of_options}, {0}};
const ls_verb ls_verb_report = {
    .name = "report",
    .place = 2,
    .summary = "Make the page of a study or suite again, or tables for a paper",
    .usage = "FOLDER|FIGURES.json ... [to=latex|markdown] [page=PAGE.md]",
    .about =
        "Reads results.json and timing.json in the folder of a study and writes report.html\n"
        "and results.csv: the same files give the same bytes. Of a suite's folder: report.html\n"
        "alone. With to=latex or to=markdown the results of a study are printed as tables:\n"
        "perplexity, loss, bits per byte and excess by length, the best of each column bold.\n"
        "page= puts them into a Markdown page, between its comments `begin` and `end`, with\n"
        "charts beside it, and compares the numbers of its text with the results; so it does\n"
        "with the figures of single runs (runs.json in the folder). Files that\n"
        "`longshot bench out=FILE.json` wrote on one machine become tables of its figures, and\n"
        "charts and numbers of a page; rows of later files replace those of earlier ones.\n",
    .sections = sections,
    .run = run,
};
