/* What tests share: recorded functions run in any type,
 * compared, and differentiated numerically. */
#ifndef LS_TESTS_HARNESS_H
#define LS_TESTS_HARNESS_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tensor/ops.h"

/* A function under test records from its inputs and keeps its result as "y". */
typedef struct subject {
    const char *name;
    void (*record)(ls_program *p, const void *about);
    const void *about;
} subject;

typedef struct bench {
    ls_ctx *ctx;
    ls_parameters *store;
    ls_program *program;
    ls_state *state;
} bench;

static inline void expect(ls_ctx *ctx, ls_status status) {
    if (status != LS_OK) fail_msg("%s: %s", ls_status_name(status), ctx->error.message);
}

/* For thousands of small runs, in which threads would only wait for one another. */
static inline ls_ctx ctx_of_one_thread(void) {
    ls_ctx ctx = ls_ctx_default();
    ctx.threads = 1;
    return ctx;
}

static inline double get(const ls_tensor *tensor, int64_t i) {
    int64_t place = 0;
    for (int axis = tensor->rank - 1; axis >= 0; axis--) {
        place += i % tensor->dim[axis] * tensor->stride[axis];
        i /= tensor->dim[axis];
    }
    const void *data = ls_data(tensor);
    switch (tensor->type) {
    case LS_F64:
        return ((const double *)data)[place];
    case LS_F32:
        return (double)((const float *)data)[place];
    case LS_BF16:
        return (double)ls_bf16_to_f32(((const ls_bf16 *)data)[place]);
    case LS_I32:
        return ((const int32_t *)data)[place];
    case LS_U8:
    case LS_E4M3:
    case LS_E5M2:
        return ((const uint8_t *)data)[place];
    }
    return NAN;
}

static inline void put(const ls_tensor *tensor, int64_t i, double value) {
    void *data = ls_data(tensor);
    switch (tensor->type) {
    case LS_F64:
        ((double *)data)[i] = value;
        break;
    case LS_F32:
        ((float *)data)[i] = (float)value;
        break;
    case LS_BF16:
        ((ls_bf16 *)data)[i] = ls_bf16_from_f32((float)value);
        break;
    case LS_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    case LS_U8:
    case LS_E4M3:
    case LS_E5M2:
        ((uint8_t *)data)[i] = (uint8_t)value;
        break;
    }
}

static inline void put_values(const bench *b, const char *name, const double *values) {
    const ls_tensor *tensor = ls_program_find(b->program, name);
    for (int64_t i = 0; i < ls_count(tensor); i++) put(tensor, i, values[i]);
}

static inline double *normal_numbers(int64_t count, uint64_t seed) {
    double *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = ls_random_normal((ls_random){.seed = seed, .stream = 9}, (uint64_t)i);
    return x;
}

/* Numbers that are the same in every type. */
static inline double *coarse_numbers(int64_t count, uint64_t seed) {
    double *x = normal_numbers(count, seed);
    for (int64_t i = 0; i < count; i++)
        x[i] = (double)ls_bf16_to_f32(ls_bf16_from_f32((float)x[i]));
    return x;
}

/* Real inputs get reproducible normal numbers by their names; integer inputs are the subject's. */
static inline void fill_inputs(ls_program *program, const char *const *names, uint64_t seed) {
    for (; *names != NULL; names++) {
        ls_tensor *tensor = ls_program_find(program, *names);
        if (tensor == NULL || tensor->type == LS_I32 || tensor->type == LS_U8) continue;
        ls_random key = {.seed = seed, .stream = ls_stream_of(*names)};
        for (int64_t i = 0; i < ls_count(tensor); i++)
            put(tensor, i, ls_random_normal(key, (uint64_t)i));
    }
}

/* All parameters become normal numbers of a size at which nothing hides behind a zero and products
 * keep the size of what goes in. */
