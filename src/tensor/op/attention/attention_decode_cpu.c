/* Attention of few queries to many keys, as in decoding: bound by reading keys and values.
 *
 * The keys are cut into chunks of a fixed number of rows. A chunk is read once, all heads of a row
 * together and ROWS rows at a time, each the next of a stream of its own: what reads memory ahead
 * finds more to do than in one stream. It leaves for each query its maximum, sum and weighted
 * values; these are merged in the order of the chunks, so the bits do not depend on the number of
 * threads. */
#include <math.h>
#include <omp.h>

#include "tensor/op/attention/attention_tile_cpu.h"

enum {
    FEW = 4,     /* most rows of queries */
    CHUNK = 256, /* rows of keys */
    ROWS = 4,    /* of them at once */
    AHEAD = 512, /* bytes */
    LINE = 64,   /* bytes */
};

typedef struct thread_space {
    float *q;        /* [H * T][K], times scale and log2 e */
    float *decayed;  /* as q, with each query's share of the decay */
    float *s;        /* [H * T][CHUNK] */
    float *distance; /* [T][CHUNK] */
    int64_t *whole;  /* [T][CHUNK] */
} thread_space;

/* A chunk of the keys of one sequence. */
typedef struct chunk {
    const ls_attention_job *job;
    const ls_key_set_run *set;
    int64_t b, row, count;
    float *result; /* [H * T][result_width]: values, maximum, sum */
} chunk;

/* A whole number of a cache's lines. */
static int64_t result_width(const ls_attention_job *job) {
    return ls_round_up(job->V + 2, LINE / (int64_t)sizeof(float));
}

bool ls_attention_decode_fits(const ls_attention_job *job) {
    return job->T <= FEW;
}

static int64_t chunks_of(const ls_attention_job *job) {
    int64_t count = 0;
    for (int s = 0; s < job->sets; s++) count += ls_ceil_div(job->set[s].key_rows, CHUNK);
    return count;
}

static size_t lay_out(const ls_attention_job *job, char *base, thread_space *to) {
    const int64_t queries = job->H * job->T;
    space from = {.base = base};
    to->q = space_take(&from, queries * job->K);
    to->decayed = space_take(&from, queries * job->K);
    to->s = space_take(&from, queries * CHUNK);
    to->distance = space_take(&from, job->T * CHUNK);
    to->whole = (int64_t *)(void *)space_take(&from, 2 * job->T * CHUNK);
    return from.used;
}

static size_t result_bytes(const ls_attention_job *job) {
    space from = {.base = NULL};
    space_take(&from, job->B * chunks_of(job) * job->H * job->T * result_width(job));
    return from.used;
}

size_t ls_attention_decode_workspace(const ls_attention_job *job, int threads) {
    thread_space each;
    return result_bytes(job) + lay_out(job, NULL, &each) * (size_t)threads;
}

/* ---- rows of either type ---- */

static const void *row_address(const ls_attention_array *x, int64_t b, int64_t head, int64_t row) {
    return (const char *)x->data +
           (b * x->batch + row * x->row + head * x->head) * (int64_t)ls_dtype_size(x->type);
}

LS_INLINE vec load(ls_dtype type, const void *row, int64_t e) {
    return type == LS_F32 ? vec_load((const float *)row + e) : ls_widen((const ls_bf16 *)row + e);
}

LS_INLINE float element(ls_dtype type, const void *row, int64_t e) {
    return type == LS_F32 ? ((const float *)row)[e] : ls_bf16_to_f32(((const ls_bf16 *)row)[e]);
}

LS_INLINE void fetch(const char *row, int64_t bytes) {
    for (int64_t at = 0; at < bytes; at += LINE) __builtin_prefetch(row + at);
}

static float dot(ls_dtype type, const void *row, ls_dtype other_type, const void *other,
                 int64_t width) {
    vec sum = {0};
    for (int64_t e = 0; e < width; e += LANES)
        sum +=
            ls_load_left(row, type, e, width - e) * ls_load_left(other, other_type, e, width - e);
    return ls_vec_sum(sum);
}

/* Rows that are passed over together, of a head: row x is the (x * apart)th after the first. */
typedef struct streams {
    const char *row[ROWS];
    int64_t apart, count; /* so many of them are there; those beyond repeat the last */
} streams;

