/* Vectors of the width of the instruction set, and the few functions on them that attention needs.
 * In the tiles of attention the 32 queries of a tile lie along the lanes. */
#ifndef LS_TENSOR_CPU_ATTENTION_VECTOR_H
#define LS_TENSOR_CPU_ATTENTION_VECTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tensor/dtype.h"

#if LS_ISA_avx512
#include <immintrin.h>
enum { LANES = 16, BLOCK_ROWS = 8 };
#elif LS_ISA_avx2
#include <immintrin.h>
enum { LANES = 8, BLOCK_ROWS = 4 };
#else
enum { LANES = 4, BLOCK_ROWS = 4 };
#endif

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t vec_int __attribute__((vector_size(LANES * 4)));
typedef uint32_t vec_word __attribute__((vector_size(LANES * 4)));
typedef uint16_t vec_half __attribute__((vector_size(LANES * 2)));

#define ALWAYS_INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

ALWAYS_INLINE vec vec_load(const float *from) {
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}
ALWAYS_INLINE void vec_store(float *to, vec x) {
    memcpy(to, &x, sizeof x);
}
ALWAYS_INLINE vec vec_all(float x) {
    return x - (vec){0};
}
ALWAYS_INLINE vec vec_load_bf16(const ls_bf16 *from) {
    vec_half x;
    memcpy(&x, from, sizeof x);
    return (vec)(__builtin_convertvector(x, vec_word) << 16);
}
/* As ls_bf16_from_f32. */
ALWAYS_INLINE void vec_store_bf16(ls_bf16 *to, vec x) {
#if LS_ISA_avx512
    __m256i rounded = (__m256i)_mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &rounded, sizeof rounded);
#else
    vec_word bits = (vec_word)x, nan = (vec_word)(x != x);
    vec_word rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    vec_half half =
        __builtin_convertvector((rounded & ~nan) | ((bits >> 16 | 0x40u) & nan), vec_half);
    memcpy(to, &half, sizeof half);
#endif
}
/* Where the mask is set x, else y. */
ALWAYS_INLINE vec vec_pick(vec_int mask, vec x, vec y) {
    return (vec)((mask & (vec_int)x) | (~mask & (vec_int)y));
}
/* The larger; of a NaN in y NaN. */
ALWAYS_INLINE vec vec_max(vec x, vec y) {
#if LS_ISA_avx512
    return (vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif LS_ISA_avx2
    return (vec)_mm256_max_ps((__m256)x, (__m256)y);
#else
    return vec_pick(x > y, x, y);
#endif
}
ALWAYS_INLINE vec vec_abs(vec x) {
    return (vec)((vec_int)x & 0x7fffffff);
}

/* 2^x for x <= 1: relative error below 1.7e-7, exactly 0 below -126.5; NaN stays NaN. The
 * polynomial is 2^f on [-1/2, 1/2]. */
ALWAYS_INLINE vec vec_exp2(vec x) {
    const vec c5 = vec_all(0.001326472731307149f), c4 = vec_all(0.009671512991189957f),
              c3 = vec_all(0.05550733581185341f), c2 = vec_all(0.24022242426872253f),
              c1 = vec_all(0.6931470036506653f), c0 = vec_all(1.0f);
    x = vec_max(vec_all(-127.0f), x);
#if LS_ISA_avx512
    vec whole = (vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const vec magic = vec_all(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    vec shifted = x + magic;
    vec whole = shifted - magic;
#endif
    vec f = x - whole;
    vec p = ((((c5 * f + c4) * f + c3) * f + c2) * f + c1) * f + c0;
#if LS_ISA_avx512
    /* flushed like the others: scalef would give a denormal for -127 */
    return (vec)_mm512_maskz_scalef_ps(
        _mm512_cmp_ps_mask((__m512)whole, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), (__m512)p,
        (__m512)whole);
#else
    vec_int exponent = (vec_int)shifted - (vec_int)magic + 127;
    return p * (vec)(exponent << 23);
#endif
}

#endif
