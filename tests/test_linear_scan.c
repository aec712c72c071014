/* The linear recurrence on its own: against its definition as a double sum, with gradients through
 * the sums of weights and through both states; in parts; over long texts; and its memory. */
#include "harness.h"

typedef struct shape {
    int64_t B, T, H, K, V;
    bool sums, rooted, fading;
} shape;

static const double log_decays[] = {-0.03125, 0, -0.7}; /* of three heads */
static const double fades[] = {-0.02, 0, -1, -0.3, -0.0025, -0.1, -0.001, 0};

enum { Q, K_, V_, BEFORE, COT, COT_SUMS, COT_AFTER, INPUTS };
static const char *const names[INPUTS] = {"q", "k", "v", "before", "cot", "cot.sums", "cot.after"};
enum { Y, SUMS, AFTER, DQ, DK, DV, DBEFORE, RESULTS };
static const char *const results[RESULTS] = {"y",      "sums",   "after",      "grad.q",
                                             "grad.k", "grad.v", "grad.before"};

typedef struct values {
    double *of[RESULTS];
    int64_t count[RESULTS];
} values;

static void values_free(values *v) {
    for (int i = 0; i < RESULTS; i++) free(v->of[i]);
}

/* Sizes of inputs and results. */
static int64_t input_count(const shape *s, int i) {
    int64_t rows = s->B * s->T * s->H;
    switch (i) {
    case Q:
    case K_:
        return rows * s->K;
    case V_:
    case COT:
        return rows * s->V;
    case COT_SUMS:
        return rows;
    default:
        return s->B * s->H * s->K * (s->V + s->sums);
    }
}

static void record(ls_program *p, const shape *s) {
    const int64_t W = s->V + s->sums;
    const ls_dtype type = ls_type(p), wide = ls_wide_type(p);
    ls_linear_scan_operands scan = {
        .q = ls_input(p, "q", type, LS_DIMS(s->B, s->T, s->H, s->K), true),
        .k = ls_input(p, "k", type, LS_DIMS(s->B, s->T, s->H, s->K), true),
        .v = ls_input(p, "v", type, LS_DIMS(s->B, s->T, s->H, s->V), true),
        .before = ls_input(p, "before", wide, LS_DIMS(s->B, s->H, s->K, W), true),
        .log_decay = log_decays,
        .feature_log_decay = s->fading ? fades : NULL,
        .rooted = s->rooted,
    };
    ls_tensor *sums = NULL, *after;
    ls_tensor *y = ls_linear_scan(p, &scan, s->sums ? &sums : NULL, &after);
    ls_keep(p, "y", y);
    ls_keep(p, "after", after);
    if (s->sums) ls_keep(p, "sums", sums);
    if (!ls_program_about(p)->grad) return;
    ls_seed_gradient(p, y, ls_input(p, "cot", type, y->rank, y->dim, false));
    ls_seed_gradient(p, after, ls_input(p, "cot.after", wide, after->rank, after->dim, false));
    if (s->sums)
        ls_seed_gradient(p, sums, ls_input(p, "cot.sums", wide, sums->rank, sums->dim, false));
    for (int i = Q; i <= BEFORE; i++) ls_keep_gradient(p, names[i], ls_program_find(p, names[i]));
}

static double **inputs_new(const shape *s) {
    double **in = malloc(INPUTS * sizeof *in);
    for (int i = 0; i < INPUTS; i++) {
        ls_random key = {.seed = 5, .stream = ls_stream_of(names[i])};
        in[i] = malloc((size_t)input_count(s, i) * sizeof *in[i]);
        for (int64_t j = 0; j < input_count(s, i); j++)
            in[i][j] = ls_random_normal(key, (uint64_t)j);
    }
    return in;
}

static void inputs_free(double **in) {
    for (int i = 0; i < INPUTS; i++) free(in[i]);
    free(in);
}

