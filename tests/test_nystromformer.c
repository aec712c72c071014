/* Nystromformer: public code's numbers, its definition as explicit matrices, the pseudo-inverse's
 * own laws, softmax attention where landmarks are many, padding, and what sequences of a batch see
 * of one another. */
#include "golden_heads.h"

enum { H = 2, W = 4, ALL = H * W, D = 3 * ALL, B = 2 };

extern const ls_mixer_type ls_mixer_nystromformer, ls_mixer_attention;
static const char *const inputs[] = {"x", "cot", NULL};

static mixer_case chosen(ls_ctx *ctx, const ls_mixer_type *type, const char *words, int64_t width) {
    mixer_case c = {0};
    expect(ctx, mixer_choose(ctx, type, words, width, false, &c.mixer));
    return c;
}

/* ---- public code ---- */

/* Z of the case: the landmark operation on a unit matrix. */
static void record_inverse(ls_program *p, const void *about) {
    const golden_heads *g = about;
    enum { M = 12 };
    double unit[2 * M * 2 * M] = {0};
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < M; i++)
            for (int64_t h = 0; h < 2; h++) unit[((b * M + i) * 2 + h) * M + i] = 1;
    const int64_t each = g->H * g->W;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(g->B, g->T, 3 * each), true), *part[3];
    ls_tensor *valid = ls_constant(p, LS_U8, LS_DIMS(g->B, g->T), g->valid), *means[2];
    ls_split(p, ls_mask_rows(p, x, valid), 3, (const int64_t[]){each, each, each}, part);
    for (int i = 0; i < 2; i++) {
        ls_tensor *rows = ls_reshape(p, part[i], LS_DIMS(g->B, g->T, g->H, g->W));
        means[i] = ls_segment_means(p, rows, M, NULL, NULL, NULL);
    }
    ls_tensor *identity = ls_constant(p, ls_type(p), LS_DIMS(g->B, M, g->H, M), unit);
    ls_keep(p, "y",
            ls_landmark_inverse(p, means[0], means[1], identity,
                                (ls_landmark_options){1 / sqrt((double)g->W), 6, true}));
}

static void set_taps(ls_parameters *store, const void *taps) {
    const ls_parameter *parameter = ls_parameters_find(store, "conv.weight");
    mixer_pass_through(store, NULL);
    memcpy(ls_parameter_master(store, parameter), taps, (size_t)parameter->count * sizeof(double));
}

static void test_public_code(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    golden_heads g;
    bench b;
    int64_t count;
    golden_heads_open(&ctx, LS_TEST_SOURCE "/tests/golden/nystrom-mlpen.safetensors", &g);
    double *taps = golden_tensor(&g, "w.conv.weight", &count), *want;
    mixer_case c = chosen(&ctx, &ls_mixer_nystromformer,
                          "heads=2 head_width=8 landmarks=12 conv=5 start=original padding=zeros "
                          "out_bias=false",
                          48);
    c.padded = true;
    c.set = set_taps;
    c.user = taps;
    golden_run(&ctx, &g, &c, &b);
    want = golden_tensor(&g, "grad.w.conv.weight", &count);
    mixer_same("grad.w.conv.weight",
               ls_parameter_gradient(b.store, ls_parameters_find(b.store, "conv.weight")), want,
               count, 1e-10);
    free(want), free(taps);
    bench_free(&b);
    mixer_release(&c.mixer);

    b = bench_new(&ctx, &(subject){"inverse", record_inverse, &g},
                  (ls_program_options){.type = LS_F64, .batch = g.B, .length = g.T});
    put_values(&b, "x", g.x);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    want = golden_tensor(&g, "out.pinv", &count); /* [B,H,M,M], ours [B,M,H,M] */
    double *got = calloc((size_t)count, sizeof *got);
    for (int64_t i = 0; i < count; i++) {
        int64_t column = i % 12, row = i / 12 % 12, h = i / 144 % 2, at = i / 288;
        got[i] = get(ls_program_find(b.program, "y"), ((at * 12 + row) * 2 + h) * 12 + column);
    }
    mixer_same("out.pinv", got, want, count, 1e-10);
    free(want), free(got);
    bench_free(&b);
    golden_heads_close(&ctx, &g);
}