static int64_t apart_of(int64_t count) {
    return ls_ceil_div(count, ROWS);
}

/* Turn `turn` of the rows first .. first + count of x. */
static streams take_streams(const ls_attention_array *x, int64_t b, int64_t first, int64_t count,
                            int64_t turn) {
    streams taken = {.apart = apart_of(count)};
    for (int i = 0; i < ROWS; i++) {
        const int64_t row = turn + i * taken.apart;
        taken.row[i] = row_address(x, b, 0, first + ls_min(row, count - 1));
        taken.count += row < count;
    }
    return taken;
}

/* On to the same rows of the next head; what comes later in the streams is fetched. */
LS_INLINE void next_head(streams *rows, int64_t step, int64_t bytes) {
    UNROLL for (int i = 0; i < ROWS; i++) {
        fetch(rows->row[i] + AHEAD, bytes);
        rows->row[i] += step;
    }
}

/* The products of a query with ROWS rows, lane by lane. */
LS_INLINE void dot_rows(ls_dtype type, const char *const row[ROWS], int64_t width, const float *q,
                        float *parts) {
    vec sum[ROWS] = {{0}};
    int64_t e = 0;
    for (; e + LANES <= width; e += LANES)
        UNROLL for (int i = 0; i < ROWS; i++) sum[i] += load(type, row[i], e) * vec_load(q + e);
    for (; e < width; e++)
        for (int i = 0; i < ROWS; i++) sum[i][0] += element(type, row[i], e) * q[e];
    UNROLL for (int i = 0; i < ROWS; i++) vec_store(parts + i * LANES, sum[i]);
}

/* out += weight[i * apart] * row i, of `rows` rows */
LS_INLINE void add_rows(ls_dtype type, const char *const row[ROWS], int rows, int64_t width,
                        const float *weight, int64_t apart, float *out) {
    float by[ROWS] = {0};
    int64_t e = 0;
    for (int i = 0; i < rows; i++) by[i] = weight[i * apart];
    for (; e + LANES <= width; e += LANES) {
        vec sum = vec_load(out + e);
        UNROLL for (int i = 0; i < rows; i++) sum += by[i] * load(type, row[i], e);
        vec_store(out + e, sum);
    }
    for (; e < width; e++)
        for (int i = 0; i < rows; i++) out[e] += by[i] * element(type, row[i], e);
}

/* ---- a chunk ---- */

static void load_queries(const chunk *at, const thread_space *scratch) {
    const ls_attention_job *job = at->job;
    const float factor = score_factor(job);
    for (int64_t row = 0; row < job->H * job->T; row++) {
        const void *from = row_address(&at->set->q, at->b, row / job->T, row % job->T);
        for (int64_t e = 0; e < job->K; e += LANES) {
            const vec some = ls_load_left(from, at->set->q.type, e, job->K - e) * factor;
            ls_store_left(scratch->q + row * job->K, LS_F32, e, job->K - e, some);
        }
    }
}

/* Distances of the coordinates of each query to each key, real and whole. */
static void load_distances(const chunk *at, const thread_space *scratch) {
    const ls_key_set_plan *about = at->set->about;
    for (int64_t j = 0; j < at->count; j++) {
        double key = ls_position_map_at(about->set.key_at, at->set->held.first + at->row + j);
        for (int64_t t = 0; t < at->job->T; t++) {
            double query = ls_attention_query_at(at->set, at->b, at->job->start + t);
            scratch->distance[t * CHUNK + j] = (float)(query - key);
            scratch->whole[t * CHUNK + j] = (int64_t)llrint(query) - (int64_t)llrint(key);
        }
    }
}

/* Queries with their share of the decay up to the keys from `first` on that share a reference;
 * returns how many these are. */
static int64_t decay_queries(const chunk *at, int64_t first, const thread_space *scratch) {
    const ls_key_set_plan *about = at->set->about;
    const ls_attention_job *job = at->job;
    const double block = (double)about->set.xpos.block;
    const int64_t position = at->set->held.first + at->row + first;
    double reference = floor(ls_position_map_at(about->set.key_at, position) / block) * block;
    int64_t count = 1;
    while (first + count < at->count &&
           floor(ls_position_map_at(about->set.key_at, position + count) / block) * block ==
               reference)
        count++;
    for (int64_t t = 0; t < job->T; t++) {
        double query = ls_attention_query_at(at->set, at->b, job->start + t);
        for (int64_t e = 0; e < job->K; e++) {
            int64_t pair = ls_attention_decay_pair(about, e);
            double factor =
                pair < 0 ? 1 : exp(about->set.xpos.log_decay[pair] * (query - reference));
            for (int64_t h = 0; h < job->H; h++) {
                const int64_t i = (h * job->T + t) * job->K + e;
                scratch->decayed[i] = scratch->q[i] * (float)factor;
            }
        }
    }
    return count;
}

