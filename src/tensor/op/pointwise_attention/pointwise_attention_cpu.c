/* Attention whose weights are a function of the score alone. Nothing is normalised, so tiles of
 * queries and keys meet in any order; backward meets them twice, once for the queries' gradients
 * and once for the keys', so that every sum has one owner. */
#include <math.h>
#include <omp.h>

#include "tensor/cpu/vector.h"
#include "tensor/op/attention/attention_tile_cpu.h"

static const double ROOT_2_PI = 2.50662827463100050242;

static const ls_weighting *weighting_of(const ls_node *node) {
    return &((const ls_attention_attributes *)node->attributes)->weighting;
}

/* ---- reference: pair by pair ---- */

static double *row_at(const ls_attention_array *x, int64_t b, int64_t row, int64_t head) {
    return (double *)x->data + b * x->batch + row * x->row + head * x->head;
}

static double weight_at(const ls_weighting *w, double s, double *slope) {
    if (w->kind == LS_WEIGHT_RELU2) {
        *slope = s > 0 ? 2 * s : 0;
        return s > 0 ? s * s : 0;
    }
    double z = (s - w->mean) / w->deviation;
    *slope = exp(-z * z / 2) / (w->deviation * ROOT_2_PI);
    return 0.5 * erfc(-z / sqrt(2.0));
}

static bool sees(const ls_attention_job *job, int64_t b, int64_t h, int64_t i, int64_t j) {
    const ls_key_set_run *set = &job->set[0];
    if (set->valid != NULL && set->valid[b * set->valid_batch + j] == 0) return false;
    return ls_attention_admits(set, h, job->start + i, set->held.first + j);
}

static int64_t keys_seen(const ls_attention_job *job, int64_t b, int64_t h, int64_t i) {
    int64_t count = 0;
    for (int64_t j = 0; j < ls_interval_length(job->set[0].held); j++)
        count += sees(job, b, h, i, j);
    return count;
}

static int64_t table_column(const ls_key_set_run *set, int64_t distance) {
    return ls_max(0, ls_min(distance + set->about->set.table_zero, set->table_rows - 1));
}

static double score(const ls_attention_job *job, int64_t b, int64_t h, int64_t i, int64_t j,
                    double scale) {
    const ls_key_set_run *set = &job->set[0];
    const double *q = row_at(&set->q, b, i, h);
    const double *k = row_at(&set->k, b, j, h / (job->H / job->G));
    double s = 0;
    for (int64_t e = 0; e < job->K; e++) s += q[e] * k[e];
    s *= scale;
    if (set->table == NULL) return s;
    int64_t distance = job->start + i - set->held.first - j;
    const double *table = (const double *)set->table + h * set->table_stride;
    return s + table[table_column(set, distance)];
}

static void forward_f64(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    const ls_key_set_run *set = &job.set[0];
#pragma omp parallel for schedule(dynamic) num_threads(run->threads)
    for (int64_t row = 0; row < job.B * job.H * job.T; row++) {
        const int64_t b = row / (job.H * job.T), h = row / job.T % job.H, i = row % job.T;
        const double scale = job.scale / (double)keys_seen(&job, b, h, i);
        double *out = row_at(&job.out, b, i, h), slope;
        for (int64_t e = 0; e < job.V; e++) out[e] = 0;
        for (int64_t j = 0; j < ls_interval_length(set->held); j++) {
            if (!sees(&job, b, h, i, j)) continue;
            const double *v = row_at(&set->v, b, j, h / (job.H / job.G));
            double weight = weight_at(weighting_of(node), score(&job, b, h, i, j, scale), &slope);
            for (int64_t e = 0; e < job.V; e++) out[e] += weight * v[e];
        }
    }
}

static void clear(const ls_attention_array *x, int64_t B, int64_t rows, int64_t head,
                  int64_t width) {
    for (int64_t b = 0; x->data != NULL && b < B; b++)
        for (int64_t row = 0; row < rows; row++)
            memset(row_at(x, b, row, head), 0, (size_t)width * sizeof(double));
}

