/* Performer: public code's numbers, its definition as sums over pairs in both directions and in any
 * cut, the directions and what they estimate, strict causality and where it is lost, padding, new
 * draws. */
#include "golden_heads.h"

enum { H = 2, W = 4, ALL = H * W, D = 3 * ALL, B = 2 };

extern const ls_mixer_type ls_mixer_performer;
static const char *const inputs[] = {"x", "cot", NULL};

static mixer_case chosen(ls_ctx *ctx, const char *words, int64_t width, bool causal) {
    mixer_case c = {0};
    expect(ctx, mixer_choose(ctx, &ls_mixer_performer, words, width, causal, &c.mixer));
    return c;
}

/* ---- public code ---- */

static void set_directions(ls_parameters *store, const void *values) {
    const ls_parameter *parameter = ls_parameters_find(store, "directions");
    mixer_pass_through(store, NULL);
    memcpy(ls_parameter_master(store, parameter), values,
           (size_t)parameter->count * sizeof(double));
}

static void record_features(ls_program *p, const void *about) {
    const golden_heads *g = about;
    const int64_t each = g->H * g->W, dim[4] = {g->B, g->T, g->H, g->W};
    int64_t count;
    double *values = golden_tensor(g, "w.projection_matrix", &count);
    ls_tensor *directions = ls_constant(p, LS_F64, LS_DIMS(count / g->W, g->W), values), *part[3];
    ls_tensor *x = ls_input(p, "x", LS_F64, LS_DIMS(g->B, g->T, 3 * each), false);
    ls_features_options o = {LS_FEATURES_EXP, LS_STABLE_ROW_PRODUCT, pow((double)g->W, -0.25),
                             1e-4};
    ls_split(p, x, 3, (const int64_t[]){each, each, each}, part);
    ls_keep(p, "q", ls_features(p, ls_reshape(p, part[0], 4, dim), directions, NULL, o));
    o.stable = LS_STABLE_ALL_PRODUCTS;
    ls_keep(p, "k", ls_features(p, ls_reshape(p, part[1], 4, dim), directions, NULL, o));
    free(values);
}

static void check_public_features(ls_ctx *ctx, const golden_heads *g) {
    static const char *const names[2] = {"out.phi_q", "out.phi_k"};
    bench b = bench_new(ctx, &(subject){"features", record_features, g},
                        (ls_program_options){.type = LS_F64, .batch = g->B, .length = g->T});
    put_values(&b, "x", g->x);
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    for (int i = 0; i < 2; i++) {
        int64_t count;
        double *want = golden_tensor(g, names[i], &count), *got = malloc((size_t)count * 8);
        const ls_tensor *y = ls_program_find(b.program, i == 0 ? "q" : "k");
        const int64_t M = y->dim[3];
        for (int64_t j = 0; j < count; j++) { /* theirs is [B,H,T,M] */
            int64_t t = j / M % g->T, h = j / M / g->T % g->H, at = j / M / g->T / g->H;
            got[j] = get(y, ((at * g->T + t) * g->H + h) * M + j % M);
        }
        mixer_same(names[i], got, want, count, 1e-11);
        free(want), free(got);
    }
    bench_free(&b);
}

static void test_public_code(void **state) {
    (void)state;
    static const char *const files[2] = {
        LS_TEST_SOURCE "/tests/golden/performer-softmax.safetensors",
        LS_TEST_SOURCE "/tests/golden/performer-causal.safetensors"};
    ls_ctx ctx = ls_ctx_default();
    for (int causal = 0; causal < 2; causal++) {
        golden_heads g;
        bench b;
        int64_t count;
        golden_heads_open(&ctx, files[causal], &g);
        double *directions = golden_tensor(&g, "w.projection_matrix", &count);
        mixer_case c = chosen(&ctx,
                              causal ? "heads=2 head_width=8 features=20 eps=1e-4 sum_eps=1e-6 "
                                       "stabiliser=global out_bias=false"
                                     : "heads=2 head_width=8 features=20 eps=1e-4 "
                                       "stabiliser=global out_bias=false",
                              48, causal);
        c.set = set_directions;
        c.user = directions;
        golden_run(&ctx, &g, &c, &b);
        if (!causal) check_public_features(&ctx, &g);
        bench_free(&b);
        free(directions);
        mixer_release(&c.mixer);
        golden_heads_close(&ctx, &g);
    }
}

/* ---- the definition ---- */

