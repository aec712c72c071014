/* Gradients of attention in tiles. With p = 2^(s - lse), dp = dout v^T and ds = p (dp - dot),
 *   dv = p^T dout,  dk = scale ds^T q,  dq = scale ds k.
 *
 * A block keeps a tile of keys and passes over the queries that admit them (dk and dv), or keeps a
 * tile of queries and passes over their keys (dq): scores are computed twice, but nothing is ever
 * added to by two blocks. Both are one kernel: the tile that stays is the outer one, with keys and
 * values or with queries and output gradients; scores have the outer rows as rows.
 *
 * Where there are too few outer tiles, or a list's rows are too long, a tile is passed by several
 * blocks, each of which leaves a part (attention_parts.h). With a list a block has two warps and
 * a tile of 64, as forward.
 *
 * Where values are wider than keys, each pass over their columns adds its share of dp to dk and dq,
 * which lie in slots until the last; the rows' dots belong to the first.
 *
 * The gradient of a table are sums of ds by column. The blocks that compute dq have all pairs of
 * their queries: each leaves its sums, and attention_table.cu adds them up.
 *
 * Files for the widths instantiate this, so that they compile side by side. */
#ifndef LS_TENSOR_CUDA_ATTENTION_BACKWARD_H
#define LS_TENSOR_CUDA_ATTENTION_BACKWARD_H

#include <type_traits>

#include "tensor/op/attention/attention_split.cuh"

void ls_cuda_attention_grad_64(const ls_run *run, const ls_cuda_attention *job);
void ls_cuda_attention_grad_128(const ls_run *run, const ls_cuda_attention *job);
void ls_cuda_attention_grad_f32(const ls_run *run, const ls_cuda_attention *job);
void ls_cuda_attention_grad_64_f32(const ls_run *run, const ls_cuda_attention *job);
void ls_cuda_attention_grad_128_f32(const ls_run *run, const ls_cuda_attention *job);

/* Tiles of f32 fill the shared memory, so there are twice the warps of one band each. */
template <typename T, int D, bool KEYS_OUTER, bool LISTED> struct shape {
    static const bool WIDE = sizeof(T) == sizeof(float);
    static const int BANDS = WIDE || (KEYS_OUTER && D > 64) ? 1 : 2;
    /* a list's outer tile has 64 rows */
    static const int WARPS = LISTED ? LS_ATTENTION_TILE / (BANDS * 16)
                             : WIDE ? 2 * LS_TILE_WARPS
                                    : LS_TILE_WARPS;
    static const int THREADS = 32 * WARPS;
    static const int OUTER = WARPS * BANDS * 16;
    static const int INNER = WIDE && D > 96 ? LS_ATTENTION_TILE / 2 : LS_ATTENTION_TILE;
    static const int COLUMNS = 32; /* scores computed at once */
    static const int STRIDE = ls_tile_shape<T, D>::STRIDE;
    /* of a multiprocessor */
    static const int BLOCKS =
        WIDE ? (D <= 32 || (LISTED && D <= 64) ? 2 : 1) : 2 * (WARPS == 2 && D <= 64 ? 2 : 1);
};

/* What a block does: sequence, key head, first outer row, and the steps over inner tiles of its
 * heads, `each` of every head from tile `inner_first` of the walk on. */
typedef struct grad_work {
    int b, g, row, heads_first, each, inner_first;
    int first, end; /* of the steps */
    ls_tile_walk walk;
    int64_t slot;  /* -1: the tile is the block's alone */
    double origin; /* coordinate of the first outer row */
} grad_work;

