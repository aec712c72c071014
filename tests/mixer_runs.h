/* What tests of one mixer share: it is chosen by key=value words, and run whole or in chunks with
 * weights of the harness or of a published file. */
#ifndef LS_TESTS_MIXER_RUNS_H
#define LS_TESTS_MIXER_RUNS_H

#include "mixer_words.h"
#include "model/safetensors.h"

static inline void mixer_record(ls_program *p, const void *about) {
    const ls_mixer *mixer = about;
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, mixer->width), true);
    ls_keep(p, "y", mixer->type->forward(p, mixer, x));
}

/* Outputs of one sequence x [rows, width] in chunks of `cut` (0: whole, without a state). `set`
 * may change the weights; `saved` gets the last state. */
typedef struct mixer_run {
    const ls_mixer *mixer;
    ls_dtype type;
    int64_t rows, cut;
    void (*set)(ls_parameters *store);
    ls_text *saved;
} mixer_run;

static inline double *mixer_outputs(ls_ctx *ctx, mixer_run r, const double *x) {
    const int64_t D = r.mixer->width;
    subject what = {r.mixer->type->name, mixer_record, r.mixer};
    double *y = malloc((size_t)(r.rows * D) * sizeof *y);
    ls_state *state = NULL;
    for (int64_t at = 0, n; at < r.rows; at += n) {
        n = r.cut == 0 ? r.rows : ls_min(r.cut, r.rows - at);
        bench b = bench_new(ctx, &what,
                            (ls_program_options){.type = r.type,
                                                 .batch = 1,
                                                 .length = n,
                                                 .guarded = true,
                                                 .streaming = r.cut > 0,
                                                 .capacity = r.rows,
                                                 .chunk_max = ls_max(r.cut, 1)});
        if (r.set != NULL) r.set(b.store);
        if (state == NULL) {
            state = b.state;
            b.state = NULL;
        }
        for (int64_t i = 0; i < n * D; i++) put(ls_program_find(b.program, "x"), i, x[at * D + i]);
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        assert_true(ls_program_guards_intact(b.program));
        for (int64_t i = 0; i < n * D; i++) y[at * D + i] = get(ls_program_find(b.program, "y"), i);
        bench_free(&b);
    }
    if (r.saved != NULL) expect(ctx, ls_state_save(ctx, state, r.saved));
    ls_state_free(ctx, state);
    return y;
}

/* Weights of the harness, of a store that is only looked at. */
static inline bench mixer_weights(ls_ctx *ctx, const ls_mixer *mixer, int64_t rows) {
    return bench_new(ctx, &(subject){mixer->type->name, mixer_record, mixer},
                     (ls_program_options){.type = LS_F64, .batch = 1, .length = rows});
}

static inline double weight_at(const bench *b, const char *name, int64_t i) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    if (parameter == NULL || i >= parameter->count)
        fail_msg("there is no %s[%lld]", name, (long long)i);
    return ((double *)ls_parameter_master(b->store, parameter))[i];
}

/* weight[row] . x + bias[row], of a projection of that name. */
static inline double projected(const bench *b, const char *name, int64_t row, const double *x,
                               int64_t width) {
    char full[64];
    snprintf(full, sizeof full, "%s.bias", name);
    double sum = weight_at(b, full, row);
    snprintf(full, sizeof full, "%s.weight", name);
    for (int64_t i = 0; i < width; i++) sum += weight_at(b, full, row * width + i) * x[i];
    return sum;
}

