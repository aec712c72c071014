/* Tiles of attention on the tensor units (sm_80 and later): bf16 in, f32 sums; for operands in f32
 * see attention_split.cuh.
 *
 * A tile lies in shared memory row by row, each row padded by 16 bytes so that eight rows at one
 * column fall on different banks. A block has four warps; each takes M bands of 16 rows of the
 * "outer" tile, which stays, and all columns of the "inner" tiles, which pass by. A head whose
 * width lies between those that there are kernels for has zeros behind it: widths are 32, 64, 96 and
 * 128 for plain scores, 64 and 128 for all others.
 *
 * How the 32 lanes hold the parts of m16n8k16: with g = lane / 4 and t = lane % 4 a sum c[4] is at
 * rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1. Two neighbouring sums, rounded and
 * paired, are the left factor of the next product. */
#ifndef LS_TENSOR_CUDA_ATTENTION_TILES_H
#define LS_TENSOR_CUDA_ATTENTION_TILES_H

#include "tensor/op/attention/attention_parts.cuh"

enum { LS_TILE_WARPS = 4, LS_TILE_THREADS = 32 * LS_TILE_WARPS, LS_TILE_PAD = 8 };

/* ---- instructions ---- */

__device__ static inline uint32_t ls_shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}

/* Copies 16 bytes to shared memory while the program goes on; zeros where the row is absent. */
__device__ static inline void ls_copy_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(ls_shared_address(to)),
                 "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
__device__ static inline void ls_copy_4(void *to, const void *from, bool there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(ls_shared_address(to)),
                 "l"(from), "r"(there ? 4 : 0)
                 : "memory");
}
__device__ static inline void ls_copies_end(void) {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* Waits for all groups of copies but the last `LEFT`. */
template <int LEFT> __device__ static inline void ls_copies_wait(void) {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

/* Four matrices of 8 x 8 (of f32 8 x 4), one row's address from each lane. */
__device__ static inline void ls_load_matrices(uint32_t to[4], const void *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(ls_shared_address(row))
                 : "memory");
}
__device__ static inline void ls_load_matrices_transposed(uint32_t to[4], const ls_cuda_bf16 *row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(ls_shared_address(row))
                 : "memory");
}

