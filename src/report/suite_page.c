/* Pictures of a suite's results: a heat map where cells have lengths and depths, a U-curve where
 * they have positions, accuracy against length else; and a table of all cells. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

enum { AXIS_MAX = 64, SERIES_MAX = 24, NAME = 96, POINTS_MAX = 256 };

static const json_t *cell_at(const ls_suite_view *view, size_t index) {
    return json_array_get(json_object_get(view->results, "cells"), index);
}

static size_t cell_count(const ls_suite_view *view) {
    return json_array_size(json_object_get(view->results, "cells"));
}

static bool cells_have(const ls_suite_view *view, const char *key) {
    return cell_count(view) > 0 && json_object_get(cell_at(view, 0), key) != NULL;
}

/* The values of a key, rising; at most AXIS_MAX. */
static size_t list_values(const ls_suite_view *view, const char *key, double *out) {
    size_t count = 0;
    for (size_t i = 0; i < cell_count(view); i++) {
        const double value = ls_member_real(cell_at(view, i), key);
        size_t at = 0;
        while (at < count && out[at] < value) at++;
        if (!isfinite(value) || (at < count && out[at] == value) || count == AXIS_MAX) continue;
        memmove(out + at + 1, out + at, (count - at) * sizeof *out);
        out[at] = value;
        count++;
    }
    return count;
}

static void mark_of(const ls_suite_view *view, double *at, char *text, size_t bytes) {
    char length[32];
    *at = ls_member_real(view->results, "trained_length");
    ls_chart_count(*at, length, sizeof length);
    snprintf(text, bytes, "trained at %s", length);
    if (!(*at > 0)) *at = 0;
}

/* ---- depth x length, place x pairs ---- */

typedef struct grid_axes {
    const char *column, *row;           /* members of a cell */
    const char *row_head, *column_unit; /* of the table */
} grid_axes;
static const grid_axes depth_by_length = {"length", "depth", "depth", ""};
static const grid_axes place_by_pairs = {"pairs", "position", "place", " pairs"};

typedef struct grid {
    const grid_axes *axes;
    double x[AXIS_MAX], y[AXIS_MAX];
    double value[AXIS_MAX * AXIS_MAX], low[AXIS_MAX * AXIS_MAX], high[AXIS_MAX * AXIS_MAX],
        count[AXIS_MAX * AXIS_MAX];
    size_t columns, rows;
} grid;

static size_t index_of(const double *list, size_t count, double value) {
    size_t i = 0;
    while (i < count && list[i] != value) i++;
    return i;
}

static void fill_grid(const ls_suite_view *view, grid *g) {
    g->columns = list_values(view, g->axes->column, g->x);
    g->rows = list_values(view, g->axes->row, g->y);
    for (size_t i = 0; i < g->rows * g->columns; i++)
        g->value[i] = g->low[i] = g->high[i] = g->count[i] = NAN;
    for (size_t i = 0; i < cell_count(view); i++) {
        const json_t *cell = cell_at(view, i);
        const size_t column = index_of(g->x, g->columns, ls_member_real(cell, g->axes->column));
        const size_t row = index_of(g->y, g->rows, ls_member_real(cell, g->axes->row));
        if (column == g->columns || row == g->rows) continue;
        const size_t at = row * g->columns + column;
        g->value[at] = ls_member_real(cell, "score");
        g->low[at] = ls_member_real(cell, "low");
        g->high[at] = ls_member_real(cell, "high");
        g->count[at] = ls_member_real(cell, "n");
    }
}

static void grid_table(const ls_suite_view *view, const grid *g, ls_text *out) {
    ls_ctx *ctx = view->ctx;
    char text[160];
    ls_text_printf(ctx, out,
                   "<p class=\"soft\">Right in percent and, below it, the 95 %% interval and the "
                   "number of questions.</p>\n");
    ls_table_open(ctx, out);
    ls_table_head(ctx, g->axes->row_head, out);
    for (size_t c = 0; c < g->columns; c++) {
        snprintf(text, sizeof text, "%.0f%s", g->x[c], g->axes->column_unit);
        ls_table_head(ctx, text, out);
    }
    ls_table_body(ctx, out);
    for (size_t r = 0; r < g->rows; r++) {
        snprintf(text, sizeof text, "%.0f %%", g->y[r]);
        ls_table_row(ctx, text, out);
        for (size_t c = 0; c < g->columns; c++) {
            const size_t i = r * g->columns + c;
            snprintf(text, sizeof text, "%.0f<small>%.0f to %.0f, %.0f</small>", 100 * g->value[i],
                     100 * g->low[i], 100 * g->high[i], g->count[i]);
            ls_table_cell(ctx, g->value[i], text, out);
        }
        ls_text_printf(ctx, out, "</tr>\n");
    }
    ls_table_close(ctx, out);
}

