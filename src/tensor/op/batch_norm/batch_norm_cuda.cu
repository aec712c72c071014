/* Batch norm. A block adds up some columns of every so-many-th row in double; the blocks' sums are
 * added in their order by a second kernel, which makes of them what each channel needs. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/batch_norm/batch_norm.h"
}

enum { X, VALID, WEIGHT, BIAS, MEAN, VARIANCE, STATISTICS, DY };
enum { PIECES_MOST = 512, ROWS_EACH = 64, JOIN_COLUMNS = 8, JOIN_LINES = 32 };

/* What a channel has: y = (x - mean) factor + shift; dx = factor (dy - centre - (x - mean)
 * slope). */
enum { CHANNEL_MEAN, CHANNEL_FACTOR, CHANNEL_SHIFT, CHANNEL_CENTRE, CHANNEL_SLOPE, CHANNEL_VALUES };

template <typename T> struct rows_job {
    const T *x, *dy;
    int64_t rows, width, x_stride, dy_stride;
    const uint8_t *valid; /* or NULL */
    T *out;
    double *partial; /* [pieces][3][width]: two sums and the rows that count */
    float *channel;  /* [CHANNEL_VALUES][width] */
    int64_t pieces;
};

/* What the second kernel reads and writes, of all channels. */
struct channel_job {
    const double *partial;
    int64_t pieces, width;
    const float *weight, *bias;   /* or NULL */
    const float *mean, *variance; /* that run along */
    float *statistics;            /* NULL: those that run along were read */
    float *dweight, *dbias, *followed_mean, *followed_variance; /* or NULL */
    float *channel;
    double epsilon;
    bool unbiased;
};

static int64_t pieces_of(int64_t rows) {
    return ls_max(1, ls_min(PIECES_MOST, rows / ROWS_EACH));
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    const int64_t width = node->in[X]->dim[2], rows = ls_count(node->in[X]) / width;
    return (size_t)(pieces_of(rows) * 3 * width) * sizeof(double) +
           (size_t)(CHANNEL_VALUES * width) * sizeof(float);
}

/* Forward: sums of x and its squares. Backward: of dy, and of dy times x around its mean. */
template <int LANES, bool BACKWARD, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS) sums_kernel(const rows_job<T> job) {
    __shared__ double shared[2][LS_CUDA_THREADS][LANES];
    __shared__ int counted[LS_CUDA_THREADS];
    const int packs = (int)(job.width / LANES);
    const int across = packs < LS_CUDA_THREADS ? packs : LS_CUDA_THREADS;
    const int lines = LS_CUDA_THREADS / across;
    const int line = (int)threadIdx.x / across, at = (int)threadIdx.x % across;
    const int64_t column = ((int64_t)blockIdx.x * across + at) * LANES, piece = blockIdx.y;
    const bool here = line < lines && column < job.width;
    double first[LANES] = {}, second[LANES] = {};
    float mean[LANES] = {};
    int count = 0;
    if (BACKWARD && here)
        ls_cuda_load<LANES>(job.channel + CHANNEL_MEAN * job.width + column, mean);
    for (int64_t row = piece * lines + line; here && row < job.rows; row += job.pieces * lines) {
        if (job.valid != NULL && job.valid[row] == 0) continue;
        float x[LANES], dy[LANES];
        ls_cuda_load<LANES>(job.x + row * job.x_stride + column, x);
        if (BACKWARD) ls_cuda_load<LANES>(job.dy + row * job.dy_stride + column, dy);
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            first[i] += BACKWARD ? (double)dy[i] : (double)x[i];
            second[i] +=
                BACKWARD ? (double)(dy[i] * (x[i] - mean[i])) : (double)x[i] * (double)x[i];
        }
        count++;
    }
