#include "tensor/op/attention/attention_tile_cpu.h"

#include <math.h>

/* ---- products ---- */

/* Adds the products of the first lines of b, as many as it returns. ARM multiplies by one lane of a
 * vector, so there a is read by vectors, along k or across it. */
LS_INLINE int64_t add_lines(int64_t depth, const float *a, int64_t step_row, int64_t step_k,
                            const float *b, int64_t b_stride, vec sum[BLOCK_ROWS][2]) {
    int64_t k = 0;
#if defined(__ARM_NEON)
#define ADD(row, x, lane)                                                                          \
    (sum[row][0] = vfmaq_laneq_f32(sum[row][0], b0, x, lane),                                      \
     sum[row][1] = vfmaq_laneq_f32(sum[row][1], b1, x, lane))
#define ADD_LINE(lane)                                                                             \
    do {                                                                                           \
        const vec b0 = vld1q_f32(b + (k + (lane)) * b_stride);                                     \
        const vec b1 = vld1q_f32(b + (k + (lane)) * b_stride + LANES);                             \
        UNROLL for (int i = 0; i < BLOCK_ROWS; i++) ADD(i, x[i], lane);                            \
    } while (0)
    if (step_k == 1) {
        for (; k + LANES <= depth; k += LANES) {
            vec x[BLOCK_ROWS];
            UNROLL for (int i = 0; i < BLOCK_ROWS; i++) x[i] = vld1q_f32(a + i * step_row + k);
            ADD_LINE(0);
            ADD_LINE(1);
            ADD_LINE(2);
            ADD_LINE(3);
        }
    } else {
        for (; k < depth; k++) {
            const vec b0 = vld1q_f32(b + k * b_stride), b1 = vld1q_f32(b + k * b_stride + LANES);
            UNROLL for (int i = 0; i < BLOCK_ROWS; i += LANES) {
                const vec x = vld1q_f32(a + k * step_k + i);
                ADD(i, x, 0);
                ADD(i + 1, x, 1);
                ADD(i + 2, x, 2);
                ADD(i + 3, x, 3);
            }
        }
    }
#undef ADD_LINE
#undef ADD
#else
    (void)depth, (void)a, (void)step_row, (void)step_k, (void)b, (void)b_stride, (void)sum;
#endif
    return k;
}

/* BLOCK_ROWS x two vectors of c; one of the steps is the constant 1 where this is inlined. */
LS_INLINE void product_block(int64_t depth, const float *a, int64_t step_row, int64_t step_k,
                             const float *b, int64_t b_stride, float *c, int64_t c_stride,
                             bool add) {
    vec sum[BLOCK_ROWS][2];
    UNROLL for (int i = 0; i < BLOCK_ROWS; i++) {
        sum[i][0] = add ? vec_load(c + i * c_stride) : (vec){0};
        sum[i][1] = add ? vec_load(c + i * c_stride + LANES) : (vec){0};
    }
    int64_t k = add_lines(depth, a, step_row, step_k, b, b_stride, sum);
    for (; k < depth; k++) {
        vec b0 = vec_load(b + k * b_stride), b1 = vec_load(b + k * b_stride + LANES);
        UNROLL for (int i = 0; i < BLOCK_ROWS; i++) {
            float x = a[i * step_row + k * step_k];
            sum[i][0] += x * b0;
            sum[i][1] += x * b1;
        }
    }
    UNROLL for (int i = 0; i < BLOCK_ROWS; i++) {
        vec_store(c + i * c_stride, sum[i][0]);
        vec_store(c + i * c_stride + LANES, sum[i][1]);
    }
}

void ls_tile_product(int64_t rows, int64_t lanes, int64_t depth, const float *a, int64_t step_row,
                     int64_t step_k, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                     bool add) {
    for (int64_t lane = 0; lane < lanes; lane += 2 * LANES)
        for (int64_t i = 0; i < rows; i += BLOCK_ROWS) {
            const float *from = a + i * step_row;
            float *to = c + i * c_stride + lane;
            if (step_k == 1)
                product_block(depth, from, step_row, 1, b + lane, b_stride, to, c_stride, add);
            else
                product_block(depth, from, 1, step_k, b + lane, b_stride, to, c_stride, add);
        }
}

/* ---- moving ---- */

static const void *row_address(const ls_attention_array *x, int64_t b, int64_t head, int64_t row) {
    return (const char *)x->data +
           (b * x->batch + row * x->row + head * x->head) * (int64_t)ls_dtype_size(x->type);
}

