/* Gradients of Mamba-2's recurrence on the device.
 *
 * A block takes one head of a sequence after the other, each from the end of time to its start, in
 * parts between kept states: it computes the states of the part's chunks again, into memory of its
 * own, and goes back over them. What several blocks have a part in (B and C of a group, dt of a
 * head in slices, parameters) goes through sums that are joined in a fixed order. */
#include "tensor/op/ssd_scan/ssd_scan.cuh"

enum {
    SHARED = 160 << 10, /* bytes of shared memory of a block */
    FILLED = 256, /* blocks that fill a device; they take several heads where there are more */
};

/* ---- the shape of the work, known before tensors have their places ---- */

typedef struct split {
    int heads, blocks; /* of a block at most; blocks of a group */
} split;

static split split_of(const ls_ssd_job &s) {
    const int64_t group = s.H / s.G, all = s.batch * s.H * s.slices;
    const int heads = (int)ls_min(ls_max(all / FILLED, 1), group);
    const split result = {heads, (int)ls_ceil_div(group, heads)};
    return result;
}

/* Floats of the workspace. */
typedef struct work {
    float *dB, *dC;        /* [blocks, slices, batch, T, G, N] */
    float *ddt;            /* [slices, batch, T, H] */
    float *dA_log, *dbias; /* [slices, batch, H] */
    float *dD;             /* [batch, H, P] */
    float *states;         /* of each block [LS_SSD_KEPT / rows, slice, N] */
} work;

static work lay_out_work(const ls_ssd_job &s, ls_ssd_space *from) {
    const split by = split_of(s);
    const size_t slices = (size_t)s.slices, rows = (size_t)(s.batch * s.T);
    const size_t shared = (size_t)by.blocks * slices * rows * (size_t)s.G * (size_t)s.N;
    const size_t heads = slices * (size_t)s.batch * (size_t)s.H;
    const size_t blocks = slices * (size_t)s.batch * (size_t)s.G * (size_t)by.blocks;
    work w;
    w.dB = ls_ssd_take<float>(from, shared);
    w.dC = ls_ssd_take<float>(from, shared);
    w.ddt = ls_ssd_take<float>(from, slices * rows * (size_t)s.H);
    w.dA_log = ls_ssd_take<float>(from, heads);
    w.dbias = ls_ssd_take<float>(from, heads);
    w.dD = ls_ssd_take<float>(from, (size_t)s.batch * (size_t)s.H * (size_t)s.P);
    w.states = ls_ssd_take<float>(from, blocks * (size_t)(LS_SSD_KEPT / s.rows) * (size_t)s.slice *
                                            (size_t)s.N);
    return w;
}

template <typename T> struct tiles {
    T *B, *C, *x, *dy, *faded, *lifted, *weights, *dscores;
    T *state, *narrow;               /* S, and Z as an operand */
    float *Z, *scores, *pairs, *out; /* out: [rows, N or channels] */
    float *direct, *between, *entered, *left, *dD;
    float *sums; /* [warps + 2] */
    ls_ssd_steps *steps;
};

