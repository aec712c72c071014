/* How far queries see under slopes, for the kernels of hopper_attention.h.
 *
 * A slope takes so much off the scores of far keys that their weights are exactly 0 in the kernels'
 * arithmetic, and whole tiles of such keys can be left out with nothing changed. In units of log 2,
 * with c = scale * log2(e), a query q at position n scores c q.k - slope * log2(e) * (n - m) with
 * key k at position m. It sees the key of its own position, so its greatest score is at least that
 * one's, c own, and the logarithm of its sum as well. A weight, forward and backward, is
 * 2 to the power of its score less one of the two, and hopper_exp2 gives 0 below -126. So it is 0
 * wherever
 *
 *     slope * log2(e) * (n - m)  >  c (|q| |k| - own) + 126
 *
 * The reach of a head is the least distance from which on this holds, with the largest norms of its
 * queries and of its keys and the least product `own` of any of its queries with the key beside it,
 * and with more than rounding can take away: 2% of the norms, 4 units, 2 positions. (A sum of D
 * products of bf16 errs by some D * 2^-23 of the norms, the distance's part by some 2^-22 of
 * itself.)
 *
 * The forward kernel walks towards far keys, so those that are left out would have come last and
 * changed neither maximum nor sum. In backward a weight of 0 makes a gradient of the score of 0,
 * and dq, dk and dv would have had zeros added. All this is of finite numbers: where a norm is not,
 * every key is read. What only far keys' values or gradients hold of infinity or NaN is left out
 * with them. */
#include "tensor/op/attention/hopper_attention_parts.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, PART_ROWS = 256 };

typedef struct reach_job {
    ls_hopper_array q, k;
    int rows, keys, batches, heads, key_heads, shift; /* shift: of the key beside query row 0 */
    int parts;                                        /* of PART_ROWS rows */
    float factor;                                     /* c */
    const float *slopes;
    uint32_t *norms; /* [queries' B, H; keys' B, G][parts]: the largest squares, as bits */
    float *own;      /* [B,H][parts] */
    int *reach;      /* [B,H] */
    int furthest;    /* no distance is greater */
} reach_job;

__device__ inline float dot_eight(uint4 a, uint4 b) {
    const ls_cuda_bf16 *x = (const ls_cuda_bf16 *)&a, *y = (const ls_cuda_bf16 *)&b;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum = fmaf(ls_cuda_wide(x[i]), ls_cuda_wide(y[i]), sum);
    return sum;
}

/* The largest square of PART_ROWS rows from `first` on, and the least product with the row of
 * `beside` in the same place, of those that this thread has a part in. The last row stands in for
 * those behind it. Squares and NaN compare as whole numbers do, and NaN is the largest. */
typedef struct extremes {
    uint32_t most;
    float least;
} extremes;

template <int D, bool BESIDE>
__device__ inline extremes extremes_of(const ls_cuda_bf16 *x, int64_t x_row,
                                       const ls_cuda_bf16 *beside, int64_t beside_row, int first,
                                       int rows) {
    enum { LANES = D / 8, ROWS = THREADS / LANES };
    const int e = (int)threadIdx.x % LANES * 8;
    extremes of = {0, INFINITY};
#pragma unroll 4
    for (int i = 0; i < PART_ROWS / ROWS; i++) {
        const int row = hopper_least(first + i * ROWS + (int)threadIdx.x / LANES, rows - 1);
        const uint4 eight = *(const uint4 *)(x + row * x_row + e);
        float square = dot_eight(eight, eight), product = 0;
        if (BESIDE) product = dot_eight(eight, *(const uint4 *)(beside + row * beside_row + e));
#pragma unroll
        for (int step = LANES / 2; step > 0; step /= 2) {
            square += __shfl_xor_sync(~0u, square, step);
            if (BESIDE) product += __shfl_xor_sync(~0u, product, step);
        }
        of.most = max(of.most, __float_as_uint(square) & 0x7fffffffu);
        of.least = fminf(of.least, product);
    }
    return of;
}

/* A block takes one part of the rows of a head of queries or of keys; neighbours take other heads,
 * which lie side by side in memory. */
template <int D> __global__ static void __launch_bounds__(THREADS) norms_kernel(reach_job job) {
    __shared__ extremes of_warps[WARPS];
    const int query_heads = job.batches * job.heads, share = job.heads / job.key_heads;
    const int every = query_heads + job.batches * job.key_heads;
    const int which = (int)blockIdx.x % every, part = (int)blockIdx.x / every;
    const bool asks = which < query_heads;
    const int at = asks ? which / share : which - query_heads; /* among the heads of keys */
    const ls_cuda_bf16 *keys =
        job.k.data + at / job.key_heads * job.k.batch + at % job.key_heads * job.k.head;
    extremes of;
    if (asks) {
        const ls_cuda_bf16 *queries =
            job.q.data + which / job.heads * job.q.batch + which % job.heads * job.q.head;
        of = extremes_of<D, true>(queries, job.q.row, keys + job.shift * job.k.row, job.k.row,
                                  part * PART_ROWS, job.rows);
    } else {
        of = extremes_of<D, false>(keys, job.k.row, NULL, 0, part * PART_ROWS, job.keys);
    }
    of.most = __reduce_max_sync(~0u, of.most);
    for (int step = 16; step > 0; step /= 2)
        of.least = fminf(of.least, __shfl_xor_sync(~0u, of.least, step));
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = of;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < WARPS; i++) {
        of.most = max(of.most, of_warps[i].most);
        of.least = fminf(of.least, of_warps[i].least);
    }
    job.norms[(int64_t)which * job.parts + part] = of.most;
    if (asks) job.own[(int64_t)which * job.parts + part] = of.least;
}