/* c += a b, of 16 x 16 by 16 x 8. */
__device__ static inline void ls_multiply(float c[4], const uint32_t a[4], uint32_t b0,
                                          uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 2^x, 0 for what would be denormal. */
__device__ static inline float ls_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ static inline uint32_t ls_pair(float low, float high) {
    return ls_cuda_narrow_two(low, high);
}

/* ---- tiles ---- */

template <typename T, int D> struct ls_tile_shape {
    static const int PIECE = 16 / (int)sizeof(T); /* elements that are copied at once */
    static const int STRIDE = D + PIECE;
};

/* Asks for ROWS rows from `row` on of a head; rows below 0 or from `rows` on are absent, and so are
 * the columns from `width` on, which is a multiple of what 16 bytes hold. */
template <int D, int ROWS, int THREADS = LS_TILE_THREADS, typename T>
__device__ static inline void ls_tile_ask(T *to, const ls_cuda_rows &x, int b, int head, int row,
                                          int rows, int width) {
    enum {
        PIECE = ls_tile_shape<T, D>::PIECE,
        STRIDE = ls_tile_shape<T, D>::STRIDE,
        PIECES = D / PIECE,
        EACH = THREADS / PIECES
    };
    const int first = (int)threadIdx.x / PIECES, piece = (int)threadIdx.x % PIECES;
    if (THREADS % PIECES != 0 && first >= EACH) return;
    if (PIECE * piece >= width) rows = 0;
    const T *from = ls_cuda_row<const T>(x, b, row + first, head) + PIECE * piece;
    to += first * STRIDE + PIECE * piece;
#pragma unroll
    for (int r = 0; r < ROWS; r += EACH) {
        if (ROWS % EACH != 0 && r + first >= ROWS) break;
        ls_copy_16(to + r * STRIDE, from, (unsigned)(row + first + r) < (unsigned)rows);
        from += EACH * x.row;
    }
}

/* c[m][n] = a b^T: bands of 16 rows of a from `a` on, and COLUMNS rows of b. */
template <int D, int M, int COLUMNS>
__device__ static inline void ls_tile_scores(float c[M][COLUMNS / 8][4], const ls_cuda_bf16 *a,
                                             const ls_cuda_bf16 *b) {
    enum { STRIDE = ls_tile_shape<ls_cuda_bf16, D>::STRIDE };
    const int lane = (int)threadIdx.x % 32;
    const ls_cuda_bf16 *a_lane = a + (lane % 16) * STRIDE + lane / 16 * 8;
    const ls_cuda_bf16 *b_lane = b + (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) c[m][n][i] = 0;
#pragma unroll
    for (int k = 0; k < D; k += 16) {
        uint32_t left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) ls_load_matrices(left[m], a_lane + m * 16 * STRIDE + k);
#pragma unroll
        for (int n = 0; n < COLUMNS / 16; n++) {
            uint32_t right[4];
            ls_load_matrices(right, b_lane + n * 16 * STRIDE + k);
#pragma unroll
            for (int m = 0; m < M; m++) {
                ls_multiply(c[m][2 * n], left[m], right[0], right[1]);
                ls_multiply(c[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* c[m][n] += p b: p as ls_tile_scores leaves it, and the COLUMNS rows of b. */
template <int D, int M, int COLUMNS>
__device__ static inline void ls_tile_gather(float c[M][D / 8][4], const float p[M][COLUMNS / 8][4],
                                             const ls_cuda_bf16 *b) {
    enum { STRIDE = ls_tile_shape<ls_cuda_bf16, D>::STRIDE };
    const int lane = (int)threadIdx.x % 32;
    const ls_cuda_bf16 *b_lane = b + (lane % 16) * STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < COLUMNS / 16; k++) {
        uint32_t left[M][4];
#pragma unroll
        for (int m = 0; m < M; m++) {
            const float *p0 = p[m][2 * k], *p1 = p[m][2 * k + 1];
            left[m][0] = ls_pair(p0[0], p0[1]);
            left[m][1] = ls_pair(p0[2], p0[3]);
            left[m][2] = ls_pair(p1[0], p1[1]);
            left[m][3] = ls_pair(p1[2], p1[3]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t right[4];
            ls_load_matrices_transposed(right, b_lane + k * 16 * STRIDE + n * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                ls_multiply(c[m][2 * n], left[m], right[0], right[1]);
                ls_multiply(c[m][2 * n + 1], left[m], right[2], right[3]);
            }
        }
    }
}

/* Two numbers of a row, from an even column on. */
__device__ static inline void ls_tile_put(ls_cuda_bf16 *to, float one, float other) {
    *(uint32_t *)(void *)to = ls_pair(one, other);
}
__device__ static inline void ls_tile_put(float *to, float one, float other) {
    *(float2 *)(void *)to = {one, other};
}

/* Rows of a gradient from the lanes' sums; absent rows of a key tensor get 0. */
template <typename T, int D, int M>
__device__ static inline void ls_tile_store_rows(const ls_cuda_rows &to, int width,
                                                 const float c[M][D / 8][4], float factor, int b,
                                                 int head, int row, int present, int rows) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (to.data == NULL) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = row + m * 16 + g + 8 * half;
            if (r < 0 || r >= rows) continue;
            T *there = ls_cuda_row<T>(to, b, r, head) + 2 * t;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                if (n * 8 + 2 * t >= width) break;
                const float *two = c[m][n] + 2 * half;
                ls_tile_put(there + n * 8, r < present ? two[0] * factor : 0,
                            r < present ? two[1] * factor : 0);
            }
        }
}

/* ---- what a score depends on besides its product ---- */

/* Of a query or a key, seen from a fixed coordinate: distances are sums of a query's and a key's
 * offset. first and end: the query rows that admit a key. */
typedef struct ls_tile_mark {
    int first, end;
    float offset;
    int whole;
    float decay; /* its share of the distance of decay */
} ls_tile_mark;

/* What the scores of a set are besides products: nothing, numbers of a table by the distance of
 * whole coordinates that grow by at most 1 from row to row (ls_cuda_key_set.table_steps), or
 * anything, also with a cap. */
enum { LS_TILE_PLAIN, LS_TILE_TABLE, LS_TILE_BIASED };

/* What is kept of a mark: where nothing depends on distance, only who admits whom; for a table also
 * how far a query's coordinate is from that of the first of its tile. */
typedef struct ls_tile_bounds {
    int first, end;
} ls_tile_bounds;
typedef int ls_tile_step;
template <int KIND> struct ls_tile_kept {
    typedef ls_tile_bounds key;
    typedef ls_tile_step query;
};
template <> struct ls_tile_kept<LS_TILE_BIASED> { typedef ls_tile_mark key, query; };

__device__ static inline ls_tile_mark ls_tile_query_mark(const ls_cuda_attention &job,
                                                         const ls_cuda_key_set &s, double origin,
                                                         int b, int row) {
    const int64_t n = job.start + min(max(row, 0), job.T - 1);
    const double here = ls_cuda_query_at(s, b, n);
    ls_tile_mark mark = {0, 0, (float)(here - origin), (int)(llrint(here) - llrint(origin)),
                         (float)(here - origin)};
    return mark;
}

__device__ static inline ls_tile_bounds
ls_tile_key_bounds(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b, int row) {
    ls_tile_bounds bounds = {0, 0};
    if (row < 0 || row >= s.keys || !ls_cuda_key_valid(s, b, row)) return bounds;
    const int64_t m = s.key_position + row;
    const ls_cuda_span queries = ls_cuda_queries_of(job, s, m, m, 1, false);
    bounds.first = queries.first;
    bounds.end = queries.end;
    return bounds;
}

__device__ static inline ls_tile_mark ls_tile_key_mark(const ls_cuda_attention &job,
                                                       const ls_cuda_key_set &s, double origin,
                                                       int b, int row) {
    const ls_tile_bounds bounds = ls_tile_key_bounds(job, s, b, row);
    ls_tile_mark mark = {bounds.first, bounds.end, 0, 0, 0};
    if (row < 0 || row >= s.keys) return mark;
    const double here = ls_cuda_map_at(s.key_at, s.key_position + row);
    mark.offset = (float)(origin - here);
    mark.whole = (int)(llrint(origin) - llrint(here) + s.table_zero);
    if (s.log_decay != NULL) mark.decay = (float)(origin - ls_cuda_decay_reference(s, here));
    return mark;
}

/* The whole coordinate of a query row, by a table in steps. */
__device__ static inline int ls_tile_coordinate(const ls_cuda_attention &job,
                                                const ls_cuda_key_set &s, int b, int row) {
    const int n = (int)job.start + min(row, job.T - 1);
    const int here =
        s.query_at.kind == LS_MAP_GROUP ? n / (int)s.query_at.a + (int)s.query_at.b : n;
    return s.query_max == NULL ? here : min(here, s.query_max[b]);
}

/* The column of a table, before it is cut to those that there are, of the first rows of a tile of
 * queries and of one of keys. */
__device__ static inline int ls_tile_column(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                                            int b, int query_row, int key_row) {
    if (s.table == NULL) return 0;
    return ls_tile_coordinate(job, s, b, query_row) - (int)(s.key_position + key_row) +
           (int)s.table_zero;
}

/* The marks that a kernel of a kind keeps. `first` is the first row of the query's tile. */
template <int KIND>
__device__ static inline void
ls_tile_mark_query(typename ls_tile_kept<KIND>::query &to, const ls_cuda_attention &job,
                   const ls_cuda_key_set &s, double origin, int b, int first, int row) {
    if constexpr (KIND == LS_TILE_BIASED)
        to = ls_tile_query_mark(job, s, origin, b, row);
    else if (s.table != NULL)
        to = ls_tile_coordinate(job, s, b, row) - ls_tile_coordinate(job, s, b, first);
    else
        to = 0;
}
template <int KIND>
__device__ static inline void
ls_tile_mark_key(typename ls_tile_kept<KIND>::key &to, const ls_cuda_attention &job,
                 const ls_cuda_key_set &s, double origin, int b, int row) {
    if constexpr (KIND == LS_TILE_BIASED)
        to = ls_tile_key_mark(job, s, origin, b, row);
    else
        to = ls_tile_key_bounds(job, s, b, row);
}

/* Asks for the part of a table that the scores of a tile of queries and one of keys need: that of a
 * query at step x and key row c of the tile is strip[x - c + KEYS - 1]. */
template <int QUERIES, int KEYS, int THREADS>
__device__ static inline void ls_tile_ask_strip(float *strip, const ls_cuda_key_set &s, int h,
                                                int column) {
    const float *table = s.table + h * s.table_stride;
    for (int i = (int)threadIdx.x; i < QUERIES + KEYS; i += THREADS) {
        const int at = min(max(column + i - (KEYS - 1), 0), s.table_rows - 1);
        /* where a set has no table, any address that is not read */
        ls_copy_4(strip + i, s.table == NULL ? (const float *)s.k.data : table + at,
                  s.table != NULL);
    }
}

/* Whether some of COUNT keys is admitted by some of the query rows first .. first + queries; the
 * same for the whole warp. */
template <int COUNT, typename MARK>
__device__ static inline bool ls_tile_meets(const MARK *keys, int first, int queries) {
    bool meets = false;
#pragma unroll
    for (int k = (int)threadIdx.x % 32; k < COUNT; k += 32)
        meets = meets || (keys[k].first < first + queries && keys[k].end > first);
    return __any_sync(0xffffffffu, meets);
}

/* What distance adds to the scores of a head, in units of log 2. */
typedef struct ls_tile_bias {
    float slope;
    bool both_ways;
    const float *table;
    int rows;
    float cap; /* 0: none */
} ls_tile_bias;

__device__ static inline ls_tile_bias ls_tile_bias_of(const ls_cuda_attention &job,
                                                      const ls_cuda_key_set &s, int h) {
    ls_tile_bias bias = {s.slopes == NULL ? 0 : s.slopes[h] * LS_CUDA_LOG2_E, s.lo < 0,
                         s.table == NULL ? NULL : s.table + h * s.table_stride, s.table_rows,
                         job.cap};
    return bias;
}

__device__ static inline float ls_tile_bias_at(const ls_tile_bias &bias, float distance,
                                               int column) {
    float sum = -bias.slope * (bias.both_ways ? fabsf(distance) : distance);
    if (bias.table != NULL)
        sum += __ldg(bias.table + min(max(column, 0), bias.rows - 1)) * LS_CUDA_LOG2_E;
    return sum;
}

/* cap tanh(score / cap); for operands of bf16 off by at most cap 2^-22. */
template <typename T> __device__ static inline float ls_tile_cap(float score, float cap) {
    if constexpr (sizeof(T) == sizeof(float)) return ls_cuda_cap(score, cap);
    const float e = ls_exp2(score / cap * (2 * LS_CUDA_LOG2_E));
    return cap - 2 * cap / (e + 1);
}

/* Scores become weights, and products of output gradients and values (in ds) gradients of scores.
 * Outer rows are keys or queries, columns the other. `row` and `column` are the rows in their
 * tensors of element (0, 0), `lse` and `dot` those of the queries; `more` is added to all scores.
 * `strip`: that of a table at step 0 and element (0, 0)'s key. */
template <typename T, int M, int COLUMNS, int KIND, bool KEYS_OUTER, typename ROW_MARK,
          typename COLUMN_MARK>
__device__ static inline void
ls_tile_differentiate(float s[M][COLUMNS / 8][4], float ds[M][COLUMNS / 8][4], float factor,
                      const ls_tile_bias &bias, const float *strip, bool full, float more, int row,
                      int column, const ROW_MARK *rows, const COLUMN_MARK *columns,
                      const float *lse, const float *dot) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *by_row[M][2]; /* strips of the lane's rows, from its first column on */
    if constexpr (KIND == LS_TILE_TABLE) {
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int r = m * 16 + g + 8 * half;
                by_row[m][half] = strip;
                if constexpr (KEYS_OUTER)
                    by_row[m][half] -= r;
                else
                    by_row[m][half] += rows[r] - 2 * t;
            }
    }
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const int at = n * 8 + 2 * t + c;
            COLUMN_MARK across = {};
            if (KIND == LS_TILE_BIASED || (KIND == LS_TILE_TABLE && KEYS_OUTER) ||
                (!full && !KEYS_OUTER))
                across = columns[at];
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int r = m * 16 + g + 8 * half, element = 2 * half + c;
                    const int query = KEYS_OUTER ? at : r;
                    float score = s[m][n][element] * factor + more;
                    if constexpr (KIND == LS_TILE_BIASED)
                        score += ls_tile_bias_at(bias, rows[r].offset + across.offset,
                                                 rows[r].whole + across.whole);
                    if constexpr (KIND == LS_TILE_BIASED)
                        if (bias.cap > 0) score = ls_tile_cap<T>(score, bias.cap);
                    if constexpr (KIND == LS_TILE_TABLE && KEYS_OUTER)
                        score += by_row[m][half][across] * LS_CUDA_LOG2_E;
                    if constexpr (KIND == LS_TILE_TABLE && !KEYS_OUTER)
                        score += by_row[m][half][-8 * n - c] * LS_CUDA_LOG2_E;
                    if (!full) {
                        const int i = KEYS_OUTER ? column + at : row + r;
                        ls_tile_bounds bounds;
                        if constexpr (KEYS_OUTER)
                            bounds = {rows[r].first, rows[r].end};
                        else
                            bounds = {across.first, across.end};
                        if (i < bounds.first || i >= bounds.end) score = -INFINITY;
                    }
                    const float p = ls_exp2(score - lse[query]);
                    s[m][n][element] = p;
                    ds[m][n][element] = p * (ds[m][n][element] - dot[query]);
                    if constexpr (KIND == LS_TILE_BIASED)
                        if (bias.cap > 0) ds[m][n][element] *= ls_cuda_cap_slope(score, bias.cap);
                }
        }
}

