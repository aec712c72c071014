/* Gradients of attention.
 *
 * A piece of work is a part of the batch, one key head with all its query heads, and a part of the
 * keys ("column"). Inside a piece each pair of tiles is met once, and everything is summed in a
 * fixed order into places that belong to the piece; what several pieces contribute to is summed
 * afterwards, in the order of the pieces. The cut depends on the shapes only, so the bits do not
 * depend on the number of threads.
 *
 *   p = 2^(s - lse), dp = v dout^T, ds = p (dp - rowsum(dout * out)),
 *   dv += p dout, dk += ds q, dq += ds k;
 * where scores are capped ds has a factor 1 - (s / cap)^2. */
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

/* Partial results of pieces, in the order of sets. */
typedef struct partials {
    float *dq[LS_KEY_SETS_MAX];          /* [column][B][H][tile][padded K][QUERIES], columns > 1 */
    float *drelative_q[LS_KEY_SETS_MAX]; /* the same */
    float *dtable[LS_KEY_SETS_MAX];      /* [batch part][column][H][rows] */
    float *drelative[LS_KEY_SETS_MAX];   /* [batch part][column][H][rows][padded K] */
} partials;

/* What one thread works in: all queries of a head, and all keys of a key head. */
typedef struct thread_space {
    query_tile *tiles;
    float *transposed, *relative_transposed; /* [tile][padded K][QUERIES] */
    float *q_rows, *relative_rows;           /* [tile][QUERIES][padded K] */
    float *dout_transposed, *dout_rows; /* [tile][padded V][QUERIES], [tile][QUERIES][padded V] */
    float *dq, *drelative_q;            /* [tile][padded K][QUERIES] */
    float *lse, *dot;                   /* [tile][QUERIES], lse in units of log 2 */
    float *dk, *dv;                     /* [key row][padded K or V] */
    float *k_rows, *v_rows, *decay, *decayed, *fresh; /* [KEYS][padded K or V] */
    float *s, *ds;                                    /* [KEYS][QUERIES] */
    float *band, *meet, *dband;                       /* [BAND][..] */
    /* With AMX transposed, q_rows, dout_transposed and dout_rows hold pairs of elements and of rows. */
    ls_bf16 *k_halves, *v_halves;  /* [KEYS][padded K or V] */
    ls_bf16 *k_transposed;         /* [padded K][KEYS] */
    ls_bf16 *p_halves, *ds_halves; /* [KEYS][QUERIES] */
    float *ds_pairs, *dout;        /* [KEYS / 2][QUERIES], [QUERIES][padded V] */
} thread_space;

static work_cut cut_work(const ls_attention_job *job) {
    work_cut cut = {.batch_parts = job->B,
                    .columns = 1,
                    .query_tiles = ls_ceil_div(job->T, QUERIES),
                    .unit = job->out.type == LS_BF16 && ls_unit_usable()};
    int64_t key_tiles = 1;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        cut.shared_gradients |= set->dtable != NULL || set->drelative.data != NULL;
        key_tiles = ls_max(key_tiles, ls_ceil_div(set->key_rows, KEYS));
    }
    if (cut.shared_gradients) cut.batch_parts = ls_min(job->B, BATCH_PARTS_SHARED);
    int64_t pieces = cut.batch_parts * job->G;
    if (pieces < PIECES_WANTED) cut.columns = ls_min(key_tiles, ls_ceil_div(PIECES_WANTED, pieces));
    return cut;
}

static int64_t transposed_floats(const ls_attention_job *job, const work_cut *cut) {
    return cut->query_tiles * padded(job->K) * QUERIES;
}

static size_t lay_out_partials(const ls_attention_job *job, const work_cut *cut, char *base,
                               partials *to) {
    space from = {.base = base};
    int64_t copies = cut->batch_parts * cut->columns * job->H;
    int64_t all_queries =
        cut->columns > 1 ? cut->columns * job->B * job->H * transposed_floats(job, cut) : 0;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        bool relative = set->drelative.data != NULL;
        to->dq[s] = space_take(&from, all_queries);
        to->drelative_q[s] = space_take(&from, set->drelative_q.data ? all_queries : 0);
        to->dtable[s] = space_take(&from, set->dtable ? copies * set->table_rows : 0);
        to->drelative[s] =
            space_take(&from, relative ? copies * set->relative_rows * padded(job->K) : 0);
    }
    return from.used;
}