template <typename T, int D, int KIND, bool KEYS_OUTER, bool LISTED> struct grad_tiles {
    typedef shape<T, D, KEYS_OUTER, LISTED> sizes;
    static const int INNER = sizes::INNER;
    typedef ls_tile_kept<KIND> kept;
    typedef std::conditional_t<KEYS_OUTER, typename kept::key, typename kept::query> row_mark;
    typedef std::conditional_t<KEYS_OUTER, typename kept::query, typename kept::key> column_mark;
    static const bool PLAIN = KIND == LS_TILE_PLAIN;
    static const bool SUMMED = KIND == LS_TILE_TABLE && !KEYS_OUTER; /* sums of a table */
    T outer[2][sizes::OUTER * sizes::STRIDE];                        /* k, v or q, do */
    T inner[2][2][INNER * sizes::STRIDE];                            /* [stage], q, do or k, v */
    row_mark rows[KEYS_OUTER || !PLAIN ? sizes::OUTER : 1];
    column_mark columns[!KEYS_OUTER || !PLAIN ? INNER : 1];
    float strip[2][KIND == LS_TILE_TABLE ? sizes::OUTER + INNER : 1];          /* of each stage */
    alignas(8) float scratch[SUMMED ? sizes::WARPS : 1][SUMMED ? 16 * 32 : 1]; /* a band's ds */
    grad_work work; /* here, since registers are short */
    /* of queries: of the inner ones for each stage, or of the outer ones */
    float lse[KEYS_OUTER ? 2 * INNER : sizes::OUTER];
    float dot[KEYS_OUTER ? 2 * INNER : sizes::OUTER];
};

static __device__ int head_of(const grad_work &work, int step) {
    return work.heads_first + step / work.each;
}
template <int INNER> static __device__ ls_tile_place place_of(const grad_work &work, int step) {
    return ls_tile_place_of<INNER>(work.walk, work.inner_first + step % work.each);
}

template <typename T, int D, int KIND, bool KEYS_OUTER, bool LISTED>
static __device__ void ask(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                           const grad_work &work, int step, int row,
                           grad_tiles<T, D, KIND, KEYS_OUTER, LISTED> &tiles) {
    enum {
        THREADS = shape<T, D, KEYS_OUTER, LISTED>::THREADS,
        INNER = shape<T, D, KEYS_OUTER, LISTED>::INNER
    };
    const int stage = step % 2, h = head_of(work, step);
    const int width = ls_cuda_pass_width(job, job.pass);
    if (KEYS_OUTER) {
        ls_tile_ask<D, INNER, THREADS>(tiles.inner[stage][0], s.q, work.b, h, row, job.T, job.K);
        ls_tile_ask<D, INNER, THREADS>(tiles.inner[stage][1], job.dout, work.b, h, row, job.T,
                                       width);
        const int64_t head = ((int64_t)work.b * job.H + h) * job.T;
#pragma unroll
        for (int number = (int)threadIdx.x; number < 2 * INNER; number += THREADS) {
            const int r = number % INNER;
            const bool there = (unsigned)(row + r) < (unsigned)job.T, first = number < INNER;
            ls_copy_4((first ? tiles.lse : tiles.dot) + stage * INNER + r,
                      (first ? job.row_lse : job.row_dot) + head + (there ? row + r : 0),
                      there && (first || job.pass == 0));
        }
    } else {
        ls_tile_ask<D, INNER, THREADS>(tiles.inner[stage][0], s.k, work.b, work.g, row, s.keys,
                                       job.K);
        ls_tile_ask<D, INNER, THREADS>(tiles.inner[stage][1], s.v, work.b, work.g, row, s.keys,
                                       width);
    }
    if constexpr (KIND == LS_TILE_TABLE) {
        enum { OUTER = shape<T, D, KEYS_OUTER, LISTED>::OUTER };
        const int query = KEYS_OUTER ? row : work.row, key = KEYS_OUTER ? work.row : row;
        ls_tile_ask_strip<KEYS_OUTER ? INNER : OUTER, KEYS_OUTER ? OUTER : INNER, THREADS>(
            tiles.strip[stage], s, h, ls_tile_column(job, s, work.b, query, key));
    }
    ls_copies_end();
}

