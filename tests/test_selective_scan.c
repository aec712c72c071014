/* The selective scan against the published code's own numbers, with gradients through the last
 * state; and what it keeps for the backward part. */
#include "harness.h"
#include "model/safetensors.h"
#include "tensor/selective_scan.h"

static ls_safetensors golden;

static double *stored(const char *name, int64_t *count) {
    const ls_safetensor *tensor = ls_safetensors_find(&golden, name);
    if (tensor == NULL) fail_msg("the fixture has no %s", name);
    double *values = malloc((size_t)tensor->count * sizeof *values);
    ls_safetensor_f64(tensor, 0, tensor->count, values);
    *count = tensor->count;
    return values;
}

/* Sizes of the fixture: channels, states of each, tokens. */
static int64_t BATCH, E, N, T;
static bool plain_step; /* the fixture's steps did not go through the softplus */

static bool is_stored(const char *name) {
    return ls_safetensors_find(&golden, name) != NULL;
}

static void open_golden(ls_ctx *ctx, const char *path) {
    expect(ctx, ls_safetensors_open(ctx, path, &golden));
    const ls_safetensor *u = ls_safetensors_find(&golden, "in.u");
    BATCH = u->dim[0], E = u->dim[1], T = u->dim[2];
    N = ls_safetensors_find(&golden, "in.A")->dim[1];
}

/* Files have time last, [batch,width,T]; here it is [batch,T,width]. */
static int64_t turned(int64_t i, int64_t width) {
    int64_t b = i / (width * T), c = i / T % width, t = i % T;
    return (b * T + t) * width + c;
}

enum { ROWS = 5 };
static const struct {
    const char *name, *stored, *gradient, *stored_gradient;
    const int64_t *width;
} rows[ROWS] = {{"u", "in.u", "grad.u", "grad.in.u", &E},
                {"delta", "in.delta", "grad.delta", "grad.in.delta", &E},
                {"B", "in.B", "grad.B", "grad.in.B", &N},
                {"C", "in.C", "grad.C", "grad.in.C", &N},
                {"z", "in.z", "grad.z", "grad.in.z", &E}};

/* NULL where the fixture leaves it out. */
static ls_tensor *row_input(ls_program *p, int i) {
    if (!is_stored(rows[i].stored)) return NULL;
    return ls_input(p, rows[i].name, ls_type(p), LS_DIMS(BATCH, T, *rows[i].width), true);
}

static void record(ls_program *p) {
    ls_init full = {.kind = LS_INIT_ZERO, .full = true};
    ls_scan scan = {
        .u = row_input(p, 0),
        .delta = row_input(p, 1),
        .A_log = ls_param(p, "A_log", LS_DIMS(E, N), full),
        .B = row_input(p, 2),
        .C = row_input(p, 3),
        .D = is_stored("in.D") ? ls_param(p, "D", LS_DIMS(E), full) : NULL,
        .z = row_input(p, 4),
        .bias = is_stored("in.delta_bias") ? ls_param(p, "delta_bias", LS_DIMS(E), full) : NULL,
        .before = ls_input(p, "before", ls_wide_type(p), LS_DIMS(BATCH, E, N), true),
        .plain_step = plain_step,
    };
    ls_tensor *last;
    ls_tensor *y = ls_selective_scan(p, &scan, &last);
    ls_keep(p, "y", y);
    ls_keep(p, "last_state", last);
    if (!ls_program_about(p)->grad) return;
    ls_seed_gradient(p, y, ls_input(p, "cot", ls_type(p), LS_DIMS(BATCH, T, E), false));
    ls_seed_gradient(p, last,
                     ls_input(p, "cot.last_state", ls_wide_type(p), LS_DIMS(BATCH, E, N), false));
    for (int i = 0; i < ROWS; i++)
        if (is_stored(rows[i].stored))
            ls_keep_gradient(p, rows[i].name, ls_program_find(p, rows[i].name));
    ls_keep_gradient(p, "before", scan.before);
}

static void put_rows(ls_program *p, const char *input, const char *name, int64_t width) {
    int64_t count;
    double *values = stored(name, &count);
    for (int64_t i = 0; i < count; i++)
        put(ls_program_find(p, input), width > 0 ? turned(i, width) : i, values[i]);
    free(values);
}

