/* The page's charts: which numbers of the study go into which. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page_series.h"

enum {
    LENGTHS_MAX = LS_PAGE_LENGTHS_MAX,
    TITLE_BYTES = LS_PAGE_TITLE_BYTES,
    NOTE_BYTES = 1024,
    OWN_AXES = -1
};

static const json_t *arm_at(const ls_page *page, size_t index) {
    return json_array_get(page->arms, index);
}

/* ---- series ---- */

static ls_chart_series *series_room(const ls_page *page) {
    ls_chart_series *series = ls_new(page->ctx, 2 * page->count + 1, sizeof *series);
    if (series == NULL) page->out->failed = true;
    return series;
}

/* One chart per group, all with the same axes unless chart.share is OWN_AXES. `series` has those of
 * all arms, which are freed, and as much room again. */
static void draw_groups(ls_page *page, ls_chart chart, const char *what, ls_chart_series *series) {
    ls_chart_series *own = series + page->count;
    char mark[64], title[TITLE_BYTES];
    const char *name;
    size_t count;
    snprintf(mark, sizeof mark, "trained at %.0f", page->trained_length);
    /* arms of different lengths say theirs in their labels */
    if (!chart.x_even && page->trained_length == page->trained_most)
        chart.mark_x = page->trained_length;
    chart.mark_text = mark;
    chart.ends = true;
    chart.share = chart.share == OWN_AXES ? 0 : ++page->shares;
    if (chart.share > 0) chart.extent = ls_chart_extent_of(&chart, series, page->count);
    for (size_t g = 0; !page->out->failed && (count = ls_page_group(page, g, &name)) > 0; g++) {
        snprintf(title, sizeof title, "%s, %s%s", what, name,
                 g == 0 ? "" : " and methods at test time");
        for (size_t i = 0; i < count; i++) own[i] = series[page->group[i]];
        chart.title = title;
        chart.series = own;
        chart.count = count;
        ls_chart_lines(page->ctx, &chart, page->out);
    }
    for (size_t i = 0; i < page->count; i++) ls_free(page->ctx, series[i].x);
}

/* Of one list of every arm; with a suite, of its list. */
static void draw_list(ls_page *page, ls_chart chart, const char *what, const char *suite,
                      const char *list, ls_column from) {
    ls_chart_series *series = series_room(page);
    for (size_t i = 0; series != NULL && i < page->count; i++) {
        const json_t *arm = arm_at(page, i);
        from.rows = json_object_get(suite == NULL ? arm : ls_page_suite(arm, suite), list);
        series[i] = ls_series_of_rows(page, i, &from);
    }
    if (series != NULL) draw_groups(page, chart, what, series);
    ls_free(page->ctx, series);
}

static void draw_rows(ls_page *page, ls_chart chart, const char *what, const char *list,
                      ls_column from) {
    draw_list(page, chart, what, NULL, list, from);
}

/* ---- excess ---- */

