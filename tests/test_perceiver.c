/* Perceiver: every option against the definition as sums, sharing, what permutations, padding and
 * cuts change, plain attention and the causal transformer as special cases, and models of it. */
#include "mixer_case.h"
#include "tensor/engine/program_internal.h"
#include "tensor/op/pointwise/pointwise.h"
#include "train/train.h"

enum { D = 12, T = 17, B = 2 };

extern const ls_mixer_type ls_mixer_perceiver, ls_mixer_attention;
static const char *const inputs[] = {"x", "cot", NULL};

/* ---- the definition ---- */

/* Rows [count,width]. */
typedef struct table {
    int64_t count, width;
    double *at;
} table;

static table table_new(int64_t count, int64_t width) {
    return (table){count, width, calloc((size_t)(count * width), sizeof(double))};
}

static table table_copy(const double *values, int64_t count, int64_t width) {
    table t = table_new(count, width);
    memcpy(t.at, values, (size_t)(count * width) * sizeof *values);
    return t;
}

static double *named(const ls_parameters *store, const char *scope, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", scope, name);
    return mixer_weight(store, full);
}

static table product(const ls_parameters *store, const char *scope, const char *name, table x) {
    char weight[64], bias[64], full[96];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    snprintf(full, sizeof full, "%s%s", scope, weight);
    const double *W = named(store, scope, weight), *b = named(store, scope, bias);
    table y = table_new(x.count, ls_parameters_find(store, full)->dim[0]);
    for (int64_t i = 0; i < y.count; i++)
        for (int64_t o = 0; o < y.width; o++) {
            y.at[i * y.width + o] = b[o];
            for (int64_t c = 0; c < x.width; c++)
                y.at[i * y.width + o] += W[o * x.width + c] * x.at[i * x.width + c];
        }
    return y;
}

static table normed(const ls_parameters *store, const char *scope, const char *name, table x) {
    char weight[64], bias[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const double *g = named(store, scope, weight), *b = named(store, scope, bias);
    table y = table_new(x.count, x.width);
    for (int64_t i = 0; i < x.count; i++) {
        double mean = 0, variance = 0;
        const double *row = x.at + i * x.width;
        for (int64_t c = 0; c < x.width; c++) mean += row[c] / (double)x.width;
        for (int64_t c = 0; c < x.width; c++)
            variance += (row[c] - mean) * (row[c] - mean) / (double)x.width;
        for (int64_t c = 0; c < x.width; c++)
            y.at[i * x.width + c] = (row[c] - mean) / sqrt(variance + 1e-5) * g[c] + b[c];
    }
    return y;
}

typedef struct looks {
    int64_t heads, qk;
    double rotary;         /* causal: share of a head */
    bool causal, residual; /* causal: query i stands at first + i */
    int64_t first, block;  /* block > 0: keys of the query's own block alone */
    bool relu2;
    const uint8_t *kept; /* of the keys; NULL: all are */
    int64_t spared;      /* others may be left out that stand before the query's block of so many
                            positions; 0: all, -1: all but the query's own */
} looks;

/* Whether the query at n does not see the key at m, number j of those that are read. */
static bool left_out(const looks *how, int64_t n, int64_t m, int64_t j) {
    if (how->kept == NULL || how->kept[j] != 0) return false;
    if (how->spared < 0) return m != n;
    return how->spared == 0 || m < n / how->spared * how->spared;
}

/* The weights of what is left; 0 everywhere where nothing is. */
static void softmax_of_some(double *score, int64_t low, int64_t end) {
    bool any = false;
    for (int64_t j = low; j < end; j++) any |= score[j] > -INFINITY;
    for (int64_t j = low; j < end && !any; j++) score[j] = 0;
    double most = -INFINITY, sum = 0;
    for (int64_t j = low; j < end && any; j++) most = fmax(most, score[j]);
    for (int64_t j = low; j < end && any; j++) sum += score[j] = exp(score[j] - most);
    for (int64_t j = low; j < end && any; j++) score[j] /= sum;
}

/* Pairs (2i, 2i + 1) of the first 2 P elements by position * 10000^(-i / (P - 1)). */
static void turn(double *head, int64_t width, double share, int64_t position) {
    int64_t pairs = (int64_t)((double)width * share) / 2;
    for (int64_t i = 0; i < pairs; i++) {
        double angle =
            (double)position * (pairs == 1 ? 1 : pow(10000, -(double)i / (double)(pairs - 1)));
        double a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos(angle) - b * sin(angle);
        head[2 * i + 1] = a * sin(angle) + b * cos(angle);
    }
}

static void define_layer(const ls_parameters *store, const char *scope, looks how, table *z,
                         const table *x) {
    table asks = normed(store, scope, "norm_q", *z);
    table tells = x == NULL ? asks : normed(store, scope, "norm_kv", *x);
    table q = product(store, scope, "q", asks), kv = product(store, scope, "kv", tells);
    const int64_t V = kv.width - how.qk, K = how.qk / how.heads, W = V / how.heads;
    const int64_t key_first = x == NULL ? how.first : 0;
    table mixed = table_new(z->count, V);
    for (int64_t h = 0; how.causal && h < how.heads; h++) {
        for (int64_t i = 0; i < q.count; i++)
            turn(q.at + i * q.width + h * K, K, how.rotary, how.first + i);
        for (int64_t j = 0; j < kv.count; j++)
            turn(kv.at + j * kv.width + h * K, K, how.rotary, key_first + j);
    }
    double *score = malloc((size_t)kv.count * sizeof *score);
    for (int64_t i = 0; i < z->count; i++)
        for (int64_t h = 0; h < how.heads; h++) {
            int64_t n = how.first + i, low = 0, end = kv.count;
            if (how.causal) end = n - key_first + 1;
            if (how.block > 0) low = ls_max(0, n / how.block * how.block - key_first);
            for (int64_t j = low; j < end; j++) {
                score[j] = 0;
                for (int64_t c = 0; c < K; c++)
                    score[j] += q.at[i * q.width + h * K + c] * kv.at[j * kv.width + h * K + c];
                score[j] /= sqrt((double)K);
                if (left_out(&how, n, key_first + j, j)) score[j] = -INFINITY;
            }
            softmax_of_some(score, low, end);
            for (int64_t j = low; j < end; j++)
                for (int64_t c = 0; c < W; c++)
                    mixed.at[i * V + h * W + c] +=
                        score[j] * kv.at[j * kv.width + how.qk + h * W + c];
        }
    table out = product(store, scope, "out", mixed);
    for (int64_t i = 0; how.residual && i < out.count * out.width; i++) out.at[i] += z->at[i];
    table within = normed(store, scope, "norm", out), up = product(store, scope, "up", within);
    for (int64_t i = 0; i < up.count * up.width; i++) {
        double a = up.at[i], positive = fmax(a, 0);
        up.at[i] = how.relu2 ? positive * positive : a * 0.5 * erfc(-a * sqrt(0.5));
    }
    table down = product(store, scope, "down", up);
    free(z->at);
    *z = table_new(out.count, out.width);
    for (int64_t i = 0; i < out.count * out.width; i++) z->at[i] = out.at[i] + down.at[i];
    if (x != NULL) free(tells.at);
    free(asks.at), free(q.at), free(kv.at), free(mixed.at), free(score), free(out.at);
    free(within.at), free(up.at), free(down.at);
}

/* What a case says in words, for the definition. */
typedef struct plan {
    const char *words;
    bool causal, project, latents_out, relu2, residual, decoder_residual;
    int64_t latents, width, heads, cross_heads, qk, cross_qk, cross_attends, blocks, layers;
    int share_cross, share_blocks; /* 0: none, 1: later, 2: all */
    int queries;                   /* 0: input, 1: learned, 2: Fourier */
    ls_fourier fourier;            /* axes 0: no features */
    bool features;
    double rotary;
    const uint8_t *kept[2]; /* of the text, and of the latents; NULL: all */
    int64_t spared;         /* in cross-attends: see looks */
} plan;

static int weights_of(int share, int64_t i) {
    return share == 0 ? (int)i : share == 1 && i > 0 ? 1 : 0;
}

static table fourier_table(const ls_fourier *fourier, int64_t count) {
    table t = table_new(count, ls_fourier_width(fourier));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < t.width; c++) t.at[i * t.width + c] = ls_fourier_at(fourier, i, c);
    return t;
}