static size_t lay_out(const ls_attention_job *job, const work_cut *cut, char *base,
                      thread_space *to) {
    const int64_t k = padded(job->K), v = padded(job->V), tiles = cut->query_tiles;
    const int64_t transposed = transposed_floats(job, cut), values = tiles * v * QUERIES;
    int64_t keys = 0;
    bool relative = false;
    for (int s = 0; s < job->sets; s++) {
        keys = ls_max(keys, ls_round_up(job->set[s].key_rows, KEYS));
        relative |= job->set[s].relative.data != NULL;
    }
    space from = {.base = base};
    int64_t tile_floats = (int64_t)(sizeof(query_tile) / sizeof(float) + 1);
    to->tiles = (query_tile *)(void *)space_take(&from, tiles * tile_floats);
    to->transposed = space_take(&from, transposed);
    to->q_rows = space_take(&from, transposed);
    to->dq = space_take(&from, transposed);
    to->relative_transposed = space_take(&from, relative ? transposed : 0);
    to->relative_rows = space_take(&from, relative ? transposed : 0);
    to->drelative_q = space_take(&from, relative ? transposed : 0);
    to->dout_transposed = space_take(&from, values);
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
    to->k_transposed = (ls_bf16 *)(void *)space_take(&from, halves * k);
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
static void decay_queries(const query_tile *tile, float *transposed) {
    const ls_key_set_plan *about = tile->set->about;
    for (int64_t e = 0; e < tile->job->K; e++) {
        int64_t pair = ls_attention_decay_pair(about, e);
        for (int r = 0; pair >= 0 && r < tile->count; r++)
            transposed[e * QUERIES + r] *=
                (float)exp(about->set.xpos.log_decay[pair] * (double)tile->offset[r]);
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
static void load_tile(query_tile *tile, int64_t t, const thread_space *scratch) {
    const ls_attention_job *job = tile->job;
    const int64_t k = padded(job->K) * QUERIES, v = padded(job->V) * QUERIES;
    const float unscale = 1 / score_factor(job);
    float *rows = scratch->q_rows + t * k, *dout = scratch->dout_rows + t * v;
    if (tile->set->about->set.xpos.pairs > 0) {
        ls_tile_transpose(tile->transposed, QUERIES, padded(job->K), QUERIES, rows, padded(job->K));
        for (int64_t e = 0; e < k; e++) rows[e] *= unscale;
    } else {
        copy_rows(&tile->set->q, tile, job->K, rows);
    }
    copy_rows(&job->dout, tile, job->V, dout);
    ls_tile_transpose(dout, padded(job->V), QUERIES, padded(job->V),
                      scratch->dout_transposed + t * v, QUERIES);
    load_statistics(tile, dout, scratch->v_rows, scratch->lse + t * QUERIES,
                    scratch->dot + t * QUERIES);
}

static void load_tile_unit(query_tile *tile, int64_t t, const thread_space *scratch) {
    const ls_attention_job *job = tile->job;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    half_rows q = {scratch->k_halves, wide_k};
    if (tile->transposed != NULL) {
        ls_tile_transpose(tile->transposed, QUERIES, wide_k, QUERIES, scratch->k_rows, wide_k);
        ls_half_round(scratch->k_rows, QUERIES, wide_k, scratch->k_halves);
    } else {
        q = ls_half_load(&tile->set->q, tile->b, tile->h, tile->row, tile->count, QUERIES, job->K,
                         scratch->k_halves);
    }
    ls_half_pair_elements(q, wide_k, scratch->transposed + t * wide_k * QUERIES);
    ls_half_pair_rows(q, QUERIES, wide_k, scratch->q_rows + t * wide_k * QUERIES, wide_k);
    half_rows dout = ls_half_load(&job->dout, tile->b, tile->h, tile->row, tile->count, QUERIES,
                                  job->V, scratch->v_halves);
    ls_half_pair_elements(dout, wide_v, scratch->dout_transposed + t * wide_v * QUERIES);
    ls_half_pair_rows(dout, QUERIES, wide_v, scratch->dout_rows + t * wide_v * QUERIES, wide_v);
    copy_rows(&job->dout, tile, job->V, scratch->dout);
    load_statistics(tile, scratch->dout, scratch->v_rows, scratch->lse + t * QUERIES,
                    scratch->dot + t * QUERIES);
}

static void load_queries(const ls_attention_job *job, const work_cut *cut,
                         const ls_key_set_run *set, int64_t b, int64_t h,
                         const thread_space *scratch) {
    const int64_t k = padded(job->K) * QUERIES;
    for (int64_t t = 0; t < cut->query_tiles; t++) {
        query_tile *tile = &scratch->tiles[t];
        tile->transposed =
            cut->unit && set->about->set.xpos.pairs == 0 ? NULL : scratch->transposed + t * k;
        tile->relative_transposed = scratch->relative_transposed + (set->relative.data ? t * k : 0);
        ls_tile_queries(tile, job, set, b, h, t * QUERIES, cut->unit ? 1 : score_factor(job),
                        scratch->k_rows);
        if (cut->unit)
            load_tile_unit(tile, t, scratch);
        else
            load_tile(tile, t, scratch);
        if (set->relative.data != NULL)
            copy_rows(&set->relative_q, tile, job->K, scratch->relative_rows + t * k);
    }
    memset(scratch->dq, 0, (size_t)(cut->query_tiles * k) * sizeof(float));
    if (set->relative.data != NULL)
        memset(scratch->drelative_q, 0, (size_t)(cut->query_tiles * k) * sizeof(float));
}

/* ---- a pair of tiles ---- */

/* The body of the next; cap 0: none. */
LS_INLINE void differentiate_by(float cap, int64_t count, const float *lse, const float *dot,
                                float *s, float *ds) {
    for (int r = 0; r < QUERIES; r += LANES) {
        const vec base = vec_load(lse + r), mean = vec_load(dot + r);
        for (int64_t j = 0; j < count; j++) {
            int64_t at = j * QUERIES + r;
            vec score = vec_load(s + at), p = vec_exp2(score - base);
            vec slope = p * (vec_load(ds + at) - mean);
            if (cap > 0) { /* -infinity, where a pair is not admitted, has no part in it */
                const vec t = ls_vec_max(ls_vec_all(-1.0f), score / cap);
                slope *= 1.0f - t * t;
            }
            vec_store(s + at, p);
            vec_store(ds + at, slope);
        }
    }
}

/* s becomes p, ds (holding dp) becomes ds; rows from count on are 0. */
static void differentiate(const ls_attention_job *job, int64_t count, int64_t rows,
                          const float *lse, const float *dot, float *s, float *ds) {
    if (job->cap > 0)
        differentiate_by(score_cap(job), count, lse, dot, s, ds);
    else
        differentiate_by(0, count, lse, dot, s, ds);
    memset(s + count * QUERIES, 0, (size_t)((rows - count) * QUERIES) * sizeof(float));
    memset(ds + count * QUERIES, 0, (size_t)((rows - count) * QUERIES) * sizeof(float));
}

/* Sums of ds by distance, for the table. */
static void add_to_table(const query_tile *tile, const key_tile *keys, const float *ds,
                         float *dtable) {
    const ls_key_set_run *set = tile->set;
    float slice[BAND] = {0};
    int64_t least = tile_whole_distance(tile, keys->row + keys->count - 1);
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j) - least;
        for (int r = 0; r < QUERIES; r++)
            slice[base + tile->whole_offset[r]] += ds[j * QUERIES + r];
    }
    for (int64_t d = 0; d < BAND; d++) {
        int64_t column = least + d + set->about->set.table_zero;
        dtable[ls_max(0, ls_min(column, set->table_rows - 1))] += slice[d];
    }
}

/* Distances that no band holds: pair by pair. */
static void add_pairs_to_relative(const query_tile *tile, const key_tile *keys, const float *ds,
                                  const float *rows, float *drelative_q, float *drelative) {
    const ls_key_set_run *set = tile->set;
    const int64_t K = tile->job->K, wide = padded(K);
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j);
        for (int r = 0; r < tile->count; r++) {
            const float by = ds[j * QUERIES + r];
            int64_t row = ls_max(0, ls_min(base + tile->whole_offset[r], set->relative_rows - 1));
            float_rows k = ls_tile_load(&set->relative, 0, tile->h, row, 1, 1, K, keys->band);
            for (int64_t e = 0; e < K; e++) drelative_q[e * QUERIES + r] += by * k.at[e];
            for (int64_t e = 0; drelative != NULL && e < K; e++)
                drelative[row * wide + e] += by * rows[r * wide + e];
        }
    }
}

