/* A bias table over distances from two rotated vectors. Angles in double, taken anew for every
 * distance. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/rotary_table/rotary_table.h"
}

enum { TILE = 128 }; /* pairs in shared memory at a time */

/* What both directions have. */
typedef struct vectors {
    const float *alpha, *beta;
    int64_t pairs, R, zero;
    double base;
} vectors;

static vectors vectors_of(const ls_node *node, const ls_tensor *table) {
    const ls_rotary_table_attributes *about = (const ls_rotary_table_attributes *)node->attributes;
    vectors v = {(const float *)ls_data(node->in[0]),
                 (const float *)ls_data(node->in[1]),
                 ls_count(node->in[0]) / 2,
                 table->dim[1],
                 about->zero,
                 about->base};
    return v;
}

/* A pair's product W = A conj(B): the table is the sum of Re(W e^{i distance theta}). */
typedef struct pair {
    double re, im, theta;
} pair;

static __device__ double theta_of(const vectors &v, int64_t k) {
    return pow(v.base, -(double)k / (double)v.pairs);
}

static __device__ pair pair_of(const vectors &v, int64_t k) {
    double a1 = v.alpha[k], a2 = v.alpha[k + v.pairs];
    double b1 = v.beta[k], b2 = v.beta[k + v.pairs];
    pair w = {a1 * b1 + a2 * b2, a2 * b1 - a1 * b2, theta_of(v, k)};
    return w;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    table_kernel(const vectors v, float *table) {
    __shared__ pair some[TILE];
    int64_t r = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    double sum = 0, distance = (double)(r - v.zero);
    for (int64_t first = 0; first < v.pairs; first += TILE) {
        int count = v.pairs - first < TILE ? (int)(v.pairs - first) : TILE;
        __syncthreads();
        if ((int)threadIdx.x < count) some[threadIdx.x] = pair_of(v, first + threadIdx.x);
        __syncthreads();
        for (int k = 0; k < count && r < v.R; k++) {
            double sine, cosine;
            sincos(distance * some[k].theta, &sine, &cosine);
            sum += some[k].re * cosine - some[k].im * sine;
        }
    }
    if (r < v.R) table[r] = (float)sum;
}

/* A block has one pair. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    grad_kernel(const vectors v, const float *dtable, float *dalpha, float *dbeta) {
    int64_t k = blockIdx.x;
    double theta = theta_of(v, k), re = 0, im = 0;
    for (int64_t r = threadIdx.x; r < v.R; r += LS_CUDA_THREADS) {
        double sine, cosine, d = dtable[r];
        sincos((double)(r - v.zero) * theta, &sine, &cosine);
        re += d * cosine;
        im -= d * sine;
    }
    re = ls_cuda_block_sum<LS_CUDA_THREADS>(re);
    im = ls_cuda_block_sum<LS_CUDA_THREADS>(im);
    if (threadIdx.x != 0) return;
    double a1 = v.alpha[k], a2 = v.alpha[k + v.pairs];
    double b1 = v.beta[k], b2 = v.beta[k + v.pairs];
    dalpha[k] += (float)(re * b1 - im * b2);
    dalpha[k + v.pairs] += (float)(re * b2 + im * b1);
    dbeta[k] += (float)(re * a1 + im * a2);
    dbeta[k + v.pairs] += (float)(re * a2 - im * a1);
}

static void table(const ls_run *run, const ls_node *node) {
    const vectors v = vectors_of(node, node->out[0]);
    table_kernel<<<ls_cuda_blocks(v.R, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                   ls_cuda_of(run)->stream>>>(v, (float *)ls_data(node->out[0]));
    ls_cuda_launched(run, "rotary_table");
}

static void grad(const ls_run *run, const ls_node *node) {
    const vectors v = vectors_of(node, node->in[2]);
    if (v.pairs == 0) return;
    grad_kernel<<<(unsigned)v.pairs, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        v, (const float *)ls_data(node->in[2]), (float *)ls_param_gradient(run, node->in[0]),
        (float *)ls_param_gradient(run, node->in[1]));
    ls_cuda_launched(run, "rotary_table_grad");
}

LS_CUDA_DECLARE_TABLE(rotary_table);
const ls_kernel LS_CUDA_TABLE(rotary_table)[] = {
    {"rotary_table", {NULL, table, table}, NULL},
    {"rotary_table_grad", {NULL, grad, grad}, NULL},
    {},
};
