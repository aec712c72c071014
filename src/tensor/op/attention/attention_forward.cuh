/* Attention in tiles: a block takes 128 queries of a head and passes over the keys that they admit,
 * with a running softmax.
 *
 * With a list a block has two warps and 64 queries, so that it passes over just the blocks of its
 * row, and four of them share a multiprocessor instead of two: as many warps with as many products
 * each. What grows is the traffic of keys and values, which the cache has to carry twice as often.
 * Rows longer than others (BigBird's global blocks) are cut into pieces and joined, so the work is
 * that of the listed tiles: of BigBird's 8 blocks and 2 global rows at 4,096 tokens 1/6.6 of all
 * pairs, at 16,384 tokens 1/26. */
#ifndef LS_TENSOR_CUDA_ATTENTION_FORWARD_H
#define LS_TENSOR_CUDA_ATTENTION_FORWARD_H

#include "tensor/op/attention/attention_softmax.cuh"

enum { KEYS = LS_ATTENTION_TILE };

/* As many scores are computed at once, and as many bands are a warp's, as there are registers
 * for. */
template <typename T, int D, int KIND, bool LISTED> struct shape {
    static const bool WIDE = sizeof(T) == sizeof(float);
    static const int BANDS = WIDE && D > 64 ? 1 : 2;
    static const int COLUMNS = !WIDE && D <= 64 && KIND == LS_TILE_PLAIN ? 64 : 32;
    static const int QUERIES = LISTED ? LS_ATTENTION_TILE : 128;
    static const int WARPS = QUERIES / (BANDS * 16), THREADS = 32 * WARPS;
    /* of a multiprocessor; tiles of f32 fill its shared memory */
    static const int BLOCKS = WIDE ? (D > 64 ? 1 : 2) : LISTED && D <= 64 ? 4 : 2;
};

template <typename T, int D, int KIND, bool LISTED> struct shared_tiles {
    typedef shape<T, D, KIND, LISTED> sizes;
    static const int STRIP = KIND == LS_TILE_TABLE ? sizes::QUERIES + KEYS : 1;
    static const int QUERIES = sizes::QUERIES;
    T q[QUERIES * ls_tile_shape<T, D>::STRIDE];
    T k[2][KEYS * ls_tile_shape<T, D>::STRIDE];
    T v[2][KEYS * ls_tile_shape<T, D>::STRIDE];
    typename ls_tile_kept<KIND>::query queries[KIND == LS_TILE_PLAIN ? 1 : QUERIES];
    typename ls_tile_kept<KIND>::key keys[KEYS];
    float strip[2][STRIP];
};

/* Adds biases to scores and sets those of pairs that are not admitted to -infinity. Scores are then
 * in units of log 2 where they are `BIASED`, and in natural ones with a table (`strip`: that of
 * step 0 and the first key). */
template <typename T, int BANDS, int COLUMNS, int KIND, typename QUERY_MARK, typename KEY_MARK>
static __device__ void adjust(float s[BANDS][COLUMNS / 8][4], float factor,
                              const ls_tile_bias &bias, const float *strip, bool full, int row,
                              const QUERY_MARK *queries, const KEY_MARK *keys) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *by_row[BANDS][2]; /* strips of the lane's rows, from its first column on */
    if constexpr (KIND == LS_TILE_TABLE) {
#pragma unroll
        for (int m = 0; m < BANDS; m++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                by_row[m][half] = strip + queries[m * 16 + g + 8 * half] - 2 * t;
    }
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            KEY_MARK key = {};
            if (KIND == LS_TILE_BIASED || !full) key = keys[n * 8 + 2 * t + c];
#pragma unroll
            for (int m = 0; m < BANDS; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *at = &s[m][n][2 * half + c];
                    const int r = m * 16 + g + 8 * half;
                    if constexpr (KIND == LS_TILE_BIASED)
                        *at = *at * factor + ls_tile_bias_at(bias, queries[r].offset + key.offset,
                                                             queries[r].whole + key.whole);
                    if constexpr (KIND == LS_TILE_BIASED)
                        if (bias.cap > 0) *at = ls_tile_cap<T>(*at, bias.cap);
                    if constexpr (KIND == LS_TILE_TABLE)
                        *at = *at * factor + by_row[m][half][-8 * n - c];
                    if (!full && !(row + r >= key.first && row + r < key.end)) *at = -INFINITY;
                }
        }
}

template <int BANDS, int COLUMNS>
static __device__ void raise(float s[BANDS][COLUMNS / 8][4], float more) {
#pragma unroll
    for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) s[m][n][i] += more;
}

