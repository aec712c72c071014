/* Gradients of attention.
 *
 * A piece of work is a part of the batch, one key head with all its query heads, and a part of the
 * keys ("column"). Inside a piece each pair of tiles is met once, and everything is summed in a
 * fixed order into places that belong to the piece; what several pieces contribute to is summed
 * afterwards, in the order of the pieces. The cut depends on the shapes only, so the bits do not
 * depend on the number of threads.
 *
 *   p = 2^(s - lse), dp = v dout^T, ds = p (dp - rowsum(dout * out)),
 *   dv += p dout, dk += ds q, dq += ds k */
#include <math.h>
#include <omp.h>

#include "tensor/cpu/matrix_unit.h"
#include "tensor/op/attention/attention_pairs_cpu.h"

enum {
    PIECES_WANTED = 8,      /* below this the keys are cut into columns */
    BATCH_PARTS_SHARED = 4, /* with gradients that all sequences share: copies of those */
};

typedef struct work_cut {
    int64_t batch_parts, columns, query_tiles;
    bool shared_gradients; /* of a table or of relative keys */
    bool unit;
} work_cut;

/* Partial results of pieces, in the order of segments. */
typedef struct partials {
    float *dq[LS_SEGMENTS_MOST];          /* [column][B][H][tile][padded K][QUERIES], columns > 1 */
    float *drelative_q[LS_SEGMENTS_MOST]; /* the same */
    float *dtable[LS_SEGMENTS_MOST];      /* [batch part][column][H][rows] */
    float *drelative[LS_SEGMENTS_MOST];   /* [batch part][column][H][rows][padded K] */
} partials;

/* What one thread works in: all queries of a head, and all keys of a key head. */
typedef struct thread_space {
    query_tile *tiles;
    float *turned, *relative_turned; /* [tile][padded K][QUERIES] */
    float *q_rows, *relative_rows;   /* [tile][QUERIES][padded K] */
    float *dout_turned, *dout_rows;  /* [tile][padded V][QUERIES], [tile][QUERIES][padded V] */
    float *dq, *drelative_q;         /* [tile][padded K][QUERIES] */
    float *lse, *dot;                /* [tile][QUERIES], lse in units of log 2 */
    float *dk, *dv;                  /* [key row][padded K or V] */
    float *k_rows, *v_rows, *decay, *decayed, *fresh; /* [KEYS][padded K or V] */
    float *s, *ds;                                    /* [KEYS][QUERIES] */
    float *band, *meet, *dband;                       /* [BAND][..] */
    /* With AMX turned, q_rows, dout_turned and dout_rows hold pairs of elements and of rows. */
    ls_bf16 *k_halves, *v_halves;  /* [KEYS][padded K or V] */
    ls_bf16 *k_turned;             /* [padded K][KEYS] */
    ls_bf16 *p_halves, *ds_halves; /* [KEYS][QUERIES] */
    float *ds_pairs, *dout;        /* [KEYS / 2][QUERIES], [QUERIES][padded V] */
} thread_space;

static work_cut cut_work(const ls_attention_job *job) {
    work_cut cut = {.batch_parts = job->B,
                    .columns = 1,
                    .query_tiles = ls_ceil_div(job->T, QUERIES),
                    .unit = job->out.type == LS_BF16 && ls_unit_usable()};
    int64_t key_tiles = 1;
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        cut.shared_gradients |= source->dtable != NULL || source->drelative.data != NULL;
        key_tiles = ls_max(key_tiles, ls_ceil_div(source->key_rows, KEYS));
    }
    if (cut.shared_gradients) cut.batch_parts = ls_min(job->B, BATCH_PARTS_SHARED);
    int64_t pieces = cut.batch_parts * job->G;
    if (pieces < PIECES_WANTED) cut.columns = ls_min(key_tiles, ls_ceil_div(PIECES_WANTED, pieces));
    return cut;
}

static int64_t turned_floats(const ls_attention_job *job, const work_cut *cut) {
    return cut->query_tiles * padded(job->K) * QUERIES;
}