/* The outer tile and what belongs to its rows. */
template <typename T, int D, int KIND, bool KEYS_OUTER, bool LISTED>
static __device__ void ask_outer(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                                 const grad_work &work,
                                 grad_tiles<T, D, KIND, KEYS_OUTER, LISTED> &tiles) {
    enum {
        OUTER = shape<T, D, KEYS_OUTER, LISTED>::OUTER,
        THREADS = shape<T, D, KEYS_OUTER, LISTED>::THREADS
    };
    const int width = ls_cuda_pass_width(job, job.pass);
    if (KEYS_OUTER) {
        ls_tile_ask<D, OUTER, THREADS>(tiles.outer[0], s.k, work.b, work.g, work.row, s.keys,
                                       job.K);
        ls_tile_ask<D, OUTER, THREADS>(tiles.outer[1], s.v, work.b, work.g, work.row, s.keys,
                                       width);
    } else {
        const int h = work.heads_first;
        ls_tile_ask<D, OUTER, THREADS>(tiles.outer[0], s.q, work.b, h, work.row, job.T, job.K);
        ls_tile_ask<D, OUTER, THREADS>(tiles.outer[1], job.dout, work.b, h, work.row, job.T, width);
    }
    for (int r = (int)threadIdx.x; r < OUTER; r += THREADS) {
        const int row = work.row + r;
        if constexpr (KEYS_OUTER) {
            ls_tile_mark_key<KIND>(tiles.rows[r], job, s, work.origin, work.b, row);
            continue;
        }
        const int64_t at = ((int64_t)work.b * job.H + work.heads_first) * job.T + row;
        const bool there = (unsigned)row < (unsigned)job.T;
        if constexpr (!KEYS_OUTER && KIND != LS_TILE_PLAIN)
            ls_tile_mark_query<KIND>(tiles.rows[r], job, s, work.origin, work.b, work.row, row);
        tiles.lse[r] = there ? job.row_lse[at] : INFINITY;
        tiles.dot[r] = there && job.pass == 0 ? job.row_dot[at] : 0;
    }
}

/* ---- storing ---- */

/* The outer rows' shares of the decay. */
template <int D, int M>
static __device__ void decay_sums(float c[M][D / 8][4], const ls_cuda_key_set &s,
                                  const ls_tile_mark *marks) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int pair = ls_cuda_decay_pair(s, n * 8 + 2 * t + i % 2);
            const float rate = pair < 0 ? 0 : s.log_decay[pair];
#pragma unroll
            for (int m = 0; m < M; m++)
                c[m][n][i] *= exp2f(rate * marks[m * 16 + g + i / 2 * 8].decay);
        }
}

/* Rows of a part of a gradient, those of this warp from `to` on; more: to what lies there. */
template <int D, int M>
static __device__ void store_part(float *to, int width, const float c[M][D / 8][4], float factor,
                                  bool more) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                if (n * 8 + 2 * t >= width) break;
                float2 *there =
                    (float2 *)(void *)(to + (m * 16 + g + 8 * half) * width + n * 8 + 2 * t);
                const float2 before = more ? *there : float2{0, 0};
                *there = {before.x + c[m][n][2 * half] * factor,
                          before.y + c[m][n][2 * half + 1] * factor};
            }
}

/* ---- sums of a table ---- */

/* Adds a warp's ds to its sums of columns. `steps` are those of its rows, `column` that of step 0
 * and the first key, before it is cut to the table's; what is cut goes to low and high.
 *
 * A lane takes the diagonals `lane` before the first element and 32 - lane behind it: one of them
 * has a key for each row, so every lane reads an element of each row, all of different banks. */
template <int M>
static __device__ void add_to_columns(const float ds[M][4][4], const ls_tile_step *steps,
                                      int column, int columns, float *scratch, float *sums,
                                      float &low, float &high) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < M; m++) {
        const int first = steps[16 * m], base = column + first;
        if (column + steps[16 * m + 15] <= 0 || base - 31 >= columns - 1) {
            float sum = 0; /* far away all are in one column */
#pragma unroll
            for (int n = 0; n < 4; n++)
                sum += ds[m][n][0] + ds[m][n][1] + ds[m][n][2] + ds[m][n][3];
            if (base - 31 >= columns - 1)
                high += sum;
            else
                low += sum;
            continue;
        }
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *(float2 *)(void *)(scratch + (g + 8 * half) * 32 + ((8 * n) ^ (8 * (g % 4))) +
                                    2 * t) = {ds[m][n][2 * half], ds[m][n][2 * half + 1]};
        __syncwarp();
        float before = 0, behind = 0;
#pragma unroll
        for (int r = 0; r < 16; r++) {
            const int key = steps[16 * m + r] - first + lane;
            const float one = scratch[r * 32 + ((key % 32) ^ (8 * (r % 4)))];
            if (key < 32)
                before += one;
            else
                behind += one;
        }
        const float each[2] = {before, behind};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int at = base - lane + 32 * i;
            if (at <= 0)
                low += each[i];
            else if (at >= columns - 1)
                high += each[i];
            else
                sums[at] += each[i];
        }
    }
}

