/* Gradients of attention in tiles. With p = 2^(s - lse), dp = dout v^T and ds = p (dp - dot),
 *   dv = p^T dout,  dk = scale ds^T q,  dq = scale ds k.
 *
 * A block keeps a tile of keys and passes over the queries that admit them (dk and dv), or keeps a
 * tile of queries and passes over their keys (dq): scores are computed twice, but nothing is ever
 * added to by two blocks. Both are one kernel: the tile that stays is the outer one, with keys and
 * values or with queries and output gradients; scores have the outer rows as rows. */
#include "tensor/cuda/lib/attention_tiles.h"

enum { INNER = 64 };

template <int D, bool KEYS_OUTER> struct shape {
    static const int BANDS = KEYS_OUTER && D > 64 ? 1 : 2;
    static const int OUTER = LS_TILE_WARPS * BANDS * 16;
    static const int COLUMNS = 32; /* scores computed at once */
    static const int STRIDE = ls_tile_shape<D>::STRIDE;
};

/* What a block does: sequence, key head, first outer row, and the inner tiles of all its heads. */
typedef struct grad_work {
    int b, g, row, heads_first, steps;
    ls_tile_range range;
    double origin; /* coordinate of the first outer row */
} grad_work;

template <int D, bool KEYS_OUTER> struct grad_tiles {
    ls_cuda_bf16 outer[2]
                      [shape<D, KEYS_OUTER>::OUTER * ls_tile_shape<D>::STRIDE]; /* k, v or q, do */
    ls_cuda_bf16 inner[2][2][INNER * ls_tile_shape<D>::STRIDE]; /* [stage], q, do or k, v */
    ls_tile_mark rows[shape<D, KEYS_OUTER>::OUTER], columns[INNER];
    grad_work work; /* here, since registers are short */
    /* of queries: of the inner ones for each stage, or of the outer ones */
    float lse[KEYS_OUTER ? 2 * INNER : shape<D, KEYS_OUTER>::OUTER];
    float dot[KEYS_OUTER ? 2 * INNER : shape<D, KEYS_OUTER>::OUTER];
};

static __device__ int head_of(const grad_work &work, int step) {
    return work.heads_first + step / (work.range.end - work.range.first);
}
static __device__ int tile_of(const grad_work &work, int step) {
    return work.range.first + step % (work.range.end - work.range.first);
}

template <int D, bool KEYS_OUTER>
static __device__ void ask(const ls_cuda_attention &job, const ls_cuda_segment &s,
                           const grad_work &work, int step, grad_tiles<D, KEYS_OUTER> &tiles) {
    const int stage = step % 2, row = tile_of(work, step) * INNER, h = head_of(work, step);
    if (KEYS_OUTER) {
        ls_tile_ask<D, INNER>(tiles.inner[stage][0], s.q, work.b, h, row, job.T);
        ls_tile_ask<D, INNER>(tiles.inner[stage][1], job.dout, work.b, h, row, job.T);
        const int64_t head = ((int64_t)work.b * job.H + h) * job.T;
        const int r = (int)threadIdx.x % INNER, i = row + r < job.T ? row + r : 0;
        const bool first = (int)threadIdx.x < INNER;
        static_assert(2 * INNER == LS_TILE_THREADS, "a thread for each number");
        ls_copy_4((first ? tiles.lse : tiles.dot) + stage * INNER + r,
                  (first ? job.row_lse : job.row_dot) + head + i, row + r < job.T);
    } else {
        ls_tile_ask<D, INNER>(tiles.inner[stage][0], s.k, work.b, work.g, row, s.keys);
        ls_tile_ask<D, INNER>(tiles.inner[stage][1], s.v, work.b, work.g, row, s.keys);
    }
    ls_copies_end();
}

/* The outer tile and what belongs to its rows. */
template <int D, bool BIASED, bool KEYS_OUTER>
static __device__ void ask_outer(const ls_cuda_attention &job, const ls_cuda_segment &s,
                                 const grad_work &work, grad_tiles<D, KEYS_OUTER> &tiles) {
    enum { OUTER = shape<D, KEYS_OUTER>::OUTER };
    if (KEYS_OUTER) {
        ls_tile_ask<D, OUTER>(tiles.outer[0], s.k, work.b, work.g, work.row, s.keys);
        ls_tile_ask<D, OUTER>(tiles.outer[1], s.v, work.b, work.g, work.row, s.keys);
    } else {
        ls_tile_ask<D, OUTER>(tiles.outer[0], s.q, work.b, work.heads_first, work.row, job.T);
        ls_tile_ask<D, OUTER>(tiles.outer[1], job.dout, work.b, work.heads_first, work.row, job.T);
    }
    for (int r = (int)threadIdx.x; r < OUTER; r += LS_TILE_THREADS) {
        const int row = work.row + r;
        if (KEYS_OUTER) {
            tiles.rows[r] = ls_tile_key_mark(job, s, work.origin, work.b, row, BIASED);
            continue;
        }
        const int64_t at = ((int64_t)work.b * job.H + work.heads_first) * job.T + row;
        if (BIASED) tiles.rows[r] = ls_tile_query_mark(job, s, work.origin, row);
        tiles.lse[r] = row < job.T ? job.row_lse[at] : INFINITY;
        tiles.dot[r] = row < job.T ? job.row_dot[at] : 0;
    }
}