template <typename T>
static __host__ __device__ inline tiles<T> lay_out(const ls_ssd_job &s, ls_ssd_space *from) {
    const size_t Q = (size_t)s.rows, P = (size_t)ls_ssd_round(s.slice);
    const size_t along_N = (size_t)ls_ssd_stride(s.N), along_P = (size_t)ls_ssd_stride(s.slice);
    tiles<T> t;
    t.B = ls_ssd_take<T>(from, Q * along_N);
    t.C = ls_ssd_take<T>(from, Q * along_N);
    t.x = ls_ssd_take<T>(from, Q * along_P);
    t.dy = ls_ssd_take<T>(from, Q * along_P);
    t.faded = ls_ssd_take<T>(from, Q * along_P);
    t.lifted = ls_ssd_take<T>(from, Q * along_P);
    t.weights = ls_ssd_take<T>(from, Q * (Q + 8));
    t.dscores = ls_ssd_take<T>(from, Q * (Q + 8));
    t.state = ls_ssd_take<T>(from, P * along_N);
    t.Z = ls_ssd_take<float>(from, P * along_N);
    t.narrow = sizeof(T) == 4 ? (T *)t.Z : ls_ssd_take<T>(from, P * along_N);
    t.scores = ls_ssd_take<float>(from, Q * (Q + 8));
    t.pairs = ls_ssd_take<float>(from, Q * (Q + 8));
    t.out = ls_ssd_take<float>(from, Q * (along_N > along_P ? along_N : along_P));
    t.direct = ls_ssd_take<float>(from, Q);
    t.between = ls_ssd_take<float>(from, Q);
    t.entered = ls_ssd_take<float>(from, Q);
    t.left = ls_ssd_take<float>(from, Q);
    t.dD = ls_ssd_take<float>(from, P);
    t.sums = ls_ssd_take<float>(from, LS_SSD_WARPS + 2);
    t.steps = ls_ssd_take<ls_ssd_steps>(from, 1);
    return t;
}

/* Rows of a chunk, and the bytes of shared memory they take. */
static void choose_rows(ls_ssd_job *s, bool narrow, size_t *bytes) {
    for (s->rows = LS_SSD_CHUNK;; s->rows /= 2) {
        ls_ssd_space space = {};
        if (narrow)
            lay_out<ls_cuda_bf16>(*s, &space);
        else
            lay_out<float>(*s, &space);
        *bytes = space.used;
        if (space.used <= SHARED || s->rows == 16) return;
    }
}

size_t ls_ssd_cuda_backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    size_t bytes;
    ls_ssd_job s = ls_ssd_shape_of(node);
    choose_rows(&s, node->in[LS_SSD_X]->type == LS_BF16, &bytes);
    ls_ssd_space space = {};
    lay_out_work(s, &space);
    return space.used;
}

/* ---- a chunk ---- */

typedef struct gradients {
    ls_ssd_rows dy, dx;
    const float *starts, *dafter; /* dafter may be NULL */
    float *dbefore;               /* may be NULL */
    work w;
    int heads, blocks; /* as in split */
} gradients;

/* The lanes' sum, in every lane. */
static __device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
    for (int by = 16; by > 0; by /= 2) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

/* Of row i and source j: weights L s, the gradient of the score, and in `pairs` L s w; in `scores`
 * that times d_j, for the sums that follow. */
template <typename T> static __device__ void send_pairs(const ls_ssd_job &s, const tiles<T> &t) {
    const int Q = s.rows, stride = Q + 8;
    for (int k = (int)threadIdx.x; k < Q * Q; k += LS_SSD_THREADS) {
        const int j = k % Q, at = k / Q * stride + j;
        float decay = 0;
        if (j <= k / Q) decay = ls_ssd_between(*t.steps, k / Q, j);
        const float weight = decay * t.scores[at], pair = t.pairs[at], step = t.steps->step[j];
        t.weights[at] = ls_cuda_narrow<T>(weight);
        t.dscores[at] = ls_cuda_narrow<T>(decay * pair * step);
        t.pairs[at] = weight * pair;
        t.scores[at] = weight * pair * step;
    }
}

/* direct[j], and scores[t][j] becomes the sum over the rows from t on; then between[t]. */
template <typename T> static __device__ void sum_pairs(const ls_ssd_job &s, const tiles<T> &t) {
    const int Q = s.rows, stride = Q + 8, j = (int)threadIdx.x;
    if (j < Q) {
        float direct = 0, later = 0;
        for (int i = Q - 1; i >= 0; i--) {
            direct += t.pairs[i * stride + j];
            later += t.scores[i * stride + j];
            t.scores[i * stride + j] = later;
        }
        t.direct[j] = direct;
    }
    __syncthreads();
    for (int row = (int)threadIdx.x / 32; row < Q; row += LS_SSD_WARPS) {
        float sum = 0;
        for (int i = (int)threadIdx.x % 32; i < row; i += 32) sum += t.scores[row * stride + i];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) t.between[row] = sum;
    }
}

