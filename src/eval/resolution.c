#include "eval/resolution.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "eval/score.h"
#include "model/observe.h"

/* ---- the measure itself ---- */

ls_resolution_value ls_resolution_of(const double *s, int64_t K) {
    double most = -INFINITY, sum = 0;
    ls_resolution_value out = {0};
    for (int64_t k = 0; k < K; k++) most = fmax(most, s[k]);
    for (int64_t k = 0; k < K; k++) sum += exp(s[k] - most);
    for (int64_t k = 0; k + 1 < K; k++) {
        double p = exp(s[k] - most) / sum, next = exp(s[k + 1] - most) / sum;
        out.R += p * (p - next);
        if (s[k] > s[k + 1]) out.M += p;
    }
    return out;
}

/* What the best falling curve (sign 1) or rising one (-1) leaves: blocks that violate the order are
 * pooled, and what a pooling adds is known from the two means. */
static double monotone_rest(const double *s, const double *pairs, int64_t K, double sign,
                            double *room) {
    double *mean = room, *weight = room + K, rest = 0;
    int64_t blocks = 0;
    for (int64_t k = 0; k < K; k++) {
        double m = sign * s[k], w = pairs[k];
        for (; blocks > 0 && mean[blocks - 1] < m; blocks--) {
            const double both = weight[blocks - 1] + w, step = m - mean[blocks - 1];
            rest += weight[blocks - 1] * w / both * step * step;
            m = mean[blocks - 1] + w / both * step;
            w = both;
        }
        mean[blocks] = m;
        weight[blocks++] = w;
    }
    return rest;
}

double ls_oscillation_of(const double *s, const double *pairs, int64_t K, double *room) {
    double weight = 0, mean = 0, all = 0;
    for (int64_t k = 0; k < K; k++) {
        const double step = s[k] - mean;
        weight += pairs[k];
        mean += pairs[k] / weight * step;
        all += pairs[k] * step * (s[k] - mean);
    }
    if (!(all > 0)) return isnan(all) ? NAN : 0;
    return fmin(1, fmin(monotone_rest(s, pairs, K, 1, room), monotone_rest(s, pairs, K, -1, room)) /
                       all);
}

void ls_resolution_curve(const double *sum, const double *count, int64_t heads, int64_t distances,
                         double least, ls_score_curve *out) {
    out->K = 0;
    for (int64_t n = 0; n < distances; n++) {
        double mean = 0, all = 0;
        bool enough = true;
        for (int64_t h = 0; h < heads; h++) {
            double pairs = count[h * distances + n];
            enough &= pairs >= least;
            if (enough) mean += sum[h * distances + n] / pairs;
            all += pairs;
        }
        if (!enough) continue;
        out->distance[out->K] = n;
        out->pairs[out->K] = all;
        out->s[out->K++] = mean / (double)heads;
    }
}

int64_t ls_resolution_thin(const int64_t *distance, int64_t K,
                           int64_t out[LS_RESOLUTION_POINTS_MAX]) {
    enum { STEPS = LS_RESOLUTION_POINTS_MAX - 2 }; /* from distance 1 on: 0 has no logarithm */
    int64_t points = 0, at = 0;
    if (K > 0) out[points++] = 0;
    for (int64_t i = 0; i <= STEPS && K > 1; i++) {
        const double wanted = pow((double)distance[K - 1], (double)i / STEPS);
        while (at + 1 < K && (double)distance[at] < wanted * (1 - 1e-12)) at++;
        if (at > out[points - 1]) out[points++] = at;
    }
    return points;
}

/* ---- profiling a model ---- */

/* What one layer keeps, added up over all windows. */
typedef struct layer_profile {
    const char *name;   /* in the first program */
    char expected[256]; /* likewise, of what a rotation lets expect; it may not be there */
    int64_t heads, distances;
    double *sum, *count; /* [heads][distances]; one allocation */
} layer_profile;

