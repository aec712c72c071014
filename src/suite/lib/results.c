/* Results of a suite, from the records of its items: means, intervals, cells. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/interval.h"
#include "suite/lib/samples.h"

/* Records that are averaged together. */
typedef struct cell {
    char *key; /* the cell as JSON; NULL: all of them */
    const json_t *what;
    const json_t **records;
    size_t count, capacity;
} cell;

typedef struct cells {
    cell *at;
    size_t count, capacity;
} cells;

static ls_status cell_add(ls_ctx *ctx, cell *c, const json_t *record) {
    if (!ls_array_reserve(ctx, &c->records, &c->capacity, c->count + 1, sizeof *c->records))
        return LS_ENOMEM;
    c->records[c->count++] = record;
    return LS_OK;
}

static ls_status cells_add(ls_ctx *ctx, cells *all, const json_t *record) {
    const json_t *what = json_object_get(record, "cell");
    char *key = ls_json_dump(what, JSON_SORT_KEYS | JSON_COMPACT);
    size_t i = 0;
    if (key == NULL) return LS_FAIL(ctx, LS_ENOMEM, "no memory for the results");
    while (i < all->count && strcmp(all->at[i].key, key) != 0) i++;
    if (i < all->count) {
        free(key);
        return cell_add(ctx, &all->at[i], record);
    }
    if (!ls_array_reserve(ctx, &all->at, &all->capacity, i + 1, sizeof *all->at)) {
        free(key);
        return LS_ENOMEM;
    }
    all->at[all->count++] = (cell){.key = key, .what = what};
    return cell_add(ctx, &all->at[i], record);
}

static double score_of(const json_t *record, const char *metric) {
    return json_number_value(json_object_get(json_object_get(record, "metrics"), metric));
}

static double mean_of(const cell *c, const char *metric) {
    double sum = 0;
    for (size_t i = 0; i < c->count; i++) sum += score_of(c->records[i], metric);
    return sum / (double)c->count;
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Whether all scores say right or wrong. */
static bool are_shares(const cell *c) {
    for (size_t i = 0; i < c->count; i++) {
        const double score = score_of(c->records[i], "score");
        if (score != 0 && score != 1) return false;
    }
    return true;
}

/* The middle 95 % of the means of resampled items. */
static ls_status bootstrap(ls_ctx *ctx, const cell *c, uint64_t seed, int64_t resamples,
                           json_t *out) {
    double *scores = ls_new_raw(ctx, c->count + (size_t)resamples, sizeof *scores);
    if (scores == NULL) return LS_ENOMEM;
    double *means = scores + c->count;
    const uint32_t stream = ls_stream_of("suite bootstrap");
    for (size_t i = 0; i < c->count; i++) scores[i] = score_of(c->records[i], "score");
    for (int64_t r = 0; r < resamples; r++) {
        const ls_random key = {seed, stream, (uint32_t)r};
        double sum = 0;
        for (size_t i = 0; i < c->count; i++) sum += scores[ls_random_below(key, i, c->count)];
        means[r] = sum / (double)c->count;
    }
    qsort(means, (size_t)resamples, sizeof *means, by_value);
    json_object_set_new(out, "low", json_real(means[(int64_t)(0.025 * (double)(resamples - 1))]));
    json_object_set_new(out, "high",
                        json_real(means[(int64_t)ceil(0.975 * (double)(resamples - 1))]));
    ls_free(ctx, scores);
    return LS_OK;
}

/* Resamples of answers that are all wrong are all wrong: their means would leave no doubt. */
static ls_status interval(ls_ctx *ctx, const cell *c, uint64_t seed, int64_t resamples,
                          json_t *out) {
    double low, high;
    if (!are_shares(c)) return bootstrap(ctx, c, seed, resamples, out);
    ls_share_interval(mean_of(c, "score"), (double)c->count, &low, &high);
    json_object_set_new(out, "low", json_real(low));
    json_object_set_new(out, "high", json_real(high));
    return LS_OK;
}

/* {...what, n, score, low, high, metrics: {name: mean}} */
static ls_status cell_json(ls_ctx *ctx, const cell *c, uint64_t seed, int64_t resamples,
                           json_t *into) {
    json_t *means = json_object();
    const char *name;
    json_t *value;
    json_object_set_new(into, "n", json_integer((json_int_t)c->count));
    json_object_set_new(into, "score", json_real(mean_of(c, "score")));
    if (resamples > 0) LS_TRY(interval(ctx, c, seed, resamples, into));
    json_object_foreach(json_object_get(c->records[0], "metrics"), name, value) {
        json_object_set_new(means, name, json_real(mean_of(c, name)));
    }
    return json_object_set_new(into, "metrics", means) != 0
               ? LS_FAIL(ctx, LS_ENOMEM, "no memory for the results")
               : LS_OK;
}

static ls_status put_cells(ls_ctx *ctx, const char *key, const cells *all, uint64_t seed,
                           int64_t resamples, json_t *results) {
    json_t *list = json_array();
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < all->count; i++) {
        json_t *row = json_copy((json_t *)all->at[i].what);
        status = cell_json(ctx, &all->at[i], seed, resamples, row);
        json_array_append_new(list, row);
    }
    json_object_set_new(results, key, list);
    return status;
}

static void cells_clear(ls_ctx *ctx, cells *all) {
    for (size_t i = 0; i < all->count; i++) {
        free(all->at[i].key);
        ls_free(ctx, all->at[i].records);
    }
    ls_free(ctx, all->at);
}

ls_status ls_samples_results(const ls_samples *s, uint64_t seed, int64_t resamples,
                             json_t *results) {
    ls_ctx *ctx = s->ctx;
    cells all = {0}, references = {0};
    cell whole = {0};
    ls_status status = LS_OK;
    for (int64_t g = 0; status == LS_OK && g < s->group_count; g++)
        for (size_t i = 0; status == LS_OK && i < json_array_size(s->groups[g]); i++) {
            const json_t *record = json_array_get(s->groups[g], i);
            if (json_object_get(json_object_get(record, "cell"), "reference") != NULL) {
                status = cells_add(ctx, &references, record);
                continue;
            }
            status = cell_add(ctx, &whole, record);
            if (status == LS_OK) status = cells_add(ctx, &all, record);
        }
    if (status == LS_OK && whole.count == 0)
        status = LS_FAIL(ctx, LS_EINPUT, "the suite has no items");
    if (status == LS_OK) json_object_set_new(results, "shares", json_boolean(are_shares(&whole)));
    if (status == LS_OK) status = cell_json(ctx, &whole, seed, resamples, results);
    if (status == LS_OK && references.count > 0)
        status = put_cells(ctx, "references", &references, seed, resamples, results);
    if (status == LS_OK) status = put_cells(ctx, "cells", &all, seed, resamples, results);
    cells_clear(ctx, &all);
    cells_clear(ctx, &references);
    ls_free(ctx, whole.records);
    return status;
}
