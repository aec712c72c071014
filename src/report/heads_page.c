/* What attention heads do, as maps of layers by heads: each score at the shortest length, and how
 * it changes to the longest; tables of the model's scores, of the heads that change most, and of
 * all heads. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/page.h"

/* Scores that have a map: of the text where there is one, else of repeated tokens. */
typedef struct shown {
    const char *key, *of_text, *name;
    bool both_ways; /* from -1 to 1, and of weights: the length does not change it */
} shown;
static const shown scores[] = {
    {"prefix_matching", NULL, "Prefix matching", false},
    {"previous_token", "text_previous_token", "Attention to the previous token", false},
    {"duplicate_token", NULL, "Attention to the same token", false},
    {"first_token", "text_first_token", "Attention to the first token", false},
    {"relative_entropy", "text_relative_entropy", "Entropy over ln(keys)", false},
    {"distance", "text_distance", "Mean distance, tokens", false},
    {"copying", NULL, "Copying (from weights)", true},
};
enum { SCORES = sizeof scores / sizeof scores[0], LENGTHS_MAX = 64 };

typedef struct axis {
    double *at; /* rising */
    size_t count;
} axis;

/* The heads of a model: their numbers, and the values of one score. */
typedef struct heads_view {
    const ls_suite_view *view;
    const json_t *cells;
    axis length, layer, head;
    double *value, *base; /* [layers][heads] */
    const char **keys;    /* [SCORES]: as they are called in the cells */
} heads_view;

bool ls_heads_are_in(const ls_suite_view *view) {
    const json_t *first = json_array_get(json_object_get(view->results, "cells"), 0);
    return json_object_get(first, "layer") != NULL && json_object_get(first, "head") != NULL;
}

static void add_value(axis *to, double value) {
    size_t at = 0;
    while (at < to->count && to->at[at] < value) at++;
    if (!isfinite(value) || (at < to->count && to->at[at] == value)) return;
    memmove(to->at + at + 1, to->at + at, (to->count - at) * sizeof *to->at);
    to->at[at] = value;
    to->count++;
}

static void heads_clear(heads_view *h) {
    ls_ctx *ctx = h->view->ctx;
    ls_free(ctx, h->length.at);
    ls_free(ctx, h->layer.at);
    ls_free(ctx, h->head.at);
    ls_free(ctx, h->value);
    ls_free(ctx, h->base);
    ls_free(ctx, h->keys);
}

static bool heads_open(const ls_suite_view *view, heads_view *h) {
    ls_ctx *ctx = view->ctx;
    *h = (heads_view){.view = view, .cells = json_object_get(view->results, "cells")};
    const size_t count = json_array_size(h->cells);
    axis *const axes[] = {&h->length, &h->layer, &h->head};
    static const char *const keys[] = {"length", "layer", "head"};
    for (int a = 0; a < 3; a++) {
        axes[a]->at = ls_new(ctx, count + 1, sizeof *axes[a]->at);
        for (size_t i = 0; axes[a]->at != NULL && i < count; i++)
            add_value(axes[a], ls_member_real(json_array_get(h->cells, i), keys[a]));
    }
    const size_t all = h->layer.count * h->head.count + 1;
    h->value = ls_new(ctx, all, sizeof *h->value);
    h->base = ls_new(ctx, all, sizeof *h->base);
    h->keys = ls_new(ctx, SCORES, sizeof *h->keys);
    if (h->length.at == NULL || h->layer.at == NULL || h->head.at == NULL || h->value == NULL ||
        h->base == NULL || h->keys == NULL)
        return false;
    const json_t *metrics = json_object_get(json_array_get(h->cells, 0), "metrics");
    for (size_t i = 0; i < SCORES; i++)
        h->keys[i] = scores[i].of_text != NULL && json_object_get(metrics, scores[i].of_text)
                         ? scores[i].of_text
                         : scores[i].key;
    return true;
}

static size_t place_of(const axis *in, double value) {
    size_t i = 0;
    while (i < in->count && in->at[i] != value) i++;
    return i;
}

/* The values of a score at a length; the largest of them. */
static double fill(const heads_view *h, const char *key, double length, double *out) {
    double most = 0;
    for (size_t i = 0; i < h->layer.count * h->head.count; i++) out[i] = NAN;
    for (size_t i = 0; i < json_array_size(h->cells); i++) {
        const json_t *cell = json_array_get(h->cells, i);
        const size_t row = place_of(&h->layer, ls_member_real(cell, "layer"));
        const size_t column = place_of(&h->head, ls_member_real(cell, "head"));
        if (ls_member_real(cell, "length") != length || row == h->layer.count ||
            column == h->head.count)
            continue;
        const double value = ls_member_real(json_object_get(cell, "metrics"), key);
        out[row * h->head.count + column] = value;
        if (value > most) most = value;
    }
    return most;
}