/* The lengths of a protocol beyond the trained one, from the first arm that has any. */
static size_t long_lengths(const ls_page *page, const char *protocol, double *lengths) {
    const ls_column from = {.protocol = protocol};
    size_t count = 0;
    for (size_t a = 0; a < page->count && count == 0; a++) {
        const json_t *rows = json_object_get(arm_at(page, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            double length = ls_member_real(row, "length");
            if (ls_column_wants(&from, row) && length > page->trained_length && count < LENGTHS_MAX)
                lengths[count++] = length;
        }
    }
    return count;
}

typedef struct bar_values {
    double *value, *low, *high;
} bar_values;

static void fill_bars(const ls_page *page, size_t groups, const char *protocol,
                      const double *lengths, size_t bars, bar_values *values) {
    const ls_column from = {.protocol = protocol};
    for (size_t i = 0; i < groups * bars; i++)
        values->value[i] = values->low[i] = values->high[i] = NAN;
    for (size_t g = 0; g < groups; g++) {
        const json_t *rows = json_object_get(arm_at(page, page->group[g]), "results");
        const double trained = ls_page_trained(page, arm_at(page, page->group[g]));
        for (size_t r = 0; r < json_array_size(rows); r++) {
            const json_t *row = json_array_get(rows, r);
            for (size_t b = 0; b < bars; b++) {
                if (!ls_column_wants(&from, row) || ls_member_real(row, "length") != lengths[b])
                    continue;
                if (lengths[b] <= trained) continue; /* 0 by its definition */
                values->value[g * bars + b] = ls_member_real(row, "excess");
                const ls_band band = ls_band_of(row, "excess");
                values->low[g * bars + b] = band.low;
                values->high[g * bars + b] = band.high;
            }
        }
    }
}

/* The ends of all bars, whichever chart they are in. */
static void find_ends(const bar_values *values, size_t count, double *low, double *high) {
    *low = *high = 0;
    for (size_t i = 0; i < count; i++) {
        *low = fmin(*low, fmin(values->value[i], values->low[i]));
        *high = fmax(*high, fmax(values->value[i], values->high[i]));
    }
}

static void draw_excess(ls_page *page, const char *protocol) {
    double lengths[LENGTHS_MAX];
    char texts[LENGTHS_MAX][32], title[TITLE_BYTES];
    const char *names[LENGTHS_MAX], *group_title;
    size_t bars = long_lengths(page, protocol, lengths), count, room = page->count * bars + 1;
    for (size_t b = 0; b < bars; b++) {
        snprintf(texts[b], sizeof texts[b], "at %.0f", lengths[b]);
        names[b] = texts[b];
    }
    double *numbers = ls_new(page->ctx, 3 * room, sizeof *numbers), low = 0, high = 0;
    const char **arms = ls_new(page->ctx, 2 * page->count + 1, sizeof *arms);
    bar_values values = {0};
    if (numbers == NULL || arms == NULL)
        page->out->failed = true;
    else
        values = (bar_values){numbers, numbers + room, numbers + 2 * room};
    for (size_t g = 0; !page->out->failed && (count = ls_page_group(page, g, &group_title)) > 0;
         g++) {
        double group_low, group_high;
        fill_bars(page, count, protocol, lengths, bars, &values);
        find_ends(&values, count * bars, &group_low, &group_high);
        low = fmin(low, group_low);
        high = fmax(high, group_high);
    }
    const int share = ++page->shares;
    for (size_t g = 0;
         !page->out->failed && bars > 0 && (count = ls_page_group(page, g, &group_title)) > 0;
         g++) {
        const char **labels = arms + page->count;
        for (size_t i = 0; i < count; i++) {
            arms[i] = ls_member_text(arm_at(page, page->group[i]), "name");
            labels[i] = ls_member_text(arm_at(page, page->group[i]), "label");
        }
        fill_bars(page, count, protocol, lengths, bars, &values);
        snprintf(title, sizeof title, "Excess over the flat tail, %s", group_title);
        const ls_bars chart = {.title = title,
                               .x_label = "nats per token",
                               .names = names,
                               .groups = count,
                               .bars = bars,
                               .arms = arms,
                               .labels = labels,
                               .value = values.value,
                               .low = values.low,
                               .high = values.high,
                               .share = share,
                               .low_most = low,
                               .high_most = high};
        ls_chart_bars(page->ctx, &chart, page->out);
    }
    ls_free(page->ctx, numbers);
    ls_free(page->ctx, arms);
}

/* ---- sections ---- */

void ls_page_charts(ls_page *page, const char *title, const char *note) {
    ls_page_heading(page, title);
    ls_text_printf(page->ctx, page->out, "<p class=\"soft\">%s</p>\n<div class=\"charts\">\n",
                   note);
}

static const char *length_note(const ls_page *page) {
    return page->trained_length == page->trained_most
               ? "The dotted line is the training length"
               : "A tick across a line is the length that its arm was trained at";
}

static const char band_note[] =
    "the band the 95 % interval of the mean over seeds; in charts of more than six lines, of the "
    "arm whose name is pointed at.";

void ls_page_perplexity(ls_page *page, const char *protocol) {
    char title[TITLE_BYTES], note[NOTE_BYTES];
    snprintf(title, sizeof title, "Perplexity against length: %s", protocol);
    snprintf(
        note, sizeof note,
        "Both axes are logarithmic, and the same in all charts of a section. %s, %s An arm and "
        "the methods that test its weights have one colour. Click a name to hide an arm "
        "everywhere: axes follow what is left. Point at a chart to read all its lines at one "
        "length.",
        length_note(page), band_note);
    ls_page_charts(page, title, note);
    const ls_chart chart = {.x_label = "tokens of a window",
                            .y_label = "perplexity",
                            .y_log = true,
                            .markers = true,
                            .beside = "bits per byte"};
    const ls_column from = {.protocol = protocol,
                            .x = "length",
                            .y = "ppl",
                            .beside = "bits_per_byte",
                            .band = "ppl",
                            .scale = 1};
    draw_rows(page, chart, "Perplexity", "results", from);
    ls_text_printf(page->ctx, page->out,
                   "</div>\n<h3>Excess over the flat tail</h3>\n<p class=\"soft\">Above 0: worse "
                   "than if the loss had stayed what it was in the second half of the training "
                   "length. Longer windows have fewer starts, so perplexity may fall while "
                   "nothing is gained from context: this is what is left of it. Thin lines: 95 %% "
                   "interval of the mean over seeds.</p>\n<div class=\"charts\">\n");
    draw_excess(page, protocol);
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

/* Of the test samples; where lengths or arms differ in it, the largest. */
static double chance_of(const ls_page *page, const char *protocol) {
    double chance = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(arm_at(page, a), "results");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (strcmp(ls_member_text(row, "protocol"), protocol) == 0)
                chance = fmax(chance, ls_member_real(row, "chance")); /* not a number: left out */
        }
    }
    return chance;
}

