/* Attention of many queries: one pass over the keys of a tile of queries, with a running maximum
 * and sum (online softmax). */
#include <math.h>
#include <omp.h>

#include "tensor/cpu/matrix_unit.h"
#include "tensor/op/attention/attention_pairs_cpu.h"

/* What one thread works in, for one of the tiles of queries that it has together. */
typedef struct thread_space {
    /* a tile's own; the rest is shared by all of the thread */
    float *transposed, *relative_transposed; /* [padded K][QUERIES] */
    float *out;                              /* [padded V][QUERIES] */
    float *q_pairs;                          /* for AMX: pairs of the queries' elements */

    float *rows;  /* [KEYS][the wider of padded K and V] */
    float *decay; /* [KEYS][padded K] */
    float *band, *meet;
    float *s; /* [KEYS][QUERIES] */
    /* for AMX: pairs of the weights' rows; rows rounded to bf16 */
    float *weight_pairs;
    ls_bf16 *halves;
} thread_space;

/* With AMX: the values of all tiles, transposed, for all threads: [B][G][tile][padded V][KEYS]. */
typedef struct transposed_values {
    bool unit;
    ls_bf16 *of[LS_KEY_SETS_MAX];
} transposed_values;

static bool with_unit(const ls_attention_job *job) {
    return job->out.type == LS_BF16 && ls_unit_usable();
}

static int64_t key_tiles(const ls_key_set_run *set) {
    return ls_ceil_div(set->key_rows, KEYS);
}

static size_t lay_out_values(const ls_attention_job *job, char *base, transposed_values *to) {
    space from = {.base = base};
    to->unit = with_unit(job);
    for (int s = 0; to->unit && s < job->sets; s++) {
        int64_t tiles = job->B * job->G * key_tiles(&job->set[s]);
        to->of[s] = (ls_bf16 *)(void *)space_take(&from, tiles * padded(job->V) * KEYS / 2);
    }
    return from.used;
}

typedef struct running {
    float most[QUERIES], sum[QUERIES]; /* most: in units of log 2 */
} running;

/* Lays a thread's part out from `from` on; returns its bytes. */
static size_t lay_out(const ls_attention_job *job, char *base, thread_space to[TOGETHER]) {
    int64_t k = padded(job->K), v = padded(job->V);
    bool relative = false, decays = false;
    for (int s = 0; s < job->sets; s++) {
        relative |= job->set[s].relative.data != NULL;
        decays |= job->set[s].about->set.xpos.pairs > 0;
    }
    const bool unit = with_unit(job);
    space from = {.base = base};
    to->rows = space_take(&from, KEYS * ls_max(k, v));
    to->decay = space_take(&from, decays ? KEYS * k : 0);
    to->band = space_take(&from, relative ? BAND * k : 0);
    to->meet = space_take(&from, relative ? BAND * QUERIES : 0);
    to->s = space_take(&from, KEYS * QUERIES);
    to->weight_pairs = space_take(&from, unit ? KEYS / 2 * QUERIES : 0);
    to->halves = (ls_bf16 *)(void *)space_take(&from, unit ? KEYS * ls_max(k, v) / 2 : 0);
    for (int i = 0; i < TOGETHER; i++) {
        to[i] = to[0];
        to[i].transposed = space_take(&from, k * QUERIES);
        to[i].relative_transposed = space_take(&from, relative ? k * QUERIES : 0);
        to[i].out = space_take(&from, v * QUERIES);
        to[i].q_pairs = space_take(&from, unit ? k / 2 * QUERIES : 0);
    }
    return from.used;
}

size_t ls_attention_tiled_workspace(const ls_attention_job *job, int threads) {
    thread_space each[TOGETHER];
    transposed_values values;
    return lay_out(job, NULL, each) * (size_t)threads + lay_out_values(job, NULL, &values);
}

/* s becomes the weights, relative to the running maximum; what was summed before shrinks by
 * `shrink`. Tells whether any of it did. */
