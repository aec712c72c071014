/* Figures by length, or by the tokens before them: tables with a line for each kind, and their
 * chart. Rows of one table are of one model and type, and of as many tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/chart.h"
#include "report/figures_print.h"

enum { CELL_BYTES = LS_FIGURES_CELL_BYTES, ROWS_MAX = LS_FIGURES_ROWS_MAX, LINE_HEIGHT = 18 };

double ls__figures_tokens(const json_t *row) {
    return ls_member_real(row, "batch") * ls_member_real(row, "length");
}

double ls__figures_rate(const json_t *row) {
    const double rate = ls_member_real(row, "tokens_per_second");
    return isfinite(rate) ? rate : ls__figures_tokens(row) / ls_member_real(row, "seconds");
}

/* ---- which rows belong together ---- */

static bool same_members(const json_t *a, const json_t *b, const char *const *keys) {
    for (; *keys != NULL; keys++) {
        const json_t *one = json_object_get(a, *keys), *other = json_object_get(b, *keys);
        if (one != other && !json_equal(one, other)) return false;
    }
    return true;
}

static bool same_table(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"model", "dtype", "matmul", "recompute", "streams", NULL};
    const double one = ls__figures_tokens(a), other = ls__figures_tokens(b);
    return same_members(a, b, keys) && (one == other || (isnan(one) && isnan(other)));
}

static bool same_line(const json_t *a, const json_t *b) {
    static const char *const keys[] = {"kind", "settings", NULL};
    return same_table(a, b) && same_members(a, b, keys);
}

/* Whether no earlier row is the same in this way. */
static bool is_first(const json_t *rows, size_t at,
                     bool (*same)(const json_t *a, const json_t *b)) {
    for (size_t i = 0; i < at; i++)
        if (same(json_array_get(rows, i), json_array_get(rows, at))) return false;
    return true;
}

/* What a table goes along, and what its two kinds of figures are. */
typedef struct along {
    const char *key, *by, *bytes;
    double unit; /* of bytes */
} along;
static const along by_length = {"length", "by length",
                                "memory in MB (arena, scratch, weights, gradients, moments)", 1e-6};
static const along by_depth = {"depth", "by tokens before it", "state of a sequence in kB", 1e-3};

/* The rows of a table: first, its lengths in rising order, its lines by their first rows, and the
 * row of each line at each length (NULL: it was not taken). */
typedef struct table {
    const along *axis;
    const json_t *rows, *first;
    double lengths[ROWS_MAX];
    const json_t *line[ROWS_MAX];
    size_t count, lines;
    const json_t **at; /* [lines, count] */
} table;

static void find_lengths(table *t) {
    t->count = 0;
    for (size_t i = 0; i < json_array_size(t->rows); i++) {
        const json_t *row = json_array_get(t->rows, i);
        const double length = ls_member_real(row, t->axis->key);
        size_t at = 0;
        if (!same_table(row, t->first) || !isfinite(length)) continue;
        while (at < t->count && t->lengths[at] < length) at++;
        if (at < t->count && t->lengths[at] == length) continue;
        if (t->count == ROWS_MAX) return;
        memmove(t->lengths + at + 1, t->lengths + at, (t->count++ - at) * sizeof *t->lengths);
        t->lengths[at] = length;
    }
}

/* Which line a row is of; a new one where `row` begins it. */
static size_t line_of(table *t, const json_t *row) {
    size_t line = 0;
    while (line < t->lines && !same_line(t->line[line], row)) line++;
    if (line == t->lines && line < ROWS_MAX) t->line[t->lines++] = row;
    return line;
}

static size_t place_of(const table *t, const json_t *row) {
    const double length = ls_member_real(row, t->axis->key);
    size_t at = 0;
    while (at < t->count && t->lengths[at] != length) at++;
    return at;
}

/* False where it has no row with a length, or memory is short, which `out` is told. Free t->at. */
static bool fill_table(ls_ctx *ctx, table *t, ls_text *out) {
    const size_t all = json_array_size(t->rows);
    find_lengths(t);
    t->lines = 0;
    for (size_t i = 0; i < all; i++)
        if (same_table(json_array_get(t->rows, i), t->first))
            line_of(t, json_array_get(t->rows, i));
    t->at = t->count == 0 ? NULL : ls_new(ctx, t->lines * t->count, sizeof *t->at);
    out->failed |= t->count > 0 && t->at == NULL;
    for (size_t i = 0; t->at != NULL && i < all; i++) {
        const json_t *row = json_array_get(t->rows, i);
        if (!same_table(row, t->first)) continue;
        const size_t line = line_of(t, row), place = place_of(t, row);
        if (line == ROWS_MAX || place == t->count) continue;
        const json_t **cell = &t->at[line * t->count + place];
        if (*cell == NULL) *cell = row;
    }
    return t->at != NULL;
}

