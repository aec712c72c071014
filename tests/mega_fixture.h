/* A layer of Mega with options, and its definition written out. */
#ifndef LS_TESTS_MEGA_FIXTURE_H
#define LS_TESTS_MEGA_FIXTURE_H

#include "harness.h"
#include "mixer/mixer.h"

enum { WIDTH = 12, BATCH = 2, SETTINGS_MAX = 9 };

static const char *const inputs[] = {"x", "cot", NULL};

static inline void close_to(const char *name, double got, double want, double tolerance) {
    if (!(fabs(got - want) <= tolerance)) fail_msg("%s: %.17g, not %.17g", name, got, want);
}

/* ---- a layer with options ---- */

typedef struct layer {
    const char *name;
    const char *setting[SETTINGS_MAX][2];
    bool causal;
    int64_t T;
    int64_t padded; /* rows at the end of sequence 1 that do not count */
} layer;

/* The mixer, with its options in `room`. */
static inline ls_mixer mixer_of(ls_ctx *ctx, const layer *l, void *room, int64_t width) {
    const ls_mixer_type *type = ls_mixer_find("mega");
    assert_non_null(type);
    assert_true(type->options.size <= 1024);
    expect(ctx, ls_options_default(ctx, &type->options, room));
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        expect(ctx,
               ls_options_set(ctx, &type->options, "", l->setting[i][0], l->setting[i][1], room));
    ls_mixer mixer = {.type = type, .options = room, .width = width, .causal = l->causal};
    expect(ctx, ls_mixer_check(ctx, &mixer));
    return mixer;
}

static inline void record(ls_program *p, const void *about) {
    const layer *l = about;
    const ls_program_options *o = ls_program_about(p);
    _Alignas(16) char room[1024];
    ls_mixer mixer = mixer_of(ls_program_ctx(p), l, room, WIDTH);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, WIDTH), true);
    double valid[BATCH * 64];
    for (int64_t i = 0; l->padded > 0 && i < o->batch * o->length; i++)
        valid[i] = i < o->length || i % o->length < o->length - l->padded;
    if (l->padded > 0) mixer.valid = ls_constant(p, LS_U8, LS_DIMS(o->batch, o->length), valid);
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static inline subject subject_of(const layer *l) {
    return (subject){l->name, record, l};
}

/* ---- its definition ---- */

typedef struct numbers {
    int64_t B, T, D, N, Z, V, chunk, truncation, bias_rows;
    bool causal, laplace, relu2, rotary, gated, normed_before, normed_after;
    bool centred, gelu, alone; /* a layer norm; the average alone */
    double mean, deviation;
    const double *delta, *alpha, *beta, *gamma, *omega; /* the average */
    const double *v_weight, *v_bias, *mx_weight, *mx_bias, *h_weight, *h_bias, *gain, *shift;
    const double *bias, *bias_alpha, *bias_beta, *norm_weight, *norm_bias, *norm_scale;
    const uint8_t *valid; /* [B][T], NULL: all */
} numbers;

static inline double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static inline double silu(double x) {
    return x * sigmoid(x);
}

/* The function of values, and of what comes out. */
static inline double activated(const numbers *n, double x) {
    return n->gelu ? x * (1 + erf(x / sqrt(2))) / 2 : silu(x);
}

static inline bool counts(const numbers *n, int64_t b, int64_t t) {
    return n->valid == NULL || n->valid[b * n->T + t] != 0;
}

/* Element l of the kernel of a channel; row >= D: looking ahead. */
static inline double kernel_at(const numbers *n, int64_t row, int64_t l) {
    double sum = 0;
    for (int64_t i = row * n->N; i < (row + 1) * n->N; i++) {
        double p = sigmoid(n->delta[i]), q = 1 - p * sigmoid(n->alpha[i]);
        sum += n->gamma[i] * n->beta[i] * p * pow(q, (double)l);
    }
    return n->truncation > 0 && l >= n->truncation ? 0 : sum / sqrt((double)n->N);
}

static inline double bias_at(const numbers *n, int64_t distance) {
    if (!n->rotary) { /* key - query, from the most negative on */
        int64_t most = (n->bias_rows + 1) / 2 - 1;
        return n->bias[most - ls_max(-most, ls_min(distance, most))];
    }
    double sum = 0;
    for (int64_t k = 0; k < n->Z / 2; k++) {
        double angle = (double)distance * pow(10000, -(double)k / (double)(n->Z / 2));
        double a1 = n->bias_alpha[k], a2 = n->bias_alpha[k + n->Z / 2];
        double b1 = n->bias_beta[k], b2 = n->bias_beta[k + n->Z / 2];
        sum += (a1 * b1 + a2 * b2) * cos(angle) - (a2 * b1 - a1 * b2) * sin(angle);
    }
    return sum;
}

