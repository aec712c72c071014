/* Fourier features, computed in f64 and narrowed. */
#include "tensor/cuda/rows.cuh"

extern "C" {
#include "tensor/op/fourier/fourier.h"
}

/* Step i of `count` even ones from `first` to `last`; a single one is the first. */
static __device__ double even_step(double first, double last, int64_t count, int64_t i) {
    return count < 2 ? first : first + (last - first) * (double)i / (double)(count - 1);
}

/* span[b]: places of the first axis for text b. A block per text. */
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    span_kernel(int64_t size, bool stretch, const uint8_t *valid, int64_t T, int64_t *span) {
    int64_t rows = 0;
    for (int64_t t = threadIdx.x; stretch && t < T; t += blockDim.x)
        rows += valid == NULL || valid[(int64_t)blockIdx.x * T + t] != 0;
    rows = ls_cuda_block_sum<LS_CUDA_THREADS>(rows);
    if (threadIdx.x == 0) span[blockIdx.x] = rows > size ? rows : size;
}

/* One element a thread. */
template <typename Y>
static __global__ void __launch_bounds__(LS_CUDA_THREADS)
    fourier_kernel(const ls_fourier grid, const int64_t *span, int64_t T, int64_t F, int64_t count,
                   Y *y) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    int64_t c = i % F, t = i / F % T, first = span[i / F / T];
    int64_t each = grid.axes * grid.bands, wave = c - grid.axes;
    int axis = wave < 0 ? (int)c : (int)(wave % each / grid.bands);
    int64_t inner = 1;
    for (int a = axis + 1; a < grid.axes; a++) inner *= grid.size[a];
    int64_t at = axis == 0 ? t / inner : t / inner % grid.size[axis];
    double value = even_step(-1, 1, axis == 0 ? first : grid.size[axis], at);
    if (wave >= 0) {
        double frequency = even_step(1, grid.fastest[axis] / 2, grid.bands, wave % grid.bands);
        double turns = frequency * value; /* of half a circle */
        value = wave < each ? sinpi(turns) : cospi(turns);
    }
    y[i] = ls_cuda_narrow<Y>((float)value);
}

template <typename Y> static void fourier(const ls_run *run, const ls_node *node) {
    const ls_fourier *grid = (const ls_fourier *)node->attributes;
    const ls_tensor *y = node->out[0];
    const uint8_t *valid = node->in[0] == NULL ? NULL : (const uint8_t *)ls_data(node->in[0]);
    int64_t B = y->dim[0], T = y->dim[1], F = y->dim[2], count = B * T * F;
    ls_cuda *cuda = ls_cuda_of(run);
    int64_t *span = (int64_t *)run->workspace;
    span_kernel<<<(unsigned)B, LS_CUDA_THREADS, 0, cuda->stream>>>(grid->size[0], grid->stretch,
                                                                   valid, T, span);
    fourier_kernel<<<ls_cuda_blocks(count, LS_CUDA_THREADS), LS_CUDA_THREADS, 0, cuda->stream>>>(
        *grid, span, T, F, count, (Y *)ls_data(y));
    ls_cuda_launched(run, "fourier");
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)node->out[0]->dim[0] * sizeof(int64_t);
}

LS_CUDA_DECLARE_TABLE(fourier);
const ls_kernel LS_CUDA_TABLE(fourier)[] = {
    {"fourier", {NULL, fourier<float>, fourier<ls_cuda_bf16>}, workspace},
    {},
};
