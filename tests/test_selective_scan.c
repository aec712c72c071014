/* The selective scan against the published code's own numbers, with gradients through the last
 * state; with complex states against a sum over the past; and extreme steps. */
#include <complex.h>

#include "harness.h"
#include "model/safetensors.h"
#include "tensor/op/selective_scan/selective_scan.h"

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
static int64_t transposed(int64_t i, int64_t width) {
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
        put(ls_program_find(p, input), width > 0 ? transposed(i, width) : i, values[i]);
    free(values);
}

/* Largest difference over the largest wanted value. */
static void compare(ls_program *p, const char *ours, const char *theirs, int64_t width,
                    double bar) {
    int64_t count;
    double *want = stored(theirs, &count), worst = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        double got = get(ls_program_find(p, ours), width > 0 ? transposed(i, width) : i);
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
    if (type == LS_F64) { /* of the state before: by differences, without u, whose part is apart */
        ls_tensor *before = ls_program_find(p, "before"), *y = ls_program_find(p, "y");
        const ls_tensor *u = ls_program_find(p, "u");
        ls_tensor *last = ls_program_find(p, "last_state");
        double *gradient = read_all(ls_program_find(p, "grad.before")), h = 1e-5;
        for (int64_t i = 0; i < ls_count(u); i++) put(u, i, 0);
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
            assert_true(fabs((side[0] - side[1]) / (2 * h) - gradient[i]) <=
                        1e-9 * fmax(1, fabs(gradient[i])));
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

/* ---- complex states ---- */

enum { C_BATCH = 2, C_T = 70, C_E = 19, C_N = 3, C_M = 2 * C_N };

/* What the operation has of a case, as doubles. */
enum { IN_U, IN_DELTA, IN_B, IN_C, IN_Z, IN_BEFORE, INPUTS };
static const struct {
    const char *name, *gradient;
    int64_t middle, last;
} complex_inputs[INPUTS] = {{"u", "grad.u", C_T, C_E}, {"delta", "grad.delta", C_T, C_E},
                            {"B", "grad.B", C_T, C_M}, {"C", "grad.C", C_T, C_M},
                            {"z", "grad.z", C_T, C_E}, {"before", "grad.before", C_E, C_M}};
static const char *const complex_parameters[] = {"A_log", "A_im", "D", "bias"};
enum { P_A_LOG, P_A_IM, P_D, P_BIAS, PARAMETERS };

static void record_complex(ls_program *p, const void *about) {
    (void)about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *in[INPUTS], *last;
    for (int i = 0; i < INPUTS; i++)
        in[i] = ls_input(p, complex_inputs[i].name, i == IN_BEFORE ? ls_wide_type(p) : ls_type(p),
                         LS_DIMS(C_BATCH, complex_inputs[i].middle, complex_inputs[i].last), true);
    ls_scan scan = {
        .u = in[IN_U],
        .delta = in[IN_DELTA],
        .A_log = ls_param(p, "A_log", LS_DIMS(C_E, C_N), full),
        .A_im = ls_param(p, "A_im", LS_DIMS(C_E, C_N), full),
        .B = in[IN_B],
        .C = in[IN_C],
        .D = ls_param(p, "D", LS_DIMS(C_E), full),
        .z = in[IN_Z],
        .bias = ls_param(p, "bias", LS_DIMS(C_E), full),
        .before = in[IN_BEFORE],
    };
    ls_keep(p, "y", ls_selective_scan(p, &scan, &last));
    ls_keep(p, "last", last);
    if (!ls_program_about(p)->grad) return;
    ls_seed_gradient(p, last, ls_input(p, "cot.last", last->type, last->rank, last->dim, false));
    for (int i = 0; i < INPUTS; i++) ls_keep_gradient(p, complex_inputs[i].name, in[i]);
}

static const subject complex_subject = {"complex states", record_complex, NULL};

static bench complex_bench(ls_ctx *ctx, ls_dtype type) {
    static const char *const names[] = {"u",      "delta", "B",        "C", "z",
                                        "before", "cot",   "cot.last", NULL};
    bench b = bench_new(
        ctx, &complex_subject,
        (ls_program_options){
            .type = type, .batch = C_BATCH, .length = C_T, .grad = true, .guarded = true});
    fill_inputs(b.program, names, 9);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    assert_true(ls_program_guards_intact(b.program));
    return b;
}

static double complex number_at(const double *pairs, int64_t i) {
    return pairs[2 * i] + pairs[2 * i + 1] * I;
}

/* One channel's state n after token t, as a sum over the past: every drive has decayed since. */
static double complex summed_state(double *const *in, double complex A, const double *steps,
                                   int64_t b, int64_t e, int64_t n, int64_t t) {
    double since = 0;
    double complex h = 0;
    for (int64_t s = t; s >= 0; s--) {
        const int64_t row = b * C_T + s;
        h += cexp(A * since) * steps[s] * number_at(in[IN_B], row * C_N + n) *
             in[IN_U][row * C_E + e];
        since += steps[s];
    }
    return h + cexp(A * since) * number_at(in[IN_BEFORE], (b * C_E + e) * C_N + n);
}

static void sum_over_the_past(double *const *in, double *const *parameter, double *y,
                              double *last) {
    for (int64_t b = 0; b < C_BATCH; b++)
        for (int64_t e = 0; e < C_E; e++) {
            double steps[C_T];
            for (int64_t t = 0; t < C_T; t++)
                steps[t] =
                    log(1 + exp(in[IN_DELTA][(b * C_T + t) * C_E + e] + parameter[P_BIAS][e]));
            for (int64_t t = 0; t < C_T; t++) {
                const int64_t row = b * C_T + t, i = row * C_E + e;
                double complex out = parameter[P_D][e] * in[IN_U][i];
                for (int64_t n = 0; n < C_N; n++) {
                    const int64_t a = e * C_N + n;
                    double complex A = -exp(parameter[P_A_LOG][a]) + parameter[P_A_IM][a] * I;
                    double complex h = summed_state(in, A, steps, b, e, n, t);
                    double complex read = number_at(in[IN_C], row * C_N + n) * h;
                    out += read + conj(read);
                    if (t == C_T - 1) {
                        last[2 * ((b * C_E + e) * C_N + n)] = creal(h);
                        last[2 * ((b * C_E + e) * C_N + n) + 1] = cimag(h);
                    }
                }
                assert_true(cimag(out) == 0);
                y[i] = creal(out) * in[IN_Z][i] / (1 + exp(-in[IN_Z][i]));
            }
        }
}

static double *parameter_values(const bench *b, const char *name, bool gradient, int64_t *count) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    const void *from = gradient ? ls_parameter_gradient(b->store, parameter)
                                : ls_parameter_master(b->store, parameter);
    double *values = malloc((size_t)parameter->count * sizeof *values);
    for (int64_t i = 0; i < parameter->count; i++) values[i] = master_at(b->store, from, i);
    *count = parameter->count;
    return values;
}

static void expect_near(const char *name, const double *got, const double *want, int64_t count,
                        double bar) {
    double worst = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        assert_true(isfinite(got[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    if (!(worst <= bar * size))
        fail_msg("%s differs by %.3g, at most %.0e", name, worst / size, bar);
}

/* The objective of both cotangents, for differences. */
static double both_objectives(bench *b) {
    double sum = objective(b);
    const ls_tensor *last = ls_program_find(b->program, "last");
    const ls_tensor *cot = ls_program_find(b->program, "cot.last");
    for (int64_t i = 0; i < ls_count(last); i++) sum += get(last, i) * get(cot, i);
    return sum;
}

/* A few elements of a buffer of the f64 program against its gradient, which is freed. */
static void check_some(bench *b, const char *name, double *values, double *gradient,
                       int64_t count) {
    const double h = 1e-5;
    double size = 1;
    for (int64_t i = 0; i < count; i++) size = fmax(size, fabs(gradient[i]));
    for (int64_t i = 0; i < count; i += ls_max(1, count / 11)) {
        const double kept = values[i];
        values[i] = kept + h;
        double above = both_objectives(b);
        values[i] = kept - h;
        double numeric = (above - both_objectives(b)) / (2 * h);
        values[i] = kept;
        if (!(fabs(numeric - gradient[i]) <= 1e-6 * size))
            fail_msg("gradient of %s[%lld] is %.12g, differences give %.12g", name, (long long)i,
                     gradient[i], numeric);
    }
    free(gradient);
}

static void test_complex_states(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    if (!device_can(&ctx, &complex_subject, (ls_program_options){.batch = C_BATCH, .length = C_T}))
        return;
    bench wide = complex_bench(&ctx, LS_F64), fast = complex_bench(&ctx, LS_F32);
    double *in[INPUTS], *parameter[PARAMETERS];
    double y[C_BATCH * C_T * C_E], last[C_BATCH * C_E * C_M];
    int64_t count;
    for (int i = 0; i < INPUTS; i++)
        in[i] = read_all(ls_program_find(wide.program, complex_inputs[i].name));
    for (int i = 0; i < PARAMETERS; i++)
        parameter[i] = parameter_values(&wide, complex_parameters[i], false, &count);
    sum_over_the_past(in, parameter, y, last);
    for (int type = 0; type < 2; type++) {
        const ls_program *p = (type == 0 ? wide : fast).program;
        const double bar = type == 0 ? 1e-12 : 2e-5;
        double *got_y = read_all(ls_program_find(p, "y"));
        double *got_last = read_all(ls_program_find(p, "last"));
        expect_near("y", got_y, y, C_BATCH * C_T * C_E, bar);
        expect_near("last", got_last, last, C_BATCH * C_E * C_M, bar);
        free(got_y), free(got_last);
    }
    for (int i = 0; i < INPUTS; i++) {
        const ls_tensor *of = ls_program_find(wide.program, complex_inputs[i].name);
        double *want = read_all(ls_program_find(wide.program, complex_inputs[i].gradient));
        double *got = read_all(ls_program_find(fast.program, complex_inputs[i].gradient));
        expect_near(complex_inputs[i].gradient, got, want, ls_count(of), 2e-4);
        check_some(&wide, complex_inputs[i].name, ls_data(of), want, ls_count(of));
        free(got), free(in[i]);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        const char *name = complex_parameters[i];
        double *got = parameter_values(&fast, name, true, &count);
        /* runs for differences add to the gradient */
        ls_parameters_clear_gradient(wide.store);
        expect(&ctx, ls_program_run(wide.program, NULL, 0, 0));
        double *want = parameter_values(&wide, name, true, &count);
        expect_near(name, got, want, count, 2e-4);
        check_some(&wide, name,
                   ls_parameter_master(wide.store, ls_parameters_find(wide.store, name)), want,
                   count);
        free(got), free(parameter[i]);
    }
    bench_free(&wide), bench_free(&fast);
}

/* A step of any size leaves finite numbers, the same in both types. */
typedef struct extreme_case {
    double delta;
    bool paired; /* complex states */
} extreme_case;

static void extremes(ls_program *p, const void *about) {
    const extreme_case *c = about;
    enum { LENGTH = 40, WIDTH = 20, STATES = 16 };
    double values[LENGTH * WIDTH];
    ls_init full = {.kind = LS_INIT_ZERO, .full = true};
    const ls_init turns = {.kind = LS_INIT_CONSTANT, .a = 5, .full = true};
    const int64_t states = c->paired ? STATES / 2 : STATES;
    for (int i = 0; i < LENGTH * WIDTH; i++) values[i] = c->delta;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(1, LENGTH, WIDTH), true);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(STATES, WIDTH), ls_init_normal(1));
    ls_scan scan = {
        .u = x,
        .delta = ls_constant(p, ls_type(p), LS_DIMS(1, LENGTH, WIDTH), values),
        .A_log = ls_param(p, "A_log", LS_DIMS(WIDTH, states), full),
        .A_im = c->paired ? ls_param(p, "A_im", LS_DIMS(WIDTH, states), turns) : NULL,
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
    for (size_t i = 0; i < 2 * sizeof deltas / sizeof deltas[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        const extreme_case c = {deltas[i / 2], i % 2 == 1};
        subject what = {"extreme steps", extremes, &c};
        if (!device_can(&ctx, &what, (ls_program_options){.batch = 1, .length = 40})) continue;
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
                if (c.delta > -80 && !(error <= 1e-11))
                    fail_msg("delta %g%s: error %.3g", c.delta, c.paired ? ", complex" : "", error);
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
        cmocka_unit_test(test_complex_states),
        cmocka_unit_test(test_extreme_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
