/* What training did: learning curves, and the trained length against the tested one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

static const json_t *arm_at(const ls_page *page, size_t index) {
    return json_array_get(page->arms, index);
}

/* ---- learning curves ---- */

static double number_at(const json_t *list, size_t index) {
    const json_t *value = json_array_get(list, index);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* training: {step, loss, loss_min, loss_max}: lists of one length, checked when they were read. */
static bool curve_of(ls_page *page, size_t arm, const char *key, ls_chart_series *out) {
    const json_t *training = json_object_get(arm_at(page, arm), key);
    static const char *const keys[] = {"step", "loss", "loss_min", "loss_max"};
    const size_t count = json_array_size(json_object_get(training, "step"));
    double *values = ls_new(page->ctx, 4 * count + 1, sizeof *values);
    if (values == NULL) page->out->failed = true;
    if (count == 0 || values == NULL) {
        ls_free(page->ctx, values);
        return false;
    }
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < count; i++)
            values[k * count + i] = number_at(json_object_get(training, keys[k]), i);
    *out = (ls_chart_series){.arm = ls_member_text(arm_at(page, arm), "name"),
                             .label = ls_member_text(arm_at(page, arm), "label"),
                             .style = page->styles[arm],
                             .count = count,
                             .x = values,
                             .y = values + count,
                             .low = values + 2 * count,
                             .high = values + 3 * count};
    ls_page_end(page, arm_at(page, arm), out->end);
    return true;
}

static void draw_curves(ls_page *page, const char *key, const char *title) {
    ls_chart_series *series = ls_new(page->ctx, page->count + 1, sizeof *series);
    size_t count = 0;
    if (series == NULL) page->out->failed = true;
    for (size_t i = 0; series != NULL && i < page->count; i++)
        count += curve_of(page, i, key, &series[count]);
    const ls_chart chart = {.title = title,
                            .x_label = "steps",
                            .y_label = "nats per token",
                            .x_even = true,
                            .ends = true,
                            .series = series,
                            .count = count};
    if (!page->out->failed) ls_chart_lines(page->ctx, &chart, page->out);
    for (size_t i = 0; i < count; i++) ls_free(page->ctx, series[i].x);
    ls_free(page->ctx, series);
}