/* One text of `count` rows; causal: its last `shown` rows are the latents (0: all, in blocks). */
static table define(const ls_parameters *store, const plan *c, const double *rows, int64_t count,
                    int64_t shown) {
    table x = table_copy(rows, count, D), z, text = x;
    const int64_t first = shown > 0 ? count - shown : 0;
    if (c->causal) {
        table own = table_copy(rows + first * D, count - first, D);
        z = c->project ? product(store, "", "latents", own) : own;
        if (c->project) free(own.at);
    } else {
        z = table_copy(mixer_weight(store, "latents"), c->latents, c->width);
    }
    if (c->features) {
        table places = fourier_table(&c->fourier, count);
        text = table_new(count, D + places.width);
        for (int64_t t = 0; t < count; t++) {
            memcpy(text.at + t * text.width, rows + t * D, D * sizeof *rows);
            memcpy(text.at + t * text.width + D, places.at + t * places.width,
                   (size_t)places.width * sizeof *rows);
        }
        free(places.at);
    }
    for (int64_t i = 0; i < c->cross_attends; i++) {
        char scope[32];
        snprintf(scope, sizeof scope, "cross.%d.", weights_of(c->share_cross, i));
        looks how = {c->cross_heads, c->cross_qk, c->rotary, c->causal,  c->residual,
                     first,          0,           c->relu2,  c->kept[0], c->spared};
        define_layer(store, scope, how, &z, &text);
        for (int64_t block = i * c->blocks; block < (i + 1) * c->blocks; block++)
            for (int64_t j = 0; j < c->layers; j++) {
                snprintf(scope, sizeof scope, "blocks.%d.%d.", weights_of(c->share_blocks, block),
                         (int)j);
                how = (looks){c->heads,
                              c->qk,
                              c->rotary,
                              c->causal,
                              true,
                              first,
                              shown > 0 || !c->causal ? 0 : c->latents,
                              c->relu2,
                              c->kept[1],
                              -1};
                define_layer(store, scope, how, &z, NULL);
            }
    }
    if (!c->causal && !c->latents_out) {
        table y = c->queries == 1   ? table_copy(mixer_weight(store, "queries"), count, 10)
                  : c->queries == 2 ? fourier_table(&c->fourier, count)
                                    : table_copy(rows, count, D);
        looks how = {c->cross_heads, c->width, 0, false, c->decoder_residual, 0, 0,
                     c->relu2,       NULL,     0};
        define_layer(store, "decoder.", how, &y, &z);
        free(z.at);
        z = y;
    }
    if (z.width != D && !c->latents_out) {
        table last = product(store, "", "last", z);
        free(z.at);
        z = last;
    }
    if (text.at != x.at) free(text.at);
    free(x.at);
    return z;
}

/* heads=2 everywhere; queries and keys of the decoder are as wide as the latents. */
#define LINE                                                                                       \
    { 1, false, {T}, {T}, 3 }
static const plan plans[] = {
    {.words = "latents=5 heads=2",
     .latents = 5,
     .width = D,
     .heads = 2,
     .cross_heads = 2,
     .qk = D,
     .cross_qk = D,
     .cross_attends = 1,
     .blocks = 1,
     .layers = 1,
     .residual = true,
     .share_cross = 1,
     .share_blocks = 2,
     .fourier = LINE},
    /* the original: the first of everything apart, the later ones shared */
    {.words = "latents=4 latent_width=8 heads=2 cross_heads=1 cross_attends=3 layers=2 "
              "share_blocks=later output=latents qk_width=6 v_width=10 features=fourier bands=3 "
              "widening=2 cross_widening=3",
     .latents = 4,
     .width = 8,
     .heads = 2,
     .cross_heads = 1,
     .qk = 6,
     .cross_qk = 6,
     .cross_attends = 3,
     .blocks = 1,
     .layers = 2,
     .residual = true,
     .share_cross = 1,
     .share_blocks = 1,
     .fourier = LINE,
     .features = true,
     .latents_out = true},
    /* Perceiver IO: one cross-attend, blocks of one set of weights, learned queries */
    {.words = "latents=6 latent_width=8 heads=4 cross_heads=2 blocks=3 layers=2 queries=learned "
              "query_width=10 length=17 residual=false activation=relu2 cross_shape=q "
              "decoder_qk_width=8",
     .latents = 6,
     .width = 8,
     .heads = 4,
     .cross_heads = 2,
     .qk = 8,
     .cross_qk = 8,
     .cross_attends = 1,
     .blocks = 3,
     .layers = 2,
     .share_cross = 1,
     .share_blocks = 2,
     .fourier = LINE,
     .queries = 1,
     .relu2 = true},
    /* a picture of 3 x 6, read and asked by Fourier features; nothing shared */
    {.words =
         "latents=3 latent_width=8 heads=2 cross_attends=2 share_cross=none share_blocks=none "
         "features=fourier queries=fourier grid=3,6 bands=2 resolution=7 decoder_residual=true",
     .latents = 3,
     .width = 8,
     .heads = 2,
     .cross_heads = 2,
     .qk = 8,
     .cross_qk = 22,
     .cross_attends = 2,
     .blocks = 1,
     .layers = 1,
     .residual = true,
     .decoder_residual = true,
     .features = true,
     .queries = 2,
     .fourier = {2, false, {3, 6}, {7, 7}, 2}},
    /* Perceiver AR in blocks of 5 */
    {.words = "latents=5 heads=2 layers=2 widening=4 cross_widening=4 activation=relu2",
     .causal = true,
     .project = true,
     .latents = 5,
     .width = D,
     .heads = 2,
     .cross_heads = 2,
     .qk = D,
     .cross_qk = D,
     .cross_attends = 1,
     .blocks = 1,
     .layers = 2,
     .residual = true,
     .share_cross = 1,
     .share_blocks = 2,
     .relu2 = true,
     .rotary = 0.5},
    {.words = "latents=4 latent_width=8 heads=2 cross_heads=1 cross_attends=2 blocks=2 "
              "share_cross=all share_blocks=later rotary=1 qk_width=8 v_width=4",
     .causal = true,
     .project = true,
     .latents = 4,
     .width = 8,
     .heads = 2,
     .cross_heads = 1,
     .qk = 8,
     .cross_qk = 8,
     .cross_attends = 2,
     .blocks = 2,
     .layers = 1,
     .residual = true,
     .share_cross = 2,
     .share_blocks = 1,
     .rotary = 1},
};
enum { PLANS = sizeof plans / sizeof plans[0] };