/* Rows of a gradient from the lanes' sums; absent rows of a key tensor get 0. */
template <int D, int M>
static __device__ void store(const ls_cuda_rows &to, const float c[M][D / 8][4], float factor,
                             const ls_cuda_segment *decay, const ls_tile_mark *marks, int b,
                             int head, int row, int present, int rows) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    if (to.data == NULL) return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int r = m * 16 + g + 8 * half;
            if (row + r >= rows) continue;
            ls_cuda_bf16 *there = ls_cuda_row<ls_cuda_bf16>(to, b, row + r, head) + 2 * t;
            const bool real = row + r < present;
#pragma unroll
            for (int n = 0; n < D / 8; n++) {
                float x = real ? c[m][n][2 * half] * factor : 0;
                float y = real ? c[m][n][2 * half + 1] * factor : 0;
                if (decay != NULL) {
                    x *= ls_cuda_decay(*decay, n * 8 + 2 * t, marks[r].decay);
                    y *= ls_cuda_decay(*decay, n * 8 + 2 * t + 1, marks[r].decay);
                }
                *(uint32_t *)(void *)(there + n * 8) = ls_pair(x, y);
            }
        }
}

template <int D, bool KEYS_OUTER>
static __device__ grad_work work_of(const ls_cuda_attention &job, const ls_cuda_segment &s) {
    enum { OUTER = shape<D, KEYS_OUTER>::OUTER };
    const int y = (int)blockIdx.y, heads = job.H / job.G;
    grad_work work = {};
    work.b = (int)blockIdx.z;
    if (KEYS_OUTER) {
        work.row = (int)blockIdx.x * OUTER;
        work.g = y;
        work.heads_first = y * heads;
        if (work.row < s.keys)
            work.range =
                ls_query_tiles<INNER>(job, s, work.row, min((int)OUTER, s.keys - work.row));
        work.steps = heads * (work.range.end - work.range.first);
        work.origin = ls_cuda_map_at(s.key_at, s.key_position + work.row);
    } else {
        /* the last queries have the most keys: they come first */
        work.row = (int)(gridDim.x - 1 - blockIdx.x) * OUTER;
        work.g = y / heads;
        work.heads_first = y;
        work.range = ls_key_tiles<INNER>(job, s, work.row, min((int)OUTER, job.T - work.row));
        work.steps = work.range.end - work.range.first;
        work.origin = ls_cuda_map_at(s.query_at, job.start + work.row);
    }
    return work;
}

