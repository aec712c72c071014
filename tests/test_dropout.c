/* Dropout: what is kept is scaled up by 1 / (1 - p), what falls is drawn anew at every step, by
 * every operation and every seed, and the gradient falls where the values did. */
#include "harness.h"

enum { ROWS = 64, COLUMNS = 512, COUNT = ROWS * COLUMNS };
static const double share = 0.3;

static void twice(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, ROWS, COLUMNS), true);
    ls_keep(p, "y", ls_dropout(p, x, share));
    ls_keep(p, "z", ls_dropout(p, x, share));
}

static double *values_at(bench *b, const char *name, uint64_t seed, uint32_t step) {
    expect(b->ctx, ls_program_run(b->program, NULL, seed, step));
    return read_all(ls_program_find(b->program, name));
}

/* Independent masks agree on p^2 + (1 - p)^2 of the places; one mask on all. */
static void expect_independent(const char *what, const double *a, const double *b) {
    int alike = 0;
    for (int i = 0; i < COUNT; i++) alike += (a[i] == 0) == (b[i] == 0);
    const double p = share * share + (1 - share) * (1 - share);
    if (!(fabs(alike - COUNT * p) <= 5 * sqrt(COUNT * p * (1 - p))))
        fail_msg("%s: masks agree on %d of %d places", what, alike, COUNT);
}

static void test_masks(void **state) {
    (void)state;
    for (int type = 0; type < 2; type++) {
        ls_ctx ctx = test_ctx_default();
        if (ctx.device != NULL && type == 1) continue; /* f64 is the processor's */
        const subject what = {"dropout", twice, NULL};
        bench b = bench_new(&ctx, &what,
                            (ls_program_options){.type = type == 0 ? LS_F32 : LS_F64,
                                                 .batch = 1,
                                                 .length = ROWS,
                                                 .grad = true,
                                                 .train = true});
        const ls_tensor *x = ls_program_find(b.program, "x"),
                        *cot = ls_program_find(b.program, "cot");
        for (int i = 0; i < COUNT; i++) {
            put(x, i, 2);
            put(cot, i, 3);
        }
        double *y = values_at(&b, "y", 5, 7), *z = read_all(ls_program_find(b.program, "z"));
        double *gradient = read_all(ls_program_find(b.program, "grad.x"));
        int fallen = 0;
        for (int i = 0; i < COUNT; i++) {
            fallen += y[i] == 0;
            if (y[i] != 0 && !(fabs(y[i] - 2 / (1 - share)) < 1e-6))
                fail_msg("%g is left of 2", y[i]);
            assert_true(fabs(gradient[i] - (y[i] == 0 ? 0 : 3 / (1 - share))) < 1e-6);
        }
        assert_true(fabs(fallen - COUNT * share) <= 5 * sqrt(COUNT * share * (1 - share)));
        double *again = values_at(&b, "y", 5, 7), *step = values_at(&b, "y", 5, 8);
        double *first = values_at(&b, "y", 5, 0), *seed = values_at(&b, "y", 6, 7);
        assert_memory_equal(y, again, COUNT * sizeof *y);
        expect_independent("two operations", y, z);
        expect_independent("two steps", y, step);
        expect_independent("the first step and another", y, first);
        expect_independent("two seeds", y, seed);
        double *const all[] = {y, z, gradient, again, step, first, seed};
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
        bench_free(&b);
    }
}

/* One draw for all rows of a sequence, and another for each sequence. */
static void tied(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, ROWS / 2, COLUMNS), true);
    ls_keep(p, "y", ls_dropout_tied(p, x, share));
}

static void test_tied(void **state) {
    (void)state;
    ls_ctx ctx = test_ctx_default();
    const subject what = {"tied dropout", tied, NULL};
    const ls_program_options options = {
        .type = LS_F32, .batch = 2, .length = ROWS / 2, .grad = true, .train = true};
    bench b = bench_new(&ctx, &what, options);
    int fallen = 0, alike = 0;
    for (int i = 0; i < COUNT; i++) {
        put(ls_program_find(b.program, "x"), i, 2);
        put(ls_program_find(b.program, "cot"), i, 3);
    }
    double *y = values_at(&b, "y", 5, 7);
    double *gradient = read_all(ls_program_find(b.program, "grad.x"));
    for (int i = 0; i < COUNT; i++) {
        const int first = i / (COUNT / 2) * (COUNT / 2) + i % COLUMNS;
        assert_true(y[i] == y[first] && (gradient[i] == 0) == (y[i] == 0));
    }
    for (int i = 0; i < COLUMNS; i++) {
        fallen += (y[i] == 0) + (y[COUNT / 2 + i] == 0);
        alike += (y[i] == 0) == (y[COUNT / 2 + i] == 0);
    }
    assert_true(fabs(fallen - 2 * COLUMNS * share) <= 5 * sqrt(2 * COLUMNS * share * (1 - share)));
    assert_true(alike < COLUMNS * 3 / 4);
    free(y);
    free(gradient);
    bench_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_masks), cmocka_unit_test(test_tied)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