/* Multiplies the rows of a tile with their shares of the decay. */
template <int D, int ROWS, int THREADS = LS_TILE_THREADS, typename T>
__device__ static inline void ls_tile_decay(T *tile, const ls_tile_mark *marks,
                                            const ls_cuda_key_set &s) {
    /* elements and rows at a time: a thread stays with its elements */
    enum { ACROSS = D < THREADS ? D : THREADS, EACH = THREADS / ACROSS };
    const int first = (int)threadIdx.x / ACROSS;
    if (first >= EACH) return;
    for (int e = (int)threadIdx.x % ACROSS; e < D; e += ACROSS) {
        const int pair = ls_cuda_decay_pair(s, e);
        if (pair < 0) continue;
        const float rate = s.log_decay[pair];
        for (int r = first; r < ROWS; r += EACH) {
            T *x = tile + r * ls_tile_shape<T, D>::STRIDE + e;
            *x = ls_cuda_narrow<T>(ls_cuda_wide(*x) * ls_exp2(rate * marks[r].decay));
        }
    }
}

/* Tiles of SIZE rows: those of `any` are to be visited, and of those the ones of `full` need no
 * predicate. */
typedef struct ls_tile_range {
    int first, end, full_first, full_end;
} ls_tile_range;

/* Only complete tiles are full. */
template <int SIZE>
__device__ static inline ls_tile_range ls_tile_range_of(ls_cuda_span any, ls_cuda_span all) {
    ls_tile_range range = {0, 0, 0, 0};
    if (any.end <= any.first) return range;
    range.first = any.first / SIZE;
    range.end = (any.end + SIZE - 1) / SIZE;
    range.full_first = (all.first + SIZE - 1) / SIZE;
    range.full_end = all.end / SIZE;
    return range;
}