static bool weigh(int64_t count, int64_t lanes, float *s, running *run, float *shrink) {
    enum { BESIDE = 2 }; /* vectors of queries: one alone would wait for its own maximum */
    vec_int shrinks = {0};
    for (int r = 0; r < lanes; r += BESIDE * LANES) {
        vec before[BESIDE], most[BESIDE], base[BESIDE], sum[BESIDE];
        UNROLL for (int i = 0; i < BESIDE; i++) {
            before[i] = most[i] = vec_load(run->most + r + i * LANES);
            sum[i] = (vec){0};
        }
        for (int64_t j = 0; j < count; j++) {
            const float *at = s + j * QUERIES + r;
            UNROLL for (int i = 0; i < BESIDE; i++) {
                most[i] = ls_vec_max(most[i], vec_load(at + i * LANES));
            }
        }
        /* with nothing admitted yet any finite number serves */
        UNROLL for (int i = 0; i < BESIDE; i++) {
            base[i] = ls_vec_pick(most[i] == -INFINITY, (vec){0}, most[i]);
        }
        for (int64_t j = 0; j < count; j++) {
            float *at = s + j * QUERIES + r;
            UNROLL for (int i = 0; i < BESIDE; i++) {
                const vec weight = vec_exp2(vec_load(at + i * LANES) - base[i]);
                vec_store(at + i * LANES, weight);
                sum[i] += weight;
            }
        }
        UNROLL for (int i = 0; i < BESIDE; i++) {
            const int at = r + i * LANES;
            const vec factor = vec_exp2(before[i] - base[i]);
            vec_store(run->most + at, most[i]);
            vec_store(run->sum + at, vec_load(run->sum + at) * factor + sum[i]);
            vec_store(shrink + at, factor);
            shrinks |= factor != 1.0f;
        }
    }
    bool any = false;
    for (int i = 0; i < LANES; i++) any |= shrinks[i] != 0;
    return any;
}

static void shrink_output(const ls_attention_job *job, int64_t lanes, const float *shrink,
                          float *out) {
    for (int64_t e = 0; e < padded(job->V); e++)
        for (int r = 0; r < lanes; r += LANES) {
            float *at = out + e * QUERIES + r;
            vec_store(at, vec_load(at) * vec_load(shrink + r));
        }
}

/* One tile of keys. */
static void meet(const query_tile *queries, key_tile keys, const thread_space *scratch,
                 running *run) {
    const ls_attention_job *job = queries->job;
    const ls_key_set_run *set = queries->set;
    float shrink[QUERIES];
    ls_tile_scores(queries, &keys, scratch->rows, scratch->decay, scratch->s);
    if (weigh(keys.count, queries->lanes, scratch->s, run, shrink))
        shrink_output(job, queries->lanes, shrink, scratch->out);
    float_rows v = ls_tile_keys(queries, &set->v, &keys, keys.count, job->V, scratch->rows);
    if (set->v.type == LS_F32 && keys.first) tile_fetch_ahead(v, job->V);
    ls_tile_product(job->V, queries->lanes, keys.count, v.at, 1, v.stride, scratch->s, QUERIES,
                    scratch->out, QUERIES, true);
}

/* ---- with AMX ---- */

/* Pieces run over the key heads first: those of a row lie side by side in memory. */
static void transpose_values(const ls_attention_job *job, int s, int64_t piece,
                             const thread_space *scratch, const transposed_values *values) {
    const ls_key_set_run *set = &job->set[s];
    const int64_t tiles = key_tiles(set), wide = padded(job->V);
    const int64_t g = piece % job->G, t = piece / job->G % tiles, b = piece / job->G / tiles;
    const int64_t count = ls_min(KEYS, ls_interval_length(set->held) - t * KEYS);
    if (count <= 0) return;
    half_rows v = ls_half_load(&set->v, b, g, t * KEYS, count, KEYS, job->V, scratch->halves);
    ls_half_turn(v, wide, scratch->rows,
                 values->of[s] + ((b * job->G + g) * tiles + t) * wide * KEYS);
}

static void pair_queries(const query_tile *queries, const thread_space *scratch) {
    const ls_attention_job *job = queries->job;
    const int64_t wide = padded(job->K);
    half_rows q = {scratch->halves, wide};
    if (queries->transposed != NULL) {
        ls_tile_transpose(queries->transposed, QUERIES, wide, QUERIES, scratch->rows, wide);
        ls_half_round(scratch->rows, QUERIES, wide, scratch->halves);
    } else {
        q = ls_half_load(&queries->set->q, queries->b, queries->h, queries->row, queries->count,
                         QUERIES, job->K, scratch->halves);
    }
    ls_half_pair_elements(q, wide, scratch->q_pairs);
}