void ls_page_accuracy(ls_page *page, const char *protocol) {
    char chance_text[64], note[NOTE_BYTES];
    const double chance = 100 * chance_of(page, protocol);
    snprintf(chance_text, sizeof chance_text, "chance %.1f %%", chance);
    snprintf(note, sizeof note,
             "Share of the scored positions whose most likely token is the answer. %s, %s The "
             "horizontal line is what the most frequent answer would get. Click a name to hide an "
             "arm everywhere.",
             length_note(page), band_note);
    ls_page_charts(page, "Right answers against length", note);
    const ls_chart chart = {.x_label = "tokens of a sample",
                            .y_label = "right answers, %",
                            .y_high = 100,
                            .bound_y = chance,
                            .bound_text = chance_text,
                            .markers = true};
    const ls_column from = {
        .protocol = protocol, .x = "length", .y = "accuracy", .band = "accuracy", .scale = 100};
    draw_rows(page, chart, "Right answers", "results", from);
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

const json_t *ls_page_suite(const json_t *arm, const char *name) {
    const json_t *suites = json_object_get(arm, "suites");
    for (size_t i = 0; i < json_array_size(suites); i++)
        if (strcmp(ls_member_text(json_array_get(suites, i), "name"), name) == 0)
            return json_array_get(suites, i);
    return NULL;
}

void ls_page_curves(ls_page *page, const char *suite, const char *x, const char *group,
                    ls_chart chart) {
    const ls_column from = {
        .protocol = group, .x = x, .y = "score", .low = "low", .high = "high", .scale = 100};
    char what[TITLE_BYTES];
    snprintf(what, sizeof what, "%.200s%s%.200s", suite, group == NULL ? "" : ", ",
             group == NULL ? "" : group);
    draw_list(page, chart, what, suite, "curve", from);
}

void ls_page_positions(ls_page *page, const char *protocol) {
    size_t points = 0;
    for (size_t i = 0; i < page->count; i++)
        points += json_array_size(json_object_get(arm_at(page, i), "positions"));
    if (points > 0) {
        char heading_text[TITLE_BYTES];
        snprintf(heading_text, sizeof heading_text, "Loss by position: %s", protocol);
        ls_page_charts(
            page, heading_text,
            "Mean loss of the predictions made at each position of the longest windows; means "
            "over seeds. Past the training length a method that breaks rises here at once.");
        ls_chart_series *series = series_room(page);
        for (size_t i = 0; series != NULL && i < page->count; i++)
            series[i] = ls_series_of_positions(page, i, protocol);
        const ls_chart chart = {.x_label = "position in the window", .y_label = "nats per token"};
        if (series != NULL) draw_groups(page, chart, "Loss by position", series);
        ls_free(page->ctx, series);
        ls_text_printf(page->ctx, page->out, "</div>\n");
    }
}

/* The largest length at which an arm's resolution has a column; 0: none has. */
static double longest_with(const ls_page *page, const char *object, const char *column) {
    double longest = 0;
    for (size_t a = 0; a < page->count; a++) {
        const json_t *rows = json_object_get(arm_at(page, a), "resolution");
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            if (json_array_size(json_object_get(json_object_get(row, object), column)) > 0)
                longest = fmax(longest, ls_member_real(row, "length"));
        }
    }
    return longest;
}

/* Columns of every arm's resolution at one length. */
static void draw_columns(ls_page *page, ls_chart chart, const char *what, double length,
                         ls_column from) {
    ls_chart_series *series = series_room(page);
    for (size_t i = 0; series != NULL && i < page->count; i++)
        series[i] = ls_series_of_columns(
            page, i, ls_page_row(arm_at(page, i), "resolution", "", length), &from);
    if (series != NULL) draw_groups(page, chart, what, series);
    ls_free(page->ctx, series);
}

