/* The results of a suite as a table. */
#include <math.h>
#include <string.h>

#include "suite/suite.h"

static bool is_common(const char *key) {
    static const char *const common[] = {"n", "score", "low", "high", "metrics"};
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++)
        if (strcmp(key, common[i]) == 0) return true;
    return false;
}

static void print_value(ls_ctx *ctx, const json_t *value, ls_text *out) {
    if (json_is_string(value))
        ls_text_printf(ctx, out, " %12s", json_string_value(value));
    else
        ls_text_printf(ctx, out, " %12.6g", json_number_value(value));
}

static void print_score(ls_ctx *ctx, const json_t *row, ls_text *out) {
    ls_text_printf(ctx, out, " %7lld %8.4f",
                   (long long)json_integer_value(json_object_get(row, "n")),
                   json_number_value(json_object_get(row, "score")));
    if (json_object_get(row, "low") != NULL)
        ls_text_printf(ctx, out, "  %.4f to %.4f", json_number_value(json_object_get(row, "low")),
                       json_number_value(json_object_get(row, "high")));
    ls_text_printf(ctx, out, "\n");
}

static void print_cells(ls_ctx *ctx, const json_t *cells, ls_text *out) {
    const char *key;
    json_t *value;
    json_object_foreach(json_array_get(cells, 0), key, value) {
        if (!is_common(key)) ls_text_printf(ctx, out, " %12s", key);
    }
    ls_text_printf(ctx, out, " %7s %8s  %s\n", "items", "score", "95 % interval");
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *row = json_array_get(cells, i);
        json_object_foreach((json_t *)row, key, value) {
            if (!is_common(key)) print_value(ctx, value, out);
        }
        print_score(ctx, row, out);
    }
}

void ls_suite_print(ls_ctx *ctx, const json_t *results, ls_text *out) {
    const json_t *chance = json_object_get(results, "chance");
    const json_t *cells = json_object_get(results, "cells");
    static const char *const more[] = {"accuracy", "perplexity", "accuracy_last_token", "average",
                                       "effective_length"};
    ls_text_printf(ctx, out, "%s, form %s: %s",
                   json_string_value(json_object_get(results, "suite")),
                   json_string_value(json_object_get(results, "form")),
                   json_string_value(json_object_get(results, "measure")));
    if (json_is_number(chance))
        ls_text_printf(ctx, out, "; chance %.4g", json_number_value(chance));
    ls_text_printf(ctx, out, "\n");
    const json_t *summary = json_object_get(results, "summary");
    for (size_t i = 0; i < json_array_size(summary); i++)
        ls_text_printf(ctx, out, "%s\n", json_string_value(json_array_get(summary, i)));
    if (summary == NULL && json_array_size(cells) > 1) print_cells(ctx, cells, out);
    ls_text_printf(ctx, out, summary == NULL ? "all:" : "score:");
    print_score(ctx, results, out);
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        const json_t *value = json_object_get(results, more[i]);
        if (value != NULL) ls_text_printf(ctx, out, "%s %.6g\n", more[i], json_number_value(value));
    }
}
