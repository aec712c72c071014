/* Batch norm: gradients against differences in f64, fast types against f64 on every instruction
 * set, padding of any content, and what runs along, against PyTorch's and Flax's. */
#include "golden_file.h"
#include "operations_fixture.h"
#include "train/optimizer.h"

typedef struct norm_case {
    int64_t padding;     /* rows at the end of each sequence that do not count */
    int64_t width;       /* of 24: the rest is beside it */
    bool bare, unbiased; /* bare: neither weight nor bias */
} norm_case;

static ls_tensor *valid_of(ls_program *p, int64_t padding) {
    const ls_program_options *o = ls_program_about(p);
    double counts[256];
    if (padding == 0) return NULL;
    for (int64_t i = 0; i < o->batch * o->length; i++)
        counts[i] = i % o->length < o->length - padding;
    return ls_constant(p, LS_U8, LS_DIMS(o->batch, o->length), counts);
}

static ls_batch_norm declare(ls_program *p, int64_t width, double share, bool bare) {
    ls_batch_norm norm = {.epsilon = 1e-5,
                          .mean = ls_param(p, "mean", LS_DIMS(width), ls_running(0, share)),
                          .variance =
                              ls_param(p, "variance", LS_DIMS(width), ls_running(2, share))};
    if (bare) return norm;
    norm.weight = ls_param(p, "weight", LS_DIMS(width), ls_init_gain());
    norm.bias = ls_param(p, "bias", LS_DIMS(width), ls_init_bias());
    return norm;
}

static void record(ls_program *p, const void *about) {
    const norm_case *c = about;
    ls_tensor *parts[2], *x = input(p);
    if (c->width < 24) {
        ls_split(p, x, 2, (const int64_t[]){c->width, 24 - c->width}, parts);
        x = parts[0];
    }
    ls_batch_norm norm = declare(p, c->width, 0.1, c->bare);
    norm.valid = valid_of(p, c->padding);
    norm.unbiased = c->unbiased;
    ls_keep(p, "y", ls_batch_norm_rows(p, &norm, x));
}

static const subject subjects[] = {
    {"all rows", record, &(norm_case){0, 24, false, true}},
    {"padded", record, &(norm_case){2, 24, false, false}},
    {"a part, padded", record, &(norm_case){2, 13, false, true}},
    {"bare", record, &(norm_case){0, 19, true, true}},
    {"one row", record, &(norm_case){4, 24, false, true}},
    {"no row", record, &(norm_case){5, 24, false, true}},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static void test_gradients(void **state) {
    (void)state;
    check_all_gradients(subjects, SUBJECTS);
}

/* At test: the same with what runs along. */
static void test_gradients_of_running(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_program_options options = plain;
    options.train = false;
    for (int i = 0; i < SUBJECTS; i++) check_gradients(&ctx, &subjects[i], options, inputs, 60);
}

static void test_fast_types(void **state) {
    (void)state;
    check_fast_types(subjects, SUBJECTS);
}

/* Outputs, gradients and what is left for the running ones, with padding that holds `value`. */
static double *with_padding(ls_ctx *ctx, ls_dtype type, double value, int64_t *count) {
    ls_program_options options = plain;
    options.type = type;
    options.grad = true;
    bench b = bench_new(ctx, &subjects[1], options);
    fill_inputs(b.program, inputs, 11);
    for (int64_t row = 0; row < 10; row++)
        for (int64_t i = 0; row % 5 >= 3 && i < 24; i++)
            put(ls_program_find(b.program, "x"), row * 24 + i, value);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 1, 1));
    double *all = everything(&b, count);
    bench_free(&b);
    return all;
}

static void test_padding_does_not_count(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int type = ctx.device == NULL ? LS_F64 : LS_F32; type <= LS_BF16; type++) {
        int64_t count;
        double *some = with_padding(&ctx, (ls_dtype)type, 3, &count);
        double *other = with_padding(&ctx, (ls_dtype)type, NAN, &count);
        assert_memory_equal(some, other, (size_t)count * sizeof *some);
        free(some);
        free(other);
    }
}

/* ---- other people's, three batches one after the other ---- */

enum { B = 3, T = 7, D = 6 };
typedef struct public_case {
    const char *file;
    double share;
    bool unbiased;
} public_case;

static void record_public(ls_program *p, const void *about) {
    const public_case *c = about;
    ls_batch_norm norm = declare(p, D, c->share, false);
    norm.unbiased = c->unbiased;
    ls_keep(p, "y",
            ls_batch_norm_rows(p, &norm, ls_input(p, "x", ls_type(p), LS_DIMS(B, T, D), true)));
}

static void compare(const golden *g, const char *name, int step, const double *got) {
    char full[64];
    int64_t dim[5];
    size_t count;
    snprintf(full, sizeof full, step < 0 ? "%s" : "%s%d", name, step);
    double *want = golden_tensor(g, full, dim, &count);
    assert_non_null(want);
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 1e-12 * fmax(1, fabs(want[i]))))
            fail_msg("%s[%zu] is %.17g, not %.17g", full, i, got[i], want[i]);
    free(want);
}

