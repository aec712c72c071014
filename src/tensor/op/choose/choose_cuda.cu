/* A block has the logits of a sequence, each thread every so many of them. */
#include "tensor/cuda/follow.cuh"
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/choose/choose.h"
}

enum { THREADS = 1024, AHEAD = 4 };

typedef struct choose_job {
    const void *logits;
    int64_t stride, columns;
    int32_t *tokens, *choices;
    ls_cuda_start start;
} choose_job;

struct candidate {
    float value;
    int32_t at;
    /* The larger, or the first of equals. */
    __device__ __forceinline__ void meet(float other, int32_t other_at) {
        if (other > value || (other == value && other_at < at)) value = other, at = other_at;
    }
};

static __device__ __forceinline__ void meet_warp(candidate &best) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float value = __shfl_xor_sync(0xffffffffu, best.value, step);
        const int32_t at = __shfl_xor_sync(0xffffffffu, best.at, step);
        best.meet(value, at);
    }
}

template <typename T, int LANES>
static __global__ void __launch_bounds__(THREADS) choose_kernel(const choose_job job) {
    __shared__ candidate of_warp[THREADS / 32];
    const T *logits = (const T *)job.logits + blockIdx.x * job.stride;
    candidate best = {-INFINITY, INT32_MAX};
    ls_cuda_after();
    for (int64_t base = (int64_t)threadIdx.x * LANES; base < job.columns;
         base += AHEAD * THREADS * LANES) {
        ls_cuda_pack<T, LANES> ahead[AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t i = base + u * THREADS * LANES;
            if (i < job.columns) ahead[u] = ls_cuda_take<LANES>(logits + i);
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const int64_t i = base + u * THREADS * LANES;
            if (i >= job.columns) continue;
            float value[LANES];
            ahead[u].wide(value);
#pragma unroll
            for (int j = 0; j < LANES; j++)
                if (i + j < job.columns) best.meet(value[j], (int32_t)(i + j));
        }
    }
    meet_warp(best);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    best = of_warp[threadIdx.x];
    meet_warp(best);
    if (threadIdx.x != 0) return;
    const float first = ls_cuda_wide(logits[0]);
    const int32_t at = isnan(first) || best.at == INT32_MAX ? 0 : best.at;
    job.tokens[blockIdx.x] = at;
    job.choices[blockIdx.x * LS_CHOICES + job.start.at() % LS_CHOICES] = at;
}

template <typename T> static void choose(const ls_run *run, const ls_node *node) {
    enum { LANES = ls_cuda_lanes<T>::count };
    const ls_tensor *logits = node->in[0];
    choose_job job = {};
    job.logits = ls_data(logits);
    job.stride = logits->stride[0];
    job.columns = ((const ls_choose_attributes *)node->attributes)->columns;
    job.tokens = (int32_t *)ls_data(node->in[1]);
    job.choices = (int32_t *)ls_data(node->in[2]);
    job.start = ls_cuda_start_of(run);
    const unsigned blocks = (unsigned)logits->dim[0];
    /* a pack beyond the last column lies within the row */
    if (ls_cuda_aligned(job.logits) && job.stride % LANES == 0)
        ls_cuda_follow(run, "choose", choose_kernel<T, LANES>, blocks, THREADS, job);
    else
        ls_cuda_follow(run, "choose", choose_kernel<T, 1>, blocks, THREADS, job);
    ls_cuda_steady(run);
}

LS_CUDA_DECLARE_TABLE(choose);
const ls_kernel LS_CUDA_TABLE(choose)[] = {
    {"choose", {NULL, choose<float>, choose<ls_cuda_bf16>}, NULL},
    {},
};
