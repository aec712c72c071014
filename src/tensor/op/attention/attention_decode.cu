/* Attention of one token of each sequence to what is cached: the step of a stream.
 *
 * A block has a part of the keys and one to four heads that share them, so that a cached row is
 * read once for all of these. LANES lanes have a key, 16 bytes each; a block passes over
 * THREADS / LANES keys at once, each group of lanes with a running softmax of its own. These are
 * joined in a fixed order at the end, and so are the parts of the keys, by the block that is done
 * last. The last key is found on the device, and the number of parts follows from the room of the
 * cache: launches are the same at every position; parts that would be short are left out there.
 *
 * In a chain (engine/join.c) the token's own key and value are not cached yet: the block that has
 * them rotates the key and writes both. Every block rotates its queries. What is cached is then read
 * before the queries are there. */
#include "tensor/op/attention/attention_job.cuh"

#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/position_map.cuh"
#include "tensor/cuda/rows.cuh"
#include "tensor/cuda/turn.cuh"

enum {
    THREADS = 128,
    AHEAD = 4,
    TURNED_MAX = 128, /* pairs of a rotation */
    PART_KEYS = 128,  /* fewer are not a part of their own */
    PARTS_MAX = 128,
};

/* How the token's query or key is rotated. */
typedef struct decode_turn {
    ls_position_map map;
    double factor, direction;
    bool decays;
} decode_turn;

typedef struct decode_job {
    int H, G, D, splits;
    ls_cuda_start start;
    int64_t key_position, hi;
    float scale, cap;
    bool off_by_one;
    const float *slopes;
    const float *log_decay; /* of xPos, as in ls_cuda_key_set; NULL: none */
    int64_t decay_block;
    int decay_pairs;
    bool decay_halves;
    ls_cuda_rows q, k, v, out;
    float *lse, *part_out, *part_lse;
    unsigned *arrivals; /* [B][H / heads]; NULL: parts are joined by another kernel */
    /* in a chain: */
    bool fresh; /* the token's key and value are these, and go to the cache */
    ls_cuda_rows fresh_k, fresh_v;
    int turned; /* pairs that are rotated; 0: none */
    bool turned_halves;
    decode_turn turn[2]; /* of query and key */
    double turn_block, frequency[TURNED_MAX], rate[TURNED_MAX];
} decode_job;

static __device__ __forceinline__ int64_t first_key(const decode_job &job, int64_t n) {
    const int64_t reached = n - job.key_position - job.hi;
    return reached > 0 ? reached : 0;
}

/* Parts that have keys. */
static __device__ __forceinline__ int parts_of(const decode_job &job, int64_t n) {
    if (job.arrivals == NULL) return job.splits;
    const int64_t count = n - job.key_position + 1 - first_key(job, n);
    const int64_t parts = (count + PART_KEYS - 1) / PART_KEYS;
    return parts < job.splits ? (int)parts : job.splits;
}

/* The keys of a block: rows first .. end - 1 of the cache. */
static __device__ __forceinline__ ls_cuda_span keys_of_block(const decode_job &job, int64_t n,
                                                             int parts) {
    const int64_t first = first_key(job, n), count = n - job.key_position + 1 - first;
    const int64_t part = blockIdx.x;
    return {(int)(first + count * part / parts), (int)(first + count * (part + 1) / parts)};
}

/* Cosines and sines of the token's query and key. */
struct turns {
    float cosine[2][TURNED_MAX], sine[2][TURNED_MAX];
};

static __device__ void make_turns(const decode_job &job, int64_t n, turns &t) {
    for (int i = (int)threadIdx.x; i < 2 * job.turned; i += THREADS) {
        const int of = i / job.turned, pair = i % job.turned;
        const decode_turn &by = job.turn[of];
        const float2 turn =
            ls_cuda_turn(ls_cuda_map_at(by.map, n), job.frequency[pair], by.factor, by.decays,
                         by.direction * job.rate[pair], job.turn_block, false);
        t.cosine[of][pair] = turn.x;
        t.sine[of][pair] = turn.y;
    }
}

