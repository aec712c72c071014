/* What is kept of attention's weights, against the weights themselves: where the values are the
 * rows of an identity, the outputs of attention are its weights. */
#include "harness.h"
#include "position/position.h"

enum {
    SLOPES = 1,
    TABLE = 2,
    VALID = 4,
    DILATED = 8,
    OFF_BY_ONE = 16,
    CAPPED = 32,
    DECAYS = 64,
    TWO_SETS = 128, /* the first 3 keys, and a window */
    LISTED = 256,
};

typedef struct pattern_case {
    const char *name;
    int64_t B, T, H, G;
    unsigned with;
    int64_t window, block;
} pattern_case;

enum { K = 16, TABLE_ROWS = 11 };
static const ls_pattern_view view = {.distances = 4, .first_keys = 3, .distance = {0, 1, 7, 40}};
static const int64_t dilations[] = {1, 3, 2, 5};

static const pattern_case cases[] = {
    {"plain", 2, 150, 2, 2, 0, 0, 0},
    {"one token", 1, 1, 2, 1, 0, 0, 0},
    {"grouped heads", 1, 70, 4, 2, 0, 0, 0},
    {"slopes", 1, 70, 4, 4, SLOPES, 0, 0},
    {"table, window", 1, 140, 2, 1, TABLE, 33, 0},
    {"padding", 2, 65, 2, 2, VALID, 0, 0},
    {"dilation", 1, 90, 4, 4, DILATED, 9, 0},
    {"off by one", 1, 64, 2, 2, OFF_BY_ONE, 0, 0},
    {"cap", 1, 80, 2, 2, CAPPED, 0, 0},
    {"xPos", 1, 100, 2, 2, DECAYS, 0, 0},
    {"blocks", 1, 130, 2, 2, 0, 0, 32},
    {"sinks and a window", 1, 130, 2, 2, TWO_SETS, 20, 0},
    {"slopes, cap, off by one", 1, 77, 4, 2, SLOPES | CAPPED | OFF_BY_ONE, 50, 0},
    {"lists of blocks", 1, 64, 2, 2, LISTED, 0, 0},
};

/* Of blocks of 16: each sees itself and the first, that one twice. */
static ls_block_rows list_of_blocks(void) {
    static const int32_t first[] = {0, 1, 3, 5, 7}, at[] = {0, 0, 1, 0, 2, 0, 3},
                         times[] = {1, 2, 1, 2, 1, 2, 1};
    return (ls_block_rows){
        .size = 16, .blocks = 4, .heads = 1, .first = first, .at = at, .times = times};
}

/* Row m of set s of the values is 1 at column s T + m. */
static ls_tensor *identity(ls_program *p, const pattern_case *c, int s, int sets) {
    const int64_t count = c->B * c->T * c->G, width = sets * c->T;
    double *values = calloc((size_t)(count * width), sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i * width + s * c->T + i / c->G % c->T] = 1;
    ls_tensor *out = ls_constant(p, ls_type(p), LS_DIMS(c->B, c->T, c->G, width), values);
    free(values);
    return out;
}

static void record(ls_program *p, const void *about) {
    const pattern_case *c = about;
    const int sets = c->with & TWO_SETS ? 2 : 1;
    const ls_block_rows list = list_of_blocks();
    ls_key_set set[2];
    ls_tensor *q = ls_input(p, "q", ls_type(p), LS_DIMS(c->B, c->T, c->H, K), false);
    ls_tensor *k = ls_input(p, "k", ls_type(p), LS_DIMS(c->B, c->T, c->G, K), false);
    for (int s = 0; s < sets; s++) {
        set[s] = ls_key_set_all(q, k, identity(p, c, s, sets));
        set[s].lo = 0;
        if (c->window > 0) set[s].hi = c->window - 1;
        set[s].block = c->block;
        if (c->with & SLOPES)
            set[s].slopes = ls_input(p, "slopes", ls_wide_type(p), LS_DIMS(c->H), false);
        if (c->with & TABLE)
            set[s].table = ls_input(p, "table", ls_wide_type(p), LS_DIMS(c->H, TABLE_ROWS), false);
        if (c->with & VALID) set[s].valid = ls_input(p, "valid", LS_U8, LS_DIMS(c->B, c->T), false);
        if (c->with & DILATED) set[s].dilation = dilations;
        if (c->with & DECAYS)
            set[s].xpos =
                (ls_xpos){.pairs = 4, .block = 32, .log_decay = {-0.02, -0.01, -0.005, -0.001}};
        if (c->with & LISTED) {
            set[s].list = &list;
            set[s].lo = -LS_FAR;
        }
    }
    if (sets == 2) { /* the window has what comes after the sinks */
        set[0].hi = LS_FAR;
        set[0].key_end = 3;
        set[1].key_first = 3;
    }
    const ls_attention_options options = {
        .scale = 0.5, .off_by_one = (c->with & OFF_BY_ONE) != 0, .cap = c->with & CAPPED ? 0.8 : 0};
    ls_tensor *lse, *y = ls_attention(p, sets, set, options, &lse);
    ls_keep(p, "y", y);
    ls_keep(p, "pattern", ls_attention_pattern(p, sets, set, options, lse, &view));
}

