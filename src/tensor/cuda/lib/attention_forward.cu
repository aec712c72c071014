/* Attention in tiles: a block takes 128 queries of a head and passes over the keys that they admit,
 * with a running softmax. */
#include "tensor/cuda/lib/attention_tiles.h"

enum { BANDS = 2, QUERIES = LS_TILE_WARPS * BANDS * 16, KEYS = 64 };

/* Scores computed at once, as many as there are registers for. */
template <int D, bool BIASED> struct shape {
    static const int COLUMNS = D <= 64 && !BIASED ? 64 : 32;
};

template <int D> struct shared_tiles {
    ls_cuda_bf16 q[QUERIES * ls_tile_shape<D>::STRIDE];
    ls_cuda_bf16 k[2][KEYS * ls_tile_shape<D>::STRIDE];
    ls_cuda_bf16 v[2][KEYS * ls_tile_shape<D>::STRIDE];
    ls_tile_mark queries[QUERIES], keys[KEYS];
};

/* What a lane holds: for each band two rows, g and g + 8. */
template <int D> struct running {
    float out[BANDS][D / 8][4];
    float most[BANDS][2], sum[BANDS][2]; /* the sums are of this lane's columns only */
};

/* Adds biases to scores, which are then in units of log 2, and sets those of pairs that are not
 * admitted to -infinity. */
template <int COLUMNS, bool BIASED>
static __device__ void adjust(float s[BANDS][COLUMNS / 8][4], float factor,
                              const ls_tile_bias &bias, bool full, int row,
                              const ls_tile_mark *queries, const ls_tile_mark *keys) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            ls_tile_mark key = {0, 0, 0, 0, 0};
            if (BIASED || !full) key = keys[n * 8 + 2 * t + c];
#pragma unroll
            for (int m = 0; m < BANDS; m++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float *at = &s[m][n][2 * half + c];
                    const int r = m * 16 + g + 8 * half;
                    if (BIASED)
                        *at = *at * factor + ls_tile_bias_at(bias, queries[r].offset + key.offset,
                                                             queries[r].whole + key.whole);
                    if (!full && !(row + r >= key.first && row + r < key.end)) *at = -INFINITY;
                }
        }
}

/* Scores, which `unit` takes to units of log 2, become weights; the output so far is rescaled to
 * their base. */
template <int D, int COLUMNS>
static __device__ void soften(float s[BANDS][COLUMNS / 8][4], float unit, running<D> &state) {
    float rescale[BANDS][2];
    bool same = true;
#pragma unroll
    for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float most = -INFINITY;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
                most = fmaxf(most, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            most = fmaxf(most * unit, state.most[m][half]);
            const float base = most == -INFINITY ? 0 : most;
            rescale[m][half] = ls_exp2(state.most[m][half] - base);
            same = same && state.most[m][half] == most;
            float sum = state.sum[m][half] * rescale[m][half];
            state.most[m][half] = most;
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float *at = &s[m][n][2 * half + c];
                    *at = ls_exp2(*at * unit - base);
                    sum += *at;
                }
            state.sum[m][half] = sum;
        }
    if (__all_sync(0xffffffffu, same)) return;
#pragma unroll
    for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) state.out[m][n][i] *= rescale[m][i / 2];
}