static void add_to_relative(const query_tile *tile, const key_tile *keys, const float *ds,
                            const float *rows, const thread_space *scratch, float *drelative_q,
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
    ls_tile_product(BAND, wide, QUERIES, keys->meet, QUERIES, 1, rows, wide, scratch->dband, wide,
                    false);
    for (int64_t d = 0; d < BAND; d++) {
        int64_t row = ls_max(0, ls_min(first + d, tile->set->relative_rows - 1));
        for (int64_t e = 0; e < wide; e += LANES) {
            float *to = drelative + row * wide + e;
            vec_store(to, vec_load(to) + vec_load(scratch->dband + d * wide + e));
        }
    }
}

/* The gradients of one head's shared operands that a piece gathers, or NULL. */
typedef struct gathered {
    float *dtable, *drelative;
} gathered;

/* Keys of a tile with their share of the decay, which is left in scratch->decay. */
static float_rows decay_keys(const query_tile *tile, int64_t row, int64_t rows, float_rows k,
                             const thread_space *scratch) {
    const int64_t wide = padded(tile->job->K);
    ls_tile_decay_keys(tile, row, rows, scratch->decay, wide);
    for (int64_t j = 0; j < rows; j++)
        for (int64_t e = 0; e < wide; e++)
            scratch->decayed[j * wide + e] = k.at[j * k.stride + e] * scratch->decay[j * wide + e];
    return (float_rows){scratch->decayed, wide};
}

