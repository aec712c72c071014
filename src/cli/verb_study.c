/* longshot study: arms, seeds, results, one page. */
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/study.h"
#include "data/data.h"
#include "eval/eval.h"
#include "model/model.h"
#include "task/task.h"
#include "train/train.h"

enum { RESULTS_MOST = 1 << 30 };

/* The call as it could be typed again. */
static void write_command(ls_cli *cli, ls_text *out) {
    ls_ctx *ctx = &cli->ctx;
    ls_text_printf(ctx, out, "longshot");
    for (int i = 1; i < cli->argc; i++) {
        const char *word = cli->argv[i];
        bool plain = word[0] != '\0' && word[strcspn(word, " \t\n'\"\\$`&|;<>()*?[]{}#~!")] == '\0';
        const char *quote = plain ? "" : "'";
        ls_text_printf(ctx, out, " %s%s%s", quote, word, quote);
    }
}

/* Small models waste threads: many jobs of one thread are faster than one job of many. A device has
 * room for one job. */
static void share_processors(ls_study *study) {
    int64_t processors = omp_get_num_procs(), threads = study->cli->common.threads;
    if (study->keys.jobs == 0 && study->cli->common.device != 0) study->keys.jobs = 1;
    if (threads == 0)
        threads = study->keys.jobs == 0 ? 1 : ls_max(1, processors / study->keys.jobs);
    if (study->keys.jobs == 0) study->keys.jobs = ls_max(1, processors / threads);
    study->threads = threads;
}

static void print_number(ls_ctx *ctx, const char *format, int width, const json_t *value,
                         double scale, ls_text *out) {
    if (!json_is_number(value)) {
        ls_text_printf(ctx, out, " %*s", width, "-");
        return;
    }
    char text[64];
    snprintf(text, sizeof text, format, scale * json_number_value(value));
    ls_text_printf(ctx, out, " %*s", width, text);
}

/* One line per arm: perplexity and excess, or right answers and samples, at every length of the
 * study's first protocol. */
static void print_table(ls_ctx *ctx, const json_t *results, ls_text *out) {
    const json_t *arms = json_object_get(results, "arms"), *protocol = NULL;
    bool judged = false;
    for (size_t a = 0; a < json_array_size(arms); a++) {
        const json_t *arm = json_array_get(arms, a), *rows = json_object_get(arm, "results");
        const json_t *first = json_array_get(rows, 0);
        if (protocol == NULL && first != NULL) {
            protocol = json_object_get(first, "protocol");
            judged = json_object_get(first, "accuracy") != NULL;
            ls_text_printf(ctx, out, "%-16s", json_string_value(protocol));
            for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *row = json_array_get(rows, i);
                if (json_equal(json_object_get(row, "protocol"), protocol))
                    ls_text_printf(ctx, out, " %16lld",
                                   (long long)json_integer_value(json_object_get(row, "length")));
            }
            ls_text_append(ctx, out, "\n", 1);
        }
        ls_text_printf(ctx, out, "%-16s", json_string_value(json_object_get(arm, "name")));
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (!json_equal(json_object_get(row, "protocol"), protocol)) continue;
            print_number(ctx, judged ? "%.2f" : "%.5g", 8,
                         json_object_get(row, judged ? "accuracy" : "ppl"), judged ? 100 : 1, out);
            print_number(ctx, judged ? "%.2f" : "%+.3f", 7,
                         json_object_get(row, judged ? "exact" : "excess"), judged ? 100 : 1, out);
        }
        ls_text_append(ctx, out, "\n", 1);
    }
    ls_text_printf(ctx, out, "%s\n\n",
                   judged ? "right answers, and samples with no wrong one, in %"
                          : "perplexity, and nats per token above the flat tail");
}

static ls_status print_end(ls_study *study) {
    ls_cli *cli = study->cli;
    ls_ctx *ctx = &cli->ctx;
    char path[LS_STUDY_PATH_BYTES];
    json_t *results;
    if (cli->json) return ls_cli_print_json(cli, json_pack("{s:s}", "folder", study->keys.out));
    LS_TRY(ls_path_join(ctx, path, sizeof path, study->keys.out, "results.json"));
    LS_TRY(ls_json_read(ctx, path, RESULTS_MOST, &results));
    ls_text text = {0};
    print_table(ctx, results, &text);
    json_decref(results);
    ls_text_printf(ctx, &text, "%s/report.html\n%s/results.json\n%s/results.csv\n", study->keys.out,
                   study->keys.out, study->keys.out);
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

static const ls_section sections[] = {{"", &ls_study_options},
                                      {"model", &ls_model_options},
                                      {"data", &ls_data_options},
                                      {"task", &ls_task_options},
                                      {"train", &ls_train_options},
                                      {"eval", &ls_eval_options},
                                      {0}};
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