static size_t lay_out_partials(const ls_attention_job *job, const work_cut *cut, char *base,
                               partials *to) {
    space from = {.base = base};
    int64_t copies = cut->batch_parts * cut->columns * job->H;
    int64_t all_queries =
        cut->columns > 1 ? cut->columns * job->B * job->H * turned_floats(job, cut) : 0;
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        bool relative = source->drelative.data != NULL;
        to->dq[s] = space_take(&from, all_queries);
        to->drelative_q[s] = space_take(&from, source->drelative_q.data ? all_queries : 0);
        to->dtable[s] = space_take(&from, source->dtable ? copies * source->table_rows : 0);
        to->drelative[s] =
            space_take(&from, relative ? copies * source->relative_rows * padded(job->K) : 0);
    }
    return from.used;
}

static size_t lay_out(const ls_attention_job *job, const work_cut *cut, char *base,
                      thread_space *to) {
    const int64_t k = padded(job->K), v = padded(job->V), tiles = cut->query_tiles;
    const int64_t turned = turned_floats(job, cut), values = tiles * v * QUERIES;
    int64_t keys = 0;
    bool relative = false;
    for (int s = 0; s < job->segments; s++) {
        keys = ls_max(keys, ls_round_up(job->source[s].key_rows, KEYS));
        relative |= job->source[s].relative.data != NULL;
    }
    space from = {.base = base};
    int64_t tile_floats = (int64_t)(sizeof(query_tile) / sizeof(float) + 1);
    to->tiles = (query_tile *)(void *)space_take(&from, tiles * tile_floats);
    to->turned = space_take(&from, turned);
    to->q_rows = space_take(&from, turned);
    to->dq = space_take(&from, turned);
    to->relative_turned = space_take(&from, relative ? turned : 0);
    to->relative_rows = space_take(&from, relative ? turned : 0);
    to->drelative_q = space_take(&from, relative ? turned : 0);
    to->dout_turned = space_take(&from, values);
    to->dout_rows = space_take(&from, values);
    to->lse = space_take(&from, tiles * QUERIES);
    to->dot = space_take(&from, tiles * QUERIES);
    to->dk = space_take(&from, keys * k);
    to->dv = space_take(&from, keys * v);
    to->k_rows = space_take(&from, KEYS * k);
    to->v_rows = space_take(&from, KEYS * v);
    to->decay = space_take(&from, KEYS * k);
    to->decayed = space_take(&from, KEYS * k);
    to->fresh = space_take(&from, KEYS * k);
    to->s = space_take(&from, KEYS * QUERIES);
    to->ds = space_take(&from, KEYS * QUERIES);
    to->band = space_take(&from, relative ? BAND * k : 0);
    to->dband = space_take(&from, relative ? BAND * k : 0);
    to->meet = space_take(&from, relative ? BAND * QUERIES : 0);
    int64_t halves = cut->unit ? KEYS / 2 : 0;
    to->k_halves = (ls_bf16 *)(void *)space_take(&from, halves * k);
    to->v_halves = (ls_bf16 *)(void *)space_take(&from, halves * v);
    to->k_turned = (ls_bf16 *)(void *)space_take(&from, halves * k);
    to->p_halves = (ls_bf16 *)(void *)space_take(&from, halves * QUERIES);
    to->ds_halves = (ls_bf16 *)(void *)space_take(&from, halves * QUERIES);
    to->ds_pairs = space_take(&from, halves * QUERIES);
    to->dout = space_take(&from, halves * v);
    return from.used;
}

size_t ls_attention_tiled_grad_workspace(const ls_attention_job *job, int threads) {
    work_cut cut = cut_work(job);
    partials shared;
    thread_space each;
    return lay_out_partials(job, &cut, NULL, &shared) +
           lay_out(job, &cut, NULL, &each) * (size_t)threads;
}

/* ---- the queries of a head ---- */

/* The queries' share of the decay, as ls_tile_queries gave it to them. */
static void decay_queries(const query_tile *tile, float *turned) {
    const ls_attention_segment *about = tile->source->about;
    for (int64_t e = 0; e < tile->job->K; e++) {
        int64_t pair = ls_attention_decay_pair(about, e);
        for (int r = 0; pair >= 0 && r < tile->count; r++)
            turned[e * QUERIES + r] *= (float)exp(about->log_decay[pair] * (double)tile->offset[r]);
    }
}

static void copy_rows(const ls_attention_array *x, const query_tile *tile, int64_t width,
                      float *to) {
    float_rows rows = ls_tile_load(x, tile->b, tile->h, tile->row, tile->count, QUERIES, width, to);
    if (rows.at == to) return;
    for (int r = 0; r < QUERIES; r++)
        memcpy(to + r * width, rows.at + r * rows.stride, (size_t)width * sizeof(float));
}