static void draw_heat(const ls_suite_view *view, const grid *g, ls_text *out) {
    char mark[64];
    double at;
    mark_of(view, &at, mark, sizeof mark);
    const ls_heat heat = {.title = view->title,
                          .x_label = "length of the context, tokens",
                          .y_label = "depth",
                          .mark_text = mark,
                          .mark_x = at,
                          .chance = ls_member_real(view->results, "chance"),
                          .columns = g->columns,
                          .rows = g->rows,
                          .x = g->x,
                          .y = g->y,
                          .value = g->value,
                          .low = g->low,
                          .high = g->high,
                          .count = g->count};
    ls_chart_heat(view->ctx, &heat, out);
}

/* All depths together. Answers are right or wrong, unless the model went on in its own words. */
static void draw_pooled(const ls_suite_view *view, const grid *g, ls_text *out) {
    double y[AXIS_MAX], low[AXIS_MAX], high[AXIS_MAX];
    char mark[64], title[256];
    ls_chart_series series = {.arm = "all depths",
                              .label = "all depths",
                              .count = g->columns,
                              .x = (double *)g->x,
                              .y = y,
                              .low = low,
                              .high = high};
    if (strcmp(ls_member_text(view->results, "form"), "generate") == 0) series.low = NULL;
    for (size_t c = 0; c < g->columns; c++) {
        double sum = 0, n = 0;
        for (size_t r = 0; r < g->rows; r++) {
            const size_t i = r * g->columns + c;
            if (!isfinite(g->value[i]) || !(g->count[i] > 0)) continue;
            sum += g->count[i] * g->value[i];
            n += g->count[i];
        }
        y[c] = 100 * sum / n;
        ls_share_interval(sum / n, n, &low[c], &high[c]);
        low[c] *= 100;
        high[c] *= 100;
    }
    ls_chart chart = {.title = title,
                      .x_label = "length of the context, tokens",
                      .y_label = "right, percent",
                      .markers = true,
                      .y_high = 100,
                      .mark_text = mark,
                      .bound_y = 100 * ls_member_real(view->results, "chance"),
                      .bound_text = "chance",
                      .spread = "95 %",
                      .series = &series,
                      .count = 1};
    mark_of(view, &chart.mark_x, mark, sizeof mark);
    snprintf(title, sizeof title, "%s: all depths together", view->title);
    ls_chart_lines(view->ctx, &chart, out);
}

typedef enum { MAP, MAP_AND_CURVE, TABLE } grid_part;

static void with_grid(const ls_suite_view *view, const grid_axes *axes, grid_part part,
                      ls_text *out) {
    grid *g = ls_new(view->ctx, 1, sizeof *g);
    if (g == NULL) {
        out->failed = true;
        return;
    }
    g->axes = axes;
    fill_grid(view, g);
    if (part == TABLE) grid_table(view, g, out);
    if (part != TABLE) draw_heat(view, g, out);
    if (part == MAP_AND_CURVE) draw_pooled(view, g, out);
    ls_free(view->ctx, g);
}

/* ---- lines ---- */

typedef struct lines {
    char names[SERIES_MAX][NAME];
    double x[SERIES_MAX][POINTS_MAX], y[SERIES_MAX][POINTS_MAX], low[SERIES_MAX][POINTS_MAX],
        high[SERIES_MAX][POINTS_MAX];
    ls_chart_series series[SERIES_MAX];
    size_t count;
} lines;

/* What tells the lines of a chart apart: all of a cell but x and its scores. */
static void name_of(const json_t *cell, const char *x, char *out, size_t bytes) {
    static const char *const scores[] = {"n", "score", "low", "high", "metrics"};
    const char *key;
    json_t *value;
    out[0] = '\0';
    json_object_foreach((json_t *)cell, key, value) {
        bool skip = strcmp(key, x) == 0;
        for (size_t i = 0; i < sizeof scores / sizeof scores[0]; i++)
            skip = skip || strcmp(key, scores[i]) == 0;
        if (skip) continue;
        const size_t used = strlen(out);
        const char *gap = used > 0 ? ", " : "";
        const double number = json_number_value(value);
        const bool counted = strcmp(key, "pairs") == 0 || strcmp(key, "documents") == 0;
        if (json_is_string(value))
            snprintf(out + used, bytes - used, "%s%s", gap, json_string_value(value));
        else if (counted)
            snprintf(out + used, bytes - used, "%s%.0f %s", gap, number, key);
        else
            snprintf(out + used, bytes - used, "%s%s %.*f", gap, key, number != floor(number),
                     number);
    }
    if (out[0] == '\0') snprintf(out, bytes, "score");
}