/* A feature before what cancels in the quotient is taken off: only where eps is 0. */
static double feature(const char *kernel, const double *directions, const double *x, int64_t i,
                      double eps) {
    double a = 0, square = 0, scale = pow(W, -0.25);
    if (strcmp(kernel, "exp") == 0) return exp(x[i]) + eps;
    if (directions == NULL) return fmax(x[i], 0) + eps;
    for (int64_t w = 0; w < W; w++) {
        a += directions[i * W + w] * x[w] * scale;
        square += x[w] * x[w] * scale * scale;
    }
    return strcmp(kernel, "relu") == 0 ? fmax(a, 0) + eps : exp(a - square / 2) + eps;
}

/* kernel=exp over whole texts: what the i-th feature of all keys sums up to. */
static double sum_of_keys(int64_t n, int64_t h, int64_t i, const double *x) {
    double sum = 0;
    for (int64_t s = 0; s < n; s++) sum += exp(x[s * D + ALL + h * W + i]);
    return sum;
}

/* What the heads of one text x [n, 3 ALL] give, over all pairs. */
static void defined(const char *kernel, const double *directions, int64_t M, double eps,
                    bool causal, int64_t n, const double *x, double *out) {
    for (int64_t h = 0; h < H; h++)
        for (int64_t t = 0; t < n; t++) {
            double sum = 0, mixed[W] = {0};
            for (int64_t s = 0; s < (causal ? t + 1 : n); s++) {
                const double *q = x + t * D + h * W, *k = x + s * D + ALL + h * W;
                const double *v = x + s * D + 2 * ALL + h * W;
                double weight = 0;
                for (int64_t i = 0; i < M; i++) {
                    bool over_time = strcmp(kernel, "exp") == 0 && !causal;
                    weight += feature(kernel, directions, q, i, eps) *
                              feature(kernel, directions, k, i, eps) /
                              (over_time ? sum_of_keys(n, h, i, x) : 1);
                }
                sum += weight;
                for (int64_t w = 0; w < W; w++) mixed[w] += weight * v[w];
            }
            for (int64_t w = 0; w < W; w++) out[t * D + h * W + w] = mixed[w] / sum;
        }
}

