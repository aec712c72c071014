/* sum = x + delta, y = norm(sum) * weight + bias, and the gradient.
 *
 * Fast kernels hold a row in registers: 16 bytes at a time, by one warp or one block per row. Rows
 * that are too wide, odd or not aligned go through plain kernels, which read them again. */
#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/residual_norm/residual_norm.h"
}

enum {
    WARP = 32,
    THREADS_MAX = 512,
    WARPS_MAX = THREADS_MAX / WARP,
    ROWS_PER_BLOCK = 4,
    PLAIN_THREADS = 256
};

/* Sums of two values over the threads of a row, the same in each. With several warps per row the
 * block has one row; `turn` alternates between calls, so that one barrier is enough. */
static __device__ __forceinline__ float2 row_sum(float2 value, float2 (*shared)[WARPS_MAX],
                                                 int turn) {
    value.x = ls_cuda_warp_sum(value.x);
    value.y = ls_cuda_warp_sum(value.y);
    if (blockDim.x == WARP) return value;
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    if (lane == 0) shared[turn][warp] = value;
    __syncthreads();
    float2 part = lane < warps ? shared[turn][lane] : make_float2(0, 0);
    return make_float2(ls_cuda_warp_sum(part.x), ls_cuda_warp_sum(part.y));
}

/* A norm without weights has ones. */
template <int LANES>
static __device__ __forceinline__ void load_weight(const float *weight, int64_t i,
                                                   float (&out)[LANES]) {
    if (weight != NULL) {
        ls_cuda_load<LANES>(weight + i, out);
        return;
    }
#pragma unroll
    for (int j = 0; j < LANES; j++) out[j] = 1;
}

static __device__ __forceinline__ float weight_at(const float *weight, int64_t i) {
    return weight == NULL ? 1 : weight[i];
}

/* ---- forward ---- */

template <typename T> struct forward_job {
    const T *x, *delta; /* delta may be NULL */
    int64_t rows, width, x_stride, delta_stride;
    const float *weight, *bias; /* either may be NULL */
    T *total, *y;
    float2 *statistics;
    float epsilon;
    bool centred;
};

/* threadIdx.x runs along a row, blockDim.y rows to a block; each thread has PACKS packs. */
template <typename T, int PACKS>
static __global__ void __launch_bounds__(THREADS_MAX) forward_kernel(const forward_job<T> job) {
    enum { LANES = ls_cuda_lanes<T>::count };
    __shared__ float2 shared[2][WARPS_MAX];
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    ls_cuda_after();
    if (row >= job.rows) return; /* whole warps: blocks of several rows have one warp for each */
    float value[PACKS][LANES], sum = 0, square = 0;
    ls_cuda_pack<T, LANES> x[PACKS], delta[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
        x[k] = ls_cuda_take<LANES>(job.x + row * job.x_stride + i);
        if (job.delta != NULL)
            delta[k] = ls_cuda_take<LANES>(job.delta + row * job.delta_stride + i);
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
        x[k].wide(value[k]);
        if (job.delta != NULL) {
            float more[LANES];
            delta[k].wide(more);
#pragma unroll
            for (int j = 0; j < LANES; j++) more[j] += value[k][j];
            x[k].narrow(more);
            x[k].wide(value[k]); /* what is stored is what is normed */
            *(ls_cuda_pack<T, LANES> *)(job.total + row * job.width + i) = x[k];
        }
#pragma unroll
        for (int j = 0; j < LANES; j++) sum += value[k][j];
    }
    float mean = job.centred ? row_sum(make_float2(sum, 0), shared, 0).x / (float)job.width : 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
#pragma unroll
        for (int j = 0; j < LANES; j++) {
            value[k][j] -= mean;
            square += value[k][j] * value[k][j];
        }
    }
    square = row_sum(make_float2(square, 0), shared, 1).x;
    float scale = 1.0f / sqrtf(square / (float)job.width + job.epsilon);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
        float weight[LANES], bias[LANES] = {};
        load_weight<LANES>(job.weight, i, weight);
        if (job.bias != NULL) ls_cuda_load<LANES>(job.bias + i, bias);
