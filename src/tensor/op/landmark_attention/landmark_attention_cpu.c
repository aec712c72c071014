/* Landmark attention. Tiles of queries lie within a block and meet the blocks of keys up to their
 * own. First come the scores of the landmarks and of the own block, which tell the sum of the
 * shared softmax; then every weight is known at once, so that nothing is rescaled. Backward meets
 * tiles and blocks twice, once for the queries' gradients and once for the keys', so that every sum
 * has one owner. All types go the same way, in their wide type. */
#include <math.h>
#include <omp.h>

#include "tensor/cpu/head_rows.h"
#include "tensor/op/landmark_attention/landmark_attention.h"
#include "tensor/op/landmark_attention/landmark_rows_cpu.h"

enum { TILE = 64 };

typedef struct sizes {
    int64_t B, T, H, G, K, V, block, blocks, tile, tiles; /* tiles of a block */
    double scale;
    ls_dtype type, wide;
} sizes;

static sizes sizes_of(const ls_node *node) {
    const ls_landmark_attributes *about = node->attributes;
    const ls_tensor *q = node->in[LS_GROUPED_Q], *v = node->in[LS_GROUPED_V];
    sizes s = {.B = q->dim[0],
               .T = q->dim[1],
               .H = q->dim[2],
               .G = v->dim[2],
               .K = q->dim[3],
               .V = v->dim[3],
               .scale = about->scale,
               .type = q->type,
               .wide = ls_wide_of(q)};
    s.block = ls_min(about->block, s.T + 1); /* a block that is not whole has no landmark */
    s.blocks = ls_ceil_div(s.T, s.block);
    s.tile = ls_min(s.block, TILE);
    s.tiles = ls_ceil_div(s.block, s.tile);
    return s;
}

/* What a thread works in, of the wide type. */
typedef struct scratch {
    void *logits;     /* [tile, blocks]: scores of the landmarks */
    void *weights;    /* [tile, block]: scores, then weights */
    void *gradients;  /* [tile, block]: dO V', then those of scores */
    void *sum;        /* [tile or block, K or V] */
    void *values;     /* [block, V] */
    void *cot, *seen; /* [tile, V]: dO and O */
    void *product;
} scratch;

static size_t product_bytes(const sizes *s) {
    const int64_t M = s->tile, N = s->block;
    const ls_dtype wide = s->wide, type = s->type;
    const size_t bytes[] = {
        ls_product_bytes(M, ls_max(s->blocks, N), s->K, type, type),
        ls_product_bytes(M, N, s->V, type, type),
        ls_product_bytes(M, ls_max(s->K, s->V), N, wide, type),
        ls_product_bytes(N, ls_max(s->K, s->V), M, wide, type),
    };
    size_t most = 0;
    for (int i = 0; i < 4; i++) most = bytes[i] > most ? bytes[i] : most;
    return most;
}

static size_t lay_scratch(const sizes *s, char *base, scratch *d) {
    const size_t size = ls_dtype_size(s->wide);
    const int64_t wide = ls_max(s->K, s->V);
    size_t used = 0;
    d->logits = ls_take(base, &used, (size_t)(s->tile * s->blocks) * size);
    d->weights = ls_take(base, &used, (size_t)(s->tile * s->block) * size);
    d->gradients = ls_take(base, &used, (size_t)(s->tile * s->block) * size);
    d->sum = ls_take(base, &used, (size_t)(s->block * wide) * size);
    d->values = ls_take(base, &used, (size_t)(s->block * s->V) * size);
    d->cot = ls_take(base, &used, (size_t)(s->tile * s->V) * size);
    d->seen = ls_take(base, &used, (size_t)(s->tile * s->V) * size);
    d->product = ls_take(base, &used, product_bytes(s));
    return used;
}

static size_t workspace(const ls_node *node, int threads) {
    const sizes s = sizes_of(node);
    scratch d;
    return (size_t)threads * lay_scratch(&s, NULL, &d);
}

static scratch scratch_of(const sizes *s, const ls_run *run) {
    scratch d;
    const size_t each = lay_scratch(s, NULL, &d);
    lay_scratch(s, (char *)run->workspace + (size_t)omp_get_thread_num() * each, &d);
    return d;
}

/* c [m,n], `stride` apart, (+)= a b */
static void multiply(const sizes *s, const scratch *d, int64_t m, int64_t n, int64_t k, ls_matrix a,
                     ls_matrix b, void *c, int64_t stride, bool add) {
    if (m < 1 || n < 1 || k < 1) return;
    const ls_gemm g = {.m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .b = b,
                       .c = c,
                       .c_type = s->wide,
                       .c_stride = stride,
                       .add = add};
    ls_gemm_run(&g, 1, d->product);
}

