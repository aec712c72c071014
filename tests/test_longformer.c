/* Longformer against all pairs written plainly, and against the public code. */
#include "sparse_fixture.h"

enum { D = 16, H = 2, K = D / H, T = 150 };
extern const ls_mixer_type ls_mixer_longformer;
static const char *const inputs[] = {"x", "cot", NULL};

typedef struct pattern {
    const char *words;
    int64_t side;   /* of the window */
    int64_t tokens; /* the rest of T is padding */
    int64_t leading, scattered, at[4];
} pattern;

static bool is_global(const pattern *c, int64_t n) {
    for (int64_t i = 0; i < c->scattered; i++)
        if (c->at[i] == n) return true;
    return n < c->leading;
}

static double local_added(const void *about, int64_t h, int64_t n, int64_t m) {
    const pattern *c = about;
    (void)h;
    bool seen = m < c->tokens && (llabs(n - m) <= c->side || is_global(c, m));
    return seen ? 0 : -INFINITY;
}

static double global_added(const void *about, int64_t h, int64_t n, int64_t m) {
    (void)h, (void)n;
    return m < ((const pattern *)about)->tokens ? 0 : -INFINITY;
}

/* Attention of rows from three projections of x. */
static double *attended(const ls_parameters *store, const char *const weight[3],
                        const char *const bias[3], const int64_t first[3], const double *x,
                        plain_added added, const pattern *c) {
    double *part[3], *mixed = malloc(sizeof(double[T * D]));
    for (int i = 0; i < 3; i++)
        part[i] = plain_linear(store, weight[i], bias[i], first[i], D, x, T, D);
    plain_attention(T, T, H, K, 1 / sqrt((double)K), part[0], part[1], part[2], added, c, mixed);
    for (int i = 0; i < 3; i++) free(part[i]);
    return mixed;
}

/* The pattern by its definition, from the weights that the trial has. */
static double *plain_outputs(trial *t, const pattern *c, const double *x) {
    static const char *const qkv[] = {"qkv.weight", "qkv.weight", "qkv.weight"};
    static const char *const qkv_bias[] = {"qkv.bias", "qkv.bias", "qkv.bias"};
    static const char *const own[] = {"global_q.weight", "global_kv.weight", "global_kv.weight"};
    static const char *const own_bias[] = {"global_q.bias", "global_kv.bias", "global_kv.bias"};
    bench b = trial_bench(t, LS_F64, false);
    double *mixed =
        attended(b.store, qkv, qkv_bias, (const int64_t[]){0, D, 2 * D}, x, local_added, c);
    if (c->leading + c->scattered > 0) {
        double *rows =
            attended(b.store, own, own_bias, (const int64_t[]){0, 0, D}, x, global_added, c);
        for (int64_t i = 0; i < T * D; i++)
            if (is_global(c, i / D)) mixed[i] = rows[i];
        free(rows);
    }
    double *y = plain_linear(b.store, "out.weight", "out.bias", 0, D, mixed, T, D);
    free(mixed);
    bench_free(&b);
    return y;
}

static const pattern patterns[] = {
    {"heads=2 window=16", 8, T, 0, 0, {0}},
    {"heads=2 window=16", 8, T - 20, 0, 0, {0}},
    {"heads=2 window=4,40 layer=1", 20, T, 0, 0, {0}},
    {"heads=2 window=6 globals=3", 3, T, 3, 0, {0}},
    {"heads=2 window=70 globals=1 position=learned", 35, T - 61, 1, 0, {0}},
    {"heads=2 window=16 global_at=0,9,75,149", 8, T, 0, 4, {0, 9, 75, 149}},
    {"heads=2 window=16 global_at=5,64,65,1000", 8, T - 37, 0, 3, {5, 64, 65}},
    {"heads=2 window=400", T, T, 0, 0, {0}},           /* all pairs */
    {"heads=2 window=2 globals=200", 1, T, T, 0, {0}}, /* every token is global */
};

static void test_definition(void **state) {
    (void)state;
    double *x = coarse_numbers(T * D, 5), valid[T];
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const pattern *c = &patterns[i];
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_longformer, D, c->words));
        t.T = T;
        pad_from(valid, T, c->tokens);
        if (c->tokens < T) t.valid = valid;
        double *y = trial_outputs(&t, LS_F64, x), *want = plain_outputs(&t, c, x);
        expect_rows(c->words, y, want, T, D, t.valid, 1e-11);
        free(y), free(want);
        fast_is_plain(&t, c->words, x, 1e-9, 1e-3);
        if (t.valid == NULL)
            check_gradients(&t.ctx, &(subject){c->words, trial_record, &t},
                            (ls_program_options){.batch = 2, .length = 30}, inputs, 4);
        trial_end(&t);
    }
    free(x);
}