#pragma unroll
        for (int j = 0; j < LANES; j++) weight[j] = value[k][j] * scale * weight[j] + bias[j];
        ls_cuda_store<LANES>(job.y + row * job.width + i, weight);
    }
    if (threadIdx.x == 0) job.statistics[row] = make_float2(mean, scale);
}

/* Any width: a block per row, which is read three times. A thread reads what it wrote itself. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS) forward_plain(const forward_job<T> job) {
    __shared__ float2 shared[2][WARPS_MAX];
    int64_t row = blockIdx.x;
    const T *x = job.x + row * job.x_stride;
    if (job.delta != NULL) {
        T *total = job.total + row * job.width;
        const T *delta = job.delta + row * job.delta_stride;
        for (int64_t i = threadIdx.x; i < job.width; i += PLAIN_THREADS)
            total[i] = ls_cuda_narrow<T>(ls_cuda_wide(x[i]) + ls_cuda_wide(delta[i]));
        x = total;
    }
    float sum = 0, square = 0;
    for (int64_t i = threadIdx.x; i < job.width && job.centred; i += PLAIN_THREADS)
        sum += ls_cuda_wide(x[i]);
    float mean = row_sum(make_float2(sum, 0), shared, 0).x / (float)job.width;
    for (int64_t i = threadIdx.x; i < job.width; i += PLAIN_THREADS) {
        float off = ls_cuda_wide(x[i]) - mean;
        square += off * off;
    }
    square = row_sum(make_float2(square, 0), shared, 1).x;
    float scale = 1.0f / sqrtf(square / (float)job.width + job.epsilon);
    for (int64_t i = threadIdx.x; i < job.width; i += PLAIN_THREADS) {
        float out = (ls_cuda_wide(x[i]) - mean) * scale * weight_at(job.weight, i);
        job.y[row * job.width + i] = ls_cuda_narrow<T>(job.bias == NULL ? out : out + job.bias[i]);
    }
    if (threadIdx.x == 0) job.statistics[row] = make_float2(mean, scale);
}

template <typename T> static bool forward_fast(const ls_run *run, const forward_job<T> *job) {
    enum { LANES = ls_cuda_lanes<T>::count, PACKS_MAX = 4 };
    bool fits = job->width % LANES == 0 && job->x_stride % LANES == 0 &&
                job->delta_stride % LANES == 0 && job->width <= LANES * PACKS_MAX * THREADS_MAX &&
                ls_cuda_aligned(job->x) && ls_cuda_aligned(job->delta) &&
                ls_cuda_aligned(job->total) && ls_cuda_aligned(job->y) &&
                ls_cuda_aligned(job->weight) && ls_cuda_aligned(job->bias);
    if (!fits) return false;
    int64_t packs = job->width / LANES;
    const char *what = "residual_norm";
    dim3 threads(WARP, ROWS_PER_BLOCK);
    unsigned blocks = ls_cuda_blocks(job->rows, ROWS_PER_BLOCK);
    if (packs <= WARP) {
        ls_cuda_follow(run, what, forward_kernel<T, 1>, blocks, threads, *job);
    } else if (packs <= 2 * WARP) {
        ls_cuda_follow(run, what, forward_kernel<T, 2>, blocks, threads, *job);
    } else if (packs <= 3 * WARP) { /* 768 in bf16 */
        ls_cuda_follow(run, what, forward_kernel<T, 3>, blocks, threads, *job);
    } else if (packs <= PACKS_MAX * WARP) {
        ls_cuda_follow(run, what, forward_kernel<T, PACKS_MAX>, blocks, threads, *job);
    } else {
        unsigned along = ls_cuda_blocks(packs, PACKS_MAX * WARP) * WARP;
        ls_cuda_follow(run, what, forward_kernel<T, PACKS_MAX>, (unsigned)job->rows, along, *job);
    }
    return true;
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    const ls_residual_norm_attributes *about =
        (const ls_residual_norm_attributes *)node->attributes;
    forward_job<T> job = {};
    ls_rows(node->in[0], &job.rows, &job.width, &job.x_stride);
    job.x = (const T *)ls_data(node->in[0]);
    if (node->in[1] != NULL) {
        ls_rows(node->in[1], &job.rows, &job.width, &job.delta_stride);
        job.delta = (const T *)ls_data(node->in[1]);
        job.total = (T *)ls_data(node->out[1]);
    }
    job.weight = ls_cuda_floats(node->in[2]);
    job.bias = ls_cuda_floats(node->in[3]);
    job.y = (T *)ls_data(node->out[0]);
    job.statistics = (float2 *)ls_data(node->out[2]);
    job.epsilon = (float)about->epsilon;
    job.centred = about->kind == LS_NORM_LAYER;
    if (forward_fast(run, &job)) return;
    forward_plain<<<(unsigned)job.rows, PLAIN_THREADS, 0, ls_cuda_of(run)->stream>>>(job);
    ls_cuda_launched(run, "residual_norm");
}

