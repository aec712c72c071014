/* Tiles of attention: LS_TILE_QUERIES queries along the lanes, up to LS_TILE_KEYS keys.
 *
 * Scores lie as s[key][query], so that a query's maximum and sum run over rows and never across
 * lanes, and keys and values are read as they lie in memory. Scores are kept in units of log 2, so
 * that the exponential is 2^x. */
#ifndef LS_TENSOR_CPU_ATTENTION_TILE_H
#define LS_TENSOR_CPU_ATTENTION_TILE_H

#include "tensor/op/attention/attention_kernels_cpu.h"
#include "tensor/op/attention/attention_vector_cpu.h"

enum {
    QUERIES = LS_TILE_QUERIES,
    KEYS = LS_TILE_KEYS,
    BAND = QUERIES + KEYS, /* distances that meet in a tile, rounded up */
    PAD = 32, /* widths of padded rows are multiples of this: two vectors, an AMX step */
};
static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

static inline int64_t padded(int64_t width) {
    return ls_round_up(width, PAD);
}

/* Hands out parts of a workspace; with base NULL it only measures. */
typedef struct space {
    char *base;
    size_t used;
} space;
static inline float *space_take(space *from, int64_t floats) {
    size_t at = from->used;
    from->used += (size_t)ls_round_up(floats * (int64_t)sizeof(float), 64);
    return from->base == NULL ? NULL : (float *)(void *)(from->base + at);
}

/* Rows of 32-bit floats, `stride` apart. */
typedef struct float_rows {
    const float *at;
    int64_t stride;
} float_rows;

/* The queries of a tile in one set. */
typedef struct query_tile {
    const ls_attention_job *job;
    const ls_key_set_run *set;
    int64_t b, h, row, count; /* rows row .. row + count of the query tensor */
    int64_t lanes;            /* columns that are computed: count, in whole steps of products */
    ls_interval positions;
    double coordinate;     /* of the first query, as the bias sees it */
    float offset[QUERIES]; /* further queries' coordinates, from the first's */
    int64_t whole;         /* the first query's coordinate as a whole number */
    int32_t whole_offset[QUERIES];
    bool even;         /* coordinates advance by one from query to query and from key to key */
    bool scattered;    /* coordinates fall or leap: distances do not fit a band */
    float *transposed; /* [K][QUERIES]: q * factor, with its share of the decay, or NULL */
    float *relative_transposed; /* the same of relative_q, undecayed; NULL where there is none */
} query_tile;

/* Keys of a tile: rows row .. row + count. */
typedef struct key_tile {
    int64_t row, count;
    bool full;   /* no predicate */
    bool first;  /* no other queries have met it just before: the next rows are worth asking for */
    float *band; /* [BAND][padded K] scratch: relative keys of the tile's distances */
    float *meet; /* [BAND][QUERIES] scratch: their products with relative_q */
} key_tile;

#define ls_tile_product LS_ISA_SYMBOL(ls__tile_product)
#define ls_tile_load LS_ISA_SYMBOL(ls__tile_load)
#define ls_tile_keys LS_ISA_SYMBOL(ls__tile_keys)
#define ls_tile_transpose LS_ISA_SYMBOL(ls__tile_turn)
#define ls_tile_store LS_ISA_SYMBOL(ls__tile_store)
#define ls_tile_queries LS_ISA_SYMBOL(ls__tile_queries)
#define ls_tile_decay_keys LS_ISA_SYMBOL(ls__tile_decay_keys)
#define ls_tile_decay_rows LS_ISA_SYMBOL(ls__tile_decay_rows)
#define ls_tile_scores LS_ISA_SYMBOL(ls__tile_scores)
#define ls_tile_adjust LS_ISA_SYMBOL(ls__tile_adjust)
#define ls_tile_band LS_ISA_SYMBOL(ls__tile_band)
#define ls_tile_is_plain LS_ISA_SYMBOL(ls__tile_is_plain)

/* c[i][lane] = (add ? c : 0) + sum_k a[i * step_row + k * step_k] * b[k][lane], for i < rows and
 * lane < lanes. One of the steps is 1. `lanes` is a multiple of 32 and `rows` is rounded up to a
 * multiple of BLOCK_ROWS: a and c must have room for that. */
void ls_tile_product(int64_t rows, int64_t lanes, int64_t depth, const float *a, int64_t step_row,
                     int64_t step_k, const float *b, int64_t b_stride, float *c, int64_t c_stride,
                     bool add);