static ls_program *make(ls_ctx *ctx, const shape *s, ls_dtype type, bool grad,
                        ls_parameters **store) {
    size_t index;
    ls_program *p;
    expect(ctx, ls_parameters_new(ctx, type, store));
    expect(ctx, ls_parameters_declare(*store, "unused", LS_DIMS(1), ls_init_normal(1), &index));
    expect(ctx, ls_parameters_seal(*store, 1, true));
    expect(ctx, ls_program_new(
                    ctx,
                    &(ls_program_options){
                        .type = type, .batch = s->B, .length = s->T, .grad = grad, .guarded = grad},
                    *store, &p));
    record(p, s);
    expect(ctx, ls_program_finish(p));
    ls_program_poison(p);
    return p;
}

static values run(ls_ctx *ctx, const shape *s, ls_dtype type, double *const *in) {
    values v = {0};
    ls_parameters *store;
    ls_program *p = make(ctx, s, type, true, &store);
    for (int i = 0; i < INPUTS; i++) {
        const ls_tensor *tensor = ls_program_find(p, names[i]);
        for (int64_t j = 0; tensor != NULL && j < ls_count(tensor); j++) put(tensor, j, in[i][j]);
    }
    expect(ctx, ls_program_run(p, NULL, 0, 0));
    assert_true(ls_program_guards_intact(p));
    for (int i = 0; i < RESULTS; i++) {
        const ls_tensor *tensor = ls_program_find(p, results[i]);
        if (tensor == NULL) continue;
        v.of[i] = read_all(tensor);
        v.count[i] = ls_count(tensor);
    }
    ls_program_free(p);
    ls_parameters_free(store);
    return v;
}

/* ---- the definition: a sum over all earlier rows, and the state from before ---- */

static double kept(const shape *s, int64_t h, int64_t i, int64_t steps) {
    return exp((double)steps * (log_decays[h] + (s->fading ? fades[i] : 0)));
}

static double root_of(const shape *s, int64_t h, int64_t t) {
    double sum = 0;
    for (int64_t j = 0; j <= t; j++) sum += exp(log_decays[h] * (double)j);
    return s->rooted ? 1 / sqrt(sum) : 1;
}

static double defined(const shape *s, double *const *in, int64_t b, int64_t t, int64_t h,
                      int64_t j) {
    const int64_t W = s->V + s->sums;
    double sum = 0;
    for (int64_t i = 0; i < s->K; i++) {
        double state = kept(s, h, i, t + 1) * in[BEFORE][((b * s->H + h) * s->K + i) * W + j];
        for (int64_t m = 0; m <= t; m++) {
            int64_t row = (b * s->T + m) * s->H + h;
            double v = j < s->V ? in[V_][row * s->V + j] : 1;
            state += kept(s, h, i, t - m) * in[K_][row * s->K + i] * v;
        }
        sum += in[Q][((b * s->T + t) * s->H + h) * s->K + i] * state;
    }
    return sum * root_of(s, h, t);
}

static const shape shapes[] = {
    {2, 9, 3, 8, 5, true, false, true},
    {1, 71, 3, 4, 3, true, true, false},
    {1, 7, 2, 3, 17, false, true, true},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int n = 0; n < SHAPES; n++) {
        const shape *s = &shapes[n];
        double **in = inputs_new(s);
        values v = run(&ctx, s, LS_F64, in);
        for (int64_t b = 0; b < s->B; b++)
            for (int64_t t = 0; t < s->T; t++)
                for (int64_t h = 0; h < s->H; h++)
                    for (int64_t j = 0; j < s->V + s->sums; j++) {
                        int64_t row = (b * s->T + t) * s->H + h;
                        double got = j < s->V ? v.of[Y][row * s->V + j] : v.of[SUMS][row];
                        double want = defined(s, in, b, t, h, j);
                        if (!(fabs(got - want) <= 1e-12 * (1 + fabs(want))))
                            fail_msg("shape %d, row %lld, column %lld: %.15g, not %.15g", n,
                                     (long long)t, (long long)j, got, want);
                    }
        values_free(&v);
        inputs_free(in);
    }
}

/* ---- gradients of q, k, v and the state before, through y, the sums and the state after ---- */

