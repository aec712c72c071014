/* Attention of many queries: one pass over the keys of a tile of queries, with a running maximum
 * and sum (online softmax). */
#include <math.h>
#include <omp.h>

#include "tensor/cpu/lib/attention_tile.h"

/* What one thread works in. */
typedef struct thread_space {
    float *turned, *relative_turned; /* [padded K][QUERIES] */
    float *rows;                     /* [KEYS][the wider of padded K and V] */
    float *decay;                    /* [KEYS][padded K] */
    float *band, *meet;
    float *s;   /* [KEYS][QUERIES] */
    float *out; /* [padded V][QUERIES] */
} thread_space;

typedef struct running {
    float most[QUERIES], sum[QUERIES]; /* most: in units of log 2 */
} running;

/* Lays a thread's part out from `from` on; returns its bytes. */
static size_t lay_out(const ls_attention_job *job, char *base, thread_space *to) {
    int64_t k = padded(job->K), v = padded(job->V);
    bool relative = false, decays = false;
    for (int s = 0; s < job->segments; s++) {
        relative |= job->source[s].relative.data != NULL;
        decays |= job->source[s].about->decays;
    }
    space from = {.base = base};
    to->turned = space_take(&from, k * QUERIES);
    to->relative_turned = space_take(&from, relative ? k * QUERIES : 0);
    to->rows = space_take(&from, KEYS * ls_max(k, v));
    to->decay = space_take(&from, decays ? KEYS * k : 0);
    to->band = space_take(&from, relative ? BAND * k : 0);
    to->meet = space_take(&from, relative ? BAND * QUERIES : 0);
    to->s = space_take(&from, KEYS * QUERIES);
    to->out = space_take(&from, v * QUERIES);
    return from.used;
}

size_t ls_attention_tiled_workspace(const ls_attention_job *job, int threads) {
    thread_space unused;
    return lay_out(job, NULL, &unused) * (size_t)threads;
}

/* s becomes the weights, relative to the running maximum; what was summed before shrinks by
 * `shrink`. Tells whether any of it did. */
static bool weigh(int64_t count, float *s, running *run, float *shrink) {
    bool shrinks = false;
    for (int r = 0; r < QUERIES; r += LANES) {
        vec before = vec_load(run->most + r), most = before, sum = {0};
        for (int64_t j = 0; j < count; j++) most = vec_max(most, vec_load(s + j * QUERIES + r));
        /* with nothing admitted yet any finite number serves */
        vec base = vec_pick(most == -INFINITY, (vec){0}, most);
        vec factor = vec_exp2(before - base);
        for (int64_t j = 0; j < count; j++) {
            vec weight = vec_exp2(vec_load(s + j * QUERIES + r) - base);
            vec_store(s + j * QUERIES + r, weight);
            sum += weight;
        }
        vec_store(run->most + r, most);
        vec_store(run->sum + r, vec_load(run->sum + r) * factor + sum);
        vec_store(shrink + r, factor);
        for (int i = 0; i < LANES; i++) shrinks |= factor[i] != 1.0f;
    }
    return shrinks;
}

