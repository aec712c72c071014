/* What a study found, in a few lines. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "study/study.h"

enum { RESULTS_BYTES_MAX = 1 << 30 };

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

/* Columns of the names of arms, and of the protocol above them. */
static int name_columns(const json_t *arms) {
    size_t most = 16;
    for (size_t a = 0; a < json_array_size(arms); a++) {
        const char *name = json_string_value(json_object_get(json_array_get(arms, a), "name"));
        if (name != NULL && strlen(name) > most) most = strlen(name);
    }
    return (int)most;
}

/* Five digits, with the zeros that end them: numbers of a column stand below each other. */
static const char *five_digits(double value) {
    return value < 10    ? "%.4f"
           : value < 100 ? "%.3f"
           : value < 1e3 ? "%.2f"
           : value < 1e4 ? "%.1f"
                         : "%.5g";
}

/* One line per arm: perplexity and excess, or right answers and samples, at every length of the
 * study's first protocol. */
static void print_table(ls_ctx *ctx, const json_t *results, ls_text *out) {
    const json_t *arms = json_object_get(results, "arms"), *protocol = NULL;
    const int columns = name_columns(arms);
    bool judged = false;
    for (size_t a = 0; a < json_array_size(arms); a++) {
        const json_t *arm = json_array_get(arms, a), *rows = json_object_get(arm, "results");
        const json_t *first = json_array_get(rows, 0);
        if (protocol == NULL && first != NULL) {
            protocol = json_object_get(first, "protocol");
            judged = json_object_get(first, "accuracy") != NULL;
            ls_text_printf(ctx, out, "%-*s", columns, json_string_value(protocol));
            for (size_t i = 0; i < json_array_size(rows); i++) {
                const json_t *row = json_array_get(rows, i);
                if (json_equal(json_object_get(row, "protocol"), protocol))
                    ls_text_printf(ctx, out, " %16lld",
                                   (long long)json_integer_value(json_object_get(row, "length")));
            }
            ls_text_append(ctx, out, "\n", 1);
        }
        ls_text_printf(ctx, out, "%-*s", columns, json_string_value(json_object_get(arm, "name")));
        if (json_is_false(json_object_get(arm, "chosen")))
            ls_text_printf(ctx, out, " not chosen: validation loss %.4f",
                           json_number_value(json_object_get(arm, "trial_loss")));
        else if (json_array_size(rows) == 0)
            ls_text_printf(ctx, out, " no results");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (!json_equal(json_object_get(row, "protocol"), protocol)) continue;
            const json_t *value = json_object_get(row, judged ? "accuracy" : "ppl");
            print_number(ctx, judged ? "%.2f" : five_digits(json_number_value(value)), 8, value,
                         judged ? 100 : 1, out);
            print_number(ctx, judged ? "%.2f" : "%+.3f", 7,
                         json_object_get(row, judged ? "exact" : "excess"), judged ? 100 : 1, out);
        }
        ls_text_append(ctx, out, "\n", 1);
    }
    ls_text_printf(ctx, out, "%s\n\n",
                   judged ? "right answers, and samples with no wrong one, in %"
                          : "perplexity, and nats per token above the flat tail");
}

/* The arm that validation chooses; of a sweep without it, how one would be chosen. */
static void print_best(const ls_study *study, const json_t *results, ls_text *out) {
    const char *name = json_string_value(json_object_get(results, "best_arm"));
    const json_t *arms = json_object_get(results, "arms");
    bool measured = false;
    for (size_t i = 0; i < json_array_size(arms); i++) {
        const json_t *arm = json_array_get(arms, i),
                     *loss = json_object_get(arm, "validation_loss");
        const char *own = json_string_value(json_object_get(arm, "name"));
        measured |= json_is_number(loss);
        if (name != NULL && own != NULL && strcmp(own, name) == 0)
            ls_text_printf(
                study->ctx, out,
                "lowest validation loss: %s, %.4f nats per token (mean over seeds: %lld)\n\n", name,
                json_number_value(loss),
                (long long)json_integer_value(json_object_get(arm, "seeds")));
    }
    if (study->sweep.count > 0 && !measured)
        ls_text_printf(study->ctx, out,
                       "no arm is chosen: train.validate_every with data.validation_share would "
                       "tell the best\n\n");
}

ls_status ls_study_summary(const ls_study *study, ls_text *out) {
    ls_ctx *ctx = study->ctx;
    const char *folder = study->keys.out;
    char path[LS_STUDY_PATH_BYTES];
    json_t *results;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, "results.json"));
    LS_TRY(ls_json_read(ctx, path, RESULTS_BYTES_MAX, &results));
    print_table(ctx, results, out);
    print_best(study, results, out);
    json_decref(results);
    ls_text_printf(ctx, out, "%s/report.html\n%s/results.json\n%s/results.csv\n", folder, folder,
                   folder);
    return ls_text_status(out);
}