#pragma unroll
    for (int i = 0; i < LANES; i++) {
        shared[0][threadIdx.x][i] = first[i];
        shared[1][threadIdx.x][i] = second[i];
    }
    counted[threadIdx.x] = count;
    __syncthreads();
    if (line != 0 || !here) return;
    for (int other = 1; other < lines; other++) {
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            first[i] += shared[0][other * across + at][i];
            second[i] += shared[1][other * across + at][i];
        }
        count += counted[other * across + at];
    }
    double *partial = job.partial + piece * 3 * job.width + column;
    for (int i = 0; i < LANES; i++) {
        partial[i] = first[i];
        partial[job.width + i] = second[i];
        partial[2 * job.width + i] = (double)count;
    }
}

struct sums {
    double first, second, count;
};

/* The sums of a channel over all pieces, in line 0. */
static __device__ __forceinline__ sums join(const channel_job &job, int64_t column) {
    __shared__ sums shared[JOIN_LINES][JOIN_COLUMNS];
    sums all = {0, 0, 0};
    for (int64_t piece = threadIdx.y; column < job.width && piece < job.pieces;
         piece += JOIN_LINES) {
        const double *partial = job.partial + piece * 3 * job.width + column;
        all.first += partial[0];
        all.second += partial[job.width];
        all.count += partial[2 * job.width];
    }
    shared[threadIdx.y][threadIdx.x] = all;
    __syncthreads();
    for (int line = 1; threadIdx.y == 0 && line < JOIN_LINES; line++) {
        all.first += shared[line][threadIdx.x].first;
        all.second += shared[line][threadIdx.x].second;
        all.count += shared[line][threadIdx.x].count;
    }
    return all;
}

static __device__ __forceinline__ double weight_of(const channel_job &job, int64_t i) {
    return job.weight == NULL ? 1 : (double)job.weight[i];
}

static __device__ __forceinline__ void set_forward(const channel_job &job, int64_t i, double mean,
                                                   double scale) {
    job.channel[CHANNEL_MEAN * job.width + i] = (float)mean;
    job.channel[CHANNEL_FACTOR * job.width + i] = (float)(scale * weight_of(job, i));
    job.channel[CHANNEL_SHIFT * job.width + i] = job.bias == NULL ? 0.0f : job.bias[i];
}

static __global__ void __launch_bounds__(JOIN_COLUMNS *JOIN_LINES)
    statistics_kernel(const channel_job job) {
    const int64_t i = (int64_t)blockIdx.x * JOIN_COLUMNS + threadIdx.x;
    const sums all = join(job, i);
    if (threadIdx.y != 0 || i >= job.width) return;
    double mean = (double)job.mean[i], variance = (double)job.variance[i], followed = variance;
    if (all.count > 0) {
        mean = all.first / all.count;
        const double squares = fmax(all.second - all.count * mean * mean, 0.0);
        variance = squares / all.count;
        followed = job.unbiased && all.count > 1 ? squares / (all.count - 1) : variance;
        mean = (double)(float)mean;
    }
    const float scale = (float)(1 / sqrt(variance + job.epsilon));
    job.statistics[LS_BATCH_NORM_MEAN * job.width + i] = (float)mean;
    job.statistics[LS_BATCH_NORM_SCALE * job.width + i] = scale;
    job.statistics[LS_BATCH_NORM_VARIANCE * job.width + i] = (float)followed;
    set_forward(job, i, mean, (double)scale);
}

/* Mean and 1/deviation that the node has normed by. */
static __device__ __forceinline__ double mean_of(const channel_job &job, int64_t i) {
    return (double)(job.statistics == NULL ? job.mean : job.statistics)[i];
}
static __device__ __forceinline__ double scale_of(const channel_job &job, int64_t i) {
    if (job.statistics != NULL) return (double)job.statistics[LS_BATCH_NORM_SCALE * job.width + i];
    return 1 / sqrt((double)job.variance[i] + job.epsilon);
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS) channel_kernel(const channel_job job) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i < job.width) set_forward(job, i, mean_of(job, i), scale_of(job, i));
}

static __device__ __forceinline__ void add_to(float *gradient, int64_t i, double value) {
    if (gradient != NULL) gradient[i] = (float)((double)gradient[i] + value);
}

