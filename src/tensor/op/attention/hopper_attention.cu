/* Forward attention on compute capability 9.0; see hopper_attention.h.
 *
 * A block takes 64 query rows for each of its warp groups that compute, and walks its key tiles
 * from the last to the first. One more warp group has the copy engine bring keys and values into
 * two buffers each. A computing group starts the scores of the next tile and the product of the
 * last weights with their values, and while the matrix unit works on both it takes the softmax of
 * the new scores; the groups take turns to start, so that one's softmax lies beside another's
 * products. Weights never leave registers.
 *
 * Scores are kept as sums u of units such that the exponent of base 2 is factor * u: without slopes
 * u = q.k and factor = scale * log2(e). With them factor = slope * log2(e) and
 * u = q.k * scale / slope + key - query, of which all but the product and a constant of the
 * register is the same for a tile and goes into the row's maximum: one multiply-add per score.
 * Tiles of keys that are out of a head's reach are not walked: see hopper_attention_reach.cu.
 *
 * With xPos the queries are kept as they came beside those with their share of the decay, which are
 * written anew when the walk enters another block of keys. */
#include "tensor/op/attention/hopper_attention_parts.cuh"

#include <cudaTypedefs.h>

enum { STAGES = 2, HEADS_BYTES = 24 << 20 };

typedef struct forward_job {
    CUtensorMap q, k, v;
    hopper_bounds bounds;
    int batches, heads, share; /* share: query heads of one key-value head */
    int tiles, together;       /* query tiles; heads whose keys and values the cache holds */
    float scale;
    const float *slopes;
    const int *reach; /* hopper_reach */
    hopper_decay decay;
    ls_hopper_array o;
    float *lse;
} forward_job;

template <int D, int GROUPS, int MODE> struct forward_shared {
    static constexpr int rows = 64 * GROUPS;
    static constexpr int q = 0;
    static constexpr int q_bytes = rows * D * 2, tile_bytes = HOPPER_KEYS * D * 2;
    static constexpr int kept = MODE == HOPPER_DECAYING ? q + q_bytes : q; /* as they came */
    static constexpr int k = kept + q_bytes, v = k + STAGES * tile_bytes;
    static constexpr int barriers = v + STAGES * tile_bytes;
    static constexpr int rates = barriers + (1 + 4 * STAGES) * 8 + 8; /* of the decay */
    static constexpr int bytes = rates + D * (int)sizeof(float) + 1024;
};

/* Without slopes one unit is scale * log2(e); see the top. A slope of zero would make it zero. */
typedef struct score_units {
    float factor, stretch;
} score_units;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

typedef struct forward_barriers {
    uint64_t *q_full, *k_full, *k_empty, *v_full, *v_empty;
} forward_barriers;

__device__ inline forward_barriers forward_barriers_at(void *at) {
    uint64_t *all = (uint64_t *)at;
    return (forward_barriers){all, all + 1, all + 1 + STAGES, all + 1 + 2 * STAGES,
                              all + 1 + 3 * STAGES};
}

/* Which tile of which head a block has: heads in sets that share the cache, the queries with the
 * most keys first. Slopes fall from head to head as a rule, so heads with the longest reach begin
 * and those with little to do fill up the end. */
typedef struct forward_place {
    int batch, head, row;
} forward_place;

template <int MODE>
__device__ inline forward_place forward_place_of(const forward_job *job, int rows) {
    int every = job->batches * job->heads, set = (int)blockIdx.x / (job->together * job->tiles);
    int in_set = (int)blockIdx.x % (job->together * job->tiles);
    int here = hopper_least(job->together, every - set * job->together);
    int head = set * job->together + in_set % here;
    if (MODE == HOPPER_SLOPED) head = every - 1 - head;
    return (forward_place){head / job->heads, head % job->heads,
                           (job->tiles - 1 - in_set / here) * rows};
}