/* ---- rows of scores, in the wide type ---- */

static void *row_of(const sizes *s, void *rows, int64_t i, int64_t width) {
    return (char *)rows + (size_t)(i * width) * ls_dtype_size(s->wide);
}

static double at(const sizes *s, const void *row, int64_t j) {
    return s->wide == LS_F64 ? ((const double *)row)[j] : (double)((const float *)row)[j];
}

static void put(const sizes *s, void *row, int64_t j, double value) {
    if (s->wide == LS_F64)
        ((double *)row)[j] = value;
    else
        ((float *)row)[j] = (float)value;
}

static void times(const sizes *s, void *row, int64_t n, double factor) {
    for (int64_t j = 0; j < n; j++) put(s, row, j, at(s, row, j) * factor);
}

static double product(const sizes *s, const void *a, const void *b, int64_t n) {
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += at(s, a, j) * at(s, b, j);
    return sum;
}

/* ---- tiles ---- */

/* Queries [first, first + rows) of a head, which lie in block `own`. */
typedef struct tile {
    ls_head head, keys;
    int64_t own, first, rows;
} tile;

/* Tile number i of a head; rows < 1 where it is behind the text's end. */
static tile tile_at(const sizes *s, ls_head head, int64_t i) {
    tile t = {.head = head, .keys = {head.b, head.h / (s->H / s->G)}, .own = i / s->tiles};
    const int64_t inside = i % s->tiles * s->tile;
    t.first = t.own * s->block + inside;
    t.rows = ls_min(ls_min(s->tile, s->block - inside), s->T - t.first);
    return t;
}

/* Rows of block c without its landmark; of the own block those that the tile's last query sees. */
static int64_t rows_seen(const sizes *s, const tile *t, int64_t c) {
    return c < t->own ? s->block - 1 : ls_min(s->block - 1, t->first + t->rows - t->own * s->block);
}

/* Rows of the own block that query i of the tile sees. */
static int64_t own_seen(const sizes *s, const tile *t, int64_t i) {
    return ls_min(s->block - 1, t->first + i + 1 - t->own * s->block);
}

/* Scores, without their scale, with the first `rows` of block c. */
static void score(const sizes *s, const ls_node *node, const scratch *d, const tile *t, int64_t c,
                  int64_t rows) {
    multiply(s, d, t->rows, rows, s->K, ls_head_matrix(node->in[LS_GROUPED_Q], t->head, t->first),
             ls_transposed(ls_head_matrix(node->in[LS_GROUPED_K], t->keys, c * s->block)),
             d->weights, s->block, false);
}

/* The same with the landmarks of all earlier blocks. */
static void score_landmarks(const sizes *s, const ls_node *node, const scratch *d, const tile *t) {
    ls_matrix keys = ls_head_matrix(node->in[LS_GROUPED_K], t->keys, s->block - 1);
    keys.stride *= s->block;
    if (t->own > 0)
        multiply(s, d, t->rows, t->own, s->K,
                 ls_head_matrix(node->in[LS_GROUPED_Q], t->head, t->first), ls_transposed(keys),
                 d->logits, s->blocks, false);
}

/* A row's scores of an earlier block become its weights, given the landmark's probability: of 1. */
static void share(const sizes *s, void *row, double probability) {
    const int64_t n = s->block - 1;
    const double sum =
        ls_row_exponentials(s->wide, row, n, s->scale, s->scale * ls_row_largest(s->wide, row, n));
    times(s, row, n, probability / sum);
}

static int64_t lse_at(const sizes *s, const tile *t, int64_t i) {
    return (t->head.b * s->H + t->head.h) * s->T + t->first + i;
}

/* ---- forward ---- */

/* The logarithm of the shared sum of query i, whose scores are both there. */
static double log_sum(const sizes *s, const scratch *d, const tile *t, int64_t i) {
    const void *logits = row_of(s, d->logits, i, s->blocks);
    const void *own = row_of(s, d->weights, i, s->block);
    const int64_t seen = own_seen(s, t, i);
    const double most = s->scale * fmax(ls_row_largest(s->wide, logits, t->own),
                                        ls_row_largest(s->wide, own, seen));
    double sum = 0;
    for (int64_t c = 0; c < t->own; c++) sum += exp(s->scale * at(s, logits, c) - most);
    for (int64_t j = 0; j < seen; j++) sum += exp(s->scale * at(s, own, j) - most);
    return most + log(sum);
}

