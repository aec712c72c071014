/* Linformer: every way of sharing against its definition as sums, softmax attention as the case
 * E = F = 1, padding, what is refused, and why a mask would not make it causal. */
#include "mixer_case.h"

enum { D = 12, H = 3, W = 4, ALL = H * W, N = 20, SLOTS = 5, T = 17, B = 2 };

extern const ls_mixer_type ls_mixer_linformer, ls_mixer_attention;
static const char *const inputs[] = {"x", "cot", NULL};

#define SIZES " heads=3 k=5 length=20"
static const struct {
    const char *words, *E, *F;
    bool own; /* every head has its own */
    int matrices_of_two_layers;
} sharings[] = {
    {"sharing=none" SIZES, "E", "F", true, 2 * 2 * H},
    {"sharing=headwise" SIZES, "E", "F", false, 2 * 2},
    {"sharing=key-value" SIZES, "E", "E", false, 2},
    {"sharing=layerwise" SIZES, "linformer.E", "linformer.E", false, 1},
    {"sharing=per-head" SIZES, "E", "E", true, 2 * H},
};
enum { SHARINGS = sizeof sharings / sizeof sharings[0] };

/* out[i,:] = sum_t P[t,i] rows[t,h,:] */
static void project(const double *P, const double *rows, int64_t count, int64_t h,
                    double out[SLOTS][W]) {
    memset(out, 0, sizeof(double) * SLOTS * W);
    for (int64_t t = 0; t < count; t++)
        for (int64_t i = 0; i < SLOTS; i++)
            for (int64_t w = 0; w < W; w++)
                out[i][w] += P[t * SLOTS + i] * rows[t * ALL + h * W + w];
}

/* One text of `count` rows; with `triangle` slot i is hidden from rows before i. */
static double *defined(const ls_parameters *store, int sharing, const double *x, int64_t count,
                       bool triangle) {
    double *part[3], *mixed = calloc((size_t)(count * ALL), sizeof *mixed);
    for (int i = 0; i < 3; i++) part[i] = mixer_part(store, x, count, D, ALL, i);
    for (int64_t h = 0; h < H; h++) {
        double K[SLOTS][W], V[SLOTS][W];
        int64_t at = sharings[sharing].own ? h * N * SLOTS : 0;
        project(mixer_weight(store, sharings[sharing].E) + at, part[1], count, h, K);
        project(mixer_weight(store, sharings[sharing].F) + at, part[2], count, h, V);
        for (int64_t t = 0; t < count; t++) {
            double score[SLOTS] = {0};
            for (int64_t i = 0; i < SLOTS; i++)
                for (int64_t w = 0; w < W; w++)
                    score[i] += part[0][t * ALL + h * W + w] * K[i][w] / sqrt(W);
            mixer_softmax(score, triangle ? ls_min(t + 1, SLOTS) : SLOTS);
            for (int64_t i = 0; i < (triangle ? ls_min(t + 1, SLOTS) : SLOTS); i++)
                for (int64_t w = 0; w < W; w++) mixed[t * ALL + h * W + w] += score[i] * V[i][w];
        }
    }
    double *y = mixer_joined(store, mixed, count, D, ALL);
    for (int i = 0; i < 3; i++) free(part[i]);
    free(mixed);
    return y;
}

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(B * T * D, 3);
    for (int s = 0; s < SHARINGS; s++) {
        mixer_case c = {0};
        expect(&ctx,
               mixer_choose(&ctx, &ls_mixer_linformer, sharings[s].words, D, false, &c.mixer));
        bench b =
            mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
        double *y = mixer_outputs(&ctx, &c, LS_F64, B, T, x, NULL);
        double *fast = mixer_outputs(&ctx, &c, LS_F32, B, T, x, NULL);
        for (int64_t i = 0; i < B; i++) {
            double *want = defined(b.store, s, x + i * T * D, T, false);
            mixer_same(sharings[s].words, y + i * T * D, want, T * D, 1e-12);
            free(want);
        }
        if (!(nmse(fast, y, B * T * D) <= 1e-11)) fail_msg("%s: wrong in f32", sharings[s].words);
        check_gradients(&ctx, &(subject){sharings[s].words, mixer_record, &c},
                        (ls_program_options){.batch = 2, .length = T}, inputs, 8);
        bench_free(&b);
        free(y), free(fast);
        mixer_release(&c.mixer);
    }
    free(x);
}

/* ---- E = F = 1: all of softmax attention ---- */

static void identity(ls_parameters *store, const void *user) {
    (void)user;
    for (const char *name = "E"; *name <= 'F'; name = *name == 'E' ? "F" : "G") {
        double *values = mixer_weight(store, name);
        for (int64_t i = 0; i < T * T; i++) values[i] = i / T == i % T;
    }
}

static void test_identity_is_attention(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    mixer_case low = {.set = identity}, full = {0};
    double *x = normal_numbers(B * T * D, 4);
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_linformer, "heads=3 k=17 length=17 out_bias=false", D,
                              false, &low.mixer));
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_attention, "heads=3", D, false, &full.mixer));
    double *got = mixer_outputs(&ctx, &low, LS_F64, B, T, x, NULL);
    double *want = mixer_outputs(&ctx, &full, LS_F64, B, T, x, NULL);
    mixer_same("E = F = 1", got, want, B * T * D, 1e-13);
    free(x), free(got), free(want);
    mixer_release(&low.mixer);
    mixer_release(&full.mixer);
}

