#include "suite/lib/looker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const ls_head_score_names[LS_SCORES] = {
    "prefix_matching", "prefix_matching_pair", "induction", "duplicate_token",  "previous_token",
    "first_token",     "first_four_tokens",    "entropy",   "relative_entropy", "distance"};

/* Columns of what a query keeps. */
enum { AT_PREVIOUS = LS_REPEATS - 1, AT_DUPLICATE, AT_FIRST, FIRST_KEYS = 4 };
enum { AT_ENTROPY = AT_FIRST + FIRST_KEYS, AT_DISTANCE, COLUMNS };

/* Distances from a token to what followed it one, two, three repeats ago; to the token before; to
 * the same token a repeat ago. */
static ls_pattern_view view_of(int64_t period) {
    ls_pattern_view view = {.distances = AT_FIRST, .first_keys = FIRST_KEYS};
    for (int64_t j = 1; j < LS_REPEATS; j++) view.distance[j - 1] = j * period - 1;
    view.distance[AT_PREVIOUS] = 1;
    view.distance[AT_DUPLICATE] = period;
    return view;
}

static ls_status find_layers(ls_looker *l) {
    ls_ctx *ctx = l->observer.model->ctx;
    const char *name;
    int64_t found = 0;
    for (size_t at = 0; ls_observed_name(&l->observer, "pattern", &at) != NULL;) found++;
    if (found == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "no layer of this model has attention patterns: its mixers have no softmax "
                       "over the tokens of the text");
    l->layer = ls_new(ctx, (size_t)found, sizeof *l->layer);
    if (l->layer == NULL) return LS_ENOMEM;
    for (size_t at = 0; (name = ls_observed_name(&l->observer, "pattern", &at)) != NULL;) {
        const ls_tensor *kept = ls_program_find(l->observer.program[0], name);
        long long number;
        if (kept->dim[1] != l->observer.chunk || sscanf(name, "layers.%lld.", &number) != 1)
            return LS_FAIL(ctx, LS_EUSE,
                           "%s: this model takes its text apart, so that no pattern is of all of "
                           "its tokens",
                           name);
        if (l->layers > 0 && l->heads != kept->dim[2])
            return LS_FAIL(ctx, LS_EUSE, "layers of this model have different numbers of heads");
        l->heads = kept->dim[2];
        l->layer[l->layers++] = (ls_looker_layer){name, number};
    }
    /* "layers.10" stands before "layers.2" in the order of names */
    for (int64_t i = 1; i < l->layers; i++)
        for (int64_t j = i; j > 0 && l->layer[j].number < l->layer[j - 1].number; j--) {
            const ls_looker_layer other = l->layer[j];
            l->layer[j] = l->layer[j - 1];
            l->layer[j - 1] = other;
        }
    return LS_OK;
}

ls_status ls_looker_open(ls_model *model, int64_t period, int64_t chunk, ls_looker *out) {
    const ls_program_options options = {.patterns = view_of(period)};
    *out = (ls_looker){.period = period};
    LS_TRY(ls_observer_open(model, LS_MODEL_LOSS, options, 1 + LS_REPEATS * period, chunk,
                            &out->observer));
    LS_TRY(find_layers(out));
    const int64_t rows = out->observer.chunk;
    out->kept = ls_new(model->ctx, (size_t)(rows * out->heads * COLUMNS), sizeof *out->kept);
    out->losses = ls_new(model->ctx, (size_t)rows, sizeof *out->losses);
    return out->kept == NULL || out->losses == NULL ? LS_ENOMEM : LS_OK;
}

void ls_looker_clear(ls_looker *l) {
    if (l->observer.model == NULL) return;
    ls_ctx *ctx = l->observer.model->ctx;
    ls_free(ctx, l->layer);
    ls_free(ctx, l->kept);
    ls_free(ctx, l->losses);
    ls_observer_clear(&l->observer);
    *l = (ls_looker){0};
}