static void load_row(ls_dtype type, const void *from, int64_t width, float *to) {
    int64_t e = 0;
    if (type == LS_F32) {
        memcpy(to, from, (size_t)width * sizeof(float));
        return;
    }
    const ls_bf16 *halves = from;
    for (; e + LANES <= width; e += LANES) vec_store(to + e, ls_widen(halves + e));
    for (; e < width; e++) to[e] = ls_bf16_to_f32(halves[e]);
}

float_rows ls_tile_load(const ls_attention_array *x, int64_t b, int64_t head, int64_t row,
                        int64_t count, int64_t rows, int64_t width, float *buffer) {
    if (x->type == LS_F32 && width % PAD == 0 && count == rows &&
        (ROWS_MAY_LIE_APART || x->row == width))
        return (float_rows){row_address(x, b, head, row), x->row};
    int64_t wide = padded(width);
    for (int64_t i = 0; i < rows; i++) {
        float *to = buffer + i * wide;
        int64_t real = i < count ? width : 0;
        if (real > 0) load_row(x->type, row_address(x, b, head, row + i), width, to);
        memset(to + real, 0, (size_t)(wide - real) * sizeof(float));
    }
    return (float_rows){buffer, wide};
}

float_rows ls_tile_keys(const query_tile *tile, const ls_attention_array *x, const key_tile *keys,
                        int64_t rows, int64_t width, float *buffer) {
    const int64_t g = tile->h / (tile->job->H / tile->job->G);
    if (tile->lanes < QUERIES && x->type == LS_F32 && width % PAD == 0 && keys->count == rows)
        return (float_rows){row_address(x, tile->b, g, keys->row), x->row};
    return ls_tile_load(x, tile->b, g, keys->row, keys->count, rows, width, buffer);
}

void ls_tile_store(const ls_attention_array *x, int64_t b, int64_t head, int64_t row, int64_t count,
                   int64_t width, float_rows from, float factor) {
    for (int64_t i = 0; i < count; i++) {
        const float *values = from.at + i * from.stride;
        void *to = (char *)x->data + (b * x->batch + (row + i) * x->row + head * x->head) *
                                         (int64_t)ls_dtype_size(x->type);
        int64_t e = 0;
        if (x->type == LS_F32) {
            for (; e + LANES <= width; e += LANES)
                vec_store((float *)to + e, vec_load(values + e) * factor);
            for (; e < width; e++) ((float *)to)[e] = values[e] * factor;
        } else {
            for (; e + LANES <= width; e += LANES)
                ls_store((ls_bf16 *)to + e, LS_BF16, 0, vec_load(values + e) * factor);
            for (; e < width; e++) ((ls_bf16 *)to)[e] = ls_bf16_from_f32(values[e] * factor);
        }
    }
}