/* ---- the definition ---- */

enum { MOST = 64 };
typedef double matrix[MOST][MOST];

/* softmax over j < n of a_i . b_j / sqrt(W), rows i < m. */
static void scores(int64_t m, int64_t n, double (*a)[W], double (*b)[W], matrix out) {
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            out[i][j] = 0;
            for (int64_t w = 0; w < W; w++) out[i][j] += a[i][w] * b[j][w] / sqrt(W);
        }
        mixer_softmax(out[i], n);
    }
}

static void times(int64_t m, int64_t k, int64_t n, matrix a, matrix b, matrix out) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++) sum += a[i][l] * b[l][j];
            out[i][j] = sum;
        }
}

/* number - a */
static void less(int64_t m, double number, matrix a, matrix out) {
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) out[i][j] = (i == j ? number : 0) - a[i][j];
}

static void pseudo_inverse(int64_t m, int64_t iterations, matrix A, matrix Z) {
    static matrix AZ, inner, product;
    double most = 0;
    for (int64_t j = 0; j < m; j++) {
        double sum = 0;
        for (int64_t i = 0; i < m; i++) sum += A[i][j];
        most = fmax(most, sum);
    }
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < m; j++) Z[i][j] = A[j][i] / most;
    for (int64_t t = 0; t < iterations; t++) {
        times(m, m, m, A, Z, AZ);
        less(m, 7, AZ, inner);
        times(m, m, m, AZ, inner, product);
        less(m, 15, product, inner);
        times(m, m, m, AZ, inner, product);
        less(m, 13, product, inner);
        times(m, m, m, Z, inner, product);
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < m; j++) Z[i][j] = product[i][j] / 4;
    }
}

/* Means of m pieces, the shorter ones first. */
static void means(int64_t n, int64_t m, double (*rows)[W], double (*out)[W]) {
    for (int64_t j = 0, at = 0; j < m; j++) {
        int64_t size = n / m + (j >= (n / m + 1) * m - n);
        for (int64_t w = 0; w < W; w++) {
            out[j][w] = 0;
            for (int64_t i = at; i < at + size; i++) out[j][w] += rows[i][w] / (double)size;
        }
        at += size;
    }
}

/* What the heads of one text x [n, 3 ALL] give, with three explicit matrices. */
static void defined(int64_t n, int64_t m, int64_t iterations, const double *x, const double *taps,
                    int64_t S, double *out) {
    static matrix F, A, Bm, Z, FZ, FZB;
    static double q[MOST][W], k[MOST][W], q_means[MOST][W], k_means[MOST][W];
    for (int64_t h = 0; h < H; h++) {
        for (int64_t t = 0; t < n; t++)
            for (int64_t w = 0; w < W; w++) {
                q[t][w] = x[t * D + h * W + w];
                k[t][w] = x[t * D + ALL + h * W + w];
            }
        means(n, m, q, q_means);
        means(n, m, k, k_means);
        scores(n, m, q, k_means, F);
        scores(m, m, q_means, k_means, A);
        scores(m, n, q_means, k, Bm);
        pseudo_inverse(m, iterations, A, Z);
        times(n, m, m, F, Z, FZ);
        times(n, m, n, FZ, Bm, FZB);
        for (int64_t t = 0; t < n; t++)
            for (int64_t w = 0; w < W; w++) {
                const double *v = x + 2 * ALL + h * W + w;
                double sum = 0;
                for (int64_t s = 0; s < n; s++) sum += FZB[t][s] * v[s * D];
                for (int64_t s = 0; s < S; s++) {
                    int64_t from = t + s - S / 2;
                    if (from >= 0 && from < n) sum += taps[h * S + s] * v[from * D];
                }
                out[t * D + h * W + w] = sum;
            }
    }
}

static const double taps[H * 5] = {0.3, -0.2, 1, 0.5, -0.7, 0.1, 0.9, -0.4, 0.2, 0.6};

