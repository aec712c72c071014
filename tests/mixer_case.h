/* One mixer under test: options from words, inputs and weights given, padding where wished. */
#ifndef LS_TESTS_MIXER_CASE_H
#define LS_TESTS_MIXER_CASE_H

#include "mixer_words.h"

typedef struct mixer_case {
    ls_mixer mixer;
    bool padded;                                      /* an input "valid" marks the rows */
    void (*set)(ls_parameters *store, const void *u); /* weights; NULL: the harness's own */
    const void *user;
} mixer_case;

static inline void mixer_record(ls_program *p, const void *about) {
    const mixer_case *c = about;
    const ls_program_options *o = ls_program_about(p);
    ls_mixer mixer = c->mixer;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, mixer.width), true);
    if (c->padded) mixer.valid = ls_input(p, "valid", LS_U8, LS_DIMS(o->batch, o->length), false);
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static inline bench mixer_bench(ls_ctx *ctx, const mixer_case *c, ls_program_options options) {
    bench b = bench_new(ctx, &(subject){c->mixer.type->name, mixer_record, c}, options);
    if (c->set != NULL) {
        c->set(b.store, c->user);
        ls_parameters_round(b.store);
    }
    return b;
}

/* The output [B,T,D] of one pass over x; valid [B,T] where the case is padded. */
static inline double *mixer_outputs(ls_ctx *ctx, const mixer_case *c, ls_dtype type, int64_t B,
                                    int64_t T, const double *x, const double *valid) {
    bench b = mixer_bench(
        ctx, c, (ls_program_options){.type = type, .batch = B, .length = T, .guarded = true});
    put_values(&b, "x", x);
    if (c->padded) put_values(&b, "valid", valid);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    double *y = read_all(ls_program_find(b.program, "y"));
    bench_free(&b);
    return y;
}

static inline double *mixer_weight(const ls_parameters *store, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(store, name);
    if (parameter == NULL) fail_msg("there is no parameter %s", name);
    return ls_parameter_master(store, parameter);
}

/* Weights that let everything through, for a width of three times all heads': x is [q | k | v], and
 * the first third of y what is mixed. */
static inline void mixer_pass_through(ls_parameters *store, const void *user) {
    (void)user;
    static const char *const names[] = {"qkv.weight", "out.weight"};
    for (int i = 0; i < 2; i++) {
        const ls_parameter *parameter = ls_parameters_find(store, names[i]);
        void *values = ls_parameter_master(store, parameter);
        for (int64_t j = 0; j < parameter->count; j++) {
            double value = j / parameter->dim[1] == j % parameter->dim[1];
            if (store->master_type == LS_F64)
                ((double *)values)[j] = value;
            else
                ((float *)values)[j] = (float)value;
        }
    }
}

/* Queries (part 0), keys (1) or values (2) of a text x [T,D], [T,H,W] with H W = all, as
 * qkv.weight has them. */
static inline double *mixer_part(const ls_parameters *store, const double *x, int64_t T, int64_t D,
                                 int64_t all, int part) {
    const double *weight = mixer_weight(store, "qkv.weight") + part * all * D;
    double *out = calloc((size_t)(T * all), sizeof *out);
    for (int64_t t = 0; t < T; t++)
        for (int64_t r = 0; r < all; r++)
            for (int64_t d = 0; d < D; d++) out[t * all + r] += weight[r * D + d] * x[t * D + d];
    return out;
}

/* What out.weight [D,all] (and out.bias) makes of mixed [T,all]. */
static inline double *mixer_joined(const ls_parameters *store, const double *mixed, int64_t T,
                                   int64_t D, int64_t all) {
    const double *weight = mixer_weight(store, "out.weight");
    const ls_parameter *biased = ls_parameters_find(store, "out.bias");
    const double *bias = biased == NULL ? NULL : ls_parameter_master(store, biased);
    double *y = calloc((size_t)(T * D), sizeof *y);
    for (int64_t t = 0; t < T; t++)
        for (int64_t d = 0; d < D; d++) {
            for (int64_t r = 0; r < all; r++)
                y[t * D + d] += weight[d * all + r] * mixed[t * all + r];
            if (bias != NULL) y[t * D + d] += bias[d];
        }
    return y;
}

/* In place. */
static inline void mixer_softmax(double *row, int64_t count) {
    double most = row[0], sum = 0;
    for (int64_t i = 1; i < count; i++) most = fmax(most, row[i]);
    for (int64_t i = 0; i < count; i++) sum += row[i] = exp(row[i] - most);
    for (int64_t i = 0; i < count; i++) row[i] /= sum;
}

static inline void mixer_same(const char *what, const double *got, const double *want,
                              int64_t count, double tolerance) {
    double size = 0;
    for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * size))
            fail_msg("%s: element %lld is %.15g, not %.15g", what, (long long)i, got[i], want[i]);
}

#endif