static inline void fill_parameters(ls_parameters *store) {
    for (size_t i = 0; i < store->count; i++) {
        const ls_parameter *parameter = &store->items[i];
        ls_random key = {.seed = 7, .stream = ls_stream_of(parameter->name)};
        void *master = ls_parameter_master(store, parameter);
        double deviation =
            parameter->rank > 1 ? 1 / sqrt((double)parameter->dim[parameter->rank - 1]) : 0.3;
        if (parameter->rank > 1 && parameter->init.kind == LS_INIT_ZERO)
            deviation *= 0.1; /* what begins at zero has a steep function behind it */
        double centre = parameter->init.kind == LS_INIT_CONSTANT ? parameter->init.a : 0;
        for (int64_t j = 0; j < parameter->count; j++) {
            double value = centre + deviation * ls_random_normal(key, (uint64_t)j);
            if (store->master_type == LS_F64)
                ((double *)master)[j] = value;
            else
                ((float *)master)[j] = (float)value;
        }
    }
    ls_parameters_round(store);
}

/* Whether the context's device has kernels for all that a subject records; the processor has. */
static inline bool device_can(ls_ctx *ctx, const subject *what, ls_program_options options) {
    if (ctx->device == NULL) return true;
    ls_parameters *store = NULL;
    ls_program *program = NULL;
    options.type = LS_F32;
    options.grad = false;
    expect(ctx, ls_parameters_new(ctx, LS_F32, &store));
    ls_status status = LS_OK;
    for (int pass = 0; pass < 2; pass++) {
        expect(ctx, ls_program_new(ctx, &options, store, &program));
        what->record(program, what->about);
        if (pass == 1) status = ls_program_finish(program);
        ls_program_free(program);
        size_t index;
        if (pass == 0 && store->count == 0)
            expect(ctx,
                   ls_parameters_declare(store, "unused", LS_DIMS(1), ls_init_normal(1), &index));
        if (pass == 0) expect(ctx, ls_parameters_seal(store, 3, false));
    }
    ls_parameters_free(store);
    if (status == LS_EUSE) print_message("%s is left out: %s\n", what->name, ctx->error.message);
    ctx->error = (ls_error){0};
    return status != LS_EUSE;
}

/* Records the subject twice: to declare its parameters, and for use. With `grad` the cotangent
 * "cot" of y is an input, and the gradient of input "x" is kept. */
static inline bench bench_new(ls_ctx *ctx, const subject *what, ls_program_options options) {
    bench b = {.ctx = ctx};
    expect(ctx, ls_parameters_new(ctx, options.type, &b.store));
    for (int pass = 0; pass < 2; pass++) {
        ls_program_options now = options;
        if (pass == 0) now.grad = now.through = false;
        expect(ctx, ls_program_new(ctx, &now, b.store, &b.program));
        what->record(b.program, what->about);
        if (ls_failed(b.program)) fail_msg("%s: %s", what->name, ctx->error.message);
        if (pass == 0) {
            ls_program_free(b.program);
            if (b.store->count == 0) { /* a store is never empty */
                size_t index;
                expect(ctx, ls_parameters_declare(b.store, "unused", LS_DIMS(1), ls_init_normal(1),
                                                  &index));
            }
            expect(ctx, ls_parameters_seal(b.store, 3, options.grad));
            fill_parameters(b.store);
        }
    }
    if (options.grad) {
        ls_tensor *y = ls_program_find(b.program, "y");
        ls_seed_gradient(b.program, y, ls_input(b.program, "cot", y->type, y->rank, y->dim, false));
        ls_tensor *x = ls_program_find(b.program, "x");
        if (x != NULL && x->needs_grad) ls_keep_gradient(b.program, "x", x);
    }
    ls_status status = ls_program_finish(b.program);
    if (status != LS_OK) fail_msg("%s: %s", what->name, ctx->error.message);
    if (options.streaming) expect(ctx, ls_state_new(b.program, &b.state));
    ls_program_poison(b.program);
    return b;
}

/* Exchanges the program for one without gradients over the same parameters;
 * "cot" stays an input. */
