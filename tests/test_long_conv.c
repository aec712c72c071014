/* Long convolutions at lengths that take every level of blocks: against the definition, and nothing
 * of the future in the past. Tier: unsanitized. */
#include "harness.h"

static const char *const inputs[] = {"x", "cot", NULL};

typedef struct shape {
    int64_t B, T, D, taps;
    bool future;
} shape;

static void record(ls_program *p, const void *about) {
    const shape *s = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(s->B, s->T, s->D), true);
    ls_tensor *k = ls_param(p, "k", LS_DIMS(s->D, s->taps), full);
    ls_tensor *skip = ls_param(p, "skip", LS_DIMS(s->D), ls_init_gain());
    ls_keep(p, "y", ls_long_conv(p, x, k, skip, s->future));
}

static bench bench_of(ls_ctx *ctx, const shape *s, ls_dtype type, bool grad) {
    subject what = {"long_conv", record, s};
    bench b =
        bench_new(ctx, &what,
                  (ls_program_options){
                      .type = type, .batch = s->B, .length = s->T, .grad = grad, .guarded = true});
    fill_inputs(b.program, inputs, 3);
    ls_parameters_clear_gradient(b.store);
    return b;
}

/* Sequences of 4,200 have blocks of 64, 512 and 4,096; on a device the lengths here take a
 * transform in parts, three sizes of whole ones, and none. */
static void test_definition(void **state) {
    (void)state;
    static const shape shapes[] = {{5, 4200, 17, 4200, false}, {1, 4200, 3, 700, true},
                                   {2, 513, 16, 513, true},    {9, 300, 5, 300, false},
                                   {3, 1100, 6, 40, true},     {2, 50, 7, 50, true}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        int64_t count = s->B * s->T * s->D;
        bench exact = bench_of(&ctx, s, LS_F64, true);
        expect(&ctx, ls_program_run(exact.program, NULL, 0, 0));
        double *y = read_all(ls_program_find(exact.program, "y"));
        double *dx = read_all(ls_program_find(exact.program, "grad.x"));
        const double *gradients = exact.store->gradient;
        for (int type = LS_F32; type <= LS_BF16; type++) {
            double limit = type == LS_F32 ? 1e-12 : 1e-4;
            bench b = bench_of(&ctx, s, (ls_dtype)type, true);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            assert_true(ls_program_guards_intact(b.program));
            double *got = read_all(ls_program_find(b.program, "y"));
            assert_true(nmse(got, y, count) < limit);
            free(got);
            got = read_all(ls_program_find(b.program, "grad.x"));
            assert_true(nmse(got, dx, count) < limit);
            free(got);
            got = malloc((size_t)b.store->total * sizeof *got);
            for (int64_t j = 0; j < b.store->total; j++)
                got[j] = (double)((const float *)b.store->gradient)[j];
            assert_true(nmse(got, gradients, b.store->total) < limit);
            free(got);
            bench_free(&b);
        }
        free(y);
        free(dx);
        bench_free(&exact);
    }
}

/* `value` at a time of channel 2: what comes before it, and other channels. */
static void check_before(ls_ctx *ctx, const shape *s, int64_t time, double value, double allowed) {
    bench b = bench_of(ctx, s, LS_F32, false);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    double *before = read_all(ls_program_find(b.program, "y")), most = 0;
    for (int64_t i = 0; i < s->T * s->D; i++) most = fmax(most, fabs(before[i]));
    put(ls_program_find(b.program, "x"), time * s->D + 2, value);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    double *after = read_all(ls_program_find(b.program, "y"));
    for (int64_t i = 0; i < s->T * s->D; i++)
        if (i % s->D != 2)
            assert_true(after[i] == before[i]);
        else if (i < time * s->D)
            assert_true(fabs(after[i] - before[i]) <= allowed * most);
    if (isnan(value))
        assert_true(isnan(after[time * s->D + 2]));
    else
        assert_true(after[time * s->D + 2] != before[time * s->D + 2]);
    free(before);
    free(after);
    bench_free(&b);
}

/* Not even a NaN that comes later moves a bit before it. On a device that is so for short sequences
 * alone: longer ones are transformed as a whole, and what comes before may move by its rounding. */
static void test_causality(void **state) {
    (void)state;
    const shape in_short = {1, 64, 5, 64, false}, in_long = {1, 4300, 5, 4300, false};
    static const int64_t times[] = {4299, 4096, 4095, 3000, 513, 512, 65, 63, 0};
    ls_ctx ctx = ls_ctx_default();
    check_before(&ctx, &in_short, 63, NAN, 0);
    check_before(&ctx, &in_short, 7, NAN, 0);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        if (ctx.device == NULL)
            check_before(&ctx, &in_long, times[i], NAN, 0);
        else
            check_before(&ctx, &in_long, times[i], 10, 1e-6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_causality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
