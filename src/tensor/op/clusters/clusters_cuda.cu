/* A vocabulary in clusters. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/clusters/clusters.h"
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    ids_kernel(const ls_cluster_attributes about, int64_t count, const int32_t *ids, int32_t *out) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    const int64_t *first = about.clusters.first;
    const int32_t id = ids[i];
    int cluster = 0;
    while (cluster + 1 < about.clusters.count && id >= first[cluster + 1]) cluster++;
    if (id < 0)
        out[i] = -1;
    else if (cluster == about.which)
        out[i] = (int32_t)(id - first[cluster]);
    else
        out[i] = about.columns ? (int32_t)(first[1] + cluster - 1) : -1;
}

static void cluster_ids(const ls_run *run, const ls_node *node) {
    const int64_t count = ls_count(node->in[0]);
    ids_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                 ls_cuda_of(run)->stream>>>(*(const ls_cluster_attributes *)node->attributes, count,
                                            (const int32_t *)ls_data(node->in[0]),
                                            (int32_t *)ls_data(node->out[0]));
    ls_cuda_launched(run, "cluster_ids");
}

/* One array per cluster. */
template <typename T> struct cluster_arrays {
    int count;
    const T *at[LS_CLUSTERS_MAX];
};

template <typename T> static cluster_arrays<T> arrays_of(const ls_node *node) {
    cluster_arrays<T> arrays = {node->in_count};
    for (int i = 0; i < node->in_count; i++) arrays.at[i] = (const T *)ls_data(node->in[i]);
    return arrays;
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    losses_kernel(const cluster_arrays<float> losses, int64_t count, float *out) {
    const int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    double sum = 0;
    for (int j = 0; j < losses.count; j++) sum += losses.at[j][i];
    out[i] = (float)sum;
}

static void cluster_losses(const ls_run *run, const ls_node *node) {
    const int64_t count = ls_count(node->out[0]);
    losses_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                    ls_cuda_of(run)->stream>>>(arrays_of<float>(node), count,
                                               (float *)ls_data(node->out[0]));
    ls_cuda_launched(run, "cluster_losses");
}

template <typename T> static __device__ double log_of_sum(const T *logits, int64_t count) {
    double most = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < count; i += LS_CUDA_THREADS)
        most = fmax(most, (double)ls_cuda_wide(logits[i]));
    most = ls_cuda_block_max<LS_CUDA_THREADS>(most);
    for (int64_t i = threadIdx.x; i < count; i += LS_CUDA_THREADS)
        sum += exp((double)ls_cuda_wide(logits[i]) - most);
    return most + log(ls_cuda_block_sum<LS_CUDA_THREADS>(sum));
}

/* A block has a row: logits are wanted of few. */
template <typename T>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    logits_kernel(const ls_clusters clusters, const cluster_arrays<T> logits, T *out) {
    const int64_t *first = clusters.first, row = blockIdx.x;
    const int64_t wide = first[1] + clusters.count - 1;
    const T *head = logits.at[0] + row * wide;
    out += row * first[clusters.count];
    const double total = log_of_sum(head, wide);
    for (int64_t i = threadIdx.x; i < first[1]; i += LS_CUDA_THREADS)
        out[i] = ls_cuda_narrow<T>((float)((double)ls_cuda_wide(head[i]) - total));
    for (int c = 1; c < clusters.count; c++) {
        const int64_t size = first[c + 1] - first[c];
        const T *tail = logits.at[c] + row * size;
        const double own =
            (double)ls_cuda_wide(head[first[1] + c - 1]) - total - log_of_sum(tail, size);
        for (int64_t i = threadIdx.x; i < size; i += LS_CUDA_THREADS)
            out[first[c] + i] = ls_cuda_narrow<T>((float)(own + (double)ls_cuda_wide(tail[i])));
    }
}

template <typename T> static void cluster_logits(const ls_run *run, const ls_node *node) {
    const ls_clusters clusters = ((const ls_cluster_attributes *)node->attributes)->clusters;
    const int64_t rows = ls_count(node->out[0]) / clusters.first[clusters.count];
    logits_kernel<<<(unsigned)rows, LS_CUDA_THREADS, 0, ls_cuda_of(run)->stream>>>(
        clusters, arrays_of<T>(node), (T *)ls_data(node->out[0]));
    ls_cuda_launched(run, "cluster_logits");
}

LS_CUDA_DECLARE_TABLE(clusters);
const ls_kernel LS_CUDA_TABLE(clusters)[] = {
    {"cluster_ids", {NULL, cluster_ids, cluster_ids}, NULL},
    {"cluster_losses", {NULL, cluster_losses, cluster_losses}, NULL},
    {"cluster_logits", {NULL, cluster_logits<float>, cluster_logits<ls_cuda_bf16>}, NULL},
    {},
};