/* Adds what query n kept to the sums of its head. */
static void add_query(int64_t period, int64_t n, const double *kept, double *sum) {
    for (int64_t j = 1; j < LS_REPEATS; j++)
        if (n > j * period) sum[LS_SCORE_PREFIX] += kept[j - 1];
    if (n >= period - 1) sum[LS_SCORE_INDUCTION] += kept[0];
    if (n >= period) sum[LS_SCORE_DUPLICATE] += kept[AT_DUPLICATE];
    if (n >= FIRST_KEYS)
        for (int k = 0; k < FIRST_KEYS; k++) sum[LS_SCORE_FIRST_FOUR] += kept[AT_FIRST + k];
    if (n < 1) return;
    sum[LS_SCORE_PREVIOUS] += kept[AT_PREVIOUS];
    sum[LS_SCORE_FIRST] += kept[AT_FIRST];
    sum[LS_SCORE_ENTROPY] += kept[AT_ENTROPY];
    sum[LS_SCORE_RELATIVE_ENTROPY] += kept[AT_ENTROPY] / log((double)(n + 1));
    sum[LS_SCORE_DISTANCE] += kept[AT_DISTANCE];
}

/* Sums over queries to means. */
static void divide(int64_t period, double *sum) {
    const double P = (double)period, T = 1 + LS_REPEATS * P;
    double pairs = 0;
    for (int64_t j = 1; j < LS_REPEATS; j++) pairs += T - (double)j * P - 1;
    sum[LS_SCORE_PREFIX_PAIR] = sum[LS_SCORE_PREFIX] / pairs;
    sum[LS_SCORE_PREFIX] /= T - P - 1;
    sum[LS_SCORE_INDUCTION] /= T - P + 1;
    sum[LS_SCORE_DUPLICATE] /= T - P;
    sum[LS_SCORE_FIRST_FOUR] /= T - FIRST_KEYS;
    static const int others[] = {LS_SCORE_PREVIOUS, LS_SCORE_FIRST, LS_SCORE_ENTROPY,
                                 LS_SCORE_RELATIVE_ENTROPY, LS_SCORE_DISTANCE};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) sum[others[i]] /= T - 1;
}

static ls_status add_chunk(ls_looker *l, const ls_program *ran, int64_t first, int64_t count,
                           double *scores) {
    for (int64_t i = 0; i < l->layers; i++) {
        LS_TRY(ls_tensor_get(ran, ls_program_find(ran, l->layer[i].name), l->kept));
        for (int64_t row = 0; row < count * l->heads; row++)
            add_query(l->period, first + row / l->heads, l->kept + row * COLUMNS,
                      scores + (i * l->heads + row % l->heads) * LS_SCORES);
    }
    return LS_OK;
}

ls_status ls_looker_walk(ls_looker *l, const int32_t *tokens, const volatile sig_atomic_t *stop,
                         double *scores, double *loss) {
    ls_ctx *ctx = l->observer.model->ctx;
    const int64_t T = l->observer.length, chunk = l->observer.chunk;
    int32_t *targets = ls_new(ctx, (size_t)chunk, sizeof *targets);
    ls_status status = targets == NULL ? LS_ENOMEM : LS_OK;
    memset(scores, 0, (size_t)(l->layers * l->heads * LS_SCORES) * sizeof *scores);
    ls_observer_begin(&l->observer);
    for (int64_t first = 0; first < T && status == LS_OK; first += chunk) {
        const int64_t count = ls_min(chunk, T - first);
        const ls_program *ran = NULL;
        if (stop != NULL && *stop != 0)
            status = LS_FAIL(ctx, LS_ESTOP, "stopped; the same command goes on from here");
        for (int64_t i = 0; i < count; i++)
            targets[i] = first + i + 1 < T ? tokens[first + i + 1] : -1;
        if (status == LS_OK)
            status = ls_observer_feed(&l->observer, tokens + first, targets, count, &ran);
        if (status == LS_OK) status = ls_model_read(ran, "loss", l->losses);
        if (status == LS_OK) status = add_chunk(l, ran, first, count, scores);
        for (int64_t i = 0; status == LS_OK && i < count && first + i + 1 < T; i++)
            loss[first + i] = l->losses[i];
    }
    for (int64_t i = 0; i < l->layers * l->heads; i++) divide(l->period, scores + i * LS_SCORES);
    ls_free(ctx, targets);
    return status;
}