__device__ static inline bool ls_tile_is_full(const ls_tile_range &range, int tile) {
    return tile >= range.full_first && tile < range.full_end;
}

/* Key tiles of the query rows row .. row + count. */
template <int SIZE>
__device__ static inline ls_tile_range ls_key_tiles(const ls_cuda_attention &job,
                                                    const ls_cuda_key_set &s, int row, int count) {
    const int64_t first = job.start + row, last = first + count - 1;
    const ls_cuda_span none = {0, 0};
    return ls_tile_range_of<SIZE>(ls_cuda_keys_of(s, first, last, 1, false),
                                  s.valid != NULL ? none
                                                  : ls_cuda_keys_of(s, first, last, 1, true));
}

/* Query tiles of the key rows row .. row + count. */
template <int SIZE>
__device__ static inline ls_tile_range
ls_query_tiles(const ls_cuda_attention &job, const ls_cuda_key_set &s, int row, int count) {
    const int64_t first = s.key_position + row, last = first + count - 1;
    const ls_cuda_span none = {0, 0};
    return ls_tile_range_of<SIZE>(
        ls_cuda_queries_of(job, s, first, last, 1, false),
        s.valid != NULL ? none : ls_cuda_queries_of(job, s, first, last, 1, true));
}

/* ---- what an outer tile passes over ---- */