/* to[i] = by[i] a_i . out_i over a block's channels: a warp for each row. */
template <typename T>
static __device__ void dot_rows(const ls_ssd_job &s, const tiles<T> &t, const T *a, const float *by,
                                float *to) {
    const int stride = ls_ssd_stride(s.slice);
    for (int row = (int)threadIdx.x / 32; row < s.rows; row += LS_SSD_WARPS) {
        float sum = 0;
        for (int p = (int)threadIdx.x % 32; p < s.slice; p += 32)
            sum += ls_cuda_wide(a[row * stride + p]) * t.out[row * stride + p];
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) to[row] = sum * by[row];
    }
}

/* Z . S over the block's part of the state, into the warps' places in sums; S as it was kept. */
template <typename T>
static __device__ void dot_states(const ls_ssd_job &s, const ls_ssd_place &at, const tiles<T> &t,
                                  const float *state) {
    const int stride = ls_ssd_stride(s.N);
    float sum = 0;
    for (int k = (int)threadIdx.x; k < at.count * s.N; k += LS_SSD_THREADS)
        sum += t.Z[k / s.N * stride + k % s.N] * state[k];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) t.sums[threadIdx.x / 32] = sum;
}

/* What the steps get, by the first rows' threads; A_log's and the bias's parts of the chunk are
 * added to sums by the first warp. */
template <typename T>
static __device__ void send_steps(const ls_ssd_job &s, const ls_ssd_place &at, const tiles<T> &t,
                                  int64_t first, int n, float A, float *ddt) {
    const int row = (int)threadIdx.x;
    float whole = 0;
    for (int i = 0; i < LS_SSD_WARPS; i++) whole += t.sums[i];
    if (row < n) {
        float decay = t.between[row] + whole * t.steps->whole;
        for (int j = 0; j < row; j++) decay += t.left[j] * t.steps->step[j];
        for (int i = row; i < n; i++) decay += t.entered[i];
        const float d = (t.direct[row] + t.left[row] + A * decay) * t.steps->slope[row];
        ddt[(at.b * s.T + first + row) * s.H + at.h] = d;
        t.pairs[row] = d; /* nobody reads pairs any more */
        t.pairs[LS_SSD_CHUNK + row] = decay * t.steps->step[row] * A;
    }
    __syncthreads();
    if (row >= 32) return;
    float dbias = 0, dA = 0;
    for (int i = row; i < n; i += 32) {
        dbias += t.pairs[i];
        dA += t.pairs[LS_SSD_CHUNK + i];
    }
    dbias = warp_sum(dbias);
    dA = warp_sum(dA);
    if (row == 0) {
        t.sums[LS_SSD_WARPS] += dA;
        t.sums[LS_SSD_WARPS + 1] += dbias;
    }
}

/* dx from `out`, and the chunk's part of dD. */
template <typename T>
static __device__ void send_rows(const ls_ssd_job &s, const ls_ssd_place &at, const tiles<T> &t,
                                 const ls_ssd_rows &dx, int64_t first, int n) {
    const int stride = ls_ssd_stride(s.slice);
    for (int k = (int)threadIdx.x; k < n * at.count; k += LS_SSD_THREADS) {
        const int i = k / at.count, p = k % at.count;
        ls_ssd_row<T>(dx, at.b, first + i, at.h)[at.first + p] = ls_cuda_narrow<T>(
            t.out[i * stride + p] * t.steps->step[i] +
            ls_ssd_skip(s, at.h, at.first + p) * ls_cuda_wide(t.dy[i * stride + p]));
    }
    const int p = (int)threadIdx.x;
    if (p >= at.count) return;
    float sum = t.dD[p];
    for (int i = 0; i < n; i++)
        sum += ls_cuda_wide(t.dy[i * stride + p]) * ls_cuda_wide(t.x[i * stride + p]);
    t.dD[p] = sum;
}