/* lse in units of log 2, infinite where a query has no key or is absent: its weights are then 0;
 * and the products of output and gradient. */
static void load_statistics(const query_tile *tile, const float *dout, float *out, float *lse,
                            float *dot) {
    const ls_attention_job *job = tile->job;
    const float *from = (const float *)job->lse + (tile->b * job->H + tile->h) * job->T + tile->row;
    float_rows rows =
        ls_tile_load(&job->out, tile->b, tile->h, tile->row, tile->count, QUERIES, job->V, out);
    for (int r = 0; r < QUERIES; r++) {
        float sum = 0;
        bool empty = r >= tile->count || from[r] == -INFINITY;
        for (int64_t e = 0; e < job->V && !empty; e++)
            sum += rows.at[r * rows.stride + e] * dout[r * padded(job->V) + e];
        lse[r] = empty ? INFINITY : from[r] * LOG2_E;
        dot[r] = sum;
    }
}

/* The forms in which products want a tile's queries and output gradients. */
static void load_tile(query_tile *tile, int64_t t, const thread_space *desk) {
    const ls_attention_job *job = tile->job;
    const int64_t k = padded(job->K) * QUERIES, v = padded(job->V) * QUERIES;
    const float unscale = 1 / score_factor(job);
    float *rows = desk->q_rows + t * k, *dout = desk->dout_rows + t * v;
    if (tile->source->about->decays) {
        ls_tile_turn(tile->turned, QUERIES, padded(job->K), QUERIES, rows, padded(job->K));
        for (int64_t e = 0; e < k; e++) rows[e] *= unscale;
    } else {
        copy_rows(&tile->source->q, tile, job->K, rows);
    }
    copy_rows(&job->dout, tile, job->V, dout);
    ls_tile_turn(dout, padded(job->V), QUERIES, padded(job->V), desk->dout_turned + t * v, QUERIES);
    load_statistics(tile, dout, desk->v_rows, desk->lse + t * QUERIES, desk->dot + t * QUERIES);
}

static void load_tile_unit(query_tile *tile, int64_t t, const thread_space *desk) {
    const ls_attention_job *job = tile->job;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    half_rows q = {desk->k_halves, wide_k};
    if (tile->turned != NULL) {
        ls_tile_turn(tile->turned, QUERIES, wide_k, QUERIES, desk->k_rows, wide_k);
        ls_half_round(desk->k_rows, QUERIES, wide_k, desk->k_halves);
    } else {
        q = ls_half_load(&tile->source->q, tile->b, tile->h, tile->row, tile->count, QUERIES,
                         job->K, desk->k_halves);
    }
    ls_half_pair_elements(q, wide_k, desk->turned + t * wide_k * QUERIES);
    ls_half_pair_rows(q, QUERIES, wide_k, desk->q_rows + t * wide_k * QUERIES, wide_k);
    half_rows dout = ls_half_load(&job->dout, tile->b, tile->h, tile->row, tile->count, QUERIES,
                                  job->V, desk->v_halves);
    ls_half_pair_elements(dout, wide_v, desk->dout_turned + t * wide_v * QUERIES);
    ls_half_pair_rows(dout, QUERIES, wide_v, desk->dout_rows + t * wide_v * QUERIES, wide_v);
    copy_rows(&job->dout, tile, job->V, desk->dout);
    load_statistics(tile, desk->dout, desk->v_rows, desk->lse + t * QUERIES,
                    desk->dot + t * QUERIES);
}

static void load_queries(const ls_attention_job *job, const work_cut *cut,
                         const ls_attention_source *source, int64_t b, int64_t h,
                         const thread_space *desk) {
    const int64_t k = padded(job->K) * QUERIES;
    for (int64_t t = 0; t < cut->query_tiles; t++) {
        query_tile *tile = &desk->tiles[t];
        tile->turned = cut->unit && !source->about->decays ? NULL : desk->turned + t * k;
        tile->relative_turned = desk->relative_turned + (source->relative.data ? t * k : 0);
        ls_tile_queries(tile, job, source, b, h, t * QUERIES, cut->unit ? 1 : score_factor(job),
                        desk->k_rows);
        if (cut->unit)
            load_tile_unit(tile, t, desk);
        else
            load_tile(tile, t, desk);
        if (source->relative.data != NULL)
            copy_rows(&source->relative_q, tile, job->K, desk->relative_rows + t * k);
    }
    memset(desk->dq, 0, (size_t)(cut->query_tiles * k) * sizeof(float));
    if (source->relative.data != NULL)
        memset(desk->drelative_q, 0, (size_t)(cut->query_tiles * k) * sizeof(float));
}