/* ---- how many matrices there are ---- */

static void two_layers(ls_program *p, const void *about) {
    const mixer_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, T, D), true);
    for (int layer = 0; layer < 2; layer++) {
        ls_scope(p, "layers.%d", layer);
        x = ls_mixer_record(p, &c->mixer, x);
        ls_scope_end(p);
    }
    ls_keep(p, "y", x);
}

static void test_sharing_counts(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int s = 0; s < SHARINGS; s++) {
        mixer_case c = {0};
        int matrices = 0;
        expect(&ctx,
               mixer_choose(&ctx, &ls_mixer_linformer, sharings[s].words, D, false, &c.mixer));
        subject what = {sharings[s].words, two_layers, &c};
        bench b =
            bench_new(&ctx, &what, (ls_program_options){.type = LS_F64, .batch = 1, .length = T});
        for (size_t i = 0; i < b.store->count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            if (parameter->dim[parameter->rank - 1] == SLOTS)
                matrices += (int)(parameter->count / (N * SLOTS));
        }
        assert_int_equal(matrices, sharings[s].matrices_of_two_layers);
        bench_free(&b);
        /* a matrix that several layers read gets the sum of their gradients */
        check_gradients(&ctx, &what, (ls_program_options){.batch = 1, .length = T}, inputs, 5);
        mixer_release(&c.mixer);
    }
}

/* ---- padding ---- */

/* Rows that are padding change nothing, whatever is in them: not a bit, and where they come last
 * the text might as well end before them. */
static void test_padding(void **state) {
    (void)state;
    enum { REAL = 12 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(T * D, 5), *other = normal_numbers(T * D, 6), valid[T];
    for (int64_t t = 0; t < T; t++) {
        valid[t] = t < REAL;
        if (t < REAL) memcpy(other + t * D, x + t * D, D * sizeof *x);
    }
    mixer_case padded = {.padded = true}, plain = {0};
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_linformer, sharings[0].words, D, false, &padded.mixer));
    plain.mixer = padded.mixer;
    double *a = mixer_outputs(&ctx, &padded, LS_F64, 1, T, x, valid);
    double *b = mixer_outputs(&ctx, &padded, LS_F64, 1, T, other, valid);
    double *shorter = mixer_outputs(&ctx, &plain, LS_F64, 1, REAL, x, NULL);
    double *unmasked = mixer_outputs(&ctx, &plain, LS_F64, 1, T, x, NULL);
    assert_memory_equal(a, b, REAL * D * sizeof *a);
    mixer_same("without its padding", shorter, a, REAL * D, 1e-13);
    assert_true(nmse(unmasked, a, REAL * D) > 1e-3);
    free(x), free(other), free(a), free(b), free(shorter), free(unmasked);
    mixer_release(&padded.mixer);
}

/* ---- what is refused ---- */

static void test_refusals(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    assert_int_equal(mixer_choose(&ctx, &ls_mixer_linformer, "", D * 2, true, &mixer), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "looks both ways"));
    mixer_release(&mixer);
    assert_int_equal(mixer_choose(&ctx, &ls_mixer_linformer, "heads=5", D, false, &mixer), LS_EUSE);
    mixer_release(&mixer);
    mixer_case c = {0};
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_linformer, sharings[1].words, D, false, &c.mixer));
    const ls_program_options wrong[2] = {
        {.type = LS_F64, .batch = 1, .length = N + 1},
        {.type = LS_F64, .batch = 1, .length = 3, .streaming = true, .capacity = 9, .chunk_max = 3},
    };
    static const char *const said[2] = {"longer than its projections", "in chunks"};
    for (int i = 0; i < 2; i++) {
        ls_parameters *store;
        ls_program *program;
        ctx.error = (ls_error){0};
        expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
        expect(&ctx, ls_program_new(&ctx, &wrong[i], store, &program));
        mixer_record(program, &c);
        assert_true(ls_failed(program));
        assert_non_null(strstr(ctx.error.message, said[i]));
        ls_program_free(program);
        ls_parameters_free(store);
    }
    mixer_release(&c.mixer);
}

/* A triangle on the scores hides slots, not positions: the first row still sees the last. */
static void test_a_mask_would_leak(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    mixer_case c = {0};
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_linformer, sharings[1].words, D, false, &c.mixer));
    bench b = mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
    double *x = normal_numbers(T * D, 7);
    double *before = defined(b.store, 1, x, T, true);
    for (int64_t d = 0; d < D; d++) x[(T - 1) * D + d] += 1;
    double *after = defined(b.store, 1, x, T, true);
    assert_true(nmse(after, before, D) > 1e-4); /* row 0 */
    free(x), free(before), free(after);
    bench_free(&b);
    mixer_release(&c.mixer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),     cmocka_unit_test(test_identity_is_attention),
        cmocka_unit_test(test_sharing_counts), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_a_mask_would_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