/* Tiles one after the other, or those of the blocks of a list, each of `across` tiles. SIZE: the
 * rows of a tile. */
typedef struct ls_tile_walk {
    const int32_t *at, *times; /* of the first block; NULL: tile `step` is number `step` */
    int full_first, full_end;  /* complete tiles (of a list: their rows) that need no predicate */
    int across;
    int64_t size, origin; /* block x begins at row x * size + origin */
} ls_tile_walk;

typedef struct ls_tile_place {
    int row;
    bool full;
    float more; /* logarithm of how often the tile counts, in units of log 2 */
} ls_tile_place;

template <int SIZE>
__device__ static inline ls_tile_place ls_tile_place_of(const ls_tile_walk &walk, int step) {
    ls_tile_place place = {step * SIZE, step >= walk.full_first && step < walk.full_end, 0};
    if (walk.at == NULL) return place;
    const int entry = step / walk.across;
    const int times = __ldg(walk.times + entry);
    place.row = (int)(__ldg(walk.at + entry) * walk.size + walk.origin) + step % walk.across * SIZE;
    place.full = place.row >= walk.full_first && place.row + SIZE <= walk.full_end;
    place.more = times > 1 ? log2f((float)times) : 0;
    return place;
}

__device__ static inline ls_tile_walk ls_tile_walk_of(const ls_tile_range &range) {
    ls_tile_walk walk = {NULL, NULL, range.full_first, range.full_end, 1, 0, 0};
    return walk;
}

