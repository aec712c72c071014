/* Landmark attention. A warp has a query, or in the last step a key; the warps of a block pass over
 * tiles of 32 rows of the other side, a lane having one of them. Sums over a block of keys are kept
 * as an online softmax of their own until the block's landmark says what they count. Gradients of
 * keys need what a query has of a whole block: that is found first, for some blocks at a time, so
 * that memory stays linear. All in f32, in a fixed order. */
#include "tensor/cuda/reduce.cuh"

extern "C" {
#include "tensor/op/landmark_attention/landmark_attention.h"
}

enum { WARPS = 8, THREADS = WARPS * 32, BAND = 16 };

/* [B,rows,heads,width] at any strides. */
struct heads {
    void *data;
    int64_t batch, row, head;
};

static heads heads_of(const ls_tensor *x) {
    if (x == NULL) return {};
    return {ls_data(x), x->stride[0], x->stride[1], x->stride[2]};
}

template <typename T> static __device__ T *row_of(const heads &x, int64_t b, int64_t t, int64_t h) {
    return (T *)x.data + b * x.batch + t * x.row + h * x.head;
}

struct landmark_job {
    int B, T, H, G, K, V, block, blocks;
    float scale;
    heads q, k, v, y, dy, dq, dk, dv;
    float *lse;                   /* [B,H,T] */
    float *inside, *mean, *share; /* [B,H,T,BAND]: of a query and a block */
    int first;                    /* of the band's blocks */
};

static landmark_job job_of(const ls_node *node) {
    const ls_landmark_attributes *about = (const ls_landmark_attributes *)node->attributes;
    const ls_tensor *q = node->in[LS_GROUPED_Q], *v = node->in[LS_GROUPED_V];
    landmark_job j = {};
    j.B = (int)q->dim[0], j.T = (int)q->dim[1], j.H = (int)q->dim[2], j.K = (int)q->dim[3];
    j.G = (int)v->dim[2], j.V = (int)v->dim[3];
    j.block = (int)ls_min(about->block, q->dim[1] + 1);
    j.blocks = (j.T + j.block - 1) / j.block;
    j.scale = (float)about->scale;
    j.q = heads_of(q), j.k = heads_of(node->in[LS_GROUPED_K]), j.v = heads_of(v);
    return j;
}

/* ---- what warps of a block share ---- */

/* `rows` rows from `first` on as floats, `pitch` apart; zeros behind `end`. */
template <typename T>
static __device__ void load(float *to, int pitch, const heads &x, int64_t b, int64_t h, int first,
                            int end, int rows, int width) {
    for (int i = (int)threadIdx.x; i < rows * width; i += THREADS) {
        const int r = i / width, e = i % width;
        to[r * pitch + e] = first + r < end ? ls_cuda_wide(row_of<T>(x, b, first + r, h)[e]) : 0.0f;
    }
}

static __device__ float dot(const float *a, const float *b, int n) {
    float sum[4] = {};
    int e = 0;
    for (; e + 4 <= n; e += 4)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += a[e + i] * b[e + i];
    for (; e < n; e++) sum[0] += a[e] * b[e];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* to[i] (+)= sum over the lanes of weight times their row, of the columns lane, lane + 32, .. */
template <int N>
static __device__ void gather(float (&to)[N], float keep, float weight, const float *rows,
                              int pitch, int width) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] *= keep;
    for (int r = 0; r < 32; r++) {
        const float w = __shfl_sync(0xffffffffu, weight, r);
        if (w == 0) continue;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (lane + 32 * i < width) to[i] += w * rows[r * pitch + lane + 32 * i];
    }
}

/* An online softmax: the largest score so far, and the sum over exp of it. */
struct softmax {
    float most, sum;
    /* Takes in a score of each lane (-INFINITY: none); gives its exponential, and what counts now
     * of what was there before. */
    __device__ float take(float score, float *keep) {
        const float top = fmaxf(most, ls_cuda_warp_max(score));
        *keep = most == -INFINITY ? 0.0f : expf(most - top);
        const float e = score == -INFINITY ? 0.0f : expf(score - top);
        sum = *keep * sum + ls_cuda_warp_sum(e);
        most = top;
        return e;
    }
};

/* The row of a warp's query: blocks hold `WARPS` rows of one block of the text. */
struct place {
    int b, h, g, own, row, seen; /* block, row of the text, rows of its own block that it sees */
    bool there;
};

