/* What the CUDA kernels of attention share: a run of the operation as a plain value that goes to a
 * kernel by value, and the rules of a set as arithmetic that runs on the device.
 *
 * A stream's step of one token has a kernel of its own (attention_decode.cu). All else is computed
 * in tiles on the tensor units (attention_forward.cu, attention_backward.h; with
 * relative keys attention_relative.cu) or pair by pair, for everything those do not take
 * (attention_plain.cu). The first and the last can do it in parts of the keys, merged afterwards,
 * where there are few queries. */
#ifndef LS_TENSOR_CUDA_ATTENTION_JOB_H
#define LS_TENSOR_CUDA_ATTENTION_JOB_H

#include "tensor/cuda/cuda.cuh"
#include "tensor/cuda/position_map.cuh"

extern "C" {
#include "tensor/op/attention/attention.h"
}

#define LS_CUDA_LOG2_E 1.4426950408889634f
#define LS_CUDA_LN_2 0.6931471805599453f

/* A tensor with the axes batch, row, head and a contiguous last one; NULL data: absent. */
typedef struct ls_cuda_rows {
    void *data;
    int64_t batch, row, head; /* strides in elements */
} ls_cuda_rows;

/* Rows of the tiles that pass by, and of a tile of a list's block. */
enum { LS_ATTENTION_TILE = 64 };

/* The pieces of a list's rows of one side (ls_block_plan); NULL: there is no list. */
typedef struct ls_cuda_plan {
    const int32_t *pieces, *joins;
    int count, join_count, parts;
} ls_cuda_plan;

/* Outer tiles cut into `parts` parts of what they pass over, where there are too few of them. Only
 * the rows first .. end have anything to pass over; they are multiples of LS_CUDA_PART_ROWS, but
 * for the end of the tensor. With slots, blocks leave their sums there, to be added up. */
enum { LS_CUDA_PART_ROWS = 128 };
typedef struct ls_cuda_parts {
    int parts, first, end;
    bool slots;
} ls_cuda_parts;

/* One set, on the device. Rows are counted from the first, positions are true ones. */
typedef struct ls_cuda_key_set {
    int64_t lo, hi, key_first, key_end, block, group; /* as in ls_key_set; before dilation */
    ls_span span;                                     /* that of a block too */
    int64_t shift;                                    /* of queries, for the span */
    bool alone;
    ls_block_rows seen_by_queries, seen_by_keys; /* the list; first NULL: there is none */
    ls_cuda_plan query_plan, key_plan;
    ls_cuda_parts query_parts, key_parts; /* backward */
    int64_t key_position;                 /* of key row 0 */
    int keys, key_rows;                   /* rows that may be read; rows of the tensor */
    ls_position_map query_at, key_at;
    ls_cuda_rows q, k, v, relative, relative_q, dq, dk, dv, drelative_q, drelative;
    const int32_t *query_max; /* [B] or NULL */
    const uint8_t *valid;
    int64_t valid_batch;
    const float *slopes, *table;
    float *dtable;
    int64_t table_stride, dtable_stride, table_zero;
    int table_rows, relative_rows;
    bool table_steps; /* distances of the table: whole, of queries that are at most 1 apart from
                         row to row and of keys at their positions, all of them in an int */
    const int64_t *dilation; /* [H], in the workspace; NULL: none */
    const float *log_decay;  /* [pairs] in units of log 2, in the workspace; NULL: none */
    int64_t decay_block;
    int decay_pairs;
    bool decay_halves;
    bool relative_wide;    /* relative keys are f32 */
    bool relative_vectors; /* their rows and those of relative_q can be multiplied by vectors */
} ls_cuda_key_set;

typedef struct ls_cuda_attention {
    int B, T, H, G, K, V, sets;
    int splits; /* parts of the keys, merged afterwards */
    /* where values are wider than keys, tiles take as many of their columns at once as a key has,
     * in the last pass those that are left: a product of output gradient and value is a sum over
     * these passes */
    int passes, pass;
    bool off_by_one;
    bool vectors;    /* every row of q, k, v, out and their like is aligned to 16 bytes */
    bool wide_tiles; /* the device has the shared memory that tiles of f32 take */
    ls_dtype type;   /* of q, k, v, out and their like */
    int64_t start;
    size_t workspace_bytes; /* that are laid out */
    float scale;
    float cap; /* of scores, in units of log 2; 0: none */
    ls_cuda_rows out, dout;
    float *lse;         /* [B,H,T] */
    float *part_out;    /* [split][B,H,T][V] in the workspace */
    float *part_lse;    /* [split][B,H,T], in units of log 2 */
    float *parts;       /* results of parts of outer tiles; see attention_parts.h */
    float *row_lse;     /* backward: [B,H,T] in units of log 2, infinite where a row has no key */
    float *row_dot;     /* backward: products of output and gradient */
    float *by_distance; /* backward: parts of dtable and drelative, of one set at a time */
    ls_cuda_key_set set[LS_KEY_SETS_MAX];
} ls_cuda_attention;

