/* Suites of a study on its page: one section each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { VALUES_MAX = 64, NAME = 128 };

/* The suite as the first arm has it that was asked already. */
static const json_t *first_of(const ls_page *page, const char *name) {
    for (size_t a = 0; a < page->count; a++) {
        const json_t *suite = ls_page_suite(json_array_get(page->arms, a), name);
        if (json_array_size(json_object_get(suite, "cells")) > 0) return suite;
    }
    return NULL;
}

size_t ls_page_list_suites(const ls_page *page, const char *names[LS_PAGE_SUITES_MAX]) {
    size_t count = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *suites = json_object_get(json_array_get(page->arms, a), "suites");
        for (size_t i = 0; i < json_array_size(suites); i++) {
            const char *name = ls_member_text(json_array_get(suites, i), "name");
            bool known = count == LS_PAGE_SUITES_MAX;
            for (size_t n = 0; n < count; n++) known |= strcmp(names[n], name) == 0;
            if (!known) names[count++] = name;
        }
    }
    return count;
}

static void put_heading(ls_page *page, const char *name, const json_t *suite) {
    ls_ctx *ctx = page->ctx;
    const double chance = ls_member_real(suite, "chance");
    char title[NAME];
    snprintf(title, sizeof title, "Suite %.100s", name);
    ls_page_heading(page, title);
    ls_text_printf(ctx, page->out, "<p class=\"soft\">Score: ");
    ls_html(ctx, ls_member_text(suite, "measure"), page->out);
    ls_text_printf(ctx, page->out, " (form %s",
                   strcmp(ls_member_text(suite, "form"), "generate") == 0 ? "generate"
                                                                          : "likelihood");
    if (isfinite(chance)) ls_text_printf(ctx, page->out, ", chance %.0f %%", 100 * chance);
    ls_text_printf(ctx, page->out,
                   "; %.0f questions to each arm and seed). The band is the 95 %% interval: of the "
                   "mean over seeds, for one seed over its questions.</p>\n",
                   ls_member_real(suite, "n"));
}

/* The groups of a curve's rows, in their order: rows have one where they stay apart. */
static size_t list_groups(const json_t *suite, const char **groups) {
    const json_t *rows = json_object_get(suite, "curve");
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const char *group = ls_member_text(json_array_get(rows, i), "group");
        bool known = count == VALUES_MAX || group[0] == '\0';
        for (size_t g = 0; g < count; g++) known |= strcmp(groups[g], group) == 0;
        if (!known) groups[count++] = group;
    }
    return count;
}

static void put_curves(ls_page *page, const char *name, const json_t *suite) {
    const char *x = ls_member_text(suite, "x"), *groups[VALUES_MAX];
    const bool places = strcmp(x, "position") == 0, shots = strcmp(x, "shots") == 0;
    const size_t count = list_groups(suite, groups);
    ls_chart chart = {.x_label = places  ? "place of the answer"
                                 : shots ? "examples in the context"
                                         : "length of the context, tokens",
                      .y_label = "right, percent",
                      .x_even = places,
                      .markers = true,
                      .y_high = 100,
                      .bound_y = 100 * ls_member_real(suite, "chance"),
                      .bound_text = "chance",
                      .spread = "95 %"};
    if (x[0] == '\0') return;
    for (size_t g = 0; g < count; g++) ls_page_curves(page, name, x, groups[g], chart);
    if (count == 0) ls_page_curves(page, name, x, NULL, chart);
}

static void put_maps(ls_page *page, const char *name) {
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a), *suite = ls_page_suite(arm, name);
        char title[2 * NAME];
        json_t *shown = json_copy((json_t *)suite);
        snprintf(title, sizeof title, "%.120s: %.120s", name, ls_member_text(arm, "label"));
        json_object_set(shown, "trained_length", json_object_get(arm, "trained_length"));
        const ls_suite_view view = {.ctx = page->ctx, .results = shown, .title = title};
        if (ls_suite_is_grid(&view)) ls_suite_heat(&view, page->out);
        json_decref(shown);
    }
}