/* ---- backward ---- */

template <typename T> struct backward_job {
    const T *x, *dy, *dsum; /* dsum may be NULL */
    int64_t rows, width, x_stride, dy_stride, dsum_stride;
    const float *weight;
    const float2 *statistics;
    T *dx;
    float *partial; /* [pieces][2][width]: sums of dy * hat and of dy; NULL: not wanted */
    int64_t pieces;
    bool centred;
};

/* Threads that share a row in the fast kernel, each with `each` elements. */
static int64_t elements_each(int64_t width) {
    return width <= 4096 ? 8 : 16;
}
static int64_t threads_along(int64_t width) {
    return ls_round_up(ls_ceil_div(width, elements_each(width)), WARP);
}

/* Pieces of a block: narrow rows share one. */
static int64_t lines_of(int64_t width) {
    return threads_along(width) == WARP ? 4 : 1;
}

/* Piece p has the rows p, p + pieces, ...: at most as many as keep a large device busy, of at least
 * eight rows each, so that the partial sums stay small beside the rows. */
static int64_t pieces_of(int64_t rows, int64_t width) {
    enum { THREADS_WANTED = 132 * 1024, ROWS_LEAST = 8 };
    int64_t most = ls_max(1, THREADS_WANTED / threads_along(width));
    return ls_max(1, ls_min(most, ls_ceil_div(rows, ROWS_LEAST)));
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    int64_t width = node->in[0]->dim[node->in[0]->rank - 1], rows = ls_count(node->in[0]) / width;
    return (size_t)(pieces_of(rows, width) * 2 * width) * sizeof(float);
}

/* A thread's share of what a row is made of. */
template <typename T, int PACKS, int LANES> struct backward_row {
    ls_cuda_pack<T, LANES> x[PACKS], dy[PACKS], dsum[PACKS];
    float2 statistics;
};

template <typename T, int PACKS, int LANES>
static __device__ __forceinline__ void take_row(const backward_job<T> &job, int64_t row,
                                                backward_row<T, PACKS, LANES> &of) {
    if (row >= job.rows) return;
    of.statistics = job.statistics[row];
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
        of.x[k] = ls_cuda_take<LANES>(job.x + row * job.x_stride + i);
        of.dy[k] = ls_cuda_take<LANES>(job.dy + row * job.dy_stride + i);
        if (job.dsum != NULL)
            of.dsum[k] = ls_cuda_take<LANES>(job.dsum + row * job.dsum_stride + i);
    }
}

/* A piece per line of threads; weights and the parameters' gradients stay in registers. Where these
 * allow it, the next row is under way while one is computed. */