/* A lane's elements of a row, from e on, rotated as they would be written. */
template <typename T, int EACH>
static __device__ __forceinline__ ls_cuda_pack<T, EACH>
take_turned(const decode_job &job, const T *row, int e, const turns &t, int of) {
    ls_cuda_pack<T, EACH> mine = ls_cuda_take<EACH>(row + e);
    if (e >= 2 * job.turned) return mine;
    const float *cosine = t.cosine[of], *sine = t.sine[of];
    float x[EACH], y[EACH];
    mine.wide(x);
    if (job.turned_halves) {
        const bool low = e < job.turned;
        const int i = low ? e : e - job.turned;
        float other[EACH];
        ls_cuda_load<EACH>(row + (low ? e + job.turned : i), other);
#pragma unroll
        for (int j = 0; j < EACH; j++)
            y[j] = low ? x[j] * cosine[i + j] - other[j] * sine[i + j]
                       : x[j] * cosine[i + j] + other[j] * sine[i + j];
    } else {
#pragma unroll
        for (int j = 0; j < EACH; j += 2) {
            const int i = (e + j) / 2;
            const bool turned = i < job.turned;
            const float c = turned ? cosine[i] : 1, s = turned ? sine[i] : 0;
            y[j] = x[j] * c - x[j + 1] * s;
            y[j + 1] = x[j + 1] * c + x[j] * s;
        }
    }
    mine.narrow(y);
    return mine;
}

/* Rates of the decays of a lane's elements; 0 where there are none. */
template <int EACH>
static __device__ __forceinline__ void load_rates(const decode_job &job, int e,
                                                  float (&rate)[EACH]) {
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int at = e + i, pairs = job.decay_pairs;
        const int pair = !job.decay_halves ? at / 2 : at < pairs ? at : at - pairs;
        rate[i] = at < 2 * pairs ? job.log_decay[pair] : 0;
    }
}

/* What a group of lanes has of one head. */
template <int EACH> struct running { float most, sum, out[EACH]; };

/* Scores of AHEAD keys join the running softmax; `w` become weights. */
template <int EACH>
static __device__ __forceinline__ float soften(running<EACH> &here, float (&w)[AHEAD]) {
    float higher = here.most;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) higher = fmaxf(higher, w[u]);
    const float base = higher == -INFINITY ? 0 : higher, rescale = exp2f(here.most - base);
    here.most = higher;
    here.sum *= rescale;
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
        w[u] = exp2f(w[u] - base);
        here.sum += w[u];
    }
    return rescale;
}

/* What the groups of a block have: of group i, head h, element e. */
template <int LANES, int HEADS, int EACH> struct shared_parts {
    float most[THREADS / LANES][HEADS], sum[THREADS / LANES][HEADS];
    float out[THREADS / LANES][HEADS][LANES * EACH];
};

/* Joins the groups; thread by thread the elements of the block's heads. */
template <typename T, int LANES, int HEADS, int EACH>
static __device__ void finish(const decode_job &job, int b, int head, int parts,
                              const shared_parts<LANES, HEADS, EACH> &s) {
    enum { GROUPS = THREADS / LANES };
    for (int i = (int)threadIdx.x; i < HEADS * job.D; i += THREADS) {
        const int h = i / job.D, e = i % job.D;
        const bool one = job.off_by_one && parts == 1;
        float most = one ? 0 : -INFINITY, value = 0;
        for (int g = 0; g < GROUPS; g++) most = fmaxf(most, s.most[g][h]);
        const float base = most == -INFINITY ? 0 : most;
        float sum = one ? exp2f(-base) : 0;
        for (int g = 0; g < GROUPS; g++) {
            const float by = exp2f(s.most[g][h] - base);
            sum += by * s.sum[g][h];
            value += by * s.out[g][h][e];
        }
        value = sum == 0 ? 0 : value / sum;
        const float lse = sum == 0 ? -INFINITY : base + log2f(sum);
        const int64_t row = (int64_t)b * job.H + head + h;
        if (parts == 1) {
            ls_cuda_row<T>(job.out, b, 0, head + h)[e] = ls_cuda_narrow<T>(value);
            if (e == 0) job.lse[row] = lse * LS_CUDA_LN_2;
        } else {
            const int64_t part = (int64_t)blockIdx.x * gridDim.z * job.H + row;
            job.part_out[part * job.D + e] = value;
            if (e == 0) job.part_lse[part] = lse;
        }
    }
}

/* Whether this block is the last of its heads' parts to be done. */
static __device__ bool all_done(unsigned *arrived, int parts) {
    __shared__ bool last;
    __threadfence(); /* what this thread wrote is there for all */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1u) == (unsigned)parts - 1;
        if (last) *arrived = 0; /* for the next kernel */
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