/* A warp for each head of each sequence. */
__global__ static void __launch_bounds__(THREADS) reach_kernel(reach_job job) {
    const int at = (int)blockIdx.x * WARPS + (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int query_heads = job.batches * job.heads;
    if (at >= query_heads) return;
    const int head = at % job.heads, key_head = head / (job.heads / job.key_heads);
    const int keys = query_heads + at / job.heads * job.key_heads + key_head;
    uint32_t q = 0, k = 0;
    float own = INFINITY;
    for (int i = lane; i < job.parts; i += 32) {
        q = max(q, job.norms[(int64_t)at * job.parts + i]);
        k = max(k, job.norms[(int64_t)keys * job.parts + i]);
        own = fminf(own, job.own[(int64_t)at * job.parts + i]);
    }
    q = __reduce_max_sync(~0u, q);
    k = __reduce_max_sync(~0u, k);
    for (int step = 16; step > 0; step /= 2) own = fminf(own, __shfl_xor_sync(~0u, own, step));
    if (lane != 0) return;
    const float norms = sqrtf(__uint_as_float(q)) * sqrtf(__uint_as_float(k));
    const float slope = job.slopes[head] * HOPPER_LOG2_E;
    const float reach = ((1.02f * norms - own) * job.factor + 130) / slope + 2;
    /* neither for NaN nor for infinity */
    const bool cut = slope > 0 && reach < (float)job.furthest;
    job.reach[at] = cut ? (int)reach : job.furthest;
}

/* ---- the host's side ---- */

typedef struct reach_space {
    size_t norms, own, bytes; /* behind the reach */
} reach_space;

static int parts_of(const ls_hopper_attention *a) {
    return hopper_pieces(a->T > a->N ? a->T : a->N, PART_ROWS);
}

static reach_space space_of(const ls_hopper_attention *a) {
    const size_t parts = (size_t)parts_of(a) * sizeof(float);
    reach_space space = {};
    space.norms = hopper_space((size_t)(a->B * a->H) * sizeof(int));
    space.own = space.norms + hopper_space((size_t)(a->B * (a->H + a->G)) * parts);
    space.bytes = space.own + hopper_space((size_t)(a->B * a->H) * parts);
    return space;
}

size_t hopper_reach_bytes(const ls_hopper_attention *a) {
    return space_of(a).bytes;
}

/* Whether every query sees the key of its own position, and enough of them for the search. */
static bool worth_it(const ls_hopper_attention *a, int64_t least) {
    return a->slopes != NULL && !a->decays && !a->every_key && a->block == 0 && a->hi >= least &&
           a->T >= least && a->N >= least && a->start >= a->first &&
           a->start + a->T <= a->first + a->N;
}

const int *hopper_reach(ls_cuda *cuda, const ls_hopper_attention *a, void *workspace,
                        int64_t least) {
    if (!worth_it(a, least)) return NULL;
    const reach_space space = space_of(a);
    char *base = (char *)workspace;
    const reach_job job = {.q = a->q,
                           .k = a->k,
                           .rows = (int)a->T,
                           .keys = (int)a->N,
                           .batches = (int)a->B,
                           .heads = (int)a->H,
                           .key_heads = (int)a->G,
                           .shift = (int)(a->start - a->first),
                           .parts = parts_of(a),
                           .factor = a->scale * HOPPER_LOG2_E,
                           .slopes = a->slopes,
                           .norms = (uint32_t *)(base + space.norms),
                           .own = (float *)(base + space.own),
                           .reach = (int *)base,
                           .furthest = (int)(a->start + a->T)};
    const unsigned blocks = (unsigned)(a->B * (a->H + a->G) * job.parts);
    if (a->D == 64)
        norms_kernel<64><<<blocks, THREADS, 0, cuda->stream>>>(job);
    else
        norms_kernel<128><<<blocks, THREADS, 0, cuda->stream>>>(job);
    reach_kernel<<<(unsigned)hopper_pieces(a->B * a->H, WARPS), THREADS, 0, cuda->stream>>>(job);
    ls_cuda_note(cuda, cudaGetLastError(), "attention, reach of slopes");
    return job.reach;
}
