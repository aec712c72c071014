/* A walk of the linear recurrence with plain arithmetic in f32: any widths, types and strides. A
 * block has a head of a sequence and 32 columns of its state, one for each lane; the state stays in
 * shared memory while chunks of 32 rows pass by. */
#include "tensor/op/linear_scan/linear_scan.cuh"

enum { ROWS = 32, COLUMNS = 32, WARPS = 8, THREADS = 32 * WARPS, EACH = ROWS / WARPS };
/* columns of shared rows that lanes read one below the other: an odd stride */
static __host__ __device__ int stride_of(int count) {
    return count | 1;
}

/* Floats of shared memory for a part of the depth. */
typedef struct shared_plain {
    float *state, *query, *key, *value, *weights, *power, *add, *root;
} shared_plain;
static __host__ __device__ int shared_floats(int count) {
    return count * COLUMNS + 2 * ROWS * stride_of(count) + EACH + ROWS * COLUMNS +
           ROWS * (ROWS + 1) + (ROWS + 1) + 2 * ROWS;
}
static __device__ shared_plain shared_of(float *memory, int count) {
    shared_plain s;
    s.state = memory;
    s.query = s.state + count * COLUMNS;
    s.key = s.query + ROWS * stride_of(count);
    s.value = s.key + ROWS * stride_of(count) + EACH; /* keys are read a few beyond their end */
    s.weights = s.value + ROWS * COLUMNS;
    s.power = s.weights + ROWS * (ROWS + 1);
    s.add = s.power + ROWS + 1;
    s.root = s.add + ROWS;
    return s;
}

/* Where a block is. */
typedef struct place {
    int b, h, column; /* the lane's */
    float log_decay;
} place;

template <typename T>
static __device__ float element(const ls_linear_rows &x, int b, int64_t t, int h, int column) {
    if (column < x.width)
        return x.data == NULL ? 0 : ls_cuda_wide(ls_linear_row<const T>(x, b, t, h)[column]);
    return x.ended && column == x.width ? ls_linear_end(x, b, t, h) : 0;
}

/* Rows of the depth's columns, times powers of the features' decays: sign 1, -1, or 0 for none. */
template <typename T>
static __device__ void load_rows(const ls_linear_walk &walk, const ls_linear_rows &x,
                                 const place &at, int64_t done, int n, int sign, float *to) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int m = warp; m < n; m += WARPS) {
        const int64_t t = ls_linear_time(walk, done + m);
        for (int c = lane; c < walk.count; c += 32) {
            float value = element<T>(x, at.b, t, at.h, walk.first + c);
            if (sign != 0)
                value *= ls_linear_power(walk.feature[walk.first + c],
                                         sign * (m + 1 - (int)walk.backwards));
            to[m * stride_of(walk.count) + c] = value;
        }
    }
}

template <typename T>
static __device__ void load_values(const ls_linear_walk &walk, const place &at, int64_t done, int n,
                                   bool fading, float *to) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    for (int m = warp; m < n; m += WARPS) {
        float value = element<T>(walk.value, at.b, ls_linear_time(walk, done + m), at.h, at.column);
        if (fading && at.column < walk.width)
            value *= ls_linear_power(walk.feature[at.column], -(m + 1 - (int)walk.backwards));
        to[m * COLUMNS + lane] = value;
    }
}

/* weights[m][j] = g^(m-j) a_m . b_j (r_j) for j <= m, 0 beyond: a warp's own rows. */
static __device__ void weigh(const ls_linear_walk &walk, const shared_plain &s, int n) {
    const int row = (int)threadIdx.x / 32 * EACH, lane = (int)threadIdx.x % 32;
    const int stride = stride_of(walk.count);
    float sum[EACH] = {0};
    for (int c = 0; c < walk.count; c++) {
        const float key = s.key[lane * stride + c];
#pragma unroll
        for (int u = 0; u < EACH; u++) sum[u] += s.query[(row + u) * stride + c] * key;
    }
    const float root = walk.roots == LS_LINEAR_SOURCE_ROOTS && lane < n ? s.root[lane] : 1;
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        const bool past = lane <= row + u && row + u < n; /* what lies beyond was never set */
        s.weights[(row + u) * (ROWS + 1) + lane] =
            past ? sum[u] * s.power[row + u - lane] * root : 0;
    }
}

template <typename T>
static __device__ void put(const ls_linear_walk &walk, const place &at, int64_t t, float value) {
    if (at.column < walk.out.width) {
        T *to = ls_linear_row<T>(walk.out, at.b, t, at.h) + at.column;
        *to = ls_cuda_narrow<T>(walk.add ? ls_cuda_wide(*to) + value : value);
    } else if (at.column < walk.width && walk.out.ends != NULL) {
        float *to = ls_linear_end_place(walk.out, at.b, t, at.h);
        *to = walk.add ? *to + value : value;
    }
}

template <typename T>
static __device__ void results(const ls_linear_walk &walk, const shared_plain &s, const place &at,
                               int64_t done, int n, bool fading) {
    const int row = (int)threadIdx.x / 32 * EACH, lane = (int)threadIdx.x % 32;
    const int stride = stride_of(walk.count), ahead = walk.backwards;
    float sum[EACH] = {0};
    if (row >= n) return;
    for (int c = 0; c < walk.count; c++) {
        const float state = s.state[c * COLUMNS + lane];
#pragma unroll
        for (int u = 0; u < EACH; u++) sum[u] += s.query[(row + u) * stride + c] * state;
    }
#pragma unroll
    for (int u = 0; u < EACH; u++) sum[u] *= s.power[row + u + 1 - ahead];
    for (int j = 0; j < min(n, row + EACH); j++) {
        const float value = s.value[j * COLUMNS + lane];
#pragma unroll
        for (int u = 0; u < EACH; u++) sum[u] += s.weights[(row + u) * (ROWS + 1) + j] * value;
    }
#pragma unroll
    for (int u = 0; u < EACH; u++) {
        if (row + u >= n) break;
        if (walk.roots == LS_LINEAR_QUERY_ROOTS) sum[u] *= s.root[row + u];
        if (fading && at.column < walk.width)
            sum[u] *= ls_linear_power(walk.feature[at.column], row + u + 1 - ahead);
        put<T>(walk, at, ls_linear_time(walk, done + row + u), sum[u]);
    }
}