void ls_page_learning(ls_page *page) {
    size_t curves = 0;
    for (size_t i = 0; i < page->count; i++)
        curves += json_object_get(arm_at(page, i), "training") != NULL;
    if (curves == 0) return;
    ls_page_charts(
        page, "Learning curves",
        "Loss of the training batches as training went on, the mean over seeds; the band "
        "is their range. Where there are more steps than fit, neighbours are averaged. "
        "A line that still falls at its end asks for more steps, one that rises for a "
        "lower learning rate.");
    draw_curves(page, "training", "Training loss");
    draw_curves(page, "validation", "Validation loss");
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

/* ---- trained length against tested length ---- */

/* What the labels of a family have in common. */
static void family_name(const ls_page *page, const json_t *members, char *out, size_t bytes) {
    const json_t *first = arm_at(page, (size_t)json_integer_value(json_array_get(members, 0)));
    const char *label = ls_member_text(first, "label");
    size_t common = ls_page_stem(page, first);
    for (size_t i = 1; i < json_array_size(members); i++) {
        const json_t *arm = arm_at(page, (size_t)json_integer_value(json_array_get(members, i)));
        const char *other = ls_member_text(arm, "label");
        const size_t length = ls_page_stem(page, arm);
        size_t same = 0;
        while (same < common && same < length && other[same] == label[same]) same++;
        common = same;
    }
    while (common > 0 && strchr(" ,-_.:(0123456789", label[common - 1]) != NULL &&
           label[common] != '\0' && common < ls_page_stem(page, first))
        common--;
    snprintf(out, bytes, "%.*s", common > 200 ? 200 : (int)common, label);
}

typedef struct lengths_map {
    const char *protocol, *key; /* of a row */
    double scale, dark, bright;
    const char *unit;
    double lengths[LS_PAGE_LENGTHS_MAX]; /* rising */
    size_t columns;
} lengths_map;

static void sort_rising(double *values, size_t count) {
    for (size_t i = 1; i < count; i++)
        for (size_t k = i; k > 0 && values[k - 1] > values[k]; k--) {
            const double swapped = values[k];
            values[k] = values[k - 1];
            values[k - 1] = swapped;
        }
}

static void draw_family(ls_page *page, const lengths_map *map, const json_t *members) {
    enum { ROWS_MAX = 64 };
    const size_t rows = json_array_size(members) < ROWS_MAX ? json_array_size(members) : ROWS_MAX;
    const size_t cells = rows * map->columns;
    double *value = ls_new(page->ctx, 3 * cells + 1, sizeof *value), marks[ROWS_MAX];
    size_t order[ROWS_MAX];
    char names[ROWS_MAX][24], title[LS_PAGE_TITLE_BYTES], family[256];
    const char *row_names[ROWS_MAX];
    if (value == NULL) page->out->failed = true;
    for (size_t r = 0; r < rows; r++) {
        const size_t arm = (size_t)json_integer_value(json_array_get(members, r));
        size_t at = r;
        const double own = ls_page_trained(page, arm_at(page, arm));
        for (; at > 0 && marks[at - 1] > own; at--) {
            marks[at] = marks[at - 1];
            order[at] = order[at - 1];
        }
        marks[at] = own;
        order[at] = arm;
    }
    for (size_t r = 0; value != NULL && r < rows; r++) {
        snprintf(names[r], sizeof names[r], "%.0f", marks[r]);
        row_names[r] = names[r];
        for (size_t c = 0; c < map->columns; c++) {
            const json_t *row =
                ls_page_row(arm_at(page, order[r]), "results", map->protocol, map->lengths[c]);
            value[r * map->columns + c] = map->scale * ls_member_real(row, map->key);
            const ls_band band = ls_band_of(row, map->key);
            value[cells + r * map->columns + c] = map->scale * band.low;
            value[2 * cells + r * map->columns + c] = map->scale * band.high;
        }
    }
    family_name(page, members, family, sizeof family);
    snprintf(title, sizeof title, "Trained and tested length, %s",
             family[0] == '\0' ? "all arms" : family);
    const ls_heat heat = {.title = title,
                          .x_label = "tokens of a window",
                          .y_label = "trained at",
                          .marks = marks,
                          .chance = NAN,
                          .columns = map->columns,
                          .rows = rows,
                          .x = map->lengths,
                          .row_names = row_names,
                          .value = value,
                          .low = value + cells,
                          .high = value + 2 * cells,
                          .dark = map->dark,
                          .bright = map->bright,
                          .unit = map->unit,
                          .spread = "95 %"};
    if (value != NULL) ls_chart_heat(page->ctx, &heat, page->out);
    ls_free(page->ctx, value);
}

/* The scale of all maps: from the worst value to the best. */
static void find_scale(const ls_page *page, lengths_map *map, bool low_is_good) {
    double low = INFINITY, high = -INFINITY;
    for (size_t a = 0; a < page->count; a++)
        for (size_t c = 0; c < map->columns; c++) {
            const json_t *row =
                ls_page_row(arm_at(page, a), "results", map->protocol, map->lengths[c]);
            const double value = map->scale * ls_member_real(row, map->key);
            if (!isfinite(value)) continue;
            low = fmin(low, value);
            high = fmax(high, value);
        }
    map->dark = low_is_good ? high : low;
    map->bright = low_is_good ? low : high;
}

static bool differ_in_length(const ls_page *page, const json_t *members) {
    const json_t *first = arm_at(page, (size_t)json_integer_value(json_array_get(members, 0)));
    for (size_t i = 1; i < json_array_size(members); i++) {
        const json_t *arm = arm_at(page, (size_t)json_integer_value(json_array_get(members, i)));
        if (ls_page_trained(page, arm) != ls_page_trained(page, first)) return true;
    }
    return false;
}

void ls_page_trained_tested(ls_page *page, const char *protocol) {
    const bool judged = ls_page_judged(page, protocol);
    lengths_map map = {.protocol = protocol,
                       .key = judged ? "accuracy" : "loss",
                       .scale = judged ? 100 : 1,
                       .unit = judged ? "% right" : "nats per token"};
    if (page->trained_length == page->trained_most) return;
    map.columns = ls_page_lengths(page, "results", protocol, map.lengths);
    sort_rising(map.lengths, map.columns);
    find_scale(page, &map, !judged);
    json_t *families = ls_page_families(page), *members;
    const char *key;
    bool any = false;
    if (families == NULL) page->out->failed = true;
    json_object_foreach(families, key, members) {
        if (!differ_in_length(page, members)) continue;
        char title[LS_PAGE_TITLE_BYTES];
        snprintf(title, sizeof title, "Trained length against tested length: %s", protocol);
        if (!any)
            ls_page_charts(
                page, title,
                "One row per arm of a family, which differ in the length they were "
                "trained at. The thick line ends the lengths seen in training: what lies "
                "right of it is extrapolation. Yellow is best, dark worst, with one scale "
                "for all maps.");
        any = true;
        draw_family(page, &map, members);
    }
    if (any) ls_text_printf(page->ctx, page->out, "</div>\n");
    json_decref(families);
}
