/* longshot eval MODEL suite=NAME: questions about long texts. */
#include <stdio.h>

#include "cli/cli.h"
#include "report/report.h"
#include "suite/suite.h"

static void show_items(void *user, int64_t done, int64_t total, double seconds_left) {
    char line[128];
    (void)total;
    snprintf(line, sizeof line, "%lld items done, about %.0f s left", (long long)done,
             seconds_left);
    ls_cli_live(user, line);
}

ls_status ls_cli_run_suite(ls_cli *cli, const ls_dtype *type) {
    ls_ctx *ctx = &cli->ctx;
    const ls_suite_hooks hooks = {.stop = ls_cli_stop(),
                                  .progress = cli->live ? show_items : NULL,
                                  .user = cli,
                                  .ranks = &cli->ranks};
    char folder[LS_TRAINED_PATH];
    ls_trained trained;
    ls_suite suite = {.ctx = ctx};
    json_t *results = NULL;
    ls_text text = {0};
    ls_status status = ls_trained_open(ctx, cli->words[0], &cli->settings, type, &trained);
    if (status == LS_OK)
        status = ls_suite_open(ctx, &cli->settings, &trained, (uint64_t)cli->common.seed, &suite);
    if (status == LS_OK) status = ls_cli_finish_settings(cli);
    if (status == LS_OK) {
        const bool kept = ls_suite_folder(&suite, &trained, folder, sizeof folder);
        status = ls_suite_run(&suite, kept ? folder : NULL, &hooks, &results);
        if (results != NULL && kept) status = ls_report_write(ctx, folder, NULL);
    }
    ls_cli_progress_end(cli);
    if (status == LS_OK && results != NULL && cli->json) {
        status = ls_cli_print_json(cli, results);
    } else if (status == LS_OK && results != NULL) {
        ls_suite_print(ctx, results, &text);
        json_decref(results);
        status = ls_cli_print_text(cli, &text);
    }
    ls_suite_clear(&suite);
    ls_trained_clear(&trained);
    return status;
}