static void add(const ls_attention_array *x, int64_t b, int64_t row, int64_t head, int64_t width,
                double factor, const double *values) {
    for (int64_t e = 0; x->data != NULL && e < width; e++)
        row_at(x, b, row, head)[e] += factor * values[e];
}

static void backward_row(const ls_attention_job *job, const ls_weighting *weighting, int64_t b,
                         int64_t h, int64_t i) {
    const ls_key_set_run *set = &job->set[0];
    const int64_t g = h / (job->H / job->G);
    const double scale = job->scale / (double)keys_seen(job, b, h, i);
    const double *dout = row_at(&job->dout, b, i, h);
    for (int64_t j = 0; j < ls_interval_length(set->held); j++) {
        if (!sees(job, b, h, i, j)) continue;
        const double *v = row_at(&set->v, b, j, g);
        double slope, dweight = 0;
        double weight = weight_at(weighting, score(job, b, h, i, j, scale), &slope);
        for (int64_t e = 0; e < job->V; e++) dweight += dout[e] * v[e];
        const double ds = dweight * slope;
        add(&set->dv, b, j, g, job->V, weight, dout);
        add(&set->dq, b, i, h, job->K, ds * scale, row_at(&set->k, b, j, g));
        add(&set->dk, b, j, g, job->K, ds * scale, row_at(&set->q, b, i, h));
        if (set->dtable == NULL) continue;
        int64_t column = table_column(set, job->start + i - set->held.first - j);
        ((double *)set->dtable)[h * set->dtable_stride + column] += ds;
    }
}

/* A thread has a key head for itself, so that no two write the same place. */
static void backward_f64(const ls_run *run, const ls_node *node) {
    ls_attention_job job;
    ls_attention_resolve(run, node, &job);
    const ls_key_set_run *set = &job.set[0];
    const int64_t shared = job.H / job.G;
#pragma omp parallel for schedule(dynamic) num_threads(run->threads)
    for (int64_t g = 0; g < job.G; g++) {
        clear(&set->dk, job.B, set->key_rows, g, job.K);
        clear(&set->dv, job.B, set->key_rows, g, job.V);
        for (int64_t h = g * shared; h < (g + 1) * shared; h++) {
            clear(&set->dq, job.B, job.T, h, job.K);
            if (set->dtable != NULL)
                memset((double *)set->dtable + h * set->dtable_stride, 0,
                       (size_t)set->table_rows * sizeof(double));
            for (int64_t row = 0; row < job.B * job.T; row++)
                backward_row(&job, weighting_of(node), row / job.T, h, row % job.T);
        }
    }
}

/* ---- f32 and bf16: tiles ---- */

/* Half the complement of the error function at z / sqrt(2), the normal distribution's tail: a fit
 * of the exponent by a polynomial in 1 / (1 + z / 2) with a relative error of 1.2e-7 wherever the
 * result is not 0 (Numerical Recipes, section 6.2, erfcc). */
LS_INLINE ls_vec normal_tail(ls_vec z) {
    const float coefficient[] = {0.17087277f, -0.82215223f, 1.48851587f, -1.13520398f,
                                 0.27886807f, -0.18628806f, 0.09678418f, 0.37409196f,
                                 1.00002368f, -1.26551223f};
    ls_vec x = z * 0.70710678118654752f, t = ls_vec_reciprocal(1.0f + 0.5f * x);
    ls_vec poly = ls_vec_all(coefficient[0]);
    for (int i = 1; i < 10; i++) poly = poly * t + coefficient[i];
    return 0.5f * t * ls_vec_exp(poly - x * x);
}