static const json_t *row_at(const table *t, size_t line, size_t length) {
    return t->at[line * t->count + length];
}

/* ---- tables ---- */

typedef enum { RATES, MEMORY } what_shown;

static void put_figure(const table *t, const json_t *row, what_shown what, char out[CELL_BYTES]) {
    const double value =
        what == RATES ? ls__figures_rate(row) : t->axis->unit * ls_member_real(row, "bytes");
    out[0] = '\0';
    if (row != NULL && isfinite(value)) ls__figures_real(value, 1, out, CELL_BYTES);
}

/* How many times as long a token takes at the longest length as at the shortest. */
static void put_growth(const table *t, size_t line, char out[CELL_BYTES]) {
    const json_t *shortest = row_at(t, line, 0), *longest = row_at(t, line, t->count - 1);
    out[0] = '\0';
    if (shortest == NULL || longest == NULL) return;
    ls__figures_real(ls__figures_rate(shortest) / ls__figures_rate(longest), 2, out, CELL_BYTES);
}

/* The largest of a line. */
static void put_spread(const table *t, size_t line, char out[CELL_BYTES]) {
    double most = 0;
    for (size_t i = 0; i < t->count; i++) {
        const json_t *row = row_at(t, line, i);
        if (row != NULL) most = fmax(most, ls_member_real(row, "spread"));
    }
    ls__figures_percent(most, out, CELL_BYTES);
}

/* "2 x 128, bytes, f32". */
static void put_model(const json_t *row, char out[CELL_BYTES]) {
    static const char *const keys[] = {"model", "dtype", "matmul"};
    out[0] = '\0';
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const char *text = ls_member_text(row, keys[i]);
        if (text[0] != '\0') ls__figures_join(out, CELL_BYTES, ", ", text);
    }
    if (json_is_true(json_object_get(row, "recompute")))
        ls__figures_join(out, CELL_BYTES, ", ", "recompute");
}

/* ", 8,192 tokens a step" or ", 4 sequences". */
static void put_work(const json_t *row, char out[CELL_BYTES]) {
    const double tokens = ls__figures_tokens(row), streams = ls_member_real(row, "streams");
    char number[64];
    out[0] = '\0';
    ls__figures_count(isfinite(tokens) ? tokens : streams, number, sizeof number);
    if (isfinite(tokens) || isfinite(streams))
        snprintf(out, CELL_BYTES, ", %s %s", number,
                 isfinite(tokens) ? "tokens a step" : "sequences");
}

static void say_caption(const table *t, what_shown what, const char *caption,
                        char out[3 * CELL_BYTES]) {
    char model[CELL_BYTES], work[CELL_BYTES], low[64], high[64];
    put_model(t->first, model);
    put_work(t->first, work);
    ls__figures_count(t->lengths[0], low, sizeof low);
    ls__figures_count(t->lengths[t->count - 1], high, sizeof high);
    int used = snprintf(out, 3 * CELL_BYTES, "%s, %.200s%.80s: %s, %s.", caption, model, work,
                        what == RATES ? "tokens/s" : t->axis->bytes, t->axis->by);
    if (what == RATES && t->count > 1)
        snprintf(out + used, 3 * CELL_BYTES - (size_t)used,
                 " Behind them: how many times as long a token takes at %s as at %s, the largest "
                 "spread of the line, and settings other than the defaults.",
                 high, low);
}

static void put_table(ls_paper *p, const table *t, what_shown what, const char *caption) {
    const char *heads[ROWS_MAX + 4] = {"mixer"};
    char names[ROWS_MAX][24], text[3 * CELL_BYTES], cell[CELL_BYTES], growth[64];
    const bool grows = what == RATES && t->count > 1;
    size_t count = 1;
    for (size_t i = 0; i < t->count; i++) {
        ls__figures_count(t->lengths[i], names[i], sizeof names[i]);
        heads[count++] = names[i];
    }
    snprintf(growth, sizeof growth, "%s/%s", names[t->count - 1], names[0]);
    if (grows) heads[count++] = growth;
    if (what == RATES) heads[count++] = "spread";
    if (what == RATES) heads[count++] = "settings";
    say_caption(t, what, caption, text);
    ls_paper_open(p, text, heads, count);
    for (size_t line = 0; line < t->lines; line++) {
        ls_paper_cell(p, ls_member_text(t->line[line], "kind"));
        for (size_t k = 0; k < t->count; k++) {
            put_figure(t, row_at(t, line, k), what, cell);
            ls_paper_cell(p, cell);
        }
        if (grows) put_growth(t, line, cell), ls_paper_cell(p, cell);
        if (what == RATES) put_spread(t, line, cell), ls_paper_cell(p, cell);
        if (what == RATES) ls_paper_cell(p, ls_member_text(t->line[line], "settings"));
        ls_paper_end_row(p);
    }
    ls_paper_close(p);
}