static mixer_case case_of(ls_ctx *ctx, const plan *c) {
    mixer_case made = {0};
    expect(ctx, mixer_choose(ctx, &ls_mixer_perceiver, c->words, D, c->causal, &made.mixer));
    return made;
}

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(B * T * D, 3);
    for (int i = 0; i < PLANS; i++) {
        mixer_case c = case_of(&ctx, &plans[i]);
        const ls_program_options options = {.type = LS_F64, .batch = B, .length = T};
        bench b = mixer_bench(&ctx, &c, options);
        double *y = mixer_outputs(&ctx, &c, LS_F64, B, T, x, NULL);
        double *fast = mixer_outputs(&ctx, &c, LS_F32, B, T, x, NULL);
        double *rough = mixer_outputs(&ctx, &c, LS_BF16, B, T, x, NULL);
        int64_t each = 0;
        for (int64_t s = 0; s < B; s++) {
            table want = define(b.store, &plans[i], x + s * T * D, T, 0);
            each = want.count * want.width;
            mixer_same(plans[i].words, y + s * each, want.at, each, 1e-12);
            free(want.at);
        }
        if (!(nmse(fast, y, B * each) <= 1e-11)) fail_msg("%s: wrong in f32", plans[i].words);
        if (!(nmse(rough, y, B * each) <= 1e-3)) /* weights are rounded too */
            fail_msg("%s: wrong in bf16: %g", plans[i].words, nmse(rough, y, B * each));
        check_gradients(&ctx, &(subject){plans[i].words, mixer_record, &c},
                        (ls_program_options){.batch = 2, .length = T}, inputs, 3);
        bench_free(&b);
        free(y), free(fast), free(rough);
        mixer_release(&c.mixer);
    }
    free(x);
}

/* [x_d | sin(pi f_k x_d) | cos(pi f_k x_d)], axis by axis, with numbers written out. */
static void test_fourier_features(void **state) {
    (void)state;
    const ls_fourier line = {1, false, {5}, {8}, 3}, picture = {2, false, {2, 3}, {4, 6}, 2};
    const double pi = acos(-1);
    assert_int_equal(ls_fourier_width(&line), 7);
    assert_int_equal(ls_fourier_width(&picture), 10);
    assert_int_equal(ls_fourier_width(&(ls_fourier){2, false, {224, 224}, {224, 224}, 64}), 258);
    for (int64_t t = 0; t < 7; t++) { /* from 5 on beyond the end */
        const double place = -1 + 0.5 * (double)t;
        const double want[7] = {
            place,           sin(pi * place),       sin(pi * 2.5 * place), sin(pi * 4 * place),
            cos(pi * place), cos(pi * 2.5 * place), cos(pi * 4 * place)};
        for (int64_t c = 0; c < 7; c++)
            assert_true(fabs(ls_fourier_at(&line, t, c) - want[c]) < 1e-12);
    }
    /* row 5 is (1, 2): places 1 and 1; row 1 is (0, 1): -1 and 0 */
    const double corner[10] = {1, 1, 0, 0, 0, 0, -1, 1, -1, -1};
    const double edge[10] = {-1, 0, 0, 0, 0, 0, -1, 1, 1, 1};
    for (int64_t c = 0; c < 10; c++) {
        assert_true(fabs(ls_fourier_at(&picture, 5, c) - corner[c]) < 1e-12);
        assert_true(fabs(ls_fourier_at(&picture, 1, c) - edge[c]) < 1e-12);
    }
}

/* Each text of a batch spans [-1,1] where it is longer than the axis, by its own length. */
enum { TEXTS = 3, PLACES = 5, LONGEST = 9 };
static const int64_t text_lengths[TEXTS] = {3, LONGEST, 7};

static void stretched_texts(ls_program *p, const void *about) {
    double valid[TEXTS * LONGEST];
    for (int64_t i = 0; i < TEXTS * LONGEST; i++)
        valid[i] = i % LONGEST < text_lengths[i / LONGEST];
    const ls_fourier line = {1, *(const bool *)about, {PLACES}, {8}, 3};
    ls_tensor *marks = ls_constant(p, LS_U8, LS_DIMS(TEXTS, LONGEST), valid);
    ls_keep(p, "y", ls_fourier_rows(p, &line, TEXTS, LONGEST, marks));
    ls_keep(p, "all", ls_fourier_rows(p, &line, 1, LONGEST, NULL));
}

static void test_stretched_texts(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    static const double bars[] = {[LS_F64] = 1e-13, [LS_F32] = 1e-6, [LS_BF16] = 4e-3};
    for (int stretch = 0; stretch < 2; stretch++)
        for (int type = LS_F64; type <= LS_BF16; type++) {
            const bool flag = stretch;
            const subject what = {"fourier", stretched_texts, &flag};
            const ls_program_options options = {.batch = 1, .length = 1};
            if (!device_can(&ctx, &what, options)) return;
            ls_program_options typed = options;
            typed.type = (ls_dtype)type;
            typed.guarded = true;
            bench b = bench_new(&ctx, &what, typed);
            expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
            assert_true(ls_program_guards_intact(b.program));
            for (int64_t i = 0; i <= TEXTS; i++) {
                const int64_t rows = i < TEXTS ? text_lengths[i] : LONGEST;
                const ls_tensor *y = ls_program_find(b.program, i < TEXTS ? "y" : "all");
                const int64_t first = i < TEXTS ? i * LONGEST * 7 : 0;
                ls_fourier own = {1, false, {stretch ? ls_max(PLACES, rows) : PLACES}, {8}, 3};
                for (int64_t j = 0; j < rows * 7; j++)
                    assert_true(fabs(get(y, first + j) - ls_fourier_at(&own, j / 7, j % 7)) <=
                                bars[type]);
            }
            bench_free(&b);
        }
}