/* The weight at a score, and where asked for its slope; -infinity gives 0. */
LS_INLINE ls_vec weight_of(const ls_weighting *w, ls_vec s, ls_vec *slope) {
    if (w->kind == LS_WEIGHT_RELU2) {
        ls_vec positive = ls_vec_pick(s < 0.0f, ls_vec_all(0), s);
        if (slope != NULL) *slope = 2.0f * positive;
        return positive * positive;
    }
    /* beyond 40 deviations it is flat in any case */
    ls_vec z = (s - (float)w->mean) * (float)(1 / w->deviation);
    z = ls_vec_pick(z < -40.0f, ls_vec_all(-40), ls_vec_pick(z > 40.0f, ls_vec_all(40), z));
    if (slope != NULL) *slope = ls_vec_exp(-0.5f * z * z) * (float)(1 / (w->deviation * ROOT_2_PI));
    ls_vec tail = normal_tail((ls_vec)((ls_ivec)z & 0x7fffffff));
    return ls_vec_pick(z < 0.0f, tail, 1.0f - tail);
}

/* What both directions begin with: 1 / (number of keys seen) of every query, in the workspace. */
typedef struct work {
    ls_attention_job job;
    const ls_key_set_run *set;
    const ls_weighting *weighting;
    float *inverse;  /* [B][T rounded up to QUERIES], 0 for absent queries */
    int32_t *before; /* [B][keys + 1]: valid keys before each; NULL where all are */
    float *dtable;   /* [H][GROUPS][table rows] */
    float *few;      /* [B][H][T][stretches][V rounded up]: few queries alone */
    char *scratches;
    int64_t tiles; /* of queries */
} work;

/* Query tiles are dealt to this many groups, each of which has a table gradient of its own. */
enum { GROUPS = 16 };
/* With few queries tiles would be empty: every key is read once instead, stretch by stretch. */
enum { FEW = 4, STRETCH = 512 };

static bool has_few(const ls_attention_job *job) {
    return job->T <= FEW;
}
static int64_t stretches_of(const work *w) {
    return ls_ceil_div(w->set->key_rows, STRETCH);
}

static size_t lay_out(work *w, char *base, bool gradient) {
    const ls_attention_job *job = &w->job;
    space from = {.base = base};
    w->set = &job->set[0];
    w->tiles = ls_ceil_div(job->T, QUERIES);
    w->inverse = space_take(&from, job->B * w->tiles * QUERIES);
    bool checked = w->set->valid != NULL, table = gradient && w->set->dtable != NULL;
    w->before =
        checked ? (int32_t *)(void *)space_take(&from, job->B * (w->set->key_rows + 1)) : NULL;
    w->dtable = table ? space_take(&from, job->H * GROUPS * w->set->table_rows) : NULL;
    const int64_t rows = gradient || !has_few(job) ? 0 : job->B * job->H * job->T;
    w->few = space_take(&from, rows * stretches_of(w) * ls_round_up(job->V, LS_LANES));
    w->scratches = base == NULL ? NULL : base + from.used;
    return from.used;
}

/* What one thread works in. */
typedef struct scratch {
    float *rows;                        /* [QUERIES][the wider of padded K and V]: scratch */
    float *transposed, *q_rows, *dq;    /* [padded K][QUERIES], [QUERIES][padded K] */
    float *dout_transposed, *dout_rows; /* [padded V][QUERIES], [QUERIES][padded V] */
    float *k_rows, *v_rows, *dk, *dv;   /* [KEYS][padded K or V] */
    float *s, *ds;                      /* [KEYS][QUERIES] */
    float *out;                         /* [padded V][QUERIES] */
} scratch;

static size_t scratch_at(const ls_attention_job *job, bool gradient, char *base, scratch *to) {
    const int64_t k = padded(job->K), v = padded(job->V), back = gradient ? 1 : 0;
    space from = {.base = base};
    to->rows = space_take(&from, QUERIES * ls_max(k, v));
    to->transposed = space_take(&from, k * QUERIES);
    to->k_rows = space_take(&from, KEYS * k);
    to->v_rows = space_take(&from, KEYS * v);
    to->s = space_take(&from, KEYS * QUERIES);
    to->out = space_take(&from, v * QUERIES);
    to->q_rows = space_take(&from, back * k * QUERIES);
    to->dq = space_take(&from, back * k * QUERIES);
    to->dout_transposed = space_take(&from, back * v * QUERIES);
    to->dout_rows = space_take(&from, back * v * QUERIES);
    to->dk = space_take(&from, back * KEYS * k);
    to->dv = space_take(&from, back * KEYS * v);
    to->ds = space_take(&from, back * KEYS * QUERIES);
    return from.used;
}

