/* Tables and charts of single runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/runs.h"

enum { CELL_BYTES = 640, COLUMNS_MAX = 33, LINE_HEIGHT = 18, DECIMALS_MAX = 6 };

static const json_t *rows_of(const json_t *table) {
    return json_object_get(table, "rows");
}

static const json_t *columns_of(const json_t *table) {
    return json_object_get(table, "columns");
}

static bool is_share(const json_t *column) {
    return json_object_get(column, "samples") != NULL;
}

static bool is_published(const json_t *row) {
    return json_is_true(json_object_get(row, "published"));
}

/* How many samples were asked for a share; NAN: it is no share of ours. */
static double samples_of(const json_t *table, const json_t *row, size_t column) {
    const json_t *own = json_array_get(json_object_get(row, "samples"), column);
    if (is_published(row)) return NAN;
    return json_is_number(own)
               ? json_number_value(own)
               : ls_member_real(json_array_get(columns_of(table), column), "samples");
}

/* In percent. */
static ls_band band_of(const json_t *table, const json_t *row, size_t column) {
    ls_band band = {NAN, NAN};
    const double share = ls__runs_number(row, column) / 100,
                 samples = samples_of(table, row, column);
    if (isfinite(share) && isfinite(samples))
        ls_share_interval(share, samples, &band.low, &band.high);
    return (ls_band){100 * band.low, 100 * band.high};
}

/* ---- cells ---- */

/* At least so many, and as many as the number has. */
static int decimals_of(int decimals, double value) {
    for (; decimals < DECIMALS_MAX; decimals++) {
        char text[64];
        snprintf(text, sizeof text, "%.*f", decimals, value);
        if (fabs(strtod(text, NULL) - value) <= 1e-12 * fabs(value)) break;
    }
    return decimals;
}

static void put_cell(ls_paper *p, const json_t *table, const json_t *row, size_t column) {
    const json_t *kind = json_array_get(columns_of(table), column);
    const json_t *value = json_array_get(json_object_get(row, "values"), column);
    const bool sign = json_is_true(json_object_get(kind, "sign"));
    const double number = ls__runs_number(row, column);
    const ls_band band = band_of(table, row, column);
    const json_t *chosen = json_object_get(kind, "decimals");
    const int decimals =
        decimals_of(json_is_integer(chosen) ? (int)json_integer_value(chosen) : 1, number);
    char text[CELL_BYTES] = "";
    if (json_is_string(value))
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else if (isfinite(band.low))
        snprintf(text, sizeof text, "%.*f (%.*f to %.*f)", decimals, number, decimals, band.low,
                 decimals, band.high);
    else if (number >= 0 && decimals == 0 && !sign)
        ls_chart_count(number, text, sizeof text);
    else if (isfinite(number))
        snprintf(text, sizeof text, sign ? "%+.*f" : "%.*f", decimals, number);
    ls_paper_cell(p, text);
}

/* "Mamba, seed 2 (9,743 of 20,000 steps)": steps where they are not those of the table. */
static void put_label(ls_paper *p, const json_t *table, const json_t *row) {
    const double seed = ls_member_real(row, "seed"), planned = ls__runs_planned(table, row);
    const double steps = ls_member_real(row, "steps");
    char text[CELL_BYTES], taken[32], all[32];
    int used = snprintf(text, sizeof text, "%.512s", ls_member_text(row, "label"));
    if (isfinite(seed))
        used += snprintf(text + used, sizeof text - (size_t)used, ", seed %.0f", seed);
    ls_chart_count(steps, taken, sizeof taken);
    ls_chart_count(planned, all, sizeof all);
    if (steps < planned)
        snprintf(text + used, sizeof text - (size_t)used, " (%s of %s steps)", taken, all);
    else if (isfinite(planned) && planned != ls_member_real(table, "steps"))
        snprintf(text + used, sizeof text - (size_t)used, " (%s steps)", all);
    ls_paper_cell(p, text);
}

/* ---- how many samples ---- */

static bool same_samples(const json_t *a, const json_t *b) {
    const json_t *one = json_object_get(a, "samples"), *other = json_object_get(b, "samples");
    return one == other || (one != NULL && other != NULL && json_equal(one, other));
}

