/* What the parts of tensor/cuda/long_conv.cu share. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_H
#define LS_TENSOR_CUDA_LONG_CONV_H

#include "tensor/cuda/lib/rows.h"

/* Spans of so many times: within one, products are summed as they are defined. */
enum { LS_CONV_SPAN = 512 };

/* Time runs backwards where `reversed`: towards the future, and in gradients of the past. The
 * kernel then begins `delay` steps later. */
template <typename T> struct ls_conv_job {
    int64_t B, length, D;
    int64_t taps, delay; /* taps: kernel values that can meet an input */
    bool reversed;
    bool in_fours; /* rows of x, y and sum can be taken four channels at a time */
    const T *x;
    int64_t x_stride;
    const float *k, *skip;
    int64_t k_stride;
    T *y;
    int64_t y_stride;
    float *sum; /* what spans give to later ones: in the place of y if that is f32 */
    int64_t sum_stride;
    float2 *roots;   /* exp(2 pi i j / (4 LS_CONV_SPAN)) */
    float2 *spectra; /* of the kernels */
    int64_t reach;   /* how many spans further on a kernel reaches */
    /* of the kernel's gradient */
    const T *g; /* gradients of the outputs */
    int64_t g_stride, slices;
    float2 *partial; /* [slices][channel groups][blocks] spectra */
    float *dk, *dskip;
};

static __host__ __device__ constexpr int64_t ls_conv_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* The kernel of channel d, of outputs s steps after their inputs. */
template <typename T>
static __device__ __forceinline__ float ls_conv_kernel_at(const ls_conv_job<T> &job, int64_t d,
                                                          int64_t s) {
    s -= job.delay;
    return d < job.D && s >= 0 && s < job.taps ? job.k[d * job.k_stride + s] : 0.0f;
}

/* The row of time i, in the order of the job, of sequence b. */
template <typename T>
static __device__ __forceinline__ int64_t ls_conv_row(const ls_conv_job<T> &job, int64_t b,
                                                      int64_t i) {
    return b * job.length + (job.reversed ? job.length - 1 - i : i);
}

/* The kernel's blocks of threads may have so much shared memory, and two of them fit. */
template <typename K>
static void ls_conv_allow_shared(const ls_run *run, K *kernel, size_t bytes, const char *what) {
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared);
    ls_cuda_note(ls_cuda_of(run), error, what);
}

/* y = sum + skip x + what inputs give to outputs of their own span; there is no sum in the first
 * span. */
template <typename T>
void ls_cuda_conv_within_spans(const ls_run *run, const ls_conv_job<T> *job, const char *what);

#endif