static bool put_tables(ls_paper *p, const json_t *rows, const along *axis, const char *caption) {
    table t = {.axis = axis, .rows = rows};
    bool found = false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        t.first = json_array_get(rows, i);
        if (!is_first(rows, i, same_table)) continue;
        if (!fill_table(p->page->ctx, &t, p->out)) continue;
        found = true;
        put_table(p, &t, RATES, caption);
        if (json_object_get(t.first, "bytes") != NULL) put_table(p, &t, MEMORY, caption);
        ls_free(p->page->ctx, t.at);
    }
    if (found) ls__figures_say_taken(p, rows);
    return found;
}

bool ls__figures_by_length(ls_paper *p, const json_t *rows, const char *caption) {
    return put_tables(p, rows, &by_length, caption);
}

bool ls__figures_by_depth(ls_paper *p, const json_t *rows, const char *caption) {
    return put_tables(p, rows, &by_depth, caption);
}

/* ---- a chart ---- */

/* Kinds that have the same words before the first comma are a family. */
static bool same_family(const json_t *a, const json_t *b) {
    const char *one = ls_member_text(a, "kind"), *other = ls_member_text(b, "kind");
    const size_t length = strcspn(one, ",");
    return strcspn(other, ",") == length && memcmp(one, other, length) == 0;
}

/* A colour for each family, and the family's members told apart. */
static void choose_styles(const table *t, ls_chart_series *series) {
    int family[ROWS_MAX], members[ROWS_MAX], families = 0; /* members: of those that begin one */
    for (size_t line = 0; line < t->lines; line++) {
        size_t own = 0;
        while (!same_family(t->line[own], t->line[line])) own++;
        if (own == line) family[line] = families++, members[line] = 0;
        series[line].style = ls_chart_style_of(family[own], members[own]++);
    }
}

/* Seconds of a million tokens. */
static void fill_series(const table *t, size_t line, double *room, ls_chart_series *out) {
    const char *kind = ls_member_text(t->line[line], "kind");
    *out = (ls_chart_series){.arm = kind, .label = kind, .x = room, .y = room + t->count};
    for (size_t i = 0; i < t->count; i++) {
        const json_t *row = row_at(t, line, i);
        if (row == NULL) continue;
        out->x[out->count] = t->lengths[i];
        out->y[out->count++] = 1e6 / ls__figures_rate(row);
    }
}

static bool draw(ls_ctx *ctx, const table *t, char *title, size_t bytes, ls_text *out) {
    char model[CELL_BYTES];
    ls_chart_series *series = ls_new(ctx, t->lines, sizeof *series);
    double *room = ls_new(ctx, 2 * t->lines * t->count, sizeof *room);
    const bool there = series != NULL && room != NULL;
    for (size_t i = 0; there && i < t->lines; i++)
        fill_series(t, i, room + 2 * t->count * i, &series[i]);
    if (there) choose_styles(t, series);
    put_model(t->first, model);
    snprintf(title, bytes, "Time of training by length: %.200s", model);
    const int needed = LINE_HEIGHT * (int)t->lines;
    const ls_chart chart = {.title = title,
                            .x_label = "tokens of a text",
                            .y_label = "seconds for a million tokens",
                            .y_log = true,
                            .markers = true,
                            .ends = true,
                            .height = LS_CHART_HEIGHT + (needed > 200 ? needed - 200 : 0),
                            .series = series,
                            .count = t->lines};
    const bool drawn = there && ls_chart_file(ctx, &chart, out);
    out->failed |= !there;
    ls_free(ctx, series);
    ls_free(ctx, room);
    return drawn;
}

bool ls_figures_chart(ls_ctx *ctx, const json_t *figures, const char *words, char *title,
                      size_t bytes, ls_text *out) {
    char part[64] = "";
    int used = 0;
    bool drawn = false, one = true;
    if (sscanf(words, "%63s %n", part, &used) != 1) return false;
    const json_t *rows = json_object_get(figures, part);
    json_t *chosen = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        if (ls__figures_has(row, words + used)) json_array_append(chosen, row);
    }
    table t = {.axis = &by_length, .rows = chosen, .first = json_array_get(chosen, 0)};
    for (size_t i = 0; i < json_array_size(chosen); i++)
        one &= same_table(json_array_get(chosen, i), t.first);
    if (t.first != NULL && one && fill_table(ctx, &t, out))
        drawn = draw(ctx, &t, title, bytes, out);
    ls_free(ctx, t.at);
    json_decref(chosen);
    return drawn;
}