static_assert(sizeof(ls_cuda_attention) < 4000, "it goes to kernels by value");

/* Columns of values that a pass has. */
__host__ __device__ static inline int ls_cuda_pass_width(const ls_cuda_attention &job, int pass) {
    return job.V - pass * job.K < job.K ? job.V - pass * job.K : job.K;
}

/* ---- on the host ---- */

/* A node's run for the device, with its tables put into the workspace. */
void ls_cuda_attention_begin(const ls_run *run, const ls_node *node, bool backward,
                             ls_cuda_attention *to);
size_t ls_cuda_attention_workspace(const ls_node *node, bool backward);

/* Whether the kernels on the tensor units take a run; a list only where it is alone, has blocks of
 * whole tiles, and heads do not share keys. */
enum { LS_CUDA_WIDE_TILES = 227 << 10 };
bool ls_cuda_attention_tiles_fit(const ls_cuda_attention *job, ls_dtype type);
/* The same run with a pass's columns of values, outputs and their gradients. */
ls_cuda_attention ls_cuda_attention_pass(const ls_cuda_attention *job, int pass);
void ls_cuda_attention_tiles(const ls_run *run, const ls_cuda_attention *job);
void ls_cuda_attention_tiles_f32(const ls_run *run, const ls_cuda_attention *job);
/* Gradients of q, k and v, and of the tables that are summed along with them. */
void ls_cuda_attention_tiles_grad(const ls_run *run, const ls_cuda_attention *job);

/* The same with relative keys, forward or all gradients, and the parts in which those of the
 * relative keys are summed. */
bool ls_cuda_attention_relative_fits(const ls_cuda_attention *job, ls_dtype type);
void ls_cuda_attention_relative(const ls_run *run, const ls_cuda_attention *job);
int ls_cuda_attention_relative_parts(int64_t B, int64_t T, int64_t H, int64_t rows, int64_t K);

void ls_cuda_attention_plain(const ls_run *run, const ls_cuda_attention *job, ls_dtype type);
/* Gradients of q, k, v and relative_q. */
void ls_cuda_attention_plain_grad(const ls_run *run, const ls_cuda_attention *job, ls_dtype type);
/* Gradients of tables and relative keys. */
void ls_cuda_attention_distance_grad(const ls_run *run, const ls_cuda_attention *job,
                                     ls_dtype type);
/* Adds up the parts of the gradient of a set's relative keys. */
void ls_cuda_attention_relative_join(const ls_run *run, const ls_cuda_attention *job, int set,
                                     ls_dtype type, int parts);
/* Whether the kernels on the tensor units, where they take a run, sum a table's gradient along with
 * that of queries; the columns that they can have; and what adds up the `count` rows of sums that
 * they leave of each head. */
enum { LS_CUDA_SUMMED_COLUMNS = 512, LS_CUDA_SUMMED_COLUMNS_WIDE = 256 }; /* of wide f32 heads */
bool ls_cuda_attention_table_summed(const ls_cuda_attention *job, int set);
void ls_cuda_attention_table_join(const ls_run *run, const ls_cuda_attention *job, int set,
                                  int count);
/* The gradient of a table in tiles, and the floats that it sums in parts. */
bool ls_cuda_attention_table_fits(const ls_cuda_attention *job, int set, ls_dtype type);
void ls_cuda_attention_table_grad(const ls_run *run, const ls_cuda_attention *job, int set);
int64_t ls_cuda_attention_table_floats(int64_t B, int64_t T, int64_t H, int64_t key_rows);
/* Parts of the queries whose sums by distance are kept apart, for a table of so many rows. */
int ls_cuda_attention_distance_parts(int64_t B, int64_t T, int64_t H, int64_t rows);

/* One token of each sequence and what is cached, where nothing but slopes, decays, a window and a cap
 * is asked for; how many heads that share their keys a block takes, and into how many parts it cuts
 * the rows of a cache. */
