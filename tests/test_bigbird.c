/* BigBird: random blocks that the tables of tests/golden do not have, and its attention against all
 * pairs written plainly. */
#include "mixer/bigbird/random_blocks.h"
#include "sparse_fixture.h"

enum { D = 16, H = 2, K = D / H };
extern const ls_mixer_type ls_mixer_bigbird;
static const char *const inputs[] = {"x", "cot", NULL};

/* ---- random blocks ---- */

/* The authors' code draws for 2,048 tokens as for 4,096; blocks of our own choice are legal. */
static void test_other_draws(void **state) {
    (void)state;
    enum { BLOCKS = 32, EACH = 3, ROWS = BLOCKS - 2, COUNT = H * ROWS * EACH };
    ls_random_blocks about = {
        .size = 64, .blocks = BLOCKS, .heads = H, .each = EACH, .original = true};
    int32_t longer[H * 62 * EACH], drawn[COUNT];
    assert_true(ls_random_blocks_draw(&about, drawn));
    about.blocks = 64;
    assert_true(ls_random_blocks_draw(&about, longer));
    for (int64_t i = 0; i < COUNT; i++)
        assert_int_equal(drawn[i], longer[i / (ROWS * EACH) * 62 * EACH + i % (ROWS * EACH)]);
    const int32_t first[] = {9, 14, 7, 9, 6, 7, 10, 5, 14, 6, 8, 12};
    assert_memory_equal(drawn, first, sizeof first);

    about.blocks = BLOCKS;
    about.draw = LS_DRAW_FRESH;
    bool late = false;
    assert_true(ls_random_blocks_draw(&about, drawn));
    for (int64_t i = 0; i < COUNT; i++) {
        int64_t row = i / EACH % ROWS + 1;
        assert_true(drawn[i] > 0 && drawn[i] < BLOCKS - 1 && llabs(drawn[i] - row) > 1);
        for (int64_t j = i / EACH * EACH; j < i; j++) assert_int_not_equal(drawn[j], drawn[i]);
        late |= drawn[i] > 20;
    }
    assert_true(late);
    about.blocks = 11; /* too few to choose from */
    assert_false(ls_random_blocks_exist(&about));
}

/* Of few blocks the public layer draws where every row finds as many as it asks for, or a single
 * one; else numpy refuses it. */
static void test_few_blocks(void **state) {
    (void)state;
    int32_t drawn[H * 27 * 12];
    for (int64_t r = 1; r <= 12; r++)
        for (int64_t blocks = 5; blocks <= 2 * r + 5; blocks++) {
            ls_random_blocks about = {.size = 2, .blocks = blocks, .heads = H, .each = r};
            assert_false(ls_random_blocks_exist(&about));
            about.few = true;
            assert_true(ls_random_blocks_exist(&about));
            const bool draws =
                blocks == r + 5 || (blocks == 6 && r <= 3) || blocks >= r + 9 + (r + 1) / 2;
            assert_int_equal(ls_random_blocks_draw(&about, drawn), draws);
            about.draw = LS_DRAW_FRESH;
            assert_int_equal(ls_random_blocks_draw(&about, drawn), blocks >= r + 5);
        }
    trial t;
    expect(&t.ctx, trial_start(&t, &ls_mixer_bigbird, D, "heads=2 block=4 few_blocks=draw"));
    ls_parameters *store = NULL;
    ls_program *p = NULL;
    const ls_program_options options = {.type = LS_F64, .batch = 1, .length = 36};
    expect(&t.ctx, ls_parameters_new(&t.ctx, LS_F64, &store));
    expect(&t.ctx, ls_program_new(&t.ctx, &options, store, &p));
    trial_record(p, &t);
    assert_true(ls_failed(p));
    assert_non_null(strstr(t.ctx.error.message, "9 blocks are too few to draw 3 random ones"));
    ls_program_free(p);
    ls_parameters_free(store);
    trial_end(&t);
}

/* ---- attention ---- */

typedef struct pattern {
    const char *words;
    int64_t T, tokens; /* the rest of T is padding */
    int64_t size, random, globals;
    ls_draw draw;
    int64_t seed;
    bool once, whole;
} pattern;