template <int D, bool BIASED, bool KEYS_OUTER>
__global__ static void __launch_bounds__(LS_TILE_THREADS, 2)
    backward(const __grid_constant__ ls_cuda_attention job, int at) {
    typedef shape<D, KEYS_OUTER> sizes;
    enum { M = sizes::BANDS, COLUMNS = sizes::COLUMNS, STRIDE = sizes::STRIDE };
    extern __shared__ __align__(16) unsigned char arena[];
    grad_tiles<D, KEYS_OUTER> &tiles = *(grad_tiles<D, KEYS_OUTER> *)(void *)arena;
    const ls_cuda_segment &s = job.segment[at];
    const grad_work &work = tiles.work;
    const int thread = (int)threadIdx.x, band = thread / 32 * M * 16;
    const bool decays = BIASED && s.log_decay != NULL;
    const float factor = job.scale * LS_CUDA_LOG2_E;
    if (thread == 0) tiles.work = work_of<D, KEYS_OUTER>(job, s);
    __syncthreads();
    /* of dk or dq, and of dv */
    float sums[M][D / 8][4] = {}, value_sums[M][D / 8][4] = {};
    if (work.steps > 0) {
        ask_outer<D, BIASED, KEYS_OUTER>(job, s, work, tiles);
        ask<D, KEYS_OUTER>(job, s, work, 0, tiles);
    }
    for (int step = 0; step < work.steps; step++) {
        const int stage = step % 2, tile = tile_of(work, step);
        const bool full = ls_tile_is_full(work.range, tile);
        if (step + 1 < work.steps) {
            ask<D, KEYS_OUTER>(job, s, work, step + 1, tiles);
            ls_copies_wait<1>();
        } else {
            ls_copies_wait<0>();
        }
        if (thread < INNER && KEYS_OUTER && BIASED)
            tiles.columns[thread] = ls_tile_query_mark(job, s, work.origin, tile * INNER + thread);
        if (thread < INNER && !KEYS_OUTER && (BIASED || !full))
            tiles.columns[thread] =
                ls_tile_key_mark(job, s, work.origin, work.b, tile * INNER + thread, BIASED);
        __syncthreads();
        if (decays) {
            if (step == 0) ls_tile_decay<D, sizes::OUTER>(tiles.outer[0], tiles.rows, s);
            ls_tile_decay<D, INNER>(tiles.inner[stage][0], tiles.columns, s);
            __syncthreads();
        }
        ls_tile_bias bias = {};
        if (BIASED) bias = ls_tile_bias_of(s, head_of(work, step));
#pragma unroll 1
        for (int column = 0; column < INNER; column += COLUMNS) {
            const ls_cuda_bf16 *inner0 = tiles.inner[stage][0] + column * STRIDE;
            const ls_cuda_bf16 *inner1 = tiles.inner[stage][1] + column * STRIDE;
            const int query = KEYS_OUTER ? stage * INNER + column : band;
            float p[M][COLUMNS / 8][4], ds[M][COLUMNS / 8][4];
            ls_tile_scores<D, M, COLUMNS>(p, tiles.outer[0] + band * STRIDE, inner0);
            ls_tile_scores<D, M, COLUMNS>(ds, tiles.outer[1] + band * STRIDE, inner1);
            if (full && !BIASED)
                ls_tile_differentiate<M, COLUMNS, BIASED, KEYS_OUTER>(
                    p, ds, factor, bias, true, 0, 0, NULL, NULL, tiles.lse + query,
                    tiles.dot + query);
            else
                ls_tile_differentiate<M, COLUMNS, BIASED, KEYS_OUTER>(
                    p, ds, factor, bias, full, work.row + band, tile * INNER + column,
                    tiles.rows + band, tiles.columns + column, tiles.lse + query,
                    tiles.dot + query);
            if (KEYS_OUTER) ls_tile_gather<D, M, COLUMNS>(value_sums, p, inner1);
            ls_tile_gather<D, M, COLUMNS>(sums, ds, inner0);
        }
        __syncthreads();
    }
    const ls_cuda_segment *decay = decays && work.steps > 0 ? &s : NULL;
    if (KEYS_OUTER) {
        store<D, M>(s.dk, sums, job.scale, decay, tiles.rows + band, work.b, work.g,
                    work.row + band, s.keys, s.key_rows);
        store<D, M>(s.dv, value_sums, 1, NULL, NULL, work.b, work.g, work.row + band, s.keys,
                    s.key_rows);
    } else {
        store<D, M>(s.dq, sums, job.scale, decay, tiles.rows + band, work.b, work.heads_first,
                    work.row + band, job.T, job.T);
    }
}

template <int D, bool BIASED, bool KEYS_OUTER>
static void launch(const ls_run *run, const ls_cuda_attention *job, int at) {
    const size_t bytes = sizeof(grad_tiles<D, KEYS_OUTER>);
    const int outer = shape<D, KEYS_OUTER>::OUTER;
    const int rows = KEYS_OUTER ? job->segment[at].key_rows : job->T;
    const dim3 grid((unsigned)((rows + outer - 1) / outer),
                    (unsigned)(KEYS_OUTER ? job->G : job->H), (unsigned)job->B);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(backward<D, BIASED, KEYS_OUTER>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "attention, asking for shared memory");
    backward<D, BIASED, KEYS_OUTER>
        <<<grid, LS_TILE_THREADS, bytes, ls_cuda_of(run)->stream>>>(*job, at);
    ls_cuda_launched(run, "attention, gradients");
}

template <int D> static void launch_width(const ls_run *run, const ls_cuda_attention *job) {
    for (int at = 0; at < job->segments; at++) {
        const ls_cuda_segment *s = &job->segment[at];
        const bool biased = ls_tile_biased(s);
        if (s->dk.data != NULL || s->dv.data != NULL) {
            if (biased)
                launch<D, true, true>(run, job, at);
            else
                launch<D, false, true>(run, job, at);
        }
        if (s->dq.data != NULL) {
            if (biased)
                launch<D, true, false>(run, job, at);
            else
                launch<D, false, false>(run, job, at);
        }
    }
}

void ls_cuda_attention_tiles_grad(const ls_run *run, const ls_cuda_attention *job) {
    switch (job->K) {
    case 32:
        launch_width<32>(run, job);
        break;
    case 64:
        launch_width<64>(run, job);
        break;
    case 96:
        launch_width<96>(run, job);
        break;
    default:
        launch_width<128>(run, job);
    }
}