/* Sums of LANES / ROWS queries' products, `queries` of which are there; s: of the first query and
 * row. */
LS_INLINE void put_sums(const float *parts, int64_t queries, const streams *rows, float *s) {
    float sums[LANES];
    vec_store(sums, ls_vec_sums(parts));
    for (int64_t i = 0; i < queries; i++)
        for (int64_t x = 0; x < rows->count; x++)
            s[i * CHUNK + x * rows->apart] = sums[i * ROWS + x];
}

/* The scores of a chunk's keys first .. first + count with the queries q. */
LS_INLINE void score_keys(const chunk *at, ls_dtype type, int64_t first, int64_t count,
                          const float *q, float *s) {
    const ls_attention_job *job = at->job;
    const ls_attention_array *keys = &at->set->k;
    const int64_t shared = job->H / job->G * job->T, size = (int64_t)ls_dtype_size(type);
    _Alignas(LINE) float parts[LANES * LANES] = {0};
    for (int64_t turn = 0; turn < apart_of(count); turn++) {
        streams rows = take_streams(keys, at->b, at->row + first, count, turn);
        int64_t row = 0, held = 0; /* products that wait for their sums */
        for (int64_t g = 0; g < job->G; g++) {
            for (int64_t i = 0; i < shared; i++) {
                dot_rows(type, rows.row, job->K, q + row++ * job->K, parts + held * LANES);
                held += ROWS;
                if (held < LANES && row < job->H * job->T) continue;
                const int64_t queries = held / ROWS;
                put_sums(parts, queries, &rows, s + (row - queries) * CHUNK + first + turn);
                held = 0;
            }
            next_head(&rows, keys->head * size, job->K * size);
        }
    }
}

static void score(const chunk *at, const thread_space *scratch) {
    const bool decays = at->set->about->set.xpos.pairs > 0;
    for (int64_t first = 0, count = at->count; first < at->count; first += count) {
        if (decays) count = decay_queries(at, first, scratch);
        const float *q = decays ? scratch->decayed : scratch->q;
        if (at->set->k.type == LS_F32)
            score_keys(at, LS_F32, first, count, q, scratch->s);
        else
            score_keys(at, LS_BF16, first, count, q, scratch->s);
    }
}

static void add_biases(const chunk *at, int64_t h, int64_t t, const thread_space *scratch,
                       float *s) {
    const ls_key_set_run *set = at->set;
    const float *distance = scratch->distance + t * CHUNK;
    const int64_t *whole = scratch->whole + t * CHUNK;
    if (set->slopes != NULL) {
        const float slope = ((const float *)set->slopes)[h] * LOG2_E;
        const bool both_ways = set->about->set.lo < 0;
        for (int64_t j = 0; j < at->count; j++)
            s[j] -= slope * (both_ways ? fabsf(distance[j]) : distance[j]);
    }
    if (set->table != NULL) {
        const float *table = (const float *)set->table + h * set->table_stride;
        for (int64_t j = 0; j < at->count; j++) {
            int64_t column = whole[j] + set->about->set.table_zero;
            s[j] += table[ls_max(0, ls_min(column, set->table_rows - 1))] * LOG2_E;
        }
    }
    if (set->relative.data != NULL) {
        const void *from = row_address(&set->relative_q, at->b, h, t);
        const float factor = score_factor(at->job);
        for (int64_t j = 0; j < at->count; j++) {
            int64_t row = ls_max(0, ls_min(whole[j], set->relative_rows - 1));
            s[j] += factor * dot(set->relative_q.type, from, set->relative.type,
                                 row_address(&set->relative, 0, h, row), at->job->K);
        }
    }
}

