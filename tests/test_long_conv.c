/* Long convolutions at lengths that take every level of blocks and every kind of pass: against the
 * definition, everywhere or here and there, and nothing of the future in the past. Tier:
 * unsanitized. */
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

/* What a run had and gave, and by the definition what it should have given at some places. */
typedef struct long_run {
    const shape *s;
    double *x, *cot, *y, *dx;
    const float *k, *skip, *dk, *dskip;
} long_run;

/* sum over t of a[t + ahead] b[t], in channel d of sequence b. */
static double lagged(const long_run *r, const double *a, const double *b, int64_t row, int64_t d,
                     int64_t ahead) {
    const int64_t T = r->s->T, D = r->s->D;
    double sum = 0;
    for (int64_t t = 0; t + ahead < T; t++)
        sum += a[(row * T + t + ahead) * D + d] * b[(row * T + t) * D + d];
    return sum;
}
/* sum over s of k[s] x[t - s], or x[t + s] towards what is ahead; s counts the delay, too. */
static double convolved(const long_run *r, const double *x, int64_t row, int64_t t, int64_t d,
                        bool ahead) {
    const shape *s = r->s;
    const int64_t delay = s->future ? 1 : 0;
    double sum = (double)r->skip[d] * x[(row * s->T + t) * s->D + d];
    for (int64_t i = 0; i < s->taps; i++) {
        const int64_t at = ahead ? t + delay + i : t - delay - i;
        if (at < 0 || at >= s->T) break;
        sum += (double)r->k[d * s->taps + i] * x[(row * s->T + at) * s->D + d];
    }
    return sum;
}

/* Results, gradients of inputs and kernels; and of `skip`, which may be as good as 0 and is held
 * against those of the kernels: on the processor it is one sum over all times. */
static void check_some(const long_run *r, double limit) {
    enum { PLACES = 60 };
    const shape *s = r->s;
    const int64_t delay = s->future ? 1 : 0;
    const ls_random key = {.seed = 11, .stream = 1};
    double got[4 * PLACES], want[4 * PLACES];
    for (int i = 0; i < PLACES; i++) {
        const int64_t drawn = (int64_t)(ls_random_unit(key, (uint64_t)i) * (double)s->T);
        const int64_t edges[] = {0, 1, s->T - 1, s->T - 2, s->T / 2, 255, 256, 4095, 4096};
        const int64_t t = i < 9 ? edges[i] : drawn, d = i % s->D, row = i / s->D % s->B;
        const int64_t at = (row * s->T + t) * s->D + d, tap = ls_min(t, s->taps - 1);
        double dk = 0, dskip = 0;
        for (int64_t b = 0; b < s->B; b++) {
            dk += s->future ? lagged(r, r->x, r->cot, b, d, tap + delay)
                            : lagged(r, r->cot, r->x, b, d, tap);
            dskip += lagged(r, r->x, r->cot, b, d, 0);
        }
        got[i] = r->y[at];
        want[i] = convolved(r, r->x, row, t, d, s->future);
        got[PLACES + i] = r->dx[at];
        want[PLACES + i] = convolved(r, r->cot, row, t, d, !s->future);
        got[2 * PLACES + i] = (double)r->dk[d * s->taps + tap];
        want[2 * PLACES + i] = dk;
        got[3 * PLACES + i] = (double)r->dskip[d];
        want[3 * PLACES + i] = dskip;
    }
    assert_true(nmse(got, want, PLACES) < limit);
    assert_true(nmse(got + PLACES, want + PLACES, PLACES) < limit);
    assert_true(nmse(got + 2 * PLACES, want + 2 * PLACES, PLACES) < limit);
    assert_true(nmse(got + 2 * PLACES, want + 2 * PLACES, 2 * PLACES) < fmax(limit, 1e-10));
}

/* On a device these take columns of 16 and of 256 values and of both, rows of every length, and
 * batches that do not fit into the workspace together. */
static void test_long(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 16384, 5, 16384, false},   {2, 20001, 17, 20001, true},
                                   {1, 65536, 3, 65536, false},   {5, 65537, 2, 65537, true},
                                   {1, 150001, 3, 40000, false},  {1, 262144, 3, 262144, false},
                                   {1, 300001, 2, 300001, true},  {2, 600000, 1, 600000, false},
                                   {1, 1100000, 2, 1100000, true}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *s = &shapes[i];
        if (s->T > 70000 && ctx.device == NULL) continue;
        for (int type = LS_F32; type <= (test_is_brief() ? LS_F32 : LS_BF16); type++) {
            bench b = bench_of(&ctx, s, (ls_dtype)type, true);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            assert_true(ls_program_guards_intact(b.program));
            const ls_parameter *k = ls_parameters_find(b.store, "k");
            const ls_parameter *skip = ls_parameters_find(b.store, "skip");
            long_run r = {.s = s,
                          .x = read_all(ls_program_find(b.program, "x")),
                          .cot = read_all(ls_program_find(b.program, "cot")),
                          .y = read_all(ls_program_find(b.program, "y")),
                          .dx = read_all(ls_program_find(b.program, "grad.x")),
                          .k = ls_parameter_master(b.store, k),
                          .skip = ls_parameter_master(b.store, skip),
                          .dk = ls_parameter_gradient(b.store, k),
                          .dskip = ls_parameter_gradient(b.store, skip)};
            check_some(&r, type == LS_F32 ? 1e-12 : 1e-4);
            free(r.x);
            free(r.cot);
            free(r.y);
            free(r.dx);
            bench_free(&b);
        }
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
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_causality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