#if LS_ISA_avx512
LS_INLINE void transpose_block(const float *from, int64_t from_stride, float *to,
                               int64_t to_stride) {
    __m512 a[16], t[16];
    UNROLL for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_ps(from + i * from_stride);
    UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(a[i], a[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(a[i], a[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        a[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        a[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        a[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    /* a[4 r + c] holds in its quarter l column 4 l + c of rows 4 r .. 4 r + 3 */
    UNROLL for (int c = 0; c < 4; c++) {
        __m512 low01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0x44);
        __m512 high01 = _mm512_shuffle_f32x4(a[c], a[4 + c], 0xee);
        __m512 low23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0x44);
        __m512 high23 = _mm512_shuffle_f32x4(a[8 + c], a[12 + c], 0xee);
        _mm512_storeu_ps(to + c * to_stride, _mm512_shuffle_f32x4(low01, low23, 0x88));
        _mm512_storeu_ps(to + (4 + c) * to_stride, _mm512_shuffle_f32x4(low01, low23, 0xdd));
        _mm512_storeu_ps(to + (8 + c) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0x88));
        _mm512_storeu_ps(to + (12 + c) * to_stride, _mm512_shuffle_f32x4(high01, high23, 0xdd));
    }
}
enum { TURN = 16 };
#else
typedef float four __attribute__((vector_size(16)));
LS_INLINE void transpose_block(const float *from, int64_t from_stride, float *to,
                               int64_t to_stride) {
    four a[4];
    for (int i = 0; i < 4; i++) memcpy(&a[i], from + i * from_stride, sizeof a[i]);
    four low01 = __builtin_shufflevector(a[0], a[1], 0, 4, 1, 5);
    four high01 = __builtin_shufflevector(a[0], a[1], 2, 6, 3, 7);
    four low23 = __builtin_shufflevector(a[2], a[3], 0, 4, 1, 5);
    four high23 = __builtin_shufflevector(a[2], a[3], 2, 6, 3, 7);
    a[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    a[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    a[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    a[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
    for (int i = 0; i < 4; i++) memcpy(to + i * to_stride, &a[i], sizeof a[i]);
}
enum { TURN = 4 };
#endif

void ls_tile_transpose(const float *from, int64_t from_stride, int64_t rows, int64_t columns,
                       float *to, int64_t to_stride) {
    for (int64_t i = 0; i < rows; i += TURN)
        for (int64_t j = 0; j < columns; j += TURN)
            transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i,
                            to_stride);
}

/* ---- queries and keys of a tile ---- */

static void transpose_queries(const ls_attention_array *x, const query_tile *tile, float factor,
                              float *buffer, float *transposed) {
    const ls_attention_job *job = tile->job;
    int64_t wide = padded(job->K);
    float_rows rows =
        ls_tile_load(x, tile->b, tile->h, tile->row, tile->count, QUERIES, job->K, buffer);
    ls_tile_transpose(rows.at, rows.stride, QUERIES, wide, transposed, QUERIES);
    for (int64_t e = 0; e < wide * QUERIES; e += LANES)
        vec_store(transposed + e, vec_load(transposed + e) * factor);
}

void ls_tile_queries(query_tile *tile, const ls_attention_job *job, const ls_key_set_run *set,
                     int64_t b, int64_t h, int64_t row, float factor, float *buffer) {
    const ls_key_set_plan *about = set->about;
    tile->job = job;
    tile->set = set;
    tile->b = b;
    tile->h = h;
    tile->row = row;
    tile->count = ls_min(QUERIES, job->T - row);
    tile->lanes = ls_min(QUERIES, ls_round_up(tile->count, 2 * LANES));
    tile->positions = (ls_interval){job->start + row, job->start + row + tile->count};
    tile->coordinate = ls_attention_query_at(set, b, tile->positions.first);
    tile->whole = (int64_t)llrint(tile->coordinate);
    tile->scattered = about->set.key_at.kind == LS_MAP_SCALE && about->set.key_at.a > 1;
    tile->even = about->set.query_at.kind == LS_MAP_IDENTITY &&
                 about->set.key_at.kind == LS_MAP_IDENTITY && set->query_max == NULL;
    for (int r = 0; r < QUERIES; r++) {
        /* absent queries stand where the last one does */
        int64_t position = ls_min(tile->positions.first + r, tile->positions.end - 1);
        double coordinate = ls_attention_query_at(set, b, position);
        tile->offset[r] = (float)(coordinate - tile->coordinate);
        tile->whole_offset[r] = (int32_t)((int64_t)llrint(coordinate) - tile->whole);
        int32_t rise = r == 0 ? 0 : tile->whole_offset[r] - tile->whole_offset[r - 1];
        tile->scattered |= rise < 0 || rise > 1;
    }
    if (tile->transposed != NULL)
        transpose_queries(&set->q, tile, factor, buffer, tile->transposed);
    if (tile->transposed != NULL && about->set.xpos.pairs > 0)
        for (int64_t e = 0; e < job->K; e++) {
            int64_t pair = ls_attention_decay_pair(about, e);
            for (int r = 0; pair >= 0 && r < tile->count; r++)
                tile->transposed[e * QUERIES + r] *=
                    (float)exp(about->set.xpos.log_decay[pair] * (double)tile->offset[r]);
        }
    if (set->relative.data != NULL)
        transpose_queries(&set->relative_q, tile, score_factor(job), buffer,
                          tile->relative_transposed);
}

void ls_tile_decay_keys(const query_tile *tile, int64_t row, int64_t count, float *factor,
                        int64_t stride) {
    const ls_key_set_plan *about = tile->set->about;
    const double block = (double)about->set.xpos.block;
    double before = NAN;
    for (int64_t j = 0; j < count; j++, factor += stride) {
        double coordinate = ls_position_map_at(about->set.key_at, tile->set->held.first + row + j);
        double reference = floor(coordinate / block) * block;
        if (reference == before) {
            memcpy(factor, factor - stride, (size_t)stride * sizeof *factor);
            continue;
        }
        before = reference;
        for (int64_t e = 0; e < stride; e++) {
            int64_t pair = e < tile->job->K ? ls_attention_decay_pair(about, e) : -1;
            factor[e] =
                pair < 0
                    ? 1
                    : (float)exp(about->set.xpos.log_decay[pair] * (tile->coordinate - reference));
        }
    }
}

void ls_tile_decay_rows(const query_tile *tile, const key_tile *keys, int64_t rows, float_rows k,
                        float *to) {
    const int64_t K = tile->job->K, wide = padded(K);
    ls_tile_decay_keys(tile, keys->row, keys->count, to, wide);
    for (int64_t j = 0; j < keys->count; j++) {
        float *row = to + j * wide;
        for (int64_t e = 0; e < K; e++) row[e] *= k.at[j * k.stride + e];
        memset(row + K, 0, (size_t)(wide - K) * sizeof *row);
    }
    memset(to + keys->count * wide, 0, (size_t)((rows - keys->count) * wide) * sizeof *to);
}

/* ---- scores ---- */

bool ls_tile_is_plain(const ls_key_set_run *set) {
    return set->slopes == NULL && set->table == NULL && set->relative.data == NULL;
}

static void add_slope(const query_tile *tile, const key_tile *keys, float *s) {
    const ls_key_set_run *set = tile->set;
    const float slope = ((const float *)set->slopes)[tile->h] * LOG2_E;
    const bool both_ways = set->about->set.lo < 0;
    for (int64_t j = 0; j < keys->count; j++) {
        double key = ls_position_map_at(set->about->set.key_at, set->held.first + keys->row + j);
        float base = (float)(tile->coordinate - key);
        for (int r = 0; r < QUERIES; r += LANES) {
            float *at = s + j * QUERIES + r;
            vec distance = vec_load(tile->offset + r) + base;
            if (both_ways) distance = ls_vec_abs(distance);
            vec_store(at, vec_load(at) - slope * distance);
        }
    }
}

static int64_t clamped(int64_t value, int64_t rows) {
    return ls_max(0, ls_min(value, rows - 1));
}

/* The smallest whole distance in a tile; coordinates never fall, so the last key and the first
 * query are nearest. */
static int64_t nearest(const query_tile *tile, const key_tile *keys) {
    return tile_whole_distance(tile, keys->row + keys->count - 1);
}

/* s[j][r] += from[distance - nearest][r or 0] for each pair; `from` has a stride of 0 where all
 * queries share one column (read along the distances) or QUERIES. */
static void add_by_distance(const query_tile *tile, const key_tile *keys, const float *from,
                            bool shared, float *s) {
    int64_t least = nearest(tile, keys);
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j) - least;
        float *at = s + j * QUERIES;
        if (shared && tile->even) {
            for (int r = 0; r < QUERIES; r += LANES)
                vec_store(at + r, vec_load(at + r) + vec_load(from + base + r));
        } else {
            for (int r = 0; r < QUERIES; r++) {
                int64_t d = base + tile->whole_offset[r];
                at[r] += shared ? from[d] : from[d * QUERIES + r];
            }
        }
    }
}

static void add_table(const query_tile *tile, const key_tile *keys, float *s) {
    const ls_key_set_run *set = tile->set;
    const float *table = (const float *)set->table + tile->h * set->table_stride;
    float slice[BAND];
    int64_t first = nearest(tile, keys) + set->about->set.table_zero;
    for (int64_t d = 0; d < BAND; d++)
        slice[d] = table[clamped(first + d, set->table_rows)] * LOG2_E;
    add_by_distance(tile, keys, slice, true, s);
}

int64_t ls_tile_band(const query_tile *tile, const key_tile *keys) {
    const ls_key_set_run *set = tile->set;
    int64_t first = nearest(tile, keys), wide = padded(tile->job->K);
    for (int64_t d = 0; d < BAND; d++) {
        float *to = keys->band + d * wide;
        int64_t row = clamped(first + d, set->relative_rows);
        load_row(set->relative.type, row_address(&set->relative, 0, tile->h, row), tile->job->K,
                 to);
        memset(to + tile->job->K, 0, (size_t)(wide - tile->job->K) * sizeof *to);
    }
    return first;
}

/* Distances that no band holds: pair by pair. */
static void add_relative_pairs(const query_tile *tile, const key_tile *keys, float *s) {
    const ls_key_set_run *set = tile->set;
    const int64_t K = tile->job->K;
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t base = tile_whole_distance(tile, keys->row + j);
        for (int r = 0; r < tile->count; r++) {
            int64_t row = clamped(base + tile->whole_offset[r], set->relative_rows);
            load_row(set->relative.type, row_address(&set->relative, 0, tile->h, row), K,
                     keys->band);
            float sum = 0;
            for (int64_t e = 0; e < K; e++)
                sum += keys->band[e] * tile->relative_transposed[e * QUERIES + r];
            s[j * QUERIES + r] += sum;
        }
    }
}

static void add_relative(const query_tile *tile, const key_tile *keys, float *s) {
    if (tile->scattered) {
        add_relative_pairs(tile, keys, s);
        return;
    }
    ls_tile_band(tile, keys);
    ls_tile_product(BAND, QUERIES, tile->job->K, keys->band, padded(tile->job->K), 1,
                    tile->relative_transposed, QUERIES, keys->meet, QUERIES, false);
    add_by_distance(tile, keys, keys->meet, false, s);
}

/* Lanes first .. first + LANES that lie in [low, high). */
LS_INLINE vec_int between(vec_int lane, int32_t low, int32_t high) {
    return (lane >= low) & (lane < high);
}

static void mask(const query_tile *tile, const key_tile *keys, float *s) {
    const ls_key_set_run *set = tile->set;
    const vec nothing = ls_vec_all(-INFINITY);
    const uint8_t *valid = set->valid;
    vec_int lane0;
    for (int r = 0; r < LANES; r++) lane0[r] = r;
    for (int64_t j = 0; j < keys->count; j++) {
        int64_t row = keys->row + j;
        float *at = s + j * QUERIES;
        ls_attention_reach reach = {.step = 1};
        if (valid == NULL || valid[tile->b * set->valid_batch + row] != 0)
            reach = ls_attention_reach_of(set, tile->h, set->held.first + row);
        int64_t first = reach.first - tile->positions.first;
        int64_t end = reach.end - tile->positions.first;
        int32_t low = (int32_t)ls_max(0, ls_min(first, QUERIES));
        int32_t high = (int32_t)ls_max(0, ls_min(end, QUERIES));
        for (int r = 0; r < QUERIES; r += LANES)
            vec_store(at + r,
                      ls_vec_pick(between(lane0 + r, low, high), vec_load(at + r), nothing));
        for (int32_t r = low; reach.step > 1 && r < high; r++)
            if ((r - first) % reach.step != 0) at[r] = -INFINITY;
    }
}

/* Blocks that are not listed are not seen; those that are listed more than once weigh more. */
static void apply_list(const query_tile *tile, const key_tile *keys, float *s) {
    const ls_key_set_run *set = tile->set;
    const ls_block_rows *rows = &set->seen_by_queries;
    const int64_t row = set->held.first + keys->row, end = row + keys->count;
    for (int64_t n = tile->positions.first, after; n < tile->positions.end; n = after) {
        after = ls_min(ls_block_end(rows, n), tile->positions.end);
        for (int64_t m = row, next; m < end; m = next) {
            next = ls_min(ls_block_end(rows, m), end);
            int32_t times = ls_attention_times(set, tile->h, n, m);
            if (times == 1) continue;
            const float added = times == 0 ? -INFINITY : log2f((float)times);
            for (int64_t j = m - row; j < next - row; j++)
                for (int64_t r = n - tile->positions.first; r < after - tile->positions.first; r++)
                    s[j * QUERIES + r] += added;
        }
    }
}

static void cap_scores(const query_tile *tile, const key_tile *keys, float *s) {
    const float cap = score_cap(tile->job);
    for (int64_t i = 0; i < keys->count * QUERIES; i += LANES)
        vec_store(s + i, vec_cap(vec_load(s + i), cap));
}

void ls_tile_adjust(const query_tile *tile, const key_tile *keys, float *s) {
    if (tile->set->slopes != NULL) add_slope(tile, keys, s);
    if (tile->set->table != NULL) add_table(tile, keys, s);
    if (tile->set->relative.data != NULL) add_relative(tile, keys, s);
    if (tile->job->cap > 0) cap_scores(tile, keys, s);
    if (tile->set->seen_by_queries.first != NULL) apply_list(tile, keys, s);
    if (!keys->full) mask(tile, keys, s);
}

void ls_tile_scores(const query_tile *tile, const key_tile *keys, float *rows, float *decay,
                    float *s) {
    const ls_attention_job *job = tile->job;
    const int64_t count = ls_round_up(keys->count, BLOCK_ROWS);
    float_rows k = ls_tile_keys(tile, &tile->set->k, keys, count, job->K, rows);
    if (tile->set->about->set.xpos.pairs > 0) {
        ls_tile_decay_rows(tile, keys, count, k, decay);
        k = (float_rows){decay, padded(job->K)};
    }
    if (tile->set->k.type == LS_F32 && keys->first) tile_fetch_ahead(k, job->K);
    ls_tile_product(count, tile->lanes, job->K, k.at, k.stride, 1, tile->transposed, QUERIES, s,
                    QUERIES, false);
    ls_tile_adjust(tile, keys, s);
}
