/* Perceiver: its definition as sums, and cases of it. */
#ifndef LS_TESTS_PERCEIVER_FIXTURE_H
#define LS_TESTS_PERCEIVER_FIXTURE_H

#include "mixer_case.h"

enum { D = 12, T = 17, B = 2 };

extern const ls_mixer_type ls_mixer_perceiver, ls_mixer_attention;
static const char *const inputs[] = {"x", "cot", NULL};

/* ---- the definition ---- */

/* Rows [count,width]. */
typedef struct table {
    int64_t count, width;
    double *at;
} table;

static inline table table_new(int64_t count, int64_t width) {
    return (table){count, width, calloc((size_t)(count * width), sizeof(double))};
}

static inline table table_copy(const double *values, int64_t count, int64_t width) {
    table t = table_new(count, width);
    memcpy(t.at, values, (size_t)(count * width) * sizeof *values);
    return t;
}

static inline double *named(const ls_parameters *store, const char *scope, const char *name) {
    char full[96];
    snprintf(full, sizeof full, "%s%s", scope, name);
    return mixer_weight(store, full);
}

static inline table product(const ls_parameters *store, const char *scope, const char *name,
                            table x) {
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

static inline table normed(const ls_parameters *store, const char *scope, const char *name,
                           table x) {
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
static inline bool left_out(const looks *how, int64_t n, int64_t m, int64_t j) {
    if (how->kept == NULL || how->kept[j] != 0) return false;
    if (how->spared < 0) return m != n;
    return how->spared == 0 || m < n / how->spared * how->spared;
}

/* The weights of what is left; 0 everywhere where nothing is. */
static inline void softmax_of_some(double *score, int64_t low, int64_t end) {
    bool any = false;
    for (int64_t j = low; j < end; j++) any |= score[j] > -INFINITY;
    for (int64_t j = low; j < end && !any; j++) score[j] = 0;
    double most = -INFINITY, sum = 0;
    for (int64_t j = low; j < end && any; j++) most = fmax(most, score[j]);
    for (int64_t j = low; j < end && any; j++) sum += score[j] = exp(score[j] - most);
    for (int64_t j = low; j < end && any; j++) score[j] /= sum;
}

/* Pairs (2i, 2i + 1) of the first 2 P elements by position * 10000^(-i / (P - 1)). */
static inline void turn(double *head, int64_t width, double share, int64_t position) {
    int64_t pairs = (int64_t)((double)width * share) / 2;
    for (int64_t i = 0; i < pairs; i++) {
        double angle =
            (double)position * (pairs == 1 ? 1 : pow(10000, -(double)i / (double)(pairs - 1)));
        double a = head[2 * i], b = head[2 * i + 1];
        head[2 * i] = a * cos(angle) - b * sin(angle);
        head[2 * i + 1] = a * sin(angle) + b * cos(angle);
    }
}

static inline void define_layer(const ls_parameters *store, const char *scope, looks how, table *z,
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

static inline int weights_of(int share, int64_t i) {
    return share == 0 ? (int)i : share == 1 && i > 0 ? 1 : 0;
}

static inline table fourier_table(const ls_fourier *fourier, int64_t count) {
    table t = table_new(count, ls_fourier_width(fourier));
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < t.width; c++) t.at[i * t.width + c] = ls_fourier_at(fourier, i, c);
    return t;
}

/* One text of `count` rows; causal: its last `shown` rows are the latents (0: all, in blocks). */
static inline table define(const ls_parameters *store, const plan *c, const double *rows,
                           int64_t count, int64_t shown) {
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

static inline mixer_case case_of(ls_ctx *ctx, const plan *c) {
    mixer_case made = {0};
    expect(ctx, mixer_choose(ctx, &ls_mixer_perceiver, c->words, D, c->causal, &made.mixer));
    return made;
}

#endif