/* A line for the rows that were asked as many samples as this one, where it is the first of them. */
static void put_samples(ls_paper *p, const json_t *table, size_t first) {
    const json_t *rows = rows_of(table), *row = json_array_get(rows, first);
    ls_text label = {0};
    bool all = true;
    ls_text_printf(p->page->ctx, &label, "samples");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        const bool same = !is_published(other) && same_samples(other, row);
        if (same && i < first) {
            ls_text_clear(p->page->ctx, &label);
            return;
        }
        all &= same || is_published(other);
    }
    for (size_t i = first; !all && i < json_array_size(rows); i++) {
        const json_t *other = json_array_get(rows, i);
        if (!is_published(other) && same_samples(other, row))
            ls_text_printf(p->page->ctx, &label, "%s%s", i == first ? ": " : ", ",
                           ls_member_text(other, "label"));
    }
    p->out->failed |= label.failed;
    ls_paper_cell(p, label.failed ? "" : label.bytes);
    ls_text_clear(p->page->ctx, &label);
    for (size_t i = 0; i < json_array_size(columns_of(table)); i++) {
        const double samples = samples_of(table, row, i);
        char text[32] = "";
        if (isfinite(samples)) ls_chart_count(samples, text, sizeof text);
        ls_paper_cell(p, text);
    }
    ls_paper_end_row(p);
}

/* ---- tables ---- */

typedef struct found {
    bool runs, shares;
} found;

static found look(const json_t *table) {
    found out = {false, false};
    for (size_t i = 0; i < json_array_size(rows_of(table)); i++)
        out.runs |= !is_published(json_array_get(rows_of(table), i));
    for (size_t i = 0; i < json_array_size(columns_of(table)); i++)
        out.shares |= out.runs && is_share(json_array_get(columns_of(table), i));
    return out;
}

static void say_caption(const json_t *table, found what, char *out, size_t bytes) {
    const double steps = ls_member_real(table, "steps"), chance = ls_member_real(table, "chance");
    char count[32];
    int used = snprintf(out, bytes, "%s.", ls_member_text(table, "caption"));
    ls_chart_count(steps, count, sizeof count);
    if (isfinite(steps))
        used +=
            snprintf(out + used, bytes - (size_t)used, " %s steps, unless a row says else.", count);
    if (what.shares)
        used += snprintf(out + used, bytes - (size_t)used,
                         " Shares in percent, with their 95 %% interval (Wilson) over the samples "
                         "of the last rows.");
    if (isfinite(chance))
        snprintf(out + used, bytes - (size_t)used, " Chance is %.*f.", decimals_of(0, chance),
                 chance);
}

static void note_failures(ls_paper *p, const json_t *table) {
    const json_t *columns = columns_of(table), *rows = rows_of(table);
    const json_t *judge = ls__runs_named(columns, ls_member_text(table, "judge"));
    const char *label = ls_member_text(judge, "label");
    char begins[CELL_BYTES];
    ls_paper_note failed = {.paper = p};
    size_t column = 0;
    if (judge == NULL) return;
    while (json_array_get(columns, column) != judge) column++;
    snprintf(begins, sizeof begins, "Failures, at chance (%s): ",
             label[0] == '\0' ? ls_member_text(judge, "name") : label);
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (band_of(table, json_array_get(rows, i), column).low <= ls_member_real(table, "chance"))
            ls_paper_name_arm(&failed, begins, json_array_get(rows, i), "");
    ls_paper_end_note(&failed);
}

static void put_table(ls_paper *p, const json_t *table) {
    const json_t *columns = columns_of(table), *rows = rows_of(table);
    const found what = look(table);
    const char *names[COLUMNS_MAX] = {ls_member_text(table, "head")};
    char heads[COLUMNS_MAX][CELL_BYTES], caption[2 * CELL_BYTES];
    size_t count = 1;
    for (; count <= json_array_size(columns); count++) {
        const json_t *column = json_array_get(columns, count - 1);
        const char *label = ls_member_text(column, "label"), *unit = ls_member_text(column, "unit");
        snprintf(heads[count], CELL_BYTES, "%s%s%s",
                 label[0] == '\0' ? ls_member_text(column, "name") : label,
                 unit[0] == '\0' ? "" : ", ", unit);
        names[count] = heads[count];
    }
    say_caption(table, what, caption, sizeof caption);
    ls_paper_open(p, caption, names, count);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        put_label(p, table, json_array_get(rows, r));
        for (size_t c = 0; c + 1 < count; c++) put_cell(p, table, json_array_get(rows, r), c);
        ls_paper_end_row(p);
    }
    for (size_t r = 0; what.shares && r < json_array_size(rows); r++)
        if (!is_published(json_array_get(rows, r))) put_samples(p, table, r);
    ls_paper_close(p);
    note_failures(p, table);
}

