/* Backward attention on compute capability 9.0; see hopper_attention.h.
 *
 * A block takes 128 keys, 64 for each of its two computing warp groups, and walks the query tiles
 * that see them. Scores are computed the other way round, keys by queries, so that weights P and
 * their gradients dS are left operands of dV += P dO and dK += dS Q straight from registers. Only
 * dS goes to shared memory, where both groups' keys meet in dQ = dS' K.
 *
 * A query tile's dQ is the sum of what the blocks of its keys contribute, in single precision in
 * the workspace, and the copy engine adds it there. The blocks add in a fixed order, the last keys
 * first: a flag per tile counts those that are done and each waits for its turn. Since a block
 * begins at its diagonal, its neighbour with later keys has added to a tile one step before it
 * comes by, and no one waits for long. Blocks draw numbers, so that those a block waits for have
 * all started. Query tiles out of reach of a block's keys, under slopes, are left out of its walk
 * (hopper_attention_reach.cu): as they are the last of it, those keys would have added last.
 *
 * With xPos a block's keys have one reference, and queries are given their share of the decay where
 * they lie in shared memory. What the share of a tile's first row does to dQ is applied to its sums
 * before they are added, the rest in the end. */
#include "tensor/op/attention/hopper_attention_parts.cuh"

enum { STAGES = 2, GROUPS = 2, HALF_FLOATS = 64 * 64 };

/* Queries of a tile: what registers allow. */
template <int D> struct backward_tile { static constexpr int rows = D == 64 ? 128 : 64; };

typedef struct backward_job {
    CUtensorMap q, k, v, d_o;
    hopper_bounds bounds;
    int batches, heads, share, key_heads;
    int query_tiles, key_tiles;
    float scale;
    const float *slopes;
    const int *reach; /* hopper_reach */
    hopper_decay decay;
    ls_hopper_array dk, dv;
    ls_cuda_turns dk_turns;
    const float *terms, *dots; /* [B,H,query_tiles * rows] */
    float *dq;                 /* [B,H,query_tiles][GROUPS][HALF_FLOATS] */
    int *flags;                /* [B,H,query_tiles][GROUPS] */
    int *drawn;
} backward_job;

