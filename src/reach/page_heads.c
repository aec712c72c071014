/* What attention heads do, and LAMBADA, on the page. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reach/reach.h"
#include "report/page.h"
#include "suite/lib/looker.h"

static double samples_of(const json_t *cell) {
    const double n = ls_member_real(cell, "n");
    return n > 0 ? n : 0;
}

/* The mean of both by their samples. */
static void add_cell(json_t *to, const json_t *from) {
    json_t *metrics = json_object_get(to, "metrics"), *value;
    const json_t *more = json_object_get(from, "metrics");
    const double n = samples_of(to), m = samples_of(from);
    const char *key;
    json_object_foreach(metrics, key, value) {
        const double mean =
            (n * json_number_value(value) + m * ls_member_real(more, key)) / (n + m);
        if (isfinite(mean)) json_real_set(value, mean);
    }
    json_object_set_new(to, "n", json_integer((json_int_t)(n + m)));
    if (json_object_get(metrics, "prefix_matching") != NULL)
        json_object_set(to, "score", json_object_get(metrics, "prefix_matching"));
}

/* Adds the cells of a round. */
static void merge(json_t *cells, json_t *places, const json_t *more) {
    static const char *const keys[] = {"length", "layer", "head"};
    size_t index, place;
    json_t *cell;
    json_array_foreach((json_t *)more, index, cell) {
        const size_t end = json_array_size(cells);
        if (!ls_reach_place(places, cell, keys, 3, end, &place)) continue;
        if (place < end)
            add_cell(json_array_get(cells, place), cell);
        else
            json_array_append_new(cells, json_deep_copy(cell));
    }
}

json_t *ls_reach_heads(ls_ctx *ctx, const json_t *state) {
    json_t *cells = json_array(), *model = json_array(), *job;
    json_t *places = json_object(), *model_places = json_object();
    json_t *results = json_pack("{s:o}", "cells", cells);
    const char *key;
    json_object_foreach(json_object_get(state, "jobs"), key, job) {
        if (strncmp(key, "heads/", 6) != 0 || json_object_get(job, "cells") == NULL) continue;
        merge(cells, places, json_object_get(job, "cells"));
        merge(model, model_places, json_object_get(job, "model_scores"));
    }
    json_decref(places);
    json_decref(model_places);
    const bool any = json_array_size(cells) > 0;
    json_array_extend(cells, model);
    json_decref(model);
    if (!any || ls_heads_finish(ctx, results) != LS_OK) {
        json_decref(results);
        return NULL;
    }
    return results;
}

void ls_reach_page_heads(ls_ctx *ctx, const json_t *state, ls_text *out) {
    json_t *results = ls_reach_heads(ctx, state);
    const ls_suite_view view = {ctx, results, "Heads"};
    if (results == NULL || !ls_heads_are_in(&view)) {
        json_decref(results);
        return;
    }
    const json_t *first = json_array_get(json_object_get(results, "cells"), 0);
    ls_text_printf(
        ctx, out,
        "<h2>Attention heads</h2>\n<p class=\"soft\">What each head of each layer attends "
        "to; samples of each length: %.0f.</p>\n<div class=\"charts\">\n",
        ls_member_real(first, "n"));
    ls_suite_pictures(&view, out);
    ls_text_printf(ctx, out, "</div>\n");
    ls_suite_table(&view, out);
    json_decref(results);
}

void ls_reach_page_lambada(ls_ctx *ctx, const json_t *state, ls_text *out) {
    static const char *const heads[] = {
        "passages", "accuracy, percent",         "95 %: from",
        "to",       "last token alone, percent", "perplexity of words"};
    static const char *const keys[] = {"score", "low", "high", "accuracy_last_token", "perplexity"};
    const char *key;
    json_t *job;
    json_object_foreach(json_object_get(state, "jobs"), key, job) {
        char text[64];
        if (strncmp(key, "lambada/", 8) != 0 || json_object_get(job, "refused") != NULL) continue;
        ls_text_printf(ctx, out,
                       "<h2>LAMBADA</h2>\n<p class=\"soft\">The last word of the first "
                       "%.0f passages of the file, variant ",
                       ls_member_real(job, "n"));
        ls_html(ctx, ls_member_text(json_object_get(job, "data"), "variant"), out);
        ls_text_printf(ctx, out, ".</p>\n");
        ls_table_open(ctx, out);
        for (size_t i = 0; i < 6; i++) ls_table_head(ctx, heads[i], out);
        ls_table_body(ctx, out);
        ls_chart_count(ls_member_real(job, "n"), text, sizeof text);
        ls_table_row(ctx, text, out);
        for (size_t i = 0; i < 5; i++) {
            const double value = (i < 4 ? 100 : 1) * ls_member_real(job, keys[i]);
            if (i < 4)
                snprintf(text, sizeof text, "%.1f", value);
            else
                ls_chart_number(value, text, sizeof text);
            ls_table_cell(ctx, value, text, out);
        }
        ls_text_printf(ctx, out, "</tr>\n");
        ls_table_close(ctx, out);
    }
}
