/* Charts of a study as files of their own, by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page_series.h"
#include "report/runs.h"

typedef struct picture {
    const char *measure, *title, *y_label;
    ls_column from;
    bool y_log;
    double y_high;
} picture;

static const picture pictures[] = {
    {"ppl",
     "Perplexity against length",
     "perplexity",
     {.x = "length", .y = "ppl", .band = "ppl", .scale = 1},
     true,
     0},
    {"loss",
     "Loss against length",
     "nats per token",
     {.x = "length", .y = "loss", .band = "loss", .scale = 1},
     false,
     0},
    {"excess",
     "Excess over the flat tail",
     "nats per token",
     {.x = "length", .y = "excess", .band = "excess", .scale = 1},
     false,
     0},
    {"accuracy",
     "Right answers against length",
     "right, percent",
     {.x = "length", .y = "accuracy", .band = "accuracy", .scale = 100},
     false,
     100},
    {"suite",
     "Right answers against length",
     "right, percent",
     {.y = "score", .low = "low", .high = "high", .scale = 100},
     false,
     100},
    {"positions",
     "Loss by position",
     "nats per token",
     {.object = "positions", .x = "position in the window"},
     false,
     0},
    {"scores",
     "Scores by distance, by tokens of a window",
     "nats above distance 0",
     {.object = "scores", .x = "distance", .y = "score", .scale = 1},
     false,
     0},
    {"expected",
     "Expected scores by distance, by tokens of a window",
     "over that at distance 0",
     {.object = "scores", .x = "distance", .y = "expected", .scale = 1},
     false,
     0}};

/* The line of one arm: by position, of a suite, of columns of the resolution at a length, or of its results. */
static ls_chart_series series_of(const ls_page *page, const picture *what, const char *of,
                                 size_t index) {
    const json_t *arm = json_array_get(page->arms, index), *asked = ls_page_suite(arm, of);
    ls_column from = what->from;
    if (strcmp(what->measure, "positions") == 0) return ls_series_of_positions(page, index, of);
    if (from.object != NULL)
        return ls_series_of_columns(page, index,
                                    ls_page_row(arm, "resolution", "", strtod(of, NULL)), &from);
    const bool suite = strcmp(what->measure, "suite") == 0;
    from.rows = suite ? json_object_get(asked, "curve") : json_object_get(arm, "results");
    if (suite)
        from.x = ls_member_text(asked, "x");
    else
        from.protocol = of;
    return ls_series_of_rows(page, index, &from);
}

