/* Codes of fp8 (base/fp8.h) on the device: units from 8.9 on; programs are refused on others
 * (ls_device.fp8). Who includes this is compiled for every architecture by itself: its code differs
 * (cmake/cuda.cmake). */
#ifndef LS_TENSOR_CUDA_FP8_H
#define LS_TENSOR_CUDA_FP8_H

#include "tensor/cuda/cuda.cuh"

/* Two codes in the low half of a word, that of `low` first: to the nearest, ties to the even one,
 * and no farther than the largest. */
template <bool E5M2>
static __device__ __forceinline__ uint32_t ls_cuda_fp8_two(float low, float high) {
    uint16_t two = 0;
#if defined __CUDA_ARCH__ && __CUDA_ARCH__ >= 890
    if (E5M2)
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
    else
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(two) : "f"(low), "f"(high));
#else
    __trap();
#endif
    return two;
}

#endif