static inline bool sees(const numbers *n, int64_t b, int64_t query, int64_t key) {
    if (n->chunk > 0 && query / n->chunk != key / n->chunk) return false;
    return counts(n, b, key) && (!n->causal || key <= query);
}

/* weights[T] of the keys of one query. */
static inline void weigh(const numbers *n, int64_t b, int64_t query, const double *q,
                         const double *k, double *weights) {
    double sum = 0, seen = 0;
    for (int64_t m = 0; m < n->T; m++) seen += sees(n, b, query, m);
    for (int64_t m = 0; m < n->T; m++) {
        double s = 0;
        weights[m] = 0;
        if (!sees(n, b, query, m)) continue;
        for (int64_t i = 0; i < n->Z; i++)
            s += q[(b * n->T + query) * n->Z + i] * k[(b * n->T + m) * n->Z + i];
        bool plain = !n->laplace && !n->relu2;
        s = s / (plain ? sqrt((double)n->Z) : seen) + bias_at(n, query - m);
        weights[m] = n->laplace ? 0.5 * (1 + erf((s - n->mean) / (n->deviation * sqrt(2))))
                     : n->relu2 ? (s > 0 ? s * s : 0)
                                : exp(s);
        if (plain) sum += weights[m];
    }
    for (int64_t m = 0; m < n->T && sum > 0; m++) weights[m] /= sum;
}

static inline double product(const double *weight, const double *bias, int64_t row, const double *x,
                             int64_t width) {
    double sum = bias[row];
    for (int64_t i = 0; i < width; i++) sum += weight[row * width + i] * x[i];
    return sum;
}

static inline void normed(const numbers *n, const double *x, double *y) {
    double mean = 0, square = 0;
    for (int64_t i = 0; n->centred && i < n->D; i++) mean += x[i] / (double)n->D;
    for (int64_t i = 0; i < n->D; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n->D;
    for (int64_t i = 0; i < n->D; i++) {
        y[i] = (x[i] - mean) / sqrt(square + 1e-5);
        if (n->norm_weight != NULL) y[i] *= n->norm_weight[i];
        if (n->norm_scale != NULL) y[i] *= *n->norm_scale;
        if (n->norm_bias != NULL) y[i] += n->norm_bias[i];
    }
}

typedef struct worked {
    double *X, *mixed, *base, *q, *k, *v, *weights, *y; /* weights [B][T][T] */
} worked;

static inline double *numbers_new(int64_t count) {
    double *at = calloc((size_t)count, sizeof *at);
    assert_non_null(at);
    return at;
}

static inline void work_free(worked *w) {
    free(w->X), free(w->mixed), free(w->base), free(w->q), free(w->k), free(w->v);
    free(w->weights), free(w->y);
}

static inline void average(const numbers *n, const double *X, double *mixed) {
    const int64_t T = n->T, D = n->D;
    for (int64_t b = 0; b < n->B; b++)
        for (int64_t d = 0; d < D; d++)
            for (int64_t t = 0; t < T; t++) {
                double here = counts(n, b, t) ? X[(b * T + t) * D + d] : 0;
                double sum = n->omega[d] * here;
                for (int64_t s = 0; s < T; s++) {
                    double x = counts(n, b, s) ? X[(b * T + s) * D + d] : 0;
                    if (s <= t) sum += kernel_at(n, d, t - s) * x;
                    if (s >= t && !n->causal) sum += kernel_at(n, D + d, s - t) * x;
                }
                mixed[(b * T + t) * D + d] = silu(sum);
            }
}

static inline worked work(const numbers *n, const double *x) {
    const int64_t B = n->B, T = n->T, D = n->D, Z = n->Z, V = n->V, wide = 2 * D + Z + V;
    worked w = {numbers_new(B * T * D), numbers_new(B * T * D), numbers_new(B * T * wide),
                numbers_new(B * T * Z), numbers_new(B * T * Z), numbers_new(B * T * V),
                numbers_new(B * T * T), numbers_new(B * T * D)};
    for (int64_t r = 0; r < B * T; r++) {
        if (n->normed_before)
            normed(n, x + r * D, w.X + r * D);
        else
            memcpy(w.X + r * D, x + r * D, (size_t)D * sizeof *x);
    }
    average(n, w.X, w.mixed);
    if (n->alone) {
        memcpy(w.y, w.mixed, (size_t)(B * T * D) * sizeof *x);
        return w;
    }
    for (int64_t r = 0; r < B * T; r++) {
        for (int64_t i = 0; i < wide; i++)
            w.base[r * wide + i] = product(n->mx_weight, n->mx_bias, i, w.mixed + r * D, D);
        for (int64_t i = 0; i < V; i++)
            w.v[r * V + i] = activated(n, product(n->v_weight, n->v_bias, i, w.X + r * D, D));
        for (int64_t i = 0; i < Z; i++) {
            double shared = silu(w.base[r * wide + D + i]);
            w.q[r * Z + i] = shared * n->gain[i] + n->shift[i];
            w.k[r * Z + i] = shared * n->gain[Z + i] + n->shift[Z + i];
        }
    }
    double *gated = numbers_new(V), *sum = numbers_new(D);
    for (int64_t r = 0; r < B * T; r++) {
        const int64_t b = r / T;
        const double *base = w.base + r * wide;
        weigh(n, b, r % T, w.q, w.k, w.weights + r * T);
        for (int64_t i = 0; i < V; i++) {
            double seen = 0;
            for (int64_t m = 0; m < T; m++) seen += w.weights[r * T + m] * w.v[(b * T + m) * V + i];
            gated[i] = seen * silu(base[D + Z + i]);
        }
        for (int64_t i = 0; i < D; i++) {
            double hidden =
                activated(n, base[D + Z + V + i] + product(n->h_weight, n->h_bias, i, gated, V));
            double change = sigmoid(base[i]) * (hidden - x[r * D + i]);
            sum[i] = n->gated ? x[r * D + i] + change : change;
        }
        if (n->normed_after)
            normed(n, sum, w.y + r * D);
        else
            memcpy(w.y + r * D, sum, (size_t)D * sizeof *sum);
    }
    free(gated), free(sum);
    return w;
}

/* The parameters of a store in f64. */
static inline const double *values_of(const ls_parameters *store, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(store, name);
    return parameter == NULL ? NULL : ls_parameter_master(store, parameter);
}

static inline bool is(const layer *l, const char *key, const char *value) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return strcmp(l->setting[i][1], value) == 0;
    return false;
}
static inline bool has(const layer *l, const char *key) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return true;
    return false;
}
static inline int64_t number(const layer *l, const char *key, int64_t otherwise) {
    for (int i = 0; i < SETTINGS_MAX && l->setting[i][0] != NULL; i++)
        if (strcmp(l->setting[i][0], key) == 0) return atoll(l->setting[i][1]);
    return otherwise;
}