/* The block's part of the tiles of a set, of `before` tiles of earlier sets. */
static __device__ ls_cuda_span part_of_tiles(const ls_cuda_attention &job,
                                             const ls_tile_range &range, int before, int total,
                                             int split) {
    const int count = range.end - range.first;
    const int64_t from = (int64_t)total * split / job.splits - before;
    const int64_t end = (int64_t)total * (split + 1) / job.splits - before;
    ls_cuda_span part = ls_cuda_cut(from, end, count);
    part.first += range.first;
    part.end += range.first;
    return part;
}

/* `row`: of the queries. */
template <typename T, int D, int KIND, bool LISTED>
static __device__ void ask_keys(const ls_cuda_attention &job, const ls_cuda_key_set &s, int stage,
                                int b, int h, int row, int key,
                                shared_tiles<T, D, KIND, LISTED> &tiles) {
    enum {
        THREADS = shape<T, D, KIND, LISTED>::THREADS,
        QUERIES = shape<T, D, KIND, LISTED>::QUERIES
    };
    const int g = h / (job.H / job.G);
    ls_tile_ask<D, KEYS, THREADS>(tiles.k[stage], s.k, b, g, key, s.keys, job.K);
    ls_tile_ask<D, KEYS, THREADS>(tiles.v[stage], s.v, b, g, key, s.keys,
                                  ls_cuda_pass_width(job, job.pass));
    if constexpr (KIND == LS_TILE_TABLE)
        ls_tile_ask_strip<QUERIES, KEYS, THREADS>(tiles.strip[stage], s, h,
                                                  ls_tile_column(job, s, b, row, key));
    ls_copies_end();
}

/* The steps part.first .. part.end of a walk over the keys of one set. */
template <typename T, int D, int KIND, bool LISTED>
static __device__ void pass(const ls_cuda_attention &job, const ls_cuda_key_set &s,
                            const ls_tile_walk &walk, ls_cuda_span part, int b, int h, int row,
                            shared_tiles<T, D, KIND, LISTED> &tiles,
                            ls_tile_running<D, shape<T, D, KIND, LISTED>::BANDS> &state) {
    typedef shape<T, D, KIND, LISTED> sizes;
    enum {
        BIASED = KIND == LS_TILE_BIASED,
        BANDS = sizes::BANDS,
        COLUMNS = sizes::COLUMNS,
        STRIDE = ls_tile_shape<T, D>::STRIDE,
        QUERIES = sizes::QUERIES,
        THREADS = sizes::THREADS
    };
    static_assert(KEYS <= (int)THREADS, "a thread for each key's mark");
    const int thread = (int)threadIdx.x, band = thread / 32 * BANDS * 16;
    const bool decays = BIASED && s.log_decay != NULL;
    /* none of the warp's queries exists */
    const bool idle = row + band >= job.T || row + band + BANDS * 16 <= 0;
    const double origin = BIASED ? ls_cuda_map_at(s.query_at, job.start + row) : 0;
    /* the units of adjusted scores, and what takes those to units of log 2 */
    const float factor = job.scale * (BIASED ? LS_CUDA_LOG2_E : 1);
    const float unit = BIASED                  ? 1
                       : KIND == LS_TILE_TABLE ? LS_CUDA_LOG2_E
                                               : job.scale * LS_CUDA_LOG2_E;
    ls_tile_bias bias = {};
    if (BIASED) bias = ls_tile_bias_of(job, s, h);
    ls_tile_place here = ls_tile_place_of<KEYS>(walk, part.first), next = here;
    ls_tile_ask<D, QUERIES, THREADS>(tiles.q, s.q, b, h, row, job.T, job.K);
    ask_keys(job, s, part.first % 2, b, h, row, here.row, tiles);
    if (part.first + 1 < part.end) next = ls_tile_place_of<KEYS>(walk, part.first + 1);
    if (KIND != LS_TILE_PLAIN)
        for (int r = thread; r < QUERIES; r += THREADS)
            ls_tile_mark_query<KIND>(tiles.queries[r], job, s, origin, b, row, row + r);
    for (int step = part.first; step < part.end; step++) {
        const int stage = step % 2;
        if (step + 1 < part.end) {
            ask_keys(job, s, 1 - stage, b, h, row, next.row, tiles);
            ls_copies_wait<1>();
        } else {
            ls_copies_wait<0>();
        }
        if ((BIASED || !here.full) && thread < KEYS)
            ls_tile_mark_key<KIND>(tiles.keys[thread], job, s, origin, b, here.row + thread);
        /* read long before it is needed */
        const ls_tile_place after =
            step + 2 < part.end ? ls_tile_place_of<KEYS>(walk, step + 2) : next;
        __syncthreads();
        if constexpr (BIASED)
            if (decays) {
                if (step == part.first)
                    ls_tile_decay<D, QUERIES, THREADS>(tiles.q, tiles.queries, s);
                ls_tile_decay<D, KEYS, THREADS>(tiles.k[stage], tiles.keys, s);
                __syncthreads();
            }
#pragma unroll 1
        for (int column = 0; column < KEYS && !idle; column += COLUMNS) {
            const auto *queries = tiles.queries + (KIND == LS_TILE_PLAIN ? 0 : band);
            const auto *keys = tiles.keys + column;
            const float *strip = tiles.strip[stage] + KEYS - 1 - column;
            if (!here.full && !ls_tile_meets<COLUMNS>(keys, row + band, BANDS * 16)) continue;
            float scores[BANDS][COLUMNS / 8][4];
            ls_tile_scores<D, BANDS, COLUMNS>(scores, tiles.q + band * STRIDE,
                                              tiles.k[stage] + column * STRIDE);
            if (here.full)
                adjust<T, BANDS, COLUMNS, KIND>(scores, factor, bias, strip, true, row + band,
                                                queries, keys);
            else
                adjust<T, BANDS, COLUMNS, KIND>(scores, factor, bias, strip, false, row + band,
                                                queries, keys);
            if (here.more != 0) raise<BANDS, COLUMNS>(scores, here.more / unit);
            ls_tile_soften<D, BANDS, COLUMNS>(scores, unit, state);
            ls_tile_gather<D, BANDS, COLUMNS>(state.out, scores, tiles.v[stage] + column * STRIDE);
        }
        __syncthreads();
        here = next;
        next = after;
    }
}