static const pattern *shown;
static int32_t drawn[1 << 16];

static void draw(const pattern *c) {
    shown = c;
    ls_random_blocks about = {.size = c->size,
                              .blocks = ls_ceil_div(c->T, c->size),
                              .heads = H,
                              .each = c->random,
                              .seed = (uint32_t)c->seed,
                              .draw = c->draw};
    if (!c->whole && c->random > 0) assert_true(ls_random_blocks_draw(&about, drawn));
}

static double times_of(const pattern *c, int64_t h, int64_t n, int64_t m) {
    if (c->whole) return 1;
    if (c->globals > 0) {
        if (n < c->globals || m < c->globals) return 1;
        return llabs((n - c->globals) / c->size - (m - c->globals) / c->size) <= 1;
    }
    int64_t last = (c->T + c->size - 1) / c->size - 1, i = n / c->size, j = m / c->size;
    if (i == 0 || i == last) return 1;
    double times = j == 0 || j == last || llabs(i - j) <= 1;
    for (int64_t r = 0; r < c->random; r++)
        times += drawn[(h * (last - 1) + i - 1) * c->random + r] == j;
    return c->once ? times > 0 : times;
}

static double added(const void *about, int64_t h, int64_t n, int64_t m) {
    const pattern *c = about;
    return m < c->tokens ? log(times_of(c, h, n, m)) : -INFINITY;
}

static double *plain_outputs(trial *t, const pattern *c, const double *x) {
    bench b = trial_bench(t, LS_F64, false);
    double *part[3], *mixed = malloc((size_t)(c->T * D) * sizeof *mixed);
    for (int i = 0; i < 3; i++)
        part[i] = plain_linear(b.store, "qkv.weight", "qkv.bias", i * D, D, x, c->T, D);
    plain_attention(c->T, c->T, H, K, 1 / sqrt((double)K), part[0], part[1], part[2], added, c,
                    mixed);
    double *y = plain_linear(b.store, "out.weight", "out.bias", 0, D, mixed, c->T, D);
    for (int i = 0; i < 3; i++) free(part[i]);
    free(mixed);
    bench_free(&b);
    return y;
}

static const pattern patterns[] = {
    {"heads=2 block=4 seed=3", 56, 56, 4, 3, 0, LS_DRAW_NUMPY, 3, false, false},
    {"heads=2 block=4 seed=1 layer=2", 61, 61, 4, 3, 0, LS_DRAW_NUMPY, 3, false, false},
    {"heads=2 block=4 seed=3", 150, 130, 4, 3, 0, LS_DRAW_NUMPY, 3, false, false},
    {"heads=2 block=4 draw=zero", 60, 60, 4, 3, 0, LS_DRAW_ZERO, 0, false, false},
    {"heads=2 block=4 draw=zero repeats=false", 60, 60, 4, 3, 0, LS_DRAW_ZERO, 0, true, false},
    {"heads=2 block=24 draw=fresh random=2", 300, 300, 24, 2, 0, LS_DRAW_FRESH, 0, false, false},
    {"heads=2 block=64 seed=5", 1000, 1000, 64, 3, 0, LS_DRAW_NUMPY, 5, false, false},
    {"heads=2 block=5 random=0", 25, 25, 5, 0, 0, LS_DRAW_NUMPY, 0, false, false},
    {"heads=2 block=16 random=0", 200, 140, 16, 0, 0, LS_DRAW_NUMPY, 0, false, false},
    {"heads=2 block=12 random=0 globals=31", 200, 200, 12, 0, 31, LS_DRAW_NUMPY, 0, false, false},
    {"heads=2 block=40 random=0 globals=1", 333, 300, 40, 0, 1, LS_DRAW_NUMPY, 0, false, false},
    {"heads=2 block=4", 44, 44, 4, 3, 0, LS_DRAW_NUMPY, 0, false, true}, /* all pairs */
    {"heads=2 block=2 random=8 few_blocks=draw", 42, 42, 2, 8, 0, LS_DRAW_NUMPY, 0, false, false},
    {"heads=2 block=4 few_blocks=draw", 30, 30, 4, 3, 0, LS_DRAW_NUMPY, 0, false, false},
};