static void add_decayed(const ls_attention_job *job, int64_t rows, const thread_space *scratch,
                        float *dk) {
    for (int64_t e = 0; e < rows * padded(job->K); e++)
        dk[e] += scratch->fresh[e] * scratch->decay[e];
}

/* Leaves ds in scratch->ds. */
static void meet_products(const query_tile *tile, int64_t t, const key_tile *keys, float_rows k,
                          float_rows v, const thread_space *scratch) {
    const ls_attention_job *job = tile->job;
    const bool decays = tile->set->about->set.xpos.pairs > 0;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    const int64_t rows = ls_round_up(keys->count, BLOCK_ROWS);
    const float *dout_rows = scratch->dout_rows + t * wide_v * QUERIES;
    const float *q_rows = scratch->q_rows + t * wide_k * QUERIES;
    float *dk = scratch->dk + keys->row * wide_k, *dv = scratch->dv + keys->row * wide_v;
    if (decays) k = decay_keys(tile, keys->row, rows, k, scratch);
    ls_tile_product(rows, QUERIES, job->K, k.at, k.stride, 1, tile->transposed, QUERIES, scratch->s,
                    QUERIES, false);
    ls_tile_adjust(tile, keys, scratch->s);
    ls_tile_product(rows, QUERIES, job->V, v.at, v.stride, 1,
                    scratch->dout_transposed + t * wide_v * QUERIES, QUERIES, scratch->ds, QUERIES,
                    false);
    differentiate(job, keys->count, rows, scratch->lse + t * QUERIES, scratch->dot + t * QUERIES,
                  scratch->s, scratch->ds);
    ls_tile_product(rows, wide_v, QUERIES, scratch->s, QUERIES, 1, dout_rows, wide_v, dv, wide_v,
                    true);
    ls_tile_product(job->K, QUERIES, keys->count, k.at, 1, k.stride, scratch->ds, QUERIES,
                    scratch->dq + t * wide_k * QUERIES, QUERIES, true);
    ls_tile_product(rows, wide_k, QUERIES, scratch->ds, QUERIES, 1, q_rows, wide_k,
                    decays ? scratch->fresh : dk, wide_k, !decays);
    if (decays) add_decayed(job, keys->count, scratch, dk);
}