static void give(const golden *g, const char *name, int step, double *to) {
    char full[64];
    int64_t dim[5];
    size_t count;
    snprintf(full, sizeof full, step < 0 ? "%s" : "%s%d", name, step);
    double *values = golden_tensor(g, full, dim, &count);
    assert_non_null(values);
    memcpy(to, values, count * sizeof *to);
    free(values);
}

static double *value_of(const bench *b, const char *name) {
    return ls_parameter_master(b->store, ls_parameters_find(b->store, name));
}

static const double *gradient_of(const bench *b, const char *name) {
    return ls_parameter_gradient(b->store, ls_parameters_find(b->store, name));
}

static void check_public(const public_case *c) {
    ls_ctx ctx = ctx_of_one_thread();
    ctx.device = NULL; /* f64 is the processor's */
    const subject what = {c->file, record_public, c};
    ls_program_options options = {
        .type = LS_F64, .batch = B, .length = T, .grad = true, .train = true};
    golden g;
    golden_open(&g, c->file);
    bench b = bench_new(&ctx, &what, options);
    give(&g, "w.weight", -1, value_of(&b, "weight"));
    give(&g, "w.bias", -1, value_of(&b, "bias"));
    for (int i = 0; i < D; i++) {
        value_of(&b, "mean")[i] = 0;
        value_of(&b, "variance")[i] = 1;
    }
    ls_optimizer_settings settings = ls_optimizer_settings_default();
    ls_optimizer *optimizer;
    settings.clip = 1e-3; /* what runs along is not clipped */
    expect(&ctx, ls_optimizer_new(&ctx, b.store, &settings, &optimizer));
    for (int step = 0; step < 3; step++) {
        double norm, squares = 0;
        give(&g, "in.x", step, ls_data(ls_program_find(b.program, "x")));
        give(&g, "cot", -1, ls_data(ls_program_find(b.program, "cot")));
        expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
        compare(&g, "out.y", step, ls_data(ls_program_find(b.program, "y")));
        compare(&g, "grad.x", step, ls_data(ls_program_find(b.program, "grad.x")));
        compare(&g, "grad.weight", step, gradient_of(&b, "weight"));
        compare(&g, "grad.bias", step, gradient_of(&b, "bias"));
        for (int i = 0; i < D; i++)
            squares += pow(gradient_of(&b, "weight")[i], 2) + pow(gradient_of(&b, "bias")[i], 2);
        expect(&ctx, ls_optimizer_norm(&ctx, optimizer, &norm));
        assert_true(fabs(norm - sqrt(squares)) <= 1e-12 * norm);
        expect(&ctx, ls_optimizer_update(&ctx, optimizer, 0, norm, step + 1));
        compare(&g, "out.mean", step, value_of(&b, "mean"));
        compare(&g, "out.variance", step, value_of(&b, "variance"));
    }
    ls_optimizer_free(&ctx, optimizer);
    options.train = false;
    bench_forward_only(&b, &what, options);
    give(&g, "in.x", 0, ls_data(ls_program_find(b.program, "x")));
    expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
    compare(&g, "out.test", -1, ls_data(ls_program_find(b.program, "y")));
    bench_free(&b);
    golden_close(&g);
}

static void test_public(void **state) {
    (void)state;
    check_public(&(public_case){"batch-norm-torch.safetensors", 0.1, true});
    check_public(&(public_case){"batch-norm-flax.safetensors", 1 - 0.95, false});
}

/* A batch in parts has the mean of the parts' statistics; what is not finite is seen in the
 * norm. */
static void test_parts(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    ctx.device = NULL;
    const public_case c = {"parts", 0.25, false};
    const subject what = {c.file, record_public, &c};
    const ls_program_options options = {
        .type = LS_F32, .batch = B, .length = T, .grad = true, .train = true};
    bench b = bench_new(&ctx, &what, options);
    ls_optimizer_settings settings = ls_optimizer_settings_default();
    settings.leaves = 2;
    ls_optimizer *optimizer;
    expect(&ctx, ls_optimizer_new(&ctx, b.store, &settings, &optimizer));
    float *mean = (float *)(void *)value_of(&b, "mean"), before = mean[1];
    float *gradient = ls_parameter_gradient(b.store, ls_parameters_find(b.store, "mean"));
    gradient[1] = 3 + 5;
    double norm;
    expect(&ctx, ls_optimizer_norm(&ctx, optimizer, &norm));
    assert_true(norm == 0);
    expect(&ctx, ls_optimizer_update(&ctx, optimizer, 1, norm, 1));
    assert_true(fabs(mean[1] - (0.75 * before + 0.25 * 4)) < 1e-6);
    gradient[2] = INFINITY;
    expect(&ctx, ls_optimizer_norm(&ctx, optimizer, &norm));
    assert_true(norm != norm || norm > 1e300);
    ls_optimizer_free(&ctx, optimizer);
    bench_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),  cmocka_unit_test(test_gradients_of_running),
        cmocka_unit_test(test_fast_types), cmocka_unit_test(test_padding_does_not_count),
        cmocka_unit_test(test_public),     cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
