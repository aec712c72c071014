/* longshot report: the page of a study or suite, from its folder alone. */
#include <stdio.h>

#include "cli/cli.h"
#include "report/report.h"

static ls_status run(ls_cli *cli) {
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1)
        return LS_FAIL(&cli->ctx, LS_EUSE, "say which study or suite: longshot report runs/quick");
    bool table;
    LS_TRY(ls_report_write(&cli->ctx, cli->words[0], &table));
    ls_text text = {0};
    ls_text_printf(&cli->ctx, &text, "%s/report.html\n", cli->words[0]);
    if (table) ls_text_printf(&cli->ctx, &text, "%s/results.csv\n", cli->words[0]);
    return ls_cli_print_text(cli, &text);
}

const ls_verb ls_verb_report = {
    .name = "report",
    .place = 2,
    .summary = "Make the page of a study or suite again",
    .usage = "FOLDER",
    .about =
        "Reads results.json and timing.json in the folder of a study and writes report.html\n"
        "and results.csv: the same files give the same bytes. Of a suite's folder: report.html\n"
        "alone.\n",
    .run = run,
};