/* Rows of dB or dC from `out` to the block's sums: the first head stores, others add. */
static __device__ void put_shared(const ls_ssd_job &s, const float *out, int64_t row, int n, int g,
                                  bool add, float *to) {
    const int stride = ls_ssd_stride(s.N);
    for (int k = (int)threadIdx.x; k < n * s.N; k += LS_SSD_THREADS) {
        const int i = k / s.N, e = k % s.N;
        float *cell = to + ((row + i) * s.G + g) * s.N + e;
        *cell = add ? *cell + out[i * stride + e] : out[i * stride + e];
    }
}

template <typename T>
static __device__ void load_chunk(const ls_ssd_job &s, const ls_ssd_place &at, const tiles<T> &t,
                                  int64_t first, int n, float A) {
    ls_ssd_load<T>(s.B, at.b, first, at.g, 0, n, s.N, s.rows, s.N, t.B);
    ls_ssd_load<T>(s.x, at.b, first, at.h, at.first, n, at.count, s.rows, s.slice, t.x);
    ls_ssd_find_steps<T>(s, at, first, n, A, *t.steps);
}

/* States before the chunks of a part, from the one that was kept: as many channels at a time as a
 * chunk has rows. */
template <typename T>
static __device__ void recompute(const ls_ssd_job &s, const ls_ssd_place &at, const tiles<T> &t,
                                 const float *start, int64_t from, int chunks, float A,
                                 float *states) {
    const int P = ls_ssd_round(s.slice), N = ls_ssd_round(s.N), Q = s.rows, each = s.slice * s.N;
    const int along_P = ls_ssd_stride(s.slice), along_N = ls_ssd_stride(s.N);
    for (int k = (int)threadIdx.x; k < at.count * s.N; k += LS_SSD_THREADS) states[k] = start[k];
    for (int chunk = 0; chunk + 1 < chunks; chunk++, states += each) {
        load_chunk(s, at, t, from + (int64_t)chunk * Q, Q, A);
        __syncthreads();
        ls_ssd_scale<T>(t.x, Q, s.slice, t.steps->step, t.steps->leave, t.faded);
        __syncthreads();
        for (int p = 0; p < P; p += Q) {
            const int m = min(Q, P - p);
            ls_ssd_product<T, true, false>(m, N, Q, t.faded + p, along_P, t.B, along_N, t.out,
                                           along_N, false);
            __syncthreads();
            for (int k = (int)threadIdx.x; k < m * s.N; k += LS_SSD_THREADS) {
                const int row = p + k / s.N, place = row * s.N + k % s.N;
                if (row < at.count)
                    states[each + place] =
                        t.steps->whole * states[place] + t.out[k / s.N * along_N + k % s.N];
            }
            __syncthreads();
        }
    }
}