/* Largest difference over the largest wanted value. */
static void compare(ls_program *p, const char *ours, const char *theirs, int64_t width,
                    double bar) {
    int64_t count;
    double *want = stored(theirs, &count), worst = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double got = get(ls_program_find(p, ours), width > 0 ? turned(i, width) : i);
        worst = fmax(worst, fabs(got - want[i]));
        size = fmax(size, fabs(want[i]));
        assert_true(isfinite(got));
    }
    if (!(worst <= bar * size))
        fail_msg("%s differs by %.3g, at most %.0e", ours, worst / size, bar);
    free(want);
}

static double master_at(const ls_parameters *store, const void *buffer, int64_t i) {
    return store->master_type == LS_F64 ? ((const double *)buffer)[i]
                                        : (double)((const float *)buffer)[i];
}

/* Values of a parameter, or its gradient against the file's. The file has A = -exp(A_log). */
static void parameter(ls_parameters *store, const char *ours, const char *theirs, bool gradient,
                      double bar) {
    char name[64];
    int64_t count;
    const ls_parameter *here = ls_parameters_find(store, ours);
    if (here == NULL) return; /* left out, as record() has it */
    bool is_A = strcmp(ours, "A_log") == 0;
    double worst = 0, size = 0;
    snprintf(name, sizeof name, "%sin.%s", gradient ? "grad." : "", theirs);
    double *values = stored(name, &count);
    for (int64_t i = 0; i < count; i++) {
        void *master = ls_parameter_master(store, here);
        double value = is_A ? log(-values[i]) : values[i];
        if (gradient) {
            double slope = is_A ? -exp(master_at(store, master, i)) : 1;
            double got = master_at(store, ls_parameter_gradient(store, here), i) / slope;
            worst = fmax(worst, fabs(got - values[i]));
            size = fmax(size, fabs(values[i]));
        } else if (store->master_type == LS_F64) {
            ((double *)master)[i] = value;
        } else {
            ((float *)master)[i] = (float)value;
        }
    }
    if (!(worst <= bar * size)) fail_msg("the gradient of %s differs by %.3g", ours, worst / size);
    free(values);
}

static void check_type(ls_dtype type, double bar, double grad_bar) {
    static const char *const names[][2] = {
        {"A_log", "A"}, {"D", "D"}, {"delta_bias", "delta_bias"}};
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *p = NULL;
    expect(&ctx, ls_parameters_new(&ctx, type, &store));
    for (int pass = 0; pass < 2; pass++) {
        ls_program_options options = {
            .type = type, .batch = BATCH, .length = T, .grad = pass == 1, .guarded = true};
        expect(&ctx, ls_program_new(&ctx, &options, store, &p));
        record(p);
        if (pass == 1) break;
        ls_program_free(p);
        expect(&ctx, ls_parameters_seal(store, 1, true));
    }
    expect(&ctx, ls_program_finish(p));
    ls_program_poison(p);
    for (int i = 0; i < 3; i++) parameter(store, names[i][0], names[i][1], false, 0);
    for (int i = 0; i < ROWS; i++)
        if (is_stored(rows[i].stored)) put_rows(p, rows[i].name, rows[i].stored, *rows[i].width);
    put_rows(p, "cot", "cot", E);
    put_rows(p, "cot.last_state", "cot.last_state", 0);
    for (int64_t i = 0; i < BATCH * E * N; i++) put(ls_program_find(p, "before"), i, 0);
    expect(&ctx, ls_program_run(p, NULL, 0, 0));
    assert_true(ls_program_guards_intact(p));
    compare(p, "y", "out.y", E, bar);
    compare(p, "last_state", "out.last_state", 0, bar);
    for (int i = 0; i < ROWS; i++)
        if (is_stored(rows[i].stored))
            compare(p, rows[i].gradient, rows[i].stored_gradient, *rows[i].width, grad_bar);
    for (int i = 0; i < 3; i++) parameter(store, names[i][0], names[i][1], true, grad_bar);
    if (type == LS_F64) { /* of the state before: by differences */
        ls_tensor *before = ls_program_find(p, "before"), *y = ls_program_find(p, "y");
        ls_tensor *last = ls_program_find(p, "last_state");
        double *gradient = read_all(ls_program_find(p, "grad.before")), h = 1e-5;
        for (int64_t i = 0; i < BATCH * E * N; i += 7) {
            double side[2];
            for (int k = 0; k < 2; k++) {
                put(before, i, k == 0 ? h : -h);
                expect(&ctx, ls_program_run(p, NULL, 0, 0));
                side[k] = 0;
                for (int64_t j = 0; j < ls_count(y); j++)
                    side[k] += get(y, j) * get(ls_program_find(p, "cot"), j);
                for (int64_t j = 0; j < ls_count(last); j++)
                    side[k] += get(last, j) * get(ls_program_find(p, "cot.last_state"), j);
            }
            put(before, i, 0);
            assert_true(fabs((side[0] - side[1]) / (2 * h) - gradient[i]) < 1e-7);
        }
        free(gradient);
    }
    ls_program_free(p);
    ls_parameters_free(store);
}