static inline numbers numbers_of(const layer *l, const ls_parameters *store) {
    const ls_parameter *bias = ls_parameters_find(store, "bias");
    const ls_parameter *gamma = ls_parameters_find(store, "ema.gamma");
    const ls_parameter *gain = ls_parameters_find(store, "qk.gain");
    const ls_parameter *omega = ls_parameters_find(store, "ema.omega");
    const ls_parameter *v = ls_parameters_find(store, "v.weight");
    const bool alone = is(l, "attention", "none");
    return (numbers){
        .B = BATCH,
        .T = l->T,
        .D = omega->dim[0],
        .N = gamma->dim[1],
        .Z = alone ? 1 : gain->dim[1],
        .V = alone ? 1 : v->dim[0],
        .chunk = number(l, "chunk", 0),
        .truncation = number(l, "truncation", 0),
        .bias_rows = bias == NULL ? 0 : bias->dim[0],
        .causal = l->causal,
        .laplace = is(l, "attention", "laplace"),
        .relu2 = is(l, "attention", "relu2"),
        .rotary = bias == NULL,
        .gated = is(l, "residual", "gated"),
        .normed_before = has(l, "norm") && !is(l, "norm_place", "after"),
        .normed_after = is(l, "norm_place", "after"),
        .centred = is(l, "norm", "layer"),
        .gelu = is(l, "activation", "gelu"),
        .alone = alone,
        .mean = is(l, "rounded", "true") ? 0.707107 : 1 / sqrt(2),
        .deviation = is(l, "rounded", "true") ? 0.282095 : 1 / sqrt(16 * atan(1)),
        .delta = values_of(store, "ema.delta"),
        .alpha = values_of(store, "ema.alpha"),
        .beta = values_of(store, "ema.beta"),
        .gamma = values_of(store, "ema.gamma"),
        .omega = values_of(store, "ema.omega"),
        .v_weight = values_of(store, "v.weight"),
        .v_bias = values_of(store, "v.bias"),
        .mx_weight = values_of(store, "mx.weight"),
        .mx_bias = values_of(store, "mx.bias"),
        .h_weight = values_of(store, "h.weight"),
        .h_bias = values_of(store, "h.bias"),
        .gain = values_of(store, "qk.gain"),
        .shift = values_of(store, "qk.shift"),
        .bias = values_of(store, "bias"),
        .bias_alpha = values_of(store, "bias.alpha"),
        .bias_beta = values_of(store, "bias.beta"),
        .norm_weight = values_of(store, "norm.weight"),
        .norm_bias = values_of(store, "norm.bias"),
        .norm_scale = values_of(store, "norm.scale"),
    };
}

static inline bench run_layer(ls_ctx *ctx, const layer *l, ls_dtype type) {
    const subject what = subject_of(l);
    bench b = bench_new(
        ctx, &what,
        (ls_program_options){.type = type, .batch = BATCH, .length = l->T, .guarded = true});
    fill_inputs(b.program, inputs, 5);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    return b;
}

#endif
