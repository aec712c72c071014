/* bf16 on the device. The toolkit's cuda_bf16.h has the same in ten thousand lines, which took a third
 * of the time of a small file; who needs it for products in fragments includes it with mma.h. */
#ifndef LS_TENSOR_CUDA_BF16_H
#define LS_TENSOR_CUDA_BF16_H

#include <stdint.h>

struct __align__(2) ls_cuda_bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float ls_cuda_wide(float value) {
    return value;
}
static __device__ __forceinline__ float ls_cuda_wide(ls_cuda_bf16 value) {
    float wide;
    asm("{ mov.b32 %0, {0,%1};}" : "=f"(wide) : "h"(value.bits));
    return wide;
}

/* To the nearest, ties to the even one. */
template <typename T> static __device__ __forceinline__ T ls_cuda_narrow(float value);
template <> __device__ __forceinline__ float ls_cuda_narrow<float>(float value) {
    return value;
}
template <> __device__ __forceinline__ ls_cuda_bf16 ls_cuda_narrow<ls_cuda_bf16>(float value) {
    ls_cuda_bf16 narrow;
    asm("{ cvt.rn.bf16.f32 %0, %1;}" : "=h"(narrow.bits) : "f"(value));
    return narrow;
}

/* Two of them in a word, the first in its low half. */
static __device__ __forceinline__ uint32_t ls_cuda_narrow_two(float low, float high) {
    uint32_t two;
    asm("{ cvt.rn.bf16x2.f32 %0, %2, %1;}" : "=r"(two) : "f"(low), "f"(high));
    return two;
}
static __device__ __forceinline__ float2 ls_cuda_wide_two(uint32_t two) {
    return make_float2(ls_cuda_wide(ls_cuda_bf16{(uint16_t)two}),
                       ls_cuda_wide(ls_cuda_bf16{(uint16_t)(two >> 16)}));
}

#endif