/* Leaves the block's sums, those of its warps added up, in the workspace. */
template <int WARPS>
static __device__ void store_columns(const ls_cuda_attention &job, int columns, float *sums,
                                     float low, float high) {
    float *mine = sums + (int)threadIdx.x / 32 * columns;
    low = ls_cuda_warp_sum(low);
    high = ls_cuda_warp_sum(high);
    if (threadIdx.x % 32 == 0) {
        mine[0] += low;
        mine[columns - 1] += high;
    }
    __syncthreads();
    float *to = job.by_distance +
                (((int64_t)blockIdx.y * gridDim.z + blockIdx.z) * gridDim.x + blockIdx.x) * columns;
    for (int column = (int)threadIdx.x; column < columns; column += 32 * WARPS) {
        float sum = 0;
        for (int warp = 0; warp < WARPS; warp++) sum += sums[warp * columns + column];
        to[column] = sum;
    }
}

/* ---- what a block does ---- */

template <int INNER, bool KEYS_OUTER>
static __device__ grad_work listed_work(const ls_cuda_attention &job, const ls_cuda_key_set &s) {
    const ls_block_rows &list = KEYS_OUTER ? s.seen_by_keys : s.seen_by_queries;
    const ls_tile_piece piece = KEYS_OUTER ? ls_tile_piece_of(list, s.key_plan, s.key_position)
                                           : ls_tile_piece_of(list, s.query_plan, job.start);
    grad_work work = {};
    work.b = (int)blockIdx.z;
    work.g = work.heads_first = piece.h; /* heads do not share keys */
    work.row = piece.row;
    work.slot = piece.slot;
    work.walk =
        KEYS_OUTER
            ? ls_tile_walk_listed<INNER>(list, piece, job.start, job.T, s.valid != NULL)
            : ls_tile_walk_listed<INNER>(list, piece, s.key_position, s.keys, s.valid != NULL);
    work.each = work.end = (piece.end - piece.first) * work.walk.across;
    return work;
}

template <int OUTER, int INNER, bool KEYS_OUTER>
static __device__ grad_work range_work(const ls_cuda_attention &job, const ls_cuda_key_set &s) {
    const int y = (int)blockIdx.y, heads = job.H / job.G;
    const ls_cuda_parts &parts = KEYS_OUTER ? s.key_parts : s.query_parts;
    const int tiles = (int)gridDim.x / parts.parts, tile = (int)blockIdx.x % tiles;
    const int part = (int)blockIdx.x / tiles;
    ls_tile_range range = {0, 0, 0, 0};
    grad_work work = {};
    work.b = (int)blockIdx.z;
    if (KEYS_OUTER) {
        work.row = (parts.slots ? parts.first : 0) + tile * OUTER;
        work.g = y;
        work.heads_first = y * heads;
        if (work.row < s.keys)
            range = ls_query_tiles<INNER>(job, s, work.row, min((int)OUTER, s.keys - work.row));
    } else {
        /* the last queries have the most keys: they come first */
        work.row = (tiles - 1 - tile) * OUTER;
        work.g = y / heads;
        work.heads_first = y;
        range = ls_key_tiles<INNER>(job, s, work.row, min((int)OUTER, job.T - work.row));
    }
    work.walk = ls_tile_walk_of(range);
    work.inner_first = range.first;
    work.each = range.end - range.first;
    const int64_t steps = (int64_t)(KEYS_OUTER ? heads : 1) * work.each;
    work.first = (int)(steps * part / parts.parts);
    work.end = (int)(steps * (part + 1) / parts.parts);
    work.slot = parts.slots ? ls_cuda_part_slot(job.B, (int)gridDim.y, tiles, part, work.b, y,
                                                KEYS_OUTER ? tile : tiles - 1 - tile)
                            : -1;
    return work;
}

/* Of all parts. */
template <bool KEYS_OUTER, bool LISTED>
static __device__ int64_t slots_of(const ls_cuda_attention &job, const ls_cuda_key_set &s) {
    if (LISTED)
        return KEYS_OUTER ? ls_cuda_list_slots(job, s.seen_by_keys, s.key_plan)
                          : ls_cuda_list_slots(job, s.seen_by_queries, s.query_plan);
    return (int64_t)gridDim.x * gridDim.y * gridDim.z;
}