/* One tile of keys. */
static void meet(const query_tile *queries, key_tile keys, const thread_space *desk, running *run) {
    const ls_attention_job *job = queries->job;
    const ls_attention_source *source = queries->source;
    const int64_t g = queries->h / (job->H / job->G), rows = ls_round_up(keys.count, BLOCK_ROWS);
    float shrink[QUERIES];
    float_rows k =
        ls_tile_load(&source->k, queries->b, g, keys.row, keys.count, rows, job->K, desk->rows);
    if (source->about->decays) {
        int64_t wide = padded(job->K);
        ls_tile_decay_keys(queries, keys.row, keys.count, desk->decay, wide);
        for (int64_t j = 0; j < keys.count; j++)
            for (int64_t e = 0; e < job->K; e++)
                desk->decay[j * wide + e] *= k.at[j * k.stride + e];
        for (int64_t j = keys.count; j < rows; j++)
            memset(desk->decay + j * wide, 0, (size_t)wide * sizeof(float));
        k = (float_rows){desk->decay, wide};
    }
    ls_tile_product(rows, QUERIES, job->K, k.at, k.stride, 1, queries->turned, QUERIES, desk->s,
                    QUERIES, false);
    ls_tile_adjust(queries, &keys, desk->s);
    if (weigh(keys.count, desk->s, run, shrink))
        for (int64_t e = 0; e < padded(job->V); e++)
            for (int r = 0; r < QUERIES; r += LANES) {
                float *at = desk->out + e * QUERIES + r;
                vec_store(at, vec_load(at) * vec_load(shrink + r));
            }
    float_rows v = ls_tile_load(&source->v, queries->b, g, keys.row, keys.count, keys.count, job->V,
                                desk->rows);
    ls_tile_product(job->V, QUERIES, keys.count, v.at, 1, v.stride, desk->s, QUERIES, desk->out,
                    QUERIES, true);
}

/* Writes the tile's output rows and logarithms. */
static void finish(const ls_attention_job *job, const query_tile *queries, const thread_space *desk,
                   running *run) {
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
            float *at = desk->out + e * QUERIES + r;
            vec_store(at, vec_load(at) * vec_load(inverse + r));
        }
    ls_tile_turn(desk->out, QUERIES, wide, QUERIES, desk->rows, wide);
    ls_tile_store(&job->out, queries->b, queries->h, queries->row, queries->count, job->V,
                  (float_rows){desk->rows, wide}, 1);
}

static void attend(const ls_attention_job *job, int64_t b, int64_t h, int64_t row,
                   const thread_space *desk) {
    running run = {.sum = {0}};
    query_tile queries = {.turned = desk->turned, .relative_turned = desk->relative_turned};
    for (int r = 0; r < QUERIES; r++) run.most[r] = -INFINITY;
    memset(desk->out, 0, (size_t)(padded(job->V) * QUERIES) * sizeof(float));
    for (int s = 0; s < job->segments; s++) {
        const ls_attention_source *source = &job->source[s];
        const ls_tile_rule *rule = &source->about->rule;
        ls_tile_run runs[LS_TILE_RUNS_MOST];
        ls_tile_queries(&queries, job, source, b, h, row, desk->rows);
        ls_interval any = ls_interval_cut(ls_keys_any(rule, queries.positions), source->held);
        int count = ls_tile_runs_of_queries(rule, queries.positions, source->held, runs);
        for (int i = 0; i < count; i++)
            for (int64_t t = runs[i].first; t < runs[i].end; t++) {
                /* of the outermost tiles only the keys that some query admits */
                int64_t first = ls_max(t * KEYS, any.first - source->held.first);
                int64_t end = ls_min((t + 1) * KEYS, any.end - source->held.first);
                key_tile keys = {.row = first,
                                 .count = end - first,
                                 .full = runs[i].full,
                                 .band = desk->band,
                                 .meet = desk->meet};
                meet(&queries, keys, desk, &run);
            }
    }
    finish(job, &queries, desk, &run);
}

void ls_attention_tiled(const ls_attention_job *job) {
    const int64_t tiles = ls_ceil_div(job->T, QUERIES), pieces = job->B * job->H * tiles;
    const size_t bytes = ls_attention_tiled_workspace(job, 1);
#pragma omp parallel num_threads(job->threads)
    {
        thread_space desk;
        lay_out(job, (char *)job->workspace + (size_t)omp_get_thread_num() * bytes, &desk);
        /* the last tiles of a causal sequence have the most keys: they go first */
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < pieces; piece++)
            attend(job, piece / tiles / job->H, piece / tiles % job->H,
                   (tiles - 1 - piece % tiles) * QUERIES, &desk);
    }
}