/* ---- a pair of tiles ---- */

/* s becomes p, ds (holding dp) becomes ds; rows from count on are 0. */
static void differentiate(int64_t count, int64_t rows, const float *lse, const float *dot, float *s,
                          float *ds) {
    for (int r = 0; r < QUERIES; r += LANES) {
        const vec base = vec_load(lse + r), mean = vec_load(dot + r);
        for (int64_t j = 0; j < count; j++) {
            int64_t at = j * QUERIES + r;
            vec p = vec_exp2(vec_load(s + at) - base);
            vec_store(s + at, p);
            vec_store(ds + at, p * (vec_load(ds + at) - mean));
        }
    }
    memset(s + count * QUERIES, 0, (size_t)((rows - count) * QUERIES) * sizeof(float));
    memset(ds + count * QUERIES, 0, (size_t)((rows - count) * QUERIES) * sizeof(float));
}

/* Sums of ds by distance, for the table. */
static void add_to_table(const query_tile *tile, const key_tile *keys, const float *ds,
                         float *dtable) {
    const ls_attention_source *source = tile->source;
    float slice[BAND] = {0};
    int64_t least = tile_whole_distance(tile, keys->row + keys->count - 1);
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j) - least;
        for (int r = 0; r < QUERIES; r++)
            slice[base + tile->whole_offset[r]] += ds[j * QUERIES + r];
    }
    for (int64_t d = 0; d < BAND; d++) {
        int64_t column = least + d + source->about->table_zero;
        dtable[ls_max(0, ls_min(column, source->table_rows - 1))] += slice[d];
    }
}

/* Distances that no band holds: pair by pair. */
static void add_pairs_to_relative(const query_tile *tile, const key_tile *keys, const float *ds,
                                  const float *rows, float *drelative_q, float *drelative) {
    const ls_attention_source *source = tile->source;
    const int64_t K = tile->job->K, wide = padded(K);
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j);
        for (int r = 0; r < tile->count; r++) {
            const float by = ds[j * QUERIES + r];
            int64_t row =
                ls_max(0, ls_min(base + tile->whole_offset[r], source->relative_rows - 1));
            float_rows k = ls_tile_load(&source->relative, 0, tile->h, row, 1, 1, K, keys->band);
            for (int64_t e = 0; e < K; e++) drelative_q[e * QUERIES + r] += by * k.at[e];
            for (int64_t e = 0; drelative != NULL && e < K; e++)
                drelative[row * wide + e] += by * rows[r * wide + e];
        }
    }
}

static void add_to_relative(const query_tile *tile, const key_tile *keys, const float *ds,
                            const float *rows, const thread_space *desk, float *drelative_q,
                            float *drelative) {
    const int64_t K = tile->job->K, wide = padded(K);
    if (tile->scattered) {
        add_pairs_to_relative(tile, keys, ds, rows, drelative_q, drelative);
        return;
    }
    int64_t first = ls_tile_band(tile, keys);
    memset(keys->meet, 0, (size_t)(BAND * QUERIES) * sizeof(float));
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j) - first;
        for (int r = 0; r < QUERIES; r++)
            keys->meet[(base + tile->whole_offset[r]) * QUERIES + r] += ds[j * QUERIES + r];
    }
    ls_tile_product(K, QUERIES, BAND, keys->band, 1, wide, keys->meet, QUERIES, drelative_q,
                    QUERIES, true);
    if (drelative == NULL) return;
    ls_tile_product(BAND, wide, QUERIES, keys->meet, QUERIES, 1, rows, wide, desk->dband, wide,
                    false);
    for (int64_t d = 0; d < BAND; d++) {
        int64_t row = ls_max(0, ls_min(first + d, tile->source->relative_rows - 1));
        for (int64_t e = 0; e < wide; e += LANES) {
            float *to = drelative + row * wide + e;
            vec_store(to, vec_load(to) + vec_load(desk->dband + d * wide + e));
        }
    }
}