static __device__ place place_of(const landmark_job &j) {
    const int tiles = (j.block + WARPS - 1) / WARPS, warp = (int)threadIdx.x / 32;
    place at;
    at.own = (int)blockIdx.x / tiles;
    const int inside = (int)blockIdx.x % tiles * WARPS + warp;
    at.b = (int)blockIdx.z, at.h = (int)blockIdx.y, at.g = at.h / (j.H / j.G);
    at.row = at.own * j.block + inside;
    at.there = inside < j.block && at.row < j.T;
    at.seen = at.there ? min(j.block - 1, inside + 1) : 0;
    return at;
}

/* ---- forward ---- */

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) forward_kernel(const landmark_job j) {
    extern __shared__ float memory[];
    float *keys = memory, *values = keys + 32 * (j.K + 1), *query = values + 32 * (j.V + 1);
    const place at = place_of(j);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    query += warp * j.K;
    for (int e = lane; e < j.K && at.there; e += 32)
        query[e] = ls_cuda_wide(row_of<T>(j.q, at.b, at.row, at.h)[e]);
    softmax all = {-INFINITY, 0};
    float out[N] = {};
    for (int c = 0; c <= at.own; c++) {
        softmax inside = {-INFINITY, 0};
        float mean[N] = {}, logit = -INFINITY;
        const int seen = c < at.own ? j.block - 1 : at.seen;
        for (int first = 0; first < j.block; first += 32) {
            const int start = c * j.block + first, end = min((c + 1) * j.block, j.T);
            __syncthreads();
            load<T>(keys, j.K + 1, j.k, at.b, at.g, start, end, 32, j.K);
            load<T>(values, j.V + 1, j.v, at.b, at.g, start, end, 32, j.V);
            __syncthreads();
            const float s = j.scale * dot(query, keys + lane * (j.K + 1), j.K);
            const int mark = j.block - 1 - first;
            if (mark < 32) logit = __shfl_sync(0xffffffffu, s, mark);
            float keep;
            const float e = inside.take(first + lane < seen ? s : -INFINITY, &keep);
            gather(mean, keep, e, values, j.V + 1, j.V);
        }
        if (!at.there) continue;
        const float next = c < at.own ? logit : inside.most, top = fmaxf(all.most, next);
        const float keep = all.most == -INFINITY ? 0.0f : expf(all.most - top);
        const float e = expf(next - top), factor = c < at.own ? e / inside.sum : e;
        all.sum = keep * all.sum + (c < at.own ? e : e * inside.sum);
        all.most = top;
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = keep * out[i] + factor * mean[i];
    }
    if (!at.there) return;
#pragma unroll
    for (int i = 0; i < N; i++)
        if (lane + 32 * i < j.V)
            row_of<T>(j.y, at.b, at.row, at.h)[lane + 32 * i] = ls_cuda_narrow<T>(out[i] / all.sum);
    if (lane == 0) j.lse[((int64_t)at.b * j.H + at.h) * j.T + at.row] = all.most + logf(all.sum);
}

/* ---- gradients of queries, and what a query has of a band of blocks ---- */

/* sum of dO O of a row. */
template <typename T>
static __device__ float mean_of(const landmark_job &j, int b, int row, int h) {
    float sum = 0;
    for (int e = (int)threadIdx.x % 32; e < j.V; e += 32)
        sum += ls_cuda_wide(row_of<T>(j.y, b, row, h)[e]) *
               ls_cuda_wide(row_of<T>(j.dy, b, row, h)[e]);
    return ls_cuda_warp_sum(sum);
}

