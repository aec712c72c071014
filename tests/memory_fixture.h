/* What the tests of models with memories share: mixers from words, programs of several lengths on
 * the same parameters. */
#ifndef LS_TESTS_MEMORY_FIXTURE_H
#define LS_TESTS_MEMORY_FIXTURE_H

#include "mixer_words.h"
#include "tensor/engine/program_internal.h"

/* A causal mixer from key=value words. */
static inline ls_mixer choose(ls_ctx *ctx, const ls_mixer_type *type, int64_t width,
                              const char *words) {
    ls_mixer mixer;
    expect(ctx, mixer_choose(ctx, type, words, width, true, &mixer));
    return mixer;
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

static inline void record_layer(ls_program *p, const void *about) {
    const ls_mixer *mixer = about;
    const ls_program_options *o = ls_program_about(p);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(o->batch, o->length, mixer->width), true);
    ls_keep(p, "y", mixer->type->forward(p, mixer, x));
}

/* What a mixer says about its state is what is allocated. */
static inline void state_is_declared(ls_ctx *ctx, const ls_mixer *mixer, const char *words) {
    subject what = {words, record_layer, mixer};
    for (int64_t T = 1; T <= 300; T += 13)
        for (int type = LS_F64; type <= LS_F32; type++) {
            bench b = bench_new(ctx, &what,
                                (ls_program_options){.type = (ls_dtype)type,
                                                     .batch = 1,
                                                     .length = 1,
                                                     .streaming = true,
                                                     .capacity = T,
                                                     .chunk_max = 1});
            int64_t said = mixer->type->state_bytes(mixer, T, type == LS_F64 ? 8 : 4);
            if ((int64_t)ls_state_bytes(b.state) != said)
                fail_msg("%s: the state of %lld tokens takes %zu bytes, not %lld", words,
                         (long long)T, ls_state_bytes(b.state), (long long)said);
            bench_free(&b);
        }
}

/* Outputs of x [rows,width] in chunks of `cut` (0: whole, without a state); with `grad` as in
 * training, where the layer's inputs are remembered. */
static inline double *outputs(ls_ctx *ctx, const ls_mixer *mixer, ls_dtype type, const double *x,
                              int64_t rows, int64_t cut, bool grad) {
    const int64_t D = mixer->width;
    subject what = {mixer->type->name, record_layer, mixer};
    double *y = malloc((size_t)(rows * D) * sizeof *y);
    ls_state *state = NULL;
    for (int64_t at = 0, n; at < rows; at += n) {
        n = cut == 0 ? rows : ls_min(cut, rows - at);
        bench b = bench_new(ctx, &what,
                            (ls_program_options){.type = type,
                                                 .batch = 1,
                                                 .length = n,
                                                 .grad = grad,
                                                 .guarded = true,
                                                 .streaming = cut > 0,
                                                 .capacity = rows,
                                                 .chunk_max = ls_max(cut, 1)});
        if (state == NULL) {
            state = b.state;
            b.state = NULL;
        }
        put_values(&b, "x", x + at * D);
        if (grad)
            for (int64_t i = 0; i < n * D; i++) put(ls_program_find(b.program, "cot"), i, 1);
        expect(ctx, ls_program_run(b.program, state, 0, 0));
        assert_true(ls_program_guards_intact(b.program));
        for (int64_t i = 0; i < n * D; i++) y[at * D + i] = get(ls_program_find(b.program, "y"), i);
        bench_free(&b);
    }
    ls_state_free(ctx, state);
    return y;
}

/* A state as declared, and the same outputs however a sequence is cut, also in f32 and as in
 * training: for a mixer from each of the words. */
static inline void check_any_cut(ls_ctx *ctx, const ls_mixer_type *type, int64_t width,
                                 const char *const *words, size_t count) {
    enum { ROWS = 90 };
    double *x = normal_numbers(ROWS * width, 4);
    for (size_t i = 0; i < count; i++) {
        ls_mixer mixer = choose(ctx, type, width, words[i]);
        subject what = {words[i], record_layer, &mixer};
        if (ctx->device == NULL) state_is_declared(ctx, &mixer, words[i]);
        double *want = outputs(ctx, &mixer, LS_F64, x, ROWS, 0, false);
        for (int64_t cut = 0; cut <= ROWS; cut = cut * 4 + 1)
            for (int grad = 0; grad < 2; grad++) {
                double *got = outputs(ctx, &mixer, LS_F64, x, ROWS, cut, grad);
                if (!(nmse(got, want, ROWS * width) <= 1e-26))
                    fail_msg("%s: chunks of %lld differ", words[i], (long long)cut);
                free(got);
                if (!device_can(ctx, &what, (ls_program_options){.batch = 1, .length = 3}))
                    continue;
                got = outputs(ctx, &mixer, LS_F32, x, ROWS, cut, grad);
                if (!(nmse(got, want, ROWS * width) <= 1e-10))
                    fail_msg("%s: chunks of %lld are wrong in f32: %g", words[i], (long long)cut,
                             nmse(got, want, ROWS * width));
                free(got);
            }
        free(want);
        mixer_release(&mixer);
    }
    free(x);
}

#endif