static double objective_of(ls_ctx *ctx, const shape *s, double *const *in) {
    values v = run(ctx, s, LS_F64, in);
    double sum = 0;
    for (int i = Y; i <= AFTER; i++)
        for (int64_t j = 0; j < v.count[i]; j++) sum += v.of[i][j] * in[COT + i][j];
    values_free(&v);
    return sum;
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int n = 0; n < SHAPES; n++) {
        const shape *s = &shapes[n];
        double **in = inputs_new(s), h = 1e-5;
        values v = run(&ctx, s, LS_F64, in);
        for (int i = Q; i <= BEFORE; i++)
            for (int64_t j = 0; j < input_count(s, i);
                 j += test_difference_stride(input_count(s, i), 40)) {
                double held = in[i][j];
                in[i][j] = held + h;
                double above = objective_of(&ctx, s, in);
                in[i][j] = held - h;
                double numeric = (above - objective_of(&ctx, s, in)) / (2 * h);
                in[i][j] = held;
                double got = v.of[DQ + i][j];
                if (!(fabs(got - numeric) <= 1e-7 * (1 + fabs(numeric))))
                    fail_msg("shape %d: gradient of %s[%lld] is %.12g, differences give %.12g", n,
                             names[i], (long long)j, got, numeric);
            }
        values_free(&v);
        inputs_free(in);
    }
}

/* ---- fast types ---- */

static void compare_types(ls_ctx *ctx, const shape *s, double f32_bar, double bf16_bar) {
    double **in = inputs_new(s);
    for (int i = 0; i < INPUTS; i++) /* values that every type holds exactly */
        for (int64_t j = 0; j < input_count(s, i); j++)
            in[i][j] = (double)ls_bf16_to_f32(ls_bf16_from_f32((float)in[i][j]));
    values want = run(ctx, s, LS_F64, in);
    for (int type = LS_F32; type <= LS_BF16; type++) {
        values first = {0};
        for (int threads = 1; threads <= (test_is_brief() ? 1 : 3); threads++) {
            ctx->threads = threads;
            values got = run(ctx, s, (ls_dtype)type, in);
            for (int i = 0; i < RESULTS; i++) {
                double error = nmse(got.of[i], want.of[i], want.count[i]);
                if (!(error <= (type == LS_F32 ? f32_bar : bf16_bar)))
                    fail_msg("T=%lld: %s in %s has an error of %.3g", (long long)s->T, results[i],
                             ls_dtype_name((ls_dtype)type), error);
                if (threads > 1)
                    assert_memory_equal(got.of[i], first.of[i],
                                        (size_t)want.count[i] * sizeof(double));
            }
            if (threads > 1) values_free(&got);
            if (threads == 1) first = got;
        }
        values_free(&first);
    }
    values_free(&want);
    inputs_free(in);
}

static void test_fast_types(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 7, 8, 63, 64, 65, 200};
    ls_ctx ctx = ls_ctx_default();
    for (int k = 0; test_isa(k) != NULL; k++) {
        ctx.isa = test_isa(k);
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (int way = 0; way < 4; way++) {
                shape s = {2, lengths[i], 3, 8, 20, way & 1, way & 1, way & 2};
                compare_types(&ctx, &s, 1e-12, 2e-5);
            }
        compare_types(&ctx, &(shape){1, 130, 2, 8, 96, false, false, false}, 1e-12, 2e-5);
    }
}

/* A head that never forgets and one that does so at once, over many chunks. */
static void test_long(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    compare_types(&ctx, &(shape){1, 4001, 3, 8, 16, true, true, true}, 1e-11, 2e-5);
}

/* Lengths at which a device cuts the time into strips: the last one short, one sequence and
 * several, states wider than a tile and deeper than is taken at once. */
static void test_strips(void **state) {
    (void)state;
    static const shape cut[] = {
        {1, 1111, 3, 8, 24, true, true, true},     {3, 600, 2, 16, 8, false, false, false},
        {1, 513, 2, 40, 136, false, false, false}, {1, 577, 1, 264, 8, false, true, false},
        {1, 512, 3, 8, 5, true, false, true},      {1, 8192, 1, 16, 24, false, false, false},
        {1, 8191, 2, 8, 16, true, true, false},
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++)
        compare_types(&ctx, &cut[i], 1e-11, 2e-5);
}

/* ---- in parts: outputs and gradients are those of the whole ---- */