/* With BANDED the blocks of the band are met and nothing is added up: one N does for all widths. */
template <typename T, int N, bool BANDED>
static __global__ void __launch_bounds__(THREADS) query_kernel(const landmark_job j) {
    extern __shared__ float memory[];
    float *keys = memory, *values = keys + 32 * (j.K + 1), *query = values + 32 * (j.V + 1);
    float *cot = query + WARPS * j.K;
    const place at = place_of(j);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t number = ((int64_t)at.b * j.H + at.h) * j.T + at.row;
    query += warp * j.K, cot += warp * j.V;
    float mean = 0, lse = 0, sum[N] = {};
    if (at.there) {
        for (int e = lane; e < j.K; e += 32)
            query[e] = ls_cuda_wide(row_of<T>(j.q, at.b, at.row, at.h)[e]);
        for (int e = lane; e < j.V; e += 32)
            cot[e] = ls_cuda_wide(row_of<T>(j.dy, at.b, at.row, at.h)[e]);
        mean = mean_of<T>(j, at.b, at.row, at.h);
        lse = j.lse[number];
    }
    const int from = BANDED ? j.first : 0;
    const int to = BANDED ? min(j.first + BAND, at.own) : at.own + 1;
    for (int c = from; c < to; c++) {
        softmax inside = {-INFINITY, 0};
        float plain[N] = {}, turned[N] = {}, gradient = 0, logit = -INFINITY;
        const int seen = c < at.own ? j.block - 1 : at.seen;
        for (int first = 0; first < j.block; first += 32) {
            const int start = c * j.block + first, end = min((c + 1) * j.block, j.T);
            __syncthreads();
            load<T>(keys, j.K + 1, j.k, at.b, at.g, start, end, 32, j.K);
            load<T>(values, j.V + 1, j.v, at.b, at.g, start, end, 32, j.V);
            __syncthreads();
            const float s = j.scale * dot(query, keys + lane * (j.K + 1), j.K);
            const float g = dot(cot, values + lane * (j.V + 1), j.V);
            const int mark = j.block - 1 - first;
            if (mark < 32) logit = __shfl_sync(0xffffffffu, s, mark);
            if (c == at.own) {
                const float p = first + lane < seen ? expf(s - lse) * (g - mean) : 0.0f;
                gather(sum, 1, p * j.scale, keys, j.K + 1, j.K);
                continue;
            }
            float keep;
            const float e = inside.take(first + lane < seen ? s : -INFINITY, &keep);
            gradient = keep * gradient + ls_cuda_warp_sum(e * g);
            if (BANDED) continue;
            gather(plain, keep, e, keys, j.K + 1, j.K);
            gather(turned, keep, e * g, keys, j.K + 1, j.K);
        }
        if (c == at.own || !at.there) continue;
        gradient /= inside.sum;
        if constexpr (BANDED) {
            const int64_t place = number * BAND + c - j.first;
            if (lane > 0) continue;
            j.inside[place] = inside.most + logf(inside.sum);
            j.mean[place] = gradient;
            j.share[place] = expf(logit - lse);
        } else {
            const float p = j.scale * expf(logit - lse);
            const T *mark = row_of<T>(j.k, at.b, (int64_t)(c + 1) * j.block - 1, at.g);
#pragma unroll
            for (int i = 0; i < N; i++)
                if (lane + 32 * i < j.K)
                    sum[i] += p * ((turned[i] - gradient * plain[i]) / inside.sum +
                                   (gradient - mean) * ls_cuda_wide(mark[lane + 32 * i]));
        }
    }
    if constexpr (!BANDED)
        if (at.there)
#pragma unroll
            for (int i = 0; i < N; i++)
                if (lane + 32 * i < j.K)
                    row_of<T>(j.dq, at.b, at.row, at.h)[lane + 32 * i] = ls_cuda_narrow<T>(sum[i]);
}

/* ---- gradients of keys and values ---- */

/* A warp has a key of one of the band's blocks, and passes over all queries that see it. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS) key_kernel(const landmark_job j) {
    extern __shared__ float memory[];
    float *queries = memory, *cots = queries + 32 * (j.K + 1), *key = cots + 32 * (j.V + 1);
    float *value = key + WARPS * j.K;
    const int tiles = (j.block + WARPS - 1) / WARPS, c = j.first + (int)blockIdx.x / tiles;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int inside = (int)blockIdx.x % tiles * WARPS + warp, row = c * j.block + inside;
    const int b = (int)blockIdx.z, g = (int)blockIdx.y, shared = j.H / j.G;
    const bool there = inside < j.block && row < j.T, mark = inside == j.block - 1;
    key += warp * j.K, value += warp * j.V;
    for (int e = lane; e < j.K && there; e += 32)
        key[e] = ls_cuda_wide(row_of<T>(j.k, b, row, g)[e]);
    for (int e = lane; e < j.V && there; e += 32)
        value[e] = ls_cuda_wide(row_of<T>(j.v, b, row, g)[e]);
    float dk[N] = {}, dv[N] = {};
    for (int h = g * shared; h < (g + 1) * shared; h++)
        for (int first = c * j.block; first < j.T; first += 32) {
            __syncthreads();
            load<T>(queries, j.K + 1, j.q, b, h, first, j.T, 32, j.K);
            load<T>(cots, j.V + 1, j.dy, b, h, first, j.T, 32, j.V);
            __syncthreads();
            const int n = first + lane;
            const bool own = n < (c + 1) * j.block;
            const bool seen = there && n < j.T && (own ? !mark && row <= n : true);
            const int64_t number = ((int64_t)b * j.H + h) * j.T + n;
            float p = 0, ds = 0;
            const float s = j.scale * dot(key, queries + lane * (j.K + 1), j.K);
            const float gradient = dot(value, cots + lane * (j.V + 1), j.V);
            float mean = 0;
            if (seen) {
                const T *y = row_of<T>(j.y, b, n, h);
                for (int e = 0; e < j.V && (own || mark); e++)
                    mean += ls_cuda_wide(y[e]) * cots[lane * (j.V + 1) + e];
            }
            if (seen && own) {
                p = expf(s - j.lse[number]);
                ds = p * (gradient - mean);
            } else if (seen) {
                const int64_t place = number * BAND + c - j.first;
                p = mark ? 0.0f : j.share[place] * expf(s - j.inside[place]);
                ds =
                    mark ? j.share[place] * (j.mean[place] - mean) : p * (gradient - j.mean[place]);
            }
            gather(dk, 1, ds * j.scale, queries, j.K + 1, j.K);
            gather(dv, 1, p, cots, j.V + 1, j.V);
        }
    if (!there) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (j.dk.data != NULL && lane + 32 * i < j.K)
            row_of<T>(j.dk, b, row, g)[lane + 32 * i] = ls_cuda_narrow<T>(dk[i]);
        if (j.dv.data != NULL && lane + 32 * i < j.V)
            row_of<T>(j.dv, b, row, g)[lane + 32 * i] = ls_cuda_narrow<T>(dv[i]);
    }
}

/* ---- launches ---- */

