/* What the tests of models with memories share: mixers from words, a case of tests/golden held
 * against ours, programs of several lengths on the same parameters. */
#ifndef LS_TESTS_MEMORY_FIXTURE_H
#define LS_TESTS_MEMORY_FIXTURE_H

#include "harness.h"
#include "mixer/mixer.h"
#include "model/safetensors.h"
#include "tensor/program_internal.h"

/* A mixer from key=value words. */
static inline ls_mixer choose(ls_ctx *ctx, const ls_mixer_type *type, int64_t width,
                              const char *words) {
    char all[256], *rest = NULL;
    void *options = calloc(1, type->options.size);
    expect(ctx, ls_options_default(ctx, &type->options, options));
    snprintf(all, sizeof all, "%s", words);
    for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        expect(ctx, ls_options_set(ctx, &type->options, "", word, value, options));
    }
    ls_mixer mixer = {.type = type, .options = options, .width = width, .causal = true};
    expect(ctx, type->check(ctx, &mixer));
    return mixer;
}

static inline void release(ls_mixer *mixer) {
    free((void *)(uintptr_t)mixer->options);
}

/* A tensor of a case, free() it; the number of its elements where `count` is not NULL. */
static inline double *stored(const ls_safetensors *file, const char *name,
                             const ls_safetensor **about) {
    const ls_safetensor *tensor = ls_safetensors_find(file, name);
    if (tensor == NULL) fail_msg("the case has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values + 1);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    if (about != NULL) *about = tensor;
    return values;
}

static inline void near(const char *name, const double *got, const double *want, int64_t count,
                        double tolerance) {
    double most = 0, wrong = 0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, fabs(want[i]));
        wrong = fmax(wrong, fabs(got[i] - want[i]));
        if (!isfinite(got[i])) fail_msg("%s[%lld] is not finite", name, (long long)i);
    }
    if (!(wrong <= tolerance * most)) fail_msg("%s differs by %.3g of %.3g", name, wrong, most);
}

static inline void put_all(const bench *b, const char *name, const double *values) {
    ls_tensor *tensor = ls_program_find(b->program, name);
    for (int64_t i = 0; i < ls_count(tensor); i++) put(tensor, i, values[i]);
}

/* Bench of another length on the same parameters; with grad the cotangent of y is "cot". */
static inline bench more(bench *first, const subject *what, ls_program_options options) {
    bench b = {.ctx = first->ctx, .store = first->store};
    expect(b.ctx, ls_program_new(b.ctx, &options, b.store, &b.program));
    what->record(b.program, what->about);
    if (options.grad) {
        ls_tensor *y = ls_program_find(b.program, "y");
        ls_seed_gradient(b.program, y, ls_input(b.program, "cot", y->type, y->rank, y->dim, false));
    }
    expect(b.ctx, ls_program_finish(b.program));
    ls_program_poison(b.program);
    return b;
}

static inline double *numbers(int64_t count, uint64_t seed) {
    double *x = malloc((size_t)count * sizeof *x);
    for (int64_t i = 0; i < count; i++)
        x[i] = ls_random_normal((ls_random){.seed = seed, .stream = 9}, (uint64_t)i);
    return x;
}

#endif
