/* Attention weights as a view asks for them: a warp takes a query of a head, its lanes take keys;
 * sums are in f64 and in a fixed order. */
#include "tensor/cuda/reduce.cuh"
#include "tensor/op/attention/attention_plain.cuh"
#include "tensor/op/attention_pattern/attention_pattern.h"

enum { WARPS = 4 };

/* The weight of key row j of a set, and its logarithm to base 2; 0 where it is not admitted. */
template <typename T>
static __device__ float weight_of(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                  int h, int i, int64_t j, float lse, float *log2_weight) {
    const int64_t n = job.start + i, m = s.key_position + j, step = ls_cuda_step(s, h);
    *log2_weight = 0;
    if ((n - m) % step != 0 || !ls_cuda_key_valid(s, b, (int)j)) return 0;
    const int times = ls_cuda_times(s, h, n, m);
    if (times == 0) return 0;
    *log2_weight = ls_cuda_score<T>(job, s, b, h, i, (int)j, times) - lse;
    return exp2f(*log2_weight);
}

template <typename T>
__global__ static void look(const ls_cuda_attention job, const ls_pattern_view view, double *to) {
    const int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (row >= (int64_t)job.B * job.H * job.T) return;
    const int b = (int)(row / ((int64_t)job.H * job.T)), h = (int)(row / job.T % job.H);
    const int i = (int)(row % job.T);
    const int64_t n = job.start + i, columns = view.distances + view.first_keys + 2;
    double *out = to + (((int64_t)b * job.T + i) * job.H + h) * columns;
    const float row_lse = job.lse[row] * LS_CUDA_LOG2_E;
    for (int64_t c = lane; c < columns - 2; c += 32) out[c] = 0;
    __syncwarp();
    double entropy = 0, distance = 0;
    for (int at = 0; at < job.sets; at++) {
        const ls_cuda_key_set &s = job.set[at];
        const ls_cuda_span span = ls_cuda_keys_of(s, n, n, ls_cuda_step(s, h), false);
        for (int64_t j = span.first + lane; j < span.end; j += 32) {
            const int64_t m = s.key_position + j;
            float log2_weight;
            const float weight = weight_of<T>(job, s, b, h, i, j, row_lse, &log2_weight);
            if (weight == 0) continue;
            entropy -= (double)weight * (double)(log2_weight * LS_CUDA_LN_2);
            distance += (double)weight * (double)(n - m);
            /* a key is one lane's, and sets follow one another: nobody else adds here */
            for (int64_t c = 0; c < view.distances; c++)
                if (n - m == view.distance[c]) out[c] += (double)weight;
            if (m >= 0 && m < view.first_keys) out[view.distances + m] += (double)weight;
        }
        __syncwarp();
    }
    entropy = ls_cuda_warp_sum(entropy);
    distance = ls_cuda_warp_sum(distance);
    if (lane != 0) return;
    out[columns - 2] = entropy;
    out[columns - 1] = distance;
}

template <typename T> static void launch(const ls_run *run, const ls_node *node) {
    ls_cuda_attention job;
    ls_cuda_attention_begin(run, node, false, &job);
    const int64_t rows = (int64_t)job.B * job.H * job.T;
    look<T><<<(unsigned)((rows + WARPS - 1) / WARPS), 32 * WARPS, 0, ls_cuda_of(run)->stream>>>(
        job, *ls_pattern_view_of(node), (double *)ls_data(node->out[0]));
    ls_cuda_launched(run, "attention_pattern");
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_attention_workspace(node, false);
}

LS_CUDA_DECLARE_TABLE(attention_pattern);
const ls_kernel LS_CUDA_TABLE(attention_pattern)[] = {
    {"attention_pattern", {NULL, launch<float>, launch<ls_cuda_bf16>}, workspace},
    {"listed_attention_pattern", {NULL, launch<float>, launch<ls_cuda_bf16>}, workspace},
    {0},
};