static size_t shared_bytes(const landmark_job &j) {
    return (size_t)(32 * (j.K + 1 + j.V + 1) + WARPS * (j.K + j.V)) * sizeof(float);
}

template <typename Kernel>
static void launch(const ls_run *run, Kernel kernel, const landmark_job &j, int heads, int blocks,
                   const char *what) {
    ls_cuda *cuda = ls_cuda_of(run);
    const size_t bytes = shared_bytes(j);
    const int tiles = (j.block + WARPS - 1) / WARPS;
    if (bytes > 48 << 10)
        ls_cuda_note(cuda,
                     cudaFuncSetAttribute((const void *)kernel,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                     what);
    kernel<<<dim3((unsigned)(blocks * tiles), (unsigned)heads, (unsigned)j.B), THREADS, bytes,
             cuda->stream>>>(j);
    ls_cuda_launched(run, what);
}

template <typename T, int N> static void forward_wide(const ls_run *run, const ls_node *node) {
    landmark_job j = job_of(node);
    j.y = heads_of(node->out[0]);
    j.lse = ls_cuda_floats(node->out[1]);
    launch(run, forward_kernel<T, N>, j, j.H, j.blocks, "landmark_attention");
}

template <typename T, int N> static void backward_wide(const ls_run *run, const ls_node *node) {
    landmark_job j = job_of(node);
    const int64_t each = (int64_t)j.B * j.H * j.T * BAND;
    j.y = heads_of(node->in[LS_GROUPED_Y]), j.dy = heads_of(node->in[LS_GROUPED_DY]);
    j.lse = ls_cuda_floats(node->in[LS_GROUPED_LSE]);
    j.dq = heads_of(node->out[0]), j.dk = heads_of(node->out[1]), j.dv = heads_of(node->out[2]);
    j.inside = (float *)run->workspace, j.mean = j.inside + each, j.share = j.mean + each;
    if (j.dq.data != NULL)
        launch(run, query_kernel<T, N, false>, j, j.H, j.blocks, "landmark_attention_grad");
    if (j.dk.data == NULL && j.dv.data == NULL) return;
    for (j.first = 0; j.first < j.blocks; j.first += BAND) {
        launch(run, query_kernel<T, 1, true>, j, j.H, j.blocks, "landmark_attention_grad");
        launch(run, key_kernel<T, N>, j, j.G, (int)ls_min(BAND, j.blocks - j.first),
               "landmark_attention_grad");
    }
}

/* Heads of up to 32 N elements. */
static bool fits(const ls_run *run, const landmark_job &j) {
    if (j.V <= 512 && j.K <= 512 && shared_bytes(j) <= ls_cuda_of(run)->shared_max) return true;
    ls_cuda_note_text(ls_cuda_of(run), "landmark_attention", "heads are too wide");
    return false;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const landmark_job j = job_of(node);
    if (!fits(run, j)) return;
    if (j.V <= 128)
        forward_wide<T, 4>(run, node);
    else
        forward_wide<T, 16>(run, node);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const landmark_job j = job_of(node);
    if (!fits(run, j)) return;
    if (j.V <= 128 && j.K <= 128)
        backward_wide<T, 4>(run, node);
    else
        backward_wide<T, 16>(run, node);
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return 3 * (size_t)ls_count(node->in[LS_GROUPED_LSE]) * BAND * sizeof(float);
}

LS_CUDA_DECLARE_TABLE(landmark_attention);
const ls_kernel LS_CUDA_TABLE(landmark_attention)[] = {
    {"landmark_attention", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"landmark_attention_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, workspace},
    {},
};