/* ---- what changes nothing ---- */

/* Without positions a text is a set: latents do not see its order, rows move with theirs. */
static void test_order_is_not_seen(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(T * D, 5), *moved = malloc(T * D * sizeof *moved);
    for (int64_t t = 0; t < T; t++) memcpy(moved + t * D, x + (t * 5 + 3) % T * D, D * sizeof *x);
    mixer_case c = case_of(&ctx, &plans[0]);
    double *y = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
    double *z = mixer_outputs(&ctx, &c, LS_F64, 1, T, moved, NULL);
    for (int64_t t = 0; t < T; t++)
        mixer_same("a row that moved", z + t * D, y + (t * 5 + 3) % T * D, D, 1e-12);
    mixer_release(&c.mixer);
    free(y), free(z);
    c = case_of(&ctx, &plans[1]); /* features tell the order */
    y = mixer_outputs(&ctx, &c, LS_F64, 1, T, x, NULL);
    z = mixer_outputs(&ctx, &c, LS_F64, 1, T, moved, NULL);
    assert_true(nmse(z, y, 4 * 8) > 1e-4);
    mixer_release(&c.mixer);
    free(x), free(moved), free(y), free(z);
}

static void test_padding(void **state) {
    (void)state;
    enum { REAL = 12 };
    static const char *const words[] = {
        "latents=5 heads=2 layers=1",
        "latents=5 heads=2 cross_shape=q features=fourier bands=3 length=20 output=latents",
        "latents=5 heads=2 cross_shape=q features=fourier bands=3 length=10 beyond=continue",
        "latents=5 heads=1 features=fourier bands=3 length=10 queries=fourier",
        "latents=5 heads=2 queries=learned length=17",
        "latents=5 heads=2 queries=fourier features=fourier bands=3 grid=4,5",
    };
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(T * D, 5), *other = mixer_numbers(T * D, 6), valid[T];
    for (int64_t t = 0; t < T; t++) valid[t] = t < REAL;
    memcpy(other, x, REAL * D * sizeof *x);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        mixer_case padded = {.padded = true}, plain = {0};
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver, words[i], D, false, &padded.mixer));
        plain.mixer = padded.mixer;
        const int64_t rows = strstr(words[i], "output") == NULL ? REAL : 5;
        double *a = mixer_outputs(&ctx, &padded, LS_F64, 1, T, x, valid);
        double *b = mixer_outputs(&ctx, &padded, LS_F64, 1, T, other, valid);
        double *shorter = mixer_outputs(&ctx, &plain, LS_F64, 1, REAL, x, NULL);
        double *unmasked = mixer_outputs(&ctx, &plain, LS_F64, 1, T, x, NULL);
        assert_memory_equal(a, b, (size_t)(rows * D) * sizeof *a);
        mixer_same(words[i], shorter, a, rows * D, 1e-13);
        assert_true(nmse(unmasked, a, rows * D) > 1e-5);
        free(a), free(b), free(shorter), free(unmasked);
        mixer_release(&padded.mixer);
    }
    free(x), free(other);
}

/* ---- special cases ---- */

/* Where the latents are the rows, a cross-attend is attention: given as z, with one norm for both.
 * All weights behind it are as the harness has them; attention's are the same. */
static void latents_are_rows(ls_program *p, const void *about) {
    const mixer_case *c = about;
    ls_mixer mixer = c->mixer;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(B, T, D), true);
    mixer.second = x;
    ls_keep(p, "y", ls_mixer_record(p, &mixer, x));
}

static void test_latents_as_rows_are_attention(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(B * T * D, 8);
    mixer_case low = {0}, full = {0};
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver,
                              "latents=17 heads=3 layers=0 output=latents", D, false, &low.mixer));
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_attention, "heads=3 bias=true", D, false, &full.mixer));
    const ls_program_options options = {.type = LS_F64, .batch = B, .length = T};
    bench a = bench_new(&ctx, &(subject){"perceiver", latents_are_rows, &low}, options);
    bench b = mixer_bench(&ctx, &full, options);
    /* norms of weight 1 and bias 0 read rows that are normed already; nothing behind them */
    static const char *const norms[] = {"cross.0.norm_q", "cross.0.norm_kv"};
    for (int i = 0; i < 2; i++)
        for (int64_t d = 0; d < D; d++) {
            char name[40];
            snprintf(name, sizeof name, "%s.weight", norms[i]);
            mixer_weight(a.store, name)[d] = 1;
            snprintf(name, sizeof name, "%s.bias", norms[i]);
            mixer_weight(a.store, name)[d] = 0;
        }
    memset(mixer_weight(a.store, "cross.0.down.weight"), 0, D * D * sizeof(double));
    memset(mixer_weight(a.store, "cross.0.down.bias"), 0, D * sizeof(double));
    double *weight = mixer_weight(b.store, "qkv.weight"), *bias = mixer_weight(b.store, "qkv.bias");
    memcpy(weight, mixer_weight(a.store, "cross.0.q.weight"), D * D * sizeof(double));
    memcpy(weight + D * D, mixer_weight(a.store, "cross.0.kv.weight"), 2 * D * D * sizeof(double));
    memcpy(bias, mixer_weight(a.store, "cross.0.q.bias"), D * sizeof(double));
    memcpy(bias + D, mixer_weight(a.store, "cross.0.kv.bias"), 2 * D * sizeof(double));
    memcpy(mixer_weight(b.store, "out.weight"), mixer_weight(a.store, "cross.0.out.weight"),
           D * D * sizeof(double));
    memcpy(mixer_weight(b.store, "out.bias"), mixer_weight(a.store, "cross.0.out.bias"),
           D * sizeof(double));
    double *plain = malloc(B * T * D * sizeof *plain);
    for (int64_t r = 0; r < B * T; r++) {
        double mean = 0, variance = 0;
        for (int64_t d = 0; d < D; d++) mean += x[r * D + d] / D;
        for (int64_t d = 0; d < D; d++) variance += pow(x[r * D + d] - mean, 2) / D;
        for (int64_t d = 0; d < D; d++)
            plain[r * D + d] = (x[r * D + d] - mean) / sqrt(variance + 1e-5);
    }
    mixer_put(&a, "x", x);
    mixer_put(&b, "x", plain);
    expect(&ctx, ls_program_run(a.program, NULL, 0, 0));
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *got = read_all(ls_program_find(a.program, "y"));
    double *want = read_all(ls_program_find(b.program, "y"));
    for (int64_t i = 0; i < B * T * D; i++) want[i] += x[i];
    mixer_same("latents that are the rows", got, want, B * T * D, 1e-13);
    bench_free(&a);
    bench_free(&b);
    free(x), free(plain), free(got), free(want);
    mixer_release(&low.mixer);
    mixer_release(&full.mixer);
}