/* Back over a chunk of a head; Z becomes the gradient of the state before it. */
template <typename T>
static __device__ void backward_chunk(const ls_ssd_job &s, const gradients &g,
                                      const ls_ssd_place &at, const tiles<T> &t, int64_t first,
                                      int n, float A, const float *state, bool add, float *dB,
                                      float *dC, float *ddt) {
    const int P = ls_ssd_round(s.slice), N = ls_ssd_round(s.N), Q = s.rows;
    const int along_P = ls_ssd_stride(s.slice), along_N = ls_ssd_stride(s.N), along_Q = Q + 8;
    const int64_t row = at.b * s.T + first;
    load_chunk(s, at, t, first, n, A);
    ls_ssd_load<T>(s.C, at.b, first, at.g, 0, n, s.N, Q, s.N, t.C);
    ls_ssd_load<T>(g.dy, at.b, first, at.h, at.first, n, at.count, Q, s.slice, t.dy);
    ls_ssd_load_state<T>(state, at.count, s.slice, s.N, t.state);
    ls_ssd_narrow(t.Z, s.slice, s.N, t.narrow);
    dot_states(s, at, t, state);
    __syncthreads();
    ls_ssd_product<T, false, true>(Q, Q, N, t.C, along_N, t.B, along_N, t.scores, along_Q, false);
    ls_ssd_product<T, false, true>(Q, Q, P, t.dy, along_P, t.x, along_P, t.pairs, along_Q, false);
    ls_ssd_product<T, false, true>(Q, P, N, t.C, along_N, t.state, along_N, t.out, along_P, false);
    ls_ssd_scale<T>(t.x, Q, s.slice, t.steps->step, t.steps->leave, t.faded);
    ls_ssd_scale<T>(t.dy, Q, s.slice, t.steps->enter, NULL, t.lifted);
    __syncthreads();
    send_pairs(s, t);
    dot_rows(s, t, t.dy, t.steps->enter, t.entered);
    __syncthreads();
    sum_pairs(s, t); /* waits in between */
    ls_ssd_product<T, false, true>(Q, P, N, t.B, along_N, t.narrow, along_N, t.out, along_P, false);
    __syncthreads();
    dot_rows(s, t, t.x, t.steps->leave, t.left);
    __syncthreads();
    for (int k = (int)threadIdx.x; k < Q * P; k += LS_SSD_THREADS)
        t.out[k / P * along_P + k % P] *= t.steps->leave[k / P];
    __syncthreads();
    ls_ssd_product<T, true, false>(Q, P, Q, t.weights, along_Q, t.dy, along_P, t.out, along_P,
                                   true);
    __syncthreads();
    send_rows(s, at, t, g.dx, first, n);
    send_steps(s, at, t, first, n, A, ddt); /* waits in between */
    __syncthreads();
    ls_ssd_product<T, false, false>(Q, N, P, t.faded, along_P, t.narrow, along_N, t.out, along_N,
                                    false);
    __syncthreads();
    ls_ssd_product<T, true, false>(Q, N, Q, t.dscores, along_Q, t.C, along_N, t.out, along_N, true);
    __syncthreads();
    put_shared(s, t.out, row, n, at.g, add, dB);
    __syncthreads();
    ls_ssd_product<T, false, false>(Q, N, P, t.lifted, along_P, t.state, along_N, t.out, along_N,
                                    false);
    __syncthreads();
    ls_ssd_product<T, false, false>(Q, N, Q, t.dscores, along_Q, t.B, along_N, t.out, along_N,
                                    true);
    for (int k = (int)threadIdx.x; k < P * N; k += LS_SSD_THREADS)
        t.Z[k / N * along_N + k % N] *= t.steps->whole;
    __syncthreads();
    put_shared(s, t.out, row, n, at.g, add, dC);
    ls_ssd_product<T, true, false>(P, N, Q, t.lifted, along_P, t.C, along_N, t.Z, along_N, true);
    __syncthreads();
}

