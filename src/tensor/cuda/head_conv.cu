/* A convolution along time that looks both ways, one row of taps for each head, and its gradient:
 * an element of the result to a thread; sums for the taps over pieces of rows. */
#include "tensor/cuda/lib/rows.h"

extern "C" {
#include "tensor/ops.h"
}

struct head_sizes {
    int64_t B, length, H, W, taps;
};

static head_sizes sizes_of(const ls_node *node) {
    const ls_tensor *x = node->in[0];
    return {x->dim[0], x->dim[1], x->dim[2], x->dim[3], node->in[1]->dim[1]};
}

/* y = sum_s weight[s] x[t + s - before]; backwards (`turned`) the taps go the other way. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    convolve_kernel(const head_sizes n, ls_cuda_heads<const T> x, const float *weight,
                    ls_cuda_heads<T> y, bool turned) {
    int64_t at = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    const int64_t i = at % n.W, h = at / n.W % n.H, row = at / n.W / n.H;
    const int64_t b = row / n.length, t = row % n.length, before = (n.taps - 1) / 2;
    if (b >= n.B) return;
    const int64_t first = before > t ? before - t : 0;
    const int64_t end = n.length - t + before < n.taps ? n.length - t + before : n.taps;
    float sum = 0;
    for (int64_t s = first; s < end; s++)
        sum += weight[h * n.taps + (turned ? n.taps - 1 - s : s)] *
               ls_cuda_wide(x.at(b, t + s - before, h)[i]);
    y.at(b, t, h)[i] = ls_cuda_narrow<T>(sum);
}

template <typename T>
static void convolve(const ls_run *run, const ls_node *node, const ls_tensor *x, const ls_tensor *y,
                     bool turned, const char *what) {
    const head_sizes n = sizes_of(node);
    convolve_kernel<T><<<ls_cuda_blocks(n.B * n.length * n.H * n.W, LS_CUDA_THREADS),
                         LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        n, ls_cuda_heads_of<const T>(x), (const float *)ls_data(node->in[1]),
        ls_cuda_heads_of<T>(y), turned);
    ls_cuda_launched(run, what);
}

enum { PIECES = 256, PIECE_LEAST = 64 }; /* at most; rows of one, at least */

static int64_t piece_rows(const head_sizes *n) {
    return ls_max(PIECE_LEAST, ls_ceil_div(n->B * n->length, PIECES));
}
static int64_t pieces_of(const head_sizes *n) {
    return ls_ceil_div(n->B * n->length, piece_rows(n));
}

/* partial[piece][h][s] = sum over the piece's rows of dy[t] . x[t + s - before]. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    weight_pieces(const head_sizes n, int64_t rows, ls_cuda_heads<const T> x,
                  ls_cuda_heads<const T> dy, float *partial) {
    const int64_t h = blockIdx.x / n.taps, shift = blockIdx.x % n.taps - (n.taps - 1) / 2;
    const int64_t first = blockIdx.y * rows, all = n.B * n.length - first;
    const int64_t count = (all < rows ? all : rows) * n.W;
    float sum = 0;
    for (int64_t at = threadIdx.x; at < count; at += LS_CUDA_THREADS) {
        const int64_t row = first + at / n.W, i = at % n.W, b = row / n.length, t = row % n.length;
        if (t + shift >= 0 && t + shift < n.length)
            sum += ls_cuda_wide(dy.at(b, t, h)[i]) * ls_cuda_wide(x.at(b, t + shift, h)[i]);
    }
    sum = ls_cuda_block_sum<LS_CUDA_THREADS>(sum);
    if (threadIdx.x == 0) partial[blockIdx.y * (int64_t)gridDim.x + blockIdx.x] = sum;
}

template <typename T> static void weight_gradient(const ls_run *run, const ls_node *node) {
    const ls_tensor *weight = node->in[1];
    const head_sizes n = sizes_of(node);
    float *partial = (float *)run->workspace;
    const dim3 blocks((unsigned)(n.H * n.taps), (unsigned)pieces_of(&n));
    weight_pieces<T><<<blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        n, piece_rows(&n), ls_cuda_heads_of<const T>(node->in[0]),
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
    convolve<T>(run, node, node->in[0], node->out[0], false, "head_conv");
}
template <typename T> static void backward(const ls_run *run, const ls_node *node) {
    if (node->out[0] != NULL)
        convolve<T>(run, node, node->in[2], node->out[0], true, "head_conv_grad");
    if (node->in[1]->needs_grad) weight_gradient<T>(run, node);
}

LS_CUDA_DECLARE_TABLE(head_conv);
const ls_kernel LS_CUDA_TABLE(head_conv)[] = {
    {"head_conv", {NULL, forward<float>, forward<ls_cuda_bf16>}, NULL},
    {"head_conv_grad", {NULL, backward<float>, backward<ls_cuda_bf16>}, backward_workspace},
    {},
};