/* ---- models ---- */

static ls_model *make_model(ls_ctx *ctx, const char *words, ls_dtype type,
                            ls_model_config *config) {
    char all[768], *rest = NULL;
    snprintf(all, sizeof all, "model.vocabulary=9 model.width=%d %s", D, words);
    ls_settings settings = {0};
    for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        expect(ctx, ls_settings_put_word(ctx, &settings, word));
    expect(ctx, ls_model_config_read(ctx, &settings, config));
    expect(ctx, ls_settings_finish(ctx, &settings, NULL));
    ls_settings_clear(ctx, &settings);
    ls_model *model;
    expect(ctx, ls_model_new(ctx, config, type, 1, true, &model));
    fill_parameters(model->store);
    return model;
}

static void release_model(ls_model *model, ls_model_config *config) {
    ls_ctx *ctx = model->ctx;
    ls_model_free(model);
    ls_model_config_clear(ctx, config);
}

/* Runs a program over the same text; the loss [1,length] of every token. */
static double *losses(ls_model *model, ls_model_use use, int64_t length, int64_t scored) {
    int32_t tokens[64], targets[64];
    ls_program *program;
    expect(
        model->ctx,
        ls_model_program(model, use, (ls_program_options){.batch = 1, .length = length}, &program));
    for (int64_t t = 0; t < length; t++) {
        tokens[t] = (int32_t)((t * t + 3 * t) % 9);
        targets[t] = t < length - scored ? -1 : (int32_t)((t * 7 + 1) % 9);
    }
    expect(model->ctx, ls_model_put_tokens(model, program, "tokens", tokens));
    expect(model->ctx, ls_model_put_tokens(model, program, "targets", targets));
    const ls_tensor *weights = ls_program_find(program, "weights");
    for (int64_t t = 0; weights != NULL && t < length; t++) put(weights, t, 1);
    expect(model->ctx, ls_program_run(program, NULL, 0, 0));
    double *loss = read_all(ls_program_find(program, "loss"));
    ls_program_free(program);
    return loss;
}

static void copy_weights(ls_model *to, const char *name, int64_t at, const ls_model *from,
                         const char *source, int64_t first, int64_t count) {
    memcpy(mixer_weight(to->store, name) + at, mixer_weight(from->store, source) + first,
           (size_t)count * sizeof(double));
}

/* Attention with a norm before, as the model has it, into a layer of the perceiver. */
static void copy_layer(ls_model *to, const char *scope, const ls_model *from, int from_layer) {
    static const struct {
        const char *ours, *theirs;
        int64_t first, count;
    } parts[] = {
        {"norm_q.weight", "norm1.weight", 0, D},
        {"norm_q.bias", "norm1.bias", 0, D},
        {"norm_kv.weight", "norm1.weight", 0, D},
        {"norm_kv.bias", "norm1.bias", 0, D},
        {"q.weight", "mixer.qkv.weight", 0, D * D},
        {"kv.weight", "mixer.qkv.weight", D * D, 2 * D * D},
        {"q.bias", "mixer.qkv.bias", 0, D},
        {"kv.bias", "mixer.qkv.bias", D, 2 * D},
        {"out.weight", "mixer.out.weight", 0, D * D},
        {"out.bias", "mixer.out.bias", 0, D},
        {"norm.weight", "norm2.weight", 0, D},
        {"norm.bias", "norm2.bias", 0, D},
        {"up.weight", "ffn.up.weight", 0, 4 * D * D},
        {"up.bias", "ffn.up.bias", 0, 4 * D},
        {"down.weight", "ffn.down.weight", 0, 4 * D * D},
        {"down.bias", "ffn.down.bias", 0, D},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char ours[96], theirs[96];
        snprintf(ours, sizeof ours, "layers.0.mixer.%s.%s", scope, parts[i].ours);
        snprintf(theirs, sizeof theirs, "layers.%d.%s", from_layer, parts[i].theirs);
        if (ls_parameters_find(to->store, ours) != NULL)
            copy_weights(to, ours, 0, from, theirs, parts[i].first, parts[i].count);
    }
}

/* A block as long as the text is a causal transformer whose first layer is the cross-attend. */
static void test_one_block_is_a_transformer(void **state) {
    (void)state;
    enum { LENGTH = 23 };
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config configs[2];
    ls_model *latent = make_model(&ctx,
                                  "model.layers=1 model.feed_forward=false model.mixer=perceiver "
                                  "mixer.whole=true mixer.latents=23 mixer.heads=3 mixer.layers=2 "
                                  "mixer.widening=4 mixer.cross_widening=4 mixer.project=false "
                                  "mixer.rotary=0 model.position=sinusoidal",
                                  LS_F64, &configs[0]);
    ls_model *plain = make_model(&ctx,
                                 "model.layers=3 mixer.heads=3 mixer.bias=true "
                                 "model.position=sinusoidal",
                                 LS_F64, &configs[1]);
    copy_layer(latent, "cross.0", plain, 0);
    copy_layer(latent, "blocks.0.0", plain, 1);
    copy_layer(latent, "blocks.0.1", plain, 2);
    double *got = losses(latent, LS_MODEL_LOSS, LENGTH, LENGTH);
    double *want = losses(plain, LS_MODEL_LOSS, LENGTH, LENGTH);
    mixer_same("one block", got, want, LENGTH, 1e-12);
    release_model(latent, &configs[0]);
    release_model(plain, &configs[1]);
    free(got), free(want);
}

static const char last_block[] =
    "model.layers=1 model.feed_forward=false model.mixer=perceiver mixer.whole=true "
    "mixer.latents=6 mixer.heads=3 mixer.cross_attends=2";

/* loss=last: training computes the last latents alone. Their losses and gradients are those of the
 * model with all blocks whose other targets do not count; where the text is no multiple of a block
 * they are the definition's. */