template <int D>
static __device__ void store(const ls_cuda_attention &job, running<D> &state, int b, int h, int row,
                             int split) {
    const int lane = (int)threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t rows = (int64_t)job.B * job.H * job.T, head = ((int64_t)b * job.H + h) * job.T;
#pragma unroll
    for (int m = 0; m < BANDS; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int i = row + m * 16 + g + 8 * half;
            float sum = state.sum[m][half], most = state.most[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (i >= job.T) continue;
            const float unit = sum == 0 ? 0 : 1 / sum;
            const float lse = sum == 0 ? -INFINITY : most + log2f(sum);
            if (job.splits > 1) {
                const int64_t part = split * rows + head + i;
                float *to = job.part_out + part * D + 2 * t;
#pragma unroll
                for (int n = 0; n < D / 8; n++) {
                    to[n * 8] = state.out[m][n][2 * half] * unit;
                    to[n * 8 + 1] = state.out[m][n][2 * half + 1] * unit;
                }
                if (t == 0) job.part_lse[part] = lse;
                continue;
            }
            ls_cuda_bf16 *to = ls_cuda_row<ls_cuda_bf16>(job.out, b, i, h) + 2 * t;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                *(uint32_t *)(void *)(to + n * 8) =
                    ls_pair(state.out[m][n][2 * half] * unit, state.out[m][n][2 * half + 1] * unit);
            if (t == 0) job.lse[head + i] = lse * LS_CUDA_LN_2;
        }
}

/* The block's part of the tiles of a segment, of `before` tiles of earlier segments. */
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

template <int D>
static __device__ void ask_keys(shared_tiles<D> &tiles, int stage, const ls_cuda_segment &s, int b,
                                int g, int tile) {
    ls_tile_ask<D, KEYS>(tiles.k[stage], s.k, b, g, tile * KEYS, s.keys);
    ls_tile_ask<D, KEYS>(tiles.v[stage], s.v, b, g, tile * KEYS, s.keys);
    ls_copies_end();
}

/* All tiles of one segment that belong to the block. */
template <int D, bool BIASED>
static __device__ void pass(const ls_cuda_attention &job, const ls_cuda_segment &s,
                            const ls_tile_range &range, ls_cuda_span part, int b, int h, int row,
                            shared_tiles<D> &tiles, running<D> &state) {
    enum { COLUMNS = shape<D, BIASED>::COLUMNS, STRIDE = ls_tile_shape<D>::STRIDE };
    const int thread = (int)threadIdx.x, g = h / (job.H / job.G), band = thread / 32 * BANDS * 16;
    const bool decays = BIASED && s.log_decay != NULL;
    const bool idle = row + band >= job.T; /* none of the warp's queries exists */
    const double origin = BIASED ? ls_cuda_map_at(s.query_at, job.start + row) : 0;
    const float factor = job.scale * LS_CUDA_LOG2_E;
    ls_tile_bias bias = {};
    if (BIASED) bias = ls_tile_bias_of(s, h);
    ls_tile_ask<D, QUERIES>(tiles.q, s.q, b, h, row, job.T);
    ask_keys(tiles, part.first % 2, s, b, g, part.first);
    if (BIASED)
        for (int r = thread; r < QUERIES; r += LS_TILE_THREADS)
            tiles.queries[r] = ls_tile_query_mark(job, s, origin, row + r);
    for (int tile = part.first; tile < part.end; tile++) {
        const int stage = tile % 2;
        const bool full = ls_tile_is_full(range, tile);
        if (tile + 1 < part.end) {
            ask_keys(tiles, 1 - stage, s, b, g, tile + 1);
            ls_copies_wait<1>();
        } else {
            ls_copies_wait<0>();
        }
        if ((BIASED || !full) && thread < KEYS)
            tiles.keys[thread] = ls_tile_key_mark(job, s, origin, b, tile * KEYS + thread, BIASED);
        __syncthreads();
        if (decays) {
            if (tile == part.first) ls_tile_decay<D, QUERIES>(tiles.q, tiles.queries, s);
            ls_tile_decay<D, KEYS>(tiles.k[stage], tiles.keys, s);
            __syncthreads();
        }
#pragma unroll 1
        for (int column = 0; column < KEYS && !idle; column += COLUMNS) {
            const ls_tile_mark *queries = tiles.queries + band, *keys = tiles.keys + column;
            float scores[BANDS][COLUMNS / 8][4];
            ls_tile_scores<D, BANDS, COLUMNS>(scores, tiles.q + band * STRIDE,
                                              tiles.k[stage] + column * STRIDE);
            if (full)
                adjust<COLUMNS, BIASED>(scores, factor, bias, true, row + band, queries, keys);
            else
                adjust<COLUMNS, BIASED>(scores, factor, bias, false, row + band, queries, keys);
            soften<D, COLUMNS>(scores, BIASED ? 1 : factor, state);
            ls_tile_gather<D, BANDS, COLUMNS>(state.out, scores, tiles.v[stage] + column * STRIDE);
        }
        __syncthreads();
    }
}

template <int D, bool BIASED>
__global__ static void __launch_bounds__(LS_TILE_THREADS, 2)
    forward(const __grid_constant__ ls_cuda_attention job) {
    extern __shared__ __align__(16) unsigned char arena[];
    shared_tiles<D> &tiles = *(shared_tiles<D> *)(void *)arena;
    const int count = (job.T + QUERIES - 1) / QUERIES;
    /* the last queries have the most keys: they come first */
    const int row = (count - 1 - (int)blockIdx.x % count) * QUERIES;
    const int split = (int)blockIdx.x / count, h = (int)blockIdx.y, b = (int)blockIdx.z;
    const int rows = min(QUERIES, job.T - row);
    running<D> state;
#pragma unroll
    for (int m = 0; m < BANDS; m++) {
#pragma unroll
        for (int n = 0; n < D / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) state.out[m][n][i] = 0;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const bool extra = job.off_by_one && job.splits == 1;
            state.most[m][half] = extra ? 0 : -INFINITY;
            /* the extra 1 is counted by one of the four lanes of a row */
            state.sum[m][half] = extra && threadIdx.x % 4 == 0 ? 1 : 0;
        }
    }
    int total = 0, before = 0;
    for (int at = 0; at < job.segments && job.splits > 1; at++) {
        const ls_tile_range range = ls_key_tiles<KEYS>(job, job.segment[at], row, rows);
        total += range.end - range.first;
    }
    for (int at = 0; at < job.segments; at++) {
        const ls_cuda_segment &s = job.segment[at];
        const ls_tile_range range = ls_key_tiles<KEYS>(job, s, row, rows);
        ls_cuda_span part = {range.first, range.end};
        if (job.splits > 1) part = part_of_tiles(job, range, before, total, split);
        before += range.end - range.first;
        if (part.first < part.end) pass<D, BIASED>(job, s, range, part, b, h, row, tiles, state);
    }
    store<D>(job, state, b, h, row + (int)threadIdx.x / 32 * BANDS * 16, split);
}