static size_t workspace(const ls_node *node, int threads, bool gradient) {
    work w = {0};
    scratch measured;
    ls_attention_resolve(NULL, node, &w.job);
    if (w.job.set[0].q.type == LS_F64) return 0;
    return lay_out(&w, NULL, gradient) +
           (size_t)threads * scratch_at(&w.job, gradient, NULL, &measured);
}
static size_t forward_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, false);
}
static size_t backward_workspace(const ls_node *node, int threads) {
    return workspace(node, threads, true);
}

static scratch own_scratch(const work *w, bool gradient) {
    scratch k;
    const size_t bytes = scratch_at(&w->job, gradient, NULL, &k);
    scratch_at(&w->job, gradient, w->scratches + (size_t)omp_get_thread_num() * bytes, &k);
    return k;
}

static void count_keys(const work *w, int64_t b) {
    const ls_key_set_run *set = w->set;
    const int64_t keys = ls_interval_length(set->held), rows = w->tiles * QUERIES;
    int32_t *before = w->before == NULL ? NULL : w->before + b * (set->key_rows + 1);
    if (before != NULL) before[0] = 0;
    for (int64_t j = 0; before != NULL && j < keys; j++)
        before[j + 1] = before[j] + (set->valid[b * set->valid_batch + j] != 0);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t n = w->job.start + i, first = set->held.first;
        ls_interval seen =
            ls_interval_cut(ls_keys_any(&set->about->rule, (ls_interval){n, n + 1}), set->held);
        int64_t count = ls_interval_length(seen);
        if (count > 0 && before != NULL)
            count = before[seen.end - first] - before[seen.first - first];
        w->inverse[b * rows + i] = i < w->job.T && count > 0 ? 1 / (float)count : 0;
    }
}

static void begin(const ls_run *run, const ls_node *node, bool gradient, work *w) {
    *w = (work){.weighting = weighting_of(node)};
    ls_attention_resolve(run, node, &w->job);
    lay_out(w, run->workspace, gradient);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t b = 0; b < w->job.B; b++) count_keys(w, b);
}

/* ---- tiles ---- */

static const float *inverse_of(const work *w, int64_t b, int64_t tile) {
    return w->inverse + (b * w->tiles + tile) * QUERIES;
}

/* The queries of a tile: q * scale / (keys seen), in units of log 2. */
static query_tile begin_tile(const work *w, const scratch *k, int64_t b, int64_t h, int64_t tile) {
    query_tile queries = {.transposed = k->transposed};
    const float *inverse = inverse_of(w, b, tile);
    ls_tile_queries(&queries, &w->job, w->set, b, h, tile * QUERIES, score_factor(&w->job),
                    k->rows);
    for (int64_t e = 0; e < w->job.K; e++)
        for (int r = 0; r < QUERIES; r += LANES) {
            float *at = k->transposed + e * QUERIES + r;
            vec_store(at, vec_load(at) * vec_load(inverse + r));
        }
    return queries;
}

static float_rows load_keys(const ls_attention_array *x, int64_t b, int64_t g, const key_tile *keys,
                            int64_t width, float *buffer) {
    return ls_tile_load(x, b, g, keys->row, keys->count, ls_round_up(keys->count, BLOCK_ROWS),
                        width, buffer);
}

/* Scores of a tile of keys into k->s. */
static void meet(const query_tile *queries, const key_tile *keys, float_rows rows,
                 const scratch *k) {
    ls_tile_product(ls_round_up(keys->count, BLOCK_ROWS), QUERIES, queries->job->K, rows.at,
                    rows.stride, 1, queries->transposed, QUERIES, k->s, QUERIES, false);
    ls_tile_adjust(queries, keys, k->s);
}

typedef void (*meeting)(const work *w, const query_tile *queries, const key_tile *keys,
                        const scratch *k, float *dtable);

