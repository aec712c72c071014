/* Long sequences in parts that a block of threads can transform, and back. */
#ifndef LS_TENSOR_CUDA_LONG_CONV_PASSES_H
#define LS_TENSOR_CUDA_LONG_CONV_PASSES_H

#include "tensor/op/long_conv/long_conv_operands.cuh"

typedef struct ls_conv_passes {
    const ls_run *run;
    const char *what;
    int64_t whole; /* values of a part */
} ls_conv_passes;

/* From sequences of up to to.N values. What is left to do is a transform of each part. */
template <typename T>
void ls_conv_to_parts(const ls_conv_passes &passes, const series<const T> &from, const plane &to,
                      int64_t sequences);
/* The real part of the way back, without the factor 1/N; `from` is changed. */
template <typename T>
void ls_conv_from_parts(const ls_conv_passes &passes, const plane &from, const real_target<T> &to,
                        int64_t sequences);

#endif