template <int D> struct backward_shared {
    static constexpr int rows = backward_tile<D>::rows;
    static constexpr int key_bytes = HOPPER_KEYS * D * 2, query_bytes = rows * D * 2;
    static constexpr int key_panel = HOPPER_KEYS * HOPPER_ROW_BYTES;
    static constexpr int query_panel = rows * HOPPER_ROW_BYTES;
    static constexpr int ds_bytes = HOPPER_KEYS * rows * 2;
    static constexpr int row_bytes = rows * (int)sizeof(float);
    static constexpr int k = 0, v = k + key_bytes;
    static constexpr int q = v + key_bytes, d_o = q + STAGES * query_bytes;
    static constexpr int ds = d_o + STAGES * query_bytes, dq = ds + 2 * ds_bytes;
    static constexpr int terms = dq + GROUPS * HALF_FLOATS * (int)sizeof(float);
    static constexpr int dots = terms + STAGES * row_bytes;
    static constexpr int barriers = dots + STAGES * row_bytes;
    static constexpr int number = barriers + (1 + 4 * STAGES + 2 * GROUPS) * 8;
    static constexpr int rates = number + 8; /* of the decay */
    static constexpr int bytes = rates + D * (int)sizeof(float) + 1024;
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

typedef struct backward_barriers {
    uint64_t *kv_full, *q_full, *q_empty, *do_full, *do_empty, *dq_full, *dq_empty;
} backward_barriers;

__device__ inline backward_barriers backward_barriers_at(void *at) {
    uint64_t *all = (uint64_t *)at, *pairs = all + 1;
    return (backward_barriers){all, pairs, pairs + 2, pairs + 4, pairs + 6, pairs + 8, pairs + 10};
}

typedef struct backward_place {
    int batch, key_head, key_tile;
} backward_place;

/* Slopes fall from head to head as a rule: heads with the longest reach begin, so that the end is
 * made up of short walks. */
__device__ inline backward_place backward_place_of(const backward_job *job, int number) {
    int head = number / job->key_tiles;
    if (job->slopes != NULL) head = job->batches * job->key_heads - 1 - head;
    return (backward_place){head / job->key_heads, head % job->key_heads,
                            job->key_tiles - 1 - number % job->key_tiles};
}

/* The query tiles of a block, head by head. */
typedef struct backward_walk {
    int step, tile, last; /* last: of this head's tiles */
    int head, heads_end;  /* among the heads of all sequences */
} backward_walk;

/* To the first tile of the next head that has any, from walk->head on. */
template <int D>
__device__ inline void backward_enter(const backward_job *job, backward_place place,
                                      backward_walk *walk) {
    int key = place.key_tile * HOPPER_KEYS;
    asm volatile("" : "+r"(key)); /* what follows is not kept in registers over the walk */
    const int last_key = hopper_least(key + HOPPER_KEYS, job->bounds.keys) - 1;
    for (; walk->head < walk->heads_end; walk->head++) {
        const hopper_bounds near = hopper_reached(&job->bounds, job->reach, walk->head);
        const hopper_span span =
            hopper_tiles(hopper_first_query(&near, key), hopper_last_query(&near, last_key),
                         backward_tile<D>::rows);
        walk->tile = span.first;
        walk->last = span.first + span.count - 1;
        if (span.count > 0) return;
    }
}
template <int D>
__device__ inline backward_walk backward_begin(const backward_job *job, backward_place place) {
    const int head = place.batch * job->heads + place.key_head * job->share;
    backward_walk walk = {0, 0, 0, head, head + job->share};
    backward_enter<D>(job, place, &walk);
    return walk;
}
__device__ inline bool backward_goes_on(const backward_walk *walk) {
    return walk->head < walk->heads_end;
}
template <int D>
__device__ inline void backward_next(const backward_job *job, backward_place place,
                                     backward_walk *walk) {
    walk->step++;
    if (++walk->tile <= walk->last) return;
    walk->head++;
    backward_enter<D>(job, place, walk);
}
/* Row 0 of the tile among all rows of all heads, counted in tiles. */
__device__ inline int backward_tile_number(const backward_job *job, const backward_walk *walk) {
    return walk->head * job->query_tiles + walk->tile;
}

/* ---- loading ---- */

template <int D>
__device__ inline void backward_load(const backward_job *job, char *shared,
                                     backward_barriers barriers, backward_place place) {
    using layout = backward_shared<D>;
    const int key = place.key_tile * HOPPER_KEYS;
    hopper_expect(barriers.kv_full, 2 * layout::key_bytes);
    hopper_fetch_tile<D>(&job->k, barriers.kv_full, shared + layout::k, HOPPER_KEYS, place.key_head,
                         key, place.batch);
    hopper_fetch_tile<D>(&job->v, barriers.kv_full, shared + layout::v, HOPPER_KEYS, place.key_head,
                         key, place.batch);
    backward_walk walk = backward_begin<D>(job, place);
#pragma unroll 1
    for (; backward_goes_on(&walk); backward_next<D>(job, place, &walk)) {
        const int stage = walk.step % STAGES, row = walk.tile * layout::rows;
        const uint32_t free_phase = (uint32_t)(walk.step / STAGES & 1) ^ 1;
        const int head = walk.head - place.batch * job->heads;
        const int64_t at = (int64_t)backward_tile_number(job, &walk) * layout::rows;
        hopper_wait(&barriers.q_empty[stage], free_phase);
        hopper_expect(&barriers.q_full[stage], layout::query_bytes + layout::row_bytes);
        hopper_fetch_tile<D>(&job->q, &barriers.q_full[stage],
                             shared + layout::q + stage * layout::query_bytes, layout::rows, head,
                             row, place.batch);
        hopper_fetch_bytes(shared + layout::terms + stage * layout::row_bytes, job->terms + at,
                           layout::row_bytes, &barriers.q_full[stage]);
        hopper_wait(&barriers.do_empty[stage], free_phase);
        hopper_expect(&barriers.do_full[stage], layout::query_bytes + layout::row_bytes);
        hopper_fetch_tile<D>(&job->d_o, &barriers.do_full[stage],
                             shared + layout::d_o + stage * layout::query_bytes, layout::rows, head,
                             row, place.batch);
        hopper_fetch_bytes(shared + layout::dots + stage * layout::row_bytes, job->dots + at,
                           layout::row_bytes, &barriers.do_full[stage]);
    }
}

/* ---- adding to dQ ---- */

/* One thread for each half of a tile. */
template <int D>
__device__ inline void backward_add(const backward_job *job, const char *shared,
                                    backward_barriers barriers, backward_place place, int half) {
    using layout = backward_shared<D>;
    const float *from = (const float *)(shared + layout::dq) + half * HALF_FLOATS;
    backward_walk walk = backward_begin<D>(job, place);
#pragma unroll 1
    for (; backward_goes_on(&walk); backward_next<D>(job, place, &walk)) {
        const int last_row = hopper_least((walk.tile + 1) * layout::rows, job->bounds.rows) - 1;
        const int before = hopper_last_key(&job->bounds, last_row) / HOPPER_KEYS - place.key_tile;
        const int64_t at = backward_tile_number(job, &walk) * GROUPS + half;
        hopper_wait(&barriers.dq_full[half], walk.step & 1);
        while (hopper_flag(job->flags + at) != before) {
        }
        asm volatile("fence.proxy.async;" ::: "memory"); /* their additions, then this one */
        hopper_send(job->dq + at * HALF_FLOATS, from, HALF_FLOATS * sizeof(float), before > 0);
        hopper_sent_read();
        hopper_arrive(&barriers.dq_empty[half]);
        hopper_sent();
        hopper_raise(job->flags + at, before + 1);
    }
}

/* ---- computing ---- */

/* The two keys of a thread. */
typedef struct backward_keys {
    int key, first_query[2], last_query[2];
    int sure_first, sure_last; /* queries that see all 64 keys of the group */
} backward_keys;

__device__ inline backward_keys backward_keys_at(const hopper_bounds *bounds, int group_key) {
    const int t = (int)threadIdx.x % HOPPER_GROUP;
    backward_keys at;
    at.key = group_key + 16 * (t / 32) + t % 32 / 4;
    for (int i = 0; i < 2; i++) {
        int key = at.key + 8 * i;
        at.first_query[i] = hopper_first_query(bounds, key);
        at.last_query[i] = key < bounds->keys ? hopper_last_query(bounds, key) : -1;
    }
    at.sure_first = hopper_first_query(bounds, group_key + 63);
    at.sure_last = group_key + 63 < bounds->keys ? hopper_last_query(bounds, group_key) : -1;
    return at;
}

/* Scores to weights. terms[r] is the logarithm of the row's sum, with slopes also what the row's
 * place in the tile takes off; nearness is the rest of the slope's part, the key's. */
template <int MODE, int COUNT>
__device__ inline void weigh(float (&s)[COUNT], const float *terms, const backward_keys *at,
                             float factor, float slope, int row, int shift) {
    const int column = 2 * ((int)threadIdx.x % 4);
    float nearness[2] = {0, 0};
    if (MODE == HOPPER_SLOPED)
        for (int r = 0; r < 2; r++) nearness[r] = slope * (float)(at->key + 8 * r - row - shift);
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        const float2 term = *(const float2 *)(terms + 8 * i + column);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float less = MODE == HOPPER_SLOPED ? nearness[j / 2] - (j % 2 ? term.y : term.x)
                                               : -(j % 2 ? term.y : term.x);
            s[4 * i + j] = hopper_exp2(fmaf(s[4 * i + j], factor, less));
        }
    }
    if (row >= at->sure_first && row + COUNT * 2 - 1 <= at->sure_last) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        int query = row + i / 4 * 8 + column + i % 2, second = i / 2 % 2;
        if (query < at->first_query[second] || query > at->last_query[second]) s[i] = 0;
    }
}