static __global__ void __launch_bounds__(JOIN_COLUMNS *JOIN_LINES)
    gradients_kernel(const channel_job job) {
    const int64_t i = (int64_t)blockIdx.x * JOIN_COLUMNS + threadIdx.x;
    const sums all = join(job, i);
    if (threadIdx.y != 0 || i >= job.width) return;
    const double scale = scale_of(job, i), along = scale * all.second;
    const bool own = job.statistics != NULL && all.count > 0;
    add_to(job.dweight, i, along);
    add_to(job.dbias, i, all.first);
    if (job.statistics != NULL) {
        add_to(job.followed_mean, i, (double)job.statistics[LS_BATCH_NORM_MEAN * job.width + i]);
        add_to(job.followed_variance, i,
               (double)job.statistics[LS_BATCH_NORM_VARIANCE * job.width + i]);
    }
    job.channel[CHANNEL_CENTRE * job.width + i] = own ? (float)(all.first / all.count) : 0.0f;
    job.channel[CHANNEL_SLOPE * job.width + i] = own ? (float)(along / all.count * scale) : 0.0f;
}

/* A thread has LANES columns of a row of what comes out. */
template <int LANES, bool BACKWARD, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    rows_kernel(const rows_job<T> job, const ls_cuda_divisor packs) {
    const uint64_t thread = (uint64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    uint64_t pack;
    if (thread >= (uint64_t)job.rows * packs.by) return;
    const int64_t row = (int64_t)ls_cuda_divide(thread, packs, &pack);
    const int64_t column = (int64_t)pack * LANES;
    float out[LANES] = {};
    if (job.valid == NULL || job.valid[row] != 0) {
        float x[LANES], mean[LANES], factor[LANES], a[LANES], b[LANES], dy[LANES];
        ls_cuda_load<LANES>(job.x + row * job.x_stride + column, x);
        ls_cuda_load<LANES>(job.channel + CHANNEL_MEAN * job.width + column, mean);
        ls_cuda_load<LANES>(job.channel + CHANNEL_FACTOR * job.width + column, factor);
        ls_cuda_load<LANES>(
            job.channel + (BACKWARD ? CHANNEL_CENTRE : CHANNEL_SHIFT) * job.width + column, a);
        if (BACKWARD) {
            ls_cuda_load<LANES>(job.channel + CHANNEL_SLOPE * job.width + column, b);
            ls_cuda_load<LANES>(job.dy + row * job.dy_stride + column, dy);
        }
#pragma unroll
        for (int i = 0; i < LANES; i++) {
            const float off = x[i] - mean[i];
            out[i] = BACKWARD ? factor[i] * (dy[i] - a[i] - off * b[i]) : off * factor[i] + a[i];
        }
    }
    ls_cuda_store<LANES>(job.out + row * job.width + column, out);
}

template <int LANES, bool BACKWARD, typename T>
static void launch_sums(const ls_run *run, const rows_job<T> &job) {
    const int64_t across = ls_min(job.width / LANES, LS_CUDA_THREADS);
    dim3 blocks(ls_cuda_blocks(job.width / LANES, across), (unsigned)job.pieces);
    sums_kernel<LANES, BACKWARD><<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job);
}

template <int LANES, bool BACKWARD, typename T>
static void launch_rows(const ls_run *run, const rows_job<T> &job) {
    const ls_cuda_divisor packs = ls_cuda_divisor_of(job.width / LANES);
    rows_kernel<LANES, BACKWARD><<<ls_cuda_blocks(job.rows * (int64_t)packs.by, LS_CUDA_THREADS),
                                   LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(job, packs);
}

template <typename T> static bool in_packs(const rows_job<T> &job) {
    enum { LANES = ls_cuda_lanes<T>::count };
    return (job.width | job.x_stride | job.dy_stride) % LANES == 0 && ls_cuda_aligned(job.x) &&
           ls_cuda_aligned(job.dy) && ls_cuda_aligned(job.out) && ls_cuda_aligned(job.channel);
}