template <int D, bool BIASED> static void launch(const ls_run *run, const ls_cuda_attention *job) {
    const size_t bytes = sizeof(shared_tiles<D>);
    const int count = (job->T + QUERIES - 1) / QUERIES;
    const dim3 grid((unsigned)(count * job->splits), (unsigned)job->H, (unsigned)job->B);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(forward<D, BIASED>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "attention, asking for shared memory");
    forward<D, BIASED><<<grid, LS_TILE_THREADS, bytes, ls_cuda_of(run)->stream>>>(*job);
    ls_cuda_launched(run, "attention");
}

template <int D> static void launch_width(const ls_run *run, const ls_cuda_attention *job) {
    bool biased = !(job->scale > 0); /* without biases the largest product has the largest score */
    for (int s = 0; s < job->segments; s++) biased |= ls_tile_biased(&job->segment[s]);
    if (biased)
        launch<D, true>(run, job);
    else
        launch<D, false>(run, job);
}

bool ls_cuda_attention_tiles_fit(const ls_cuda_attention *job, ls_dtype type) {
    const bool width = job->K == 32 || job->K == 64 || job->K == 96 || job->K == 128;
    bool fit = type == LS_BF16 && width && job->K == job->V && job->vectors;
    for (int s = 0; s < job->segments; s++)
        fit = fit && job->segment[s].relative.data == NULL && job->segment[s].dilation == NULL;
    return fit;
}

void ls_cuda_attention_tiles(const ls_run *run, const ls_cuda_attention *job) {
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