/* dp = p (dp - dots): the gradient of the scores. */
template <int COUNT>
__device__ inline void score_gradient(float (&dp)[COUNT], const float (&p)[COUNT],
                                      const float *dots) {
    const int column = 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        const float2 dot = *(const float2 *)(dots + 8 * i + column);
#pragma unroll
        for (int j = 0; j < 4; j++)
            dp[4 * i + j] = p[4 * i + j] * (dp[4 * i + j] - (j % 2 ? dot.y : dot.x));
    }
}

/* The group's 64 keys of dS into the tile [keys][queries] that both groups fill. */
template <int STEPS>
__device__ inline void store_score_gradient(const uint32_t (&ds)[STEPS][4], char *tile, int group) {
    const uint32_t at = hopper_piece_at(tile + 64 * group * HOPPER_ROW_BYTES);
#pragma unroll
    for (int i = 0; i < STEPS; i++)
        hopper_store_pieces(hopper_piece_step(at, i, HOPPER_KEYS * HOPPER_ROW_BYTES), ds[i]);
}

/* A 64 x 64 half of dQ, under way: dS' K over the 128 keys. The halves are rows where a tile has
 * 128 of them, columns where it has 64. */
template <int D>
__device__ inline void start_query_gradient(float (&dq)[32], const char *ds, const char *k,
                                            int group) {
    using layout = backward_shared<D>;
    const uint64_t a = hopper_tile(D == 64 ? ds + group * layout::key_panel : ds, 0);
    const uint64_t b = hopper_tile(D == 64 ? k : k + group * layout::key_panel, 0);
    hopper_products_begin();
#pragma unroll
    for (int i = 0; i < HOPPER_KEYS / 16; i++)
        hopper_product<1, 1>(dq, hopper_tile_at(a, i * 16 * HOPPER_ROW_BYTES),
                             hopper_tile_at(b, i * 16 * HOPPER_ROW_BYTES), i > 0);
    hopper_products_end();
}

