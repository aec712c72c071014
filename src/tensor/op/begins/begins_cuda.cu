/* Rows and places that are a sequence's own; the type of the program does not matter. */
#include "tensor/cuda/rows.cuh"

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    own_rows_kernel(const int32_t *begins, int64_t count, int64_t N, int64_t first, int64_t each,
                    uint8_t *own) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i < count) own[i] = (first + i % N) * each >= begins[i / N];
}

static void own_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *own = node->out[0];
    const int64_t count = ls_count(own), each = *(const int64_t *)node->attributes;
    own_rows_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                      ls_cuda_of(run)->stream>>>((const int32_t *)ls_data(node->in[0]), count,
                                                 own->dim[1], ls_cache_extent(run, own).first, each,
                                                 (uint8_t *)ls_data(own));
    ls_cuda_launched(run, "own_rows");
}

static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    own_places_kernel(const int32_t *begins, int64_t count, int64_t T, int64_t start, int64_t last,
                      int32_t *places) {
    int64_t i = (int64_t)blockIdx.x * LS_CUDA_THREADS + threadIdx.x;
    if (i >= count) return;
    int64_t place = start + i % T - begins[i / T];
    places[i] = (int32_t)(place < last ? place : last);
}

static void own_places(const ls_run *run, const ls_node *node) {
    const ls_tensor *places = node->out[0];
    const int64_t count = ls_count(places), last = *(const int64_t *)node->attributes;
    own_places_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0,
                        ls_cuda_of(run)->stream>>>((const int32_t *)ls_data(node->in[0]), count,
                                                   places->dim[1], run->start, last,
                                                   (int32_t *)ls_data(places));
    ls_cuda_launched(run, "own_places");
}

LS_CUDA_DECLARE_TABLE(begins);
const ls_kernel LS_CUDA_TABLE(begins)[] = {
    {"own_rows", {NULL, own_rows, own_rows}, NULL},
    {"own_places", {NULL, own_places, own_places}, NULL},
    {},
};