static inline void same_rows(const char *what, const double *got, const double *want, int64_t rows,
                             int64_t width, double tolerance) {
    for (int64_t i = 0; i < rows * width; i++)
        if (!(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("%s: row %lld, column %lld is %.14g, not %.14g", what, (long long)(i / width),
                     (long long)(i % width), got[i], want[i]);
}

/* The objective of a chunk that begins with a state as it was saved. */
static inline double objective_from(bench *b, const ls_text *saved) {
    expect(b->ctx, ls_state_load(b->ctx, b->state, saved->bytes, saved->length));
    return objective(b);
}

static inline void same_difference(bench *b, const ls_text *saved, const char *name, double *value,
                                   double gradient) {
    const double kept = *value, h = 1e-5;
    *value = kept + h;
    double above = objective_from(b, saved);
    *value = kept - h;
    double difference = (above - objective_from(b, saved)) / (2 * h);
    *value = kept;
    if (!(fabs(difference - gradient) <= 1e-6 * fmax(1, fabs(gradient))))
        fail_msg("gradient of %s behind a past is %.12g, differences give %.12g", name, gradient,
                 difference);
}

/* A bench that has run two chunks of a stream; `saved` is the state between them. */
static inline bench later_bench(ls_ctx *ctx, const subject *what, ls_dtype type,
                                const char *const *inputs, ls_text *saved) {
    bench b = bench_new(ctx, what,
                        (ls_program_options){.type = type,
                                             .batch = 2,
                                             .length = 12,
                                             .grad = true,
                                             .guarded = true,
                                             .streaming = true,
                                             .capacity = 30,
                                             .chunk_max = 12});
    fill_inputs(b.program, inputs, 5);
    objective(&b);
    expect(ctx, ls_state_save(ctx, b.state, saved));
    fill_inputs(b.program, inputs, 6);
    ls_parameters_clear_gradient(b.store);
    objective_from(&b, saved);
    assert_true(ls_program_guards_intact(b.program));
    return b;
}

/* Gradients of a chunk that has a past, which stands still: against differences, and in f32. */
static inline void later_gradients(ls_ctx *ctx, const subject *what, const char *const *inputs) {
    ls_text saved = {0}, unused = {0};
    bench b = later_bench(ctx, what, LS_F64, inputs, &saved);
    bench fast = later_bench(ctx, what, LS_F32, inputs, &unused);
    const ls_tensor *x = ls_program_find(b.program, "x");
    double *dx = read_all(ls_program_find(b.program, "grad.x"));
    double *got = read_all(ls_program_find(fast.program, "grad.x"));
    if (!(nmse(got, dx, ls_count(x)) <= 1e-10)) fail_msg("%s: dx is wrong in f32", what->name);
    double *gradients = malloc(2 * (size_t)b.store->total * sizeof *gradients);
    memcpy(gradients, b.store->gradient, (size_t)b.store->total * sizeof *gradients);
    for (int64_t i = 0; i < b.store->total; i++)
        gradients[b.store->total + i] = (double)((float *)fast.store->gradient)[i];
    for (int64_t i = 0; i < ls_count(x); i += ls_count(x) / 5)
        same_difference(&b, &saved, "x", (double *)ls_data(x) + i, dx[i]);
    for (size_t k = 0; k < b.store->count; k++) {
        const ls_parameter *parameter = &b.store->items[k];
        const double *own = gradients + parameter->offset;
        if (!(nmse(own + b.store->total, own, parameter->count) <= 1e-9))
            fail_msg("%s: the gradient of %s is wrong in f32", what->name, parameter->name);
        double *values = ls_parameter_master(b.store, parameter);
        for (int64_t i = 0; i < parameter->count; i += ls_max(1, parameter->count / 3))
            same_difference(&b, &saved, parameter->name, values + i, own[i]);
    }
    ls_text_clear(ctx, &saved);
    ls_text_clear(ctx, &unused);
    free(dx), free(got), free(gradients);
    bench_free(&b);
    bench_free(&fast);
}

/* Cuts of f64, f32 against it, and gradients: whole, and in a stream. */
static inline void obeys(ls_ctx *ctx, const ls_mixer *mixer, const char *words) {
    static const char *const inputs[] = {"x", "cot", NULL};
    enum { ROWS = 70 };
    const int64_t D = mixer->width;
    double *x = normal_numbers(ROWS * D, 4);
    subject what = {words, mixer_record, mixer};
    check_gradients(ctx, &what, (ls_program_options){.batch = 1, .length = 20}, inputs, 5);
    later_gradients(ctx, &what, inputs);
    double *want = mixer_outputs(ctx, (mixer_run){mixer, LS_F64, ROWS, 0, NULL, NULL}, x);
    for (int64_t cut = 1; cut < ROWS; cut += 22) {
        double *got = mixer_outputs(ctx, (mixer_run){mixer, LS_F64, ROWS, cut, NULL, NULL}, x);
        same_rows(words, got, want, ROWS, D, 1e-11);
        free(got);
    }
    double *fast = mixer_outputs(ctx, (mixer_run){mixer, LS_F32, ROWS, 0, NULL, NULL}, x);
    double *stream = mixer_outputs(ctx, (mixer_run){mixer, LS_F32, ROWS, 9, NULL, NULL}, x);
    if (!(nmse(fast, want, ROWS * D) <= 1e-10)) fail_msg("%s: wrong in f32", words);
    if (!(nmse(stream, want, ROWS * D) <= 1e-10)) fail_msg("%s: wrong in a stream of f32", words);
    free(fast), free(stream), free(want), free(x);
}

static inline double *stored(const ls_safetensors *file, const char *name, int64_t *count) {
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    if (tensor == NULL) fail_msg("the fixture has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    *count = tensor->count;
    return values;
}

#endif