template <typename T, int D, int KIND>
__global__ static void __launch_bounds__(shape<T, D, KIND, false>::THREADS,
                                         shape<T, D, KIND, false>::BLOCKS)
    forward(const __grid_constant__ ls_cuda_attention job) {
    extern __shared__ __align__(16) unsigned char arena[];
    typedef shared_tiles<T, D, KIND, false> shared;
    enum { QUERIES = shared::QUERIES, BANDS = shared::sizes::BANDS };
    shared &tiles = *(shared *)(void *)arena;
    const int count = (job.T + QUERIES - 1) / QUERIES;
    /* the last queries have the most keys: they come first */
    const int row = (count - 1 - (int)blockIdx.x % count) * QUERIES;
    const int split = (int)blockIdx.x / count, h = (int)blockIdx.y, b = (int)blockIdx.z;
    const int rows = min((int)QUERIES, job.T - row);
    ls_tile_running<D, BANDS> state;
    ls_tile_begin(state, job.off_by_one && job.splits == 1);
    int total = 0, before = 0;
    for (int at = 0; at < job.sets && job.splits > 1; at++) {
        const ls_tile_range range = ls_key_tiles<KEYS>(job, job.set[at], row, rows);
        total += range.end - range.first;
    }
    for (int at = 0; at < job.sets; at++) {
        const ls_cuda_key_set &s = job.set[at];
        const ls_tile_range range = ls_key_tiles<KEYS>(job, s, row, rows);
        ls_cuda_span part = {range.first, range.end};
        if (job.splits > 1) part = part_of_tiles(job, range, before, total, split);
        before += range.end - range.first;
        if (part.first < part.end)
            pass<T, D, KIND, false>(job, s, ls_tile_walk_of(range), part, b, h, row, tiles, state);
    }
    ls_part_rows part = {};
    if (job.splits > 1) {
        const int64_t at = (((int64_t)split * job.B + b) * job.H + h) * job.T;
        part.out = job.part_out + at * job.V;
        part.lse = job.part_lse + at;
    }
    ls_tile_store<T, D, BANDS>(job, state, b, h, row + (int)threadIdx.x / 32 * BANDS * 16, part);
}