template <int D, int GROUPS, int MODE>
__device__ inline void forward_load(const forward_job *job, char *shared, forward_barriers barriers,
                                    forward_place place, hopper_span span) {
    using layout = forward_shared<D, GROUPS, MODE>;
    const int head = place.head / job->share;
    hopper_expect(barriers.q_full, layout::q_bytes);
    hopper_fetch_tile<D>(&job->q, barriers.q_full, shared + layout::kept, layout::rows, place.head,
                         place.row, place.batch);
#pragma unroll 1
    for (int i = 0; i < span.count; i++) {
        const int key = (span.first + span.count - 1 - i) * HOPPER_KEYS, stage = i % STAGES;
        const uint32_t free_phase = (uint32_t)(i / STAGES & 1) ^ 1;
        hopper_wait(&barriers.k_empty[stage], free_phase);
        hopper_expect(&barriers.k_full[stage], layout::tile_bytes);
        hopper_fetch_tile<D>(&job->k, &barriers.k_full[stage],
                             shared + layout::k + stage * layout::tile_bytes, HOPPER_KEYS, head,
                             key, place.batch);
        hopper_wait(&barriers.v_empty[stage], free_phase);
        hopper_expect(&barriers.v_full[stage], layout::tile_bytes);
        hopper_fetch_tile<D>(&job->v, &barriers.v_full[stage],
                             shared + layout::v + stage * layout::tile_bytes, HOPPER_KEYS, head,
                             key, place.batch);
    }
}

/* The two rows of a thread. */
typedef struct forward_rows {
    int row, first_key[2], last_key[2];
    int sure_first, sure_last; /* keys that all 64 rows of the group see */
    float most[2], sum[2];     /* the greatest u so far, this thread's share of the sum */
} forward_rows;

__device__ inline forward_rows forward_rows_at(const hopper_bounds *bounds, int group_row) {
    const int t = (int)threadIdx.x % HOPPER_GROUP;
    forward_rows at;
    at.row = group_row + 16 * (t / 32) + t % 32 / 4;
    for (int i = 0; i < 2; i++) {
        at.first_key[i] = hopper_first_key(bounds, at.row + 8 * i);
        at.last_key[i] = hopper_last_key(bounds, at.row + 8 * i);
        at.most[i] = -INFINITY;
        at.sum[i] = 0;
    }
    at.sure_first = hopper_first_key(bounds, group_row + 63);
    at.sure_last = hopper_last_key(bounds, group_row);
    return at;
}

__device__ inline void mask_scores(float (&s)[HOPPER_KEYS / 2], const forward_rows *at, int key) {
    key += 2 * ((int)threadIdx.x % 4);
#pragma unroll
    for (int i = 0; i < HOPPER_KEYS / 2; i++) {
        int here = key + i / 4 * 8 + i % 2, second = i / 2 % 2;
        if (here < at->first_key[second] || here > at->last_key[second]) s[i] = -INFINITY;
    }
}

/* Scores to weights; fade is what earlier sums are worth now. */
template <int MODE>
__device__ inline void soften(float (&s)[HOPPER_KEYS / 2], forward_rows *at, score_units units,
                              int key, int shift, float (&fade)[2]) {
    if (key < at->sure_first || key + HOPPER_KEYS - 1 > at->sure_last) mask_scores(s, at, key);
    if (MODE == HOPPER_SLOPED) {
#pragma unroll
        for (int i = 0; i < HOPPER_KEYS / 2; i++)
            s[i] = fmaf(s[i], units.stretch, (float)(i / 4 * 8 + i % 2));
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float most = s[2 * r];
#pragma unroll
        for (int i = 0; i < HOPPER_KEYS / 4; i++) most = fmaxf(most, s[i / 2 * 4 + 2 * r + i % 2]);
        float base = 0;
        if (MODE == HOPPER_SLOPED)
            base = (float)(key + 2 * ((int)threadIdx.x % 4) - (at->row + 8 * r + shift));
        most += base;
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        most = fmaxf(most, at->most[r]);
        float finite = most == -INFINITY ? 0 : most, less = (finite - base) * units.factor, sum = 0;
        fade[r] = hopper_exp2((at->most[r] - finite) * units.factor);
#pragma unroll
        for (int i = 0; i < HOPPER_KEYS / 4; i++) {
            float *x = &s[i / 2 * 4 + 2 * r + i % 2];
            *x = hopper_exp2(fmaf(*x, units.factor, -less));
            sum += *x;
        }
        at->most[r] = most;
        at->sum[r] = fmaf(at->sum[r], fade[r], sum);
    }
}