/* `low` is the place of keys->row in its tile of keys. */
static void meet_products_unit(const query_tile *tile, int64_t t, const key_tile *keys, int64_t low,
                               half_rows k, half_rows v, const thread_space *scratch) {
    const ls_attention_job *job = tile->job;
    const bool decays = tile->set->about->set.xpos.pairs > 0;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V);
    const int64_t rows = ls_round_up(keys->count, 32);
    const float factor = score_factor(job);
    float *dk = scratch->dk + keys->row * wide_k, *dv = scratch->dv + keys->row * wide_v;
    if (decays) { /* the plain keys are in k_rows */
        float_rows plain = {scratch->k_rows + low * wide_k, wide_k};
        decay_keys(tile, keys->row, rows, plain, scratch);
        k = (half_rows){scratch->k_halves + low * wide_k, wide_k};
        ls_half_round(scratch->decayed, rows, wide_k, scratch->k_halves + low * wide_k);
        ls_half_turn((half_rows){scratch->k_halves, wide_k}, wide_k, scratch->decayed,
                     scratch->k_transposed);
    }
    ls_unit_product(rows, QUERIES, wide_k, k.at, k.stride,
                    scratch->transposed + t * wide_k * QUERIES, QUERIES, scratch->s, QUERIES,
                    false);
    for (int64_t i = 0; i < keys->count * QUERIES; i += LANES)
        vec_store(scratch->s + i, vec_load(scratch->s + i) * factor);
    ls_tile_adjust(tile, keys, scratch->s);
    ls_unit_product(rows, QUERIES, wide_v, v.at, v.stride,
                    scratch->dout_transposed + t * wide_v * QUERIES, QUERIES, scratch->ds, QUERIES,
                    false);
    differentiate(job, keys->count, rows, scratch->lse + t * QUERIES, scratch->dot + t * QUERIES,
                  scratch->s, scratch->ds);
    ls_half_round(scratch->s, rows, QUERIES, scratch->p_halves);
    ls_half_round(scratch->ds, rows, QUERIES, scratch->ds_halves);
    ls_half_pair_floats(scratch->ds, rows, rows, scratch->ds_pairs);
    ls_unit_product(rows, wide_v, QUERIES, scratch->p_halves, QUERIES,
                    scratch->dout_rows + t * wide_v * QUERIES, wide_v, dv, wide_v, true);
    ls_unit_product(wide_k, QUERIES, rows, scratch->k_transposed + low, KEYS, scratch->ds_pairs,
                    QUERIES, scratch->dq + t * wide_k * QUERIES, QUERIES, true);
    ls_unit_product(rows, wide_k, QUERIES, scratch->ds_halves, QUERIES,
                    scratch->q_rows + t * wide_k * QUERIES, wide_k, decays ? scratch->fresh : dk,
                    wide_k, !decays);
    if (decays) add_decayed(job, keys->count, scratch, dk);
}

/* The keys and values of a tile, in the form the products want. */
typedef struct column_tile {
    float_rows k, v;
    half_rows k_halves, v_halves;
} column_tile;

static column_tile load_keys(const ls_attention_job *job, const work_cut *cut,
                             const ls_key_set_run *set, int64_t b, int64_t g, int64_t row,
                             int64_t count, const thread_space *scratch) {
    column_tile tile = {0};
    if (!cut->unit) {
        tile.k = ls_tile_load(&set->k, b, g, row, count, KEYS, job->K, scratch->k_rows);
        tile.v = ls_tile_load(&set->v, b, g, row, count, KEYS, job->V, scratch->v_rows);
        return tile;
    }
    tile.k_halves = ls_half_load(&set->k, b, g, row, count, KEYS, job->K, scratch->k_halves);
    tile.v_halves = ls_half_load(&set->v, b, g, row, count, KEYS, job->V, scratch->v_halves);
    if (set->about->set.xpos.pairs == 0) {
        ls_half_turn(tile.k_halves, padded(job->K), scratch->k_rows, scratch->k_transposed);
        return tile;
    }
    ls_tile_load(&set->k, b, g, row, count, KEYS, job->K, scratch->k_rows);
    memset(scratch->k_halves, 0, (size_t)(KEYS * padded(job->K)) * sizeof *scratch->k_halves);
    return tile;
}