static void test_definition(void **state) {
    (void)state;
    enum { T = 29, M = 6 };
    ls_ctx ctx = ls_ctx_default();
    mixer_case c = chosen(&ctx, &ls_mixer_nystromformer,
                          "heads=2 head_width=4 landmarks=6 conv=5 out_bias=false", D);
    c.set = set_taps;
    c.user = taps;
    double *x = normal_numbers(B * T * D, 3), *want = calloc(B * T * D, sizeof *want);
    for (int64_t b = 0; b < B; b++) defined(T, M, 6, x + b * T * D, taps, 5, want + b * T * D);
    double *y = mixer_outputs(&ctx, &c, LS_F64, B, T, x, NULL);
    mixer_same("the definition", y, want, B * T * D, 1e-11);
    free(y), free(x), free(want);
    mixer_release(&c.mixer);

    static const char *const variants[] = {
        "heads=2 head_width=4 landmarks=6 conv=5 bias=true",
        "heads=3 landmarks=5 conv=0 start=original iterations=3",
        "heads=1 head_width=6 landmarks=28 conv=33 iterations=2",
    };
    for (int i = 0; i < 3; i++) {
        mixer_case v = chosen(&ctx, &ls_mixer_nystromformer, variants[i], D);
        check_gradients(&ctx, &(subject){variants[i], mixer_record, &v},
                        (ls_program_options){.batch = 2, .length = T}, inputs, 8);
        double *rows = normal_numbers(B * T * D, 4);
        double *exact = mixer_outputs(&ctx, &v, LS_F64, B, T, rows, NULL);
        double *fast = mixer_outputs(&ctx, &v, LS_F32, B, T, rows, NULL);
        if (!(nmse(fast, exact, B * T * D) <= 1e-9)) fail_msg("%s: wrong in f32", variants[i]);
        free(rows), free(exact), free(fast);
        mixer_release(&v.mixer);
    }
}

/* ---- laws of the pseudo-inverse ---- */

enum { N = 32 };
typedef struct inverse_case {
    double (*q)[W], (*k)[W];
    double (*x)[MOST]; /* N columns count */
    int64_t iterations;
} inverse_case;

static void record_product(ls_program *p, const void *about) {
    const inverse_case *c = about;
    static double x[N * N];
    for (int64_t i = 0; i < N * N; i++) x[i] = c->x[i / N][i % N];
    ls_keep(p, "y",
            ls_landmark_inverse(p, ls_constant(p, LS_F64, LS_DIMS(1, N, 1, W), &c->q[0][0]),
                                ls_constant(p, LS_F64, LS_DIMS(1, N, 1, W), &c->k[0][0]),
                                ls_constant(p, LS_F64, LS_DIMS(1, N, 1, N), x),
                                (ls_landmark_options){1 / sqrt(W), c->iterations, false}));
}

/* |S Z S - S| / |S| for N rows that are their own landmarks. */
static double residual(ls_ctx *ctx, double (*q)[W], double (*k)[W], int64_t iterations) {
    static matrix S, ZS, SZS;
    double wrong = 0, size = 0;
    scores(N, N, q, k, S);
    const inverse_case c = {q, k, S, iterations};
    bench b = bench_new(ctx, &(subject){"inverse", record_product, &c},
                        (ls_program_options){.type = LS_F64, .batch = 1, .length = 1});
    expect(ctx, ls_program_run(b.program, NULL, 0, 0));
    for (int64_t i = 0; i < N * N; i++) ZS[i / N][i % N] = get(ls_program_find(b.program, "y"), i);
    times(N, N, N, S, ZS, SZS);
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) {
            wrong += (SZS[i][j] - S[i][j]) * (SZS[i][j] - S[i][j]);
            size += S[i][j] * S[i][j];
        }
    bench_free(&b);
    return sqrt(wrong / size);
}

/* Each step brings Z nearer; where rows are their own landmarks, enough of them give softmax
 * attention, and the published six do not yet. */