static void test_published_numbers(void **state) {
    (void)state;
    /* the second has neither D nor z nor a bias, the third steps of either sign */
    static const struct {
        const char *path;
        bool plain_step;
    } cases[] = {{LS_TEST_SOURCE "/tests/golden/mamba-scan.safetensors", false},
                 {LS_TEST_SOURCE "/tests/golden/mamba-scan-bare.safetensors", false},
                 {LS_TEST_SOURCE "/tests/golden/mamba-scan-plain-step.safetensors", true}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        open_golden(&ctx, cases[i].path);
        plain_step = cases[i].plain_step;
        check_type(LS_F64, 1e-11, 1e-10);
        check_type(LS_F32, 2e-5, 2e-4);
        ls_safetensors_close(&ctx, &golden);
    }
}

/* A step of any size leaves finite numbers, the same in both types. */
static void extremes(ls_program *p, const void *about) {
    const double *delta = about;
    enum { LENGTH = 40, WIDTH = 20, STATES = 16 };
    double values[LENGTH * WIDTH];
    ls_init full = {.kind = LS_INIT_ZERO, .full = true};
    for (int i = 0; i < LENGTH * WIDTH; i++) values[i] = *delta;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, LENGTH, WIDTH), true);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(STATES, WIDTH), ls_init_normal(1));
    ls_scan scan = {
        .u = x,
        .delta = ls_constant(p, ls_type(p), LS_DIMS(1, LENGTH, WIDTH), values),
        .A_log = ls_param(p, "A_log", LS_DIMS(WIDTH, STATES), full),
        .B = ls_linear(p, x, w, NULL),
        .C = ls_linear(p, x, w, NULL),
        .before = ls_state_read(p, "s", ls_wide_type(p), LS_DIMS(1, WIDTH, STATES)),
    };
    ls_keep(p, "y", ls_selective_scan(p, &scan, NULL));
}

static void test_extreme_steps(void **state) {
    (void)state;
    static const char *const inputs[] = {"x", "cot", NULL};
    static const double deltas[] = {-200, -80, -16, 0, 19, 21, 90, 3000};
    for (size_t i = 0; i < sizeof deltas / sizeof deltas[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        subject what = {"extreme steps", extremes, &deltas[i]};
        double *want = NULL;
        for (int type = LS_F64; type <= LS_F32; type++) {
            bench b = bench_new(&ctx, &what,
                                (ls_program_options){.type = (ls_dtype)type,
                                                     .batch = 1,
                                                     .length = 40,
                                                     .grad = true,
                                                     .guarded = true});
            fill_inputs(b.program, inputs, 4);
            ls_parameters_clear_gradient(b.store);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            double *got = read_all(ls_program_find(b.program, "y"));
            double *dx = read_all(ls_program_find(b.program, "grad.x"));
            for (int64_t j = 0; j < 40 * 20; j++) assert_true(isfinite(got[j]) && isfinite(dx[j]));
            if (want == NULL)
                want = got;
            else {
                double error = nmse(got, want, 40 * 20);
                /* steps below the smallest number of f32 are 0 there, and what they leave is too */
                if (deltas[i] > -80 && !(error <= 1e-11))
                    fail_msg("delta %g: error %.3g", deltas[i], error);
                free(got);
            }
            free(dx);
            bench_free(&b);
        }
        free(want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_numbers),
        cmocka_unit_test(test_extreme_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