bool ls_paper_chosen(const char *names, const char *name) {
    const size_t length = strlen(name);
    if (names[strspn(names, " ")] == '\0') return true;
    for (const char *at = names; (at = strstr(at, name)) != NULL; at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static bool draw(ls_page *page, const picture *what, const char *of, const char *arms,
                 ls_text *out) {
    char title[LS_PAGE_TITLE_BYTES], mark[64];
    ls_chart_series *series = ls_new(page->ctx, page->count + 1, sizeof *series);
    size_t count = 0;
    if (series == NULL) out->failed = true;
    for (size_t a = 0; series != NULL && a < page->count; a++) {
        if (!ls_paper_chosen(arms, ls_member_text(json_array_get(page->arms, a), "name"))) continue;
        series[count] = series_of(page, what, of, a);
        count += series[count].x != NULL;
    }
    snprintf(title, sizeof title, "%s: %.100s", what->title, of);
    snprintf(mark, sizeof mark, "trained at %.0f", page->trained_length);
    const ls_chart chart = {
        .title = title,
        .x_label = what->from.object == NULL ? "tokens of a window" : what->from.x,
        .y_label = what->y_label,
        .y_log = what->y_log,
        .y_high = what->y_high,
        .markers = what->from.object == NULL,
        .ends = true,
        .mark_x = page->trained_length == page->trained_most ? page->trained_length : 0,
        .mark_text = mark,
        .series = series,
        .count = count};
    const bool drawn = count > 0 && ls_chart_file(page->ctx, &chart, out);
    for (size_t i = 0; i < count; i++) ls_free(page->ctx, series[i].x);
    ls_free(page->ctx, series);
    return drawn;
}

/* The heat map of one arm, by length and depth. */
static bool draw_heat(const ls_page *page, const char *of, const char *name, char *title,
                      size_t bytes, ls_text *out) {
    const json_t *arm = ls_paper_arm(page, name), *suite = ls_page_suite(arm, of);
    ls_text figure = {0};
    if (suite == NULL) return false;
    json_t *shown = json_copy((json_t *)suite);
    json_object_set(shown, "trained_length", json_object_get(arm, "trained_length"));
    snprintf(title, bytes, "%.100s by length and depth: %.100s", of, ls_member_text(arm, "label"));
    const ls_suite_view view = {.ctx = page->ctx, .results = shown, .title = title};
    if (ls_suite_is_grid(&view)) ls_suite_heat(&view, &figure);
    const bool drawn =
        figure.length > 0 && ls_chart_figure_file(page->ctx, title, figure.bytes, out);
    out->failed |= figure.failed || shown == NULL;
    ls_text_clear(page->ctx, &figure);
    json_decref(shown);
    return drawn;
}

/* A bar for each arm: how far it is from another one at one length, "MEASURE PROTOCOL LENGTH
 * ARMS". */
static bool draw_against(const ls_page *page, const char *name, const char *words, char *title,
                         size_t bytes, ls_text *out) {
    enum { ARMS_MAX = 64 };
    char key[64], protocol[128], under[LS_PAGE_TITLE_BYTES];
    const char *arms[ARMS_MAX], *labels[ARMS_MAX];
    double value[ARMS_MAX], low[ARMS_MAX], high[ARMS_MAX], length;
    size_t count = 0;
    int used = 0;
    const json_t *base = ls_paper_arm(page, name);
    if (base == NULL || sscanf(words, "%63s %127s %lf%n", key, protocol, &length, &used) != 3)
        return false;
    const ls_paper_measure *measure = ls_paper_measure_named(key);
    for (size_t a = 0; measure != NULL && a < page->count && count < ARMS_MAX; a++) {
        const json_t *arm = json_array_get(page->arms, a);
        const ls_paper_difference d =
            ls_paper_between(measure, ls_page_row(arm, "results", protocol, length),
                             ls_page_row(base, "results", protocol, length));
        arms[count] = ls_member_text(arm, "name");
        labels[count] = ls_member_text(arm, "label");
        if (arm == base || d.seeds == 0 || !ls_paper_chosen(words + used, arms[count])) continue;
        value[count] = d.mean;
        low[count] = d.mean - d.half;
        high[count++] = d.mean + d.half;
    }
    if (count == 0) return false;
    snprintf(title, bytes, "%s against %.100s: %.60s", measure->name, ls_member_text(base, "label"),
             protocol);
    snprintf(under, sizeof under, "%s, less that of %.200s", measure->name,
             ls_member_text(base, "label"));
    static const char *const only[] = {""};
    const ls_bars bars = {.title = title,
                          .x_label = under,
                          .names = only,
                          .groups = count,
                          .bars = 1,
                          .arms = arms,
                          .labels = labels,
                          .value = value,
                          .low = low,
                          .high = high};
    ls_text figure = {0};
    ls_chart_bars(page->ctx, &bars, &figure);
    out->failed |= figure.failed;
    const bool drawn =
        figure.length > 0 && ls_chart_figure_file(page->ctx, title, figure.bytes, out);
    ls_text_clear(page->ctx, &figure);
    return drawn;
}

bool ls_paper_chart(ls_page *page, const char *words, char *title, size_t bytes, ls_text *out) {
    char measure[64] = "", of[128] = "";
    int used = 0;
    bool drawn = false;
    if (sscanf(words, "%63s %127s %n", measure, of, &used) < 2) return false;
    if (strcmp(measure, "runs") == 0)
        return ls_runs_chart(page, words + strlen("runs"), title, bytes, out);
    if (strcmp(measure, "heat") == 0) return draw_heat(page, of, words + used, title, bytes, out);
    if (strcmp(measure, "against") == 0)
        return draw_against(page, of, words + used, title, bytes, out);
    page->styles = ls_new(page->ctx, page->count + 1, sizeof *page->styles);
    page->out = out;
    if (page->styles == NULL || !ls_page_find_groups(page) || !ls_page_choose_styles(page))
        out->failed = true;
    for (size_t i = 0; !out->failed && i < sizeof pictures / sizeof *pictures; i++)
        if (strcmp(pictures[i].measure, measure) == 0) {
            drawn = draw(page, &pictures[i], of, words + used, out);
            snprintf(title, bytes, "%s: %.100s", pictures[i].title, of);
        }
    ls_free(page->ctx, page->styles);
    ls_free(page->ctx, page->members);
    ls_free(page->ctx, page->begins);
    return drawn;
}