/* Waits for the product with the values, after the softmax. The sums of weights are never negative:
 * the sleep is there because the assembler would otherwise move the wait before the softmax, which
 * is to run beside the product. */
template <int COUNT> __device__ inline void wait_after(float (&o)[COUNT], const forward_rows *at) {
    if (at->sum[0] + at->sum[1] < 0) __nanosleep(1);
    hopper_products_wait<0>();
    hopper_hold(o);
}

/* Most tiles leave the maxima of all the warp's rows as they are. */
template <int COUNT> __device__ inline void fade_sums(float (&o)[COUNT], const float (&fade)[2]) {
    if (!__any_sync(~0u, fade[0] != 1 || fade[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < COUNT; i++) o[i] *= fade[i / 2 % 2];
}

template <int D>
__device__ inline void forward_finish(const forward_job *job, float (&o)[D / 2], forward_rows *at,
                                      score_units units, char *q_rows, int q_panel, int meeting,
                                      forward_place place, int group_row) {
    float inverse[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float sum = at->sum[r];
        sum += __shfl_xor_sync(~0u, sum, 1);
        sum += __shfl_xor_sync(~0u, sum, 2);
        inverse[r] = sum > 0 ? 1 / sum : 0;
        int row = at->row + 8 * r;
        if (threadIdx.x % 4 == 0 && row < job->bounds.rows && job->lse != NULL)
            job->lse[((int64_t)place.batch * job->heads + place.head) * job->bounds.rows + row] =
                sum > 0 ? at->most[r] * units.factor * HOPPER_LN_2 + logf(sum) : -INFINITY;
    }
    hopper_meet(meeting, HOPPER_GROUP); /* every warp is done with the queries */
    hopper_write_tile<D>(o, inverse[0], inverse[1], q_rows, q_panel, meeting, &job->o, place.batch,
                         place.head, group_row, job->bounds.rows);
}

/* The group's queries for the keys from `key` on, where those begin a block on the way down or are
 * the first. */
template <int D, int GROUPS, int MODE>
__device__ inline void forward_queries(const forward_job *job, char *shared, int group,
                                       int group_row, int key, int meeting) {
    using layout = forward_shared<D, GROUPS, MODE>;
    const int rows = 64 * group * HOPPER_ROW_BYTES;
    const int reference = hopper_reference(&job->decay, &job->bounds, key);
    hopper_meet(meeting, HOPPER_GROUP); /* no warp's product reads the old ones */
    hopper_decay_rows<D>((const float *)(shared + layout::rates), shared + layout::kept + rows,
                         shared + layout::q + rows, layout::rows * HOPPER_ROW_BYTES, 64,
                         job->bounds.start + group_row - reference, (int)threadIdx.x % HOPPER_GROUP,
                         HOPPER_GROUP);
    hopper_publish();
    hopper_meet(meeting, HOPPER_GROUP);
}

template <int D, int GROUPS, int MODE>
__device__ inline void forward_compute(const forward_job *job, char *shared,
                                       forward_barriers barriers, forward_place place,
                                       hopper_span span, int group) {
    using layout = forward_shared<D, GROUPS, MODE>;
    enum { TURN = 1, MEETING = TURN + GROUPS };
    const int q_panel = layout::rows * HOPPER_ROW_BYTES, group_row = place.row + 64 * group;
    const int shift = job->bounds.start - job->bounds.first;
    char *q_rows = shared + layout::q + 64 * group * HOPPER_ROW_BYTES;
    const uint64_t q = hopper_tile(q_rows, 0), k = hopper_tile(shared + layout::k, 0);
    const int k_panel = HOPPER_KEYS * HOPPER_ROW_BYTES;
    const uint64_t v = hopper_tile(shared + layout::v, k_panel);
    score_units units = {job->scale * HOPPER_LOG2_E, 1};
    if (MODE == HOPPER_SLOPED) {
        const float least = 1.0f / (1 << 30) / 64;
        float slope = fmaxf(job->slopes[place.head], least * job->scale);
        units = (score_units){slope * HOPPER_LOG2_E, job->scale / slope};
    }
    forward_rows at = forward_rows_at(&job->bounds, group_row);
    float o[D / 2], s[HOPPER_KEYS / 2], fade[2];
    uint32_t p[HOPPER_KEYS / 16][4];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;
    if (GROUPS > 1 && group == GROUPS - 1) hopper_pass(TURN, 2 * HOPPER_GROUP);

    hopper_wait(barriers.q_full, 0);
    int key = (span.first + span.count - 1) * HOPPER_KEYS;
    if (span.count > 0) {
        if (MODE == HOPPER_DECAYING)
            forward_queries<D, GROUPS, MODE>(job, shared, group, group_row, key, MEETING + group);
        hopper_wait(&barriers.k_full[0], 0);
        hopper_start_cross<D>(s, q, q_panel, k, k_panel);
        hopper_products_wait<0>();
        hopper_hold(s);
        hopper_release(&barriers.k_empty[0]);
        soften<MODE>(s, &at, units, key, shift, fade);
        hopper_narrow_all(s, p);
    }
    for (int i = 1; i < span.count; i++) {
        const int stage = i % STAGES, before = (i - 1) % STAGES;
        key -= HOPPER_KEYS;
        if (MODE == HOPPER_DECAYING &&
            (job->bounds.first + key + HOPPER_KEYS) % job->decay.block == 0)
            forward_queries<D, GROUPS, MODE>(job, shared, group, group_row, key, MEETING + group);
        hopper_wait(&barriers.k_full[stage], i / STAGES & 1);
        if (GROUPS > 1) hopper_meet(TURN + group, 2 * HOPPER_GROUP);
        hopper_start_cross<D>(s, q, q_panel, hopper_tile_at(k, stage * layout::tile_bytes),
                              k_panel);
        hopper_wait(&barriers.v_full[before], (i - 1) / STAGES & 1);
        hopper_start_sum(o, p, hopper_tile_at(v, before * layout::tile_bytes));
        if (GROUPS > 1) hopper_pass(TURN + (group + 1) % GROUPS, 2 * HOPPER_GROUP);
        hopper_products_wait<1>();
        hopper_hold(s);
        hopper_release(&barriers.k_empty[stage]);
        soften<MODE>(s, &at, units, key, shift, fade);
        wait_after(o, &at);
        fade_sums(o, fade);
        hopper_hold(s); /* p is not to be overwritten before the wait */
        hopper_release(&barriers.v_empty[before]);
        hopper_narrow_all(s, p);
    }
    if (span.count > 0) {
        const int last = span.count - 1;
        hopper_wait(&barriers.v_full[last % STAGES], last / STAGES & 1);
        hopper_start_sum(o, p, hopper_tile_at(v, last % STAGES * layout::tile_bytes));
        hopper_products_wait<0>();
        hopper_hold(o);
    }
    forward_finish<D>(job, o, &at, units, q_rows, q_panel, MEETING + group, place, group_row);
}

#endif

template <int D, int GROUPS, int MODE>
__global__ void __launch_bounds__((GROUPS + 1) * HOPPER_GROUP, GROUPS == 1 ? 2 : 1)
    forward_kernel(const __grid_constant__ forward_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    using layout = forward_shared<D, GROUPS, MODE>;
    extern __shared__ char raw[];
    char *shared = hopper_aligned(raw);
    forward_barriers barriers = forward_barriers_at(shared + layout::barriers);
    const forward_place place = forward_place_of<MODE>(&job, layout::rows);
    hopper_bounds near = job.bounds;
    if (MODE == HOPPER_SLOPED)
        near = hopper_reached(&job.bounds, job.reach, place.batch * job.heads + place.head);
    if (threadIdx.x == 0) {
        hopper_barrier_init(barriers.q_full, 1);
        for (int i = 0; i < STAGES; i++) {
            hopper_barrier_init(&barriers.k_full[i], 1);
            hopper_barrier_init(&barriers.v_full[i], 1);
            hopper_barrier_init(&barriers.k_empty[i], 4 * GROUPS);
            hopper_barrier_init(&barriers.v_empty[i], 4 * GROUPS);
        }
        hopper_barriers_ready();
    }
    if (MODE == HOPPER_DECAYING && threadIdx.x < D)
        ((float *)(shared + layout::rates))[threadIdx.x] =
            hopper_rate(&job.decay, (int)threadIdx.x);
    __syncthreads();
    const int last_row = hopper_least(place.row + layout::rows, job.bounds.rows) - 1;
    const hopper_span span = hopper_tiles(hopper_first_key(&near, place.row),
                                          hopper_last_key(&near, last_row), HOPPER_KEYS);
    if (threadIdx.x < HOPPER_GROUP) {
        hopper_fewer_registers<GROUPS == 3 ? 32 : 24>();
        if (threadIdx.x == 0) forward_load<D, GROUPS, MODE>(&job, shared, barriers, place, span);
    } else {
        hopper_more_registers<GROUPS == 1 ? 232 : GROUPS == 2 ? 240 : 160>();
        forward_compute<D, GROUPS, MODE>(&job, shared, barriers, place, span, hopper_group() - 1);
    }
#endif
}

/* ---- the host's side ---- */

hopper_bounds hopper_bounds_of(const ls_hopper_attention *a) {
    const int64_t end = a->start + a->T > a->first + a->N ? a->start + a->T : a->first + a->N;
    hopper_bounds bounds = {(int)a->T, (int)a->N, (int)a->start, (int)a->first};
    bounds.hi = (int)(a->hi < end ? a->hi : end);
    bounds.block = (int)(a->block < end ? a->block : 0);
    return bounds;
}

hopper_decay hopper_decay_of(const ls_hopper_attention *a) {
    return (hopper_decay){a->log_decay, (int)a->decay_block, (int)a->decay_pairs, a->decay_halves};
}

static PFN_cuTensorMapEncodeTiled_v12000 map_encoder(void) {
    static PFN_cuTensorMapEncodeTiled_v12000 encoder;
    if (encoder == NULL) {
        void *found = NULL;
        cudaDriverEntryPointQueryResult result;
        if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                             cudaEnableDefault, &result) == cudaSuccess &&
            result == cudaDriverEntryPointSuccess)
            encoder = (PFN_cuTensorMapEncodeTiled_v12000)found;
        cudaGetLastError(); /* not there is no error: other kernels do the work */
    }
    return encoder;
}