template <typename T, int EACH>
static __global__ void __launch_bounds__(THREADS_MAX) backward_kernel(const backward_job<T> job) {
    enum { LANES = ls_cuda_lanes<T>::count, PACKS = EACH / LANES, AHEAD = PACKS == 1 };
    __shared__ float2 shared[2][WARPS_MAX];
    int64_t piece = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (piece >= job.pieces) return; /* whole warps, as in the forward kernel */
    float weight[PACKS][LANES] = {}, dweight[PACKS][LANES] = {}, dbias[PACKS][LANES] = {};
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i < job.width) load_weight<LANES>(job.weight, i, weight[k]);
    }
    int turn = 0;
    backward_row<T, PACKS, LANES> here, next;
    if (AHEAD) take_row(job, piece, next);
    for (int64_t row = piece; row < job.rows; row += job.pieces, turn ^= 1) {
        if (AHEAD) {
            here = next;
            take_row(job, row + job.pieces, next);
        } else {
            take_row(job, row, here);
        }
        const float2 statistics = here.statistics;
        float2 sums = make_float2(0, 0);
        float hat[PACKS][LANES], d[PACKS][LANES];
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
            if (i >= job.width) continue;
            here.x[k].wide(hat[k]);
            here.dy[k].wide(d[k]);
#pragma unroll
            for (int j = 0; j < LANES; j++) {
                hat[k][j] = (hat[k][j] - statistics.x) * statistics.y;
                dweight[k][j] += d[k][j] * hat[k][j];
                dbias[k][j] += d[k][j];
                d[k][j] *= weight[k][j];
                sums.x += d[k][j];
                sums.y += d[k][j] * hat[k][j];
            }
        }
        sums = row_sum(sums, shared, turn);
        float centre = job.centred ? sums.x / (float)job.width : 0.0f;
        float along = sums.y / (float)job.width;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
            if (i >= job.width) continue;
            float more[LANES] = {};
            if (job.dsum != NULL) here.dsum[k].wide(more);
#pragma unroll
            for (int j = 0; j < LANES; j++)
                more[j] += statistics.y * (d[k][j] - centre - hat[k][j] * along);
            ls_cuda_store<LANES>(job.dx + row * job.width + i, more);
        }
    }
    if (job.partial == NULL) return;
    float *partial = job.partial + piece * 2 * job.width;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int64_t i = (int64_t)(threadIdx.x + (unsigned)k * blockDim.x) * LANES;
        if (i >= job.width) continue;
        ls_cuda_store<LANES>(partial + i, dweight[k]);
        ls_cuda_store<LANES>(partial + job.width + i, dbias[k]);
    }
}

/* Any width: dx by a block per row. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS) backward_plain(const backward_job<T> job) {
    __shared__ float2 shared[2][WARPS_MAX];
    int64_t row = blockIdx.x;
    const T *x = job.x + row * job.x_stride, *dy = job.dy + row * job.dy_stride;
    float2 statistics = job.statistics[row], sums = make_float2(0, 0);
    for (int64_t i = threadIdx.x; i < job.width; i += PLAIN_THREADS) {
        float hat = (ls_cuda_wide(x[i]) - statistics.x) * statistics.y;
        float d = ls_cuda_wide(dy[i]) * weight_at(job.weight, i);
        sums.x += d;
        sums.y += d * hat;
    }
    sums = row_sum(sums, shared, 0);
    float centre = job.centred ? sums.x / (float)job.width : 0.0f;
    float along = sums.y / (float)job.width;
    for (int64_t i = threadIdx.x; i < job.width; i += PLAIN_THREADS) {
        float hat = (ls_cuda_wide(x[i]) - statistics.x) * statistics.y;
        float out =
            statistics.y * (ls_cuda_wide(dy[i]) * weight_at(job.weight, i) - centre - hat * along);
        if (job.dsum != NULL) out += ls_cuda_wide(job.dsum[row * job.dsum_stride + i]);
        job.dx[row * job.width + i] = ls_cuda_narrow<T>(out);
    }
}

/* And the parameters' partial sums by a thread per column and piece. */
template <typename T>
static __global__ void __launch_bounds__(PLAIN_THREADS)
    backward_plain_sums(const backward_job<T> job) {
    int64_t i = (int64_t)blockIdx.x * PLAIN_THREADS + threadIdx.x, piece = blockIdx.y;
    if (i >= job.width) return;
    float dweight = 0, dbias = 0;
    for (int64_t row = piece; row < job.rows; row += job.pieces) {
        float2 statistics = job.statistics[row];
        float d = ls_cuda_wide(job.dy[row * job.dy_stride + i]);
        dweight +=
            d * ((ls_cuda_wide(job.x[row * job.x_stride + i]) - statistics.x) * statistics.y);
        dbias += d;
    }
    job.partial[piece * 2 * job.width + i] = dweight;
    job.partial[(piece * 2 + 1) * job.width + i] = dbias;
}

/* No more pieces than there is room for at once: a second round of blocks, of which there would be
 * few, takes as long as the first. */
