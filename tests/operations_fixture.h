/* What the tests of operations share: a subject's gradients against differences in f64, and its
 * fast types against f64, on every instruction set that this processor has. */
#ifndef LS_TESTS_OPERATIONS_FIXTURE_H
#define LS_TESTS_OPERATIONS_FIXTURE_H

#include "harness.h"

static const char *const inputs[] = {"x", "z", "cot", "weights", NULL};

#define SHAPE LS_DIMS(2, 5, 24)

static inline ls_tensor *input(ls_program *p) {
    return ls_input(p, "x", ls_type(p), SHAPE, true);
}

static inline ls_tensor *made_from(ls_program *p, ls_tensor *x, const char *name, int64_t width) {
    int64_t in = x->dim[x->rank - 1];
    return ls_linear(p, x, ls_param(p, name, LS_DIMS(width, in), ls_init_normal(1)), NULL);
}

static inline ls_tensor *full_param(ls_program *p, const char *name, int rank, const int64_t *dim) {
    return ls_param(p, name, rank, dim, (ls_init){.kind = LS_INIT_NORMAL, .a = 1, .full = true});
}

static const ls_program_options plain = {.batch = 2, .length = 5, .train = true, .guarded = true};

/* All of them, or those whose names contain LONGSHOT_TEST_OPERATION. */
static inline bool wanted(const subject *what) {
    const char *only = getenv("LONGSHOT_TEST_OPERATION");
    return only == NULL || strstr(what->name, only) != NULL;
}

static inline void check_all_gradients(const subject *subjects, int count) {
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < count; i++)
        if (wanted(&subjects[i])) check_gradients(&ctx, &subjects[i], plain, inputs, 60);
}

/* Outputs and all gradients of one run, end to end in one array. */
static inline double *everything(bench *b, int64_t *count) {
    const ls_tensor *y = ls_program_find(b->program, "y");
    const ls_tensor *dx = ls_program_find(b->program, "grad.x");
    int64_t n = ls_count(y), m = dx == NULL ? 0 : ls_count(dx);
    *count = n + m + b->store->total;
    double *all = calloc((size_t)*count, sizeof *all);
    for (int64_t i = 0; i < n; i++) all[i] = get(y, i);
    for (int64_t i = 0; i < m; i++) all[n + i] = get(dx, i);
    for (int64_t i = 0; i < b->store->total; i++)
        all[n + m + i] = b->store->master_type == LS_F64 ? ((double *)b->store->gradient)[i]
                                                         : (double)((float *)b->store->gradient)[i];
    return all;
}

static inline double *run_everything(ls_ctx *ctx, const subject *what, ls_dtype type,
                                     int64_t *count) {
    ls_program_options options = plain;
    options.type = type;
    options.grad = true;
    bench b = bench_new(ctx, what, options);
    fill_inputs(b.program, inputs, 11);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 1, 1));
    assert_true(ls_program_guards_intact(b.program));
    double *all = everything(&b, count);
    bench_free(&b);
    return all;
}

static inline void check_fast_types(const subject *subjects, int subject_count) {
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < subject_count; i++) {
        int64_t count;
        if (!wanted(&subjects[i]) || !device_can(&ctx, &subjects[i], plain)) continue;
        ctx.isa = NULL;
        double *want = run_everything(&ctx, &subjects[i], LS_F64, &count);
        for (int k = 0; test_isa(k) != NULL; k++) {
            ctx.isa = test_isa(k);
            for (int type = LS_F32; type <= LS_BF16; type++) {
                double *got = run_everything(&ctx, &subjects[i], (ls_dtype)type, &count);
                double error = nmse(got, want, count), limit = type == LS_F32 ? 1e-12 : 1e-4;
                if (!(error <= limit))
                    fail_msg("%s on %s in %s: error %.3g, at most %.0e", subjects[i].name,
                             test_isa(k), ls_dtype_name((ls_dtype)type), error, limit);
                ctx.threads = 1 + ctx.threads % 3;
                double *again = NULL;
                if (!test_is_brief()) {
                    again = run_everything(&ctx, &subjects[i], (ls_dtype)type, &count);
                    if (memcmp(got, again, (size_t)count * sizeof *got) != 0)
                        fail_msg("%s in %s: other bits with other threads", subjects[i].name,
                                 ls_dtype_name((ls_dtype)type));
                }
                free(got);
                free(again);
            }
        }
        free(want);
    }
}

#endif
