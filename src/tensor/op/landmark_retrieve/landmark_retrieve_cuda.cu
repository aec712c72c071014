/* Landmark attention that looks up blocks. A thread block has a query of a head: it scores the
 * landmarks, a tile at a time, of which one thread keeps the best, then passes over the blocks that
 * are seen with an online softmax. What it has at hand does not grow with the text. */
#include "tensor/cuda/reduce.cuh"

extern "C" {
#include "tensor/op/landmark_retrieve/landmark_retrieve.h"
}

enum { THREADS = 128 };

/* [B,rows,heads,width] at any strides. */
struct heads {
    void *data;
    int64_t batch, row, head;
};

static heads heads_of(const ls_tensor *x) {
    return {ls_data(x), x->stride[0], x->stride[1], x->stride[2]};
}

template <typename T> static __device__ T *row_of(const heads &x, int64_t b, int64_t t, int64_t h) {
    return (T *)x.data + b * x.batch + t * x.row + h * x.head;
}

struct retrieve_job {
    int B, T, H, G, K, V, pairs;
    int64_t block, top, local, start, held, end; /* of query 0, the first key, behind the last */
    int most;                                    /* blocks that are chosen at most */
    float scale;
    double factor;
    bool halves;
    heads q, k, v, landmarks, y;
    float *lse; /* [B,H,T], or NULL */
};

/* Frequencies are constants of the program, too many for an argument of a kernel beside the
 * rest. */
struct frequencies {
    double at[LS_PAIRS_MAX / 2];
};
static_assert(sizeof(frequencies) + sizeof(retrieve_job) < 4096, "arguments of a kernel");

struct scratch {
    float *query, *turned, *scores, *sum, *tile, *best; /* K, K, block, V, THREADS, most */
    int64_t *chosen;                                    /* most */
};

static size_t shared_bytes(const retrieve_job &j) {
    return (size_t)j.most * (sizeof(int64_t) + sizeof(float)) +
           (size_t)(2 * j.K + j.block + j.V + THREADS) * sizeof(float);
}

static __device__ scratch scratch_of(const retrieve_job &j, void *memory) {
    scratch d;
    d.chosen = (int64_t *)memory;
    d.best = (float *)(d.chosen + j.most);
    d.query = d.best + j.most;
    d.turned = d.query + j.K;
    d.scores = d.turned + j.K;
    d.sum = d.scores + j.block;
    d.tile = d.sum + j.V;
    return d;
}

/* The query as a block sees it that begins `e` blocks before its own. */
static __device__ void turn(const retrieve_job &j, const frequencies &f, const scratch &d,
                            int64_t e, int64_t row) {
    const int step = j.halves ? 1 : 2, apart = j.halves ? j.pairs : 1;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < j.pairs; i += THREADS) {
        double sine, cosine;
        sincos((double)(e * j.block + row) * f.at[i], &sine, &cosine);
        const float c = (float)(cosine * j.factor), s = (float)(sine * j.factor);
        const float u = d.query[i * step], v = d.query[i * step + apart];
        d.turned[i * step] = u * c - v * s;
        d.turned[i * step + apart] = v * c + u * s;
    }
    for (int i = 2 * j.pairs + (int)threadIdx.x; i < j.K; i += THREADS) d.turned[i] = d.query[i];
    __syncthreads();
}