static void put_about(ls_paper *p) {
    const json_t *tables = json_object_get(p->page->runs, "tables");
    ls_text text = {0};
    bool shares = false;
    for (size_t i = 0; i < json_array_size(tables); i++)
        shares |= look(json_array_get(tables, i)).shares;
    ls_text_printf(
        p->page->ctx, &text,
        "Single runs: no figure is a mean over seeds. %s%s (XXH3 of runs.json: %016llx.)",
        shares ? "Intervals are those of the samples asked, and say nothing of other seeds. " : "",
        ls_member_text(p->page->runs, "origin"), (unsigned long long)p->page->runs_hash);
    p->out->failed |= text.failed;
    if (!text.failed) ls_paper_prose(p, text.bytes);
    ls_paper_put(p, "\n\n");
    ls_text_clear(p->page->ctx, &text);
}

bool ls_runs_part(ls_paper *p, const char *words) {
    const json_t *table = ls__runs_table(p->page, words);
    if (p->page->runs != NULL && strcmp(words, "about") == 0)
        put_about(p);
    else if (table != NULL)
        put_table(p, table);
    else
        return false;
    return true;
}

void ls_runs_all(ls_paper *p) {
    const json_t *tables = json_object_get(p->page->runs, "tables");
    if (p->page->runs != NULL) put_about(p);
    for (size_t i = 0; i < json_array_size(tables); i++) put_table(p, json_array_get(tables, i));
}

/* ---- charts ---- */

/* The x of a column whose name is a number; NAN: it has none. */
static double place_of(const json_t *column) {
    const char *name = ls_member_text(column, "name");
    char *end;
    const double x = strtod(name, &end);
    return end > name && *end == '\0' && x > 0 && x < 1e15 ? x : NAN;
}

static ls_chart_series series_of(const json_t *table, const json_t *row, double *room) {
    const size_t count = json_array_size(columns_of(table));
    ls_chart_series s = {.arm = ls_member_text(row, "name"),
                         .label = ls_member_text(row, "label"),
                         .x = room,
                         .y = room + count,
                         .low = room + 2 * count,
                         .high = room + 3 * count};
    for (size_t i = 0; i < count; i++) {
        const double x = place_of(json_array_get(columns_of(table), i));
        const ls_band band = band_of(table, row, i);
        if (!isfinite(x)) continue;
        s.x[s.count] = x;
        s.y[s.count] = ls__runs_number(row, i);
        s.low[s.count] = band.low;
        s.high[s.count++] = band.high;
    }
    return s;
}

static const json_t *first_place(const json_t *table) {
    const json_t *columns = columns_of(table);
    for (size_t i = 0; i < json_array_size(columns); i++)
        if (isfinite(place_of(json_array_get(columns, i)))) return json_array_get(columns, i);
    return NULL;
}

bool ls_runs_chart(const ls_page *page, const char *words, char *title, size_t bytes,
                   ls_text *out) {
    char name[64] = "", trained[64];
    int used = 0;
    sscanf(words, "%63s %n", name, &used);
    const json_t *table = ls__runs_table(page, name), *rows = rows_of(table);
    const json_t *first = first_place(table);
    if (first == NULL) return false;
    const size_t columns = json_array_size(columns_of(table));
    ls_chart_series *series = ls_new(page->ctx, json_array_size(rows), sizeof *series);
    double *room = ls_new(page->ctx, 4 * columns * json_array_size(rows), sizeof *room);
    const bool there = series != NULL && room != NULL, shares = is_share(first);
    size_t count = 0;
    for (size_t i = 0; there && i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (!ls_paper_chosen(words + used, ls_member_text(row, "name"))) continue;
        series[count] = series_of(table, row, room + 4 * columns * count);
        series[count].style = ls_chart_style_of((int)count, 0);
        count++;
    }
    snprintf(title, bytes, "%.200s", ls_member_text(table, "caption"));
    const double mark = place_of(ls__runs_named(columns_of(table), ls_member_text(table, "judge")));
    snprintf(trained, sizeof trained, "trained at %.0f", mark);
    const int needed = LINE_HEIGHT * (int)count;
    const ls_chart chart = {.title = title,
                            .x_label = "tokens",
                            .y_label = shares ? "right, percent" : ls_member_text(first, "unit"),
                            .y_high = shares ? 100 : 0,
                            .markers = true,
                            .ends = true,
                            .height = LS_CHART_HEIGHT + (needed > 200 ? needed - 200 : 0),
                            .mark_x = isfinite(mark) ? mark : 0,
                            .mark_text = trained,
                            .bound_y = ls_member_real(table, "chance"),
                            .bound_text = "chance",
                            .series = series,
                            .count = count};
    const bool drawn = there && count > 0 && ls_chart_file(page->ctx, &chart, out);
    out->failed |= !there;
    ls_free(page->ctx, series);
    ls_free(page->ctx, room);
    return drawn;
}