template <typename T>
static __device__ void backward_head(const ls_ssd_job &s, const gradients &g,
                                     const ls_ssd_place &at, int slice, const tiles<T> &t, bool add,
                                     float *dB, float *dC, float *states) {
    const int64_t parts = (s.T + LS_SSD_KEPT - 1) / LS_SSD_KEPT;
    const float A = -expf(s.A_log[at.h]);
    float *ddt = g.w.ddt + (int64_t)slice * s.batch * s.T * s.H;
    if (threadIdx.x < 2) t.sums[LS_SSD_WARPS + threadIdx.x] = 0;
    if ((int)threadIdx.x < s.slice) t.dD[threadIdx.x] = 0;
    ls_ssd_load_state(g.dafter == NULL ? NULL : g.dafter + ls_ssd_state(s, at, at.b), at.count,
                      s.slice, s.N, t.Z);
    __syncthreads();
    for (int64_t part = parts - 1; part >= 0; part--) {
        const int64_t from = part * LS_SSD_KEPT;
        const int64_t end = from + LS_SSD_KEPT < s.T ? from + LS_SSD_KEPT : s.T;
        const int chunks = (int)((end - from + s.rows - 1) / s.rows);
        recompute(s, at, t, g.starts + ls_ssd_state(s, at, at.b * parts + part), from, chunks, A,
                  states);
        __syncthreads();
        for (int chunk = chunks - 1; chunk >= 0; chunk--) {
            const int64_t first = from + (int64_t)chunk * s.rows;
            const int n = (int)(end - first < s.rows ? end - first : s.rows);
            backward_chunk(s, g, at, t, first, n, A, states + (int64_t)chunk * s.slice * s.N, add,
                           dB, dC, ddt);
        }
    }
    if (g.dbefore != NULL)
        ls_ssd_store_state(t.Z, at.count, s.N, g.dbefore + ls_ssd_state(s, at, at.b));
    if (threadIdx.x == 0) {
        const int64_t place = ((int64_t)slice * s.batch + at.b) * s.H + at.h;
        g.w.dA_log[place] = t.sums[LS_SSD_WARPS];
        g.w.dbias[place] = t.sums[LS_SSD_WARPS + 1];
    }
    if ((int)threadIdx.x < at.count)
        g.w.dD[((int64_t)at.b * s.H + at.h) * s.P + at.first + threadIdx.x] = t.dD[threadIdx.x];
    __syncthreads(); /* the next head takes all of it */
}

template <typename T>
static __global__ void __launch_bounds__(LS_SSD_THREADS)
    backward_kernel(const ls_ssd_job s, const gradients g) {
    extern __shared__ __align__(128) char memory[];
    ls_ssd_space space = {memory, 0};
    const tiles<T> t = lay_out<T>(s, &space);
    const int group = s.H / s.G, slice = (int)(blockIdx.x % (unsigned)s.slices);
    const int64_t piece = blockIdx.x / (unsigned)s.slices;
    const int block = (int)(piece % g.blocks);
    ls_ssd_place at;
    at.g = (int)(piece / g.blocks % s.G);
    at.b = (int)(piece / g.blocks / s.G);
    at.first = slice * s.slice;
    at.count = min(s.slice, s.P - at.first);
    const int64_t shared = ((int64_t)block * s.slices + slice) * s.batch * s.T * s.G * s.N;
    float *states = g.w.states + (int64_t)blockIdx.x * (LS_SSD_KEPT / s.rows) * s.slice * s.N;
    for (int k = block * g.heads; k < min((block + 1) * g.heads, group); k++) {
        at.h = at.g * group + k;
        backward_head(s, g, at, slice, t, k > block * g.heads, g.w.dB + shared, g.w.dC + shared,
                      states);
    }
}

/* ---- sums ---- */

/* Element i of `count` parts that lie `apart`, into rows [batch,T,heads,width]. */
template <typename T>
static __global__ void __launch_bounds__(LS_SSD_THREADS)
    join_rows(const float *parts, int count, int64_t apart, int64_t T_, int heads, int width,
              const ls_ssd_rows to) {
    const int64_t i = (int64_t)blockIdx.x * LS_SSD_THREADS + threadIdx.x;
    if (i >= apart) return;
    float sum = 0;
    for (int k = 0; k < count; k++) sum += parts[k * apart + i];
    const int64_t row = i / width / heads;
    ls_ssd_row<T>(to, (int)(row / T_), row % T_, (int)(i / width % heads))[i % width] =
        ls_cuda_narrow<T>(sum);
}

