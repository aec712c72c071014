/* LongT5's attention against all pairs written plainly. */
#include "mixer_runs.h"
#include "sparse_fixture.h"

enum { D = 16, H = 3, K = 6, ALL = H * K, BUCKETS = 32, FAR = 128 };
extern const ls_mixer_type ls_mixer_longt5;
static const char *const inputs[] = {"x", "cot", NULL};

typedef struct pattern {
    const char *words;
    int64_t T, tokens, radius, block;
    bool causal;
} pattern;

/* What the plain computation looks up. */
typedef struct lookup {
    const pattern *c;
    const double *bias, *side_bias; /* [BUCKETS][H] */
} lookup;

static int64_t complete_blocks(const pattern *c) {
    return c->block == 0 ? 0 : (c->causal ? c->T : c->tokens) / c->block;
}

static int64_t bucket_of(bool causal, int64_t behind) {
    int64_t side = causal ? BUCKETS : BUCKETS / 2, exact = side / 2, far = llabs(behind);
    int64_t first = !causal && behind < 0 ? side : 0;
    if (far < exact) return first + far;
    double growth = log((double)far / (double)exact) / log((double)FAR / (double)exact);
    return first + ls_min(side - 1, exact + (int64_t)(growth * (double)(side - exact)));
}

/* Keys are the tokens, then the side tokens. */
static double added(const void *about, int64_t h, int64_t n, int64_t m) {
    const lookup *l = about;
    const pattern *c = l->c;
    if (m < c->T) {
        bool seen = m < c->tokens && llabs(n - m) <= c->radius && (!c->causal || m <= n);
        return seen ? l->bias[bucket_of(c->causal, n - m) * H + h] : -INFINITY;
    }
    int64_t complete = complete_blocks(c), block = m - c->T, own = n / c->block;
    if (!c->causal) own = ls_min(own, complete - 1);
    bool seen = c->causal ? block < own : block < complete;
    return seen ? l->side_bias[bucket_of(c->causal, own - block) * H + h] : -INFINITY;
}

/* Rows of x followed by the side tokens. */
static double *with_side(const ls_parameters *store, const pattern *c, const double *x,
                         int64_t *rows) {
    const int64_t side = c->block == 0 ? 0 : c->T / c->block, complete = complete_blocks(c);
    double *all = calloc((size_t)((c->T + side) * D), sizeof *all);
    memcpy(all, x, (size_t)(c->T * D) * sizeof *all);
    *rows = c->T + side;
    for (int64_t j = 0; j < complete; j++) {
        double *sum = all + (c->T + j) * D, square = 0;
        int64_t end = !c->causal && j == complete - 1 ? c->tokens : (j + 1) * c->block;
        for (int64_t i = j * c->block * D; i < end * D; i++) sum[i % D] += x[i];
        for (int64_t i = 0; i < D; i++) square += sum[i] * sum[i] / D;
        const double *gain =
            ls_parameter_master(store, ls_parameters_find(store, "global_norm.weight"));
        for (int64_t i = 0; i < D; i++) sum[i] *= gain[i] / sqrt(square + 1e-6);
    }
    return all;
}

static double *plain_outputs(trial *t, const pattern *c, const double *x) {
    bench b = trial_bench(t, LS_F64, false);
    const ls_parameter *bias = ls_parameters_find(b.store, "position.bias");
    const ls_parameter *side = ls_parameters_find(b.store, "position.global_bias");
    lookup l = {c, ls_parameter_master(b.store, bias),
                side == NULL ? NULL : ls_parameter_master(b.store, side)};
    int64_t rows;
    double *all = with_side(b.store, c, x, &rows);
    double *q = plain_linear(b.store, "q.weight", NULL, 0, ALL, x, c->T, D);
    double *k = plain_linear(b.store, "kv.weight", NULL, 0, ALL, all, rows, D);
    double *v = plain_linear(b.store, "kv.weight", NULL, ALL, ALL, all, rows, D);
    double *mixed = malloc((size_t)(c->T * ALL) * sizeof *mixed);
    plain_attention(c->T, rows, H, K, 1, q, k, v, added, &l, mixed);
    double *y = plain_linear(b.store, "out.weight", NULL, 0, D, mixed, c->T, ALL);
    free(all), free(q), free(k), free(v), free(mixed);
    bench_free(&b);
    return y;
}