static inline void bench_forward_only(bench *b, const subject *what, ls_program_options options) {
    options.grad = false;
    ls_program_free(b->program);
    expect(b->ctx, ls_program_new(b->ctx, &options, b->store, &b->program));
    what->record(b->program, what->about);
    const ls_tensor *y = ls_program_find(b->program, "y");
    ls_input(b->program, "cot", y->type, y->rank, y->dim, false);
    expect(b->ctx, ls_program_finish(b->program));
    ls_program_poison(b->program);
}

static inline void bench_free(bench *b) {
    ls_program_free(b->program);
    ls_state_free(b->ctx, b->state);
    ls_parameters_free(b->store);
    *b = (bench){0};
}

/* sum of squared differences over sum of squares */
static inline double nmse(const double *got, const double *want, int64_t count) {
    double wrong = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        wrong += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    return size == 0 ? wrong : wrong / size;
}

static inline double *read_all(const ls_tensor *tensor) {
    int64_t count = ls_count(tensor);
    double *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = get(tensor, i);
    return values;
}

static inline double objective(bench *b) {
    expect(b->ctx, ls_program_run(b->program, b->state, 1, 1));
    const ls_tensor *y = ls_program_find(b->program, "y"),
                    *cot = ls_program_find(b->program, "cot");
    double sum = 0;
    for (int64_t i = 0; i < ls_count(y); i++) sum += get(y, i) * get(cot, i);
    return sum;
}

/* Central differences of the objective for up to `most` elements of a buffer against `gradient`. */
static inline void check_differences(bench *b, const char *subject_name, const char *name,
                                     double *values, const double *gradient, int64_t count,
                                     int64_t most) {
    double size = 0;
    for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(gradient[i]));
    int64_t step = test_difference_stride(count, most);
    for (int64_t i = 0; i < count; i += step) {
        double kept = values[i], h = 1e-5;
        values[i] = kept + h;
        if (b->state != NULL) ls_state_reset(b->state);
        double above = objective(b);
        values[i] = kept - h;
        if (b->state != NULL) ls_state_reset(b->state);
        double below = objective(b);
        values[i] = kept;
        double numeric = (above - below) / (2 * h);
        if (!(fabs(numeric - gradient[i]) <= 1e-6 * fmax(1, size)))
            fail_msg("%s: gradient of %s[%lld] is %.12g, differences give %.12g", subject_name,
                     name, (long long)i, gradient[i], numeric);
    }
}

/* Gradients of a subject in f64 against differences: of input x and of every parameter. */
static inline void check_gradients(ls_ctx *ctx, const subject *what, ls_program_options options,
                                   const char *const *inputs, int64_t most) {
    const int threads = ctx->threads;
    ctx->threads =
        1; /* thousands of small runs: waking a second thread takes longer than they do */
    options.type = LS_F64;
    options.grad = true;
    bench b = bench_new(ctx, what, options);
    fill_inputs(b.program, inputs, 11);
    ls_parameters_clear_gradient(b.store);
    objective(&b);
    const ls_tensor *dx = ls_program_find(b.program, "grad.x");
    double *gradient_x = dx == NULL ? NULL : read_all(dx);
    double *gradients = malloc((size_t)b.store->total * sizeof *gradients);
    memcpy(gradients, b.store->gradient, (size_t)b.store->total * sizeof *gradients);
    bench_forward_only(&b, what, options);
    fill_inputs(b.program, inputs, 11);
    ls_tensor *x = ls_program_find(b.program, "x");
    if (gradient_x != NULL)
        check_differences(&b, what->name, "x", ls_data(x), gradient_x, ls_count(x), most);
    for (size_t i = 0; i < b.store->count; i++) {
        const ls_parameter *parameter = &b.store->items[i];
        if (parameter->init.fixed) continue;
        check_differences(&b, what->name, parameter->name, ls_parameter_master(b.store, parameter),
                          gradients + parameter->offset, parameter->count, most);
    }
    free(gradient_x);
    free(gradients);
    bench_free(&b);
    ctx->threads = threads;
}

#endif