/* Joins the parts of the keys, in their order. Threads have four columns of a part each; where there
 * are more threads than columns they take parts by turns. */
template <typename T, int HEADS>
static __device__ void join_parts(const decode_job &job, int b, int head, int parts) {
    __shared__ float weight[HEADS][PARTS_MAX], whole[HEADS];
    __shared__ float4 sums[THREADS];
    const int lane = (int)threadIdx.x % 32;
    const int64_t rows = (int64_t)gridDim.z * job.H, first = (int64_t)b * job.H + head;
    for (int h = (int)threadIdx.x / 32; h < HEADS; h += THREADS / 32) {
        float lse[PARTS_MAX / 32], most = job.off_by_one ? 0 : -INFINITY, sum = 0;
#pragma unroll
        for (int i = 0; i < PARTS_MAX / 32; i++) {
            const int part = lane + 32 * i;
            lse[i] = part < parts ? __ldcg(job.part_lse + part * rows + first + h) : -INFINITY;
            most = fmaxf(most, lse[i]);
        }
        most = ls_cuda_warp_max(most);
        const float base = most == -INFINITY ? 0 : most;
#pragma unroll
        for (int i = 0; i < PARTS_MAX / 32; i++) {
            const float by = exp2f(lse[i] - base);
            weight[h][lane + 32 * i] = by;
            sum += by;
        }
        sum = ls_cuda_warp_sum(sum) + (job.off_by_one ? exp2f(-base) : 0);
        if (lane == 0) {
            whole[h] = sum;
            job.lse[first + h] = sum == 0 ? -INFINITY : (base + log2f(sum)) * LS_CUDA_LN_2;
        }
    }
    __syncthreads();
    const int columns = HEADS * job.D / 4, along = columns < THREADS ? columns : THREADS;
    const int turns = THREADS / along, turn = (int)threadIdx.x / along;
    for (int from = 0; from < columns; from += along) {
        const int column = from + (int)threadIdx.x % along;
        const int h = 4 * column / job.D, e = 4 * column % job.D;
        float4 sum = make_float4(0, 0, 0, 0);
        if (turn < turns && column < columns) {
#pragma unroll 8
            for (int part = turn; part < parts; part += turns) {
                const float *at = job.part_out + (part * rows + first + h) * job.D + e;
                const float4 x = __ldcg(reinterpret_cast<const float4 *>(at));
                const float by = weight[h][part];
                sum.x += by * x.x, sum.y += by * x.y, sum.z += by * x.z, sum.w += by * x.w;
            }
        }
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (turn == 0 && column < columns) {
            for (int t = 1; t < turns; t++) {
                const float4 x = sums[threadIdx.x + (unsigned)(t * along)];
                sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
            }
            const float by = whole[h] == 0 ? 0 : 1 / whole[h];
            T *out = ls_cuda_row<T>(job.out, b, 0, head + h) + e;
            out[0] = ls_cuda_narrow<T>(sum.x * by), out[1] = ls_cuda_narrow<T>(sum.y * by);
            out[2] = ls_cuda_narrow<T>(sum.z * by), out[3] = ls_cuda_narrow<T>(sum.w * by);
        }
        __syncthreads();
    }
}

/* Rows of a cache from `base` on that lie before `end`: what a lane has of AHEAD keys. */
template <typename T, int LANES> struct cached {
    enum { EACH = 16 / sizeof(T), GROUPS = THREADS / LANES };
    ls_cuda_pack<T, EACH> key[AHEAD], value[AHEAD];
    __device__ __forceinline__ void take(const decode_job &job, const T *k, const T *v, int base,
                                         int end, bool holds) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t row = base + u * GROUPS + (int)threadIdx.x / LANES;
            key[u] = value[u] = ls_cuda_pack<T, EACH>{};
            if (row < end && holds) {
                key[u] = ls_cuda_take<EACH>(k + row * job.k.row);
                value[u] = ls_cuda_take<EACH>(v + row * job.v.row);
            }
        }
    }
};