bool hopper_map(ls_cuda *cuda, const ls_hopper_attention *a, const ls_hopper_array *x, int64_t rows,
                int64_t heads, int box, CUtensorMap *map) {
    const cuuint64_t sizes[4] = {(cuuint64_t)a->D, (cuuint64_t)heads, (cuuint64_t)rows,
                                 (cuuint64_t)a->B};
    /* the step of a dimension of one is never taken but must be one the driver takes */
    const int64_t steps[3] = {heads > 1 ? x->head : a->D, rows > 1 ? x->row : a->D,
                              a->B > 1 ? x->batch : a->D};
    const cuuint64_t bytes[3] = {(cuuint64_t)steps[0] * 2, (cuuint64_t)steps[1] * 2,
                                 (cuuint64_t)steps[2] * 2};
    const cuuint32_t boxes[4] = {HOPPER_PANEL, 1, (cuuint32_t)box, 1}, each[4] = {1, 1, 1, 1};
    PFN_cuTensorMapEncodeTiled_v12000 encode = map_encoder();
    if (encode != NULL && encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, x->data, sizes, bytes,
                                 boxes, each, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS)
        return true;
    ls_cuda_note_text(cuda, "attention", "the driver takes no map of a tensor");
    return false;
}

static bool array_fits(const ls_hopper_attention *a, const ls_hopper_array *x, int64_t rows,
                       int64_t heads) {
    const int64_t most = (int64_t)1 << 38; /* elements; the copy engine's steps are below 2^40 B */
    return (uintptr_t)x->data % 16 == 0 &&
           (rows <= 1 || (x->row % 8 == 0 && x->row > 0 && x->row < most)) &&
           (heads <= 1 || (x->head % 8 == 0 && x->head > 0 && x->head < most)) &&
           (a->B <= 1 || (x->batch % 8 == 0 && x->batch > 0 && x->batch < most));
}

