/* A causal convolution of a few taps, every channel for itself, and its gradient.
 *
 * Fast kernels for 2, 3 or 4 taps walk along time with the last rows in registers, 16 bytes of
 * channels to a thread; any other number of taps and rows that are not aligned go through plain
 * kernels, which read each element as often as it is needed. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/short_conv/short_conv.h"
}

enum { THREADS = 128, FORWARD_ROWS = 32, BACKWARD_ROWS = 64 };

template <typename T> struct conv_job {
    int64_t batch, length, E;
    int taps;
    bool silu;
    const T *x, *before; /* [batch,length,E] at a stride; [batch,taps-1,E], NULL for one tap */
    int64_t x_stride;
    const float *weight, *bias; /* [E,taps]; [E] or NULL */
    T *y, *after;
    /* backward */
    const T *dy;
    T *dx;
    int64_t dy_stride, dx_stride;
    float *partial;         /* [batch * segments][taps + 1][E]: of the weights, then of the bias */
    int64_t rows, segments; /* of one segment; of a sequence */
};

template <typename T> static conv_job<T> job_of(const ls_node *node, int64_t rows) {
    const ls_short_conv_attributes *about = (const ls_short_conv_attributes *)node->attributes;
    const ls_tensor *x = node->in[0];
    conv_job<T> job = {};
    int64_t count;
    job.batch = x->dim[0];
    job.length = x->dim[1];
    job.taps = (int)node->in[1]->dim[1];
    job.silu = about->silu;
    ls_rows(x, &count, &job.E, &job.x_stride);
    job.x = (const T *)ls_data(x);
    job.weight = (const float *)ls_data(node->in[1]);
    job.bias = ls_cuda_floats(node->in[2]);
    job.before = node->in[3] == NULL ? NULL : (const T *)ls_data(node->in[3]);
    job.rows = rows;
    job.segments = ls_ceil_div(job.length, rows);
    return job;
}

/* Row t of sequence b; rows before the chunk have t < 0. */
template <typename T>
static __device__ __forceinline__ const T *row_at(const conv_job<T> &job, int64_t b, int64_t t) {
    return t < 0 ? job.before + (b * (job.taps - 1) + job.taps - 1 + t) * job.E
                 : job.x + (b * job.length + t) * job.x_stride;
}

static __device__ __forceinline__ float silu_slope(float x) {
    float s = ls_cuda_sigmoid(x);
    return s * (1.0f + x * (1.0f - s));
}

/* ---- fast: a thread has LANES channels of one segment of a sequence ---- */

struct segment {
    int64_t b, e, first, end, number;
    bool exists;
};

template <int LANES, typename T>
static __device__ __forceinline__ segment segment_of(const conv_job<T> &job) {
    segment s;
    s.e = ((int64_t)blockIdx.x * THREADS + threadIdx.x) * LANES;
    s.number = blockIdx.y;
    s.b = s.number / job.segments;
    s.first = s.number % job.segments * job.rows;
    s.end = s.first + job.rows < job.length ? s.first + job.rows : job.length;
    s.exists = s.e < job.E;
    return s;
}

/* The last TAPS rows of a thread's channels, and what they are multiplied by. */
template <int LANES, int TAPS> struct window {
    float weight[TAPS][LANES], bias[LANES], x[TAPS][LANES];

    /* As it is before row `first`. */
    template <typename T>
    __device__ __forceinline__ void begin(const conv_job<T> &job, const segment &s) {
#pragma unroll
        for (int j = 0; j < LANES; j++) {
            bias[j] = job.bias == NULL ? 0.0f : job.bias[s.e + j];
#pragma unroll
            for (int k = 0; k < TAPS; k++) weight[k][j] = job.weight[(s.e + j) * TAPS + k];
        }
#pragma unroll
        for (int k = 1; k < TAPS; k++)
            ls_cuda_load<LANES>(row_at(job, s.b, s.first - TAPS + k) + s.e, x[k]);
    }
    /* One row on: x[TAPS - 1] is the newest. */
    template <typename T> __device__ __forceinline__ void push(const ls_cuda_pack<T, LANES> &row) {
#pragma unroll
        for (int k = 0; k + 1 < TAPS; k++)
#pragma unroll
            for (int j = 0; j < LANES; j++) x[k][j] = x[k + 1][j];
        row.wide(x[TAPS - 1]);
    }
    __device__ __forceinline__ float inner(int j) const {
        float sum = bias[j];
#pragma unroll
        for (int k = 0; k < TAPS; k++) sum += weight[k][j] * x[k][j];
        return sum;
    }
};