/* The gradients of one head's shared operands that a piece gathers, or NULL. */
typedef struct gathered {
    float *dtable, *drelative;
} gathered;

/* Keys of a tile with their share of the decay, which is left in desk->decay. */
static float_rows decay_keys(const query_tile *tile, int64_t row, int64_t rows, float_rows k,
                             const thread_space *desk) {
    const int64_t wide = padded(tile->job->K);
    ls_tile_decay_keys(tile, row, rows, desk->decay, wide);
    for (int64_t j = 0; j < rows; j++)
        for (int64_t e = 0; e < wide; e++)
            desk->decayed[j * wide + e] = k.at[j * k.stride + e] * desk->decay[j * wide + e];
    return (float_rows){desk->decayed, wide};
}

static void add_decayed(const ls_attention_job *job, int64_t rows, const thread_space *desk,
                        float *dk) {
    for (int64_t e = 0; e < rows * padded(job->K); e++) dk[e] += desk->fresh[e] * desk->decay[e];
}

/* Leaves ds in desk->ds. */
static void meet_products(const query_tile *tile, int64_t t, const key_tile *keys, float_rows k,
                          float_rows v, const thread_space *desk) {
    const ls_attention_job *job = tile->job;
    const bool decays = tile->source->about->decays;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    const int64_t rows = ls_round_up(keys->count, BLOCK_ROWS);
    const float *dout_rows = desk->dout_rows + t * wide_v * QUERIES;
    const float *q_rows = desk->q_rows + t * wide_k * QUERIES;
    float *dk = desk->dk + keys->row * wide_k, *dv = desk->dv + keys->row * wide_v;
    if (decays) k = decay_keys(tile, keys->row, rows, k, desk);
    ls_tile_product(rows, QUERIES, job->K, k.at, k.stride, 1, tile->turned, QUERIES, desk->s,
                    QUERIES, false);
    ls_tile_adjust(tile, keys, desk->s);
    ls_tile_product(rows, QUERIES, job->V, v.at, v.stride, 1,
                    desk->dout_turned + t * wide_v * QUERIES, QUERIES, desk->ds, QUERIES, false);
    differentiate(keys->count, rows, desk->lse + t * QUERIES, desk->dot + t * QUERIES, desk->s,
                  desk->ds);
    ls_tile_product(rows, wide_v, QUERIES, desk->s, QUERIES, 1, dout_rows, wide_v, dv, wide_v,
                    true);
    ls_tile_product(job->K, QUERIES, keys->count, k.at, 1, k.stride, desk->ds, QUERIES,
                    desk->dq + t * wide_k * QUERIES, QUERIES, true);
    ls_tile_product(rows, wide_k, QUERIES, desk->ds, QUERIES, 1, q_rows, wide_k,
                    decays ? desk->fresh : dk, wide_k, !decays);
    if (decays) add_decayed(job, keys->count, desk, dk);
}

/* `low` is the place of keys->row in its tile of keys. */
static void meet_products_unit(const query_tile *tile, int64_t t, const key_tile *keys, int64_t low,
                               half_rows k, half_rows v, const thread_space *desk) {
    const ls_attention_job *job = tile->job;
    const bool decays = tile->source->about->decays;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    const int64_t rows = ls_round_up(keys->count, 32);
    const float factor = score_factor(job);
    float *dk = desk->dk + keys->row * wide_k, *dv = desk->dv + keys->row * wide_v;
    if (decays) { /* the plain keys are in k_rows */
        float_rows plain = {desk->k_rows + low * wide_k, wide_k};
        decay_keys(tile, keys->row, rows, plain, desk);
        k = (half_rows){desk->k_halves + low * wide_k, wide_k};
        ls_half_round(desk->decayed, rows, wide_k, desk->k_halves + low * wide_k);
        ls_half_turn((half_rows){desk->k_halves, wide_k}, wide_k, desk->decayed, desk->k_turned);
    }
    ls_unit_product(rows, QUERIES, wide_k, k.at, k.stride, desk->turned + t * wide_k * QUERIES,
                    QUERIES, desk->s, QUERIES, false);
    for (int64_t i = 0; i < keys->count * QUERIES; i += LANES)
        vec_store(desk->s + i, vec_load(desk->s + i) * factor);
    ls_tile_adjust(tile, keys, desk->s);
    ls_unit_product(rows, QUERIES, wide_v, v.at, v.stride, desk->dout_turned + t * wide_v * QUERIES,
                    QUERIES, desk->ds, QUERIES, false);
    differentiate(keys->count, rows, desk->lse + t * QUERIES, desk->dot + t * QUERIES, desk->s,
                  desk->ds);
    ls_half_round(desk->s, rows, QUERIES, desk->p_halves);
    ls_half_round(desk->ds, rows, QUERIES, desk->ds_halves);
    ls_half_pair_floats(desk->ds, rows, rows, desk->ds_pairs);
    ls_unit_product(rows, wide_v, QUERIES, desk->p_halves, QUERIES,
                    desk->dout_rows + t * wide_v * QUERIES, wide_v, dv, wide_v, true);
    ls_unit_product(wide_k, QUERIES, rows, desk->k_turned + low, KEYS, desk->ds_pairs, QUERIES,
                    desk->dq + t * wide_k * QUERIES, QUERIES, true);
    ls_unit_product(rows, wide_k, QUERIES, desk->ds_halves, QUERIES,
                    desk->q_rows + t * wide_k * QUERIES, wide_k, decays ? desk->fresh : dk, wide_k,
                    !decays);
    if (decays) add_decayed(job, keys->count, desk, dk);
}

