/* longshot eval: loss of a trained model by protocol and length, by position, and its attention
 * resolution. */
#include <stdio.h>

#include "cli/cli.h"
#include "eval/evaluation.h"
#include "suite/suite.h"

typedef struct eval_keys {
    int dtype;
    bool check;
    char suite[LS_OPTION_TEXT_BYTES];
} eval_keys;
#define FIELD(name) eval_keys, name
static const ls_option keys[] = {
    LS_CHOICE("dtype", FIELD(dtype), "auto", "auto|" LS_CLI_DTYPES,
              "Arithmetic; auto: as the model was trained."),
    LS_BOOL("check", FIELD(check), "false",
            "Say what memory it takes, on each rank with eval.context, and measure nothing."),
    LS_TEXT("suite", FIELD(suite), "",
            "Benchmark suite to run in place of the protocols: see `longshot inspect suites`."),
};
static const ls_option_table key_table = LS_OPTIONS(keys, eval_keys);

static void show_progress(void *user, const char *what, int64_t length, double share) {
    char line[128];
    snprintf(line, sizeof line, "%s at %lld tokens: %3.0f %%", what, (long long)length,
             100 * share);
    ls_cli_live(user, line);
}

static ls_status print_results(ls_cli *cli, const ls_evaluation *evaluation) {
    json_t *json = ls_evaluation_json(evaluation);
    if (json == NULL) return LS_FAIL(&cli->ctx, LS_ENOMEM, "no memory for the result");
    ls_status status = ls_evaluation_write(evaluation, json);
    if (status == LS_OK && cli->json) return ls_cli_print_json(cli, json);
    json_decref(json);
    LS_TRY(status);
    ls_text text = {0};
    ls_eval_results_print(&cli->ctx, &evaluation->results, &text);
    return ls_cli_print_text(cli, &text);
}

static ls_status check(ls_cli *cli, const ls_evaluation_request *request) {
    ls_evaluation_forecast said;
    ls_text text = {0};
    if (cli->ranks.rank > 0) return LS_OK; /* rank 0 speaks */
    LS_TRY(ls_evaluation_foresee(&cli->ctx, request, &said));
    LS_TRY(ls_cli_finish_settings(cli));
    if (cli->json) return ls_cli_print_json(cli, ls_evaluation_forecast_json(&said));
    ls_evaluation_forecast_print(&cli->ctx, &said, &text);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_ctx *ctx = &cli->ctx;
    eval_keys about;
    LS_TRY(ls_cli_read(cli, "", &key_table, &about));
    if (cli->word_count > 1)
        return LS_FAIL(ctx, LS_EUSE, "`%s` is neither key=value nor the one run", cli->words[1]);
    if (cli->word_count != 1)
        return LS_FAIL(ctx, LS_EUSE, "say which run: longshot eval RUN eval.lengths=256,512");
    const ls_dtype type = about.dtype == 0 ? LS_F32 : ls_cli_dtype(about.dtype - 1);
    if (about.suite[0] != '\0' && about.check)
        return LS_FAIL(ctx, LS_EUSE, "check=true is for the protocols, not for a suite");
    if (about.suite[0] != '\0') return ls_cli_run_suite(cli, about.dtype == 0 ? NULL : &type);
    const ls_evaluation_request request = {.path = cli->words[0],
                                           .settings = &cli->settings,
                                           .type = about.dtype == 0 ? NULL : &type,
                                           .cache = cli->common.cache,
                                           .seed = (uint64_t)cli->common.seed};
    const ls_eval_hooks hooks = {.stop = ls_cli_stop(),
                                 .progress = cli->live ? show_progress : NULL,
                                 .user = cli,
                                 .ranks = &cli->ranks};
    if (about.check) return check(cli, &request);
    ls_evaluation evaluation;
    ls_status status = ls_evaluation_open(ctx, &request, &evaluation);
    if (status == LS_OK) status = ls_cli_finish_settings(cli);
    if (status == LS_OK) status = ls_evaluation_run(&evaluation, &hooks);
    ls_cli_progress_end(cli);
    if (status == LS_OK && cli->ranks.rank == 0) status = print_results(cli, &evaluation);
    ls_evaluation_clear(&evaluation);
    return status;
}

static const ls_section sections[] = {
    {"", &key_table},           {"eval", &ls_eval_options},   {"data", &ls_data_options},
    {"task", &ls_task_options}, {"suite", &ls_suite_options}, {0}};
const ls_verb ls_verb_eval = {
    .name = "eval",
    .place = 4,
    .summary = "Measure loss by protocol and length, or a task's answers",
    .usage = "RUN|CHECKPOINT|FOLDER [eval.protocol=nonoverlap,slide] [eval.lengths=256,512,1024] "
             "[extend=NAME extend.KEY=VALUE] [key=value ...]",
    .about =
        "Perplexity on the test documents under named protocols, each with its excess over a\n"
        "loss that stays flat past the trained length; loss by position; attention resolution.\n"
        "A run trained on a task is tested on it: the share of answers that are right at each\n"
        "length; task.KEY may change the task, seed= draws other samples.\n"
        "docs/protocols.md says what each number means. Also written to eval/ in the run folder,\n"
        "under a name made of the protocols and the extension. A folder with a public checkpoint\n"
        "(docs/checkpoints.md) is measured too; nothing is written into it. Several processes\n"
        "(mpirun, srun, torchrun) share the windows: docs/scaling.md.\n",
    .sections = sections,
    .model_keys = true,
    .orderly = true,
    .computes = true,
    .ranks = true,
    .run = run,
};