static shape part_of(const shape *s, double *const *in, int64_t first, int64_t count,
                     double **part) {
    shape cut = *s;
    cut.T = count;
    for (int i = 0; i < INPUTS; i++) {
        int64_t per_row = input_count(s, i) / s->T;
        if (i == BEFORE || i == COT_AFTER) continue;
        memcpy(part[i], in[i] + first * per_row, (size_t)(count * per_row) * sizeof **part);
    }
    return cut;
}

enum { PARTS = 4 };
static void compare_parts(const int64_t *ends) {
    ls_ctx ctx = ls_ctx_default();
    const shape s = {1, ends[PARTS], 3, 8, 6, true, false, true};
    for (int type = LS_F64; type <= LS_F32; type++) {
        double bar = type == LS_F64 ? 1e-26 : 1e-11, **in = inputs_new(&s), **part[PARTS];
        values whole = run(&ctx, &s, (ls_dtype)type, in), forward, back[PARTS];
        size_t state_bytes = (size_t)input_count(&s, BEFORE) * sizeof(double);
        for (int n = 0; n < PARTS; n++) { /* the state goes forward */
            part[n] = inputs_new(&s);
            shape cut = part_of(&s, in, ends[n], ends[n + 1] - ends[n], part[n]);
            if (n == 0) memcpy(part[n][BEFORE], in[BEFORE], state_bytes);
            if (n > 0) {
                memcpy(part[n][BEFORE], forward.of[AFTER], state_bytes);
                values_free(&forward);
            }
            forward = run(&ctx, &cut, (ls_dtype)type, part[n]);
        }
        assert_true(nmse(forward.of[AFTER], whole.of[AFTER], whole.count[AFTER]) <= bar);
        values_free(&forward);
        for (int n = PARTS - 1; n >= 0; n--) { /* its gradient comes back */
            shape cut = s;
            cut.T = ends[n + 1] - ends[n];
            memcpy(part[n][COT_AFTER], n == PARTS - 1 ? in[COT_AFTER] : back[n + 1].of[DBEFORE],
                   state_bytes);
            back[n] = run(&ctx, &cut, (ls_dtype)type, part[n]);
            for (int i = 0; i < RESULTS; i++) {
                int64_t per_row = whole.count[i] / s.T;
                if (i == AFTER || i == DBEFORE) continue;
                if (!(nmse(back[n].of[i], whole.of[i] + ends[n] * per_row, cut.T * per_row) <= bar))
                    fail_msg("part %d: %s differs from the whole", n, results[i]);
            }
        }
        assert_true(nmse(back[0].of[DBEFORE], whole.of[DBEFORE], whole.count[DBEFORE]) <= bar);
        for (int n = 0; n < PARTS; n++) values_free(&back[n]), inputs_free(part[n]);
        values_free(&whole);
        inputs_free(in);
    }
}

static void test_parts(void **state) {
    (void)state;
    compare_parts((const int64_t[]){0, 1, 65, 140, 150});
    compare_parts((const int64_t[]){0, 600, 1200, 1201, 1801}); /* in strips on a device */
}

/* Beyond operands and results nothing grows with the length, with gradients or without. */
static void test_memory(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int grad = 0; grad < 2; grad++) {
        size_t bytes[3];
        for (int i = 0; i < 3; i++) {
            shape s = {1, 1000 << i, 3, 8, 16, false, false, false};
            ls_parameters *store;
            ls_program *p = make(&ctx, &s, LS_F32, grad, &store);
            bytes[i] = ls_program_bytes(p);
            ls_program_free(p);
            ls_parameters_free(store);
        }
        /* per token and head: q, k (8 each), v and y (16), with gradients those again and cot */
        size_t rows = (size_t)(1000 * 3 * 4 * (grad ? 2 * 8 + 2 * 16 + 2 * 8 + 2 * 16 : 48));
        size_t slack = 64 * 1024;
        assert_true(bytes[1] - bytes[0] <= rows + slack);
        assert_true(bytes[2] - bytes[1] <= 2 * rows + slack);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fast_types), cmocka_unit_test(test_long),
        cmocka_unit_test(test_strips),     cmocka_unit_test(test_parts),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