/* Block (part of the keys, heads, sequence). */
template <typename T, int LANES, int HEADS, bool DECAYS>
static __global__ void __launch_bounds__(THREADS, HEADS == 1 && !DECAYS ? 4 : 1)
    decode(const __grid_constant__ decode_job job) {
    enum { EACH = 16 / sizeof(T), GROUPS = THREADS / LANES, STEP = GROUPS * AHEAD };
    typedef ls_cuda_pack<T, EACH> pack;
    __shared__ shared_parts<LANES, HEADS, EACH> s;
    __shared__ turns t;
    __shared__ pack own_key[LANES], own_value[LANES];
    const int group = (int)threadIdx.x / LANES, e = (int)threadIdx.x % LANES * EACH;
    const int b = (int)blockIdx.z, head = (int)blockIdx.y * HEADS, each = job.H / job.G;
    const int g = head / each;
    const bool holds = e < job.D;
    ls_cuda_let_next();
    const int64_t n = job.start.at();
    const int parts = parts_of(job, n);
    if ((int)blockIdx.x >= parts) return;
    const ls_cuda_span keys = keys_of_block(job, n, parts);
    /* the row of the token's own key where this block has it, -1 elsewhere */
    const int own = job.fresh && (int)blockIdx.x == parts - 1 ? keys.end - 1 : -1;
    const int read_end = own >= 0 ? own : keys.end;
    T *k = ls_cuda_row<T>(job.k, b, 0, g) + e, *v = ls_cuda_row<T>(job.v, b, 0, g) + e;
    cached<T, LANES> now, next;
    float q[HEADS][EACH], rate[EACH];
    running<EACH> here[HEADS];
    if (job.fresh) { /* no kernel of this step writes the rows before the token's own */
        now.take(job, k, v, keys.first, read_end, holds);
        next.take(job, k, v, keys.first + STEP, read_end, holds);
        make_turns(job, n, t);
        __syncthreads();
    }
    ls_cuda_after();
    if (!job.fresh) {
        now.take(job, k, v, keys.first, read_end, holds);
        next.take(job, k, v, keys.first + STEP, read_end, holds);
    }
    if (DECAYS) load_rates(job, e, rate);
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        pack mine = {};
        if (holds)
            mine = take_turned<T, EACH>(job, ls_cuda_row<const T>(job.q, b, 0, head + h), e, t, 0);
        mine.wide(q[h]);
        here[h].most = -INFINITY;
        here[h].sum = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++) here[h].out[i] = 0;
    }
    if (own >= 0) {
        if (group == 0) {
            pack key = {}, value = {};
            if (holds) {
                key =
                    take_turned<T, EACH>(job, ls_cuda_row<const T>(job.fresh_k, b, 0, g), e, t, 1);
                value = ls_cuda_take<EACH>(ls_cuda_row<const T>(job.fresh_v, b, 0, g) + e);
            }
            own_key[threadIdx.x] = key;
            own_value[threadIdx.x] = value;
            if (holds && head % each == 0) {
                *(pack *)(k + own * job.k.row) = key;
                *(pack *)(v + own * job.v.row) = value;
            }
        }
        __syncthreads();
    }
    for (int base = keys.first; base < keys.end; base += STEP) {
        float w[HEADS][AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int row = base + u * GROUPS + group;
            float x[EACH];
            if (row == own) {
                now.key[u] = own_key[threadIdx.x % LANES];
                now.value[u] = own_value[threadIdx.x % LANES];
            }
            now.key[u].wide(x);
            if (DECAYS) { /* keys are stored relative to their block */
                const int64_t m = job.key_position + row;
                const float distance = (float)(n - m / job.decay_block * job.decay_block);
#pragma unroll
                for (int i = 0; i < EACH; i++) x[i] *= exp2f(rate[i] * distance);
            }
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0;
#pragma unroll
                for (int i = 0; i < EACH; i++) dot += q[h][i] * x[i];
#pragma unroll
                for (int step = LANES / 2; step > 0; step /= 2)
                    dot += __shfl_xor_sync(0xffffffffu, dot, step);
                float score = job.scale * dot;
                if (job.slopes != NULL)
                    score -= job.slopes[head + h] * (float)(n - job.key_position - row);
                score *= LS_CUDA_LOG2_E;
                if (job.cap > 0) score = ls_cuda_cap(score, job.cap);
                w[h][u] = row < keys.end ? score : -INFINITY;
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; h++) {
            const float rescale = soften(here[h], w[h]);
#pragma unroll
            for (int i = 0; i < EACH; i++) here[h].out[i] *= rescale;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            float x[EACH];
            now.value[u].wide(x);
#pragma unroll
            for (int h = 0; h < HEADS; h++)
#pragma unroll
                for (int i = 0; i < EACH; i++) here[h].out[i] += w[h][u] * x[i];
        }
        now = next;
        next.take(job, k, v, base + 2 * STEP, read_end, holds);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        if (threadIdx.x % LANES == 0) {
            s.most[group][h] = here[h].most;
            s.sum[group][h] = here[h].sum;
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) s.out[group][h][e + i] = here[h].out[i];
    }
    __syncthreads();
    finish<T, LANES, HEADS, EACH>(job, b, head, parts, s);
    if (job.arrivals == NULL || parts == 1) return;
    if (all_done(job.arrivals + (int64_t)b * gridDim.y + blockIdx.y, parts))
        join_parts<T, HEADS>(job, b, head, parts);
}