/* A half of dQ times the share of the decay at a distance; rates: of its columns. */
__device__ inline void decay_half(float (&dq)[32], const float *rates, int distance) {
    rates += 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float share = hopper_exp2(rates[i / 2 * 8 + i % 2] * (float)distance);
        dq[i / 2 * 4 + i % 2] *= share;
        dq[i / 2 * 4 + i % 2 + 2] *= share;
    }
}

__device__ inline void hand_over(const float (&dq)[32], float *to, uint64_t *full) {
    const int t = (int)threadIdx.x % HOPPER_GROUP;
#pragma unroll
    for (int i = 0; i < 8; i++)
        ((float4 *)to)[i * HOPPER_GROUP + t] =
            make_float4(dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
    hopper_publish();
    hopper_arrive(full);
}

template <int D, int MODE>
__device__ inline void backward_compute(const backward_job *job, char *shared,
                                        backward_barriers barriers, backward_place place,
                                        int group) {
    using layout = backward_shared<D>;
    enum { TOGETHER = 1, MEETING = 2 };
    const int group_key = place.key_tile * HOPPER_KEYS + 64 * group;
    const int shift = job->bounds.start - job->bounds.first;
    const float factor = job->scale * HOPPER_LOG2_E;
    char *k_rows = shared + layout::k + 64 * group * HOPPER_ROW_BYTES;
    char *v_rows = shared + layout::v + 64 * group * HOPPER_ROW_BYTES;
    const uint64_t k = hopper_tile(k_rows, 0), v = hopper_tile(v_rows, 0);
    const uint64_t q = hopper_tile(shared + layout::q, layout::query_panel);
    const uint64_t d_o = hopper_tile(shared + layout::d_o, layout::query_panel);
    const backward_keys at = backward_keys_at(&job->bounds, group_key);
    float dk[D / 2], dv[D / 2], s[layout::rows / 2];
#pragma unroll
    for (int i = 0; i < D / 2; i++) dk[i] = dv[i] = 0;

    const float *rates = (const float *)(shared + layout::rates);
    const int reference = MODE == HOPPER_DECAYING ? hopper_reference(&job->decay, &job->bounds,
                                                                     place.key_tile * HOPPER_KEYS)
                                                  : 0;
    const int before = place.batch * job->heads; /* heads of other sequences */
    backward_walk walk = backward_begin<D>(job, place);
    hopper_wait(barriers.kv_full, 0);
    for (; backward_goes_on(&walk); backward_next<D>(job, place, &walk)) {
        const int stage = walk.step % STAGES;
        const uint64_t q_here = hopper_tile_at(q, stage * layout::query_bytes);
        const uint64_t do_here = hopper_tile_at(d_o, stage * layout::query_bytes);
        char *ds_tile = shared + layout::ds + stage * layout::ds_bytes;
        const float slope =
            MODE == HOPPER_SLOPED ? job->slopes[walk.head - before] * HOPPER_LOG2_E : 0;
        float dp[layout::rows / 2], dq[32];
        uint32_t narrow[layout::rows / 16][4];

        hopper_wait(&barriers.q_full[stage], walk.step / STAGES & 1);
        const int distance = job->bounds.start + walk.tile * layout::rows - reference;
        if (MODE == HOPPER_DECAYING) {
            char *rows = shared + layout::q + stage * layout::query_bytes;
            hopper_decay_rows<D>(rates, rows, rows, layout::query_panel, layout::rows, distance,
                                 (int)threadIdx.x - HOPPER_GROUP, GROUPS * HOPPER_GROUP);
            hopper_publish();
            hopper_meet(TOGETHER, GROUPS * HOPPER_GROUP);
        }
        hopper_start_cross<D>(s, k, layout::key_panel, q_here, layout::query_panel);
        hopper_wait(&barriers.do_full[stage], walk.step / STAGES & 1);
        hopper_start_cross<D>(dp, v, layout::key_panel, do_here, layout::query_panel);
        hopper_products_wait<1>();
        hopper_hold(s);

        weigh<MODE>(s, (const float *)(shared + layout::terms + stage * layout::row_bytes), &at,
                    factor, slope, walk.tile * layout::rows, shift);
        if (D == 128) { /* beside the gradient of the scores, where registers allow it */
            hopper_narrow_all(s, narrow);
            hopper_start_sum(dv, narrow, do_here);
            hopper_products_wait<1>();
        } else {
            hopper_products_wait<0>();
        }
        hopper_hold(dp);
        score_gradient(dp, s, (const float *)(shared + layout::dots + stage * layout::row_bytes));
        uint32_t ds[layout::rows / 16][4];
        hopper_narrow_all(dp, ds);
        store_score_gradient(ds, ds_tile, group);
        if (D == 64) {
            hopper_narrow_all(s, narrow);
            hopper_start_sum(dv, narrow, do_here);
        }
        hopper_publish();
        hopper_meet(TOGETHER, GROUPS * HOPPER_GROUP);
        start_query_gradient<D>(dq, ds_tile, shared + layout::k, group);
        hopper_start_sum(dk, ds, q_here);
        hopper_products_wait<1>();
        hopper_hold(dq);
        if (MODE == HOPPER_DECAYING) decay_half(dq, D == 64 ? rates : rates + 64 * group, distance);
        hopper_wait(&barriers.dq_empty[group], (walk.step & 1) ^ 1);
        hand_over(dq, (float *)(shared + layout::dq) + group * HALF_FLOATS,
                  &barriers.dq_full[group]);
        hopper_products_wait<0>();
        hopper_hold(dv);
        hopper_hold(dk);
        hopper_release(&barriers.do_empty[stage]);
        hopper_release(&barriers.q_empty[stage]);
    }
    hopper_turn turn = {};
    if (D == 64) hopper_take_turn(turn, &job->dk_turns, group_key, job->bounds.keys);
    hopper_meet(TOGETHER, GROUPS * HOPPER_GROUP); /* both are done with the keys */
    hopper_write_tile<D>(dv, 1, 1, v_rows, layout::key_panel, MEETING + group, &job->dv,
                         place.batch, place.key_head, group_key, job->bounds.keys);
    if constexpr (D == 64) hopper_turn_sums(dk, turn, &job->dk_turns);
    hopper_write_tile<D>(dk, job->scale, job->scale, k_rows, layout::key_panel, MEETING + group,
                         &job->dk, place.batch, place.key_head, group_key, job->bounds.keys);
}

#endif

template <int D, int MODE>
__global__ void __launch_bounds__((GROUPS + 1) * HOPPER_GROUP, 1)
    hopper_backward_kernel(const __grid_constant__ backward_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using layout = backward_shared<D>;
    extern __shared__ char raw[];
    char *shared = hopper_aligned(raw);
    backward_barriers barriers = backward_barriers_at(shared + layout::barriers);
    int *number = (int *)(shared + layout::number);
    if (threadIdx.x == 0) {
        hopper_barrier_init(barriers.kv_full, 1);
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&barriers.q_full[i], 1);
            hopper_barrier_init(&barriers.do_full[i], 1);
            hopper_barrier_init(&barriers.q_empty[i], 4 * GROUPS);
            hopper_barrier_init(&barriers.do_empty[i], 4 * GROUPS);
        }
        for (int i = 0; i < GROUPS; i++) {
            hopper_barrier_init(&barriers.dq_full[i], HOPPER_GROUP);
            hopper_barrier_init(&barriers.dq_empty[i], 1);
        }
        hopper_barriers_ready();
        *number = atomicAdd(job.drawn, 1);
    }
    if (MODE == HOPPER_DECAYING && threadIdx.x < D)
        ((float *)(shared + layout::rates))[threadIdx.x] =
            hopper_rate(&job.decay, (int)threadIdx.x);
    __syncthreads();
    const backward_place place = backward_place_of(&job, *number);
    if (threadIdx.x < HOPPER_GROUP) {
        hopper_fewer_registers<24>();
        if (threadIdx.x == 0)
            backward_load<D>(&job, shared, barriers, place);
        else if (threadIdx.x == 32 || threadIdx.x == 64)
            backward_add<D>(&job, shared, barriers, place, (int)threadIdx.x / 32 - 1);
    } else {
        hopper_more_registers<240>();
        backward_compute<D, MODE>(&job, shared, barriers, place, hopper_group() - 1);
    }
