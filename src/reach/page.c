/* reach.html: the sentence, then the evidence. One file that needs nothing beside it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "reach/reach.h"
#include "report/page.h"

enum { VARIANTS_MAX = 16, POINTS_MAX = 512, ID = 256 };

typedef struct reach_page {
    ls_ctx *ctx;
    const json_t *state;
    ls_text *out;
    char mark[64];
    double trained;
} reach_page;

/* A line for each variant. */
typedef struct variant_lines {
    double x[VARIANTS_MAX][POINTS_MAX], y[VARIANTS_MAX][POINTS_MAX];
    ls_chart_series series[VARIANTS_MAX];
    size_t count;
} variant_lines;

static const char *variant_name(const reach_page *page, size_t index) {
    return ls_member_text(json_array_get(json_object_get(page->state, "variants"), index), "name");
}

static size_t variant_count(const reach_page *page) {
    const size_t count = json_array_size(json_object_get(page->state, "variants"));
    return count < VARIANTS_MAX ? count : VARIANTS_MAX;
}

static const json_t *row_at(const reach_page *page, const char *variant, double length) {
    char id[ID];
    snprintf(id, sizeof id, "perplexity/%s/%.0f", variant, length);
    return ls_reach_result(page->state, id);
}

/* Lengths at which a loss was measured of any variant, rising. */
static size_t list_lengths(const reach_page *page, double *out, size_t most) {
    size_t count = 0;
    const char *key;
    json_t *job;
    json_object_foreach(json_object_get(page->state, "jobs"), key, job) {
        const double length = ls_member_real(job, "size");
        size_t at = 0;
        if (strncmp(key, "perplexity/", 11) != 0 || count == most) continue;
        while (at < count && out[at] < length) at++;
        if (at < count && out[at] == length) continue;
        memmove(out + at + 1, out + at, (count - at) * sizeof *out);
        out[at] = length;
        count++;
    }
    return count;
}

/* The model as it is: solid; extensions: dashed, in the colours that follow. */
static ls_chart_series *add_series(const reach_page *page, variant_lines *all, size_t variant) {
    const size_t s = all->count++;
    all->series[s] = (ls_chart_series){.arm = variant_name(page, variant),
                                       .label = variant_name(page, variant),
                                       .style = {.colour = (int)variant % LS_CHART_COLOURS,
                                                 .dash = variant == 0 ? 0 : 1 + (int)variant % 2,
                                                 .marker = (int)variant % LS_CHART_MARKERS},
                                       .x = all->x[s],
                                       .y = all->y[s]};
    return &all->series[s];
}

static void add_point(ls_chart_series *series, double x, double y) {
    if (series->count == POINTS_MAX || !isfinite(x)) return;
    series->x[series->count] = x;
    series->y[series->count++] = y;
}

static void draw(const reach_page *page, const variant_lines *all, ls_chart chart) {
    chart.mark_x = page->trained;
    chart.mark_text = page->mark;
    chart.series = all->series;
    chart.count = all->count;
    ls_chart_lines(page->ctx, &chart, page->out);
}

/* What a row of a variant says under a key, and what is derived of it. */
static double value_of(const reach_page *page, const char *key, const char *variant,
                       double length) {
    if (strcmp(key, "excess") == 0) return ls_reach_excess(page->state, variant, (int64_t)length);
    const double value = ls_member_real(row_at(page, variant, length), key);
    return strcmp(key, "bytes") == 0 ? 1e-6 * value : value;
}

/* A chart of one number by length; those of variants too, or the model's as it is alone. */
static void by_length(const reach_page *page, variant_lines *all, const char *key, bool variants,
                      ls_chart chart) {
    double lengths[POINTS_MAX];
    const size_t count = list_lengths(page, lengths, POINTS_MAX);
    all->count = 0;
    for (size_t v = 0; v < (variants ? variant_count(page) : 1); v++) {
        ls_chart_series *series = add_series(page, all, v);
        for (size_t i = 0; i < count; i++) {
            const double y = value_of(page, key, variant_name(page, v), lengths[i]);
            if (isfinite(y)) add_point(series, lengths[i], y);
        }
        if (series->count == 0) all->count--;
    }
    chart.x_label = "length, tokens";
    chart.markers = true;
    draw(page, all, chart);
}