/* ---- maps ---- */

static void draw_map(const heads_view *h, const char *title, double most, bool both_ways,
                     ls_text *out) {
    const ls_head_map map = {.title = title,
                             .head = h->head.at,
                             .layer = h->layer.at,
                             .heads = h->head.count,
                             .layers = h->layer.count,
                             .value = h->value,
                             .most = most,
                             .both_ways = both_ways};
    ls_chart_head_map(h->view->ctx, &map, out);
}

static void draw_change(const heads_view *h, const shown *score, const char *key, ls_text *out) {
    const double longest = h->length.at[h->length.count - 1];
    char title[256], to[32], from[32];
    double most = 0;
    fill(h, key, h->length.at[0], h->base);
    fill(h, key, longest, h->value);
    for (size_t i = 0; i < h->layer.count * h->head.count; i++) {
        h->value[i] -= h->base[i];
        if (fabs(h->value[i]) > most) most = fabs(h->value[i]);
    }
    ls_chart_count(longest, to, sizeof to);
    ls_chart_count(h->length.at[0], from, sizeof from);
    snprintf(title, sizeof title, "%s: change from %s to %s", score->name, from, to);
    /* a tenth at least, so that noise does not look like a change */
    draw_map(h, title, strstr(key, "distance") ? fmax(most, 1) : ceil(10 * fmax(most, 0.05)) / 10,
             true, out);
}

void ls_heads_pictures(const ls_suite_view *view, ls_text *out) {
    heads_view h;
    if (!heads_open(view, &h)) out->failed = true;
    for (size_t i = 0; !out->failed && h.length.count > 0 && i < SCORES; i++) {
        char title[256], length[32];
        const double most = fill(&h, h.keys[i], h.length.at[0], h.value);
        const bool bounded = strstr(h.keys[i], "distance") == NULL;
        ls_chart_count(h.length.at[0], length, sizeof length);
        snprintf(title, sizeof title, scores[i].both_ways ? "%s" : "%s at %s tokens%s",
                 scores[i].name, length, h.keys[i] == scores[i].of_text ? " of text" : "");
        draw_map(&h, title, bounded ? 1 : fmax(most, 1), scores[i].both_ways, out);
        if (h.length.count > 1 && !scores[i].both_ways) draw_change(&h, &scores[i], h.keys[i], out);
    }
    heads_clear(&h);
}

/* ---- tables ---- */

/* A score's key in words: "text_first_token" is "first token, text". */
static void words_of(const char *key, char *out, size_t bytes) {
    static const char text[] = "text_";
    const bool of_text = strncmp(key, text, sizeof text - 1) == 0;
    snprintf(out, bytes, "%s%s", key + (of_text ? sizeof text - 1 : 0), of_text ? ", text" : "");
    for (char *c = out; *c != '\0'; c++)
        if (*c == '_') *c = ' ';
}

static void model_table(const ls_suite_view *view, ls_text *out) {
    static const char *const keys[] = {"repeat_gain", "in_context_learning",
                                       "in_context_learning_far"};
    static const char *const names[] = {"length", "gain of repeating", "token 500 less token 50",
                                        "token 0.95 T less token 50"};
    const json_t *list = json_object_get(view->results, "model_scores");
    if (json_array_size(list) == 0) return;
    ls_text_printf(view->ctx, out,
                   "<p class=\"soft\">Of the whole model, in nats per token: mean loss of random "
                   "tokens the first time less that of repeats; loss late in a text less that of "
                   "its token 50 (in-context-learning score).</p>\n");
    ls_table_open(view->ctx, out);
    for (size_t i = 0; i < 4; i++) ls_table_head(view->ctx, names[i], out);
    ls_table_body(view->ctx, out);
    for (size_t r = 0; r < json_array_size(list); r++) {
        const json_t *row = json_array_get(list, r), *metrics = json_object_get(row, "metrics");
        char text[64];
        ls_chart_count(ls_member_real(row, "length"), text, sizeof text);
        ls_table_row(view->ctx, text, out);
        for (size_t i = 0; i < 3; i++) {
            const double value = ls_member_real(metrics, keys[i]);
            snprintf(text, sizeof text, "%.3f", value);
            ls_table_cell(view->ctx, value, text, out);
        }
        ls_text_printf(view->ctx, out, "</tr>\n");
    }
    ls_table_close(view->ctx, out);
}

static void text_cell(ls_ctx *ctx, const char *text, ls_text *out) {
    ls_text_printf(ctx, out, "<td data-value=\"");
    ls_html(ctx, text, out);
    ls_text_printf(ctx, out, "\">");
    ls_html(ctx, text, out);
    ls_text_printf(ctx, out, "</td>");
}