static void test_last_latents(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    char words[512];
    for (int type = LS_F64; type <= LS_F32; type++) {
        ls_model_config configs[2];
        ls_model *all = make_model(&ctx, last_block, (ls_dtype)type, &configs[0]);
        snprintf(words, sizeof words, "%s mixer.loss=last", last_block);
        ls_model *last = make_model(&ctx, words, (ls_dtype)type, &configs[1]);
        const ls_model_example example = ls_model_example_of(&configs[1], 24);
        assert_true(example.targets == 24 && example.trained == 6);
        assert_int_equal(ls_model_example_of(&configs[0], 24).trained, 24);
        assert_int_equal(ls_model_example_of(&configs[1], 4).trained, 4);
        ls_parameters_clear_gradient(all->store);
        ls_parameters_clear_gradient(last->store);
        double *want = losses(all, LS_MODEL_TRAIN, 24, 6), bar = type == LS_F64 ? 1e-12 : 1e-5;
        double *got = losses(last, LS_MODEL_TRAIN, 24, 6);
        double *tested = losses(last, LS_MODEL_LOSS, 24, 24); /* has every block */
        double *every = losses(all, LS_MODEL_LOSS, 24, 24);
        mixer_same("last latents", got + 18, want + 18, 6, bar);
        mixer_same("a test", tested, every, 24, 0);
        double *ours = calloc((size_t)all->store->total, sizeof *ours);
        double *theirs = calloc((size_t)all->store->total, sizeof *theirs);
        for (int64_t i = 0; i < all->store->total; i++) {
            const bool wide = type == LS_F64;
            theirs[i] = wide ? ((double *)all->store->gradient)[i]
                             : (double)((float *)all->store->gradient)[i];
            ours[i] = wide ? ((double *)last->store->gradient)[i]
                           : (double)((float *)last->store->gradient)[i];
        }
        mixer_same("gradients of the last latents", ours, theirs, all->store->total, bar);
        free(got), free(want), free(tested), free(every), free(ours), free(theirs);
        release_model(all, &configs[0]);
        release_model(last, &configs[1]);
    }
}

/* The same at a length that is no multiple, against the definition: latent i stands at n
 * - N + i. */
static void test_last_latents_are_defined(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(T * D, 3);
    for (int i = 4; i < PLANS; i++) {
        plan c = plans[i];
        char words[256];
        snprintf(words, sizeof words, "%s loss=last", c.words);
        c.words = words;
        mixer_case made = case_of(&ctx, &c);
        const ls_program_options options = {
            .type = LS_F64, .batch = 1, .length = T, .train = true, .guarded = true};
        bench b = bench_new(&ctx, &(subject){words, mixer_record, &made}, options);
        mixer_put(&b, "x", x);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *y = read_all(ls_program_find(b.program, "y"));
        table want = define(b.store, &c, x, T, c.latents);
        for (int64_t j = 0; j < (T - c.latents) * D; j++) assert_true(y[j] == 0);
        mixer_same(words, y + (T - c.latents) * D, want.at, c.latents * D, 1e-12);
        check_gradients(&ctx, &(subject){words, mixer_record, &made},
                        (ls_program_options){.batch = 1, .length = T, .train = true}, inputs, 2);
        free(y), free(want.at);
        bench_free(&b);
        mixer_release(&made.mixer);
    }
    free(x);
}

/* ---- keys that training leaves out ---- */

enum { SEED = 5, STEP = 7 };

/* The draws of a program, in their order: what its nodes' streams say at a seed and a step. */
static int drawn_rows(const bench *b, uint32_t step, uint8_t kept[2][64]) {
    int draws = 0;
    for (size_t i = 0; i < b->program->nodes.count; i++) {
        const ls_node *node = b->program->nodes.at[i];
        if (node->op->name == NULL || strcmp(node->op->name, "drop_rows") != 0) continue;
        const ls_drop_rows_attributes *about = node->attributes;
        const ls_tensor *rows = node->out[0];
        assert_true(draws < 2 && ls_count(rows) <= 64);
        for (int64_t j = 0; j < ls_count(rows); j++) {
            uint32_t words[4];
            ls_random_block((ls_random){.seed = SEED, .stream = about->drop.stream, .step = step},
                            (uint64_t)j / 4, words);
            bool drop = (double)words[j % 4] < about->drop.share * 4294967295.0;
            kept[draws][j] = !drop || j % rows->dim[1] >= about->count;
        }
        draws++;
    }
    return draws;
}

static double *dropped_outputs(bench *b, const double *x, uint32_t step) {
    mixer_put(b, "x", x);
    expect(b->ctx, ls_program_run(b->program, NULL, SEED, step));
    return read_all(ls_program_find(b->program, "y"));
}

static const struct {
    const char *words;
    bool last;
    int64_t spared; /* in blocks of 5 */
    int draws;
} drops[] = {
    {"drop=0.5", false, 5, 1},
    {"drop=0.6 drop_latents=0.4", false, 5, 2},
    {"drop=0.7 dropped=all", false, 0, 1},
    {"drop=0.5 loss=last", true, 0, 1}, /* the draw spares the latents itself */
    {"drop=0.5 loss=last dropped=all drop_latents=0.5", true, 0, 2},
};

/* Against the definition with the same draws; the same bits for the same step, whatever ran before;
 * nothing is left out but in training. */
static void test_drop(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    double *x = mixer_numbers(B * T * D, 3);
    for (size_t i = 0; i < sizeof drops / sizeof drops[0]; i++) {
        plan c = plans[4];
        char words[256];
        uint8_t kept[2][64];
        snprintf(words, sizeof words, "%s %s", plans[4].words, drops[i].words);
        c.words = words;
        c.spared = drops[i].spared;
        mixer_case made = case_of(&ctx, &c);
        const subject what = {words, mixer_record, &made};
        const ls_program_options options = {
            .type = LS_F64, .batch = B, .length = T, .train = true, .guarded = true};
        bench b = bench_new(&ctx, &what, options), again = bench_new(&ctx, &what, options);
        assert_int_equal(drawn_rows(&b, STEP, kept), drops[i].draws);
        double *before = dropped_outputs(&b, x, STEP - 1), *y = dropped_outputs(&b, x, STEP);
        double *resumed = dropped_outputs(&again, x, STEP);
        assert_memory_equal(y, resumed, B * T * D * sizeof *y);
        assert_memory_not_equal(y, before, B * T * D * sizeof *y);
        ls_program_options narrow = options;
        narrow.type = LS_F32;
        bench fast = bench_new(&ctx, &what, narrow);
        double *single = dropped_outputs(&fast, x, STEP);
        if (!(nmse(single, y, B * T * D) <= 1e-11)) fail_msg("%s: wrong in f32", words);
        free(single);
        bench_free(&fast);
        for (int64_t s = 0; s < B; s++) {
            const int64_t shown = drops[i].last ? c.latents : 0, latents = shown > 0 ? shown : T;
            c.kept[0] = kept[0] + s * T;
            c.kept[1] = drops[i].draws == 2 ? kept[1] + s * latents : NULL;
            table want = define(b.store, &c, x + s * T * D, T, shown);
            mixer_same(words, y + (s + 1) * T * D - latents * D, want.at, latents * D, 1e-12);
            free(want.at);
        }
        check_gradients(&ctx, &what, (ls_program_options){.batch = 2, .length = T, .train = true},
                        inputs, 2);
        mixer_case plain = case_of(&ctx, &plans[4]);
        double *tested = mixer_outputs(&ctx, &made, LS_F64, B, T, x, NULL);
        double *usual = mixer_outputs(&ctx, &plain, LS_F64, B, T, x, NULL);
        assert_memory_equal(tested, usual, B * T * D * sizeof *x);
        free(before), free(y), free(resumed), free(tested), free(usual);
        bench_free(&b);
        bench_free(&again);
        mixer_release(&made.mixer);
        mixer_release(&plain.mixer);
    }
    free(x);
}

