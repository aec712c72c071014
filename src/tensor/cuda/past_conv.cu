/* Convolution of a chunk with the past that is kept, as it is defined. A block of threads has 32
 * neighbouring channels of one row of a result; its lines share the terms of the sum, in turns,
 * and add up in a fixed order: a chunk of one token with a long past still has work for many. */
#include "tensor/cuda/lib/rows.h"

extern "C" {
#include "tensor/past_conv.h"
}

enum { CHANNELS = 32, LINES = 8 };

/* Row r of sequence b begins b * batch + r * row elements from the start. */
template <typename T> struct past_rows {
    T *data;
    int64_t batch, row, held;
    __device__ __forceinline__ T &at(int64_t b, int64_t r, int64_t d) const {
        return data[b * batch + r * row + d];
    }
};

template <typename T> static past_rows<T> rows_of(const ls_tensor *tensor) {
    past_rows<T> rows = {};
    if (tensor == NULL) return rows;
    rows.data = (T *)ls_data(tensor);
    rows.batch = tensor->stride[0];
    rows.row = tensor->stride[1];
    rows.held = tensor->dim[1];
    return rows;
}

/* Row `newest` of u is that of the chunk's first token; the one of lag s lies s rows before. */
template <typename T> struct past_job {
    int64_t B, length, D, lags, newest, groups; /* groups: of channels */
    past_rows<const T> u, dy;
    past_rows<const float> k;
    past_rows<T> y, du;
    past_rows<float> dk;
    const float *skip;
    float *dskip;
};

template <typename T>
static past_job<T> job_of(const ls_run *run, const ls_node *node, const ls_tensor *y) {
    const ls_tensor *u = node->in[0], *k = node->in[1];
    past_job<T> job = {};
    job.B = y->dim[0];
    job.length = y->dim[1];
    job.D = y->dim[2];
    job.lags = k->port >= 0 ? ls_cache_extent(run, k).count : k->dim[1];
    job.newest = run->start - ls_cache_extent(run, u).first;
    job.groups = ls_ceil_div(job.D, CHANNELS);
    job.u = rows_of<const T>(u);
    job.k = rows_of<const float>(k);
    job.skip = ls_cuda_floats(node->in[2]);
    return job;
}

/* The channel of this thread, and the row of the result, which all threads of a block share. */
template <typename T>
static __device__ __forceinline__ int64_t place(const past_job<T> &job, int64_t *row) {
    *row = blockIdx.x / job.groups;
    return (int64_t)(blockIdx.x % job.groups) * CHANNELS + threadIdx.x;
}

/* The sum over the lines, for those of line 0. */
static __device__ __forceinline__ float add_lines(float sum) {
    __shared__ float lines[LINES][CHANNELS];
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int line = 0; line < LINES; line++) sum += lines[line][threadIdx.x];
    return sum;
}

template <typename T>
static __global__ void __launch_bounds__(CHANNELS *LINES) forward_kernel(const past_job<T> job) {
    int64_t row, d = place(job, &row), b = row / job.length, t = row % job.length;
    const int64_t here = job.newest + t;
    const int64_t terms = here + 1 < job.lags ? here + 1 : job.lags;
    const bool exists = d < job.D;
    float sum = 0;
#pragma unroll 4
    for (int64_t s = threadIdx.y; exists && s < terms; s += LINES)
        sum += job.k.at(0, s, d) * ls_cuda_wide(job.u.at(b, here - s, d));
    sum = add_lines(sum);
    if (threadIdx.y != 0 || !exists) return;
    if (job.skip != NULL) sum += job.skip[d] * ls_cuda_wide(job.u.at(b, here, d));
    job.y.at(b, t, d) = ls_cuda_narrow<T>(sum);
}

/* du of every row that is held; those that are not the chunk's have none. */
template <typename T>
static __global__ void __launch_bounds__(CHANNELS *LINES) input_gradient(const past_job<T> job) {
    int64_t row, d = place(job, &row), b = row / job.du.held, m = row % job.du.held;
    const int64_t t = m - job.newest;
    const bool exists = d < job.D, own = t >= 0 && t < job.length;
    const int64_t terms = !own ? 0 : job.length - t < job.lags ? job.length - t : job.lags;
    float sum = 0;
#pragma unroll 4
    for (int64_t s = threadIdx.y; exists && s < terms; s += LINES)
        sum += job.k.at(0, s, d) * ls_cuda_wide(job.dy.at(b, t + s, d));
    sum = add_lines(sum);
    if (threadIdx.y != 0 || !exists) return;
    if (own && job.skip != NULL) sum += job.skip[d] * ls_cuda_wide(job.dy.at(b, t, d));
    job.du.at(b, m, d) = ls_cuda_narrow<T>(sum);
}

/* dk of lag `row`; behind the last lag comes the gradient of skip, which is the sum of lag 0. */
template <typename T>
static __global__ void __launch_bounds__(CHANNELS *LINES)
    kernel_gradient(const past_job<T> job, int64_t held) {
    int64_t row, d = place(job, &row);
    const bool exists = d < job.D, of_skip = row == held;
    const int64_t lag = of_skip ? 0 : row;
    /* rows of the chunk whose input of that lag is held: from `first` on */
    const int64_t first = lag > job.newest ? lag - job.newest : 0, count = job.length - first;
    float sum = 0;
    if (exists && lag < job.lags && count > 0)
        for (int64_t b = 0; b < job.B; b++)
#pragma unroll 4
            for (int64_t t = first + threadIdx.y; t < job.length; t += LINES)
                sum += ls_cuda_wide(job.dy.at(b, t, d)) *
                       ls_cuda_wide(job.u.at(b, job.newest + t - lag, d));
    sum = add_lines(sum);
    if (threadIdx.y != 0 || !exists) return;
    if (of_skip)
        job.dskip[d] += sum;
    else
        job.dk.at(0, row, d) = sum;
}

template <typename T> static unsigned blocks_of(const past_job<T> *job, int64_t rows) {
    return (unsigned)(rows * job->groups);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    past_job<T> job = job_of<T>(run, node, node->out[0]);
    job.y = rows_of<T>(node->out[0]);
    forward_kernel<<<blocks_of(&job, job.B * job.length), dim3(CHANNELS, LINES), 0,
                     ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "past_conv");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    past_job<T> job = job_of<T>(run, node, node->in[3]);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    job.dy = rows_of<const T>(node->in[3]);
    job.du = rows_of<T>(node->out[0]);
    job.dk = rows_of<float>(node->out[1]);
    if (node->in[2] != NULL && node->in[2]->needs_grad)
        job.dskip = (float *)ls_param_gradient(run, node->in[2]);
    if (job.du.data != NULL) {
        input_gradient<<<blocks_of(&job, job.B * job.du.held), dim3(CHANNELS, LINES), 0, stream>>>(
            job);
        ls_cuda_launched(run, "past_conv_grad");
    }
    const int64_t held = job.dk.held, rows = held + (job.dskip == NULL ? 0 : 1);
    if (rows > 0) {
        kernel_gradient<<<blocks_of(&job, rows), dim3(CHANNELS, LINES), 0, stream>>>(job, held);
        ls_cuda_launched(run, "past_conv_grad");
    }
}

LS_CUDA_DECLARE_TABLE(past_conv);
const ls_kernel LS_CUDA_TABLE(past_conv)[] = {
    {"past_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"past_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, NULL},
    {},
};
