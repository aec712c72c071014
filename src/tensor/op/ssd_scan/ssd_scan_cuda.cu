/* Mamba-2's recurrence on the device: the way forward. */
#include "tensor/op/ssd_scan/ssd_scan.cuh"

enum {
    FEW = 16,          /* fewer rows in all go one by one */
    SHARED = 99 << 10, /* bytes of shared memory of a block, so that two find room on a processor */
};

ls_ssd_job ls_ssd_shape_of(const ls_node *node) {
    const ls_ssd_attributes *about = (const ls_ssd_attributes *)node->attributes;
    const ls_tensor *x = node->in[LS_SSD_X], *B = node->in[LS_SSD_B], *D = node->in[LS_SSD_D];
    ls_ssd_job s = {};
    s.batch = x->dim[0];
    s.T = x->dim[1];
    s.H = (int)x->dim[2];
    s.G = (int)B->dim[2];
    s.P = (int)x->dim[3];
    s.N = (int)B->dim[3];
    const int most = (int)ls_min(ls_max(LS_SSD_SLICE / ls_ssd_round(s.N), 16), 64);
    s.slices = (int)ls_ceil_div(s.P, most / 16 * 16);
    s.slice = (int)ls_ceil_div(s.P, s.slices);
    s.dt_min = (float)about->dt_min;
    s.dt_max = (float)about->dt_max;
    s.wide_D = D != NULL && ls_count(D) != s.H;
    return s;
}

ls_ssd_job ls_ssd_job_of(const ls_node *node) {
    ls_ssd_job s = ls_ssd_shape_of(node);
    s.x = ls_ssd_rows_of(node->in[LS_SSD_X]);
    s.dt = ls_ssd_rows_of(node->in[LS_SSD_DT]);
    s.B = ls_ssd_rows_of(node->in[LS_SSD_B]);
    s.C = ls_ssd_rows_of(node->in[LS_SSD_C]);
    s.A_log = ls_cuda_floats(node->in[LS_SSD_A_LOG]);
    s.D = ls_cuda_floats(node->in[LS_SSD_D]);
    s.bias = ls_cuda_floats(node->in[LS_SSD_BIAS]);
    s.before = ls_cuda_floats(node->in[LS_SSD_BEFORE]);
    return s;
}

/* ---- few rows: a warp has a channel, its lanes the states ---- */

template <typename T>
static __global__ void __launch_bounds__(LS_SSD_THREADS)
    few_kernel(const ls_ssd_job s, const ls_ssd_rows y, float *after, float *kept) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * LS_SSD_WARPS + threadIdx.x / 32;
    if (row >= s.batch * s.H * s.P) return;
    const int p = (int)(row % s.P), h = (int)(row / s.P % s.H), b = (int)(row / s.P / s.H);
    const int g = h / (s.H / s.G);
    const float A = -expf(s.A_log[h]);
    for (int n = lane; n < s.N; n += 32) {
        after[row * s.N + n] = s.before[row * s.N + n];
        if (kept != NULL) kept[row * s.N + n] = s.before[row * s.N + n];
    }
    for (int64_t t = 0; t < s.T; t++) {
        float slope, in = ls_cuda_wide(*ls_ssd_row<const T>(s.dt, b, t, h));
        if (s.bias != NULL) in += s.bias[h];
        const float raw = ls_ssd_softplus(in, &slope);
        const float step = raw < s.dt_min ? s.dt_min : raw > s.dt_max ? s.dt_max : raw;
        const float decay = expf(step * A), x = ls_cuda_wide(ls_ssd_row<const T>(s.x, b, t, h)[p]);
        const T *B = ls_ssd_row<const T>(s.B, b, t, g), *C = ls_ssd_row<const T>(s.C, b, t, g);
        float out = 0;
        for (int n = lane; n < s.N; n += 32) {
            const float state = decay * after[row * s.N + n] + step * x * ls_cuda_wide(B[n]);
            after[row * s.N + n] = state;
            out += state * ls_cuda_wide(C[n]);
        }
#pragma unroll
        for (int by = 16; by > 0; by /= 2) out += __shfl_xor_sync(0xffffffffu, out, by);
        if (lane == 0)
            ls_ssd_row<T>(y, b, t, h)[p] = ls_cuda_narrow<T>(out + ls_ssd_skip(s, h, p) * x);
    }
}

/* ---- chunks ---- */

template <typename T> struct tiles {
    T *B, *C, *x, *faded, *weights, *narrow; /* narrow: the state as an operand */
    float *state, *scores, *out;
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
    t.faded = ls_ssd_take<T>(from, Q * along_P);
    t.weights = ls_ssd_take<T>(from, Q * (Q + 8));
    t.state = ls_ssd_take<float>(from, P * along_N);
    t.narrow = sizeof(T) == 4 ? (T *)t.state : ls_ssd_take<T>(from, P * along_N);
    t.scores = ls_ssd_take<float>(from, Q * (Q + 8));
    t.out = ls_ssd_take<float>(from, Q * along_P);
    t.steps = ls_ssd_take<ls_ssd_steps>(from, 1);
    return t;
}

template <typename T> static __device__ void weigh(const ls_ssd_job &s, const tiles<T> &t) {
    const int Q = s.rows, stride = Q + 8;
    for (int k = (int)threadIdx.x; k < Q * Q; k += LS_SSD_THREADS) {
        const int i = k / Q, j = k % Q;
        float weight = 0;
        if (j <= i)
            weight = t.scores[i * stride + j] * ls_ssd_between(*t.steps, i, j) * t.steps->step[j];
        t.weights[i * stride + j] = ls_cuda_narrow<T>(weight);
    }
}