static void test_pseudo_inverse(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static double q[N][W], k[N][W];
    double *x = normal_numbers(2 * N * W, 5), before = INFINITY;
    memcpy(q, x, sizeof q);
    memcpy(k, x + N * W, sizeof k);
    for (int64_t t = 0; t <= 24; t += 3) {
        double now = residual(&ctx, q, k, t);
        if (t == 6) assert_true(now > 1e-4);
        if (!(now < before || now < 1e-9))
            fail_msg("%lld steps: %g is no less than %g", (long long)t, now, before);
        before = now;
    }
    assert_true(residual(&ctx, q, k, 25) <= 1e-6);
    free(x);
}

/* Values of 1 come out as the sums of the approximate weights: near 1. */
static void test_sums(void **state) {
    (void)state;
    enum { T = 64 };
    ls_ctx ctx = ls_ctx_default();
    mixer_case c = chosen(&ctx, &ls_mixer_nystromformer,
                          "heads=2 head_width=4 landmarks=8 conv=0 out_bias=false", D);
    c.set = mixer_pass_through;
    double *x = normal_numbers(T * D, 6);
    for (int64_t i = 0; i < T * D; i++)
        if (i % D >= 2 * ALL) x[i] = 1;
    double *y = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
    for (int64_t t = 0; t < T; t++)
        for (int64_t i = 0; i < ALL; i++)
            if (!(fabs(y[t * D + i] - 1) <= 1e-2))
                fail_msg("weights of row %lld sum to %g", (long long)t, y[t * D + i]);
    free(x), free(y);
    mixer_release(&c.mixer);
}

/* ---- softmax attention, and what is padding ---- */

static void test_many_landmarks_are_attention(void **state) {
    (void)state;
    enum { T = 21 };
    ls_ctx ctx = ls_ctx_default();
    mixer_case low =
        chosen(&ctx, &ls_mixer_nystromformer, "heads=2 landmarks=21 conv=0 out_bias=false", D);
    mixer_case full = chosen(&ctx, &ls_mixer_attention, "heads=2", D);
    double *x = normal_numbers(B * T * D, 7);
    double *got = mixer_outputs(&ctx, &low, LS_F64, B, T, x, NULL);
    double *want = mixer_outputs(&ctx, &full, LS_F64, B, T, x, NULL);
    mixer_same("as many landmarks as rows", got, want, B * T * D, 1e-13);
    free(x), free(got), free(want);
    mixer_release(&low.mixer);
    mixer_release(&full.mixer);
}

/* A text of `real` rows after `lead` of padding, in T in all, as if it were alone. */
static void check_padding(ls_ctx *ctx, const mixer_case *alone, int64_t T, int64_t lead,
                          int64_t real) {
    mixer_case padded = *alone;
    padded.padded = true;
    double *x = normal_numbers(T * D, 8), *other = normal_numbers(T * D, 9);
    double *valid = calloc((size_t)T, sizeof *valid);
    for (int64_t t = lead; t < lead + real; t++) {
        valid[t] = 1;
        memcpy(other + t * D, x + t * D, D * sizeof *x);
    }
    double *a = mixer_outputs(ctx, &padded, LS_F64, 1, T, x, valid);
    double *b = mixer_outputs(ctx, &padded, LS_F64, 1, T, other, valid);
    double *want = mixer_outputs(ctx, alone, LS_F64, 1, real, x + lead * D, NULL);
    assert_memory_equal(a + lead * D, b + lead * D, (size_t)(real * D) * sizeof *a);
    mixer_same("without its padding", a + lead * D, want, real * D, 1e-12);
    for (int64_t i = 0; i < T * D; i++) assert_true(isfinite(a[i]));
    free(x), free(other), free(valid), free(a), free(b), free(want);
}