/* One tile of keys; `values` are the tile's, from keys.row on. */
static void meet_unit(const query_tile *queries, key_tile keys, const ls_bf16 *values,
                      const thread_space *scratch, running *run) {
    const ls_attention_job *job = queries->job;
    const ls_key_set_run *set = queries->set;
    const int64_t g = queries->h / (job->H / job->G), wide = padded(job->K);
    const int64_t rows = ls_round_up(keys.count, 16), depth = ls_round_up(keys.count, 32);
    const float factor = score_factor(job);
    float shrink[QUERIES];
    half_rows k = {scratch->halves, wide};
    if (set->about->set.xpos.pairs > 0) {
        float_rows plain = ls_tile_load(&set->k, queries->b, g, keys.row, keys.count, keys.count,
                                        job->K, scratch->rows);
        ls_tile_decay_rows(queries, &keys, rows, plain, scratch->decay);
        ls_half_round(scratch->decay, rows, wide, scratch->halves);
    } else {
        k = ls_half_load(&set->k, queries->b, g, keys.row, keys.count, rows, job->K,
                         scratch->halves);
    }
    ls_unit_product(rows, QUERIES, wide, k.at, k.stride, scratch->q_pairs, QUERIES, scratch->s,
                    QUERIES, false);
    for (int64_t i = 0; i < keys.count * QUERIES; i += LANES)
        vec_store(scratch->s + i, vec_load(scratch->s + i) * factor);
    ls_tile_adjust(queries, &keys, scratch->s);
    if (weigh(keys.count, QUERIES, scratch->s, run, shrink))
        shrink_output(job, QUERIES, shrink, scratch->out);
    ls_half_pair_floats(scratch->s, keys.count, depth, scratch->weight_pairs);
    ls_unit_product(padded(job->V), QUERIES, depth, values, KEYS, scratch->weight_pairs, QUERIES,
                    scratch->out, QUERIES, true);
}

/* Writes the tile's output rows and logarithms. */
static void finish(const ls_attention_job *job, const query_tile *queries,
                   const thread_space *scratch, running *run) {
    float inverse[QUERIES];
    float *lse = (float *)job->lse + (queries->b * job->H + queries->h) * job->T + queries->row;
    for (int r = 0; r < queries->count; r++) {
        if (job->off_by_one) { /* a key of score 0 */
            float most = run->most[r] > 0 ? run->most[r] : 0;
            run->sum[r] = run->sum[r] * exp2f(run->most[r] - most) + exp2f(-most);
            inverse[r] = exp2f(run->most[r] - most) / run->sum[r];
            lse[r] = (most + log2f(run->sum[r])) * LN_2;
            continue;
        }
        bool empty = run->sum[r] == 0;
        inverse[r] = empty ? 0 : 1 / run->sum[r];
        lse[r] = empty ? -INFINITY : (run->most[r] + log2f(run->sum[r])) * LN_2;
    }
    for (int r = (int)queries->count; r < QUERIES; r++) inverse[r] = 0;
    int64_t wide = padded(job->V);
    for (int64_t e = 0; e < wide; e++)
        for (int r = 0; r < QUERIES; r += LANES) {
            float *at = scratch->out + e * QUERIES + r;
            vec_store(at, vec_load(at) * vec_load(inverse + r));
        }
    ls_tile_transpose(scratch->out, QUERIES, wide, QUERIES, scratch->rows, wide);
    ls_tile_store(&job->out, queries->b, queries->h, queries->row, queries->count, job->V,
                  (float_rows){scratch->rows, wide}, 1);
}

/* A tile of queries on its way through the keys of a set. */
typedef struct walk {
    query_tile queries;
    running run;
    ls_interval any; /* keys that some query admits */
    ls_tile_run runs[LS_TILE_RUNS_MAX];
    int count, at;
    int64_t t; /* of runs[at], the next tile of keys; or INT64_MAX: there is none */
} walk;

/* On to the first tile of keys from number t of run `at` on. */
static void walk_to(walk *w, int64_t t) {
    while (w->at < w->count) {
        w->t = tile_next_keys(&w->queries, t);
        if (w->t < w->runs[w->at].end) return;
        if (++w->at < w->count) t = w->runs[w->at].first;
    }
    w->t = INT64_MAX;
}

static void walk_begin(walk *w, const ls_attention_job *job, int s, int64_t b, int64_t h,
                       int64_t row, const thread_space *scratch, bool unit) {
    const ls_key_set_run *set = &job->set[s];
    const ls_tile_rule *rule = &set->about->rule;
    w->queries.relative_transposed = scratch->relative_transposed;
    w->queries.transposed = unit && set->about->set.xpos.pairs == 0 ? NULL : scratch->transposed;
    ls_tile_queries(&w->queries, job, set, b, h, row, unit ? 1 : score_factor(job), scratch->rows);
    if (unit) pair_queries(&w->queries, scratch);
    tile_clear_absent(&w->queries, scratch->s); /* what becomes of them is never read */
    w->any = ls_interval_cut(ls_keys_any(rule, w->queries.positions), set->held);
    w->count = ls_tile_runs_of_queries(rule, w->queries.positions, set->held, w->runs);
    w->at = 0;
    walk_to(w, w->count > 0 ? w->runs[0].first : 0);
}

