/* results.csv: one line per arm, protocol and length. */
#include <math.h>
#include <string.h>

#include "report/page.h"

/* A spreadsheet takes a text that begins like a formula for one; behind an apostrophe it is
 * text. */
static void put_text(ls_ctx *ctx, const char *text, ls_text *out) {
    const bool formula = text[0] != '\0' && strchr("=+-@\t\r", text[0]) != NULL;
    const char *quote = text[strcspn(text, ",\"\t\r\n")] == '\0' ? "" : "\"";
    ls_text_printf(ctx, out, "%s%s", quote, formula ? "'" : "");
    for (; *text != '\0'; text++)
        ls_text_append(ctx, out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    ls_text_printf(ctx, out, "%s", quote);
}

/* Whole numbers as such, others so that they read back to the same bits; unknown ones empty. */
static void put_number(ls_ctx *ctx, const json_t *value, ls_text *out) {
    if (json_is_integer(value))
        ls_text_printf(ctx, out, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        ls_text_printf(ctx, out, "%.17g", json_real_value(value));
}

static const json_t *resolution_at(const json_t *arm, const json_t *length) {
    const json_t *list = json_object_get(arm, "resolution");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_object_get(json_array_get(list, i), "length"), length))
            return json_array_get(list, i);
    return NULL;
}

static void put_arm(ls_ctx *ctx, const json_t *arm, ls_text *out) {
    static const char *const texts[] = {"name", "label", "from"};
    for (size_t k = 0; k < 3; k++) {
        put_text(ctx, ls_member_text(arm, texts[k]), out);
        ls_text_append(ctx, out, ",", 1);
    }
    put_number(ctx, json_object_get(arm, "parameters"), out);
    ls_text_append(ctx, out, ",", 1);
    put_number(ctx, json_object_get(arm, "tokens_trained"), out);
    ls_text_append(ctx, out, ",", 1);
}

/* A suite is a protocol whose answers are right or wrong: a line for each length, or one. */
static void put_suite(ls_ctx *ctx, const json_t *arm, const json_t *suite,
                      const char *const *row_keys, size_t count, ls_text *out) {
    static const char *const names[][2] = {{"accuracy", "score"},
                                           {"accuracy_min", "score_min"},
                                           {"accuracy_max", "score_max"},
                                           {"length", "length"}};
    const bool by_length = strcmp(ls_member_text(suite, "x"), "length") == 0;
    const json_t *curve = json_object_get(suite, "curve");
    for (size_t r = 0; r < (by_length ? json_array_size(curve) : 1); r++) {
        const json_t *row = by_length ? json_array_get(curve, r) : suite;
        put_arm(ctx, arm, out);
        put_text(ctx, ls_member_text(suite, "name"), out);
        for (size_t k = 0; k < count; k++) {
            ls_text_append(ctx, out, ",", 1);
            if (strcmp(row_keys[k], "n") == 0)
                put_number(ctx, json_object_get(suite, "seeds"), out);
            for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
                if (strcmp(row_keys[k], names[i][0]) == 0)
                    put_number(ctx, json_object_get(row, names[i][1]), out);
        }
        ls_text_printf(ctx, out, ",,,,,,\n"); /* it has no resolution */
    }
}

void ls_table_write(ls_ctx *ctx, const ls_study_files *files, ls_text *out) {
    static const char *const row_keys[] = {
        "length",     "stride",        "tokens",   "documents",    "n",
        "loss",       "loss_sd",       "loss_min", "loss_max",     "ppl",
        "ppl_min",    "ppl_max",       "excess",   "excess_sd",    "excess_min",
        "excess_max", "bits_per_byte", "accuracy", "accuracy_min", "accuracy_max",
        "exact"};
    static const char *const resolution_keys[] = {"R_head",  "R_layer", "M_head",
                                                  "M_layer", "O_head",  "O_layer"};
    enum {
        ROW_KEYS = sizeof row_keys / sizeof row_keys[0],
        RESOLUTION_KEYS = sizeof resolution_keys / sizeof resolution_keys[0]
    };
    ls_text_printf(ctx, out, "arm,label,from,parameters,tokens_trained,protocol");
    for (size_t k = 0; k < ROW_KEYS; k++) ls_text_printf(ctx, out, ",%s", row_keys[k]);
    for (size_t k = 0; k < RESOLUTION_KEYS; k++)
        ls_text_printf(ctx, out, ",%s", resolution_keys[k]);
    ls_text_printf(ctx, out, "\n");
    const json_t *arms = json_object_get(files->results, "arms");
    for (size_t a = 0; a < json_array_size(arms); a++) {
        const json_t *arm = json_array_get(arms, a), *rows = json_object_get(arm, "results");
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            const json_t *resolution = resolution_at(arm, json_object_get(row, "length"));
            put_arm(ctx, arm, out);
            put_text(ctx, ls_member_text(row, "protocol"), out);
            for (size_t k = 0; k < ROW_KEYS; k++) {
                ls_text_append(ctx, out, ",", 1);
                put_number(ctx, json_object_get(row, row_keys[k]), out);
            }
            for (size_t k = 0; k < RESOLUTION_KEYS; k++) {
                ls_text_append(ctx, out, ",", 1);
                put_number(ctx, json_object_get(resolution, resolution_keys[k]), out);
            }
            ls_text_append(ctx, out, "\n", 1);
        }
        const json_t *suites = json_object_get(arm, "suites");
        for (size_t i = 0; i < json_array_size(suites); i++)
            put_suite(ctx, arm, json_array_get(suites, i), row_keys, ROW_KEYS, out);
    }
}