static void record_drop(ls_program *p, const void *about) {
    const double *share = about;
    ls_keep(p, "y", ls_drop_rows(p, 3, 1001, 900, *share));
}

/* As many as were asked for, others in each sequence, and none behind the first 900. */
static void test_share(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    const double share = 0.3;
    bench b =
        bench_new(&ctx, &(subject){"drop_rows", record_drop, &share},
                  (ls_program_options){
                      .type = LS_F32, .batch = 3, .length = 1001, .train = true, .guarded = true});
    expect(&ctx, ls_program_run(b.program, NULL, SEED, STEP));
    assert_true(ls_program_guards_intact(b.program));
    const uint8_t *kept = ls_data(ls_program_find(b.program, "y"));
    int64_t dropped[3] = {0};
    for (int s = 0; s < 3; s++) {
        for (int t = 0; t < 900; t++) dropped[s] += kept[s * 1001 + t] == 0;
        for (int t = 900; t < 1001; t++) assert_int_equal(kept[s * 1001 + t], 1);
        assert_in_range(dropped[s], 270 - 55, 270 + 55); /* four deviations */
    }
    assert_memory_not_equal(kept, kept + 1001, 900);
    bench_free(&b);
}

/* However a text is cut the losses are the same. */
static void test_any_cut(void **state) {
    (void)state;
    enum { LENGTH = 40 };
    static const int64_t cuts[][4] = {{1, 1, 1, 1}, {40}, {7, 1, 13, 2}};
    ls_ctx ctx = ctx_of_one_thread();
    char words[512];
    snprintf(words, sizeof words, "%s mixer.blocks=2 mixer.share_blocks=later mixer.loss=last",
             last_block);
    ls_model_config config;
    ls_model *model = make_model(&ctx, words, LS_F64, &config);
    double *want = losses(model, LS_MODEL_LOSS, LENGTH, LENGTH), got[LENGTH];
    int32_t tokens[LENGTH], targets[LENGTH];
    for (int64_t t = 0; t < LENGTH; t++) {
        tokens[t] = (int32_t)((t * t + 3 * t) % 9);
        targets[t] = (int32_t)((t * 7 + 1) % 9);
    }
    for (int c = 0; c < 3; c++) {
        ls_stream *stream;
        expect(&ctx, ls_stream_new(model, 1, LENGTH, 16, &stream));
        for (int64_t at = 0, n, i = 0; at < LENGTH; at += n, i++) {
            n = ls_min(cuts[c][i % 4] > 0 ? cuts[c][i % 4] : LENGTH, LENGTH - at);
            expect(&ctx, ls_stream_loss(stream, tokens + at, targets + at, n, n, got + at));
        }
        mixer_same("a text that is cut", got, want, LENGTH, 1e-11);
        ls_stream_free(stream);
    }
    free(want);
    release_model(model, &config);
}

/* Latents that go on through layers of their own, pooled for a class: padding changes nothing, and
 * gradients are differences. */
static void test_classifier_of_latents(void **state) {
    (void)state;
    enum { LENGTH = 11, REAL = 7 };
    ls_ctx ctx = ctx_of_one_thread();
    ls_model_config config;
    ls_model *model = make_model(&ctx,
                                 "model.layers=perceiver,attention model.causal=false "
                                 "model.head=classify model.classes=4 model.position=learned "
                                 "mixer.heads=2 mixer.perceiver.output=latents "
                                 "mixer.perceiver.latents=5 mixer.perceiver.features=fourier "
                                 "mixer.perceiver.bands=3 mixer.perceiver.cross_shape=q",
                                 LS_F64, &config);
    ls_program *program[2];
    double *logits[2], loss[2];
    int32_t tokens[LENGTH], class = 2;
    for (int i = 0; i < 2; i++) {
        const ls_program_options options = {.batch = 1, .length = i == 0 ? REAL : LENGTH};
        expect(&ctx, ls_model_program(model, LS_MODEL_LOGITS, options, &program[i]));
        for (int64_t t = 0; t < LENGTH; t++) tokens[t] = t < REAL ? (int32_t)(t * t % 9) : -1;
        expect(&ctx, ls_model_put_tokens(model, program[i], "tokens", tokens));
        expect(&ctx, ls_program_run(program[i], NULL, 0, 0));
        logits[i] = read_all(ls_program_find(program[i], "logits"));
        ls_program_free(program[i]);
    }
    mixer_same("padded", logits[1], logits[0], 4, 1e-12);
    free(logits[0]), free(logits[1]);
    ls_program *train;
    expect(&ctx, ls_model_program(model, LS_MODEL_TRAIN,
                                  (ls_program_options){.batch = 1, .length = LENGTH}, &train));
    expect(&ctx, ls_model_put_tokens(model, train, "tokens", tokens));
    expect(&ctx, ls_model_put_tokens(model, train, "targets", &class));
    put(ls_program_find(train, "weights"), 0, 1);
    ls_parameters_clear_gradient(model->store);
    expect(&ctx, ls_program_run(train, NULL, 0, 0));
    double *gradient = malloc((size_t)model->store->total * sizeof *gradient);
    memcpy(gradient, model->store->gradient, (size_t)model->store->total * sizeof *gradient);
    for (size_t i = 0; i < model->store->count; i++) {
        const ls_parameter *parameter = &model->store->items[i];
        double *value = ls_parameter_master(model->store, parameter), h = 1e-5, kept = *value;
        for (int side = 0; side < 2; side++) {
            *value = kept + (side == 0 ? h : -h);
            expect(&ctx, ls_program_run(train, NULL, 0, 0));
            loss[side] = get(ls_program_find(train, "loss"), 0);
        }
        *value = kept;
        const double difference = (loss[0] - loss[1]) / (2 * h);
        if (!(fabs(difference - gradient[parameter->offset]) <= 1e-7))
            fail_msg("gradient of %s is %.12g, differences give %.12g", parameter->name,
                     gradient[parameter->offset], difference);
    }
    free(gradient);
    ls_program_free(train);
    release_model(model, &config);
}

/* ---- sharing ---- */