bool ls_cuda_attention_decode_fits(const ls_run *run, const ls_node *node,
                                   const ls_cuda_attention *job);
/* In a chain the token's key and value, [B,1,G,K], are not in the cache yet, and queries and keys are
 * rotated (both or neither). */
typedef struct ls_cuda_decode_chain {
    const ls_tensor *key, *value;
    const ls_node *rotates_key, *rotates_query; /* NULL: neither is */
} ls_cuda_decode_chain;
bool ls_cuda_attention_turns_fit(const ls_node *key, const ls_node *query, ls_dtype type);
bool ls_cuda_attention_fresh_fits(const ls_tensor *x, ls_dtype type);
void ls_cuda_attention_decode(const ls_run *run, ls_cuda_attention *job, ls_dtype type,
                              const ls_cuda_decode_chain *chain); /* or NULL */
int ls_cuda_attention_decode_heads(int64_t H, int64_t G);
int ls_cuda_attention_decode_splits(int64_t B, int64_t H, int64_t G, int64_t rows);

/* Fills in row_lse and row_dot. */
void ls_cuda_attention_statistics(const ls_run *run, const ls_cuda_attention *job, ls_dtype type);
void ls_cuda_attention_statistics_f32(const ls_run *run,
                                      const ls_cuda_attention *job); /* in tiles */
/* Joins the parts of the keys. */
void ls_cuda_attention_merge(const ls_run *run, const ls_cuda_attention *job, ls_dtype type);

/* ---- on the device ---- */

template <typename T>
__device__ static inline T *ls_cuda_row(const ls_cuda_rows &x, int64_t b, int64_t row,
                                        int64_t head) {
    return (T *)x.data + (b * x.batch + row * x.row + head * x.head);
}

/* The coordinate of the query at position n of sequence b. */
__device__ static inline double ls_cuda_query_at(const ls_cuda_key_set &s, int b, int64_t n) {
    const double here = ls_cuda_map_at(s.query_at, n);
    return s.query_max == NULL ? here : fmin(here, (double)s.query_max[b]);
}

__device__ static inline int64_t ls_cuda_whole_at(const ls_position_map &map, int64_t position) {
    return map.kind == LS_MAP_IDENTITY ? position : llrint(ls_cuda_map_at(map, position));
}

__device__ static inline int64_t ls_cuda_whole_query_at(const ls_cuda_key_set &s, int b,
                                                        int64_t n) {
    return s.query_max == NULL ? ls_cuda_whole_at(s.query_at, n)
                               : llrint(ls_cuda_query_at(s, b, n));
}