/* All queries of head h against the tile of keys from `row` on. */
static void meet_column(const ls_attention_job *job, const work_cut *cut, const ls_key_set_run *set,
                        int64_t b, int64_t h, int64_t row, const thread_space *scratch,
                        gathered into) {
    const int64_t held = ls_interval_length(set->held), first = set->held.first;
    const int64_t count = ls_min(KEYS, held - row), wide_k = padded(job->K) * QUERIES;
    const int64_t step = cut->unit ? 32 : BLOCK_ROWS;
    const ls_tile_rule *rule = &set->about->rule;
    const ls_interval positions = {first + row, first + row + count};
    const ls_block_rows *list = &set->seen_by_keys;
    ls_tile_run runs[LS_TILE_RUNS_MAX];
    if (count <= 0) return;
    int run_count =
        ls_tile_runs_of_keys(rule, positions, (ls_interval){job->start, job->start + job->T}, runs);
    if (run_count == 0) return;
    const column_tile x = load_keys(job, cut, set, b, h / (job->H / job->G), row, count, scratch);
    for (int i = 0; i < run_count; i++)
        for (int64_t t = ls_block_next_tile(list, h, positions, QUERIES, runs[i].first);
             t < runs[i].end; t = ls_block_next_tile(list, h, positions, QUERIES, t + 1)) {
            const query_tile *tile = &scratch->tiles[t];
            /* whole blocks of rows that some query of the tile admits */
            ls_interval any = ls_keys_any(rule, tile->positions);
            int64_t low = ls_max(0, any.first - first - row) / step * step;
            int64_t high = ls_min(count, any.end - first - row);
            if (high <= low) continue;
            key_tile keys = {.row = row + low,
                             .count = high - low,
                             .full = runs[i].full && count == KEYS,
                             .band = scratch->band,
                             .meet = scratch->meet};
            if (cut->unit)
                meet_products_unit(
                    tile, t, &keys, low,
                    (half_rows){x.k_halves.at + low * x.k_halves.stride, x.k_halves.stride},
                    (half_rows){x.v_halves.at + low * x.v_halves.stride, x.v_halves.stride},
                    scratch);
            else
                meet_products(tile, t, &keys, (float_rows){x.k.at + low * x.k.stride, x.k.stride},
                              (float_rows){x.v.at + low * x.v.stride, x.v.stride}, scratch);
            if (into.dtable != NULL) add_to_table(tile, &keys, scratch->ds, into.dtable);
            if (set->relative.data != NULL)
                add_to_relative(tile, &keys, scratch->ds, scratch->relative_rows + t * wide_k,
                                scratch, scratch->drelative_q + t * wide_k, into.drelative);
        }
}

/* ---- pieces ---- */

static void store_queries(const query_tile *tile, const ls_attention_array *to, bool decays,
                          float *transposed, float *rows) {
    const ls_attention_job *job = tile->job;
    if (to->data == NULL) return;
    if (decays) decay_queries(tile, transposed);
    ls_tile_transpose(transposed, QUERIES, padded(job->K), QUERIES, rows, padded(job->K));
    ls_tile_store(to, tile->b, tile->h, tile->row, tile->count, job->K,
                  (float_rows){rows, padded(job->K)}, (float)job->scale);
}

/* Gradients of a head's queries: whole, or to be summed over columns later. */
static void leave_queries(const ls_attention_job *job, const work_cut *cut, int s, int64_t b,
                          int64_t h, int64_t column, const thread_space *scratch,
                          const partials *shared) {
    const ls_key_set_run *set = &job->set[s];
    const int64_t k = padded(job->K) * QUERIES, all = transposed_floats(job, cut);
    if (cut->columns > 1) {
        int64_t at = ((column * job->B + b) * job->H + h) * all;
        memcpy(shared->dq[s] + at, scratch->dq, (size_t)all * sizeof(float));
        if (set->drelative_q.data != NULL)
            memcpy(shared->drelative_q[s] + at, scratch->drelative_q, (size_t)all * sizeof(float));
        return;
    }
    for (int64_t t = 0; t < cut->query_tiles; t++) {
        const query_tile *tile = &scratch->tiles[t];
        store_queries(tile, &set->dq, set->about->set.xpos.pairs > 0, scratch->dq + t * k,
                      scratch->k_rows);
        store_queries(tile, &set->drelative_q, false, scratch->drelative_q + t * k,
                      scratch->k_rows);
    }
}