template <typename T, int D, int KIND, bool KEYS_OUTER, bool LISTED>
__global__ static void __launch_bounds__(shape<T, D, KEYS_OUTER, LISTED>::THREADS,
                                         shape<T, D, KEYS_OUTER, LISTED>::BLOCKS)
    backward(const __grid_constant__ ls_cuda_attention job, int at, int columns) {
    typedef shape<T, D, KEYS_OUTER, LISTED> sizes;
    typedef grad_tiles<T, D, KIND, KEYS_OUTER, LISTED> shared;
    enum {
        BIASED = KIND == LS_TILE_BIASED,
        M = sizes::BANDS,
        COLUMNS = sizes::COLUMNS,
        STRIDE = sizes::STRIDE,
        OUTER = sizes::OUTER,
        INNER = sizes::INNER,
        THREADS = sizes::THREADS
    };
    static_assert(INNER <= (int)THREADS, "a thread for each inner row's mark");
    extern __shared__ __align__(16) unsigned char arena[];
    shared &tiles = *(shared *)(void *)arena;
    float *table_sums = (float *)(void *)(arena + sizeof(shared)); /* [warp][columns] */
    const ls_cuda_key_set &s = job.set[at];
    const grad_work &work = tiles.work;
    const int thread = (int)threadIdx.x, warp = thread / 32, band = warp * M * 16;
    const bool decays = BIASED && s.log_decay != NULL;
    const float factor = job.scale * LS_CUDA_LOG2_E;
    if (thread == 0) {
        tiles.work = LISTED ? listed_work<INNER, KEYS_OUTER>(job, s)
                            : range_work<OUTER, INNER, KEYS_OUTER>(job, s);
        tiles.work.origin = KEYS_OUTER ? ls_cuda_map_at(s.key_at, s.key_position + tiles.work.row)
                                       : ls_cuda_map_at(s.query_at, job.start + tiles.work.row);
    }
    if constexpr (shared::SUMMED)
        for (int i = thread; i < sizes::WARPS * columns; i += THREADS) table_sums[i] = 0;
    __syncthreads();
    /* of dk or dq, and of dv */
    float sums[M][D / 8][4] = {}, value_sums[M][D / 8][4] = {};
    float low = 0, high = 0; /* of the table's first and last column */
    ls_tile_place here = {0, false, 0}, next = here;
    if (work.first < work.end) {
        here = place_of<INNER>(work, work.first);
        ask_outer<T, D, KIND, KEYS_OUTER, LISTED>(job, s, work, tiles);
        ask<T, D, KIND, KEYS_OUTER, LISTED>(job, s, work, work.first, here.row, tiles);
        if (work.first + 1 < work.end) next = place_of<INNER>(work, work.first + 1);
    }
    for (int step = work.first; step < work.end; step++) {
        const int stage = step % 2;
        if (step + 1 < work.end) {
            ask<T, D, KIND, KEYS_OUTER, LISTED>(job, s, work, step + 1, next.row, tiles);
            ls_copies_wait<1>();
        } else {
            ls_copies_wait<0>();
        }
        if constexpr (KEYS_OUTER && KIND != LS_TILE_PLAIN)
            if (thread < INNER)
                ls_tile_mark_query<KIND>(tiles.columns[thread], job, s, work.origin, work.b,
                                         here.row, here.row + thread);
        if constexpr (!KEYS_OUTER)
            if (thread < INNER && (BIASED || !here.full))
                ls_tile_mark_key<KIND>(tiles.columns[thread], job, s, work.origin, work.b,
                                       here.row + thread);
        /* read long before it is needed */
        const ls_tile_place after = step + 2 < work.end ? place_of<INNER>(work, step + 2) : next;
        __syncthreads();
        if constexpr (BIASED)
            if (decays) {
                if (step == work.first)
                    ls_tile_decay<D, OUTER, THREADS>(tiles.outer[0], tiles.rows, s);
                ls_tile_decay<D, INNER, THREADS>(tiles.inner[stage][0], tiles.columns, s);
                __syncthreads();
            }
        ls_tile_bias bias = {};
        if (BIASED) bias = ls_tile_bias_of(job, s, head_of(work, step));
#pragma unroll 1
        for (int column = 0; column < INNER; column += COLUMNS) {
            const T *inner0 = tiles.inner[stage][0] + column * STRIDE;
            const T *inner1 = tiles.inner[stage][1] + column * STRIDE;
            const int query = KEYS_OUTER ? stage * INNER + column : band;
            const auto *rows = tiles.rows + (KEYS_OUTER || !shared::PLAIN ? band : 0);
            const auto *across = tiles.columns + (!KEYS_OUTER || !shared::PLAIN ? column : 0);
            const float *strip =
                tiles.strip[stage] + (KEYS_OUTER ? OUTER - 1 - band : INNER - 1 - column);
            if constexpr (KEYS_OUTER) {
                if (!here.full && !ls_tile_meets<M * 16>(rows, here.row + column, COLUMNS))
                    continue;
            } else {
                if (!here.full && !ls_tile_meets<COLUMNS>(across, work.row + band, M * 16))
                    continue;
            }
            float p[M][COLUMNS / 8][4], ds[M][COLUMNS / 8][4];
            ls_tile_scores<D, M, COLUMNS>(p, tiles.outer[0] + band * STRIDE, inner0);
            ls_tile_scores<D, M, COLUMNS>(ds, tiles.outer[1] + band * STRIDE, inner1);
            if (here.full && !BIASED)
                ls_tile_differentiate<T, M, COLUMNS, KIND, KEYS_OUTER>(
                    p, ds, factor, bias, strip, true, here.more, 0, 0, rows, across,
                    tiles.lse + query, tiles.dot + query);
            else
                ls_tile_differentiate<T, M, COLUMNS, KIND, KEYS_OUTER>(
                    p, ds, factor, bias, strip, here.full, here.more, work.row + band,
                    here.row + column, rows, across, tiles.lse + query, tiles.dot + query);
            if constexpr (shared::SUMMED)
                if (columns > 0)
                    add_to_columns<M>(
                        ds, rows, ls_tile_column(job, s, work.b, work.row, here.row + column),
                        columns, tiles.scratch[warp], table_sums + warp * columns, low, high);
            if (KEYS_OUTER) ls_tile_gather<D, M, COLUMNS>(value_sums, p, inner1);
            ls_tile_gather<D, M, COLUMNS>(sums, ds, inner0);
        }
        __syncthreads();
        here = next;
        next = after;
    }
    if constexpr (BIASED)
        if (decays && work.first < work.end) decay_sums<D, M>(sums, s, tiles.rows + band);
    if (work.slot >= 0) {
        const int64_t values = KEYS_OUTER ? slots_of<KEYS_OUTER, LISTED>(job, s) : 0;
        float *to = job.parts + (work.slot * OUTER + band) * job.K;
        store_part<D, M>(to, job.K, sums, job.scale, job.pass > 0);
        if (KEYS_OUTER) store_part<D, M>(to + values * OUTER * job.K, job.K, value_sums, 1, false);
    } else if (KEYS_OUTER) {
        ls_tile_store_rows<T, D, M>(s.dk, job.K, sums, job.scale, work.b, work.g, work.row + band,
                                    s.keys, s.key_rows);
        ls_tile_store_rows<T, D, M>(s.dv, ls_cuda_pass_width(job, job.pass), value_sums, 1, work.b,
                                    work.g, work.row + band, s.keys, s.key_rows);
    } else {
        ls_tile_store_rows<T, D, M>(s.dq, job.K, sums, job.scale, work.b, work.heads_first,
                                    work.row + band, job.T, job.T);
    }
    if constexpr (shared::SUMMED)
        if (columns > 0) store_columns<sizes::WARPS>(job, columns, table_sums, low, high);
}

