/* What the scores of all heads say: the strongest of each kind, and those that change with the
 * length. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/looker.h"

enum { CHANGES = 5, STRONGEST = 3 };

static double member(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static double score_at(const json_t *cell, const char *metric) {
    return member(json_object_get(cell, "metrics"), metric);
}

/* A cell by what it is of; what it does not say is below all numbers. Sorted, so that other cells of
 * the same head are found at once. */
typedef struct entry {
    double length, layer, head;
    size_t index;
    json_t *cell;
} entry;

static double known(const json_t *cell, const char *key) {
    const double value = member(cell, key);
    return isnan(value) ? -INFINITY : value;
}

static entry entry_of(const json_t *cells, size_t index) {
    json_t *cell = json_array_get(cells, index);
    return (entry){known(cell, "length"), known(cell, "layer"), known(cell, "head"), index, cell};
}

static int by_head(const entry *x, const entry *y) {
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    if (x->head != y->head) return x->head < y->head ? -1 : 1;
    return 0;
}

static int by_length(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    const int heads = by_head(x, y);
    return heads != 0 ? heads : x->index < y->index ? -1 : x->index > y->index;
}

/* Cells of the whole model leave the list, for one that rises with the length. */
static ls_status take_model(ls_ctx *ctx, json_t *cells, json_t *model) {
    const size_t all = json_array_size(cells);
    entry *list = ls_new(ctx, all + 1, sizeof *list);
    json_t *heads = json_array();
    size_t count = 0;
    int failed = heads == NULL;
    if (list == NULL) {
        json_decref(heads);
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < all && !failed; i++) {
        json_t *cell = json_array_get(cells, i);
        if (json_object_get(cell, "layer") != NULL)
            failed = json_array_append(heads, cell);
        else
            list[count++] = entry_of(cells, i);
    }
    qsort(list, count, sizeof *list, by_length);
    for (size_t i = 0; i < count && !failed; i++) failed = json_array_append(model, list[i].cell);
    failed = failed || json_array_clear(cells) != 0 || json_array_extend(cells, heads) != 0;
    json_decref(heads);
    ls_free(ctx, list);
    return failed ? LS_FAIL(ctx, LS_ENOMEM, "no memory for the results") : LS_OK;
}

static double shortest_of(const json_t *cells) {
    double least = INFINITY;
    for (size_t i = 0; i < json_array_size(cells); i++)
        least = fmin(least, member(json_array_get(cells, i), "length"));
    return least;
}

/* ---- the strongest ---- */

static const json_t *next_strongest(const json_t *cells, double length, const char *metric,
                                    double below) {
    const json_t *best = NULL;
    for (size_t i = 0; i < json_array_size(cells); i++) {
        const json_t *cell = json_array_get(cells, i);
        const double score = score_at(cell, metric);
        if (member(cell, "length") != length || !(score < below)) continue;
        if (best == NULL || score > score_at(best, metric)) best = cell;
    }
    return best;
}

static void add_line(ls_ctx *ctx, json_t *summary, ls_text *line) {
    if (ls_text_status(line) == LS_OK)
        json_array_append_new(summary, json_stringn(line->bytes, line->length));
    ls_text_clear(ctx, line);
}

static void tell_strongest(ls_ctx *ctx, const json_t *cells, double length, const char *metric,
                           json_t *summary) {
    double below = INFINITY;
    ls_text line = {0};
    ls_text_printf(ctx, &line, "%s, strongest heads:", metric);
    for (int i = 0; i < STRONGEST; i++) {
        const json_t *cell = next_strongest(cells, length, metric, below);
        if (cell == NULL) break;
        below = score_at(cell, metric);
        ls_text_printf(ctx, &line, "%s layer %.0f head %.0f %.3f", i == 0 ? "" : ",",
                       member(cell, "layer"), member(cell, "head"), below);
    }
    if (isfinite(below))
        add_line(ctx, summary, &line);
    else
        ls_text_clear(ctx, &line);
}

/* ---- changes ---- */

typedef struct change {
    const json_t *from, *to;
    const char *metric;
    double size;
} change;

static int by_size(const void *a, const void *b) {
    const change *x = a, *y = b;
    return x->size > y->size ? -1 : x->size < y->size;
}