static void mask(const chunk *at, int64_t h, int64_t t, float *s) {
    const ls_key_set_run *set = at->set;
    const int64_t n = at->job->start + t, first = set->held.first + at->row;
    const uint8_t *valid = set->valid;
    /* a single query admits an interval, but for validity and dilation */
    ls_interval keys = ls_keys_any(&set->about->rule, (ls_interval){n, n + 1});
    for (int64_t j = 0; j < ls_min(at->count, keys.first - first); j++) s[j] = -INFINITY;
    for (int64_t j = ls_max(0, keys.end - first); j < at->count; j++) s[j] = -INFINITY;
    for (int64_t j = 0; set->about->rule.checked && j < at->count; j++) {
        if (valid != NULL && valid[at->b * set->valid_batch + at->row + j] == 0) s[j] = -INFINITY;
        if (set->dilation != NULL && !ls_attention_admits(set, h, n, first + j)) s[j] = -INFINITY;
    }
}

/* s has room for whole vectors. */
static void cap_scores(const chunk *at, float *s) {
    const float cap = score_cap(at->job);
    for (int64_t j = at->count; j % LANES != 0; j++) s[j] = 0;
    for (int64_t j = 0; j < at->count; j += LANES) vec_store(s + j, vec_cap(vec_load(s + j), cap));
}

/* Keys that are not listed are not seen; those listed more than once weigh more. */
static void apply_list(const chunk *at, int64_t h, int64_t t, float *s) {
    const ls_key_set_run *set = at->set;
    if (set->seen_by_queries.first == NULL) return;
    for (int64_t j = 0; j < at->count; j++)
        s[j] += log2f(
            (float)ls_attention_times(set, h, at->job->start + t, set->held.first + at->row + j));
}

/* Scores become weights relative to the chunk's maximum. s has room for whole vectors. */
static void weigh(int64_t count, float *s, float most_and_sum[2]) {
    float most = -INFINITY, sum = 0;
    for (int64_t j = count; j % LANES != 0; j++) s[j] = -INFINITY;
    vec highest = ls_vec_all(-INFINITY);
    for (int64_t j = 0; j < count; j += LANES) highest = ls_vec_max(vec_load(s + j), highest);
    for (int i = 0; i < LANES; i++) most = highest[i] > most ? highest[i] : most;
    const vec base = ls_vec_all(most == -INFINITY ? 0 : most);
    vec sums = {0};
    for (int64_t j = 0; j < count; j += LANES) {
        vec weight = vec_exp2(vec_load(s + j) - base);
        vec_store(s + j, weight);
        sums += weight;
    }
    for (int i = 0; i < LANES; i++) sum += sums[i];
    most_and_sum[0] = most;
    most_and_sum[1] = sum;
}

/* The weighted values of a chunk. */
LS_INLINE void add_values(const chunk *at, ls_dtype type, const float *s) {
    const ls_attention_job *job = at->job;
    const ls_attention_array *values = &at->set->v;
    const int64_t shared = job->H / job->G * job->T, size = (int64_t)ls_dtype_size(type);
    for (int64_t turn = 0; turn < apart_of(at->count); turn++) {
        streams rows = take_streams(values, at->b, at->row, at->count, turn);
        int64_t row = 0;
        for (int64_t g = 0; g < job->G; g++) {
            for (int64_t i = 0; i < shared; i++, row++) {
                const float *weight = s + row * CHUNK + turn;
                float *out = at->result + row * result_width(job);
                if (rows.count == ROWS)
                    add_rows(type, rows.row, ROWS, job->V, weight, rows.apart, out);
                else
                    add_rows(type, rows.row, (int)rows.count, job->V, weight, rows.apart, out);
            }
            next_head(&rows, values->head * size, job->V * size);
        }
    }
}

static void attend(const chunk *at, const thread_space *scratch) {
    const ls_attention_job *job = at->job;
    const ls_key_set_run *set = at->set;
    load_queries(at, scratch);
    if (!ls_tile_is_plain(set)) load_distances(at, scratch);
    score(at, scratch);
    for (int64_t row = 0; row < job->H * job->T; row++) {
        float *s = scratch->s + row * CHUNK, *result = at->result + row * result_width(job);
        add_biases(at, row / job->T, row % job->T, scratch, s);
        if (job->cap > 0) cap_scores(at, s);
        apply_list(at, row / job->T, row % job->T, s);
        mask(at, row / job->T, row % job->T, s);
        weigh(at->count, s, result + job->V);
        memset(result, 0, (size_t)job->V * sizeof *result);
    }
    if (set->v.type == LS_F32)
        add_values(at, LS_F32, scratch->s);
    else
        add_values(at, LS_BF16, scratch->s);
}