/* LANES channels of AHEAD rows, of which those past the end are zeros: many reads are under way at
 * once. */
template <int AHEAD, int LANES, typename T>
static __device__ __forceinline__ void take_rows(const T *row, int64_t stride, int64_t left,
                                                 ls_cuda_pack<T, LANES> (&to)[AHEAD]) {
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
        to[i] = {};
        if (i < left) to[i] = ls_cuda_take<LANES>(row + i * stride);
    }
}

template <typename T, int TAPS>
static __global__ void __launch_bounds__(THREADS) forward_fast(const conv_job<T> job) {
    enum { LANES = ls_cuda_lanes<T>::count, AHEAD = 4 };
    const segment s = segment_of<LANES>(job);
    if (!s.exists) return;
    window<LANES, TAPS> w;
    w.begin(job, s);
    for (int64_t begin = s.first; begin < s.end; begin += AHEAD) {
        ls_cuda_pack<T, LANES> x[AHEAD];
        take_rows(row_at(job, s.b, begin) + s.e, job.x_stride, s.end - begin, x);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (begin + i >= s.end) break;
            float y[LANES];
            w.push(x[i]);
#pragma unroll
            for (int j = 0; j < LANES; j++) {
                y[j] = w.inner(j);
                if (job.silu) y[j] *= ls_cuda_sigmoid(y[j]);
            }
            ls_cuda_store<LANES>(job.y + (s.b * job.length + begin + i) * job.E + s.e, y);
        }
    }
}

/* Rows first .. end get their dx, for which the gradients before the activation of TAPS - 1 rows
 * more are needed; rows past the end of the sequence read as zeros and have none. */
template <typename T, int TAPS>
static __global__ void __launch_bounds__(THREADS) backward_fast(const conv_job<T> job) {
    enum { LANES = ls_cuda_lanes<T>::count, AHEAD = 2 };
    const segment s = segment_of<LANES>(job);
    if (!s.exists) return;
    window<LANES, TAPS> w;
    w.begin(job, s);
    float d[TAPS][LANES] = {}, sums[TAPS + 1][LANES] = {}; /* d[k]: of row t - TAPS + 1 + k */
    for (int64_t begin = s.first; begin < s.end + TAPS - 1; begin += AHEAD) {
        ls_cuda_pack<T, LANES> x[AHEAD], dy[AHEAD];
        const int64_t left = job.length - begin, row = s.b * job.length + begin;
        take_rows(job.x + row * job.x_stride + s.e, job.x_stride, left, x);
        take_rows(job.dy + row * job.dy_stride + s.e, job.dy_stride, left, dy);
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            const int64_t t = begin + i;
            if (t >= s.end + TAPS - 1) break;
#pragma unroll
            for (int k = 0; k + 1 < TAPS; k++)
#pragma unroll
                for (int j = 0; j < LANES; j++) d[k][j] = d[k + 1][j];
            w.push(x[i]);
            dy[i].wide(d[TAPS - 1]);
#pragma unroll
            for (int j = 0; j < LANES; j++) {
                float &newest = d[TAPS - 1][j];
                if (job.silu) newest *= silu_slope(w.inner(j));
                if (t >= s.end) continue;
                sums[TAPS][j] += newest;
#pragma unroll
                for (int k = 0; k < TAPS; k++) sums[k][j] += newest * w.x[k][j];
            }
            if (t < s.first + TAPS - 1) continue;
            float dx[LANES] = {}; /* of row t - TAPS + 1 */
#pragma unroll
            for (int k = 0; k < TAPS; k++)
#pragma unroll
                for (int j = 0; j < LANES; j++) dx[j] += w.weight[k][j] * d[TAPS - 1 - k][j];
            ls_cuda_store<LANES>(job.dx + (row + i - TAPS + 1) * job.dx_stride + s.e, dx);
        }
    }