/* Calls `step` for every tile of keys that a tile of queries meets, with those of its keys that
 * some query admits. */
static void for_keys(const work *w, const query_tile *queries, const scratch *k, float *dtable,
                     meeting step) {
    const ls_tile_rule *rule = &w->set->about->rule;
    const ls_interval held = w->set->held;
    ls_interval any = ls_interval_cut(ls_keys_any(rule, queries->positions), held);
    ls_tile_run runs[LS_TILE_RUNS_MAX];
    int count = ls_tile_runs_of_queries(rule, queries->positions, held, runs);
    for (int i = 0; i < count; i++)
        for (int64_t t = runs[i].first; t < runs[i].end; t++) {
            int64_t first = ls_max(t * KEYS, any.first - held.first);
            int64_t end = ls_min((t + 1) * KEYS, any.end - held.first);
            const key_tile keys = {.row = first, .count = end - first, .full = runs[i].full};
            step(w, queries, &keys, k, dtable);
        }
}

/* Writes [width][QUERIES] sums as the rows of a tile's queries. */
static void store_tile(const ls_attention_array *to, const query_tile *queries, int64_t width,
                       const float *sums, const scratch *k) {
    ls_tile_transpose(sums, QUERIES, padded(width), QUERIES, k->rows, padded(width));
    ls_tile_store(to, queries->b, queries->h, queries->row, queries->count, width,
                  (float_rows){k->rows, padded(width)}, 1);
}

/* ---- forward ---- */

static void add_values(const work *w, const query_tile *queries, const key_tile *keys,
                       const scratch *k, float *dtable) {
    const int64_t b = queries->b, g = queries->h / (w->job.H / w->job.G);
    (void)dtable;
    meet(queries, keys, load_keys(&w->set->k, b, g, keys, w->job.K, k->k_rows), k);
    for (int64_t i = 0; i < keys->count * QUERIES; i += LS_LANES)
        ls_store(k->s, LS_F32, i, weight_of(w->weighting, ls_load(k->s, LS_F32, i) * LN_2, NULL));
    float_rows v = load_keys(&w->set->v, b, g, keys, w->job.V, k->v_rows);
    ls_tile_product(w->job.V, QUERIES, keys->count, v.at, 1, v.stride, k->s, QUERIES, k->out,
                    QUERIES, true);
}

LS_INLINE ls_vec row_part(const ls_attention_array *x, int64_t b, int64_t row, int64_t head,
                          int64_t e, int64_t width, ls_dtype type) {
    return ls_load_left(x->data, type, b * x->batch + row * x->row + head * x->head + e, width - e);
}

/* What the keys of rows first .. end give to one query, into out[V]. */
LS_INLINE void meet_stretch(const work *w, int64_t b, int64_t h, int64_t i, ls_interval keys,
                            ls_dtype type, float *out) {
    const ls_attention_job *job = &w->job;
    const ls_key_set_run *set = w->set;
    const int64_t g = h / (job->H / job->G), n = job->start + i;
    const float scale = (float)job->scale * w->inverse[b * w->tiles * QUERIES + i];
    const float *table = (const float *)set->table;
    const uint8_t *valid = set->valid == NULL ? NULL : set->valid + b * set->valid_batch;
    memset(out, 0, (size_t)ls_round_up(job->V, LS_LANES) * sizeof *out);
    for (int64_t first = keys.first; first < keys.end; first += LS_LANES) {
        const int64_t count = ls_min(LS_LANES, keys.end - first);
        float s[LS_LANES];
        for (int64_t j = 0; j < LS_LANES; j++) {
            s[j] = -INFINITY;
            if (j >= count || (valid != NULL && valid[first + j] == 0)) continue;
            ls_vec sum = ls_vec_all(0);
            for (int64_t e = 0; e < job->K; e += LS_LANES)
                sum += row_part(&set->q, b, i, h, e, job->K, type) *
                       row_part(&set->k, b, first + j, g, e, job->K, type);
            s[j] = ls_vec_sum(sum) * scale;
            if (table != NULL)
                s[j] += table[h * set->table_stride +
                              table_column(set, n - set->held.first - first - j)];
        }
        ls_store(s, LS_F32, 0, weight_of(w->weighting, ls_load(s, LS_F32, 0), NULL));
        for (int64_t e = 0; e < job->V; e += LS_LANES) {
            ls_vec sum = ls_load(out, LS_F32, e);
            for (int64_t j = 0; j < count; j++)
                sum += s[j] * row_part(&set->v, b, first + j, g, e, job->V, type);
            ls_store(out, LS_F32, e, sum);
        }
    }
}