static void changes_table(const ls_suite_view *view, ls_text *out) {
    static const char *const names[] = {"head", "score", "length", "from", "to"};
    const json_t *list = json_object_get(view->results, "changes");
    if (json_array_size(list) == 0) return;
    ls_text_printf(view->ctx, out,
                   "<p class=\"soft\">Heads of which one score differs most from that at the "
                   "shortest length.</p>\n");
    ls_table_open(view->ctx, out);
    for (size_t i = 0; i < 5; i++) ls_table_head(view->ctx, names[i], out);
    ls_table_body(view->ctx, out);
    for (size_t r = 0; r < json_array_size(list); r++) {
        const json_t *row = json_array_get(list, r);
        char text[96];
        snprintf(text, sizeof text, "layer %.0f, head %.0f", ls_member_real(row, "layer"),
                 ls_member_real(row, "head"));
        ls_table_row(view->ctx, text, out);
        words_of(ls_member_text(row, "metric"), text, sizeof text);
        text_cell(view->ctx, text, out);
        ls_chart_count(ls_member_real(row, "length"), text, sizeof text);
        ls_table_cell(view->ctx, ls_member_real(row, "length"), text, out);
        for (size_t i = 3; i < 5; i++) {
            snprintf(text, sizeof text, "%.3f", ls_member_real(row, names[i]));
            ls_table_cell(view->ctx, ls_member_real(row, names[i]), text, out);
        }
        ls_text_printf(view->ctx, out, "</tr>\n");
    }
    ls_table_close(view->ctx, out);
}

/* Never longer than a few bytes, whatever a file says. */
static size_t put_value(char *out, size_t bytes, const char *before, int digits, double value) {
    const bool usual = fabs(value) < 1e7;
    return (size_t)(usual ? snprintf(out, bytes, "%s%.*f", before, digits, value)
                          : snprintf(out, bytes, "%s%.4g", before, value));
}

/* The values of one head: at the shortest length, and small those at the others. */
static void put_head(const heads_view *h, size_t row, size_t column, double *values, ls_text *out) {
    const size_t all = h->layer.count * h->head.count, at = row * h->head.count + column;
    char text[64 + LENGTHS_MAX * 16];
    snprintf(text, sizeof text, "layer %.0f, head %.0f", h->layer.at[row], h->head.at[column]);
    ls_table_row(h->view->ctx, text, out);
    const size_t lengths = h->length.count < LENGTHS_MAX ? h->length.count : LENGTHS_MAX;
    for (size_t s = 0; s < SCORES; s++) {
        const double *value = values + s * lengths * all + at;
        const int digits = strstr(h->keys[s], "distance") == NULL ? 3 : 1;
        size_t used = put_value(text, sizeof text, "", digits, value[0]);
        for (size_t l = 1; l < lengths && !scores[s].both_ways; l++)
            used += put_value(text + used, sizeof text - used, l == 1 ? "<small>" : ", ", digits,
                              value[l * all]);
        if (lengths > 1 && !scores[s].both_ways)
            snprintf(text + used, sizeof text - used, "</small>");
        ls_table_cell(h->view->ctx, value[0], text, out);
    }
    ls_text_printf(h->view->ctx, out, "</tr>\n");
}

static void heads_table(const heads_view *h, ls_text *out) {
    ls_ctx *ctx = h->view->ctx;
    const size_t all = h->layer.count * h->head.count;
    const size_t lengths = h->length.count < LENGTHS_MAX ? h->length.count : LENGTHS_MAX;
    double *values = ls_new(ctx, SCORES * lengths * all + 1, sizeof *values);
    if (values == NULL) {
        out->failed = true;
        return;
    }
    ls_text_printf(ctx, out,
                   "<p class=\"soft\">All heads: at the shortest length and, below it, at the "
                   "others.</p>\n");
    ls_table_open(ctx, out);
    ls_table_head(ctx, "head", out);
    for (size_t s = 0; s < SCORES; s++) {
        char words[64];
        words_of(h->keys[s], words, sizeof words);
        ls_table_head(ctx, words, out);
        for (size_t l = 0; l < lengths; l++)
            fill(h, h->keys[s], h->length.at[l], values + (s * lengths + l) * all);
    }
    ls_table_body(ctx, out);
    for (size_t r = 0; r < h->layer.count; r++)
        for (size_t c = 0; c < h->head.count; c++) put_head(h, r, c, values, out);
    ls_table_close(ctx, out);
    ls_free(ctx, values);
}

void ls_heads_table(const ls_suite_view *view, ls_text *out) {
    heads_view h;
    model_table(view, out);
    changes_table(view, out);
    if (heads_open(view, &h))
        heads_table(&h, out);
    else
        out->failed = true;
    heads_clear(&h);
}
