/* Division by sums of absolute scores: a warp has a row, its lanes take keys in turn. */
#include "tensor/cuda/reduce.cuh"
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/score_sums/score_sums.h"
}

/* [B,T,H,width] at any strides. */
struct heads {
    void *data;
    int64_t batch, row, head, width;
};

static heads heads_of(const ls_tensor *x) {
    return {ls_data(x), x->stride[0], x->stride[1], x->stride[2], x->dim[3]};
}

template <typename T> static __device__ T *row_at(const heads &x, int64_t b, int64_t t, int64_t h) {
    return (T *)x.data + b * x.batch + t * x.row + h * x.head;
}

template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    divide_kernel(int64_t B, int64_t rows, int64_t H, heads y, heads q, heads k, const float *decay,
                  float least, float most, heads out) {
    const int64_t unit = ((int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x) / 32;
    const int lane = (int)threadIdx.x % 32;
    if (unit >= B * H * rows) return;
    const int64_t t = unit % rows, h = unit / rows % H, b = unit / rows / H;
    const float log_decay = decay[h], count = (float)(t + 1);
    const T *query = row_at<const T>(q, b, t, h);
    float sum = 0;
    for (int64_t m = lane; m <= t; m += 32) {
        const T *key = row_at<const T>(k, b, m, h);
        float score = 0;
        for (int64_t i = 0; i < q.width; i++)
            score += ls_cuda_wide(query[i]) * ls_cuda_wide(key[i]);
        sum += expf((float)(t - m) * log_decay) * fabsf(score);
    }
    const float kept = log_decay == 0 ? count : expm1f(count * log_decay) / expm1f(log_decay);
    sum = ls_cuda_warp_sum(sum) * rsqrtf(kept);
    const float divisor = fminf(fmaxf(sum, least), most);
    const T *from = row_at<const T>(y, b, t, h);
    T *to = row_at<T>(out, b, t, h);
    for (int64_t j = lane; j < y.width; j += 32)
        to[j] = ls_cuda_narrow<T>(ls_cuda_wide(from[j]) / divisor);
}

template <typename T> static void divide(const ls_run *run, const ls_node *node) {
    const ls_score_bounds *bounds = (const ls_score_bounds *)node->attributes;
    const ls_tensor *y = node->in[LS_SCORE_SUMS_Y];
    const int64_t units = y->dim[0] * y->dim[1] * y->dim[2];
    divide_kernel<T><<<ls_cuda_blocks(units * 32, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                       ls_cuda_of(run)->stream>>>(
        y->dim[0], y->dim[1], y->dim[2], heads_of(y), heads_of(node->in[LS_SCORE_SUMS_Q]),
        heads_of(node->in[LS_SCORE_SUMS_K]), ls_cuda_floats(node->in[LS_SCORE_SUMS_DECAY]),
        (float)bounds->least, (float)bounds->most, heads_of(node->out[0]));
    ls_cuda_launched(run, "divide_by_scores");
}

LS_CUDA_DECLARE_TABLE(score_sums);
const ls_kernel LS_CUDA_TABLE(score_sums)[] = {
    {"divide_by_scores", {NULL, divide<float>, divide<ls_cuda_bf16>}, NULL},
    {},
};
