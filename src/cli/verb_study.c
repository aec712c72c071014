/* longshot study: arms, seeds, results, one page. */
#include <string.h>

#include "base/file.h"
#include "cli/cli.h"
#include "data/data.h"
#include "eval/eval.h"
#include "model/model.h"
#include "study/study.h"
#include "study/study_process.h"
#include "suite/suite.h"
#include "task/task.h"
#include "train/train.h"

/* The call as it can be typed again in a shell. */
static void write_command(ls_cli *cli, ls_text *out) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=.,:/@%";
    ls_ctx *ctx = &cli->ctx;
    ls_text_printf(ctx, out, "longshot");
    for (int i = 1; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        const bool quoted = word[0] == '\0' || word[strspn(word, plain)] != '\0';
        ls_text_printf(ctx, out, quoted ? " '" : " ");
        for (; *word != '\0'; word++)
            ls_text_printf(ctx, out, *word == '\'' ? "'\\''" : "%c", *word);
        ls_text_printf(ctx, out, quoted ? "'" : "");
    }
}

static void show_progress(void *user, const char *line, size_t done, size_t count) {
    (void)done, (void)count;
    ls_cli_progress(user, line);
}

static void show_state(void *user, const char *lines) {
    ls_cli_live_lines(user, lines);
}

static ls_status run_jobs(ls_cli *cli, ls_study *study) {
    const ls_study_hooks hooks = {.stop = ls_cli_stop(),
                                  .progress = show_progress,
                                  .state = show_state,
                                  .ranks = &cli->ranks,
                                  .user = cli};
    ls_text text = {0};
    if (!study->keys.check) LS_TRY(ls_study_run(study, &hooks));
    if (!study->keys.check && cli->json)
        return ls_cli_print_json(cli, json_pack("{s:s}", "folder", study->keys.out));
    ls_status status =
        study->keys.check ? ls_study_check(study, &text) : ls_study_summary(study, &text);
    if (status == LS_OK) return ls_cli_print_text(cli, &text);
    ls_text_clear(&cli->ctx, &text);
    return status;
}

/* Ranks beside rank 0 do what it sends them, so nothing else would tell that theirs is another. */
static ls_status compare_studies(ls_cli *cli) {
    ls_text text = {0};
    for (size_t i = 0; i < cli->settings.count; i++)
        ls_text_printf(&cli->ctx, &text, "%s=%s\n", cli->settings.items[i].key,
                       cli->settings.items[i].value);
    const ls_status status = ls_text_status(&text);
    const uint64_t hash = status == LS_OK ? ls_hash(text.bytes, text.length) : 0;
    ls_text_clear(&cli->ctx, &text);
    LS_TRY(status);
    return ls_ranks_compare(&cli->ctx, &cli->ranks, hash, "another study");
}

ls_status ls_cli_run_study(ls_cli *cli, const char *file) {
    ls_ctx *ctx = &cli->ctx;
    ls_study_keys keys;
    ls_study study;
    ls_text command = {0};
    LS_TRY(ls_cli_read(cli, "", &ls_study_options, &keys));
    LS_TRY(compare_studies(cli));
    if (cli->ranks.rank > 0) /* rank 0 has the study */
        return keys.check ? LS_OK : ls_study_serve(ctx, &cli->ranks, "/proc/self/exe");
    if (cli->recipe == NULL && !ls_settings_has(&cli->settings, "seeds"))
        keys.seeds = (ls_ints){.count = 1, .at = {cli->common.seed}};
    write_command(cli, &command);
    LS_TRY(ls_text_status(&command));
    const ls_study_request request = {
        .settings = &cli->settings,
        .keys = &keys,
        .file = file,
        .command = command.bytes,
        .program = "/proc/self/exe",
        .device = ls_cli_device(cli),
        .cache = cli->common.cache,
        .threads = cli->common.threads,
        .ranks = cli->ranks.size,
    };
    ls_status status = ls_study_read(ctx, &request, &study);
    if (status == LS_OK) status = ls_cli_finish_settings(cli);
    if (status == LS_OK) status = run_jobs(cli, &study);
    ls_study_clear(&study);
    ls_text_clear(ctx, &command);
    return status;
}

static ls_status run(ls_cli *cli) {
    if (cli->recipe == NULL || cli->word_count > 0)
        return LS_FAIL(&cli->ctx, LS_EUSE, "say which study: longshot study studies/quick.yaml");
    return ls_cli_run_study(cli, cli->recipe);
}

static const ls_section sections[] = {{"", &ls_study_options},      {"model", &ls_model_options},
                                      {"data", &ls_data_options},   {"task", &ls_task_options},
                                      {"train", &ls_train_options}, {"eval", &ls_eval_options},
                                      {"suite", &ls_suite_options}, {0}};
const ls_verb ls_verb_study = {
    .name = "study",
    .place = 1,
    .summary = "Compare arms: train each, test each long, make one page",
    .usage = "STUDY.yaml [key=value ...] [-m KEY=A,B ...]",
    .about =
        "A study file has the settings that all arms share and, under arms, what differs:\n"
        "arms.NAME.model.position trains an arm; arms.NAME.from with arms.NAME.extend tests\n"
        "another arm's weights. sweep.KEY, or -m KEY=A,B, makes an arm of each value, and of each\n"
        "combination. Jobs run side by side, each in its own process. The same command\n"
        "goes on with a study that was cut; what is done is not done again. docs/studies.md\n"
        "says what the files in the folder mean.\n",
    .sections = sections,
    .model_keys = true,
    .recipe = true,
    .sweeps = true,
    .orderly = true,
    .ranks = true,
    .run = run,
};