typedef struct profiler {
    ls_ctx *ctx;
    ls_observer observer;
    int32_t *tokens;
    double *values; /* what a layer keeps of one run */
    layer_profile *layer;
    int64_t layers;
} profiler;

static void profiler_clear(profiler *p) {
    for (int64_t i = 0; i < p->layers; i++) ls_free(p->ctx, p->layer[i].sum);
    ls_free(p->ctx, p->layer);
    ls_free(p->ctx, p->tokens);
    ls_free(p->ctx, p->values);
    ls_observer_clear(&p->observer);
}

static ls_status make_layers(profiler *p) {
    const char *name;
    int64_t found = 0, most = 0;
    for (size_t at = 0; ls_observed_name(&p->observer, "scores", &at) != NULL;) found++;
    if (found == 0)
        return LS_FAIL(p->ctx, LS_EUSE,
                       "this model has no attention whose resolution could be "
                       "measured");
    p->layer = ls_new(p->ctx, (size_t)found, sizeof *p->layer);
    if (p->layer == NULL) return LS_ENOMEM;
    for (size_t at = 0; (name = ls_observed_name(&p->observer, "scores", &at)) != NULL;) {
        const ls_tensor *kept = ls_program_find(p->observer.program[0], name);
        layer_profile *layer = &p->layer[p->layers++];
        *layer = (layer_profile){.name = name, .heads = kept->dim[1], .distances = kept->dim[2]};
        snprintf(layer->expected, sizeof layer->expected, "%.*sexpected",
                 (int)(strlen(name) - strlen("scores")), name);
        layer->sum = ls_new(p->ctx, (size_t)ls_count(kept), sizeof *layer->sum);
        if (layer->sum == NULL) return LS_ENOMEM;
        layer->count = layer->sum + layer->heads * layer->distances;
        if (layer->heads != p->layer[0].heads)
            return LS_FAIL(p->ctx, LS_EUSE, "layers of this model have different numbers of heads");
        most = ls_max(most, ls_count(kept));
    }
    p->values = ls_new(p->ctx, (size_t)most, sizeof *p->values);
    return p->values == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status profiler_init(ls_model *model, const ls_resolution_request *request, profiler *p) {
    *p = (profiler){.ctx = model->ctx};
    LS_TRY(ls_observer_open(model, LS_MODEL_LOGITS, (ls_program_options){.profile_scores = true},
                            request->length, request->chunk, &p->observer));
    p->tokens = ls_new(p->ctx, (size_t)p->observer.chunk, sizeof *p->tokens);
    if (p->tokens == NULL) return LS_ENOMEM;
    return make_layers(p);
}

static ls_status add_run(profiler *p, const ls_program *program) {
    for (int64_t i = 0; i < p->layers; i++) {
        const ls_tensor *kept = ls_program_find(program, p->layer[i].name);
        LS_TRY(ls_tensor_get(program, kept, p->values));
        for (int64_t n = 0; n < ls_count(kept); n++) p->layer[i].sum[n] += p->values[n];
    }
    return LS_OK;
}

static ls_status profile_window(const ls_token_file *file, profiler *p, const ls_window *window,
                                const ls_resolution_request *request) {
    const int64_t length = p->observer.length, chunk = p->observer.chunk;
    ls_observer_begin(&p->observer);
    for (int64_t first = 0; first < length; first += chunk) {
        const int64_t count = ls_min(chunk, length - first);
        const ls_program *ran;
        LS_TRY(ls_eval_check_stop(p->ctx, request->stop, request->length));
        ls_token_file_read(file, window->begin + first, count, p->tokens);
        LS_TRY(ls_token_file_status(p->ctx, file));
        LS_TRY(ls_observer_feed(&p->observer, p->tokens, NULL, count, &ran));
        LS_TRY(add_run(p, ran));
    }
    return LS_OK;
}

/* What is computed of the sums. */
typedef struct evaluation {
    int64_t most;                 /* distances of any layer */
    ls_score_curve curve;         /* of one head or layer at a time */
    double *room;                 /* [2][most] */
    double *layer;                /* [layers][most]: each one's curve by distance */
    double *mean, *missing;       /* [most]: of layers; how many have no value there */
    double *one;                  /* [most]: what a rotation lets expect of one layer */
    double *expected, *expecting; /* [most]: the sum of these; over how many */
    double O_expected, rotating;  /* the sum of their O; over how many layers */
} evaluation;

static ls_status evaluation_init(const profiler *p, evaluation *e) {
    *e = (evaluation){0};
    for (int64_t i = 0; i < p->layers; i++) e->most = ls_max(e->most, p->layer[i].distances);
    double *all = ls_new(p->ctx, (size_t)(e->most * (p->layers + 9)), sizeof *all);
    e->curve.distance = ls_new(p->ctx, (size_t)e->most, sizeof *e->curve.distance);
    if (all == NULL || e->curve.distance == NULL) {
        ls_free(p->ctx, all);
        return LS_ENOMEM;
    }
    double **const parts[] = {&e->curve.s,  &e->curve.pairs, &e->mean, &e->missing,
                              &e->expected, &e->expecting,   &e->one,  &e->room};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        *parts[i] = all + (int64_t)i * e->most;
    e->layer = e->room + 2 * e->most;
    return LS_OK;
}

static void evaluation_clear(const profiler *p, evaluation *e) {
    ls_free(p->ctx, e->curve.s); /* the first of the numbers */
    ls_free(p->ctx, e->curve.distance);
}

static ls_resolution_value value_of(const evaluation *e) {
    ls_resolution_value value = ls_resolution_of(e->curve.s, e->curve.K);
    value.O = ls_oscillation_of(e->curve.s, e->curve.pairs, e->curve.K, e->room);
    return value;
}

/* Adds the curve of a layer, and the one that is expected of it, to those of all. */
static ls_status add_layer(const profiler *p, int64_t index, evaluation *e) {
    const ls_tensor *kept = ls_program_find(p->observer.program[0], p->layer[index].expected);
    const ls_score_curve *curve = &e->curve;
    double *own = e->layer + index * e->most;
    for (int64_t n = 0; n < e->most; n++) own[n] = NAN;
    for (int64_t k = 0; k < curve->K; k++) own[curve->distance[k]] = curve->s[k] - curve->s[0];
    for (int64_t n = 0; n < e->most; n++) {
        e->missing[n] += isnan(own[n]);
        e->mean[n] += own[n] / (double)p->layers;
    }
    if (kept == NULL) return LS_OK;
    LS_TRY(ls_tensor_get(p->observer.program[0], kept, e->one));
    for (int64_t n = 0; n < ls_count(kept); n++) {
        e->expected[n] += e->one[n];
        e->expecting[n]++;
    }
    for (int64_t k = 0; k < curve->K; k++) curve->s[k] = e->one[curve->distance[k]];
    e->O_expected += ls_oscillation_of(curve->s, curve->pairs, curve->K, e->room);
    e->rotating++;
    return LS_OK;
}

/* The points that are kept of the curves. */
static ls_status put_points(const profiler *p, evaluation *e, ls_resolution *out) {
    int64_t chosen[LS_RESOLUTION_POINTS_MAX], K = 0;
    for (int64_t n = 0; n < e->most; n++)
        if (e->missing[n] == 0) e->curve.distance[K++] = n;
    out->points = ls_resolution_thin(e->curve.distance, K, chosen);
    out->layer_score =
        ls_new(p->ctx, (size_t)(out->points * p->layers + 1), sizeof *out->layer_score);
    if (out->layer_score == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < out->points; i++) {
        const int64_t n = e->curve.distance[chosen[i]];
        out->distance[i] = n;
        out->score[i] = e->mean[n];
        out->expected[i] = e->expected[n] / e->expecting[n]; /* not a number: no layer has one */
        for (int64_t layer = 0; layer < p->layers; layer++)
            out->layer_score[layer * out->points + i] = e->layer[layer * e->most + n];
    }
    return LS_OK;
}

/* Every head, every layer, and the curves. */
static ls_status evaluate_layers(const profiler *p, evaluation *e, ls_resolution *out) {
    const double least = LS_RESOLUTION_PAIRS_LEAST;
    const int64_t heads = p->layer[0].heads;
    for (int64_t i = 0; i < p->layers; i++) {
        const layer_profile *layer = &p->layer[i];
        const int64_t D = layer->distances;
        for (int64_t h = 0; h < heads; h++) {
            ls_resolution_curve(layer->sum + h * D, layer->count + h * D, 1, D, least, &e->curve);
            out->distances = ls_max(out->distances, e->curve.K);
            ls_resolution_value value = value_of(e);
            out->head[i * heads + h] = value;
            out->R_head += value.R / (double)(p->layers * heads);
            out->M_head += value.M / (double)(p->layers * heads);
            out->O_head += value.O / (double)(p->layers * heads);
        }
        ls_resolution_curve(layer->sum, layer->count, heads, D, least, &e->curve);
        out->layer[i] = value_of(e);
        out->R_layer += out->layer[i].R / (double)p->layers;
        out->M_layer += out->layer[i].M / (double)p->layers;
        out->O_layer += out->layer[i].O / (double)p->layers;
        LS_TRY(add_layer(p, i, e));
    }
    out->O_expected = e->O_expected / e->rotating; /* not a number: no layer rotates */
    return put_points(p, e, out);
}

static ls_status evaluate(const profiler *p, ls_resolution *out) {
    const int64_t heads = p->layer[0].heads;
    evaluation e;
    out->layers = p->layers;
    out->heads = heads;
    out->layer = ls_new(p->ctx, (size_t)p->layers, sizeof *out->layer);
    out->head = ls_new(p->ctx, (size_t)(p->layers * heads), sizeof *out->head);
    ls_status status = evaluation_init(p, &e);
    if (status == LS_OK && (out->layer == NULL || out->head == NULL)) status = LS_ENOMEM;
    if (status == LS_OK) status = evaluate_layers(p, &e, out);
    evaluation_clear(p, &e);
    return status;
}

ls_status ls_resolution_measure(ls_model *model, const ls_token_file *file,
                                const ls_selection *selection, const ls_resolution_request *request,
                                ls_resolution *out) {
    ls_ctx *ctx = model->ctx;
    ls_protocol_choice pieces;
    ls_windows windows;
    profiler p = {.ctx = ctx};
    const double start = ls_clock();
    *out = (ls_resolution){.length = request->length};
    LS_TRY(ls_protocol_find(ctx, "nonoverlap", &pieces));
    LS_TRY(
        ls_windows_cut(ctx, file, pieces, selection, request->length, request->length, &windows));
    /* whole windows come first */
    int64_t whole = 0;
    while (whole < (int64_t)windows.count && windows.at[whole].length == request->length) whole++;
    const int64_t wanted = ls_min(whole, ls_ceil_div(request->tokens, request->length));
    ls_status status;
    LS_TRY_GOTO(profiler_init(model, request, &p));
    for (int64_t i = 0; i < wanted; i++)
        LS_TRY_GOTO(profile_window(file, &p, &windows.at[i * whole / wanted], request));
    out->tokens = wanted * request->length;
    LS_TRY_GOTO(evaluate(&p, out));
    out->seconds = ls_clock() - start;
fail:
    profiler_clear(&p);
    ls_free(ctx, windows.at);
    return status;
}

void ls_resolution_clear(ls_ctx *ctx, ls_resolution *resolution) {
    ls_free(ctx, resolution->head);
    ls_free(ctx, resolution->layer);
    ls_free(ctx, resolution->layer_score);
    *resolution = (ls_resolution){0};
}