static void test_definition(void **state) {
    (void)state;
    double valid[1000];
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const pattern *c = &patterns[i];
        double *x = coarse_numbers(c->T * D, 5);
        trial t;
        expect(&t.ctx, trial_start(&t, &ls_mixer_bigbird, D, c->words));
        t.T = c->T;
        pad_from(valid, c->T, c->tokens);
        if (c->tokens < c->T) t.valid = valid;
        draw(c);
        double *y = trial_outputs(&t, LS_F64, x), *want = plain_outputs(&t, c, x);
        expect_rows(c->words, y, want, c->T, D, t.valid, 1e-11);
        free(y), free(want);
        if (c->T < 400) fast_is_plain(&t, c->words, x, 1e-9, 1e-3);
        if (c->T < 70)
            check_gradients(&t.ctx, &(subject){c->words, trial_record, &t},
                            (ls_program_options){.batch = 2, .length = c->T}, inputs, 3);
        free(x);
        trial_end(&t);
    }
    /* the pattern of five blocks lacks exactly what blocks 1 and 3 are to each other */
    draw(&patterns[7]);
    for (int64_t n = 0; n < 25; n++)
        for (int64_t m = 0; m < 25; m++)
            assert_true((times_of(shown, 0, n, m) == 0) ==
                        (n / 5 * (m / 5) == 3 && n / 5 != m / 5));
}

/* Only the rows of the last block, and those that see it, know how many tokens it lacks: without
 * random blocks padding inside that block is as if it were not there. */
static void test_padding(void **state) {
    (void)state;
    enum { T = 180, TOKENS = 165 };
    double *x = coarse_numbers(T * D, 6), valid[T];
    trial t;
    expect(&t.ctx, trial_start(&t, &ls_mixer_bigbird, D, "heads=2 block=18"));
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
    free(x), free(alone), free(padded), free(other);
    trial_end(&t);
}

/* The weights of each row sum to 1: values of 1 come out as 1. */
static void test_row_sums(void **state) {
    (void)state;
    enum { T = 61 };
    double *x = coarse_numbers(T * D, 7);
    trial t;
    expect(&t.ctx, trial_start(&t, &ls_mixer_bigbird, D, "heads=2 block=4 seed=3"));
    t.T = T;
    bench b = trial_bench(&t, LS_F64, false);
    double *out = ls_parameter_master(b.store, ls_parameters_find(b.store, "out.weight"));
    double *weight = ls_parameter_master(b.store, ls_parameters_find(b.store, "qkv.weight"));
    double *bias = ls_parameter_master(b.store, ls_parameters_find(b.store, "qkv.bias"));
    double *out_bias = ls_parameter_master(b.store, ls_parameters_find(b.store, "out.bias"));
    for (int64_t i = 0; i < D * D; i++) {
        weight[2 * D * D + i] = 0;
        out[i] = i / D == i % D;
    }
    for (int64_t i = 0; i < D; i++) bias[2 * D + i] = 1, out_bias[i] = 0;
    trial_run(&t, &b, x, NULL);
    for (int64_t i = 0; i < T * D; i++)
        assert_true(fabs(get(ls_program_find(b.program, "y"), i) - 1) < 1e-13);
    bench_free(&b);
    trial_end(&t);
    free(x);
}

/* Rotated queries and keys pass through lists too. */
static void test_positions(void **state) {
    (void)state;
    enum { T = 130 };
    double *x = coarse_numbers(T * D, 8);
    trial t;
    expect(&t.ctx,
           trial_start(&t, &ls_mixer_bigbird, D, "heads=2 block=10 random=1 position=rope"));
    t.T = T;
    fast_is_plain(&t, "rope", x, 1e-9, 1e-3);
    free(x);
    trial_end(&t);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"heads=3", "heads=2 causal=1", "heads=2 globals=4"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        trial t;
        assert_int_equal(trial_start(&t, &ls_mixer_bigbird, D, wrong[i]), LS_EUSE);
        trial_end(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_draws), cmocka_unit_test(test_few_blocks),
        cmocka_unit_test(test_definition),  cmocka_unit_test(test_padding),
        cmocka_unit_test(test_row_sums),    cmocka_unit_test(test_positions),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