/* ---- on the host ---- */

bool ls_cuda_attention_decode_fits(const ls_run *run, const ls_node *node,
                                   const ls_cuda_attention *job) {
    const ls_cuda_key_set *s = &job->set[0];
    const int64_t each = 16 / (int64_t)ls_dtype_size(node->in[LS_ATTENTION_Q]->type);
    if (run->state == NULL || node->in[LS_ATTENTION_K]->port < 0 ||
        node->in[LS_ATTENTION_V]->port < 0)
        return false;
    if (job->T != 1 || job->sets != 1 || job->K != job->V || job->K > 32 * each || !job->vectors ||
        job->B > 65535)
        return false;
    if (s->lo != 0 || s->hi < 0 || s->key_first > s->key_position || s->key_end < LS_FAR ||
        s->block > 0 || s->span.block > 0 || s->group > 0 || s->alone || s->shift > 0)
        return false;
    if (s->seen_by_queries.first != NULL || s->query_max != NULL || s->valid != NULL ||
        s->table != NULL || s->relative.data != NULL || s->dilation != NULL ||
        s->query_at.kind != LS_MAP_IDENTITY || s->key_at.kind != LS_MAP_IDENTITY)
        return false;
    return s->key_position + s->keys == job->start + 1; /* the token's own key is the last */
}

/* Heads of a block. With decays and in f32, which are rare, there are no kernels for several; with
 * both none for narrow heads either, whose lanes are those of the widest. */
static int heads_of(const ls_cuda_attention *given, ls_dtype type) {
    if (given->set[0].log_decay != NULL || type == LS_F32) return 1;
    return ls_cuda_attention_decode_heads(given->H, given->G);
}

template <typename T, int LANES>
static void launch(const ls_run *run, const decode_job *job, int64_t batch, int heads) {
    const dim3 blocks((unsigned)job->splits, (unsigned)(job->H / heads), (unsigned)batch);
    const char *what = "attention, one token";
    enum { DECAY_LANES = sizeof(T) == 2 ? LANES : 32 };
    if constexpr (sizeof(T) == 2) {
        if (heads == 4)
            return ls_cuda_follow(run, what, decode<T, LANES, 4, false>, blocks, THREADS, *job);
        if (heads == 2)
            return ls_cuda_follow(run, what, decode<T, LANES, 2, false>, blocks, THREADS, *job);
    }
    if (job->log_decay != NULL)
        ls_cuda_follow(run, what, decode<T, DECAY_LANES, 1, true>, blocks, THREADS, *job);
    else
        ls_cuda_follow(run, what, decode<T, LANES, 1, false>, blocks, THREADS, *job);
}

template <typename T>
static void launch_width(const ls_run *run, const decode_job *job, int64_t batch, int heads) {
    const int lanes = job->D * (int)sizeof(T) / 16;
    if (lanes <= 8) /* of a narrow head some have nothing */
        launch<T, 8>(run, job, batch, heads);
    else if (lanes <= 16)
        launch<T, 16>(run, job, batch, heads);
    else
        launch<T, 32>(run, job, batch, heads);
}

/* How a node of a chain rotates. */
static decode_turn turn_of(const ls_node *node) {
    const ls_rotate_attributes *about = (const ls_rotate_attributes *)node->attributes;
    decode_turn turn = {};
    turn.map = about->map;
    turn.factor = about->rotary.factor;
    turn.decays = about->rotary.xpos.pairs > 0 && about->as != LS_ROTATE_ALONE;
    turn.direction = about->as == LS_ROTATE_KEY ? 1 : -1;
    return turn;
}