static void add_values(const sizes *s, const ls_node *node, const scratch *d, const tile *t,
                       int64_t c, int64_t rows, bool add) {
    multiply(s, d, t->rows, s->V, rows, ls_plain_matrix(d->weights, s->wide, s->block),
             ls_head_matrix(node->in[LS_GROUPED_V], t->keys, c * s->block), d->sum, s->V, add);
}

static void forward_tile(const sizes *s, const ls_node *node, const scratch *d, const tile *t) {
    void *lse = ls_data(node->out[1]);
    const int64_t seen = rows_seen(s, t, t->own);
    score_landmarks(s, node, d, t);
    score(s, node, d, t, t->own, seen);
    for (int64_t i = 0; i < t->rows; i++) {
        void *row = row_of(s, d->weights, i, s->block);
        const double sum = log_sum(s, d, t, i);
        const int64_t own = own_seen(s, t, i);
        put(s, lse, lse_at(s, t, i), sum);
        ls_row_exponentials(s->wide, row, own, s->scale, sum);
        for (int64_t j = own; j < seen; j++) put(s, row, j, 0);
    }
    add_values(s, node, d, t, t->own, seen, false);
    for (int64_t c = 0; c < t->own; c++) {
        score(s, node, d, t, c, s->block - 1);
        for (int64_t i = 0; i < t->rows; i++) {
            const double logit = s->scale * at(s, row_of(s, d->logits, i, s->blocks), c);
            share(s, row_of(s, d->weights, i, s->block), exp(logit - at(s, lse, lse_at(s, t, i))));
        }
        add_values(s, node, d, t, c, s->block - 1, true);
    }
    ls_head_store(node->out[0], t->head, t->first, t->rows, d->sum, s->V);
}

static void forward(const ls_run *run, const ls_node *node) {
    const sizes s = sizes_of(node);
    const int64_t each = s.blocks * s.tiles;
#pragma omp parallel for schedule(dynamic) num_threads(run->threads)
    for (int64_t i = 0; i < s.B * s.H * each; i++) {
        const scratch d = scratch_of(&s, run);
        /* the longest first */
        const tile t = tile_at(&s, (ls_head){i / each / s.H, i / each % s.H}, each - 1 - i % each);
        if (t.rows > 0) forward_tile(&s, node, &d, &t);
    }
}

/* ---- backward ---- */

static void load_cotangents(const sizes *s, const ls_node *node, const scratch *d, const tile *t) {
    ls_head_load(node->in[LS_GROUPED_DY], t->head, t->first, t->rows, d->cot, s->V);
    ls_head_load(node->in[LS_GROUPED_Y], t->head, t->first, t->rows, d->seen, s->V);
}

/* A row's weights and, over dO V', gradients of its scores with the own block. */
static void meet_own(const sizes *s, void *weights, void *gradients, int64_t own, int64_t seen,
                     double lse, double mean) {
    ls_row_exponentials(s->wide, weights, own, s->scale, lse);
    for (int64_t j = 0; j < own; j++)
        put(s, gradients, j, s->scale * at(s, weights, j) * (at(s, gradients, j) - mean));
    for (int64_t j = own; j < seen; j++) {
        put(s, weights, j, 0);
        put(s, gradients, j, 0);
    }
}

/* The same with an earlier block, whose landmark's score stands behind the others. */
static void meet_earlier(const sizes *s, void *weights, void *gradients, double lse, double mean) {
    const int64_t n = s->block - 1;
    const double probability = exp(s->scale * at(s, weights, n) - lse);
    share(s, weights, 1);
    const double inside = product(s, weights, gradients, n);
    for (int64_t j = 0; j < n; j++) {
        const double weight = probability * at(s, weights, j);
        put(s, weights, j, weight);
        put(s, gradients, j, s->scale * weight * (at(s, gradients, j) - inside));
    }
    put(s, weights, n, 0);
    put(s, gradients, n, s->scale * probability * (inside - mean));
}

/* Weights and gradients of the scores of a tile with block c; the number of the block's rows that
 * take part. */
