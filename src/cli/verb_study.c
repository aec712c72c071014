/* longshot study: arms, seeds, results, one page. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "cli/study.h"
#include "data/data.h"
#include "eval/eval.h"
#include "model/model.h"
#include "train/train.h"

/* The call as it could be typed again. */
static void write_command(ls_cli *cli, ls_text *out) {
    ls_ctx *ctx = &cli->ctx;
    ls_text_printf(ctx, out, "longshot");
    for (int i = 1; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        bool plain = word[0] != '\0' && word[strcspn(word, " \t\n'\"\\$`&|;<>()*?[]{}#~!")] == '\0';
        ls_text_printf(ctx, out, plain ? " %s" : " '%s'", word);
    }
}

/* Small models waste threads: many jobs of one thread are faster than one job of many. */
static void share_processors(ls_study *study) {
    int64_t processors = omp_get_num_procs(), threads = study->cli->common.threads;
    if (threads == 0)
        threads = study->keys.jobs == 0 ? 1 : ls_max(1, processors / study->keys.jobs);
    if (study->keys.jobs == 0) study->keys.jobs = ls_max(1, processors / threads);
    study->threads = threads;
}

static ls_status print_end(ls_study *study) {
    ls_cli *cli = study->cli;
    if (cli->json) return ls_cli_print_json(cli, json_pack("{s:s}", "folder", study->keys.out));
    ls_text text = {0};
    ls_text_printf(&cli->ctx, &text,
                   "%s/report.html   the page\n%s/results.json  every number\n%s/results.csv   the "
                   "table\n",
                   study->keys.out, study->keys.out, study->keys.out);
    return ls_cli_print_text(cli, &text);
}

static ls_status run(ls_cli *cli) {
    ls_study study;
    ls_text command = {0};
    write_command(cli, &command);
    ls_status status = ls_text_status(&command);
    if (status == LS_OK) {
        status = ls_study_read(cli, &study);
        study.command = command.bytes;
        share_processors(&study);
        if (status == LS_OK)
            status = study.keys.check ? ls_study_check(&study) : ls_study_run(&study);
        if (status == LS_OK && !study.keys.check) status = print_end(&study);
        ls_study_clear(&study);
    }
    ls_text_clear(&cli->ctx, &command);
    return status;
}

static const ls_section sections[] = {{"", &ls_study_options},    {"model", &ls_model_options},
                                      {"data", &ls_data_options}, {"train", &ls_train_options},
                                      {"eval", &ls_eval_options}, {0}};
const ls_verb ls_verb_study = {
    .name = "study",
    .summary = "Compare arms: train each, test each long, make one page",
    .usage = "STUDY.yaml [key=value ...]",
    .about =
        "A study file has the settings that all arms share and, under arms, what differs:\n"
        "arms.NAME.model.position trains an arm; arms.NAME.from with arms.NAME.extend tests\n"
        "another arm's weights. Jobs run side by side, each in its own process. The same command\n"
        "goes on with a study that was cut; what is done is not done again. docs/studies.md\n"
        "says what the files in the folder mean.\n",
    .sections = sections,
    .model_keys = true,
    .recipe = true,
    .run = run,
};
