/* Attention of few queries to many keys, as in decoding: bound by reading keys and values.
 *
 * The keys are cut into chunks of a fixed number of rows. A chunk is read once, all heads of a row
 * together, and leaves for each query its maximum, sum and weighted values; these are merged in the
 * order of the chunks, so the bits do not depend on the number of threads. */
#include <math.h>
#include <omp.h>

#include "tensor/op/attention/attention_tile_cpu.h"

enum {
    FEW = 4,       /* most rows of queries */
    CHUNK = 256,   /* rows of keys */
    STRIP = 32,    /* rows read for one head before the next head's */
    AHEAD = STRIP, /* rows fetched ahead */
    LINE = 64,     /* bytes */
};

typedef struct thread_space {
    float *q;        /* [H * T][K], times scale and log2 e */
    float *decayed;  /* [K]: a query with its share of the decay */
    float *s;        /* [H * T][CHUNK] */
    float *distance; /* [T][CHUNK] */
    int64_t *whole;  /* [T][CHUNK] */
} thread_space;

/* A chunk of the keys of one sequence. */
typedef struct chunk {
    const ls_attention_job *job;
    const ls_key_set_run *set;
    int64_t b, row, count;
    float *result; /* [H * T][V + 2]: maximum, sum, values */
} chunk;

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
    to->decayed = space_take(&from, job->K);
    to->s = space_take(&from, queries * CHUNK);
    to->distance = space_take(&from, job->T * CHUNK);
    to->whole = (int64_t *)(void *)space_take(&from, 2 * job->T * CHUNK);
    return from.used;
}