static void perplexity_table(const reach_page *page) {
    double lengths[POINTS_MAX];
    const size_t count = list_lengths(page, lengths, POINTS_MAX);
    char text[96], ppl[32];
    ls_text_printf(page->ctx, page->out,
                   "<h3>Perplexity and, below it, excess in nats per token</h3>\n");
    ls_table_open(page->ctx, page->out);
    ls_table_head(page->ctx, "variant", page->out);
    for (size_t i = 0; i < count; i++) {
        snprintf(text, sizeof text, "%.0f", lengths[i]);
        ls_table_head(page->ctx, text, page->out);
    }
    ls_table_body(page->ctx, page->out);
    for (size_t v = 0; v < variant_count(page); v++) {
        ls_table_row(page->ctx, variant_name(page, v), page->out);
        for (size_t i = 0; i < count; i++) {
            const double value = value_of(page, "ppl", variant_name(page, v), lengths[i]);
            const double excess = value_of(page, "excess", variant_name(page, v), lengths[i]);
            ls_chart_number(value, ppl, sizeof ppl);
            snprintf(text, sizeof text, "%s<small>%+.3f</small>", ppl, excess);
            if (!isfinite(excess)) snprintf(text, sizeof text, "%s", ppl);
            ls_table_cell(page->ctx, value, text, page->out);
        }
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}

static void put_perplexity(const reach_page *page, variant_lines *all) {
    ls_text_printf(
        page->ctx, page->out,
        "<h2>Perplexity by length</h2>\n<p class=\"soft\">The same text at every length, "
        "cut into windows of that length.</p>\n<div class=\"charts\">\n");
    by_length(page, all, "ppl", true,
              (ls_chart){.title = "Perplexity", .y_label = "perplexity", .y_log = true});
    by_length(page, all, "excess", true,
              (ls_chart){.title = "Excess over the flat tail of the model as it is",
                         .y_label = "nats per token",
                         .y_low = -0.1,
                         .y_high = 2 * LS_REACH_EXCESS,
                         .bound_y = LS_REACH_EXCESS,
                         .bound_text = "useful below"});
    ls_text_printf(page->ctx, page->out, "</div>\n");
    perplexity_table(page);
}

/* ---- by position ---- */

static void position_series(const reach_page *page, variant_lines *all, size_t variant,
                            double length) {
    const json_t *at =
        json_object_get(row_at(page, variant_name(page, variant), length), "positions");
    const json_t *first = json_object_get(at, "first"), *end = json_object_get(at, "end");
    const json_t *loss = json_object_get(at, "loss"), *tokens = json_object_get(at, "tokens");
    double sum = 0, weight = 0, from = 0;
    if (json_array_size(loss) == 0) return;
    ls_chart_series *series = add_series(page, all, variant);
    /* single positions are noisy: neighbours go together until they span an eighth */
    for (size_t i = 0; i < json_array_size(loss); i++) {
        const double n = json_number_value(json_array_get(tokens, i));
        const double to = json_number_value(json_array_get(end, i));
        if (weight == 0) from = json_number_value(json_array_get(first, i));
        sum += n * json_number_value(json_array_get(loss, i));
        weight += n;
        if (to < 1.25 * (from + 1) && i + 1 < json_array_size(loss)) continue;
        if (weight > 0) add_point(series, sqrt((from + 1) * to), sum / weight);
        sum = weight = 0;
    }
}

static void put_positions(const reach_page *page, variant_lines *all) {
    double lengths[POINTS_MAX];
    size_t count = list_lengths(page, lengths, POINTS_MAX);
    char title[96], length[32];
    while (count > 0 && row_at(page, "as it is", lengths[count - 1]) == NULL) count--;
    if (count == 0) return;
    all->count = 0;
    for (size_t v = 0; v < variant_count(page); v++)
        position_series(page, all, v, lengths[count - 1]);
    ls_chart_count(lengths[count - 1], length, sizeof length);
    snprintf(title, sizeof title, "Loss by position in windows of %s tokens", length);
    ls_text_printf(page->ctx, page->out, "<h2>Loss by position</h2>\n<div class=\"charts\">\n");
    draw(page, all, (ls_chart){.title = title, .x_label = "position", .y_label = "nats per token"});
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

/* ---- questions ---- */

/* The pictures of all variants that were asked, then their tables. */
static void put_questions(const reach_page *page, const char *kind, const char *heading,
                          const char *about) {
    json_t *results[VARIANTS_MAX] = {NULL};
    bool any = false;
    for (size_t v = 0; v < variant_count(page); v++) {
        results[v] = ls_reach_rounds(page->state, kind, variant_name(page, v));
        any = any || results[v] != NULL;
    }
    if (!any) return;
    ls_text_printf(page->ctx, page->out, "<h2>%s</h2>\n<p class=\"soft\">%s</p>\n", heading, about);
    for (int table = 0; table < 2; table++) {
        if (!table) ls_text_printf(page->ctx, page->out, "<div class=\"charts\">\n");
        for (size_t v = 0; v < variant_count(page); v++) {
            char title[160];
            snprintf(title, sizeof title, "%s, %s", heading, variant_name(page, v));
            const ls_suite_view view = {page->ctx, results[v], title};
            if (results[v] != NULL) (table ? ls_suite_table : ls_suite_pictures)(&view, page->out);
        }
        if (!table) ls_text_printf(page->ctx, page->out, "</div>\n");
    }
    for (size_t v = 0; v < variant_count(page); v++) json_decref(results[v]);
}

static void put_resolution(const reach_page *page) {
    static const char *const heads[] = {"length", "100 R by head", "100 R by layer", "M by head"};
    static const char *const keys[] = {"R_head", "R_layer", "M_head"};
    bool any = false;
    const char *key;
    json_t *job;
    json_object_foreach(json_object_get(page->state, "jobs"), key, job) {
        char text[32];
        if (strncmp(key, "resolution/", 11) != 0 || json_object_get(job, "refused") != NULL)
            continue;
        if (!any) {
            ls_text_printf(page->ctx, page->out, "<h2>Attention resolution</h2>\n");
            ls_table_open(page->ctx, page->out);
            for (size_t i = 0; i < 4; i++) ls_table_head(page->ctx, heads[i], page->out);
            ls_table_body(page->ctx, page->out);
        }
        any = true;
        ls_chart_count(ls_member_real(job, "length"), text, sizeof text);
        ls_table_row(page->ctx, text, page->out);
        for (size_t i = 0; i < 3; i++) {
            const double value = (i < 2 ? 100 : 1) * ls_member_real(job, keys[i]);
            ls_chart_number(value, text, sizeof text);
            ls_table_cell(page->ctx, value, text, page->out);
        }
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    if (any) ls_table_close(page->ctx, page->out);
}

static void put_cost(const reach_page *page, variant_lines *all) {
    ls_text_printf(
        page->ctx, page->out,
        "<h2>Speed and memory</h2>\n<p class=\"soft\">While the text was scored: weights, "
        "states and one chunk of each window.</p>\n<div class=\"charts\">\n");
    by_length(page, all, "tokens_per_second", true,
              (ls_chart){.title = "Tokens a second", .y_label = "tokens/s", .y_log = true});
    by_length(page, all, "bytes", true,
              (ls_chart){.title = "Memory", .y_label = "MB", .y_log = true});
    ls_text_printf(page->ctx, page->out, "</div>\n");
}

/* ---- text ---- */

static void open_page(reach_page *page) {
    char title[300], text[400];
    snprintf(title, sizeof title, "How far %s reaches", ls_member_text(page->state, "model"));
    ls_html_open(page->ctx, title, false, page->out);
    ls_text_printf(page->ctx, page->out, "<p class=\"finding\">");
    ls_html(page->ctx, ls_member_text(page->state, "sentence"), page->out);
    snprintf(text, sizeof text,
             "Usefully: the excess is below %g nats per token at every length measured from the "
             "trained length up to there. Anywhere: at every depth, at this and every shorter "
             "length, at least %.0f %% of the questions are right.",
             LS_REACH_EXCESS, 100 * LS_REACH_FOUND);
    ls_text_printf(page->ctx, page->out, "</p>\n<p class=\"soft\">");
    ls_html(page->ctx, text, page->out);
    ls_text_printf(page->ctx, page->out, "</p>\n");
}

/* "at least 2,048"; what was not measured is left open. */
static void reach_cell(const reach_page *page, const json_t *list, const char *variant) {
    char text[64] = "", length[32];
    double value = NAN;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        if (strcmp(ls_member_text(one, "variant"), variant) != 0) continue;
        value = ls_member_real(one, "length");
        ls_chart_count(value, length, sizeof length);
        snprintf(text, sizeof text, "%s%s",
                 json_is_true(json_object_get(one, "at_least")) ? "at least " : "", length);
        if (value == 0) snprintf(text, sizeof text, "nowhere");
        if (json_is_false(json_object_get(one, "measured"))) value = NAN;
    }
    ls_table_cell(page->ctx, value, text, page->out);
}

static void put_finding(const reach_page *page) {
    static const char *const heads[] = {"variant", "reads usefully to", "needle anywhere to"};
    const json_t *finding = json_object_get(page->state, "finding");
    ls_table_open(page->ctx, page->out);
    for (size_t i = 0; i < 3; i++) ls_table_head(page->ctx, heads[i], page->out);
    ls_table_body(page->ctx, page->out);
    for (size_t v = 0; v < variant_count(page); v++) {
        ls_table_row(page->ctx, variant_name(page, v), page->out);
        reach_cell(page, json_object_get(finding, "reads"), variant_name(page, v));
        reach_cell(page, json_object_get(finding, "needle"), variant_name(page, v));
        ls_text_printf(page->ctx, page->out, "</tr>\n");
    }
    ls_table_close(page->ctx, page->out);
}

static void put_definitions(const reach_page *page) {
    static const char *const terms[][2] = {
        {"loss, perplexity", "Mean of -ln p(token), in nats per token; exp of it."},
        {"flat tail", "What the loss would be if every position up to the trained length kept its "
                      "own loss, and every later one had the mean loss of the second half of the "
                      "trained length."},
        {"excess",
         "Loss above the flat tail of the model as it is, on the same text. Between two "
         "measured lengths it is taken as straight over the logarithm of the length; such "
         "a length is rounded down to two figures."},
        {"at least", "The bound still held at the longest length measured."},
        {"needle", "Sentences \"The special magic number for KEY is VALUE.\" are hidden at depths "
                   "of a text; each VALUE is ranked among others by its log-likelihood with the "
                   "sentences less that without."},
        {"middle",
         "Keys and values, of which one is asked for, by its place in the list; ranked in "
         "the same way among other values of the list."},
        {"LAMBADA", "The last word of a passage; right where each of its tokens is the likeliest."},
        {"prefix matching, attention to ...",
         "Weights of attention where random tokens are repeated four times: to what followed "
         "earlier ones of the same token, to the token before, to the same token a repeat ago, to "
         "the first token; of text where the title says so."},
        {"copying",
         "From weights alone: how much attending to a token raises its own logit, of all "
         "that it raises; from -1 to 1."},
        {"resolution R, M", "With p the softmax over distances of the mean score at each distance: "
                            "the sum of p(k) (p(k) - p(k+1)); the share of p at distances where "
                            "the mean score falls."}};
    ls_text_printf(page->ctx, page->out, "<h2>What the words mean</h2>\n<dl>\n");
    for (size_t i = 0; i < sizeof terms / sizeof terms[0]; i++)
        ls_html_term(page->ctx, terms[i][0], terms[i][1], page->out);
    ls_text_printf(page->ctx, page->out, "</dl>\n");
}

/* How much of a measurement's name says what and of which variant: "needle/as it is" of
 * "needle/as it is/256/11". */
static size_t kind_length(const char *id) {
    const char *kind = strchr(id, '/'), *variant = kind == NULL ? NULL : strchr(kind + 1, '/');
    return variant == NULL ? strlen(id) : (size_t)(variant - id);
}

static bool same_kind(const char *a, const char *b) {
    return kind_length(a) == kind_length(b) && strncmp(a, b, kind_length(a)) == 0;
}

static const char *left_at(const json_t *left, size_t index) {
    const char *id = json_string_value(json_array_get(left, index));
    return id == NULL ? "" : id;
}

/* Measurements by their kinds: "needle, as it is: 12". */
static void put_left_kinds(const reach_page *page, const json_t *left) {
    ls_text_printf(page->ctx, page->out, "<ul>\n");
    for (size_t i = 0; i < json_array_size(left); i++) {
        const char *id = left_at(left, i);
        size_t before = 0, count = 0;
        while (before < i && !same_kind(left_at(left, before), id)) before++;
        if (before < i) continue;
        for (size_t k = i; k < json_array_size(left); k++) count += same_kind(left_at(left, k), id);
        char kind[128];
        snprintf(kind, sizeof kind, "%.*s", (int)kind_length(id), id);
        char *slash = strchr(kind, '/');
        if (slash != NULL) *slash = '\0';
        ls_text_printf(page->ctx, page->out, "<li>");
        ls_html(page->ctx, kind, page->out);
        if (slash != NULL) {
            ls_text_printf(page->ctx, page->out, ", ");
            ls_html(page->ctx, slash + 1, page->out);
        }
        ls_text_printf(page->ctx, page->out, ": %zu</li>\n", count);
    }
    ls_text_printf(page->ctx, page->out, "</ul>\n");
}

static void put_left_out(const reach_page *page) {
    const json_t *left = json_object_get(page->state, "left_out");
    const char *key;
    json_t *value;
    size_t refused = 0;
    json_object_foreach(json_object_get(page->state, "jobs"), key, value) refused +=
        json_object_get(value, "refused") != NULL;
    const json_t *none = json_object_get(page->state, "not_applicable");
    if (json_array_size(left) + refused + json_object_size(none) == 0) return;
    ls_text_printf(page->ctx, page->out, "<h2>What was left out</h2>\n");
    if (json_array_size(left) > 0) {
        ls_text_printf(page->ctx, page->out,
                       "<p>%zu measurements did not fit into the budget. The same command goes on "
                       "with them:</p>\n",
                       json_array_size(left));
        put_left_kinds(page, left);
    }
    if (refused + json_object_size(none) == 0) return;
    ls_text_printf(page->ctx, page->out, "<p>What does not apply to this model:</p>\n<dl>\n");
    json_object_foreach((json_t *)none, key, value) ls_html_term(
        page->ctx, key, json_is_string(value) ? json_string_value(value) : "", page->out);
    json_object_foreach(json_object_get(page->state, "jobs"), key,
                        value) if (json_object_get(value, "refused") != NULL)
        ls_html_term(page->ctx, key, ls_member_text(value, "refused"), page->out);
    ls_text_printf(page->ctx, page->out, "</dl>\n");
}

static void put_plan(const reach_page *page) {
    const json_t *plan = json_object_get(page->state, "plan");
    char text[400], tokens[32];
    ls_chart_count(ls_member_real(plan, "tokens"), tokens, sizeof tokens);
    ls_text_printf(page->ctx, page->out, "<h2>How it was made</h2>\n<dl>\n");
    ls_html_term(page->ctx, "position method", ls_member_text(page->state, "position"), page->out);
    ls_html_term(page->ctx, "text", ls_member_text(page->state, "corpus"), page->out);
    snprintf(text, sizeof text,
             "%s tokens at each length, protocol %s; chosen for a speed of %.0f tokens a second at "
             "the trained length",
             tokens, ls_member_text(plan, "protocol"), ls_member_real(plan, "tokens_per_second"));
    ls_html_term(page->ctx, "amount", text, page->out);
    if (ls_member_text(page->state, "dtype")[0] != '\0')
        ls_html_term(page->ctx, "arithmetic", ls_member_text(page->state, "dtype"), page->out);
    snprintf(text, sizeof text, "%.0f s of a budget of %.0f s a call",
             ls_member_real(page->state, "spent_seconds"),
             ls_member_real(page->state, "budget_seconds"));
    ls_html_term(page->ctx, "time", text, page->out);
    ls_html_term(page->ctx, "longshot", ls_member_text(page->state, "longshot"), page->out);
    ls_text_printf(
        page->ctx, page->out,
        "</dl>\n<p class=\"soft\">Every number is in reach.json beside this page.</p>\n");
}

void ls_reach_page(ls_ctx *ctx, const json_t *state, ls_text *out) {
    reach_page page = {
        .ctx = ctx, .state = state, .out = out, .trained = ls_member_real(state, "trained_length")};
    variant_lines *all = ls_new(ctx, 1, sizeof *all);
    char length[32];
    if (all == NULL) {
        out->failed = true;
        return;
    }
    ls_chart_count(page.trained, length, sizeof length);
    snprintf(page.mark, sizeof page.mark, "trained at %s", length);
    open_page(&page);
    put_finding(&page);
    put_perplexity(&page, all);
    put_positions(&page, all);
    put_questions(&page, "needle", "Needle by depth and length",
                  "A sentence hidden in noise: the share of questions whose answer gains most from "
                  "it. Its chance is one in ten.");
    put_questions(&page, "middle", "Key-value pairs by place",
                  "A value asked for by its key, by its place among all pairs. Chance is one in "
                  "ten.");
    ls_reach_page_lambada(ctx, state, out);
    put_resolution(&page);
    ls_reach_page_heads(ctx, state, out);
    put_cost(&page, all);
    put_left_out(&page);
    put_definitions(&page);
    put_plan(&page);
    ls_html_close(ctx, out);
    ls_free(ctx, all);
}