/* A piece of a list's row. */
template <typename T, int D, int KIND>
__global__ static void __launch_bounds__(shape<T, D, KIND, true>::THREADS,
                                         shape<T, D, KIND, true>::BLOCKS)
    forward_listed(const __grid_constant__ ls_cuda_attention job) {
    extern __shared__ __align__(16) unsigned char arena[];
    typedef shared_tiles<T, D, KIND, true> shared;
    enum { BANDS = shared::sizes::BANDS };
    shared &tiles = *(shared *)(void *)arena;
    const ls_cuda_key_set &s = job.set[0];
    const ls_tile_piece piece = ls_tile_piece_of(s.seen_by_queries, s.query_plan, job.start);
    const int b = (int)blockIdx.z;
    if (piece.row >= job.T || piece.row + LS_ATTENTION_TILE <= 0) return;
    const ls_tile_walk walk = ls_tile_walk_listed<KEYS>(s.seen_by_queries, piece, s.key_position,
                                                        s.keys, s.valid != NULL);
    const ls_cuda_span all = {0, (piece.end - piece.first) * walk.across};
    ls_tile_running<D, BANDS> state;
    ls_tile_begin(state, job.off_by_one && piece.slot < 0);
    if (all.end > 0) pass<T, D, KIND, true>(job, s, walk, all, b, piece.h, piece.row, tiles, state);
    ls_part_rows part = {NULL, NULL, piece.row};
    if (piece.slot >= 0) {
        const int64_t slots = ls_cuda_list_slots(job, s.seen_by_queries, s.query_plan);
        part.out = job.parts + piece.slot * LS_ATTENTION_TILE * job.V;
        part.lse = job.parts + slots * LS_ATTENTION_TILE * job.V + piece.slot * LS_ATTENTION_TILE;
    }
    ls_tile_store<T, D, BANDS>(job, state, b, piece.h,
                               piece.row + (int)threadIdx.x / 32 * BANDS * 16, part);
}

template <typename KERNEL>
static void start(const ls_run *run, const ls_cuda_attention *job, KERNEL *kernel, dim3 grid,
                  int threads, size_t bytes) {
    ls_cuda_note(
        ls_cuda_of(run),
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
        "attention, asking for shared memory");
    kernel<<<grid, (unsigned)threads, bytes, ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "attention");
}

template <typename T, int D, int KIND>
static void launch_listed(const ls_run *run, const ls_cuda_attention *job) {
    const ls_cuda_plan *plan = &job->set[0].query_plan;
    const ls_block_rows *list = &job->set[0].seen_by_queries;
    const dim3 grid((unsigned)(plan->count * (list->size / LS_ATTENTION_TILE)),
                    (unsigned)(job->H / list->heads), (unsigned)job->B);
    start(run, job, forward_listed<T, D, KIND>, grid, shape<T, D, KIND, true>::THREADS,
          sizeof(shared_tiles<T, D, KIND, true>));
    ls_cuda_attention_join(run, job);
}

template <typename T, int D, int KIND>
static void launch(const ls_run *run, const ls_cuda_attention *job) {
    typedef shared_tiles<T, D, KIND, false> shared;
    const int count = (job->T + shared::QUERIES - 1) / shared::QUERIES;
    const dim3 grid((unsigned)(count * job->splits), (unsigned)job->H, (unsigned)job->B);
    start(run, job, forward<T, D, KIND>, grid, shared::sizes::THREADS, sizeof(shared));
}

template <typename T, int D>
static void launch_width(const ls_run *run, const ls_cuda_attention *job) {
    int kind = LS_TILE_PLAIN;
    for (int s = 0; s < job->sets; s++) kind = max(kind, ls_tile_kind_of(job, &job->set[s]));
    /* without biases the largest product has the largest score */
    if (kind == LS_TILE_PLAIN && !(job->scale > 0)) kind = LS_TILE_BIASED;
    if (job->set[0].query_plan.pieces != NULL) {
        if (kind == LS_TILE_PLAIN)
            launch_listed<T, D, LS_TILE_PLAIN>(run, job);
        else
            launch_listed<T, D, LS_TILE_BIASED>(run, job);
    } else if (kind == LS_TILE_PLAIN) {
        launch<T, D, LS_TILE_PLAIN>(run, job);
    } else if (kind == LS_TILE_TABLE) {
        launch<T, D, LS_TILE_TABLE>(run, job);
    } else {
        launch<T, D, LS_TILE_BIASED>(run, job);
    }
}

template <typename T> static void one_pass(const ls_run *run, const ls_cuda_attention *job) {
    const bool plain = ls_tile_all_plain(job) && job->scale > 0;
    if (plain && job->K <= 32)
        launch<T, 32, LS_TILE_PLAIN>(run, job);
    else if (job->K <= 64)
        launch_width<T, 64>(run, job);
    else if (plain && job->K <= 96)
        launch<T, 96, LS_TILE_PLAIN>(run, job);
    else
        launch_width<T, 128>(run, job);
}

template <typename T> static void all_passes(const ls_run *run, const ls_cuda_attention *job) {
    for (int pass = 0; pass < job->passes; pass++) {
        const ls_cuda_attention one = ls_cuda_attention_pass(job, pass);
        one_pass<T>(run, &one);
    }
}

#endif