static size_t result_bytes(const ls_attention_job *job) {
    space from = {.base = NULL};
    space_take(&from, job->B * chunks_of(job) * job->H * job->T * (job->V + 2));
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

/* s[j] = q . row j, for LANES rows `bytes` apart (fewer: the rest repeat the last). */
LS_INLINE void dot_rows(ls_dtype type, const char *rows, int64_t bytes, int64_t count,
                        int64_t width, const float *q, float *s) {
    float parts[LANES * LANES], transposed[LANES * LANES];
    const int64_t whole = width / LANES * LANES, row_bytes = width * (int64_t)ls_dtype_size(type);
    float rest[LANES];
    for (int j = 0; j < LANES; j++) {
        const char *row = rows + ls_min(j, count - 1) * bytes;
        vec sum = {0};
        for (int64_t e = 0; e < whole; e += LANES) sum += load(type, row, e) * vec_load(q + e);
        rest[j] = 0;
        for (int64_t e = whole; e < width; e++) rest[j] += element(type, row, e) * q[e];
        vec_store(parts + j * LANES, sum);
        fetch(row + AHEAD * bytes, row_bytes);
    }
    ls_tile_transpose(parts, LANES, LANES, LANES, transposed, LANES);
    vec sum = vec_load(rest);
    for (int j = 0; j < LANES; j++) sum += vec_load(transposed + j * LANES);
    if (count >= LANES)
        vec_store(s, sum);
    else
        for (int64_t j = 0; j < count; j++) s[j] = sum[j];
}

static void dot_many(const ls_attention_array *x, const void *rows, int64_t count, int64_t width,
                     const float *q, float *s) {
    const int64_t bytes = x->row * (int64_t)ls_dtype_size(x->type);
    for (int64_t j = 0; j < count; j += LANES) {
        const char *at = (const char *)rows + j * bytes;
        if (x->type == LS_F32)
            dot_rows(LS_F32, at, bytes, count - j, width, q, s + j);
        else
            dot_rows(LS_BF16, at, bytes, count - j, width, q, s + j);
    }
}

/* out[e] += sum_j weight[j] * row j [e] */
LS_INLINE void add_rows(ls_dtype type, const char *rows, int64_t bytes, int64_t count,
                        int64_t width, const float *weight, float *out) {
    int64_t e = 0;
    for (; e + 4 * LANES <= width; e += 4 * LANES) {
        vec sum[4];
        UNROLL for (int i = 0; i < 4; i++) sum[i] = vec_load(out + e + i * LANES);
        for (int64_t j = 0; j < count; j++) {
            const char *row = rows + j * bytes;
            UNROLL for (int i = 0; i < 4; i++) sum[i] += weight[j] * load(type, row, e + i * LANES);
            fetch(row + AHEAD * bytes + e * (int64_t)ls_dtype_size(type),
                  4 * LANES * (int64_t)ls_dtype_size(type));
        }
        UNROLL for (int i = 0; i < 4; i++) vec_store(out + e + i * LANES, sum[i]);
    }
    for (; e < width; e++)
        for (int64_t j = 0; j < count; j++)
            out[e] += weight[j] * element(type, rows + j * bytes, e);
}

/* ---- a chunk ---- */

static void load_queries(const chunk *at, const thread_space *scratch) {
    const ls_attention_job *job = at->job;
    const float factor = score_factor(job);
    for (int64_t row = 0; row < job->H * job->T; row++) {
        const void *from = row_address(&at->set->q, at->b, row / job->T, row % job->T);
        for (int64_t e = 0; e < job->K; e++)
            scratch->q[row * job->K + e] = element(at->set->q.type, from, e) * factor;
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

/* The products of one query with keys from `first` on that share a reference of the decay; returns
 * how many they are. */
static int64_t dot_decayed(const chunk *at, int64_t t, const void *rows, int64_t first,
                           int64_t most, const float *q, const thread_space *scratch, float *s) {
    const ls_key_set_plan *about = at->set->about;
    const double block = (double)about->set.xpos.block;
    const int64_t position = at->set->held.first + at->row + first;
    double reference = floor(ls_position_map_at(about->set.key_at, position) / block) * block;
    double query = ls_attention_query_at(at->set, at->b, at->job->start + t);
    int64_t count = 1;
    while (count < most &&
           floor(ls_position_map_at(about->set.key_at, position + count) / block) * block ==
               reference)
        count++;
    for (int64_t e = 0; e < at->job->K; e++) {
        int64_t pair = ls_attention_decay_pair(about, e);
        double factor = pair < 0 ? 1 : exp(about->set.xpos.log_decay[pair] * (query - reference));
        scratch->decayed[e] = q[e] * (float)factor;
    }
    dot_many(&at->set->k, rows, count, at->job->K, scratch->decayed, s);
    return count;
}

static void score(const chunk *at, const thread_space *scratch) {
    const ls_attention_job *job = at->job;
    const ls_key_set_run *set = at->set;
    const int64_t shared = job->H / job->G;
    for (int64_t j = 0; j < at->count; j += STRIP)
        for (int64_t h = 0; h < job->H; h++)
            for (int64_t t = 0; t < job->T; t++) {
                const int64_t count = ls_min(STRIP, at->count - j), row = h * job->T + t;
                const float *q = scratch->q + row * job->K;
                float *s = scratch->s + row * CHUNK + j;
                for (int64_t done = 0; done < count;) {
                    const void *keys = row_address(&set->k, at->b, h / shared, at->row + j + done);
                    if (set->about->set.xpos.pairs > 0) {
                        done +=
                            dot_decayed(at, t, keys, j + done, count - done, q, scratch, s + done);
                    } else {
                        dot_many(&set->k, keys, count, job->K, q, s);
                        done = count;
                    }
                }
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
        for (int64_t e = 0; e < at->job->K; e++)
            scratch->decayed[e] = element(set->relative_q.type, from, e) * factor;
        for (int64_t j = 0; j < at->count; j++) {
            int64_t row = ls_max(0, ls_min(whole[j], set->relative_rows - 1));
            float product;
            dot_many(&set->relative, row_address(&set->relative, 0, h, row), 1, at->job->K,
                     scratch->decayed, &product);
            s[j] += product;
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
static void weigh(int64_t count, float *s, float *result) {
    float most = -INFINITY, sum = 0;
    for (int64_t j = count; j % LANES != 0; j++) s[j] = -INFINITY;
    for (int64_t j = 0; j < count; j++) most = s[j] > most ? s[j] : most;
    const vec base = ls_vec_all(most == -INFINITY ? 0 : most);
    vec sums = {0};
    for (int64_t j = 0; j < count; j += LANES) {
        vec weight = vec_exp2(vec_load(s + j) - base);
        vec_store(s + j, weight);
        sums += weight;
    }
    for (int i = 0; i < LANES; i++) sum += sums[i];
    result[0] = most;
    result[1] = sum;
}

static void attend(const chunk *at, const thread_space *scratch) {
    const ls_attention_job *job = at->job;
    const ls_key_set_run *set = at->set;
    const int64_t shared = job->H / job->G, width = job->V + 2;
    const int64_t bytes = set->v.row * (int64_t)ls_dtype_size(set->v.type);
    load_queries(at, scratch);
    if (!ls_tile_is_plain(set)) load_distances(at, scratch);
    score(at, scratch);
    for (int64_t row = 0; row < job->H * job->T; row++) {
        float *s = scratch->s + row * CHUNK, *result = at->result + row * width;
        add_biases(at, row / job->T, row % job->T, scratch, s);
        if (job->cap > 0) cap_scores(at, s);
        apply_list(at, row / job->T, row % job->T, s);
        mask(at, row / job->T, row % job->T, s);
        weigh(at->count, s, result);
        memset(result + 2, 0, (size_t)job->V * sizeof *result);
    }
    for (int64_t j = 0; j < at->count; j += STRIP)
        for (int64_t row = 0; row < job->H * job->T; row++) {
            const int64_t count = ls_min(STRIP, at->count - j);
            const char *values = row_address(&set->v, at->b, row / job->T / shared, at->row + j);
            const float *weight = scratch->s + row * CHUNK + j;
            float *out = at->result + row * width + 2;
            if (set->v.type == LS_F32)
                add_rows(LS_F32, values, bytes, count, job->V, weight, out);
            else
                add_rows(LS_BF16, values, bytes, count, job->V, weight, out);
        }
}

/* ---- all chunks ---- */

/* Merges the results of a query's chunks into that of the first. */
static void merge(const ls_attention_job *job, int64_t b, int64_t row, int64_t chunks,
                  float *results) {
    const int64_t width = job->V + 2, step = job->H * job->T * width;
    float *first = results + b * chunks * step + row * width;
    float most = job->off_by_one ? 0 : -INFINITY, sum = 0;
    for (int64_t c = 0; c < chunks; c++) most = fmaxf(most, first[c * step]);
    const bool empty = most == -INFINITY;
    if (job->off_by_one) sum = exp2f(-most);
    for (int64_t c = 0; c < chunks; c++) {
        const float *from = first + c * step;
        const float factor = empty ? 0 : exp2f(from[0] - most);
        sum += from[1] * factor;
        for (int64_t e = 2; e < width; e++) first[e] = (c == 0 ? 0 : first[e]) + from[e] * factor;
    }
    const ls_attention_array *out = &job->out;
    const int64_t h = row / job->T, t = row % job->T;
    ls_tile_store(out, b, h, t, 1, job->V, (float_rows){first + 2, width}, empty ? 0 : 1 / sum);
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
    const int64_t queries = job->H * job->T, width = job->V + 2;
    chunk at = {.job = job, .result = (float *)job->workspace + piece * queries * width};
    if (find_chunk(job, piece / chunks, piece % chunks, &at)) {
        attend(&at, scratch);
        return;
    }
    for (int64_t row = 0; row < queries; row++) {
        memset(at.result + row * width, 0, (size_t)width * sizeof(float));
        at.result[row * width] = -INFINITY;
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