/* The state goes on over a chunk. */
static __device__ void advance(const ls_linear_walk &walk, const shared_plain &s, const place &at,
                               int n) {
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int stride = stride_of(walk.count);
    for (int c = warp * EACH; c < walk.count; c += WARPS * EACH) {
        float sum[EACH];
#pragma unroll
        for (int u = 0; u < EACH; u++)
            sum[u] = c + u < walk.count ? s.state[(c + u) * COLUMNS + lane] * s.power[n] : 0;
        for (int j = 0; j < n; j++) {
            const float value = s.value[j * COLUMNS + lane] * s.add[j];
#pragma unroll
            for (int u = 0; u < EACH; u++) sum[u] += s.key[j * stride + c + u] * value;
        }
#pragma unroll
        for (int u = 0; u < EACH; u++) {
            if (c + u >= walk.count) break;
            if (walk.feature != NULL && walk.feature_along_depth)
                sum[u] *= ls_linear_power(walk.feature[walk.first + c + u], n);
            if (walk.feature != NULL && !walk.feature_along_depth && at.column < walk.width)
                sum[u] *= ls_linear_power(walk.feature[at.column], n);
            s.state[(c + u) * COLUMNS + lane] = sum[u];
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) walk_plain(const ls_linear_walk walk) {
    extern __shared__ float memory[];
    const shared_plain s = shared_of(memory, walk.count);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int slices = (walk.width + COLUMNS - 1) / COLUMNS;
    const int piece = (int)(blockIdx.x / (unsigned)slices);
    place at = {piece / walk.H, piece % walk.H,
                (int)(blockIdx.x % (unsigned)slices) * COLUMNS + lane, 0};
    at.log_decay = walk.log_decay[at.h];
    const ls_linear_steps strip = ls_linear_strip(walk);
    const bool there = at.column < walk.width;
    const bool deep = walk.feature != NULL && walk.feature_along_depth;
    const bool fading = walk.feature != NULL && !walk.feature_along_depth;
    const int64_t state = ls_linear_state(walk, at.b, at.h) + at.column * walk.along_width;
    for (int c = warp; c < walk.count; c += WARPS)
        s.state[c * COLUMNS + lane] =
            there && walk.before != NULL ? walk.before[state + c * walk.along_depth] : 0;
    if (threadIdx.x <= ROWS) s.power[threadIdx.x] = ls_linear_power(at.log_decay, (int)threadIdx.x);
    for (int64_t done = strip.begin; done < strip.end; done += ROWS) {
        const int n = (int)(strip.end - done < ROWS ? strip.end - done : ROWS);
        __syncthreads();
        if (!walk.states_only) load_rows<T>(walk, walk.query, at, done, n, deep ? 1 : 0, s.query);
        load_rows<T>(walk, walk.key, at, done, n, deep ? -1 : 0, s.key);
        load_values<T>(walk, at, done, n, fading, s.value);
        if ((int)threadIdx.x < n) {
            const int m = (int)threadIdx.x;
            const float root =
                walk.roots == LS_LINEAR_NO_ROOTS
                    ? 1
                    : ls_linear_root(walk, at.log_decay, at.b, ls_linear_time(walk, done + m));
            s.root[m] = root;
            s.add[m] = s.power[n - 1 - m + (int)walk.backwards] *
                       (walk.roots == LS_LINEAR_SOURCE_ROOTS ? root : 1);
        }
        __syncthreads();
        if (!walk.states_only) {
            weigh(walk, s, n);
            __syncwarp(); /* a warp reads the weights that it wrote */
            results<T>(walk, s, at, done, n, fading);
            __syncthreads();
        }
        advance(walk, s, at, n);
    }
    __syncthreads();
    if (walk.after == NULL || !there) return;
    for (int c = warp; c < walk.count; c += WARPS)
        walk.after[state + c * walk.along_depth] = s.state[c * COLUMNS + lane];
}

int ls_linear_plain_depth(const ls_cuda *cuda) {
    return (size_t)shared_floats(256) * sizeof(float) <= cuda->shared_max ? 256 : 128;
}

template <typename T>
void ls_linear_plain(const ls_run *run, const ls_linear_walk *walk, const char *what) {
    const size_t bytes = (size_t)shared_floats(walk->count) * sizeof(float);
    const int64_t columns = (int64_t)walk->B * walk->H * ls_ceil_div(walk->width, COLUMNS);
    const dim3 blocks((unsigned)columns, (unsigned)walk->strips);
    ls_cuda_note(ls_cuda_of(run),
                 cudaFuncSetAttribute(walk_plain<T>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      (int)bytes),
                 what);
    walk_plain<T><<<blocks, THREADS, bytes, ls_cuda_of(run)->stream>>>(*walk);
    ls_cuda_launched(run, what);
}

template void ls_linear_plain<float>(const ls_run *, const ls_linear_walk *, const char *);
template void ls_linear_plain<ls_cuda_bf16>(const ls_run *, const ls_linear_walk *, const char *);