#define BARE " heads=2 head_width=4 out_bias=false"
static const struct {
    const char *kernel, *words;
    double eps;
    bool bare; /* without directions */
} kernels[] = {
    {"softmax", "kernel=softmax features=10 eps=0" BARE, 0, false},
    {"relu", "kernel=relu features=7" BARE, 1e-3, false},
    {"relu", "kernel=relu projection=false eps=0.1" BARE, 0.1, true},
    {"exp", "kernel=exp" BARE, 0, true},
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* Rows of x [n,D] in chunks, through one state. */
static double *in_chunks(ls_ctx *ctx, const mixer_case *c, int64_t n, int64_t cut,
                         const double *x) {
    double *y = malloc((size_t)(n * D) * sizeof *y);
    ls_state *stream = NULL;
    for (int64_t at = 0, rows; at < n; at += rows) {
        rows = ls_min(cut, n - at);
        bench b = mixer_bench(ctx, c,
                              (ls_program_options){.type = LS_F64,
                                                   .batch = 1,
                                                   .length = rows,
                                                   .streaming = true,
                                                   .capacity = n,
                                                   .chunk_max = cut});
        if (stream == NULL) stream = b.state, b.state = NULL;
        put_values(&b, "x", x + at * D);
        expect(ctx, ls_program_run(b.program, stream, 0, 0));
        for (int64_t i = 0; i < rows * D; i++)
            y[at * D + i] = get(ls_program_find(b.program, "y"), i);
        bench_free(&b);
    }
    ls_state_free(ctx, stream);
    return y;
}

static void test_definition(void **state) {
    (void)state;
    enum { T = 23 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(B * T * D, 3), *want = calloc(B * T * D, sizeof *want);
    for (int i = 0; i < 2 * KERNELS; i++) {
        const char *words = kernels[i / 2].words;
        bool causal = i % 2;
        mixer_case c = chosen(&ctx, words, D, causal);
        c.set = mixer_pass_through;
        bench b =
            mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
        const double *directions = kernels[i / 2].bare ? NULL : mixer_weight(b.store, "directions");
        int64_t M = kernels[i / 2].bare ? W : ls_parameters_find(b.store, "directions")->dim[0];
        for (int64_t n = 0; n < B; n++)
            defined(kernels[i / 2].kernel, directions, M, kernels[i / 2].eps, causal, T,
                    x + n * T * D, want + n * T * D);
        double *y = mixer_outputs(&ctx, &c, LS_F64, B, T, x, NULL);
        double *fast = mixer_outputs(&ctx, &c, LS_F32, B, T, x, NULL);
        mixer_same(words, y, want, B * T * D, 1e-12);
        if (!(nmse(fast, y, B * T * D) <= 1e-11)) fail_msg("%s: wrong in f32", words);
        for (int64_t cut = 1; causal && cut < T; cut += 9) {
            double *cut_up = in_chunks(&ctx, &c, T, cut, x);
            mixer_same("in chunks", cut_up, want, T * D, 1e-12);
            free(cut_up);
        }
        bench_free(&b);
        free(y), free(fast);
        c.set = NULL;
        check_gradients(&ctx, &(subject){words, mixer_record, &c},
                        (ls_program_options){.batch = 2, .length = T}, inputs, 8);
        mixer_release(&c.mixer);
    }
    free(x), free(want);
}

/* ---- directions, and what they estimate ---- */

/* The parameter of a mixer, for its initial distribution. */
static bench directions_bench(ls_ctx *ctx, const char *words, int64_t width, mixer_case *c) {
    *c = chosen(ctx, words, width, false);
    return mixer_bench(ctx, c, (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
}

static void test_directions(void **state) {
    (void)state;
    enum { WIDTH = 6, ROWS = 15 };
    ls_ctx ctx = ls_ctx_default();
    mixer_case c;
    double w[ROWS * WIDTH];
    for (int published = 0; published < 2; published++) {
        bench b = directions_bench(&ctx,
                                   published ? "heads=1 features=15 lengths=root draw=published"
                                             : "heads=1 features=15 lengths=root",
                                   WIDTH, &c);
        const ls_parameter *parameter = ls_parameters_find(b.store, "directions");
        int negative = 0;
        for (uint64_t seed = 0; seed < 40; seed++) {
            ls_parameter_draw(parameter, seed, 0, w);
            for (int i = 0; i < ROWS; i++)
                for (int j = i / WIDTH * WIDTH; j <= i; j++) {
                    double dot = 0;
                    for (int e = 0; e < WIDTH; e++) dot += w[i * WIDTH + e] * w[j * WIDTH + e];
                    assert_true(fabs(dot - (i == j ? WIDTH : 0)) <= 1e-12 * WIDTH);
                }
            negative += w[0] < 0;
        }
        /* the first element of the first row: public code's is negative in every draw */
        if (published)
            assert_int_equal(negative, 40);
        else
            assert_true(negative > 8 && negative < 32);
        bench_free(&b);
        mixer_release(&c.mixer);
    }
}

typedef struct estimate {
    double mean, error, variance; /* error: of the mean */
} estimate;

/* The kernel exp(x.y) from M features a draw, over many draws. */
static estimate kernel_estimate(ls_ctx *ctx, const char *words, int64_t width, const double *x,
                                const double *y, int64_t draws) {
    mixer_case c;
    bench b = directions_bench(ctx, words, width, &c);
    const ls_parameter *parameter = ls_parameters_find(b.store, "directions");
    const int64_t M = parameter->dim[0];
    double *w = malloc((size_t)(M * width) * sizeof *w), sum = 0, squares = 0;
    for (int64_t draw = 0; draw < draws; draw++) {
        double value = 0;
        ls_parameter_draw(parameter, (uint64_t)draw, 1, w);
        for (int64_t i = 0; i < M; i++) {
            double exponent = 0;
            for (int64_t e = 0; e < width; e++)
                exponent += w[i * width + e] * (x[e] + y[e]) - (x[e] * x[e] + y[e] * y[e]) / 2;
            value += exp(exponent) / (double)M;
        }
        sum += value;
        squares += value * value;
    }
    double n = (double)draws, mean = sum / n, variance = squares / n - mean * mean;
    free(w);
    bench_free(&b);
    mixer_release(&c.mixer);
    return (estimate){mean, sqrt(variance / n), variance};
}

/* Orthogonal directions with their signs put right are unbiased; those of public code are not. */
static void test_unbiased(void **state) {
    (void)state;
    enum { WIDTH = 8, DRAWS = 20000 };
    ls_ctx ctx = ls_ctx_default();
    double x[WIDTH];
    for (int i = 0; i < WIDTH; i++) x[i] = 1 / sqrt(WIDTH);
    estimate good = kernel_estimate(&ctx, "heads=1 features=8", WIDTH, x, x, DRAWS);
    estimate bad = kernel_estimate(&ctx, "heads=1 features=8 draw=published", WIDTH, x, x, DRAWS);
    if (!(fabs(good.mean - exp(1)) <= 3 * good.error))
        fail_msg("the mean is %g +- %g, not e", good.mean, good.error);
    if (!(bad.mean < 0.75 * exp(1))) fail_msg("public draws should be biased: %g", bad.mean);
}

/* The variance of independent directions is known; orthogonal ones have less; it falls as 1/M. */
static void test_error_law(void **state) {
    (void)state;
    enum { WIDTH = 8, DRAWS = 6000 };
    ls_ctx ctx = ls_ctx_default();
    double x[WIDTH], y[WIDTH], sum = 0, product = 0;
    for (int i = 0; i < WIDTH; i++) {
        x[i] = 0.2 * ls_random_normal((ls_random){.seed = 1}, (uint64_t)i);
        y[i] = 0.2 * ls_random_normal((ls_random){.seed = 2}, (uint64_t)i);
        sum += (x[i] + y[i]) * (x[i] + y[i]);
        product += x[i] * y[i];
    }
    double law = exp(sum) * exp(2 * product) * (1 - exp(-sum)) / 8;
    estimate iid = kernel_estimate(&ctx, "heads=1 features=8 draw=independent", WIDTH, x, y, DRAWS);
    estimate orthogonal = kernel_estimate(&ctx, "heads=1 features=8", WIDTH, x, y, DRAWS);
    if (!(fabs(iid.variance / law - 1) <= 0.15))
        fail_msg("the variance is %g, not %g", iid.variance, law);
    if (!(orthogonal.variance < 0.9 * iid.variance))
        fail_msg("orthogonal directions have a variance of %g, independent ones of %g",
                 orthogonal.variance, iid.variance);
    estimate more = kernel_estimate(&ctx, "heads=1 features=64", WIDTH, x, y, DRAWS / 6);
    double flat = sqrt(more.variance * 64 / (orthogonal.variance * 8));
    if (!(flat > 0.7 && flat < 1.4)) fail_msg("rmse sqrt(M) changes by %g", flat);
}

/* ---- what later tokens change ---- */

/* How much earlier outputs move when the last key becomes large, over their size. */
static double leak(ls_ctx *ctx, const char *words) {
    enum { T = 30 };
    mixer_case c = chosen(ctx, words, D, true);
    c.set = mixer_pass_through;
    double *x = normal_numbers(T * D, 5);
    double *y = mixer_outputs(ctx, &c, LS_F64, 1, T, x, NULL);
    for (int64_t i = 0; i < ALL; i++) x[(T - 1) * D + ALL + i] *= 3;
    double *moved = mixer_outputs(ctx, &c, LS_F64, 1, T, x, NULL);
    double most = 0, size = 0;
    for (int64_t i = 0; i < (T - 1) * D; i++) {
        most = fmax(most, fabs(moved[i] - y[i]));
        size = fmax(size, fabs(y[i]));
    }
    free(x), free(y), free(moved);
    mixer_release(&c.mixer);
    return most / size;
}

static void test_strictly_causal(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    assert_true(leak(&ctx, "features=20" BARE) == 0);
    assert_true(leak(&ctx, "features=20 kernel=relu" BARE) == 0);
    assert_true(leak(&ctx, "features=20 eps=0 stabiliser=global" BARE) <= 1e-12);
    assert_true(leak(&ctx, "features=20 eps=1e-4 stabiliser=global" BARE) > 1e-4);
}

/* Without eps it makes no difference what is taken off. */
static void test_stabiliser_cancels(void **state) {
    (void)state;
    enum { T = 20 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(T * D, 6), *y[2];
    for (int i = 0; i < 2; i++) {
        mixer_case c = chosen(&ctx,
                              i == 0 ? "features=12 eps=0 stabiliser=none" BARE
                                     : "features=12 eps=0 stabiliser=global" BARE,
                              D, false);
        y[i] = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
        mixer_release(&c.mixer);
    }
    mixer_same("stabilised", y[1], y[0], T * D, 1e-12);
    free(x), free(y[0]), free(y[1]);
}

/* ---- padding ---- */

static void test_padding(void **state) {
    (void)state;
    enum { T = 25, REAL = 16 };
    static const char *const words[] = {"features=10 bias=true",
                                        "features=10 stabiliser=global eps=1e-4", "kernel=relu",
                                        "kernel=exp"};
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 8; i++) {
        mixer_case c = chosen(&ctx, words[i / 2], D, i % 2);
        double *x = normal_numbers(T * D, 7), *other = normal_numbers(T * D, 8), valid[T];
        for (int64_t t = 0; t < T; t++) {
            valid[t] = t < REAL;
            if (t < REAL) memcpy(other + t * D, x + t * D, D * sizeof *x);
        }
        double *want = mixer_outputs(&ctx, &c, LS_F64, 1, REAL, x, NULL);
        c.padded = true;
        double *a = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, valid);
        double *b = mixer_outputs(&ctx, &c, LS_F64, 1, T, other, valid);
        assert_memory_equal(a, b, REAL * D * sizeof *a);
        mixer_same("without its padding", a, want, REAL * D, 1e-13);
        free(x), free(other), free(a), free(b), free(want);
        mixer_release(&c.mixer);
    }
}

/* ---- directions are kept, never trained, drawn anew in training alone ---- */

static void test_redraw(void **state) {
    (void)state;
    enum { T = 5 };
    ls_ctx ctx = ls_ctx_default();
    mixer_case c = chosen(&ctx, "features=6 redraw=10" BARE, D, true);
    double *drawn[2] = {0};
    for (int train = 0; train < 3; train++) { /* 0: not in training */
        bench b = mixer_bench(
            &ctx, &c,
            (ls_program_options){
                .type = LS_F32, .batch = 1, .length = T, .grad = train > 0, .train = train > 0});
        const ls_parameter *parameter = ls_parameters_find(b.store, "directions");
        float *w = ls_parameter_master(b.store, parameter);
        size_t bytes = (size_t)parameter->count * sizeof *w;
        fill_inputs(b.program, inputs, 3);
        float *before = malloc(bytes), *slopes;
        memcpy(before, w, bytes);
        const uint32_t quiet[] = {0, 1, 9, 11, 19};
        for (int i = 0; i < 5; i++) {
            expect(&ctx, ls_program_run(b.program, NULL, 77, quiet[i]));
            assert_memory_equal(w, before, bytes);
        }
        expect(&ctx, ls_program_run(b.program, NULL, 77, 10));
        if (train == 0) {
            assert_memory_equal(w, before, bytes);
        } else {
            assert_memory_not_equal(w, before, bytes);
            slopes = ls_parameter_gradient(b.store, parameter);
            for (int64_t i = 0; i < parameter->count; i++) assert_true(slopes[i] == 0);
            drawn[train - 1] = malloc((size_t)parameter->count * sizeof **drawn);
            for (int64_t i = 0; i < parameter->count; i++) drawn[train - 1][i] = (double)w[i];
        }
        if (train == 2) { /* the same step draws the same; another does not */
            mixer_same("drawn twice", drawn[1], drawn[0], parameter->count, 0);
            expect(&ctx, ls_program_run(b.program, NULL, 77, 20));
            double first = (double)w[0];
            assert_true(first != drawn[1][0]);
            assert_true(ls_redraws(b.program, 10) && ls_redraws(b.program, 20));
            assert_false(ls_redraws(b.program, 0) || ls_redraws(b.program, 11));
        }
        free(before);
        bench_free(&b);
    }
    /* every run of a step draws what its only run would */
    bench b = mixer_bench(
        &ctx, &c,
        (ls_program_options){
            .type = LS_F32, .batch = 1, .length = T, .grad = true, .train = true, .runs = 3});
    const ls_parameter *parameter = ls_parameters_find(b.store, "directions");
    float *w = ls_parameter_master(b.store, parameter);
    fill_inputs(b.program, inputs, 3);
    for (uint32_t step = 28; step < 34; step++) {
        memset(w, 0, (size_t)parameter->count * sizeof *w);
        expect(&ctx, ls_program_run(b.program, NULL, 77, step));
        for (int64_t i = 0; i < parameter->count; i++)
            assert_true((double)w[i] == (step >= 30 && step < 33 ? drawn[0][i] : 0));
    }
    bench_free(&b);
    free(drawn[0]), free(drawn[1]);
    mixer_release(&c.mixer);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"heads=5", "eps=-0.5", "projection=false"};
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mixer_choose(&ctx, &ls_mixer_performer, wrong[i], D, true, &mixer),
                         LS_EUSE);
        mixer_release(&mixer);
    }
    mixer_case c = chosen(&ctx, "stabiliser=global" BARE, D, true);
    ls_parameters *store;
    ls_program *program;
    expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
    expect(&ctx, ls_program_new(&ctx,
                                &(ls_program_options){.type = LS_F64,
                                                      .batch = 1,
                                                      .length = 3,
                                                      .streaming = true,
                                                      .capacity = 9,
                                                      .chunk_max = 3},
                                store, &program));
    ctx.error = (ls_error){0};
    mixer_record(program, &c);
    assert_true(ls_failed(program));
    assert_non_null(strstr(ctx.error.message, "in chunks"));
    ls_program_free(program);
    ls_parameters_free(store);
    mixer_release(&c.mixer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_code),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_directions),
        cmocka_unit_test(test_unbiased),
        cmocka_unit_test(test_error_law),
        cmocka_unit_test(test_strictly_causal),
        cmocka_unit_test(test_stabiliser_cancels),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_redraw),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