static void forward_few(const ls_run *run, const work *w) {
    const ls_attention_job *job = &w->job;
    const ls_key_set_run *set = w->set;
    const int64_t stretches = stretches_of(w), rows = job->B * job->H * job->T;
    const int64_t wide = ls_round_up(job->V, LS_LANES);
#pragma omp parallel num_threads(run->threads)
    {
#pragma omp for schedule(static)
        for (int64_t piece = 0; piece < rows * stretches; piece++) {
            const int64_t row = piece / stretches, i = row % job->T, n = job->start + i;
            const int64_t b = row / job->T / job->H, h = row / job->T % job->H;
            ls_interval seen =
                ls_interval_cut(ls_keys_any(&set->about->rule, (ls_interval){n, n + 1}), set->held);
            ls_interval here = {piece % stretches * STRETCH, (piece % stretches + 1) * STRETCH};
            here = ls_interval_cut(
                here, (ls_interval){seen.first - set->held.first, seen.end - set->held.first});
            if (set->k.type == LS_F32)
                meet_stretch(w, b, h, i, here, LS_F32, w->few + piece * wide);
            else
                meet_stretch(w, b, h, i, here, LS_BF16, w->few + piece * wide);
        }
#pragma omp for schedule(static)
        for (int64_t row = 0; row < rows; row++) {
            const int64_t b = row / job->T / job->H, h = row / job->T % job->H;
            float *sum = w->few + row * stretches * wide;
            for (int64_t at = wide; at < stretches * wide; at++) sum[at % wide] += sum[at];
            ls_tile_store(&job->out, b, h, row % job->T, 1, job->V, (float_rows){sum, wide}, 1);
        }
    }
}

static void forward(const ls_run *run, const ls_node *node) {
    work w;
    begin(run, node, false, &w);
    if (has_few(&w.job)) {
        forward_few(run, &w);
        return;
    }
    const int64_t H = w.job.H, pieces = w.job.B * H * w.tiles;
#pragma omp parallel num_threads(run->threads)
    {
        const scratch k = own_scratch(&w, false);
        /* the last tiles of a causal sequence have the most keys: they go first */
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t row = piece / w.tiles, tile = w.tiles - 1 - piece % w.tiles;
            const query_tile queries = begin_tile(&w, &k, row / H, row % H, tile);
            memset(k.out, 0, (size_t)(padded(w.job.V) * QUERIES) * sizeof(float));
            for_keys(&w, &queries, &k, NULL, add_values);
            store_tile(&w.job.out, &queries, w.job.V, k.out, &k);
        }
    }
}

/* ---- backward ---- */

/* Queries with their share of the scale, and output gradients, in the forms products want. */
static query_tile begin_tile_grad(const work *w, const scratch *k, int64_t b, int64_t h,
                                  int64_t tile) {
    const query_tile queries = begin_tile(w, k, b, h, tile);
    const int64_t wide_k = padded(w->job.K), wide_v = padded(w->job.V);
    const float *inverse = inverse_of(w, b, tile), scale = (float)w->job.scale;
    float_rows q =
        ls_tile_load(&w->set->q, b, h, queries.row, queries.count, QUERIES, w->job.K, k->rows);
    for (int r = 0; r < QUERIES; r++)
        for (int64_t e = 0; e < wide_k; e++)
            k->q_rows[r * wide_k + e] = q.at[r * q.stride + e] * (inverse[r] * scale);
    float_rows dout =
        ls_tile_load(&w->job.dout, b, h, queries.row, queries.count, QUERIES, w->job.V, k->rows);
    for (int r = 0; r < QUERIES; r++)
        memcpy(k->dout_rows + r * wide_v, dout.at + r * dout.stride,
               (size_t)wide_v * sizeof(float));
    ls_tile_transpose(k->dout_rows, wide_v, QUERIES, wide_v, k->dout_transposed, QUERIES);
    return queries;
}