bool ls_cuda_attention_turns_fit(const ls_node *key, const ls_node *query, ls_dtype type) {
    const ls_rotate_attributes *a = (const ls_rotate_attributes *)key->attributes;
    const ls_rotate_attributes *b = (const ls_rotate_attributes *)query->attributes;
    const ls_rotary *of = &a->rotary, *other = &b->rotary;
    const int64_t each = 16 / (int64_t)ls_dtype_size(type), pairs = of->pairs;
    for (int i = 1; i < 4; i++) /* where sequences began, places, learned frequencies */
        if (key->in[i] != NULL || query->in[i] != NULL) return false;
    if (key->in[0]->port >= 0 || query->in[0]->port >= 0 || a->inverse || b->inverse ||
        of->dynamic != NULL || other->dynamic != NULL)
        return false;
    if (pairs < 1 || pairs > TURNED_MAX || pairs != other->pairs || of->halves != other->halves ||
        (of->halves && pairs % each != 0))
        return false;
    const size_t bytes = (size_t)pairs * sizeof of->frequency[0];
    return memcmp(of->frequency, other->frequency, bytes) == 0 &&
           memcmp(of->xpos.log_decay, other->xpos.log_decay, bytes) == 0 &&
           of->xpos.block == other->xpos.block;
}

static ls_cuda_rows rows_of(const ls_tensor *x) {
    ls_cuda_rows rows = {};
    rows.data = ls_data(x);
    rows.batch = x->stride[0];
    rows.row = x->stride[1];
    rows.head = x->stride[2];
    return rows;
}

bool ls_cuda_attention_fresh_fits(const ls_tensor *x, ls_dtype type) {
    const int64_t each = 16 / (int64_t)ls_dtype_size(type);
    return x->rank == 4 && x->dim[1] == 1 && x->type == type && ls_cuda_aligned(ls_data(x)) &&
           x->stride[0] % each == 0 && x->stride[2] % each == 0;
}

/* What a chain brings along: the token's key and value before they are cached, and the rotations. */
static void add_chain(decode_job *job, const ls_cuda_decode_chain *chain) {
    job->fresh = true;
    job->fresh_k = rows_of(chain->key);
    job->fresh_v = rows_of(chain->value);
    if (chain->rotates_query == NULL) return;
    const ls_rotary *rotary =
        &((const ls_rotate_attributes *)chain->rotates_query->attributes)->rotary;
    job->q = rows_of(chain->rotates_query->in[0]);
    job->turned = (int)rotary->pairs;
    job->turned_halves = rotary->halves;
    job->turn[0] = turn_of(chain->rotates_query);
    job->turn[1] = turn_of(chain->rotates_key);
    job->turn_block = (double)rotary->xpos.block;
    memcpy(job->frequency, rotary->frequency, (size_t)job->turned * sizeof job->frequency[0]);
    memcpy(job->rate, rotary->xpos.log_decay, (size_t)job->turned * sizeof job->rate[0]);
}

void ls_cuda_attention_decode(const ls_run *run, ls_cuda_attention *given, ls_dtype type,
                              const ls_cuda_decode_chain *chain) {
    const ls_cuda_key_set *s = &given->set[0];
    given->splits = ls_cuda_attention_decode_splits(given->B, given->H, given->G, s->key_rows);
    decode_job job = {};
    job.H = given->H;
    job.G = given->G;
    job.D = given->K;
    job.splits = given->splits;
    job.start = ls_cuda_start_of(run);
    job.key_position = s->key_position;
    job.hi = s->hi;
    job.scale = given->scale;
    job.cap = given->cap;
    job.off_by_one = given->off_by_one;
    job.slopes = s->slopes;
    job.log_decay = s->log_decay;
    job.decay_block = s->decay_block;
    job.decay_pairs = s->decay_pairs;
    job.decay_halves = s->decay_halves;
    job.q = s->q;
    job.k = s->k;
    job.v = s->v;
    job.out = given->out;
    job.lse = given->lse;
    job.part_out = given->part_out;
    job.part_lse = given->part_lse;
    if (chain != NULL) add_chain(&job, chain);
    const int heads = heads_of(given, type);
    const bool counted = (int64_t)given->B * (given->H / heads) <= LS_CUDA_ARRIVALS;
    if (counted && given->splits <= PARTS_MAX) job.arrivals = ls_cuda_of(run)->arrivals;
    if (type == LS_F32)
        launch_width<float>(run, &job, given->B, heads);
    else
        launch_width<ls_cuda_bf16>(run, &job, given->B, heads);
    if (given->splits > 1 && job.arrivals == NULL) ls_cuda_attention_merge(run, given, type);
    ls_cuda_steady(run);
}