template <typename T> static rows_job<T> rows_of(const ls_run *run, const ls_node *node) {
    rows_job<T> job = {};
    ls_rows(node->in[X], &job.rows, &job.width, &job.x_stride);
    job.x = (const T *)ls_data(node->in[X]);
    job.valid = (const uint8_t *)ls_data_or_null(node->in[VALID]);
    job.out = (T *)ls_data(node->out[0]);
    job.pieces = pieces_of(job.rows);
    job.partial = (double *)run->workspace;
    job.channel = (float *)(job.partial + job.pieces * 3 * job.width);
    return job;
}

template <typename T>
static channel_job channels_of(const ls_node *node, const rows_job<T> &rows,
                               const ls_tensor *statistics) {
    const ls_batch_norm_attributes *about = (const ls_batch_norm_attributes *)node->attributes;
    channel_job job = {};
    job.partial = rows.partial;
    job.pieces = rows.pieces;
    job.width = rows.width;
    job.weight = ls_cuda_floats(node->in[WEIGHT]);
    job.bias = ls_cuda_floats(node->in[BIAS]);
    job.mean = ls_cuda_floats(node->in[MEAN]);
    job.variance = ls_cuda_floats(node->in[VARIANCE]);
    job.statistics = ls_cuda_floats(statistics);
    job.channel = rows.channel;
    job.epsilon = about->epsilon;
    job.unbiased = about->unbiased;
    return job;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const rows_job<T> job = rows_of<T>(run, node);
    const channel_job channels = channels_of(node, job, node->out[1]);
    const bool wide = in_packs(job);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (node->out[1] != NULL) {
        if (wide)
            launch_sums<LANES, false>(run, job);
        else
            launch_sums<1, false>(run, job);
        statistics_kernel<<<ls_cuda_blocks(job.width, JOIN_COLUMNS), dim3(JOIN_COLUMNS, JOIN_LINES),
                            0, stream>>>(channels);
    } else {
        channel_kernel<<<ls_cuda_blocks(job.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, stream>>>(
            channels);
    }
    if (wide)
        launch_rows<LANES, false>(run, job);
    else
        launch_rows<1, false>(run, job);
    ls_cuda_launched(run, "batch_norm");
}

static float *gradient_of(const ls_run *run, const ls_tensor *parameter) {
    if (parameter == NULL || !parameter->needs_grad) return NULL;
    return (float *)ls_param_gradient(run, parameter);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    rows_job<T> job = rows_of<T>(run, node);
    int64_t rows, width;
    ls_rows(node->in[DY], &rows, &width, &job.dy_stride);
    job.dy = (const T *)ls_data(node->in[DY]);
    channel_job channels = channels_of(node, job, node->in[STATISTICS]);
    channels.dweight = gradient_of(run, node->in[WEIGHT]);
    channels.dbias = gradient_of(run, node->in[BIAS]);
    if (node->in[STATISTICS] != NULL) {
        channels.followed_mean = (float *)ls_param_gradient(run, node->in[MEAN]);
        channels.followed_variance = (float *)ls_param_gradient(run, node->in[VARIANCE]);
    }
    const bool wide = in_packs(job);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    channel_kernel<<<ls_cuda_blocks(job.width, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, stream>>>(
        channels);
    if (wide)
        launch_sums<LANES, true>(run, job);
    else
        launch_sums<1, true>(run, job);
    gradients_kernel<<<ls_cuda_blocks(job.width, JOIN_COLUMNS), dim3(JOIN_COLUMNS, JOIN_LINES), 0,
                       stream>>>(channels);
    if (wide)
        launch_rows<LANES, true>(run, job);
    else
        launch_rows<1, true>(run, job);
    ls_cuda_launched(run, "batch_norm_grad");
}

LS_CUDA_DECLARE_TABLE(batch_norm);
const ls_kernel LS_CUDA_TABLE(batch_norm)[] = {
    {"batch_norm", {NULL, forward<float>, forward<ls_cuda_bf16>}, workspace},
    {"batch_norm_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, workspace},
    {},
};