static int64_t meet(const sizes *s, const ls_node *node, const scratch *d, const tile *t,
                    int64_t c) {
    const void *lse = ls_data(node->in[LS_GROUPED_LSE]);
    const int64_t seen = rows_seen(s, t, c), rows = c < t->own ? s->block : seen;
    score(s, node, d, t, c, rows);
    multiply(s, d, t->rows, seen, s->V, ls_head_matrix(node->in[LS_GROUPED_DY], t->head, t->first),
             ls_transposed(ls_head_matrix(node->in[LS_GROUPED_V], t->keys, c * s->block)),
             d->gradients, s->block, false);
    for (int64_t i = 0; i < t->rows; i++) {
        void *weights = row_of(s, d->weights, i, s->block);
        void *gradients = row_of(s, d->gradients, i, s->block);
        const double sum = at(s, lse, lse_at(s, t, i));
        const double mean =
            product(s, row_of(s, d->cot, i, s->V), row_of(s, d->seen, i, s->V), s->V);
        if (c < t->own)
            meet_earlier(s, weights, gradients, sum, mean);
        else
            meet_own(s, weights, gradients, own_seen(s, t, i), seen, sum, mean);
    }
    return rows;
}

static void query_tile(const sizes *s, const ls_node *node, const scratch *d, const tile *t) {
    load_cotangents(s, node, d, t);
    for (int64_t c = 0; c <= t->own; c++) {
        const int64_t rows = meet(s, node, d, t, c);
        multiply(s, d, t->rows, s->K, rows, ls_plain_matrix(d->gradients, s->wide, s->block),
                 ls_head_matrix(node->in[LS_GROUPED_K], t->keys, c * s->block), d->sum, s->K,
                 c > 0);
    }
    ls_head_store(node->out[LS_GROUPED_Q], t->head, t->first, t->rows, d->sum, s->K);
}

/* Gradients of block c of a key head, from all queries that see it. */
static void key_block(const sizes *s, const ls_node *node, const scratch *d, ls_head keys,
                      int64_t c) {
    const ls_tensor *dk = node->out[LS_GROUPED_K], *dv = node->out[LS_GROUPED_V];
    const int64_t shared = s->H / s->G, rows = ls_min(s->block, s->T - c * s->block);
    const size_t size = ls_dtype_size(s->wide);
    memset(d->sum, 0, (size_t)(s->block * s->K) * size);
    memset(d->values, 0, (size_t)(s->block * s->V) * size);
    for (int64_t h = keys.h * shared; h < (keys.h + 1) * shared; h++)
        for (int64_t i = c * s->tiles; i < s->blocks * s->tiles; i++) {
            const tile t = tile_at(s, (ls_head){keys.b, h}, i);
            if (t.rows < 1) continue;
            load_cotangents(s, node, d, &t);
            const int64_t met = meet(s, node, d, &t, c);
            multiply(s, d, met, s->K, t.rows,
                     ls_transposed(ls_plain_matrix(d->gradients, s->wide, s->block)),
                     ls_head_matrix(node->in[LS_GROUPED_Q], t.head, t.first), d->sum, s->K, true);
            multiply(s, d, met, s->V, t.rows,
                     ls_transposed(ls_plain_matrix(d->weights, s->wide, s->block)),
                     ls_head_matrix(node->in[LS_GROUPED_DY], t.head, t.first), d->values, s->V,
                     true);
        }
    if (dk != NULL) ls_head_store(dk, keys, c * s->block, rows, d->sum, s->K);
    if (dv != NULL) ls_head_store(dv, keys, c * s->block, rows, d->values, s->V);
}

static void backward(const ls_run *run, const ls_node *node) {
    const sizes s = sizes_of(node);
    const int64_t each = s.blocks * s.tiles;
#pragma omp parallel num_threads(run->threads)
    {
        const scratch d = scratch_of(&s, run);
        if (node->out[LS_GROUPED_Q] != NULL) {
#pragma omp for schedule(dynamic) nowait
            for (int64_t i = 0; i < s.B * s.H * each; i++) {
                const tile t =
                    tile_at(&s, (ls_head){i / each / s.H, i / each % s.H}, each - 1 - i % each);
                if (t.rows > 0) query_tile(&s, node, &d, &t);
            }
        }
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < s.B * s.G * s.blocks; i++)
            key_block(&s, node, &d, (ls_head){i / s.blocks / s.G, i / s.blocks % s.G},
                      i % s.blocks);
    }
}

const ls_kernel LS_CPU_TABLE(landmark_attention)[] = {
    {"landmark_attention", {forward, forward, forward}, workspace},
    {"landmark_attention_grad", {backward, backward, backward}, workspace},
    {0},
};