static void run_piece(const ls_attention_job *job, const work_cut *cut, int64_t part, int64_t g,
                      int64_t column, const thread_space *scratch, const partials *shared) {
    const int64_t heads = job->H / job->G, wide_k = padded(job->K), wide_v = padded(job->V);
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        const int64_t tiles = ls_ceil_div(set->key_rows, KEYS);
        const int64_t first = tiles * column / cut->columns * KEYS;
        const int64_t end = ls_min(set->key_rows, tiles * (column + 1) / cut->columns * KEYS);
        const int64_t rows = ls_round_up(end - first, KEYS);
        const int64_t copy = (part * cut->columns + column) * job->H + g * heads;
        const int64_t table = set->table_rows, relative = set->relative_rows * wide_k;
        float *dtable = set->dtable == NULL ? NULL : shared->dtable[s] + copy * table;
        float *drelative =
            set->drelative.data == NULL ? NULL : shared->drelative[s] + copy * relative;
        if (dtable != NULL) memset(dtable, 0, (size_t)(heads * table) * sizeof(float));
        if (drelative != NULL) memset(drelative, 0, (size_t)(heads * relative) * sizeof(float));
        for (int64_t b = job->B * part / cut->batch_parts;
             b < job->B * (part + 1) / cut->batch_parts; b++) {
            memset(scratch->dk + first * wide_k, 0, (size_t)(rows * wide_k) * sizeof(float));
            memset(scratch->dv + first * wide_v, 0, (size_t)(rows * wide_v) * sizeof(float));
            for (int64_t h = 0; h < heads; h++) {
                gathered into = {dtable == NULL ? NULL : dtable + h * table,
                                 drelative == NULL ? NULL : drelative + h * relative};
                load_queries(job, cut, set, b, g * heads + h, scratch);
                for (int64_t row = first; row < end; row += KEYS)
                    meet_column(job, cut, set, b, g * heads + h, row, scratch, into);
                leave_queries(job, cut, s, b, g * heads + h, column, scratch, shared);
            }
            float_rows dk = {scratch->dk + first * wide_k, wide_k};
            float_rows dv = {scratch->dv + first * wide_v, wide_v};
            if (set->dk.data != NULL)
                ls_tile_store(&set->dk, b, g, first, end - first, job->K, dk, (float)job->scale);
            if (set->dv.data != NULL)
                ls_tile_store(&set->dv, b, g, first, end - first, job->V, dv, 1);
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
                        const thread_space *scratch, const partials *shared) {
    const int64_t all = transposed_floats(job, cut), step = job->B * job->H * all;
    const int64_t at = (b * job->H + h) * all, k = padded(job->K) * QUERIES;
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        bool relative = set->drelative_q.data != NULL;
        sum_copies(cut->columns, step, all, shared->dq[s] + at);
        if (relative) sum_copies(cut->columns, step, all, shared->drelative_q[s] + at);
        for (int64_t t = 0; t < cut->query_tiles; t++) {
            query_tile tile = {.transposed = scratch->transposed,
                               .relative_transposed = scratch->transposed};
            ls_tile_queries(&tile, job, set, b, h, t * QUERIES, 1, scratch->k_rows);
            store_queries(&tile, &set->dq, set->about->set.xpos.pairs > 0,
                          shared->dq[s] + at + t * k, scratch->k_rows);
            if (relative)
                store_queries(&tile, &set->drelative_q, false, shared->drelative_q[s] + at + t * k,
                              scratch->k_rows);
        }
    }
}

static void sum_shared(const ls_attention_job *job, const work_cut *cut, int64_t h,
                       const partials *shared) {
    const int64_t copies = cut->batch_parts * cut->columns, wide = padded(job->K);
    for (int s = 0; s < job->sets; s++) {
        const ls_key_set_run *set = &job->set[s];
        if (set->dtable != NULL) {
            float *table = shared->dtable[s] + h * set->table_rows;
            sum_copies(copies, job->H * set->table_rows, set->table_rows, table);
            memcpy((float *)set->dtable + h * set->dtable_stride, table,
                   (size_t)set->table_rows * sizeof(float));
        }
        if (set->drelative.data != NULL) {
            int64_t floats = set->relative_rows * wide;
            float *relative = shared->drelative[s] + h * floats;
            sum_copies(copies, job->H * floats, floats, relative);
            ls_tile_store(&set->drelative, 0, h, 0, set->relative_rows, job->K,
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
        thread_space scratch;
        lay_out(job, &cut, (char *)job->workspace + first + (size_t)omp_get_thread_num() * bytes,
                &scratch);
        if (cut.unit) ls_unit_begin();
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < pieces; piece++)
            run_piece(job, &cut, piece / cut.columns / job->G, piece / cut.columns % job->G,
                      piece % cut.columns, &scratch, &shared);
        if (cut.unit) ls_unit_end();
        if (cut.columns > 1) {
#pragma omp for schedule(dynamic)
            for (int64_t piece = 0; piece < job->B * job->H; piece++)
                sum_queries(job, &cut, piece / job->H, piece % job->H, &scratch, &shared);
        }
        if (cut.shared_gradients) {
#pragma omp for schedule(dynamic)
            for (int64_t h = 0; h < job->H; h++) sum_shared(job, &cut, h, &shared);
        }
    }
}