template <typename T>
static __global__ void __launch_bounds__(LS_SSD_THREADS)
    forward_kernel(const ls_ssd_job s, const ls_ssd_rows y, float *after, float *kept) {
    extern __shared__ __align__(128) char memory[];
    ls_ssd_space space = {memory, 0};
    const tiles<T> t = lay_out<T>(s, &space);
    const int64_t piece = blockIdx.x / (unsigned)s.slices;
    ls_ssd_place at;
    at.b = (int)(piece / s.H);
    at.h = (int)(piece % s.H);
    at.g = at.h / (s.H / s.G);
    at.first = (int)(blockIdx.x % (unsigned)s.slices) * s.slice;
    at.count = min(s.slice, s.P - at.first);
    const int Q = s.rows, P = ls_ssd_round(s.slice), N = ls_ssd_round(s.N);
    const int along_P = ls_ssd_stride(s.slice), along_N = ls_ssd_stride(s.N), along_Q = Q + 8;
    const int64_t parts = (s.T + LS_SSD_KEPT - 1) / LS_SSD_KEPT;
    const float A = -expf(s.A_log[at.h]);
    ls_ssd_load_state(s.before + ls_ssd_state(s, at, at.b), at.count, s.slice, s.N, t.state);
    __syncthreads();
    for (int64_t first = 0; first < s.T; first += Q) {
        const int n = (int)(s.T - first < Q ? s.T - first : Q);
        if (kept != NULL && first % LS_SSD_KEPT == 0)
            ls_ssd_store_state(t.state, at.count, s.N,
                               kept + ls_ssd_state(s, at, at.b * parts + first / LS_SSD_KEPT));
        ls_ssd_narrow(t.state, s.slice, s.N, t.narrow);
        ls_ssd_load<T>(s.B, at.b, first, at.g, 0, n, s.N, Q, s.N, t.B);
        ls_ssd_load<T>(s.C, at.b, first, at.g, 0, n, s.N, Q, s.N, t.C);
        ls_ssd_load<T>(s.x, at.b, first, at.h, at.first, n, at.count, Q, s.slice, t.x);
        ls_ssd_find_steps<T>(s, at, first, n, A, *t.steps);
        __syncthreads();
        ls_ssd_product<T, false, true>(Q, Q, N, t.C, along_N, t.B, along_N, t.scores, along_Q,
                                       false);
        ls_ssd_product<T, false, true>(Q, P, N, t.C, along_N, t.narrow, along_N, t.out, along_P,
                                       false);
        __syncthreads();
        weigh(s, t);
        ls_ssd_scale<T>(t.x, Q, s.slice, t.steps->step, t.steps->leave, t.faded);
        for (int k = (int)threadIdx.x; k < Q * P; k += LS_SSD_THREADS)
            t.out[k / P * along_P + k % P] *= t.steps->enter[k / P];
        for (int k = (int)threadIdx.x; k < P * N; k += LS_SSD_THREADS)
            t.state[k / N * along_N + k % N] *= t.steps->whole;
        __syncthreads();
        ls_ssd_product<T, false, false>(Q, P, Q, t.weights, along_Q, t.x, along_P, t.out, along_P,
                                        true);
        ls_ssd_product<T, true, false>(P, N, Q, t.faded, along_P, t.B, along_N, t.state, along_N,
                                       true);
        __syncthreads();
        for (int k = (int)threadIdx.x; k < n * at.count; k += LS_SSD_THREADS) {
            const int i = k / at.count, p = k % at.count;
            const float x = ls_cuda_wide(t.x[i * along_P + p]);
            ls_ssd_row<T>(y, at.b, first + i, at.h)[at.first + p] =
                ls_cuda_narrow<T>(t.out[i * along_P + p] + ls_ssd_skip(s, at.h, at.first + p) * x);
        }
        __syncthreads(); /* x and the state are written anew */
    }
    ls_ssd_store_state(t.state, at.count, s.N, after + ls_ssd_state(s, at, at.b));
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda *cuda = ls_cuda_of(run);
    ls_ssd_job s = ls_ssd_job_of(node);
    const ls_ssd_rows y = ls_ssd_rows_of(node->out[LS_SSD_Y]);
    float *after = ls_cuda_floats(node->out[LS_SSD_AFTER]);
    float *kept = ls_cuda_floats(node->out[LS_SSD_KEPT_STATES]);
    ls_cuda_steady(run);
    if (s.batch == 0 || s.T == 0) return;
    if (s.T < FEW) {
        const int64_t blocks = ls_ceil_div(s.batch * s.H * s.P, LS_SSD_WARPS);
        few_kernel<T><<<(unsigned)blocks, LS_SSD_THREADS, 0, cuda->stream>>>(s, y, after, kept);
        ls_cuda_launched(run, "ssd_scan");
        return;
    }
    ls_ssd_space space;
    for (s.rows = LS_SSD_CHUNK;; s.rows /= 2) {
        space = {};
        lay_out<T>(s, &space);
        if (space.used <= SHARED || s.rows == 16) break;
    }
    ls_cuda_note(cuda,
                 cudaFuncSetAttribute(forward_kernel<T>,
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, (int)space.used),
                 "ssd_scan");
    forward_kernel<T>
        <<<(unsigned)(s.batch * s.H * s.slices), LS_SSD_THREADS, space.used, cuda->stream>>>(
            s, y, after, kept);
    ls_cuda_launched(run, "ssd_scan");
}

LS_CUDA_DECLARE_TABLE(ssd_scan);
const ls_kernel LS_CUDA_TABLE(ssd_scan)[] = {
    {"ssd_scan", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"ssd_scan_grad",
     {NULL, ls_ssd_backward<float>, ls_ssd_backward<ls_cuda_bf16>},
     ls_ssd_cuda_backward_workspace},
    {},
};