/* Two uses of one set of weights get the sum of what the uses would get alone. */
static void test_sharing_adds_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ctx_of_one_thread();
    static const char *const words[2] = {
        "latents=5 heads=2 cross_attends=3 layers=1 share_cross=later share_blocks=all",
        "latents=5 heads=2 cross_attends=3 layers=1 share_cross=none share_blocks=none"};
    double *gradient[2];
    bench b[2];
    mixer_case c[2];
    memset(c, 0, sizeof c);
    for (int i = 0; i < 2; i++) {
        const ls_program_options options = {.type = LS_F64, .batch = B, .length = T, .grad = true};
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_perceiver, words[i], D, false, &c[i].mixer));
        b[i] = mixer_bench(&ctx, &c[i], options);
    }
    assert_null(ls_parameters_find(b[0].store, "cross.2.q.weight"));
    assert_null(ls_parameters_find(b[0].store, "blocks.1.0.q.weight"));
    for (size_t k = 0; k < b[1].store->count; k++) { /* the same weights, each for itself */
        const ls_parameter *own = &b[1].store->items[k];
        char name[96];
        snprintf(name, sizeof name, "%s", own->name);
        if (strncmp(name, "cross.2", 7) == 0) name[6] = '1';
        if (strncmp(name, "blocks.", 7) == 0) name[7] = '0';
        memcpy(ls_parameter_master(b[1].store, own), mixer_weight(b[0].store, name),
               (size_t)own->count * sizeof(double));
    }
    for (int i = 0; i < 2; i++) {
        fill_inputs(b[i].program, inputs, 3);
        ls_parameters_clear_gradient(b[i].store);
        expect(&ctx, ls_program_run(b[i].program, NULL, 0, 0));
        gradient[i] = b[i].store->gradient;
    }
    for (size_t k = 0; k < b[0].store->count; k++) {
        const ls_parameter *shared = &b[0].store->items[k];
        double *sum = calloc((size_t)shared->count, sizeof *sum);
        for (size_t u = 0; u < b[1].store->count; u++) {
            const ls_parameter *own = &b[1].store->items[u];
            char name[96];
            snprintf(name, sizeof name, "%s", own->name);
            if (strncmp(name, "cross.2", 7) == 0) name[6] = '1';
            if (strncmp(name, "blocks.", 7) == 0) name[7] = '0';
            for (int64_t j = 0; strcmp(name, shared->name) == 0 && j < own->count; j++)
                sum[j] += gradient[1][own->offset + j];
        }
        mixer_same(shared->name, gradient[0] + shared->offset, sum, shared->count, 1e-10);
        free(sum);
    }
    for (int i = 0; i < 2; i++) {
        bench_free(&b[i]);
        mixer_release(&c[i].mixer);
    }
}

/* ---- lengths and refusals ---- */

/* A text of 65,536 rows, both ways, takes memory and time that are linear in it. */
static void test_long_text(void **state) {
    (void)state;
    enum { LONG = 65536, W = 16 };
    ls_ctx ctx = ctx_of_one_thread();
    mixer_case c = {0};
    expect(&ctx,
           mixer_choose(&ctx, &ls_mixer_perceiver,
                        "latents=8 heads=2 features=fourier bands=4 queries=fourier cross_heads=1",
                        W, false, &c.mixer));
    bench b =
        mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F32, .batch = 1, .length = LONG});
    assert_true(ls_program_bytes(b.program) < (size_t)LONG * 2048);
    fill_inputs(b.program, inputs, 3);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    const ls_tensor *y = ls_program_find(b.program, "y");
    for (int64_t i = 0; i < ls_count(y); i += 977) assert_true(isfinite(get(y, i)));
    bench_free(&b);
    mixer_release(&c.mixer);
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *words, *said;
        bool causal;
    } wrong[] = {
        {"output=latents", "mixes all positions", true},
        {"queries=learned", "seen the whole text", true},
        {"features=fourier", "two ends", true},
        {"heads=5", "do not divide", true},
        {"heads=2 cross_heads=5", "of cross-attends", false},
        {"heads=2 decoder_heads=5", "of the decoder", false},
        {"heads=2 grid=1e9,1e9,1e9", "too large", false},
        {"heads=2 loss=last", "causal model", false},
        {"heads=2 drop=0.5", "causal model", false},
        {"heads=2 drop_latents=0.5", "causal model", false},
    };
    ls_ctx ctx = ctx_of_one_thread();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ctx.error = (ls_error){0};
        ls_status status =
            mixer_choose(&ctx, &ls_mixer_perceiver, wrong[i].words, 2 * D, wrong[i].causal, &mixer);
        assert_int_equal(status, LS_EUSE);
        if (strstr(ctx.error.message, wrong[i].said) == NULL)
            fail_msg("%s is refused with: %s", wrong[i].words, ctx.error.message);
        mixer_release(&mixer);
    }
    static const struct {
        const char *words, *said;
        bool padded;
    } recorded[] = {
        {"heads=2 cross_shape=q grid=4,4 features=fourier", "no place in a grid", false},
        {"heads=2 queries=learned length=16", "more rows than there are learned queries", false},
        {"heads=2 cross_heads=1 features=fourier", "set length", true},
    };
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++) {
        mixer_case c = {.padded = recorded[i].padded};
        ls_parameters *store;
        ls_program *program;
        ctx.error = (ls_error){0};
        expect(&ctx,
               mixer_choose(&ctx, &ls_mixer_perceiver, recorded[i].words, D, false, &c.mixer));
        expect(&ctx, ls_parameters_new(&ctx, LS_F64, &store));
        expect(&ctx,
               ls_program_new(&ctx, &(ls_program_options){.type = LS_F64, .batch = 1, .length = T},
                              store, &program));
        mixer_record(program, &c);
        assert_true(ls_failed(program));
        assert_non_null(strstr(ctx.error.message, recorded[i].said));
        ls_program_free(program);
        ls_parameters_free(store);
        mixer_release(&c.mixer);
    }
    static const struct {
        const char *words, *said;
    } models[] = {
        {"model.layers=2 mixer.loss=last", "one such layer"},
        {"model.layers=1 mixer.loss=last model.segment=8", "one such layer"},
        {"model.layers=1 mixer.loss=last model.head=classify model.classes=3", "one such layer"},
        {"model.layers=1 model.position=rope", "takes no position"},
    };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        char all[256], *rest = NULL;
        ls_settings settings = {0};
        ls_model_config config;
        ctx.error = (ls_error){0};
        snprintf(all, sizeof all, "model.mixer=perceiver model.vocabulary=9 %s", models[i].words);
        for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            expect(&ctx, ls_settings_put_word(&ctx, &settings, word));
        assert_int_equal(ls_model_config_read(&ctx, &settings, &config), LS_EUSE);
        if (strstr(ctx.error.message, models[i].said) == NULL)
            fail_msg("%s is refused with: %s", models[i].words, ctx.error.message);
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_fourier_features),
        cmocka_unit_test(test_stretched_texts),
        cmocka_unit_test(test_order_is_not_seen),
        cmocka_unit_test(test_padding),
        cmocka_unit_test(test_latents_as_rows_are_attention),
        cmocka_unit_test(test_one_block_is_a_transformer),
        cmocka_unit_test(test_last_latents),
        cmocka_unit_test(test_last_latents_are_defined),
        cmocka_unit_test(test_drop),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_any_cut),
        cmocka_unit_test(test_classifier_of_latents),
        cmocka_unit_test(test_sharing_adds_gradients),
        cmocka_unit_test(test_long_text),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