/* Leaves the weights in k->s and the scores' gradients in k->ds, rows from count on 0. */
static void differentiate(const work *w, const query_tile *queries, const key_tile *keys,
                          float_rows key_rows, float_rows value_rows, const scratch *k) {
    const int64_t rows = ls_round_up(keys->count, BLOCK_ROWS), real = keys->count * QUERIES;
    meet(queries, keys, key_rows, k);
    ls_tile_product(rows, QUERIES, w->job.V, value_rows.at, value_rows.stride, 1,
                    k->dout_transposed, QUERIES, k->ds, QUERIES, false);
    for (int64_t i = 0; i < real; i += LS_LANES) {
        ls_vec slope, weight = weight_of(w->weighting, ls_load(k->s, LS_F32, i) * LN_2, &slope);
        ls_store(k->s, LS_F32, i, weight);
        ls_store(k->ds, LS_F32, i, ls_load(k->ds, LS_F32, i) * slope);
    }
    memset(k->s + real, 0, (size_t)(rows * QUERIES - real) * sizeof(float));
    memset(k->ds + real, 0, (size_t)(rows * QUERIES - real) * sizeof(float));
}

/* Distances fall from key to key and rise from query to query. */
static void add_to_table(const work *w, const query_tile *queries, const key_tile *keys,
                         const float *ds, float *dtable) {
    float slice[BAND] = {0};
    const int64_t least = tile_whole_distance(queries, keys->row + keys->count - 1);
    for (int64_t j = 0; j < keys->count; j++)
        for (int r = 0; r < QUERIES; r++) slice[keys->count - 1 - j + r] += ds[j * QUERIES + r];
    for (int64_t d = 0; d < keys->count + QUERIES - 1; d++)
        dtable[table_column(w->set, least + d)] += slice[d];
}

static void add_to_queries(const work *w, const query_tile *queries, const key_tile *keys,
                           const scratch *k, float *dtable) {
    const int64_t b = queries->b, g = queries->h / (w->job.H / w->job.G);
    float_rows key_rows = load_keys(&w->set->k, b, g, keys, w->job.K, k->k_rows);
    float_rows value_rows = load_keys(&w->set->v, b, g, keys, w->job.V, k->v_rows);
    differentiate(w, queries, keys, key_rows, value_rows, k);
    ls_tile_product(w->job.K, QUERIES, keys->count, key_rows.at, 1, key_rows.stride, k->ds, QUERIES,
                    k->dq, QUERIES, true);
    if (dtable != NULL) add_to_table(w, queries, keys, k->ds, dtable);
}

/* The gradients of the queries and of the table, of one group of tiles of head h. */
static void queries_grad(const work *w, const scratch *k, int64_t h, int64_t group) {
    const int64_t R = w->set->table_rows, wide = padded(w->job.K);
    float *dtable = w->dtable == NULL ? NULL : w->dtable + (h * GROUPS + group) * R;
    if (dtable != NULL) memset(dtable, 0, (size_t)R * sizeof *dtable);
    for (int64_t at = group; at < w->job.B * w->tiles; at += GROUPS) {
        const int64_t b = at / w->tiles, tile = at % w->tiles;
        const query_tile queries = begin_tile_grad(w, k, b, h, tile);
        const float *inverse = inverse_of(w, b, tile), scale = (float)w->job.scale;
        memset(k->dq, 0, (size_t)(wide * QUERIES) * sizeof(float));
        for_keys(w, &queries, k, dtable, add_to_queries);
        if (w->set->dq.data == NULL) continue;
        for (int64_t e = 0; e < w->job.K; e++)
            for (int r = 0; r < QUERIES; r++) k->dq[e * QUERIES + r] *= inverse[r] * scale;
        store_tile(&w->set->dq, &queries, w->job.K, k->dq, k);
    }
}