#endif
}

/* ---- before and after ---- */

typedef struct rows_job {
    ls_hopper_array o, d_o, dq;
    ls_cuda_turns dq_turns;
    const float *lse, *slopes;
    float *terms, *dots;
    const float *sums;
    const int *flags; /* 0: no block has added to the half of a tile */
    int rows, heads, padded, query_tiles;
    float scale;
    hopper_decay decay; /* pairs 0 for none */
} rows_job;

/* What every key of a row needs: the row's term of the exponent, and the product of o and d_o. Rows
 * of the padding and rows without keys get an infinite term, so that their weights are 0. */
template <int D> __global__ void before_kernel(rows_job job) {
    enum { LANES = D / 8 };
    const int rows_here = 256 / LANES, lane = (int)threadIdx.x % LANES;
    const int row = (int)blockIdx.x * rows_here + (int)threadIdx.x / LANES;
    const int head = (int)blockIdx.y % job.heads, batch = (int)blockIdx.y / job.heads;
    if (row >= job.padded) return; /* padded is a multiple of rows_here: whole blocks */
    float dot = 0;
    if (row < job.rows) {
        const int64_t e = lane * 8;
        uint4 o = *(const uint4 *)(job.o.data + batch * job.o.batch + row * job.o.row +
                                   head * job.o.head + e);
        uint4 d_o = *(const uint4 *)(job.d_o.data + batch * job.d_o.batch + row * job.d_o.row +
                                     head * job.d_o.head + e);
        const ls_cuda_bf16 *x = (const ls_cuda_bf16 *)&o, *y = (const ls_cuda_bf16 *)&d_o;
        for (int i = 0; i < 8; i++) dot = fmaf(ls_cuda_wide(x[i]), ls_cuda_wide(y[i]), dot);
    }
    for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(~0u, dot, step);
    if (lane != 0) return;
    float term = INFINITY;
    if (row < job.rows) {
        float lse = job.lse[(int64_t)blockIdx.y * job.rows + row];
        float slope = job.slopes != NULL ? job.slopes[head] : 0;
        if (lse != -INFINITY)
            term = (lse + slope * (float)(row % backward_tile<D>::rows)) * HOPPER_LOG2_E;
    }
    job.terms[(int64_t)blockIdx.y * job.padded + row] = term;
    job.dots[(int64_t)blockIdx.y * job.padded + row] = dot;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
/* What is left of the decay: each row's distance from the tile's first. */
__device__ inline void decay_rest(float (&sums)[32], const hopper_decay *decay, int column,
                                  int row) {
    const int t = (int)threadIdx.x;
    column += 2 * (t % 4);
    row += 16 * (t / 32) + t % 32 / 4;
#pragma unroll
    for (int i = 0; i < 32; i++)
        sums[i] *= hopper_exp2(hopper_rate(decay, column + i / 4 * 8 + i % 2) *
                               (float)(row + i / 2 % 2 * 8));
}
#endif

/* The sums of dQ, which lie as threads held them, to rows. */
template <int D> __global__ void after_kernel(const __grid_constant__ rows_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    __shared__ __align__(1024) char tile[64 * HOPPER_ROW_BYTES];
    const int half = (int)blockIdx.x % GROUPS, query_tile = (int)blockIdx.x / GROUPS;
    const int head = (int)blockIdx.y % job.heads, batch = (int)blockIdx.y / job.heads;
    const int row = query_tile * backward_tile<D>::rows + (D == 64 ? 64 * half : 0);
    const int64_t at = (int64_t)blockIdx.y * job.query_tiles * GROUPS + blockIdx.x;
    const float4 *from = (const float4 *)(job.sums + at * HALF_FLOATS);
    const bool any = job.flags[at] > 0;
    float sums[32];
    hopper_turn turn = {};
    if (D == 64) hopper_take_turn(turn, &job.dq_turns, row, job.rows);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float4 four = any ? from[i * HOPPER_GROUP + threadIdx.x] : make_float4(0, 0, 0, 0);
        sums[4 * i] = four.x;
        sums[4 * i + 1] = four.y;
        sums[4 * i + 2] = four.z;
        sums[4 * i + 3] = four.w;
    }
    if (job.decay.pairs > 0)
        decay_rest(sums, &job.decay, D == 64 ? 0 : 64 * half, D == 64 ? 64 * half : 0);
    if constexpr (D == 64) hopper_turn_sums(sums, turn, &job.dq_turns);
    ls_hopper_array to = job.dq;
    if (D == 128) to.data += 64 * half;
    hopper_write_tile<64>(sums, job.scale, job.scale, tile, 0, 1, &to, batch, head, row, job.rows);
#endif
}