/* Rows row .. row + count of a head as f32, padded with zeros to `rows` rows and to a width that is
 * a multiple of PAD; where the tensor can be read as it lies it is not copied. */
float_rows ls_tile_load(const ls_attention_array *x, int64_t b, int64_t head, int64_t row,
                        int64_t count, int64_t rows, int64_t width, float *buffer);
/* Rows of keys or values: where the tile has few queries they stay where they are, because moving
 * them would take as long as the work on them. */
float_rows ls_tile_keys(const query_tile *tile, const ls_attention_array *x, const key_tile *keys,
                        int64_t rows, int64_t width, float *buffer);
/* to[column][row] = from[row][column]; both counts are multiples of 4. */
void ls_tile_transpose(const float *from, int64_t from_stride, int64_t rows, int64_t columns,
                       float *to, int64_t to_stride);
/* x[row + i][e] = from[i][e] * factor for i < count. */
void ls_tile_store(const ls_attention_array *x, int64_t b, int64_t head, int64_t row, int64_t count,
                   int64_t width, float_rows from, float factor);

/* What makes a product of query and key a score in units of log 2. */
static inline float score_factor(const ls_attention_job *job) {
    return (float)job->scale * LOG2_E;
}

/* The cap of scores in those units; 0: none. */
static inline float score_cap(const ls_attention_job *job) {
    return (float)job->cap * LOG2_E;
}

/* Fills in all but the pointers, which must be set (transposed may be NULL: not wanted); `buffer` is
 * scratch of QUERIES * padded(K) floats. Absent queries are zeros. */
void ls_tile_queries(query_tile *tile, const ls_attention_job *job, const ls_key_set_run *set,
                     int64_t b, int64_t h, int64_t row, float factor, float *buffer);
/* factor[j][e] of key row `row + j` for this tile's queries, which carry the rest of the decay. */
void ls_tile_decay_keys(const query_tile *tile, int64_t row, int64_t count, float *factor,
                        int64_t stride);

/* to[j][e] = k[j][e] with that share, padded with zeros to `rows` rows of padded(K). */
void ls_tile_decay_rows(const query_tile *tile, const key_tile *keys, int64_t rows, float_rows k,
                        float *to);

/* Whether scores need nothing but a mask. */
bool ls_tile_is_plain(const ls_key_set_run *set);
/* Makes scores of products: adds biases, caps them, and sets pairs that are not admitted to -infinity. */
void ls_tile_adjust(const query_tile *tile, const key_tile *keys, float *s);
/* s[key][query]: the scores of a tile of keys, -infinity where a pair is not admitted. Scratch:
 * rows and decay, KEYS * padded(K) floats each (decay only where the set decays). Columns from
 * tile->lanes on, of a short chunk, must hold numbers, and hold others afterwards. */
void ls_tile_scores(const query_tile *tile, const key_tile *keys, float *rows, float *decay,
                    float *s);
/* Loads the relative keys of a tile's distances into keys->band; returns the distance of row 0. */
int64_t ls_tile_band(const query_tile *tile, const key_tile *keys);

/* The whole coordinate of a key, less the tile's first query's. */
static inline int64_t tile_whole_distance(const query_tile *tile, int64_t key_row) {
    const ls_key_set_run *set = tile->set;
    return tile->whole - (int64_t)__builtin_llrint(
                             ls_position_map_at(set->about->set.key_at, set->held.first + key_row));
}

/* The first tile of keys from number `from` on that the queries' lists let them see. */
static inline int64_t tile_next_keys(const query_tile *tile, int64_t from) {
    return ls_block_next_tile(&tile->set->seen_by_queries, tile->h, tile->positions, KEYS, from);
}

static inline void tile_clear_absent(const query_tile *tile, float *s) {
    if (tile->lanes < QUERIES) memset(s, 0, (size_t)(KEYS * QUERIES) * sizeof *s);
}

/* Rows lie too far apart for the processor to guess the next: a tile ahead they are asked for. */
static inline void tile_fetch_ahead(float_rows rows, int64_t width) {
    enum { LINE = 64 / sizeof(float) };
    for (int64_t j = KEYS; j < 2 * KEYS; j++)
        for (int64_t e = 0; e < width; e += LINE) __builtin_prefetch(rows.at + j * rows.stride + e);
}

#endif