/* Rows of padding change nothing, and are as if they were not there. */
static void test_padding(void **state) {
    (void)state;
    enum { TOKENS = 100 };
    double *x = coarse_numbers(T * D, 6), valid[T];
    static const char *const words[] = {"heads=2 window=20 globals=2",
                                        "heads=2 window=20 global_at=1,70,120"};
    for (int i = 0; i < 2; i++) {
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_longformer, D, words[i]));
        t.T = TOKENS;
        double *alone = trial_outputs(&t, LS_F64, x);
        t.T = T;
        pad_from(valid, T, TOKENS);
        t.valid = valid;
        double *padded = trial_outputs(&t, LS_F64, x);
        for (int64_t j = TOKENS * D; j < T * D; j++) x[j] += 3;
        double *other = trial_outputs(&t, LS_F64, x);
        expect_rows(words[i], padded, alone, TOKENS, D, NULL, 1e-13);
        assert_memory_equal(padded, other, sizeof(double[TOKENS * D]));
        free(alone), free(padded), free(other);
        trial_end(&t);
    }
    free(x);
}

static void set_all(ls_parameters *store, const char *name, int64_t first, int64_t count,
                    double value) {
    double *values = ls_parameter_master(store, ls_parameters_find(store, name));
    for (int64_t i = first; i < first + count; i++) values[i] = value;
}

/* The weights of each row sum to 1: values of 1 come out as 1. */
static void test_row_sums(void **state) {
    (void)state;
    double *x = coarse_numbers(T * D, 7);
    trial t;
    expect(&t.ctx, trial_start(&t, &ls_mixer_longformer, D, "heads=2 window=10 global_at=3,99"));
    t.T = T;
    bench b = trial_bench(&t, LS_F64, false);
    double *out = ls_parameter_master(b.store, ls_parameters_find(b.store, "out.weight"));
    set_all(b.store, "qkv.weight", 2 * D * D, D * D, 0);
    set_all(b.store, "global_kv.weight", D * D, D * D, 0);
    set_all(b.store, "qkv.bias", 2 * D, D, 1);
    set_all(b.store, "global_kv.bias", D, D, 1);
    set_all(b.store, "out.bias", 0, D, 0);
    for (int64_t i = 0; i < D * D; i++) out[i] = i / D == i % D;
    trial_run(&t, &b, x, NULL);
    for (int64_t i = 0; i < T * D; i++)
        assert_true(fabs(get(ls_program_find(b.program, "y"), i) - 1) < 1e-13);
    bench_free(&b);
    trial_end(&t);
    free(x);
}

/* Rotated queries and keys: global tokens with the projections of the others, in a window that
 * holds all, are attention. */
static void test_positions(void **state) {
    (void)state;
    double *x = coarse_numbers(T * D, 8), *y[2];
    for (int i = 0; i < 2; i++) {
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_longformer, D,
                                   i == 0 ? "heads=2 window=400 position=rope"
                                          : "heads=2 window=400 position=rope globals=9"));
        t.T = T;
        bench b = trial_bench(&t, LS_F64, false);
        for (int j = 0; i == 1 && j < 4; j++) {
            static const char *const own[] = {"global_q.weight", "global_q.bias",
                                              "global_kv.weight", "global_kv.bias"};
            const double *from = ls_parameter_master(
                b.store, ls_parameters_find(b.store, j % 2 == 0 ? "qkv.weight" : "qkv.bias"));
            const ls_parameter *to = ls_parameters_find(b.store, own[j]);
            memcpy(ls_parameter_master(b.store, to),
                   from + (j < 2        ? 0
                           : j % 2 == 0 ? D * D
                                        : D),
                   (size_t)to->count * sizeof *from);
        }
        trial_run(&t, &b, x, NULL);
        y[i] = read_all(ls_program_find(b.program, "y"));
        bench_free(&b);
        trial_end(&t);
    }
    expect_rows("rope", y[1], y[0], T, D, NULL, 1e-12);
    free(x), free(y[0]), free(y[1]);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "heads=3",
        "heads=2 window=7",
        "heads=2 window=4,8 layer=2",
        "heads=2 globals=1 causal=1",
        "heads=2 globals=1 global_at=4",
        "heads=2 globals=1 dilation=2",
        "heads=2 global_at=4,4",
        "heads=2 global_at=4 position=rope",
        "heads=2 dilation=1,2,3",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        trial t;
        assert_int_equal(trial_start(&t, &ls_mixer_longformer, D, wrong[i]), LS_EUSE);
        trial_end(&t);
    }
}

/* Each sequence of the case has global tokens of its own. */
static void test_public_code(void **state) {
    (void)state;
    static const char *const words[] = {"heads=2 window=8 global_at=0,11",
                                        "heads=2 window=8 global_at=3"};
    double *sums = calloc(1 << 14, sizeof *sums);
    ls_safetensors file;
    trial t;
    for (int b = 0; b < 2; b++) {
        expect(&t.ctx, trial_start(&t, &ls_mixer_longformer, D, words[b]));
        stored_open(&t.ctx, "longformer-attn", &file);
        run_stored(&t, &file, b, 1, sums);
        if (b == 1) expect_stored_sums(&file, sums);
        ls_safetensors_close(&t.ctx, &file);
        trial_end(&t);
    }
    free(sums);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(test_padding),
        cmocka_unit_test(test_row_sums),   cmocka_unit_test(test_positions),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_public_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