/* Its next tile of keys. */
static void walk_on(walk *w, int s, bool first_to_meet, const thread_space *scratch,
                    const transposed_values *values) {
    const ls_attention_job *job = w->queries.job;
    const ls_key_set_run *set = w->queries.set;
    const int64_t step = values->unit ? 32 : 1, t = w->t;
    /* of the outermost tiles only the keys that some query admits, from whole steps of the products
     * on */
    const int64_t first = ls_max(t * KEYS, w->any.first - set->held.first) / step * step;
    const int64_t end = ls_min((t + 1) * KEYS, w->any.end - set->held.first);
    const key_tile keys = {.row = first,
                           .count = end - first,
                           .full = w->runs[w->at].full,
                           .first = first_to_meet,
                           .band = scratch->band,
                           .meet = scratch->meet};
    if (values->unit) {
        const int64_t g = w->queries.h / (job->H / job->G);
        const int64_t tile = (w->queries.b * job->G + g) * key_tiles(set) + t;
        meet_unit(&w->queries, keys, values->of[s] + tile * padded(job->V) * KEYS + first % KEYS,
                  scratch, &w->run);
    } else {
        meet(&w->queries, keys, scratch, &w->run);
    }
    walk_to(w, t + 1);
}

/* Tiles of queries from `row` on. Each meets its keys in the order in which it would alone. */
static void attend(const ls_attention_job *job, int64_t b, int64_t h, int64_t row, int tiles,
                   const thread_space scratch[TOGETHER], const transposed_values *values) {
    walk w[TOGETHER];
    for (int i = 0; i < tiles; i++) {
        for (int r = 0; r < QUERIES; r++) {
            w[i].run.sum[r] = 0;
            w[i].run.most[r] = -INFINITY;
        }
        memset(scratch[i].out, 0, (size_t)(padded(job->V) * QUERIES) * sizeof(float));
    }
    for (int s = 0; s < job->sets; s++) {
        for (int i = 0; i < tiles; i++)
            walk_begin(&w[i], job, s, b, h, row + i * QUERIES, &scratch[i], values->unit);
        for (;;) {
            int64_t t = INT64_MAX;
            for (int i = 0; i < tiles; i++) t = ls_min(t, w[i].t);
            if (t == INT64_MAX) break;
            bool first = true;
            for (int i = 0; i < tiles; i++)
                if (w[i].t == t) {
                    walk_on(&w[i], s, first, &scratch[i], values);
                    first = false;
                }
        }
    }
    for (int i = 0; i < tiles; i++) finish(job, &w[i].queries, &scratch[i], &w[i].run);
}

/* As many tiles of queries together as leave every thread several pieces. */
static int64_t together(const ls_attention_job *job, int64_t tiles) {
    enum { PIECES_PER_THREAD = 32 };
    const int64_t all = job->B * job->H * tiles;
    return ls_max(1, ls_min(TOGETHER, all / (PIECES_PER_THREAD * job->threads)));
}

void ls_attention_tiled(const ls_attention_job *job) {
    const int64_t tiles = ls_ceil_div(job->T, QUERIES), each = together(job, tiles);
    const int64_t groups = ls_ceil_div(tiles, each), pieces = job->B * job->H * groups;
    thread_space measured[TOGETHER];
    transposed_values values;
    const size_t bytes = lay_out(job, NULL, measured);
    const size_t before = lay_out_values(job, job->workspace, &values);
#pragma omp parallel num_threads(job->threads)
    {
        thread_space scratch[TOGETHER];
        lay_out(job, (char *)job->workspace + before + (size_t)omp_get_thread_num() * bytes,
                scratch);
        if (values.unit) ls_unit_begin();
        for (int s = 0; values.unit && s < job->sets; s++) {
            int64_t parts = job->B * job->G * key_tiles(&job->set[s]);
#pragma omp for schedule(static)
            for (int64_t piece = 0; piece < parts; piece++)
                transpose_values(job, s, piece, scratch, &values);
        }
        /* the last tiles of a causal sequence have the most keys: they go first */
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t tile = (groups - 1 - piece % groups) * each;
            attend(job, piece / groups / job->H, piece / groups % job->H, tile * QUERIES,
                   (int)ls_min(each, tiles - tile), scratch, &values);
        }
        if (values.unit) ls_unit_end();
    }
}