/* The gradients of tile t of the keys and values of head g. */
static void keys_grad(const work *w, const scratch *k, int64_t b, int64_t g, int64_t t) {
    const ls_attention_job *job = &w->job;
    const ls_key_set_run *set = w->set;
    const int64_t wide_k = padded(job->K), wide_v = padded(job->V), shared = job->H / job->G;
    const int64_t first = set->held.first + t * KEYS;
    const int64_t count = ls_min(KEYS, set->held.end - first);
    const int64_t rows = ls_round_up(count, BLOCK_ROWS);
    memset(k->dk, 0, (size_t)(KEYS * wide_k) * sizeof(float));
    memset(k->dv, 0, (size_t)(KEYS * wide_v) * sizeof(float));
    key_tile keys = {.row = t * KEYS, .count = count};
    ls_tile_run runs[LS_TILE_RUNS_MAX];
    int found = count <= 0
                    ? 0
                    : ls_tile_runs_of_keys(&set->about->rule, (ls_interval){first, first + count},
                                           (ls_interval){job->start, job->start + job->T}, runs);
    if (found > 0) {
        float_rows key_rows = load_keys(&set->k, b, g, &keys, job->K, k->k_rows);
        float_rows value_rows = load_keys(&set->v, b, g, &keys, job->V, k->v_rows);
        for (int64_t h = g * shared; h < (g + 1) * shared; h++)
            for (int i = 0; i < found; i++)
                for (int64_t tile = runs[i].first; tile < runs[i].end; tile++) {
                    const query_tile queries = begin_tile_grad(w, k, b, h, tile);
                    keys.full = runs[i].full;
                    differentiate(w, &queries, &keys, key_rows, value_rows, k);
                    ls_tile_product(rows, wide_v, QUERIES, k->s, QUERIES, 1, k->dout_rows, wide_v,
                                    k->dv, wide_v, true);
                    ls_tile_product(rows, wide_k, QUERIES, k->ds, QUERIES, 1, k->q_rows, wide_k,
                                    k->dk, wide_k, true);
                }
    }
    const int64_t stored = ls_min(KEYS, set->key_rows - t * KEYS);
    if (set->dk.data != NULL)
        ls_tile_store(&set->dk, b, g, t * KEYS, stored, job->K, (float_rows){k->dk, wide_k}, 1);
    if (set->dv.data != NULL)
        ls_tile_store(&set->dv, b, g, t * KEYS, stored, job->V, (float_rows){k->dv, wide_v}, 1);
}

static void add_tables_up(const work *w) {
    const int64_t R = w->set->table_rows;
    for (int64_t h = 0; h < w->job.H; h++) {
        float *to = (float *)w->set->dtable + h * w->set->dtable_stride;
        memset(to, 0, (size_t)R * sizeof *to);
        for (int64_t group = 0; group < GROUPS; group++)
            for (int64_t r = 0; r < R; r++) to[r] += w->dtable[(h * GROUPS + group) * R + r];
    }
}

static void backward(const ls_run *run, const ls_node *node) {
    work w;
    begin(run, node, true, &w);
    const int64_t key_tiles = ls_ceil_div(w.set->key_rows, KEYS), G = w.job.G;
#pragma omp parallel num_threads(run->threads)
    {
        const scratch k = own_scratch(&w, true);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < w.job.H * GROUPS; piece++)
            queries_grad(&w, &k, piece / GROUPS, piece % GROUPS);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < w.job.B * G * key_tiles; piece++)
            keys_grad(&w, &k, piece / key_tiles / G, piece / key_tiles % G, piece % key_tiles);
    }
    if (w.dtable != NULL) add_tables_up(&w);
}

const ls_kernel LS_CPU_TABLE(pointwise_attention)[] = {
    {"pointwise_attention", {forward_f64, forward, forward}, forward_workspace},
    {"pointwise_attention_grad", {backward_f64, backward, backward}, backward_workspace},
    {0},
};