/* The keys and values of a tile, in the form the products want. */
typedef struct column_tile {
    float_rows k, v;
    half_rows k_halves, v_halves;
} column_tile;

static column_tile load_keys(const ls_attention_job *job, const work_cut *cut,
                             const ls_attention_source *source, int64_t b, int64_t g, int64_t row,
                             int64_t count, const thread_space *desk) {
    column_tile tile = {0};
    if (!cut->unit) {
        tile.k = ls_tile_load(&source->k, b, g, row, count, KEYS, job->K, desk->k_rows);
        tile.v = ls_tile_load(&source->v, b, g, row, count, KEYS, job->V, desk->v_rows);
        return tile;
    }
    tile.k_halves = ls_half_load(&source->k, b, g, row, count, KEYS, job->K, desk->k_halves);
    tile.v_halves = ls_half_load(&source->v, b, g, row, count, KEYS, job->V, desk->v_halves);
    if (!source->about->decays) {
        ls_half_turn(tile.k_halves, padded(job->K), desk->k_rows, desk->k_turned);
        return tile;
    }
    ls_tile_load(&source->k, b, g, row, count, KEYS, job->K, desk->k_rows);
    memset(desk->k_halves, 0, (size_t)(KEYS * padded(job->K)) * sizeof *desk->k_halves);
    return tile;
}

/* All queries of head h against the tile of keys from `row` on. */
static void meet_column(const ls_attention_job *job, const work_cut *cut,
                        const ls_attention_source *source, int64_t b, int64_t h, int64_t row,
                        const thread_space *desk, gathered into) {
    const int64_t held = ls_interval_length(source->held), first = source->held.first;
    const int64_t count = ls_min(KEYS, held - row), wide_k = padded(job->K) * QUERIES;
    const int64_t step = cut->unit ? 32 : BLOCK_ROWS;
    const ls_tile_rule *rule = &source->about->rule;
    const ls_interval positions = {first + row, first + row + count};
    const ls_block_rows *list = &source->seen_by_keys;
    ls_tile_run runs[LS_TILE_RUNS_MOST];
    if (count <= 0) return;
    int run_count =
        ls_tile_runs_of_keys(rule, positions, (ls_interval){job->start, job->start + job->T}, runs);
    if (run_count == 0) return;
    const column_tile x = load_keys(job, cut, source, b, h / (job->H / job->G), row, count, desk);
    for (int i = 0; i < run_count; i++)
        for (int64_t t = ls_block_next_tile(list, h, positions, QUERIES, runs[i].first);
             t < runs[i].end; t = ls_block_next_tile(list, h, positions, QUERIES, t + 1)) {
            const query_tile *tile = &desk->tiles[t];
            /* whole blocks of rows that some query of the tile admits */
            ls_interval any = ls_keys_any(rule, tile->positions);
            int64_t low = ls_max(0, any.first - first - row) / step * step;
            int64_t high = ls_min(count, any.end - first - row);
            if (high <= low) continue;
            key_tile keys = {.row = row + low,
                             .count = high - low,
                             .full = runs[i].full && count == KEYS,
                             .band = desk->band,
                             .meet = desk->meet};
            if (cut->unit)
                meet_products_unit(
                    tile, t, &keys, low,
                    (half_rows){x.k_halves.at + low * x.k_halves.stride, x.k_halves.stride},
                    (half_rows){x.v_halves.at + low * x.v_halves.stride, x.v_halves.stride}, desk);
            else
                meet_products(tile, t, &keys, (float_rows){x.k.at + low * x.k.stride, x.k.stride},
                              (float_rows){x.v.at + low * x.v.stride, x.v.stride}, desk);
            if (into.dtable != NULL) add_to_table(tile, &keys, desk->ds, into.dtable);
            if (source->relative.data != NULL)
                add_to_relative(tile, &keys, desk->ds, desk->relative_rows + t * wide_k, desk,
                                desk->drelative_q + t * wide_k, into.drelative);
        }
}