/* ---- the host's side ---- */

typedef struct backward_space {
    size_t reach, terms, dots, dq, flags, drawn, bytes; /* where each begins */
} backward_space;

static backward_space space_of(const ls_hopper_attention *a) {
    const int64_t rows = a->D == 64 ? backward_tile<64>::rows : backward_tile<128>::rows;
    const size_t tiles = (size_t)(a->B * a->H * hopper_pieces(a->T, rows));
    backward_space space = {0};
    space.terms = space.reach + hopper_reach_bytes(a);
    space.dots = space.terms + hopper_space(tiles * (size_t)rows * sizeof(float));
    space.dq = space.dots + hopper_space(tiles * (size_t)rows * sizeof(float));
    space.flags = space.dq + tiles * GROUPS * HALF_FLOATS * sizeof(float);
    space.drawn = space.flags + hopper_space(tiles * GROUPS * sizeof(int));
    space.bytes = space.drawn + 256;
    return space;
}

size_t ls_hopper_attention_workspace(const ls_hopper_attention *a, bool backward) {
    if (a->D != 64 && a->D != 128) return 0;
    return backward ? space_of(a).bytes : hopper_reach_bytes(a);
}

template <int D, int MODE>
static bool launch_backward(ls_cuda *cuda, const ls_hopper_attention *a, backward_job *job) {
    using layout = backward_shared<D>;
    if (!hopper_map(cuda, a, &a->q, a->T, a->H, layout::rows, &job->q) ||
        !hopper_map(cuda, a, &a->d_o, a->T, a->H, layout::rows, &job->d_o) ||
        !hopper_map(cuda, a, &a->k, a->N, a->G, HOPPER_KEYS, &job->k) ||
        !hopper_map(cuda, a, &a->v, a->N, a->G, HOPPER_KEYS, &job->v))
        return false;
    auto *kernel = hopper_backward_kernel<D, MODE>;
    ls_cuda_note(
        cuda,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout::bytes),
        "attention, backward");
    kernel<<<(unsigned)(a->B * a->G * job->key_tiles), (GROUPS + 1) * HOPPER_GROUP, layout::bytes,
             cuda->stream>>>(*job);
    return true;
}