__device__ static inline int64_t ls_cuda_clamp(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

__device__ static inline int64_t ls_cuda_step(const ls_cuda_key_set &s, int head) {
    return s.dilation == NULL ? 1 : s.dilation[head];
}

__device__ static inline int64_t ls_cuda_stretch(int64_t distance, int64_t step) {
    if (step == 1) return distance;
    if (distance >= LS_FAR / step) return LS_FAR;
    if (distance <= -LS_FAR / step) return -LS_FAR;
    return distance * step;
}

/* An interval of rows; empty where end <= first. */
typedef struct ls_cuda_span {
    int first, end;
} ls_cuda_span;

__device__ static inline ls_cuda_span ls_cuda_cut(int64_t first, int64_t end, int64_t rows) {
    ls_cuda_span span = {(int)ls_cuda_clamp(first, 0, rows), (int)ls_cuda_clamp(end, 0, rows)};
    return span;
}

__device__ static inline int64_t ls_cuda_floor_div(int64_t a, int64_t b) {
    return a / b - (a % b < 0 ? 1 : 0);
}

/* Key rows that some (or, with all, every) query at the positions first .. last admits, dilation
 * lists and validity apart. */
__device__ static inline ls_cuda_span ls_cuda_keys_of(const ls_cuda_key_set &s, int64_t first,
                                                      int64_t last, int64_t step, bool all) {
    const int64_t low = all ? last : first, high = all ? first : last;
    int64_t from = low - ls_cuda_stretch(s.hi, step);
    int64_t end = high - ls_cuda_stretch(s.lo, step) + 1;
    from = from > s.key_first ? from : s.key_first;
    end = end < s.key_end ? end : s.key_end;
    if (s.span.block > 0) {
        const int64_t span_from = (low + s.shift) / s.span.block * s.span.step + s.span.from;
        const int64_t span_end = (high + s.shift) / s.span.block * s.span.step + s.span.to;
        from = from > span_from ? from : span_from;
        end = end < span_end ? end : span_end;
    }
    if (s.group > 0 && end > high / s.group) end = high / s.group;
    return ls_cuda_cut(from - s.key_position, end - s.key_position, s.keys);
}

/* Query rows that admit some (or every) key at the positions first .. last, likewise. */
__device__ static inline ls_cuda_span ls_cuda_queries_of(const ls_cuda_attention &job,
                                                         const ls_cuda_key_set &s, int64_t first,
                                                         int64_t last, int64_t step, bool all) {
    ls_cuda_span none = {0, 0};
    if (all && (first < s.key_first || last >= s.key_end)) return none;
    first = first > s.key_first ? first : s.key_first;
    last = last < s.key_end - 1 ? last : s.key_end - 1;
    if (last < first) return none;
    const int64_t low = all ? last : first, high = all ? first : last;
    int64_t from = low + ls_cuda_stretch(s.lo, step);
    int64_t end = high + ls_cuda_stretch(s.hi, step) + 1;
    if (s.span.block > 0) {
        const int64_t span_from =
            (ls_cuda_floor_div(low - s.span.to, s.span.step) + 1) * s.span.block - s.shift;
        const int64_t span_end =
            (ls_cuda_floor_div(high - s.span.from, s.span.step) + 1) * s.span.block - s.shift;
        from = from > span_from ? from : span_from;
        end = end < span_end ? end : span_end;
    }
    if (s.group > 0 && from < (low + 1) * s.group) from = (low + 1) * s.group;
    return ls_cuda_cut(from - job.start, end - job.start, job.T);
}

/* The first of the rows from span.first on that stands at a multiple of step from `to`. */
__device__ static inline int ls_cuda_aligned(int span_first, int64_t from_position,
                                             int64_t to_position, int64_t step) {
    if (step == 1) return span_first;
    int64_t apart = (to_position - (from_position + span_first)) % step;
    return span_first + (int)(apart < 0 ? apart + step : apart);
}

__device__ static inline bool ls_cuda_key_valid(const ls_cuda_key_set &s, int b, int key) {
    return s.valid == NULL || s.valid[b * s.valid_batch + key] != 0;
}

/* The row of a list that a position belongs to. */
__device__ static inline int64_t ls_cuda_list_row(const ls_block_rows &list, int head,
                                                  int64_t position) {
    return (list.heads > 1 ? head : 0) * list.blocks + (position + list.shift) / list.size;
}

/* How often key m counts for query n by the set's list; 1 where it has none. */
__device__ static inline int ls_cuda_times(const ls_cuda_key_set &s, int head, int64_t n,
                                           int64_t m) {
    const ls_block_rows &list = s.seen_by_queries;
    if (list.first == NULL) return 1;
    const int64_t row = ls_cuda_list_row(list, head, n), other = (m + list.shift) / list.size;
    int low = list.first[row], high = list.first[row + 1];
    const int end = high;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (list.at[middle] < other)
            low = middle + 1;
        else
            high = middle;
    }
    return low < end && list.at[low] == other ? list.times[low] : 0;
}

/* Where a key's decay is referred to. */
__device__ static inline double ls_cuda_decay_reference(const ls_cuda_key_set &s, double key) {
    const double block = (double)s.decay_block;
    return floor(key / block) * block;
}

__device__ static inline int ls_cuda_decay_pair(const ls_cuda_key_set &s, int e) {
    if (e >= 2 * s.decay_pairs) return -1;
    if (!s.decay_halves) return e / 2;
    return e < s.decay_pairs ? e : e - s.decay_pairs;
}

/* The share of element e in a decay over `distance`. */
__device__ static inline float ls_cuda_decay(const ls_cuda_key_set &s, int e, float distance) {
    const int pair = ls_cuda_decay_pair(s, e);
    return pair < 0 ? 1 : exp2f(s.log_decay[pair] * distance);
}

/* cap tanh(score / cap). */
__device__ static inline float ls_cuda_cap(float score, float cap) {
    return cap * tanhf(score / cap);
}

/* The derivative of a capped score by what it was before; of -infinity, where a pair is not
 * admitted, 0. */
__device__ static inline float ls_cuda_cap_slope(float score, float cap) {
    const float t = fmaxf(score / cap, -1.0f);
    return 1 - t * t;
}

__device__ static inline float ls_cuda_warp_sum(float x) {
    for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
}

__device__ static inline float ls_cuda_warp_max(float x) {
    for (int apart = 16; apart > 0; apart /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, apart));
    return x;
}

#endif
