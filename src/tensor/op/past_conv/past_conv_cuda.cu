/* Convolution of a chunk with the past that is kept, as it is defined. A block of threads has 32
 * neighbouring channels of some rows of a result; its lines share the terms of the sum, in turns,
 * and add up in a fixed order: a chunk of one token with a long past still has work for many. */
#include "tensor/cuda/rows.cuh"
#include "tensor/cuda/sliding.cuh"

#include <type_traits>

extern "C" {
#include "tensor/op/past_conv/past_conv.h"
}

enum {
    CHANNELS = 32,
    BAND = LS_SLIDE_BAND,
    LINES = 8,
    ROWS = 16,         /* of a result to a block, but one in chunks of fewer */
    WEIGHT_LINES = 32, /* of the kernel's gradient, */
    WEIGHT_ROWS = 8    /* which takes so many rows at once */
};

/* Row r of sequence b begins b * batch + r * row elements from the start. */
template <typename T> struct past_rows {
    T *data;
    int64_t batch, row, held;
    __device__ __forceinline__ T &at(int64_t b, int64_t r, int64_t d) const {
        return data[b * batch + r * row + d];
    }
    /* The first `count` rows of a channel. */
    __device__ __forceinline__ auto channel(int64_t b, int64_t d, int64_t count) const {
        return ls_slide_rows<std::remove_const_t<T>>{data + b * batch + d, row, count};
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

/* Row `newest` of u is that of the chunk's first token; the one of lag s lies s rows before. Of a
 * cache in parts there may be neither: rows 0 to `known` are. */
template <typename T> struct past_job {
    int64_t B, length, D, lags, newest, known, groups; /* groups: of channels */
    int64_t before; /* backward: rows before the chunk that have a gradient */
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
    job.known = ls_cache_extent(run, u).count;
    job.groups = ls_ceil_div(job.D, CHANNELS);
    job.u = rows_of<const T>(u);
    job.k = rows_of<const float>(k);
    job.skip = ls_cuda_floats(node->in[2]);
    return job;
}

/* The channel of this thread; where its block stands among those of these channels. */
template <typename T>
static __device__ __forceinline__ int64_t place(const past_job<T> &job, int64_t *block) {
    *block = blockIdx.x / job.groups;
    return (int64_t)(blockIdx.x % job.groups) * CHANNELS + threadIdx.x;
}

/* Adds up the lines' sums: line i gets number i, and i + OF, i + 2 OF, ... where there are fewer
 * lines than sums. */
template <int OF, int COUNT> static __device__ __forceinline__ void add_lines(float (&sum)[COUNT]) {
    __shared__ float lines[OF][COUNT][CHANNELS];
#pragma unroll
    for (int i = 0; i < COUNT; i++) lines[threadIdx.y][i][threadIdx.x] = sum[i];
    __syncthreads();
#pragma unroll
    for (int part = 0; part * OF < COUNT; part++) {
        const int i = part * OF + (int)threadIdx.y;
        sum[part] = 0;
        for (int line = 0; i < COUNT && line < OF; line++) sum[part] += lines[line][i][threadIdx.x];
    }
}

/* COUNT rows from t on. */
template <int COUNT, typename T>
static __global__ void __launch_bounds__(CHANNELS *LINES) forward_kernel(const past_job<T> job) {
    const int64_t blocks = (job.length + COUNT - 1) / COUNT;
    int64_t block, d = place(job, &block), b = block / blocks, t = block % blocks * COUNT;
    const int64_t terms = min(job.lags, job.newest + t + COUNT);
    const bool exists = d < job.D;
    float sum[COUNT] = {};
    for (int64_t s = threadIdx.y * BAND; exists && s < terms; s += LINES * BAND)
        ls_slide<-1>(job.k.channel(0, d, job.lags), s, job.u.channel(b, d, job.known),
                     job.newest + t, sum);
    add_lines<LINES>(sum);
#pragma unroll
    for (int part = 0; part * LINES < COUNT; part++) {
        const int i = part * LINES + (int)threadIdx.y;
        if (i >= COUNT || t + i >= job.length || !exists) continue;
        const int64_t here = job.newest + t + i;
        float y = sum[part];
        if (job.skip != NULL && here >= 0 && here < job.known)
            y += job.skip[d] * ls_cuda_wide(job.u.at(b, here, d));
        job.y.at(b, t + i, d) = ls_cuda_narrow<T>(y);
    }
}

/* du of every row that is held: of the chunk's, and of those before it that have one. */
template <int COUNT, typename T>
static __global__ void __launch_bounds__(CHANNELS *LINES) input_gradient(const past_job<T> job) {
    const int64_t blocks = (job.du.held + COUNT - 1) / COUNT;
    int64_t block, d = place(job, &block), b = block / blocks, m = block % blocks * COUNT;
    const int64_t t = m - job.newest; /* of the first row */
    const int64_t terms = min(job.lags, job.length - max(-job.before, t));
    const bool exists = d < job.D;
    float sum[COUNT] = {};
    for (int64_t s = threadIdx.y * BAND; exists && t + COUNT > -job.before && s < terms;
         s += LINES * BAND)
        ls_slide<1>(job.k.channel(0, d, job.lags), s, job.dy.channel(b, d, job.length), t, sum);
    add_lines<LINES>(sum);
#pragma unroll
    for (int part = 0; part * LINES < COUNT; part++) {
        const int i = part * LINES + (int)threadIdx.y;
        if (i >= COUNT || m + i >= job.du.held || !exists) continue;
        const bool own = t + i >= -job.before && t + i < job.length;
        float du = own ? sum[part] : 0;
        if (own && t + i >= 0 && job.skip != NULL)
            du += job.skip[d] * ls_cuda_wide(job.dy.at(b, t + i, d));
        job.du.at(b, m + i, d) = ls_cuda_narrow<T>(du);
    }
}

/* dk of a band of lags. The gradient of skip is the sum of lag 0. */
template <typename T>
static __global__ void __launch_bounds__(CHANNELS *WEIGHT_LINES)
    kernel_gradient(const past_job<T> job) {
    int64_t block, d = place(job, &block);
    const int64_t lag = block * BAND, blocks = (job.length + WEIGHT_ROWS - 1) / WEIGHT_ROWS;
    const bool exists = d < job.D;
    float sum[BAND] = {};
    for (int64_t unit = threadIdx.y; exists && unit < job.B * blocks; unit += WEIGHT_LINES) {
        const int64_t b = unit / blocks, t = unit % blocks * WEIGHT_ROWS;
        ls_slide_weights<-1, WEIGHT_ROWS>(job.dy.channel(b, d, job.length), t,
                                          job.u.channel(b, d, job.newest + job.length),
                                          job.newest + t - lag, sum);
    }
    add_lines<WEIGHT_LINES>(sum);
    const int64_t own = lag + threadIdx.y;
    if (threadIdx.y >= BAND || !exists) return;
    if (own < job.dk.held) job.dk.at(0, own, d) = own < job.lags ? sum[0] : 0;
    if (own == 0 && job.dskip != NULL) job.dskip[d] += sum[0];
}

/* One block for each group of channels of `count` results that go together, in each sequence. */
template <typename T>
static unsigned blocks_of(const past_job<T> *job, int64_t sequences, int64_t rows, int64_t count) {
    return (unsigned)(sequences * ls_ceil_div(rows, count) * job->groups);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    past_job<T> job = job_of<T>(run, node, node->out[0]);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    const dim3 block(CHANNELS, LINES);
    job.y = rows_of<T>(node->out[0]);
    if (job.length < ROWS)
        forward_kernel<1><<<blocks_of(&job, job.B, job.length, 1), block, 0, stream>>>(job);
    else
        forward_kernel<ROWS><<<blocks_of(&job, job.B, job.length, ROWS), block, 0, stream>>>(job);
    ls_cuda_launched(run, "past_conv");
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    past_job<T> job = job_of<T>(run, node, node->in[3]);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    const dim3 block(CHANNELS, LINES);
    job.dy = rows_of<const T>(node->in[3]);
    job.du = rows_of<T>(node->out[0]);
    job.dk = rows_of<float>(node->out[1]);
    if (((const ls_past_conv_attributes *)node->attributes)->past) job.before = job.newest;
    if (node->in[2] != NULL && node->in[2]->needs_grad)
        job.dskip = (float *)ls_param_gradient(run, node->in[2]);
    if (job.du.data != NULL) {
        if (job.length < ROWS)
            input_gradient<1><<<blocks_of(&job, job.B, job.du.held, 1), block, 0, stream>>>(job);
        else
            input_gradient<ROWS>
                <<<blocks_of(&job, job.B, job.du.held, ROWS), block, 0, stream>>>(job);
        ls_cuda_launched(run, "past_conv_grad");
    }
    const int64_t lags = ls_max(job.dk.held, job.dskip == NULL ? 0 : 1);
    if (lags > 0) {
        kernel_gradient<<<blocks_of(&job, 1, lags, BAND), dim3(CHANNELS, WEIGHT_LINES), 0,
                          stream>>>(job);
        ls_cuda_launched(run, "past_conv_grad");
    }
}

LS_CUDA_DECLARE_TABLE(past_conv);
const ls_kernel LS_CUDA_TABLE(past_conv)[] = {
    {"past_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"past_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, NULL},
    {},
};