static bool decay_fits(const ls_hopper_attention *a) {
    if (!a->decays) return true;
    return a->slopes == NULL && a->log_decay != NULL && a->decay_pairs > 0 &&
           a->decay_pairs * 2 <= a->D && a->decay_block > 0 && a->decay_block <= 1 << 28 &&
           a->decay_block % HOPPER_KEYS == 0 && a->first % HOPPER_KEYS == 0;
}

bool ls_hopper_attention_takes(const ls_cuda *cuda, const ls_hopper_attention *a) {
    const int64_t most = (int64_t)1 << 28;
    if (cuda->major != 9 || cuda->minor != 0 || (a->D != 64 && a->D != 128)) return false;
    if (a->B < 1 || a->T < 1 || a->N < 1 || a->G < 1 || a->H % a->G != 0) return false;
    if (a->start < 0 || a->first < 0 || a->start + a->T > most || a->first + a->N > most ||
        a->B * a->H * ((a->T > a->N ? a->T : a->N) / 64 + 1) > most || a->B * a->H > 65535)
        return false;
    if (!(a->scale > 0) || a->hi < 0 || !decay_fits(a)) return false;
    bool fits = array_fits(a, &a->q, a->T, a->H) && array_fits(a, &a->k, a->N, a->G) &&
                array_fits(a, &a->v, a->N, a->G) && array_fits(a, &a->o, a->T, a->H);
    if (a->d_o.data != NULL)
        fits = fits && array_fits(a, &a->d_o, a->T, a->H) && array_fits(a, &a->dq, a->T, a->H) &&
               array_fits(a, &a->dk, a->N, a->G) && array_fits(a, &a->dv, a->N, a->G);
    return fits && map_encoder() != NULL;
}