/* ---- pieces ---- */

static void store_queries(const query_tile *tile, const ls_attention_array *to, bool decays,
                          float *turned, float *rows) {
    const ls_attention_job *job = tile->job;
    if (to->data == NULL) return;
    if (decays) decay_queries(tile, turned);
    ls_tile_turn(turned, QUERIES, padded(job->K), QUERIES, rows, padded(job->K));
    ls_tile_store(to, tile->b, tile->h, tile->row, tile->count, job->K,
                  (float_rows){rows, padded(job->K)}, (float)job->scale);
}

/* Gradients of a head's queries: whole, or to be summed over columns later. */
static void leave_queries(const ls_attention_job *job, const work_cut *cut, int s, int64_t b,
                          int64_t h, int64_t column, const thread_space *desk,
                          const partials *shared) {
    const ls_attention_source *source = &job->source[s];
    const int64_t k = padded(job->K) * QUERIES, all = turned_floats(job, cut);
    if (cut->columns > 1) {
        int64_t at = ((column * job->B + b) * job->H + h) * all;
        memcpy(shared->dq[s] + at, desk->dq, (size_t)all * sizeof(float));
        if (source->drelative_q.data != NULL)
            memcpy(shared->drelative_q[s] + at, desk->drelative_q, (size_t)all * sizeof(float));
        return;
    }
    for (int64_t t = 0; t < cut->query_tiles; t++) {
        const query_tile *tile = &desk->tiles[t];
        store_queries(tile, &source->dq, source->about->decays, desk->dq + t * k, desk->k_rows);
        store_queries(tile, &source->drelative_q, false, desk->drelative_q + t * k, desk->k_rows);
    }
}

static void run_piece(const ls_attention_job *job, const work_cut *cut, int64_t part, int64_t g,
                      int64_t column, const thread_space *desk, const partials *shared) {
    const int64_t heads = job->H / job->G, wide_k = padded(job->K), wide_v = padded(job->V);
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        const int64_t tiles = ls_ceil_div(source->key_rows, KEYS);
        const int64_t first = tiles * column / cut->columns * KEYS;
        const int64_t end = ls_min(source->key_rows, tiles * (column + 1) / cut->columns * KEYS);
        const int64_t rows = ls_round_up(end - first, KEYS);
        const int64_t copy = (part * cut->columns + column) * job->H + g * heads;
        const int64_t table = source->table_rows, relative = source->relative_rows * wide_k;
        float *dtable = source->dtable == NULL ? NULL : shared->dtable[s] + copy * table;
        float *drelative =
            source->drelative.data == NULL ? NULL : shared->drelative[s] + copy * relative;
        if (dtable != NULL) memset(dtable, 0, (size_t)(heads * table) * sizeof(float));
        if (drelative != NULL) memset(drelative, 0, (size_t)(heads * relative) * sizeof(float));
        for (int64_t b = job->B * part / cut->batch_parts;
             b < job->B * (part + 1) / cut->batch_parts; b++) {
            memset(desk->dk + first * wide_k, 0, (size_t)(rows * wide_k) * sizeof(float));
            memset(desk->dv + first * wide_v, 0, (size_t)(rows * wide_v) * sizeof(float));
            for (int64_t h = 0; h < heads; h++) {
                gathered into = {dtable == NULL ? NULL : dtable + h * table,
                                 drelative == NULL ? NULL : drelative + h * relative};
                load_queries(job, cut, source, b, g * heads + h, desk);
                for (int64_t row = first; row < end; row += KEYS)
                    meet_column(job, cut, source, b, g * heads + h, row, desk, into);
                leave_queries(job, cut, s, b, g * heads + h, column, desk, shared);
            }
            float_rows dk = {desk->dk + first * wide_k, wide_k};
            float_rows dv = {desk->dv + first * wide_v, wide_v};
            if (source->dk.data != NULL)
                ls_tile_store(&source->dk, b, g, first, end - first, job->K, dk, (float)job->scale);
            if (source->dv.data != NULL)
                ls_tile_store(&source->dv, b, g, first, end - first, job->V, dv, 1);
        }
    }
}