template <typename T, int EACH>
static void launch_backward(const ls_run *run, backward_job<T> *job) {
    ls_cuda *cuda = ls_cuda_of(run);
    const unsigned along = (unsigned)threads_along(job->width);
    const unsigned lines = (unsigned)lines_of(job->width);
    int at_once = 0;
    ls_cuda_note(cuda,
                 cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, backward_kernel<T, EACH>,
                                                               (int)(along * lines), 0),
                 "residual_norm_grad");
    if (at_once > 0) job->pieces = ls_min(job->pieces, (int64_t)at_once * cuda->processors * lines);
    backward_kernel<T, EACH>
        <<<ls_cuda_blocks(job->pieces, lines), dim3(along, lines), 0, cuda->stream>>>(*job);
}

template <typename T> static bool backward_fast(const ls_run *run, backward_job<T> *job) {
    enum { LANES = ls_cuda_lanes<T>::count, WIDTH_MAX = 16 * THREADS_MAX };
    bool fits = job->width % LANES == 0 && job->width <= WIDTH_MAX && job->x_stride % LANES == 0 &&
                job->dy_stride % LANES == 0 && job->dsum_stride % LANES == 0 &&
                ls_cuda_aligned(job->x) && ls_cuda_aligned(job->dy) && ls_cuda_aligned(job->dsum) &&
                ls_cuda_aligned(job->dx) && ls_cuda_aligned(job->weight) &&
                ls_cuda_aligned(job->partial);
    if (!fits) return false;
    if (elements_each(job->width) == 8)
        launch_backward<T, 8>(run, job);
    else
        launch_backward<T, 16>(run, job);
    return true;
}

template <typename T> static void backward_any(const ls_run *run, const backward_job<T> *job) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    backward_plain<<<(unsigned)job->rows, PLAIN_THREADS, 0, stream>>>(*job);
    if (job->partial == NULL) return;
    dim3 blocks(ls_cuda_blocks(job->width, PLAIN_THREADS), (unsigned)job->pieces);
    backward_plain_sums<<<blocks, PLAIN_THREADS, 0, stream>>>(*job);
}

template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    const ls_residual_norm_attributes *about =
        (const ls_residual_norm_attributes *)node->attributes;
    const ls_tensor *parameter[] = {node->in[1], node->in[2]};
    backward_job<T> job = {};
    ls_rows(node->in[0], &job.rows, &job.width, &job.x_stride);
    ls_rows(node->in[4], &job.rows, &job.width, &job.dy_stride);
    if (node->in[5] != NULL) {
        ls_rows(node->in[5], &job.rows, &job.width, &job.dsum_stride);
        job.dsum = (const T *)ls_data(node->in[5]);
    }
    job.x = (const T *)ls_data(node->in[0]);
    job.dy = (const T *)ls_data(node->in[4]);
    job.weight = ls_cuda_floats(node->in[1]);
    job.statistics = (const float2 *)ls_data(node->in[3]);
    job.dx = (T *)ls_data(node->out[0]);
    job.centred = about->kind == LS_NORM_LAYER;
    job.pieces = pieces_of(job.rows, job.width);
    for (int which = 0; which < 2; which++)
        if (parameter[which] != NULL && parameter[which]->needs_grad)
            job.partial = (float *)run->workspace;
    if (!backward_fast(run, &job)) backward_any(run, &job);
    ls_cuda_launched(run, "residual_norm_grad");
    ls_cuda_axes axes = ls_cuda_axes_of_rows(1, job.width, job.width);
    ls_cuda_layout columns;
    if (job.partial == NULL || !ls_cuda_lay_out(run, 1, &axes, &columns)) return;
    void *to[2] = {};
    for (int which = 0; which < 2; which++)
        if (parameter[which] != NULL && parameter[which]->needs_grad)
            to[which] = ls_param_gradient(run, parameter[which]);
    ls_cuda_add_pieces_to_two(run, job.partial, job.pieces, 2 * job.width, job.width, &columns, to,
                              LS_F32, true, "residual_norm_grad");
}

LS_CUDA_DECLARE_TABLE(residual_norm);
const ls_kernel LS_CUDA_TABLE(residual_norm)[] = {
    {"residual_norm", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"residual_norm_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