/* "71.5" and below it the interval. */
static void score_cell(ls_page *page, const json_t *row) {
    char text[96];
    const double low = ls_member_real(row, "low"), high = ls_member_real(row, "high");
    snprintf(text, sizeof text, "%.1f", 100 * ls_member_real(row, "score"));
    if (isfinite(low) && isfinite(high))
        snprintf(text, sizeof text, "%.1f<small>%.1f to %.1f</small>",
                 100 * ls_member_real(row, "score"), 100 * low, 100 * high);
    ls_table_cell(page->ctx, ls_member_real(row, "score"), text, page->out);
}

static void name_row(const json_t *row, const char *x, char *out, size_t bytes) {
    const char *group = ls_member_text(row, "group");
    snprintf(out, bytes, "%.64s%s%.0f", group, group[0] == '\0' ? "" : ", at ",
             ls_member_real(row, x));
}

static const json_t *row_named(const json_t *suite, const char *x, const char *wanted) {
    const json_t *rows = json_object_get(suite, "curve");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char name[NAME];
        name_row(json_array_get(rows, i), x, name, sizeof name);
        if (strcmp(name, wanted) == 0) return json_array_get(rows, i);
    }
    return NULL;
}

/* "oracle, 16 pairs" */
static void name_reference(const json_t *row, char *out, size_t bytes) {
    const bool pairs = json_object_get(row, "pairs") != NULL;
    snprintf(out, bytes, "%.40s, %.0f %s", ls_member_text(row, "reference"),
             ls_member_real(row, pairs ? "pairs" : "documents"), pairs ? "pairs" : "documents");
}

/* One row per arm; all questions, then each place of the curve. */
static void put_table(ls_page *page, const char *name, const json_t *first) {
    ls_ctx *ctx = page->ctx;
    const json_t *rows = json_object_get(first, "curve");
    const char *x = ls_member_text(first, "x");
    char text[NAME];
    ls_table_open(ctx, page->out);
    ls_table_head(ctx, "arm", page->out);
    ls_table_head(ctx, "seeds", page->out);
    ls_table_head(ctx, "all, percent right", page->out);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        name_row(json_array_get(rows, i), x, text, sizeof text);
        ls_table_head(ctx, text, page->out);
    }
    const json_t *references = json_object_get(first, "references");
    for (size_t i = 0; i < json_array_size(references); i++) {
        name_reference(json_array_get(references, i), text, sizeof text);
        ls_table_head(ctx, text, page->out);
    }
    ls_table_body(ctx, page->out);
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a), *suite = ls_page_suite(arm, name);
        ls_page_open_row(page, arm);
        ls_page_seeds(page, suite);
        score_cell(page, suite);
        for (size_t i = 0; i < json_array_size(rows); i++) {
            name_row(json_array_get(rows, i), x, text, sizeof text);
            score_cell(page, row_named(suite, x, text));
        }
        const json_t *own = json_object_get(suite, "references");
        for (size_t i = 0; i < json_array_size(references); i++)
            score_cell(page, json_array_get(own, i));
        ls_text_printf(ctx, page->out, "</tr>\n");
    }
    ls_table_close(ctx, page->out);
    size_t failed = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        if (!ls_suite_at_chance(ls_page_suite(arm, name))) continue;
        ls_text_printf(ctx, page->out, "%s",
                       failed++ == 0 ? "<p>Failures, at chance over all questions: " : ", ");
        ls_html(ctx, ls_member_text(arm, "label"), page->out);
    }
    if (failed > 0) ls_text_printf(ctx, page->out, ".</p>\n");
}

void ls_page_suites(ls_page *page) {
    const char *names[LS_PAGE_SUITES_MAX];
    const size_t count = ls_page_list_suites(page, names);
    for (size_t i = 0; i < count; i++) {
        const json_t *suite = first_of(page, names[i]);
        if (suite == NULL) continue;
        put_heading(page, names[i], suite);
        ls_text_printf(page->ctx, page->out, "<div class=\"charts\">\n");
        put_curves(page, names[i], suite);
        put_maps(page, names[i]);
        ls_text_printf(page->ctx, page->out, "</div>\n");
        put_table(page, names[i], suite);
    }
}