template <int D> static void backward(ls_cuda *cuda, const ls_hopper_attention *a) {
    enum { ROWS = backward_tile<D>::rows, ROWS_BEFORE = 256 / (D / 8) };
    static_assert(ROWS % ROWS_BEFORE == 0, "blocks of the kernel before are whole");
    const backward_space space = space_of(a);
    char *base = (char *)a->workspace;
    const int tiles = hopper_pieces(a->T, ROWS);
    rows_job rows = {.o = a->o,
                     .d_o = a->d_o,
                     .dq = a->dq,
                     .dq_turns = a->dq_turns,
                     .lse = a->lse,
                     .slopes = a->slopes,
                     .terms = (float *)(base + space.terms),
                     .dots = (float *)(base + space.dots),
                     .sums = (const float *)(base + space.dq),
                     .flags = (const int *)(base + space.flags),
                     .rows = (int)a->T,
                     .heads = (int)a->H,
                     .padded = tiles * ROWS,
                     .query_tiles = tiles,
                     .scale = a->scale};
    if (a->decays) rows.decay = hopper_decay_of(a);
    backward_job job = {.bounds = hopper_bounds_of(a),
                        .batches = (int)a->B,
                        .heads = (int)a->H,
                        .share = (int)(a->H / a->G),
                        .key_heads = (int)a->G,
                        .query_tiles = tiles,
                        .key_tiles = hopper_pieces(a->N, HOPPER_KEYS),
                        .scale = a->scale,
                        .slopes = a->slopes,
                        .reach = hopper_reach(cuda, a, base + space.reach, HOPPER_REACH_BACKWARD),
                        .decay = hopper_decay_of(a),
                        .dk = a->dk,
                        .dv = a->dv,
                        .dk_turns = a->dk_turns,
                        .terms = rows.terms,
                        .dots = rows.dots,
                        .dq = (float *)(base + space.dq),
                        .flags = (int *)(base + space.flags),
                        .drawn = (int *)(base + space.drawn)};
    const unsigned heads = (unsigned)(a->B * a->H);
    ls_cuda_note(cuda,
                 cudaMemsetAsync(base + space.flags, 0, space.bytes - space.flags, cuda->stream),
                 "attention, backward");
    before_kernel<D>
        <<<dim3((unsigned)(rows.padded / ROWS_BEFORE), heads), 256, 0, cuda->stream>>>(rows);
    const int mode = hopper_mode(a);
    bool launched = mode == HOPPER_DECAYING ? launch_backward<D, HOPPER_DECAYING>(cuda, a, &job)
                    : mode == HOPPER_SLOPED ? launch_backward<D, HOPPER_SLOPED>(cuda, a, &job)
                                            : launch_backward<D, HOPPER_PLAIN>(cuda, a, &job);
    if (launched)
        after_kernel<D>
            <<<dim3((unsigned)tiles * GROUPS, heads), HOPPER_GROUP, 0, cuda->stream>>>(rows);
    ls_cuda_note(cuda, cudaGetLastError(), "attention, backward");
}

void ls_hopper_attention_backward(ls_cuda *cuda, const ls_hopper_attention *a) {
    if (a->D == 64)
        backward<64>(cuda, a);
    else
        backward<128>(cuda, a);
}
