/* What attention heads do, as maps of layers by heads: each score at the shortest length, and how
 * it changes to the longest; tables of the model's scores, of the heads that change most, and of
 * all heads. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* A cell by what it is of. */
typedef struct entry {
    double layer, head, length;
    size_t index;
    const json_t *metrics;
} entry;

/* The heads of a model, sorted, so that what is made of them grows with the cells that there are,
 * whatever numbers they have. */
typedef struct heads_view {
    const ls_suite_view *view;
    axis length, layer, head;
    entry *at; /* [entries]: by layer, head and length */
    size_t entries;
    size_t *first;        /* [count + 1]: where the cells of a head begin */
    ls_head_place *place; /* [count] */
    double *value;        /* [count] */
    size_t count;
    const char **keys; /* [SCORES]: as they are called in the cells */
} heads_view;

bool ls_heads_are_in(const ls_suite_view *view) {
    const json_t *first = json_array_get(json_object_get(view->results, "cells"), 0);
    return json_object_get(first, "layer") != NULL && json_object_get(first, "head") != NULL;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int by_head(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static size_t place_of(const axis *in, double value) {
    const double *found = bsearch(&value, in->at, in->count, sizeof value, by_value);
    return (size_t)(found - in->at);
}

/* Sorts the values, and leaves one of equal ones. */
static void tidy(axis *list) {
    size_t kept = 0;
    qsort(list->at, list->count, sizeof *list->at, by_value);
    for (size_t i = 0; i < list->count; i++)
        if (kept == 0 || list->at[kept - 1] != list->at[i]) list->at[kept++] = list->at[i];
    list->count = kept;
}

static void heads_clear(heads_view *h) {
    ls_ctx *ctx = h->view->ctx;
    ls_free(ctx, h->length.at);
    ls_free(ctx, h->layer.at);
    ls_free(ctx, h->head.at);
    ls_free(ctx, h->at);
    ls_free(ctx, h->first);
    ls_free(ctx, h->place);
    ls_free(ctx, h->value);
    ls_free(ctx, h->keys);
}

static void read_cells(heads_view *h, const json_t *cells) {
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        const entry e = {ls_member_real(cell, "layer"), ls_member_real(cell, "head"),
                         ls_member_real(cell, "length"), i, json_object_get(cell, "metrics")};
        if (!isfinite(e.layer) || !isfinite(e.head) || !isfinite(e.length)) continue;
        h->layer.at[h->layer.count++] = e.layer;
        h->head.at[h->head.count++] = e.head;
        h->length.at[h->length.count++] = e.length;
        h->at[h->entries++] = e;
    }
    qsort(h->at, h->entries, sizeof *h->at, by_head);
    tidy(&h->layer);
    tidy(&h->head);
    tidy(&h->length);
    for (size_t i = 0; i < h->entries; i++) {
        const entry *e = &h->at[i];
        if (i > 0 && e->layer == e[-1].layer && e->head == e[-1].head) continue;
        h->place[h->count] =
            (ls_head_place){place_of(&h->layer, e->layer), place_of(&h->head, e->head)};
        h->first[h->count++] = i;
    }
    h->first[h->count] = h->entries;
}

static bool heads_open(const ls_suite_view *view, heads_view *h) {
    ls_ctx *ctx = view->ctx;
    const json_t *cells = json_object_get(view->results, "cells");
    const size_t all = json_array_size(cells) + 1;
    *h = (heads_view){.view = view};
    h->length.at = ls_new(ctx, all, sizeof *h->length.at);
    h->layer.at = ls_new(ctx, all, sizeof *h->layer.at);
    h->head.at = ls_new(ctx, all, sizeof *h->head.at);
    h->at = ls_new(ctx, all, sizeof *h->at);
    h->first = ls_new(ctx, all, sizeof *h->first);
    h->place = ls_new(ctx, all, sizeof *h->place);
    h->value = ls_new(ctx, all, sizeof *h->value);
    h->keys = ls_new(ctx, SCORES, sizeof *h->keys);
    if (h->length.at == NULL || h->layer.at == NULL || h->head.at == NULL || h->at == NULL ||
        h->first == NULL || h->place == NULL || h->value == NULL || h->keys == NULL)
        return false;
    read_cells(h, cells);
    const json_t *metrics = json_object_get(json_array_get(cells, 0), "metrics");
    for (size_t i = 0; i < SCORES; i++)
        h->keys[i] = scores[i].of_text != NULL && json_object_get(metrics, scores[i].of_text)
                         ? scores[i].of_text
                         : scores[i].key;
    return true;
}

/* A score of a head at a length; of several cells the last. NAN: none. */
static double score_at(const heads_view *h, size_t head, const char *key, double length) {
    for (size_t i = h->first[head + 1]; i-- > h->first[head];)
        if (h->at[i].length == length) return ls_member_real(h->at[i].metrics, key);
    return NAN;
}

/* ---- maps ---- */

static void draw_map(const heads_view *h, const char *title, double most, bool both_ways,
                     ls_text *out) {
    const ls_head_map map = {.title = title,
                             .head = h->head.at,
                             .layer = h->layer.at,
                             .heads = h->head.count,
                             .layers = h->layer.count,
                             .place = h->place,
                             .value = h->value,
                             .count = h->count,
                             .most = most,
                             .both_ways = both_ways};
    ls_chart_head_map(h->view->ctx, &map, out);
}

static void draw_first(const heads_view *h, const shown *score, const char *key, ls_text *out) {
    char title[256], length[32];
    double most = 0;
    for (size_t i = 0; i < h->count; i++) {
        h->value[i] = score_at(h, i, key, h->length.at[0]);
        if (h->value[i] > most) most = h->value[i];
    }
    const bool bounded = strstr(key, "distance") == NULL;
    ls_chart_count(h->length.at[0], length, sizeof length);
    snprintf(title, sizeof title, score->both_ways ? "%s" : "%s at %s tokens%s", score->name,
             length, key == score->of_text ? " of text" : "");
    draw_map(h, title, bounded ? 1 : fmax(most, 1), score->both_ways, out);
}

static void draw_change(const heads_view *h, const shown *score, const char *key, ls_text *out) {
    const double longest = h->length.at[h->length.count - 1];
    char title[256], to[32], from[32];
    double most = 0;
    for (size_t i = 0; i < h->count; i++) {
        h->value[i] = score_at(h, i, key, longest) - score_at(h, i, key, h->length.at[0]);
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
        draw_first(&h, &scores[i], h.keys[i], out);
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
static void put_head(const heads_view *h, size_t head, ls_text *out) {
    const size_t lengths = h->length.count < LENGTHS_MAX ? h->length.count : LENGTHS_MAX;
    const entry *first = &h->at[h->first[head]];
    char text[64 + LENGTHS_MAX * 16];
    snprintf(text, sizeof text, "layer %.0f, head %.0f", first->layer, first->head);
    ls_table_row(h->view->ctx, text, out);
    for (size_t s = 0; s < SCORES; s++) {
        const char *key = h->keys[s];
        const int digits = strstr(key, "distance") == NULL ? 3 : 1;
        const double value = score_at(h, head, key, h->length.at[0]);
        size_t used = put_value(text, sizeof text, "", digits, value);
        for (size_t l = 1; l < lengths && !scores[s].both_ways; l++)
            used += put_value(text + used, sizeof text - used, l == 1 ? "<small>" : ", ", digits,
                              score_at(h, head, key, h->length.at[l]));
        if (lengths > 1 && !scores[s].both_ways)
            snprintf(text + used, sizeof text - used, "</small>");
        ls_table_cell(h->view->ctx, value, text, out);
    }
    ls_text_printf(h->view->ctx, out, "</tr>\n");
}

static void heads_table(const heads_view *h, ls_text *out) {
    ls_ctx *ctx = h->view->ctx;
    ls_text_printf(ctx, out,
                   "<p class=\"soft\">All heads: at the shortest length and, below it, at the "
                   "others.</p>\n");
    ls_table_open(ctx, out);
    ls_table_head(ctx, "head", out);
    for (size_t s = 0; s < SCORES; s++) {
        char words[64];
        words_of(h->keys[s], words, sizeof words);
        ls_table_head(ctx, words, out);
    }
    ls_table_body(ctx, out);
    for (size_t i = 0; i < h->count; i++) put_head(h, i, out);
    ls_table_close(ctx, out);
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