#pragma unroll
    for (int k = 0; k <= TAPS; k++)
        ls_cuda_store<LANES>(job.partial + (s.number * (TAPS + 1) + k) * job.E + s.e, sums[k]);
}

/* ---- plain: an element to a thread ---- */

template <typename T>
static __device__ float inner_at(const conv_job<T> &job, int64_t b, int64_t t, int64_t e) {
    float sum = job.bias == NULL ? 0.0f : job.bias[e];
    for (int k = 0; k < job.taps; k++)
        sum += job.weight[e * job.taps + k] * ls_cuda_wide(row_at(job, b, t - job.taps + 1 + k)[e]);
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) forward_plain(const conv_job<T> job) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / job.E, e = i % job.E;
    if (row >= job.batch * job.length) return;
    float y = inner_at(job, row / job.length, row % job.length, e);
    job.y[i] = ls_cuda_narrow<T>(job.silu ? y * ls_cuda_sigmoid(y) : y);
}

/* The gradient before the activation. */
template <typename T>
static __device__ float inner_gradient(const conv_job<T> &job, int64_t b, int64_t t, int64_t e) {
    float d = ls_cuda_wide(job.dy[(b * job.length + t) * job.dy_stride + e]);
    return job.silu ? d * silu_slope(inner_at(job, b, t, e)) : d;
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) backward_plain(const conv_job<T> job) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / job.E, e = i % job.E;
    if (row >= job.batch * job.length) return;
    int64_t b = row / job.length, t = row % job.length;
    float dx = 0;
    for (int k = 0; k < job.taps; k++) {
        int64_t later = t + job.taps - 1 - k;
        if (later < job.length)
            dx += job.weight[e * job.taps + k] * inner_gradient(job, b, later, e);
    }
    job.dx[row * job.dx_stride + e] = ls_cuda_narrow<T>(dx);
}

/* One element of a segment's sums to a thread. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) backward_plain_sums(const conv_job<T> job) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, k = i / job.E, e = i % job.E;
    if (k > job.taps) return;
    int64_t b = blockIdx.y / job.segments, first = blockIdx.y % job.segments * job.rows;
    float sum = 0;
    for (int64_t t = first; t < first + job.rows && t < job.length; t++) {
        float d = inner_gradient(job, b, t, e);
        if (k < job.taps) d *= ls_cuda_wide(row_at(job, b, t - job.taps + 1 + k)[e]);
        sum += d;
    }
    job.partial[(int64_t)blockIdx.y * (job.taps + 1) * job.E + i] = sum;
}

/* ---- on the host ---- */

template <typename T> static bool fast_fits(const conv_job<T> *job) {
    enum { LANES = ls_cuda_lanes<T>::count };
    return job->taps >= 2 && job->taps <= 4 && job->E % LANES == 0 && job->x_stride % LANES == 0 &&
           job->dy_stride % LANES == 0 && job->dx_stride % LANES == 0 && ls_cuda_aligned(job->x) &&
           ls_cuda_aligned(job->before) && ls_cuda_aligned(job->y) && ls_cuda_aligned(job->dy) &&
           ls_cuda_aligned(job->dx) && ls_cuda_aligned(job->partial);
}

