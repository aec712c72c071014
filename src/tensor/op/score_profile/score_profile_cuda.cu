/* Attention scores by distance: a warp takes a head and a distance, its lanes take queries; sums
 * are in f64 and in a fixed order. */
#include "tensor/cuda/reduce.cuh"
#include "tensor/op/attention/attention_plain.cuh"

enum { WARPS = 4 };

/* Whether query row i of head h admits the key at its position less `distance`, and how often;
 * its row goes to *key. */
static __device__ int key_at_distance(const ls_cuda_attention &job, const ls_cuda_key_set &s, int b,
                                      int h, int i, int64_t distance, int *key) {
    const int64_t n = job.start + i, step = ls_cuda_step(s, h);
    const int64_t j = n - distance - s.key_position;
    const ls_cuda_span span = ls_cuda_keys_of(s, n, n, step, false);
    if (j < span.first || j >= span.end || distance % step != 0) return 0;
    *key = (int)j;
    return ls_cuda_key_valid(s, b, *key) ? ls_cuda_times(s, h, n, n - distance) : 0;
}

template <typename T>
__global__ static void profile(const ls_cuda_attention job, int64_t distances, double *to) {
    const int64_t unit = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    const int lane = (int)threadIdx.x % 32;
    if (unit >= job.H * distances) return;
    const int h = (int)(unit / distances);
    const int64_t distance = unit % distances, rows = (int64_t)job.B * job.T;
    double sum = 0, count = 0;
    for (int64_t row = lane; row < rows; row += 32) {
        const int b = (int)(row / job.T), i = (int)(row % job.T);
        for (int s = 0; s < job.sets; s++) {
            int j;
            const int times = key_at_distance(job, job.set[s], b, h, i, distance, &j);
            if (times == 0) continue;
            sum +=
                (double)ls_cuda_score<T>(job, job.set[s], b, h, i, j, times) * (double)LS_CUDA_LN_2;
            count += 1;
        }
    }
    sum = ls_cuda_warp_sum(sum);
    count = ls_cuda_warp_sum(count);
    if (lane != 0) return;
    to[unit] = sum;
    to[job.H * distances + unit] = count;
}

template <typename T> static void launch(const ls_run *run, const ls_node *node) {
    const int64_t distances = node->out[0]->dim[2];
    ls_cuda_attention job;
    ls_cuda_attention_begin(run, node, false, &job);
    const int64_t units = job.H * distances;
    profile<T><<<(unsigned)((units + WARPS - 1) / WARPS), 32 * WARPS, 0, ls_cuda_of(run)->stream>>>(
        job, distances, (double *)ls_data(node->out[0]));
    ls_cuda_launched(run, "score_profile");
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return ls_cuda_attention_workspace(node, false);
}

LS_CUDA_DECLARE_TABLE(score_profile);
const ls_kernel LS_CUDA_TABLE(score_profile)[] = {
    {"score_profile", {NULL, launch<float>, launch<ls_cuda_bf16>}, workspace},
    {"listed_score_profile", {NULL, launch<float>, launch<ls_cuda_bf16>}, workspace},
    {0},
};