static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    mixer_case c = chosen(&ctx, &ls_mixer_nystromformer, "heads=2 landmarks=8 conv=5 bias=true", D);
    check_padding(&ctx, &c, 30, 0, 22);
    check_padding(&ctx, &c, 30, 5, 17);
    check_padding(&ctx, &c, 30, 3, 8); /* no more rows than landmarks: softmax attention */
    check_padding(&ctx, &c, 30, 30 - 4, 4);
    check_padding(&ctx, &c, 7, 2, 3);
    mixer_release(&c.mixer);
    /* gradients pass padding by; one sequence is short, the other is not */
    c = chosen(&ctx, &ls_mixer_nystromformer, "heads=2 landmarks=4 conv=3", D);
    c.padded = true;
    bench b = mixer_bench(
        &ctx, &c, (ls_program_options){.type = LS_F64, .batch = 2, .length = 13, .grad = true});
    double valid[26];
    for (int i = 0; i < 26; i++) valid[i] = i < 13 ? i != 4 && i < 11 : i >= 15 && i < 18;
    put_values(&b, "valid", valid);
    fill_inputs(b.program, inputs, 11);
    ls_parameters_clear_gradient(b.store);
    objective(&b);
    double *gradient = read_all(ls_program_find(b.program, "grad.x"));
    check_differences(&b, "padded", "x", ls_data(ls_program_find(b.program, "x")), gradient, 26 * D,
                      60);
    free(gradient);
    bench_free(&b);
    mixer_release(&c.mixer);
}

/* ---- sequences of a batch ---- */

/* The first sequence beside two different neighbours: what differs, over its size. */
static double neighbour_changes(ls_ctx *ctx, const char *words) {
    enum { T = 24 };
    mixer_case c = chosen(ctx, &ls_mixer_nystromformer, words, D);
    c.set = mixer_pass_through;
    double *x = normal_numbers(B * T * D, 10);
    double *before = mixer_outputs(ctx, &c, LS_F64, B, T, x, NULL);
    for (int64_t i = T * D; i < 2 * T * D; i++) x[i] *= 4;
    double *after = mixer_outputs(ctx, &c, LS_F64, B, T, x, NULL);
    double change = nmse(after, before, T * D);
    free(x), free(before), free(after);
    mixer_release(&c.mixer);
    return change;
}

static void test_neighbours(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
#define BARE " heads=2 head_width=4 landmarks=6 conv=0 out_bias=false"
    assert_true(neighbour_changes(&ctx, "start=exact" BARE) == 0);
    assert_true(neighbour_changes(&ctx, "start=original" BARE) > 1e-8);
}

/* Weights that have become NaN give NaN, and nothing is written elsewhere. */
static void test_not_a_number(void **state) {
    (void)state;
    static const char *const starts[] = {"start=exact", "start=original"};
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < 2; i++) {
        char words[128];
        snprintf(words, sizeof words, "%s" BARE, starts[i]);
        mixer_case c = chosen(&ctx, &ls_mixer_nystromformer, words, D);
        bench b = mixer_bench(
            &ctx, &c,
            (ls_program_options){
                .type = LS_F32, .batch = 2, .length = 24, .grad = true, .guarded = true});
        ls_program_poison(b.program);
        for (int64_t j = 0; j < 2 * 24 * D; j++) put(ls_program_find(b.program, "x"), j, NAN);
        objective(&b);
        assert_true(ls_program_guards_intact(b.program));
        assert_true(isnan(get(ls_program_find(b.program, "y"), 0)));
        bench_free(&b);
        mixer_release(&c.mixer);
    }
}

static void test_refusals(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    const ls_mixer_type *type = &ls_mixer_nystromformer;
    assert_int_equal(mixer_choose(&ctx, type, "", D, true, &mixer), LS_EUSE);
    assert_non_null(strstr(ctx.error.message, "looks both ways"));
    mixer_release(&mixer);
    assert_int_equal(mixer_choose(&ctx, type, "conv=4", D, false, &mixer), LS_EUSE);
    mixer_release(&mixer);
    assert_int_equal(mixer_choose(&ctx, type, "heads=5", D, false, &mixer), LS_EUSE);
    mixer_release(&mixer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_code),    cmocka_unit_test(test_definition),
        cmocka_unit_test(test_pseudo_inverse), cmocka_unit_test(test_sums),
        cmocka_unit_test(test_padding),        cmocka_unit_test(test_many_landmarks_are_attention),
        cmocka_unit_test(test_neighbours),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_not_a_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