template <typename T> static __device__ float dot(const float *a, const T *b, int n) {
    float sum[4] = {};
    int e = 0;
    for (; e + 4 <= n; e += 4)
#pragma unroll
        for (int i = 0; i < 4; i++) sum[i] += a[e + i] * ls_cuda_wide(b[e + i]);
    for (; e < n; e++) sum[0] += a[e] * ls_cuda_wide(b[e]);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Keeps the `count` best, falling; of equal ones the later comes first. One thread's. */
static __device__ void offer(const scratch &d, int *held, int count, float score, int64_t block) {
    int at = *held < count ? (*held)++ : count;
    while (at > 0 && d.best[at - 1] <= score) {
        if (at < count) d.best[at] = d.best[at - 1], d.chosen[at] = d.chosen[at - 1];
        at--;
    }
    if (at < count) d.best[at] = score, d.chosen[at] = block;
}

/* Leaves the chosen blocks in their order. */
template <typename T>
static __device__ void choose(const retrieve_job &j, const frequencies &f, const scratch &d,
                              const ls_retrieve_place &at, int b, int g) {
    const int64_t k = at.chosen, older = at.before - k;
    int held = 0;
    if (older == 0) {
        for (int64_t c = (int)threadIdx.x; c < k; c += THREADS) d.chosen[c] = c;
        __syncthreads();
        return;
    }
    turn(j, f, d, at.local + k + 1, at.row); /* where all older blocks are */
    for (int64_t first = 0; first < older; first += THREADS) {
        const int64_t c = first + (int)threadIdx.x, end = min(older, first + THREADS);
        if (c < end) d.tile[threadIdx.x] = dot(d.turned, row_of<T>(j.landmarks, b, c, g), j.K);
        __syncthreads();
        for (int64_t i = first; threadIdx.x == 0 && i < end; i++)
            offer(d, &held, (int)k, d.tile[i - first], i);
        __syncthreads();
    }
    for (int64_t c = older; c < at.before; c++) {
        turn(j, f, d, at.local + k - (c - older), at.row);
        if (threadIdx.x == 0)
            offer(d, &held, (int)k, dot(d.turned, row_of<T>(j.landmarks, b, c, g), j.K), c);
    }
    if (threadIdx.x == 0) /* in time's order */
        for (int64_t i = 1; i < k; i++) {
            const int64_t block = d.chosen[i];
            int64_t to = i;
            for (; to > 0 && d.chosen[to - 1] > block; to--) d.chosen[to] = d.chosen[to - 1];
            d.chosen[to] = block;
        }
    __syncthreads();
}

/* The shared softmax so far. */
struct softmax {
    float most, sum;
};

/* Adds a block: `seen` of its rows, and with `earlier` its landmark, which says what they count. */
template <typename T>
static __device__ void see(const retrieve_job &j, const scratch &d, softmax *all, int64_t block,
                           int seen, bool earlier, int b, int g) {
    const int64_t first = block * j.block - j.held;
    float most = -INFINITY, sum = 0;
    for (int i = (int)threadIdx.x; i < seen + earlier; i += THREADS) {
        d.scores[i] = j.scale * dot(d.turned, row_of<T>(j.k, b, first + i, g), j.K);
        if (i < seen) most = fmaxf(most, d.scores[i]);
    }
    most = ls_cuda_block_max<THREADS>(most);
    const float logit = earlier ? d.scores[seen] : most;
    for (int i = (int)threadIdx.x; i < seen; i += THREADS)
        sum += d.scores[i] = expf(d.scores[i] - most);
    sum = ls_cuda_block_sum<THREADS>(sum);
    const float top = fmaxf(all->most, logit), e = expf(logit - top);
    const float keep = all->most == -INFINITY ? 0.0f : expf(all->most - top);
    all->sum = keep * all->sum + (earlier ? e : e * sum);
    all->most = top;
    for (int c = (int)threadIdx.x; c < j.V; c += THREADS) {
        float value = 0;
        for (int i = 0; i < seen; i++)
            value += d.scores[i] * ls_cuda_wide(row_of<T>(j.v, b, first + i, g)[c]);
        d.sum[c] = keep * d.sum[c] + (earlier ? e / sum : e) * value;
    }
    __syncthreads();
}

/* Of keys in parts other programs see the other blocks. */
static __device__ bool holds(const retrieve_job &j, int64_t block) {
    return block * j.block >= j.held && block * j.block < j.end;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    retrieve_kernel(const retrieve_job j, const frequencies f) {
    extern __shared__ int64_t memory[];
    const scratch d = scratch_of(j, memory);
    const int row = (int)blockIdx.x, h = (int)blockIdx.y, b = (int)blockIdx.z, g = h / (j.H / j.G);
    const ls_retrieve_place at = ls_retrieve_place_of(j.block, j.top, j.local, j.start + row);
    for (int e = (int)threadIdx.x; e < j.K; e += THREADS)
        d.query[e] = ls_cuda_wide(row_of<T>(j.q, b, row, h)[e]);
    for (int e = (int)threadIdx.x; e < j.V; e += THREADS) d.sum[e] = 0;
    softmax all = {-INFINITY, 0};
    choose<T>(j, f, d, at, b, g);
    for (int64_t i = 0; i < at.chosen; i++) {
        const int64_t block = d.chosen[i], slot = i + (block >= at.before - at.chosen);
        if (!holds(j, block)) continue;
        turn(j, f, d, at.local + at.chosen + 1 - slot, at.row);
        see<T>(j, d, &all, block, (int)j.block - 1, true, b, g);
    }
    for (int64_t e = at.local; e > 0; e--) {
        if (!holds(j, at.before + at.local - e)) continue;
        turn(j, f, d, e, at.row);
        see<T>(j, d, &all, at.before + at.local - e, (int)j.block - 1, true, b, g);
    }
    if (holds(j, at.before + at.local)) {
        turn(j, f, d, 0, at.row);
        see<T>(j, d, &all, at.before + at.local, (int)min(j.block - 1, at.row + 1), false, b, g);
    }
    const float sum = all.most == -INFINITY ? 1.0f : all.sum; /* nothing is seen: zeros */
    for (int e = (int)threadIdx.x; e < j.V; e += THREADS)
        row_of<T>(j.y, b, row, h)[e] = ls_cuda_narrow<T>(d.sum[e] / sum);
    if (j.lse != NULL && threadIdx.x == 0)
        j.lse[((int64_t)b * j.H + h) * j.T + row] = all.most + logf(sum);
}

static retrieve_job job_of(const ls_run *run, const ls_node *node) {
    const ls_retrieve_attributes *at = (const ls_retrieve_attributes *)node->attributes;
    const ls_tensor *q = node->in[LS_RETRIEVE_Q], *k = node->in[LS_RETRIEVE_K];
    const ls_tensor *v = node->in[LS_RETRIEVE_V];
    retrieve_job j = {};
    j.B = (int)q->dim[0], j.T = (int)q->dim[1], j.H = (int)q->dim[2], j.K = (int)q->dim[3];
    j.G = (int)k->dim[2], j.V = (int)v->dim[3];
    j.pairs = (int)at->about.rotary.pairs;
    j.block = at->about.block, j.top = at->about.top, j.local = at->about.local;
    const ls_extent held = ls_cache_extent(run, k);
    j.start = run->start, j.held = held.first, j.end = held.first + held.count;
    j.lse = node->out[1] == NULL ? NULL : (float *)ls_data(node->out[1]);
    j.most = (int)ls_min(at->about.top, at->most);
    j.scale = (float)at->about.scale;
    j.factor = at->about.rotary.factor, j.halves = at->about.rotary.halves;
    j.q = heads_of(q), j.k = heads_of(k), j.v = heads_of(v);
    j.landmarks = heads_of(node->in[LS_RETRIEVE_LANDMARKS]), j.y = heads_of(node->out[0]);
    return j;
}

template <typename T> static void retrieve(const ls_run *run, const ls_node *node) {
    const ls_retrieve_attributes *at = (const ls_retrieve_attributes *)node->attributes;
    const retrieve_job j = job_of(run, node);
    ls_cuda *cuda = ls_cuda_of(run);
    const size_t bytes = shared_bytes(j);
    frequencies f = {};
    if (bytes > cuda->shared_max || (size_t)j.pairs > sizeof f.at / sizeof f.at[0]) {
        ls_cuda_note_text(cuda, "landmark_retrieve", "the blocks, or their number, are too large");
        return;
    }
    memcpy(f.at, at->about.rotary.frequency, (size_t)j.pairs * sizeof f.at[0]);
    if (bytes > 48 << 10)
        ls_cuda_note(cuda,
                     cudaFuncSetAttribute(retrieve_kernel<T>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                     "landmark_retrieve");
    retrieve_kernel<T>
        <<<dim3((unsigned)j.T, (unsigned)j.H, (unsigned)j.B), THREADS, bytes, cuda->stream>>>(j, f);
    ls_cuda_launched(run, "landmark_retrieve");
}

/* ---- the landmarks of a chunk ---- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(heads x, heads y, int width, int64_t block, int64_t start, int64_t count) {
    const int64_t c = blockIdx.x, b = blockIdx.y, row = (start / block + c + 1) * block - 1 - start;
    for (int e = (int)threadIdx.x; e < width; e += THREADS)
        row_of<T>(y, b, c, 0)[e] = c < count ? row_of<T>(x, b, row, 0)[e] : ls_cuda_narrow<T>(0);
}

template <typename T> static void rows(const ls_run *run, const ls_node *node) {
    const int64_t block = *(const int64_t *)node->attributes;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const int64_t first = run->start / block, count = (run->start + x->dim[1]) / block - first;
    ls_extent_set(run, y, first, count);
    rows_kernel<T>
        <<<dim3((unsigned)y->dim[1], (unsigned)y->dim[0]), THREADS, 0, ls_cuda_of(run)->stream>>>(
            heads_of(x), heads_of(y), (int)(x->dim[2] * x->dim[3]), block, run->start, count);
    ls_cuda_launched(run, "landmark_rows");
}

LS_CUDA_DECLARE_TABLE(landmark_retrieve);
const ls_kernel LS_CUDA_TABLE(landmark_retrieve)[] = {
    {"landmark_retrieve", {NULL, retrieve<float>, retrieve<ls_cuda_bf16>}, NULL},
    {"landmark_rows", {NULL, rows<float>, rows<ls_cuda_bf16>}, NULL},
    {},
};
