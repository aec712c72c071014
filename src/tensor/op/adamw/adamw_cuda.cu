/* AdamW and the gradient's norm: a block per piece of the flat buffers. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/adamw/adamw.h"
}

/* Pieces are multiples of 64 elements long and 16-byte aligned. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    norm_kernel(const ls_adamw_piece *pieces, const float *__restrict__ gradient, double *sums) {
    ls_adamw_piece piece = pieces[blockIdx.x];
    double sum = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x * 4; i < piece.count; i += LS_CUDA_THREADS * 4) {
        float g[4];
        ls_cuda_load<4>(gradient + piece.offset + i, g);
#pragma unroll
        for (int j = 0; j < 4; j++) sum += (double)g[j] * (double)g[j];
    }
    sum = ls_cuda_block_sum<LS_CUDA_THREADS>(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = piece.running > 0 ? 0 * sum : sum;
}

/* The numbers of a pass in f32. */
typedef struct factors {
    float beta1, rest1, beta2, rest2, keep, scale, epsilon, rate, root, part;
} factors;

typedef struct buffers {
    float *weights, *gradient;
    float *mean, *square;
    bool apart;    /* the weights lie as the moments do */
    uint2 *shadow; /* four bf16 each; or NULL */
} buffers;

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    adamw_kernel(const ls_adamw_piece *pieces, const buffers at, const factors by) {
    ls_adamw_piece piece = pieces[blockIdx.x];
    const float keep = piece.decays ? by.keep : 1.0f;
    const float rate = piece.rate * by.rate;
    for (int64_t i = threadIdx.x * 4; i < piece.count; i += LS_CUDA_THREADS * 4) {
        const int64_t place = piece.offset + i, own = piece.own + i;
        float *weights = at.weights + (at.apart ? own : place);
        float w[4], g[4], mean[4], square[4];
        ls_cuda_load<4>(at.gradient + place, g);
        ls_cuda_load<4>(at.mean + own, mean);
        ls_cuda_load<4>(at.square + own, square);
        ls_cuda_load<4>(weights, w);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            if (piece.running > 0) {
                w[j] += (float)piece.running * (by.part * g[j] - w[j]);
                g[j] = 0;
                continue;
            }
            float x = by.scale * g[j];
            mean[j] = by.beta1 * mean[j] + by.rest1 * x;
            square[j] = by.beta2 * square[j] + by.rest2 * (x * x);
            w[j] = keep * w[j] - rate * mean[j] / (by.root * sqrtf(square[j]) + by.epsilon);
            g[j] = 0;
        }
        ls_cuda_store<4>(at.gradient + place, g);
        ls_cuda_store<4>(at.mean + own, mean);
        ls_cuda_store<4>(at.square + own, square);
        ls_cuda_store<4>(weights, w);
        if (at.shadow == NULL) continue;
        at.shadow[place / 4] =
            make_uint2(ls_cuda_narrow_two(w[0], w[1]), ls_cuda_narrow_two(w[2], w[3]));
    }
}

static void norm(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = (const ls_adamw *)node->attributes;
    if (pass->piece_count == 0) return;
    norm_kernel<<<(unsigned)pass->piece_count, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        pass->pieces, (const float *)pass->gradient, pass->sums);
    ls_cuda_launched(run, "adamw_norm");
}

static void apply(const ls_run *run, const ls_node *node) {
    const ls_adamw *pass = (const ls_adamw *)node->attributes;
    if (pass->piece_count == 0) return;
    factors by = {(float)pass->beta1,       (float)(1 - pass->beta1), (float)pass->beta2,
                  (float)(1 - pass->beta2), (float)(1 - pass->decay), (float)pass->scale,
                  (float)pass->epsilon,     (float)pass->rate,        (float)pass->root,
                  (float)pass->part};
    buffers at = {(float *)pass->weights,
                  (float *)pass->gradient,
                  (float *)pass->mean,
                  (float *)pass->square,
                  pass->apart,
                  (uint2 *)pass->shadow};
    adamw_kernel<<<(unsigned)pass->piece_count, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        pass->pieces, at, by);
    ls_cuda_launched(run, "adamw");
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    add_kernel(float *__restrict__ to, const float *__restrict__ from, int64_t count, bool copies) {
    int64_t i = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) * 4;
    if (i >= count) return;
    float sum[4], more[4];
    ls_cuda_load<4>(to + i, sum);
    ls_cuda_load<4>(from + i, more);
#pragma unroll
    for (int j = 0; j < 4; j++) sum[j] = copies ? more[j] : sum[j] + more[j];
    ls_cuda_store<4>(to + i, sum);
}

static void add(const ls_run *run, const ls_node *node) {
    const ls_gradient_sum *sum = (const ls_gradient_sum *)node->attributes;
    const int64_t each = LS_CUDA_THREADS * 4, blocks = (sum->count + each - 1) / each;
    if (sum->count == 0) return;
    add_kernel<<<(unsigned)blocks, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        (float *)sum->to, (const float *)sum->from, sum->count, sum->copies);
    ls_cuda_launched(run, "gradient_add");
}

LS_CUDA_DECLARE_TABLE(adamw);
const ls_kernel LS_CUDA_TABLE(adamw)[] = {
    {"adamw_norm", {NULL, norm, norm}, NULL},
    {"adamw", {NULL, apply, apply}, NULL},
    {"gradient_add", {NULL, add, add}, NULL},
    {},
};