/* Scores from 0 to 1, so that their changes are of one size; of texts where there are any. */
static change change_of(const json_t *from, const json_t *to) {
    static const char *const metrics[] = {
        "prefix_matching",  "duplicate_token", "text_previous_token",   "previous_token",
        "text_first_token", "first_token",     "text_relative_entropy", "relative_entropy"};
    change out = {.from = from, .to = to, .size = -1};
    for (size_t i = 0; i < sizeof metrics / sizeof metrics[0]; i++) {
        const double size = fabs(score_at(to, metrics[i]) - score_at(from, metrics[i]));
        if (size > out.size) {
            out.size = size;
            out.metric = metrics[i];
        }
    }
    return out;
}

static void tell_change(ls_ctx *ctx, const change *c, json_t *changes, json_t *summary) {
    const double from = score_at(c->from, c->metric), to = score_at(c->to, c->metric);
    ls_text line = {0};
    json_array_append_new(changes, json_pack("{s:O, s:O, s:O, s:s, s:f, s:f}", "length",
                                             json_object_get(c->to, "length"), "layer",
                                             json_object_get(c->to, "layer"), "head",
                                             json_object_get(c->to, "head"), "metric", c->metric,
                                             "from", from, "to", to));
    ls_text_printf(ctx, &line, "changes at %.0f: layer %.0f head %.0f, %s %.3f to %.3f",
                   member(c->to, "length"), member(c->to, "layer"), member(c->to, "head"),
                   c->metric, from, to);
    add_line(ctx, summary, &line);
}

/* At each length beyond the shortest, the heads that changed most. */
static ls_status find_changes(ls_ctx *ctx, const json_t *cells, json_t *changes, json_t *summary) {
    const size_t all = json_array_size(cells);
    change *list = ls_new(ctx, all + 1, sizeof *list);
    entry *at = ls_new(ctx, all + 1, sizeof *at);
    size_t used = 0, first = 0;
    if (list == NULL || at == NULL) {
        ls_free(ctx, list);
        ls_free(ctx, at);
        return LS_ENOMEM;
    }
    for (size_t i = 0; i < all; i++) {
        at[used] = entry_of(cells, i);
        if (isfinite(at[used].length)) used++;
    }
    qsort(at, used, sizeof *at, by_length);
    while (first < used && at[first].length == at[0].length) first++;
    for (size_t from = first, to; from < used; from = to) {
        size_t count = 0, base = 0;
        for (to = from; to < used && at[to].length == at[from].length; to++) {
            while (base < first && by_head(&at[base], &at[to]) < 0) base++;
            if (base < first && by_head(&at[base], &at[to]) == 0)
                list[count++] = change_of(at[base].cell, at[to].cell);
        }
        qsort(list, count, sizeof *list, by_size);
        for (size_t i = 0; i < count && i < CHANGES; i++)
            tell_change(ctx, &list[i], changes, summary);
    }
    ls_free(ctx, list);
    ls_free(ctx, at);
    return LS_OK;
}

static void tell_model(ls_ctx *ctx, const json_t *model, json_t *summary) {
    static const char *const metrics[] = {"repeat_gain", "in_context_learning",
                                          "in_context_learning_far"};
    for (size_t i = 0; i < json_array_size(model); i++) {
        const json_t *cell = json_array_get(model, i);
        ls_text line = {0};
        ls_text_printf(ctx, &line, "length %.0f:", member(cell, "length"));
        for (size_t k = 0; k < 3; k++)
            if (isfinite(score_at(cell, metrics[k])))
                ls_text_printf(ctx, &line, " %s %.4f", metrics[k], score_at(cell, metrics[k]));
        add_line(ctx, summary, &line);
    }
}

ls_status ls_heads_finish(ls_ctx *ctx, json_t *results) {
    static const char *const told[] = {"prefix_matching",     "duplicate_token", "previous_token",
                                       "text_previous_token", "first_token",     "copying"};
    json_t *cells = json_object_get(results, "cells");
    json_t *model = json_array(), *changes = json_array(), *summary = json_array();
    json_object_set_new(results, "model_scores", model);
    json_object_set_new(results, "changes", changes);
    json_object_set_new(results, "summary", summary);
    if (model == NULL || changes == NULL || summary == NULL)
        return LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    LS_TRY(take_model(ctx, cells, model));
    const double shortest = shortest_of(cells);
    const json_t *best = next_strongest(cells, shortest, "prefix_matching", INFINITY);
    static const char *const kept[] = {"n", "score", "low", "high", "metrics"};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        json_t *value = json_object_get(best, kept[i]);
        if (value != NULL) json_object_set(results, kept[i], value);
    }
    tell_model(ctx, model, summary);
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++)
        tell_strongest(ctx, cells, shortest, told[i], summary);
    return find_changes(ctx, cells, changes, summary);
}