template <typename T, int D, int KIND, bool KEYS_OUTER, bool LISTED>
static void start(const ls_run *run, const ls_cuda_attention *job, int at, dim3 grid) {
    typedef shape<T, D, KEYS_OUTER, LISTED> sizes;
    typedef grad_tiles<T, D, KIND, KEYS_OUTER, LISTED> shared;
    const int columns =
        shared::SUMMED && ls_cuda_attention_table_summed(job, at) ? job->set[at].table_rows : 0;
    const size_t bytes = sizeof(shared) + (size_t)(sizes::WARPS * columns) * sizeof(float);
    auto *kernel = backward<T, D, KIND, KEYS_OUTER, LISTED>;
    ls_cuda_note(
        ls_cuda_of(run),
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "attention, asking for shared memory");
    kernel<<<grid, sizes::THREADS, bytes, ls_cuda_of(run)->stream>>>(*job, at, columns);
    ls_cuda_launched(run, "attention, gradients");
    ls_cuda_attention_join_grad(run, job, at, KEYS_OUTER, sizes::OUTER);
    if (columns > 0) ls_cuda_attention_table_join(run, job, at, (int)(grid.x * grid.z));
}

template <typename T, int D, int KIND, bool KEYS_OUTER>
static void launch_listed(const ls_run *run, const ls_cuda_attention *job, int at) {
    const ls_cuda_key_set *s = &job->set[at];
    const ls_cuda_plan *plan = KEYS_OUTER ? &s->key_plan : &s->query_plan;
    const ls_block_rows *list = KEYS_OUTER ? &s->seen_by_keys : &s->seen_by_queries;
    start<T, D, KIND, KEYS_OUTER, true>(
        run, job, at,
        dim3((unsigned)(plan->count * (list->size / LS_ATTENTION_TILE)),
             (unsigned)(job->H / list->heads), (unsigned)job->B));
}