/* ---- all chunks ---- */

/* Merges the results of a query's chunks into that of the first. */
static void merge(const ls_attention_job *job, int64_t b, int64_t row, int64_t chunks,
                  float *results) {
    const int64_t width = result_width(job), step = job->H * job->T * width;
    float *first = results + b * chunks * step + row * width;
    const float *most_and_sum = first + job->V;
    float most = job->off_by_one ? 0 : -INFINITY, sum = 0;
    for (int64_t c = 0; c < chunks; c++) most = fmaxf(most, most_and_sum[c * step]);
    const bool empty = most == -INFINITY;
    if (job->off_by_one) sum = exp2f(-most);
    for (int64_t c = 0; c < chunks; c++) {
        const float *from = first + c * step;
        const float factor = empty ? 0 : exp2f(most_and_sum[c * step] - most);
        sum += most_and_sum[c * step + 1] * factor;
        for (int64_t e = 0; e < job->V; e++) first[e] = (c == 0 ? 0 : first[e]) + from[e] * factor;
    }
    const ls_attention_array *out = &job->out;
    const int64_t h = row / job->T, t = row % job->T;
    ls_tile_store(out, b, h, t, 1, job->V, (float_rows){first, width}, empty ? 0 : 1 / sum);
    ((float *)job->lse)[(b * job->H + h) * job->T + t] =
        empty ? -INFINITY : (most + log2f(sum)) * LN_2;
}

/* Chunk c of the sequence b; false where it holds no key. */
static bool find_chunk(const ls_attention_job *job, int64_t b, int64_t c, chunk *at) {
    int s = 0;
    for (;; s++) {
        int64_t count = ls_ceil_div(job->set[s].key_rows, CHUNK);
        if (c < count) break;
        c -= count;
    }
    at->set = &job->set[s];
    at->b = b;
    at->row = c * CHUNK;
    at->count = ls_min(CHUNK, ls_interval_length(at->set->held) - at->row);
    if (at->count <= 0) return false;
    ls_interval queries = {job->start, job->start + job->T};
    ls_interval wanted = ls_keys_any(&at->set->about->rule, queries);
    int64_t first = at->set->held.first + at->row;
    return wanted.first < first + at->count && wanted.end > first;
}

static void attend_piece(const ls_attention_job *job, int64_t chunks, int64_t piece,
                         thread_space *scratch) {
    const int64_t queries = job->H * job->T, width = result_width(job);
    chunk at = {.job = job, .result = (float *)job->workspace + piece * queries * width};
    if (find_chunk(job, piece / chunks, piece % chunks, &at)) {
        attend(&at, scratch);
        return;
    }
    for (int64_t row = 0; row < queries; row++) {
        memset(at.result + row * width, 0, (size_t)width * sizeof(float));
        at.result[row * width + job->V] = -INFINITY;
    }
}

/* One thread makes no team: for a short past that would take longer than the work. */
void ls_attention_decode(const ls_attention_job *job) {
    const int64_t chunks = chunks_of(job), queries = job->H * job->T, B = job->B;
    float *results = job->workspace;
    char *spaces = (char *)job->workspace + result_bytes(job);
    thread_space scratch;
    if (job->threads == 1) {
        lay_out(job, spaces, &scratch);
        for (int64_t piece = 0; piece < B * chunks; piece++)
            attend_piece(job, chunks, piece, &scratch);
        for (int64_t row = 0; row < B * queries; row++)
            merge(job, row / queries, row % queries, chunks, results);
        return;
    }
    const size_t bytes = lay_out(job, NULL, &scratch);
#pragma omp parallel num_threads(job->threads)
    {
        thread_space own;
        lay_out(job, spaces + (size_t)omp_get_thread_num() * bytes, &own);
#pragma omp for schedule(dynamic)
        for (int64_t piece = 0; piece < B * chunks; piece++) attend_piece(job, chunks, piece, &own);
#pragma omp for schedule(static)
        for (int64_t row = 0; row < B * queries; row++)
            merge(job, row / queries, row % queries, chunks, results);
    }
}