/* A parameter's gradient: `each` numbers side by side of every part. */
static __global__ void __launch_bounds__(LS_SSD_THREADS)
    join_parameter(const float *parts, int64_t count, int64_t size, int each, float *to) {
    const int64_t i = (int64_t)blockIdx.x * LS_SSD_THREADS + threadIdx.x;
    if (i >= size) return;
    float sum = 0;
    for (int64_t k = 0; k < count; k++)
        for (int e = 0; e < each; e++) sum += parts[(k * size + i) * each + e];
    to[i] += sum;
}

static unsigned blocks_for(int64_t count) {
    return (unsigned)ls_ceil_div(count, LS_SSD_THREADS);
}

static void add_to(const ls_run *run, const ls_tensor *parameter, const float *parts, int64_t count,
                   int64_t size, int each) {
    if (parameter == NULL) return;
    join_parameter<<<blocks_for(size), LS_SSD_THREADS, 0, ls_cuda_of(run)->stream>>>(
        parts, count, size, each, (float *)ls_param_gradient(run, parameter));
    ls_cuda_launched(run, "ssd_scan_grad");
}

template <typename T> void ls_ssd_backward(const ls_run *run, const ls_node *node) {
    ls_cuda *cuda = ls_cuda_of(run);
    ls_ssd_job s = ls_ssd_job_of(node);
    size_t bytes;
    choose_rows(&s, sizeof(T) == 2, &bytes);
    const split by = split_of(s);
    ls_ssd_space space = {(char *)run->workspace, 0};
    gradients g = {};
    g.w = lay_out_work(s, &space);
    g.dy = ls_ssd_rows_of(node->in[LS_SSD_DY]);
    g.dx = ls_ssd_rows_of(node->out[LS_SSD_DX]);
    g.starts = ls_cuda_floats(node->in[LS_SSD_STARTS]);
    g.dafter = ls_cuda_floats(node->in[LS_SSD_DAFTER]);
    g.dbefore = ls_cuda_floats(node->out[LS_SSD_DBEFORE]);
    g.heads = by.heads;
    g.blocks = by.blocks;
    if (s.batch == 0 || s.T == 0) return;
    ls_cuda_note(cuda,
                 cudaFuncSetAttribute(backward_kernel<T>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                 "ssd_scan_grad");
    backward_kernel<T>
        <<<(unsigned)(s.batch * s.G * by.blocks * s.slices), LS_SSD_THREADS, bytes, cuda->stream>>>(
            s, g);
    ls_cuda_launched(run, "ssd_scan_grad");
    const int64_t rows = s.batch * s.T, maps = rows * s.G * s.N;
    const int shared = by.blocks * s.slices;
    join_rows<T><<<blocks_for(maps), LS_SSD_THREADS, 0, cuda->stream>>>(
        g.w.dB, shared, maps, s.T, s.G, s.N, ls_ssd_rows_of(node->out[LS_SSD_DB]));
    join_rows<T><<<blocks_for(maps), LS_SSD_THREADS, 0, cuda->stream>>>(
        g.w.dC, shared, maps, s.T, s.G, s.N, ls_ssd_rows_of(node->out[LS_SSD_DC]));
    join_rows<T><<<blocks_for(rows * s.H), LS_SSD_THREADS, 0, cuda->stream>>>(
        g.w.ddt, s.slices, rows * s.H, s.T, s.H, 1, ls_ssd_rows_of(node->out[LS_SSD_DDT]));
    ls_cuda_launched(run, "ssd_scan_grad");
    const int64_t pieces = s.slices * s.batch;
    add_to(run, node->in[LS_SSD_A_LOG], g.w.dA_log, pieces, s.H, 1);
    add_to(run, node->in[LS_SSD_BIAS], g.w.dbias, pieces, s.H, 1);
    add_to(run, node->in[LS_SSD_D], g.w.dD, s.batch, s.wide_D ? s.H * (int64_t)s.P : s.H,
           s.wide_D ? 1 : s.P);
}

template void ls_ssd_backward<float>(const ls_run *, const ls_node *);
template void ls_ssd_backward<ls_cuda_bf16>(const ls_run *, const ls_node *);