void ls_page_scores(ls_page *page) {
    char what[TITLE_BYTES];
    const double longest = longest_with(page, "scores", "score");
    if (longest == 0) return;
    ls_page_charts(
        page, "Scores by distance",
        "The mean score before the softmax at each distance, less that at distance 0, over heads "
        "and layers: what resolution and oscillation are computed of, at 64 of the distances. "
        "Every chart has axes of its own, which fit most of its lines: one that reaches more than "
        "four times as far as the others, as a bias by distance (ALiBi's) does, leaves the frame, "
        "and the chart says how far it goes. Below, what a rotation lets expect "
        "where query and key are the same random vector, 1 at distance 0: the sum of "
        "cos(n theta) zeta^n over the pairs of a head.");
    ls_chart chart = {.x_label = "distance",
                      .y_label = "nats above distance 0",
                      .y_most = true,
                      .share = OWN_AXES};
    ls_column from = {.object = "scores", .x = "distance", .y = "score", .scale = 1};
    snprintf(what, sizeof what, "Scores in windows of %.0f", longest);
    draw_columns(page, chart, what, longest, from);
    chart.y_label = "expected score";
    chart.y_most = false;
    from.y = "expected";
    draw_columns(page, chart, "Expected scores", longest, from);
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

void ls_page_resolution(ls_page *page) {
    char what[TITLE_BYTES];
    size_t rows = 0;
    for (size_t i = 0; i < page->count; i++)
        rows += json_array_size(json_object_get(arm_at(page, i), "resolution"));
    if (rows == 0) return;
    ls_page_charts(
        page, "Attention resolution",
        "How sharply attention tells near from far, on the average: 100 R, mean over layers and "
        "heads. R also rises when scores oscillate; M, the share of attention where the score "
        "falls with distance, and O, the share of the scores' variance that no monotone curve "
        "explains, tell the two apart. Both head conventions are in the table.");
    ls_chart chart = {
        .x_label = "tokens of a window", .y_label = "100 R", .y_log = true, .markers = true};
    ls_column from = {.x = "length", .y = "R_head", .band = "R_head", .scale = 100};
    draw_rows(page, chart, "Resolution", "resolution", from);
    chart.y_label = "M";
    chart.y_log = false;
    from = (ls_column){.x = "length", .y = "M_head", .band = "M_head", .scale = 1};
    draw_rows(page, chart, "Monotonicity M", "resolution", from);
    chart.y_label = "O";
    from = (ls_column){.x = "length", .y = "O_layer", .band = "O_layer", .scale = 1};
    draw_rows(page, chart, "Oscillation O", "resolution", from);
    const double longest = longest_with(page, "by_layer", "R");
    snprintf(what, sizeof what, "Resolution by layer in windows of %.0f", longest);
    chart = (ls_chart){.x_label = "layer", .y_label = "100 R", .x_even = true, .markers = true};
    from = (ls_column){.object = "by_layer", .x = "layer", .y = "R", .scale = 100};
    draw_columns(page, chart, what, longest, from);
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

/* Beside a column of the results' own file, that of the costs. */
static void draw_cost(ls_page *page, ls_chart chart, const char *what, ls_column from) {
    ls_chart_series *series = series_room(page);
    const json_t *arms = json_object_get(page->timing, "arms");
    for (size_t i = 0; series != NULL && i < page->count; i++) {
        from.rows = json_object_get(json_array_get(arms, i), "results");
        series[i] = ls_series_of_rows(page, i, &from);
    }
    if (series != NULL) draw_groups(page, chart, what, series);
    ls_free(page->ctx, series);
}

void ls_page_cost(ls_page *page) {
    const json_t *arms = json_object_get(page->timing, "arms");
    const json_t *rows = json_object_get(json_array_get(arms, 0), "results");
    if (json_array_size(rows) == 0) return;
    const char *protocol = ls_member_text(json_array_get(rows, 0), "protocol");
    ls_page_charts(
        page, "What testing costs",
        "Of the evaluations above, on this machine, while jobs ran side by side: the only numbers "
        "here that differ from run to run. Throughput, higher is better: tokens of the test text "
        "scored in a second, not tokens generated. A line that stays level has a cost per token "
        "that does not grow with the length (state space models, linear attention); one that falls "
        "by half for each doubling pays for all pairs of tokens (softmax attention). Memory, lower "
        "is better: weights, carried states and activations of the evaluation, without the program "
        "itself; lines that begin together share the weights' size, and what rises is the state, "
        "the KV cache or the activations of a window. Short windows go through together, as many "
        "as the memory of a few long ones holds, so a line may fall at its end.");
    ls_chart chart = {.x_label = "tokens of a window",
                      .y_label = "tokens per second",
                      .y_log = true,
                      .markers = true};
    draw_cost(
        page, chart, "Throughput",
        (ls_column){.protocol = protocol, .x = "length", .y = "tokens_per_second", .scale = 1});
    chart.y_label = "MB";
    draw_cost(page, chart, "Memory",
              (ls_column){.protocol = protocol, .x = "length", .y = "bytes", .scale = 1e-6});
    ls_text_printf(page->ctx, page->out, "</div>\n");
}