/* The same from a row of weights [keys of all sets]. */
static void look(const pattern_case *c, const double *A, int sets, int64_t n, double *out) {
    const int64_t columns = ls_pattern_columns(&view);
    for (int64_t i = 0; i < columns; i++) out[i] = 0;
    for (int64_t i = 0; i < sets * c->T; i++) {
        const int64_t m = i % c->T;
        for (int64_t d = 0; d < view.distances; d++)
            if (n - m == view.distance[d]) out[d] += A[i];
        if (m < view.first_keys) out[view.distances + m] += A[i];
        if (A[i] > 0) out[columns - 2] -= A[i] * log(A[i]);
        out[columns - 1] += A[i] * (double)(n - m);
    }
}

/* The largest difference over all queries and columns, of the most that each can be. */
static double worst_of(const pattern_case *c, const bench *b) {
    const ls_tensor *y = ls_program_find(b->program, "y");
    const ls_tensor *got = ls_program_find(b->program, "pattern");
    const int64_t columns = ls_pattern_columns(&view), width = y->dim[3];
    const int sets = (int)(width / c->T);
    double *A = calloc((size_t)width, sizeof *A), *want = calloc((size_t)columns, sizeof *want);
    double worst = 0;
    for (int64_t row = 0; row < c->B * c->T * c->H; row++) {
        for (int64_t i = 0; i < width; i++) A[i] = get(y, row * width + i);
        look(c, A, sets, row / c->H % c->T, want);
        for (int64_t i = 0; i < columns; i++) {
            const double most[] = {fmax(1, log((double)c->T)), (double)c->T};
            const double by = i < columns - 2 ? 1 : most[i - columns + 2];
            worst = fmax(worst, fabs(get(got, row * columns + i) - want[i]) / by);
        }
    }
    free(A);
    free(want);
    return worst;
}

static void equals_the_weights(void **state) {
    static const char *const inputs[] = {"q", "k", "table", NULL};
    static const double limit[] = {[LS_F64] = 1e-12, [LS_F32] = 2e-6, [LS_BF16] = 0.02};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int isa = 0; test_isa(isa) != NULL; isa++)
            for (int type = LS_F64; type <= LS_BF16; type++) {
                const subject what = {cases[i].name, record, &cases[i]};
                ls_ctx ctx = ls_ctx_default();
                ctx.isa = test_isa(isa);
                bench b = bench_new(&ctx, &what,
                                    (ls_program_options){.type = (ls_dtype)type,
                                                         .batch = cases[i].B,
                                                         .length = cases[i].T,
                                                         .guarded = true});
                fill_inputs(b.program, inputs, 5);
                const ls_tensor *slopes = ls_program_find(b.program, "slopes");
                for (int64_t h = 0; slopes != NULL && h < ls_count(slopes); h++)
                    put(slopes, h, 0.3 / (double)(h + 1)); /* as ALiBi has: scores stay small */
                const ls_tensor *valid = ls_program_find(b.program, "valid");
                for (int64_t n = 0; valid != NULL && n < ls_count(valid); n++)
                    put(valid, n, n % cases[i].T < 50);
                expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
                assert_true(ls_program_guards_intact(b.program));
                const double worst = worst_of(&cases[i], &b);
                if (!(worst <= limit[type]))
                    fail_msg("%s, %s, %s: differs by %g", cases[i].name, ctx.isa,
                             ls_dtype_name((ls_dtype)type), worst);
                bench_free(&b);
            }
}

/* A view that cannot be is refused, and so is a program with gradients. */
static void refuses(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int grad = 0; grad < 2; grad++) {
        const ls_pattern_view none = {.first_keys = grad};
        const ls_program_options options = {.type = LS_F32, .batch = 1, .length = 4, .grad = grad};
        ls_parameters *store;
        ls_program *p;
        expect(&ctx, ls_parameters_new(&ctx, LS_F32, &store));
        expect(&ctx, ls_program_new(&ctx, &options, store, &p));
        ls_tensor *x = ls_input(p, "x", LS_F32, LS_DIMS(1, 4, 1, 8), false), *lse;
        const ls_key_set set = ls_key_set_all(x, x, x);
        const ls_attention_options how = {.scale = 1};
        ls_attention(p, 1, &set, how, &lse);
        assert_false(ls_failed(p));
        assert_null(ls_attention_pattern(p, 1, &set, how, lse, &none));
        assert_true(ls_failed(p));
        assert_non_null(strstr(ctx.error.message, grad ? "without gradients" : "view"));
        ls_program_free(p);
        ls_parameters_free(store);
        ctx.error = (ls_error){0};
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_the_weights),
                                       cmocka_unit_test(refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