/* ---- sums over pieces ---- */

/* to[0 .. floats) of copy 0 becomes the sum of all copies. */
static void sum_copies(int64_t copies, int64_t step, int64_t floats, float *to) {
    for (int64_t c = 1; c < copies; c++)
        for (int64_t i = 0; i < floats; i++) to[i] += to[c * step + i];
}

static void sum_queries(const ls_attention_job *job, const work_cut *cut, int64_t b, int64_t h,
                        const thread_space *desk, const partials *shared) {
    const int64_t all = turned_floats(job, cut), step = job->B * job->H * all;
    const int64_t at = (b * job->H + h) * all, k = padded(job->K) * QUERIES;
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        bool relative = source->drelative_q.data != NULL;
        sum_copies(cut->columns, step, all, shared->dq[s] + at);
        if (relative) sum_copies(cut->columns, step, all, shared->drelative_q[s] + at);
        for (int64_t t = 0; t < cut->query_tiles; t++) {
            query_tile tile = {.turned = desk->turned, .relative_turned = desk->turned};
            ls_tile_queries(&tile, job, source, b, h, t * QUERIES, 1, desk->k_rows);
            store_queries(&tile, &source->dq, source->about->decays, shared->dq[s] + at + t * k,
                          desk->k_rows);
            if (relative)
                store_queries(&tile, &source->drelative_q, false,
                              shared->drelative_q[s] + at + t * k, desk->k_rows);
        }
    }
}

static void sum_shared(const ls_attention_job *job, const work_cut *cut, int64_t h,
                       const partials *shared) {
    const int64_t copies = cut->batch_parts * cut->columns, wide = padded(job->K);
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        if (source->dtable != NULL) {
            float *table = shared->dtable[s] + h * source->table_rows;
            sum_copies(copies, job->H * source->table_rows, source->table_rows, table);
            memcpy((float *)source->dtable + h * source->dtable_stride, table,
                   (size_t)source->table_rows * sizeof(float));
        }
        if (source->drelative.data != NULL) {
            int64_t floats = source->relative_rows * wide;
            float *relative = shared->drelative[s] + h * floats;
            sum_copies(copies, job->H * floats, floats, relative);
            ls_tile_store(&source->drelative, 0, h, 0, source->relative_rows, job->K,
                          (float_rows){relative, wide}, (float)job->scale);
        }
    }
}

void ls_attention_tiled_grad(const ls_attention_job *job) {
    const work_cut cut = cut_work(job);
    const int64_t pieces = cut.batch_parts * job->G * cut.columns;
    partials shared;
    thread_space measured;
    const size_t first = lay_out_partials(job, &cut, job->workspace, &shared);
    const size_t bytes = lay_out(job, &cut, NULL, &measured);
#pragma omp parallel num_threads(job->threads)
    {
        thread_space desk;
        lay_out(job, &cut, (char *)job->workspace + first + (size_t)omp_get_thread_num() * bytes,
                &desk);
        if (cut.unit) ls_unit_begin();
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < pieces; piece++)
            run_piece(job, &cut, piece / cut.columns / job->G, piece / cut.columns % job->G,
                      piece % cut.columns, &desk, &shared);
        if (cut.unit) ls_unit_end();
        if (cut.columns > 1) {
#pragma omp for schedule(dynamic)
            for (int64_t piece = 0; piece < job->B * job->H; piece++)
                sum_queries(job, &cut, piece / job->H, piece % job->H, &desk, &shared);
        }
        if (cut.shared_gradients) {
#pragma omp for schedule(dynamic)
            for (int64_t h = 0; h < job->H; h++) sum_shared(job, &cut, h, &shared);
        }
    }
}