/* The rows that the next chunk needs: the last of what was before and of this chunk. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) keep_tail(const conv_job<T> job) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x, row = i / job.E, e = i % job.E;
    int64_t b = row / (job.taps - 1), t = job.length - job.taps + 1 + row % (job.taps - 1);
    if (b < job.batch) job.after[i] = row_at(job, b, t)[e];
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    ls_cuda_steady(run);
    enum { LANES = ls_cuda_lanes<T>::count };
    conv_job<T> job = job_of<T>(node, FORWARD_ROWS);
    job.y = (T *)ls_data(node->out[0]);
    job.after = node->out[1] == NULL ? NULL : (T *)ls_data(node->out[1]);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    dim3 blocks(ls_cuda_blocks(job.E, THREADS * LANES), (unsigned)(job.batch * job.segments));
    if (!fast_fits(&job) || blocks.y > UINT16_MAX)
        forward_plain<<<ls_cuda_blocks(job.batch * job.length * job.E, THREADS), THREADS, 0,
                        stream>>>(job);
    else if (job.taps == 2)
        forward_fast<T, 2><<<blocks, THREADS, 0, stream>>>(job);
    else if (job.taps == 3)
        forward_fast<T, 3><<<blocks, THREADS, 0, stream>>>(job);
    else
        forward_fast<T, 4><<<blocks, THREADS, 0, stream>>>(job);
    ls_cuda_launched(run, "short_conv");
    if (job.after == NULL) return;
    keep_tail<<<ls_cuda_blocks(job.batch * (job.taps - 1) * job.E, THREADS), THREADS, 0, stream>>>(
        job);
    ls_cuda_launched(run, "short_conv");
}

/* Rows of a segment: no more segments than a grid has lines. */
static int64_t backward_rows(const ls_tensor *x) {
    int64_t rows = BACKWARD_ROWS;
    while (x->dim[0] * ls_ceil_div(x->dim[1], rows) > UINT16_MAX && rows < x->dim[1]) rows *= 2;
    return rows;
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const ls_tensor *x = node->in[0], *weight = node->in[1];
    int64_t pieces = x->dim[0] * ls_ceil_div(x->dim[1], backward_rows(x));
    return (size_t)(pieces * (weight->dim[1] + 1) * weight->dim[0]) * sizeof(float);
}

template <typename T> static void launch_backward(const ls_run *run, const conv_job<T> *job) {
    enum { LANES = ls_cuda_lanes<T>::count };
    cudaStream_t stream = ls_cuda_of(run)->stream;
    unsigned pieces = (unsigned)(job->batch * job->segments);
    dim3 blocks(ls_cuda_blocks(job->E, THREADS * LANES), pieces);
    if (!fast_fits(job)) {
        backward_plain<<<ls_cuda_blocks(job->batch * job->length * job->E, THREADS), THREADS, 0,
                         stream>>>(*job);
        ls_cuda_launched(run, "short_conv_grad");
        dim3 sums(ls_cuda_blocks((job->taps + 1) * job->E, THREADS), pieces);
        backward_plain_sums<<<sums, THREADS, 0, stream>>>(*job);
    } else if (job->taps == 2) {
        backward_fast<T, 2><<<blocks, THREADS, 0, stream>>>(*job);
    } else if (job->taps == 3) {
        backward_fast<T, 3><<<blocks, THREADS, 0, stream>>>(*job);
    } else {
        backward_fast<T, 4><<<blocks, THREADS, 0, stream>>>(*job);
    }
    ls_cuda_launched(run, "short_conv_grad");
}

/* A parameter's gradient += the sums of all segments; theirs lie [rows][E], its own [E][rows]. */
static void add_up(const ls_run *run, const ls_tensor *parameter, const float *partial,
                   int64_t pieces, int64_t apart, int64_t rows, int64_t E) {
    if (parameter == NULL || !parameter->needs_grad) return;
    ls_cuda_axes axes = ls_cuda_axes_of_rows(rows, E, 1);
    axes.stride[1] = rows;
    ls_cuda_layout columns;
    if (ls_cuda_lay_out(run, 1, &axes, &columns))
        ls_cuda_add_pieces(run, partial, pieces, apart, &columns, ls_param_gradient(run, parameter),
                           LS_F32, true, "short_conv_grad");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    conv_job<T> job = job_of<T>(node, backward_rows(node->in[0]));
    int64_t count, width;
    ls_rows(node->in[4], &count, &width, &job.dy_stride);
    ls_rows(node->out[0], &count, &width, &job.dx_stride);
    job.dy = (const T *)ls_data(node->in[4]);
    job.dx = (T *)ls_data(node->out[0]);
    job.partial = (float *)run->workspace;
    launch_backward(run, &job);
    int64_t pieces = job.batch * job.segments, apart = (job.taps + 1) * job.E;
    add_up(run, node->in[1], job.partial, pieces, apart, job.taps, job.E);
    add_up(run, node->in[2], job.partial + job.taps * job.E, pieces, apart, 1, job.E);
}

LS_CUDA_DECLARE_TABLE(short_conv);
const ls_kernel LS_CUDA_TABLE(short_conv)[] = {
    {"short_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"short_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