/* A piece of a list's row, for one of the tiles of the row's block. Blocks of the grid are pieces
 * by tiles, heads where they share the rows, and sequences. */
typedef struct ls_tile_piece {
    int h, row, first, end; /* entries */
    int64_t slot;           /* of its part; -1: it is the whole row */
} ls_tile_piece;

__device__ static inline ls_tile_piece
ls_tile_piece_of(const ls_block_rows &list, const ls_cuda_plan &plan, int64_t position) {
    const int across = (int)(list.size / LS_ATTENTION_TILE), inside = (int)blockIdx.x % across;
    const int32_t *words = plan.pieces + LS_PIECE_WORDS * (blockIdx.x / (unsigned)across);
    const int64_t row = words[0];
    ls_tile_piece piece = {list.heads > 1 ? (int)(row / list.blocks) : (int)blockIdx.y,
                           (int)(row % list.blocks * list.size - list.shift - position) +
                               inside * LS_ATTENTION_TILE,
                           words[1], words[2], -1};
    if (words[3] >= 0) piece.slot = ls_cuda_list_slot(plan, across, words[3], inside);
    return piece;
}

/* The inner tiles of a piece; `rows` and `position` are the other side's. */
template <int SIZE>
__device__ static inline ls_tile_walk
ls_tile_walk_listed(const ls_block_rows &list, const ls_tile_piece &piece, int64_t position,
                    int rows, bool checked) {
    ls_tile_walk walk = {list.at + piece.first, list.times + piece.first, 0,
                         checked ? 0 : rows,    (int)(list.size / SIZE),  list.size,
                         -list.shift - position};
    return walk;
}

static inline int ls_tile_kind_of(const ls_cuda_attention *job, const ls_cuda_key_set *s) {
    if (job->cap > 0) return LS_TILE_BIASED;
    const bool table_alone = s->slopes == NULL && s->log_decay == NULL && s->table_steps;
    if (s->slopes == NULL && s->table == NULL && s->log_decay == NULL) return LS_TILE_PLAIN;
    return table_alone && s->query_plan.pieces == NULL ? LS_TILE_TABLE : LS_TILE_BIASED;
}

/* Whether all sets are plain and none is a list. */
static inline bool ls_tile_all_plain(const ls_cuda_attention *job) {
    for (int s = 0; s < job->sets; s++)
        if (ls_tile_kind_of(job, &job->set[s]) != LS_TILE_PLAIN ||
            job->set[s].query_plan.pieces != NULL)
            return false;
    return true;
}

#endif