#define SHAPE "heads=3 key_width=6 "
static const pattern patterns[] = {
    {SHAPE "radius=7 global_block=8", 45, 45, 7, 8, false},
    {SHAPE "radius=7 global_block=8", 45, 39, 7, 8, false},
    {SHAPE "radius=7 global_block=8 causal=1", 45, 45, 7, 8, true},
    {SHAPE "radius=30 global_block=3", 200, 170, 30, 3, false},
    {SHAPE "radius=30 global_block=3 causal=1", 200, 200, 30, 3, true},
    {SHAPE "radius=0 global_block=1", 70, 70, 0, 1, false},
    {SHAPE "radius=127 global_block=16 causal=1", 300, 300, 127, 16, true},
    {SHAPE "radius=9 global_block=64", 50, 50, 9, 64, false}, /* no block is complete */
    {SHAPE "radius=9 global_block=32", 50, 20, 9, 32, false}, /* nor here */
    {SHAPE "radius=7 global_block=0", 90, 90, 7, 0, false},
    {SHAPE "radius=100 global_block=0", 90, 90, 100, 0, false}, /* T5 itself */
};

static void test_definition(void **state) {
    (void)state;
    double valid[300];
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const pattern *c = &patterns[i];
        double *x = coarse_numbers(c->T * D, 5);
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_longt5, D, c->words));
        t.T = c->T;
        pad_from(valid, c->T, c->tokens);
        if (c->tokens < c->T) t.valid = valid;
        double *y = trial_outputs(&t, LS_F64, x), *want = plain_outputs(&t, c, x);
        expect_rows(c->words, y, want, c->T, D, t.valid, 1e-11);
        free(y), free(want);
        fast_is_plain(&t, c->words, x, 1e-9, 1e-3);
        if (t.valid == NULL && c->T < 100)
            check_gradients(&t.ctx, &(subject){c->words, trial_record, &t},
                            (ls_program_options){.batch = 2, .length = c->T}, inputs, 3);
        free(x);
        trial_end(&t);
    }
}

/* Rows of padding change nothing, and are as if they were not there. */
static void test_padding(void **state) {
    (void)state;
    enum { T = 100, TOKENS = 61 };
    double *x = coarse_numbers(T * D, 6), valid[T];
    for (int causal = 0; causal < 2; causal++) {
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_longt5, D,
                                   causal ? SHAPE "radius=5 global_block=8 causal=1"
                                          : SHAPE "radius=5 global_block=8"));
        t.T = TOKENS;
        double *alone = trial_outputs(&t, LS_F64, x);
        t.T = T;
        pad_from(valid, T, TOKENS);
        t.valid = valid;
        double *padded = trial_outputs(&t, LS_F64, x);
        for (int64_t j = TOKENS * D; j < T * D; j++) x[j] += 3;
        double *other = trial_outputs(&t, LS_F64, x);
        expect_rows("padding", padded, alone, TOKENS, D, NULL, 1e-13);
        assert_memory_equal(padded, other, sizeof(double[TOKENS * D]));
        free(alone), free(padded), free(other);
        trial_end(&t);
    }
    free(x);
}

/* Any cut, gradients behind a past, and fast types. */
static void test_streams(void **state) {
    (void)state;
    enum { ROWS = 21 };
    static const char *const ways[] = {
        "heads=3 key_width=6 radius=5 global_block=4",
        "heads=2 radius=0 global_block=7",
        "heads=2 radius=3 global_block=0",
        "heads=2 radius=9 global_block=1",
    };
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_longt5, ways[i], D, true, &mixer));
        obeys(&ctx, &mixer, ways[i]);
        mixer_release(&mixer);
    }
    /* no block is ever complete */
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_longt5, "heads=2 radius=2 global_block=22", D, true,
                              &mixer));
    double *x = normal_numbers(ROWS * D, 4);
    double *want = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 0, NULL, NULL}, x);
    double *got = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 4, NULL, NULL}, x);
    same_rows("without a block", got, want, ROWS, D, 1e-11);
    free(x), free(want), free(got);
    mixer_release(&mixer);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"heads=3", "heads=2 buckets=30", "heads=2 max_distance=16"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        trial t;
        assert_int_equal(trial_start(&t, &ls_mixer_longt5, D, wrong[i]), LS_EUSE);
        trial_end(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