template <int D, int GROUPS, int MODE>
static void launch_forward(ls_cuda *cuda, const ls_hopper_attention *a) {
    using layout = forward_shared<D, GROUPS, MODE>;
    const int64_t head_bytes = a->N * D * 2 * 2;
    forward_job job = {.bounds = hopper_bounds_of(a),
                       .batches = (int)a->B,
                       .heads = (int)a->H,
                       .share = (int)(a->H / a->G),
                       .tiles = hopper_pieces(a->T, layout::rows),
                       .scale = a->scale,
                       .slopes = a->slopes,
                       .reach = hopper_reach(cuda, a, a->workspace, HOPPER_REACH_FORWARD),
                       .decay = hopper_decay_of(a),
                       .o = a->o,
                       .lse = a->lse};
    int64_t together = HEADS_BYTES / head_bytes * job.share;
    if (together < job.share) together = job.share;
    job.together = (int)(together < a->B * a->H ? together : a->B * a->H);
    if (!hopper_map(cuda, a, &a->q, a->T, a->H, layout::rows, &job.q) ||
        !hopper_map(cuda, a, &a->k, a->N, a->G, HOPPER_KEYS, &job.k) ||
        !hopper_map(cuda, a, &a->v, a->N, a->G, HOPPER_KEYS, &job.v))
        return;
    auto *kernel = forward_kernel<D, GROUPS, MODE>;
    ls_cuda_note(
        cuda,
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, layout::bytes),
        "attention");
    kernel<<<(unsigned)(a->B * a->H * job.tiles), (GROUPS + 1) * HOPPER_GROUP, layout::bytes,
             cuda->stream>>>(job);
    ls_cuda_note(cuda, cudaGetLastError(), "attention");
}

/* Three groups hide more of the softmax where heads are narrow; where a row sees few keys, blocks
 * of 64 rows waste less, and of two on a multiprocessor one computes while the other begins or
 * ends. */
template <int MODE> static void forward(ls_cuda *cuda, const ls_hopper_attention *a) {
    const bool few = a->block > 0 || a->hi < 4096 || a->T < 2048;
    if (a->D == 128)
        launch_forward<128, 2, MODE>(cuda, a);
    else if (few)
        launch_forward<64, 1, MODE>(cuda, a);
    else
        launch_forward<64, 3, MODE>(cuda, a);
}

void ls_hopper_attention_forward(ls_cuda *cuda, const ls_hopper_attention *a) {
    switch (hopper_mode(a)) {
    case HOPPER_DECAYING:
        forward<HOPPER_DECAYING>(cuda, a);
        break;
    case HOPPER_SLOPED:
        forward<HOPPER_SLOPED>(cuda, a);
        break;
    default:
        forward<HOPPER_PLAIN>(cuda, a);
    }
}
