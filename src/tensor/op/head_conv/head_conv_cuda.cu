/* A convolution along time that looks both ways, one row of taps for each head, and its gradient:
 * some rows of a channel to a thread; sums for the taps over pieces of the rows. */
#include "tensor/cuda/rows.cuh"
#include "tensor/cuda/sliding.cuh"

extern "C" {
#include "tensor/op/head_conv/head_conv.h"
}

struct head_sizes {
    int64_t B, length, H, W, taps;
};

static head_sizes sizes_of(const ls_node *node) {
    const ls_tensor *x = node->in[0];
    return {x->dim[0], x->dim[1], x->dim[2], x->dim[3], node->in[1]->dim[1]};
}

enum { ROWS = 16 }; /* that a thread takes at once */

static __host__ __device__ __forceinline__ int64_t blocks_of_rows(const head_sizes &n) {
    return (n.length + ROWS - 1) / ROWS;
}

/* Column i of head h. */
template <typename T>
static __device__ __forceinline__ ls_slide_rows<T>
column_of(const head_sizes &n, const ls_cuda_heads<const T> &x, int64_t b, int64_t h, int64_t i) {
    return {x.at(b, 0, h) + i, x.t_stride, n.length};
}

/* y[t] = sum_s weight[s] x[t + s - before], or WAY -1: sum_s weight[s] x[t - s + before]. */
template <int WAY, typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    convolve_kernel(const head_sizes n, ls_cuda_heads<const T> x, const float *weight,
                    ls_cuda_heads<T> y) {
    const int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    const int64_t i = at % n.W, h = at / n.W % n.H, unit = at / n.W / n.H;
    const int64_t b = unit / blocks_of_rows(n), t = unit % blocks_of_rows(n) * ROWS;
    if (b >= n.B) return;
    const ls_slide_rows<float> taps = {weight + h * n.taps, 1, n.taps};
    float sum[ROWS] = {};
    for (int64_t s = 0; s < n.taps; s += LS_SLIDE_BAND)
        ls_slide<WAY>(taps, s, column_of(n, x, b, h, i), t - WAY * ((n.taps - 1) / 2), sum);
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (t + r < n.length) y.at(b, t + r, h)[i] = ls_cuda_narrow<T>(sum[r]);
}

template <int WAY, typename T>
static void convolve(const ls_run *run, const ls_node *node, const ls_tensor *x, const ls_tensor *y,
                     const char *what) {
    const head_sizes n = sizes_of(node);
    convolve_kernel<WAY, T>
        <<<ls_cuda_blocks(n.B * blocks_of_rows(n) * n.H * n.W, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
           ls_cuda_of(run)->stream>>>(n, ls_cuda_heads_of<const T>(x),
                                      (const float *)ls_data(node->in[1]), ls_cuda_heads_of<T>(y));
    ls_cuda_launched(run, what);
}

enum { PIECES = 64, PIECE_LEAST = 8 }; /* at most; blocks of rows in one, at least */

static int64_t piece_blocks(const head_sizes *n) {
    return ls_max(PIECE_LEAST, ls_ceil_div(n->B * blocks_of_rows(*n), PIECES));
}
static int64_t pieces_of(const head_sizes *n) {
    return ls_ceil_div(n->B * blocks_of_rows(*n), piece_blocks(n));
}

/* partial[piece][h][s] = sum over the piece's rows of dy[t] . x[t + s - before], for a band of
 * taps. Lanes are columns, warps take blocks of rows in turns. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    weight_pieces(const head_sizes n, int64_t each, ls_cuda_heads<const T> x,
                  ls_cuda_heads<const T> dy, float *partial) {
    enum { WARPS = LS_CUDA_THREADS / 32 };
    const int64_t h = blockIdx.y, tap = (int64_t)blockIdx.x * LS_SLIDE_BAND;
    const int64_t first = blockIdx.z * each, all = n.B * blocks_of_rows(n);
    const int64_t end = first + each < all ? first + each : all;
    float sum[LS_SLIDE_BAND] = {};
    for (int64_t unit = first + threadIdx.x / 32; unit < end; unit += WARPS) {
        const int64_t b = unit / blocks_of_rows(n), t = unit % blocks_of_rows(n) * ROWS;
        for (int64_t i = threadIdx.x % 32; i < n.W; i += 32)
            ls_slide_weights<1, ROWS>(column_of(n, dy, b, h, i), t, column_of(n, x, b, h, i),
                                      t + tap - (n.taps - 1) / 2, sum);
    }
    for (int i = 0; i < LS_SLIDE_BAND; i++) {
        const float total = ls_cuda_block_sum<LS_CUDA_THREADS>(sum[i]);
        if (threadIdx.x == 0 && tap + i < n.taps)
            partial[(blockIdx.z * n.H + h) * n.taps + tap + i] = total;
    }
}

template <typename T> static void weight_gradient(const ls_run *run, const ls_node *node) {
    const ls_tensor *weight = node->in[1];
    const head_sizes n = sizes_of(node);
    float *partial = (float *)run->workspace;
    const dim3 blocks(ls_cuda_blocks(n.taps, LS_SLIDE_BAND), (unsigned)n.H,
                      (unsigned)pieces_of(&n));
    weight_pieces<T><<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        n, piece_blocks(&n), ls_cuda_heads_of<const T>(node->in[0]),
        ls_cuda_heads_of<const T>(node->in[2]), partial);
    ls_cuda_launched(run, "head_conv_grad");
    const ls_cuda_axes axes = ls_cuda_axes_of(weight);
    ls_cuda_layout columns;
    if (ls_cuda_lay_out(run, 1, &axes, &columns))
        ls_cuda_add_pieces(run, partial, pieces_of(&n), n.H * n.taps, &columns,
                           ls_param_gradient(run, weight), LS_F32, true, "head_conv_grad");
}

static size_t backward_workspace(const ls_node *node, int threads) {
    (void)threads;
    const head_sizes n = sizes_of(node);
    return (size_t)(pieces_of(&n) * n.H * n.taps) * sizeof(float);
}

template <typename T> static void forward(const ls_run *run, const ls_node *node) {
    convolve<1, T>(run, node, node->in[0], node->out[0], "head_conv");
}
template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    if (node->out[0] != NULL)
        convolve<-1, T>(run, node, node->in[2], node->out[0], "head_conv_grad");
    if (node->in[1]->needs_grad) weight_gradient<T>(run, node);
}

LS_CUDA_DECLARE_TABLE(head_conv);
const ls_kernel LS_CUDA_TABLE(head_conv)[] = {
    {"head_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"head_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
