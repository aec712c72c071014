/* longshot report: the page and the table of a study, from its folder alone. */
#include <stdio.h>

#include "cli/cli.h"
#include "report/report.h"

static ls_status run(ls_cli *cli) {
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->word_count != 1)
        return LS_FAIL(&cli->ctx, LS_EUSE, "say which study: longshot report runs/quick");
    LS_TRY(ls_report_write(&cli->ctx, cli->words[0]));
    ls_text text = {0};
    ls_text_printf(&cli->ctx, &text, "%s/report.html\n%s/results.csv\n", cli->words[0],
                   cli->words[0]);
    return ls_cli_print_text(cli, &text);
}

const ls_verb ls_verb_report = {
    .name = "report",
    .place = 2,
    .summary = "Make a study's page and table again",
    .usage = "FOLDER",
    .about = "Reads results.json and timing.json in the folder of a study and writes report.html\n"
             "and results.csv: the same files give the same bytes.\n",
    .run = run,
};
