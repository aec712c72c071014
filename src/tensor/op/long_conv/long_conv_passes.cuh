/* Long convolutions of more values than a block of threads has room for: passes over memory, of a
 * few channels of a few sequences after the other. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_PASSES_H
#define LS_TENSOR_CUDA_LONG_CONV_PASSES_H

#include "tensor/op/long_conv/long_conv_operands.cuh"

/* What goes through the passes together, and how long it is: a power of 2. */
typedef struct ls_conv_slab {
    int64_t N, channels, sequences;
    bool sums_apart; /* sums of several slabs, which have to wait in a plane of their own */
} ls_conv_slab;

enum { LS_CONV_PASSES_LEAST = 4096 };

ls_conv_slab ls_conv_slab_of(int64_t B, int64_t length, int64_t D, bool backward);
size_t ls_conv_slab_bytes(const ls_conv_slab &slab, bool backward);

/* y = x * k + skip x; `conjugate`: x[t + lag] in place of x[t - lag].
 * sums[lag] = sum over the batch of x[t] other[t - lag], or other[t + lag] without `conjugate`.
 * Either may be left out. */
template <typename T> struct ls_conv_job {
    int64_t B;
    series<const float> k;
    const float *skip;
    series<const T> x, other;
    series<T> y;
    real_target<float> sums;
    bool conjugate;
};

template <typename T>
void ls_conv_by_passes(const ls_run *run, const char *what, const ls_conv_slab &slab,
                       const ls_conv_job<T> &job);

#endif