template <typename T, int D, int KIND, bool KEYS_OUTER>
static void launch(const ls_run *run, const ls_cuda_attention *job, int at) {
    const ls_cuda_key_set *s = &job->set[at];
    const int outer = shape<T, D, KEYS_OUTER, false>::OUTER;
    const ls_cuda_parts *parts = KEYS_OUTER ? &s->key_parts : &s->query_parts;
    const int rows = parts->slots ? parts->end - parts->first : KEYS_OUTER ? s->key_rows : job->T;
    start<T, D, KIND, KEYS_OUTER, false>(run, job, at,
                                         dim3((unsigned)((rows + outer - 1) / outer * parts->parts),
                                              (unsigned)(KEYS_OUTER ? job->G : job->H),
                                              (unsigned)job->B));
}

/* Of keys and values, or of queries and a table. */
template <typename T, int D, bool PLAIN, bool KEYS_OUTER>
static void launch_side(const ls_run *run, const ls_cuda_attention *job, int at) {
    if constexpr (PLAIN) {
        launch<T, D, LS_TILE_PLAIN, KEYS_OUTER>(run, job, at);
    } else {
        const ls_cuda_key_set *s = &job->set[at];
        const int kind = ls_tile_kind_of(job, s);
        if (s->query_plan.pieces != NULL) {
            if (kind == LS_TILE_PLAIN)
                launch_listed<T, D, LS_TILE_PLAIN, KEYS_OUTER>(run, job, at);
            else
                launch_listed<T, D, LS_TILE_BIASED, KEYS_OUTER>(run, job, at);
        } else if (kind == LS_TILE_PLAIN) {
            launch<T, D, LS_TILE_PLAIN, KEYS_OUTER>(run, job, at);
        } else if (kind == LS_TILE_TABLE) {
            launch<T, D, LS_TILE_TABLE, KEYS_OUTER>(run, job, at);
        } else {
            launch<T, D, LS_TILE_BIASED, KEYS_OUTER>(run, job, at);
        }
    }
}

/* All passes of a side together, since sets and sides share the slots. */
template <typename T, int D, bool PLAIN, bool KEYS_OUTER>
static void launch_passes(const ls_run *run, const ls_cuda_attention *job, int at) {
    for (int pass = 0; pass < job->passes; pass++) {
        const ls_cuda_attention one = ls_cuda_attention_pass(job, pass);
        launch_side<T, D, PLAIN, KEYS_OUTER>(run, &one, at);
    }
}

/* PLAIN: all sets are (ls_tile_all_plain). */
template <typename T, int D, bool PLAIN>
static void width_grad(const ls_run *run, const ls_cuda_attention *job) {
    for (int at = 0; at < job->sets; at++) {
        const ls_cuda_key_set *s = &job->set[at];
        if (s->dk.data != NULL || s->dv.data != NULL)
            launch_passes<T, D, PLAIN, true>(run, job, at);
        if (s->dq.data != NULL || ls_cuda_attention_table_summed(job, at))
            launch_passes<T, D, PLAIN, false>(run, job, at);
    }
}

#endif