static void add_point(lines *all, const json_t *cell, const char *x) {
    char name[NAME];
    size_t s = 0;
    name_of(cell, x, name, sizeof name);
    while (s < all->count && strcmp(all->names[s], name) != 0) s++;
    if (s == SERIES_MAX) return;
    ls_chart_series *series = &all->series[s];
    if (s == all->count) {
        all->count++;
        snprintf(all->names[s], NAME, "%s", name);
        *series = (ls_chart_series){.arm = all->names[s],
                                    .label = all->names[s],
                                    .style = {.colour = (int)s % LS_CHART_COLOURS,
                                              .dash = (int)s / LS_CHART_COLOURS,
                                              .marker = (int)s % LS_CHART_MARKERS},
                                    .x = all->x[s],
                                    .y = all->y[s],
                                    .low = all->low[s],
                                    .high = all->high[s]};
    }
    if (series->count == POINTS_MAX) return;
    const size_t i = series->count++;
    series->x[i] = ls_member_real(cell, x);
    series->y[i] = 100 * ls_member_real(cell, "score");
    series->low[i] = 100 * ls_member_real(cell, "low");
    series->high[i] = 100 * ls_member_real(cell, "high");
}

/* What the others are held against, level over the whole chart. */
static void add_references(const ls_suite_view *view, const char *x, lines *all) {
    const json_t *list = json_object_get(view->results, "references");
    double from = INFINITY, to = -INFINITY;
    for (size_t s = 0; s < all->count; s++)
        for (size_t i = 0; i < all->series[s].count; i++) {
            from = fmin(from, all->x[s][i]);
            to = fmax(to, all->x[s][i]);
        }
    for (size_t i = 0; i < json_array_size(list) && from < to; i++)
        for (int end = 0; end < 2; end++) {
            json_t *row = json_copy(json_array_get(list, i));
            json_object_set_new(row, x, json_real(end == 0 ? from : to));
            add_point(all, row, x);
            json_decref(row);
        }
}

static void draw_lines(const ls_suite_view *view, const char *x, const char *x_label,
                       ls_text *out) {
    ls_ctx *ctx = view->ctx;
    lines *all = ls_new(ctx, 1, sizeof *all);
    const bool by_length = strcmp(x, "length") == 0;
    char mark[64];
    double at;
    if (all == NULL) {
        out->failed = true;
        return;
    }
    for (size_t i = 0; i < cell_count(view); i++) add_point(all, cell_at(view, i), x);
    add_references(view, x, all);
    mark_of(view, &at, mark, sizeof mark);
    const ls_chart chart = {.title = view->title,
                            .x_label = x_label,
                            .y_label = "right, percent",
                            .x_even = !by_length,
                            .markers = true,
                            .y_low = 0,
                            .y_high = 100,
                            .mark_x = by_length ? at : 0,
                            .mark_text = mark,
                            .bound_y = 100 * ls_member_real(view->results, "chance"),
                            .bound_text = "chance",
                            .spread = "95 %",
                            .series = all->series,
                            .count = all->count};
    ls_chart_lines(ctx, &chart, out);
    ls_free(ctx, all);
}

/* ---- the table of all cells, or of what they are held against ---- */

static void cells_table(const ls_suite_view *view, bool references_alone, ls_text *out) {
    ls_ctx *ctx = view->ctx;
    const size_t cells = references_alone ? 0 : cell_count(view);
    static const char *const heads[] = {"cell", "questions", "score, percent", "95 %: from", "to"};
    ls_table_open(ctx, out);
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) ls_table_head(ctx, heads[i], out);
    ls_table_body(ctx, out);
    const json_t *references = json_object_get(view->results, "references");
    for (size_t i = 0; i < cells + json_array_size(references); i++) {
        const json_t *cell = i < cells ? cell_at(view, i) : json_array_get(references, i - cells);
        static const char *const keys[] = {"n", "score", "low", "high"};
        char text[160];
        name_of(cell, "", text, sizeof text);
        ls_table_row(ctx, text, out);
        for (size_t k = 0; k < 4; k++) {
            const double value = (k == 0 ? 1 : 100) * ls_member_real(cell, keys[k]);
            snprintf(text, sizeof text, k == 0 ? "%.0f" : "%.1f", value);
            ls_table_cell(ctx, value, text, out);
        }
        ls_text_printf(ctx, out, "</tr>\n");
    }
    ls_table_close(ctx, out);
}

static void places_table(const ls_suite_view *view, ls_text *out) {
    with_grid(view, &place_by_pairs, TABLE, out);
    if (json_array_size(json_object_get(view->results, "references")) > 0)
        cells_table(view, true, out);
}

bool ls_suite_is_grid(const ls_suite_view *view) {
    return cells_have(view, "length") && cells_have(view, "depth");
}

void ls_suite_heat(const ls_suite_view *view, ls_text *out) {
    with_grid(view, &depth_by_length, MAP, out);
}

void ls_suite_pictures(const ls_suite_view *view, ls_text *out) {
    if (ls_heads_are_in(view))
        ls_heads_pictures(view, out);
    else if (ls_suite_is_grid(view))
        with_grid(view, &depth_by_length, MAP_AND_CURVE, out);
    else if (cells_have(view, "position"))
        draw_lines(view, "position", "place of the answer, percent of the context", out);
    else if (cells_have(view, "length"))
        draw_lines(view, "length", "length of the context, tokens", out);
    else if (cells_have(view, "shots"))
        draw_lines(view, "shots", "examples in the context", out);
}

void ls_suite_table(const ls_suite_view *view, ls_text *out) {
    ls_text_printf(view->ctx, out, "<h3>");
    ls_html(view->ctx, view->title, out);
    ls_text_printf(view->ctx, out, "</h3>\n");
    if (ls_heads_are_in(view))
        ls_heads_table(view, out);
    else if (ls_suite_is_grid(view))
        with_grid(view, &depth_by_length, TABLE, out);
    else if (cells_have(view, "pairs") && cells_have(view, "position"))
        places_table(view, out);
    else
        cells_table(view, false, out);
}

void ls_suite_page_write(ls_ctx *ctx, const json_t *results, ls_text *out) {
    char title[128], text[256];
    const double chance = ls_member_real(results, "chance");
    snprintf(title, sizeof title, "Suite %s", ls_member_text(results, "suite"));
    const ls_suite_view view = {.ctx = ctx, .results = results, .title = title};
    ls_html_open(ctx, title, false, out);
    if (ls_heads_are_in(&view))
        snprintf(text, sizeof text, "Strongest prefix matching of a head: %.2f",
                 ls_member_real(results, "score"));
    else if (!isfinite(ls_member_real(results, "low"))) /* suite.resamples=0 */
        snprintf(text, sizeof text, "%.1f %% of %.0f questions",
                 100 * ls_member_real(results, "score"), ls_member_real(results, "n"));
    else
        snprintf(text, sizeof text, "%.1f %% (95 %%: %.1f to %.1f) of %.0f questions",
                 100 * ls_member_real(results, "score"), 100 * ls_member_real(results, "low"),
                 100 * ls_member_real(results, "high"), ls_member_real(results, "n"));
    ls_text_printf(ctx, out, "<p class=\"finding\">");
    ls_html(ctx, text, out);
    ls_text_printf(ctx, out, "</p>\n<dl>\n");
    ls_html_term(ctx, "form", ls_member_text(results, "form"), out);
    ls_html_term(ctx, "score", ls_member_text(results, "measure"), out);
    snprintf(text, sizeof text, "%.1f %%", 100 * chance);
    if (!ls_heads_are_in(&view))
        ls_html_term(ctx, "chance", isfinite(chance) ? text : "not known", out);
    ls_text_printf(ctx, out, "</dl>\n");
    ls_text_printf(ctx, out, "<div class=\"charts\">\n");
    ls_suite_pictures(&view, out);
    ls_text_printf(ctx, out, "</div>\n");
    ls_suite_table(&view, out);
    ls_text_printf(ctx, out,
                   "<p class=\"soft\">Every number is in results.json beside this page, every "
                   "question in samples.jsonl.</p>\n");
    ls_html_close(ctx, out);
}
