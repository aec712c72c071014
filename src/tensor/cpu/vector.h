/* As many floats at a time as the machine's vectors hold (wider ones compilers compare element by
 * element), in the compilers' own vector types: AVX-512, AVX2, NEON or plain code come from the
 * same lines. bf16 is storage: it is widened on loading and rounded to nearest even on storing. The
 * `type` argument is a constant wherever these are used, so the branches vanish. */
#ifndef LS_TENSOR_CPU_VECTOR_H
#define LS_TENSOR_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#include "tensor/engine/dtype.h"

#if defined(LS_ISA_avx512) || defined(LS_ISA_avx2)
#include <immintrin.h>
#elif defined(__SSE__)
#include <xmmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

/* The lists are for __builtin_shufflevector: the even lanes of a vector and the odd ones, those of
 * two vectors half as wide in turn, and each lane's neighbour. */
#if defined(LS_ISA_avx512)
enum { LS_LANES = 16 };
#define LS_EVEN_LANES 0, 2, 4, 6, 8, 10, 12, 14
#define LS_ODD_LANES 1, 3, 5, 7, 9, 11, 13, 15
#define LS_HALVES_IN_TURN 0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15
#define LS_NEIGHBOURS_SWAPPED 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#elif defined(LS_ISA_avx2)
enum { LS_LANES = 8 };
#define LS_EVEN_LANES 0, 2, 4, 6
#define LS_ODD_LANES 1, 3, 5, 7
#define LS_HALVES_IN_TURN 0, 4, 1, 5, 2, 6, 3, 7
#define LS_NEIGHBOURS_SWAPPED 1, 0, 3, 2, 5, 4, 7, 6
#else
enum { LS_LANES = 4 };
#define LS_EVEN_LANES 0, 2
#define LS_ODD_LANES 1, 3
#define LS_HALVES_IN_TURN 0, 2, 1, 3
#define LS_NEIGHBOURS_SWAPPED 1, 0, 3, 2
#endif
typedef float ls_vec __attribute__((vector_size(LS_LANES * sizeof(float))));
typedef int32_t ls_ivec __attribute__((vector_size(LS_LANES * sizeof(int32_t))));
typedef uint32_t ls_uvec __attribute__((vector_size(LS_LANES * sizeof(uint32_t))));
typedef uint16_t ls_hvec __attribute__((vector_size(LS_LANES * sizeof(uint16_t))));

#define LS_INLINE static inline __attribute__((always_inline))

LS_INLINE ls_vec ls_vec_all(float value) {
    return value - (ls_vec){0};
}

LS_INLINE float ls_load_one(const void *data, ls_dtype type, int64_t at) {
    return type == LS_F32 ? ((const float *)data)[at] : ls_bf16_to_f32(((const ls_bf16 *)data)[at]);
}

LS_INLINE void ls_store_one(void *data, ls_dtype type, int64_t at, float value) {
    if (type == LS_F32)
        ((float *)data)[at] = value;
    else
        ((ls_bf16 *)data)[at] = ls_bf16_from_f32(value);
}

LS_INLINE ls_vec ls_widen(const ls_bf16 *from) {
#if defined(__ARM_NEON)
    return (ls_vec)vshlq_n_u32(vmovl_u16(vld1_u16(from)), 16);
#elif defined(LS_ISA_avx512) /* compilers make two halves of it and join them */
    const __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)from);
    return (ls_vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
#elif defined(LS_ISA_avx2)
    const __m128i half = _mm_loadu_si128((const __m128i *)(const void *)from);
    return (ls_vec)_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
#else
    ls_hvec half;
    memcpy(&half, from, sizeof half);
    return (ls_vec)(__builtin_convertvector(half, ls_uvec) << 16);
#endif
}

/* As ls_bf16_from_f32. */
LS_INLINE void ls_narrow(ls_bf16 *to, ls_vec value) {
    ls_uvec bits = (ls_uvec)value, nan = (ls_uvec)(value != value);
    ls_uvec rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    bits = (rounded & ~nan) | ((bits | 0x400000u) & nan);
#if defined(__ARM_NEON)
    vst1_u16(to, vshrn_n_u32(bits, 16));
#else
    ls_hvec half = __builtin_convertvector(bits >> 16, ls_hvec);
    memcpy(to, &half, sizeof half);
#endif
}

LS_INLINE ls_vec ls_load(const void *data, ls_dtype type, int64_t at) {
    if (type == LS_BF16) return ls_widen((const ls_bf16 *)data + at);
    ls_vec value;
    memcpy(&value, (const float *)data + at, sizeof value);
    return value;
}

LS_INLINE void ls_store(void *data, ls_dtype type, int64_t at, ls_vec value) {
    if (type == LS_BF16) {
        ls_narrow((ls_bf16 *)data + at, value);
    } else {
        memcpy((float *)data + at, &value, sizeof value);
    }
}

/* Loads the last `count` < LS_LANES elements of a row, zeros behind them; and stores them. */
LS_INLINE ls_vec ls_load_some(const void *data, ls_dtype type, int64_t at, int64_t count) {
    float lanes[LS_LANES] = {0};
    for (int64_t i = 0; i < count; i++) lanes[i] = ls_load_one(data, type, at + i);
    ls_vec value;
    memcpy(&value, lanes, sizeof value);
    return value;
}

LS_INLINE void ls_store_some(void *data, ls_dtype type, int64_t at, int64_t count, ls_vec value) {
    float lanes[LS_LANES];
    memcpy(lanes, &value, sizeof lanes);
    for (int64_t i = 0; i < count; i++) ls_store_one(data, type, at + i, lanes[i]);
}

/* LS_LANES elements, or as many as are `left` in the row. */
LS_INLINE ls_vec ls_load_left(const void *data, ls_dtype type, int64_t at, int64_t left) {
    return left >= LS_LANES ? ls_load(data, type, at) : ls_load_some(data, type, at, left);
}

LS_INLINE void ls_store_left(void *data, ls_dtype type, int64_t at, int64_t left, ls_vec value) {
    if (left >= LS_LANES)
        ls_store(data, type, at, value);
    else
        ls_store_some(data, type, at, left, value);
}

/* A fixed tree, so that the sum does not depend on how the compiler would add. */
LS_INLINE float ls_vec_sum(ls_vec value) {
    float lanes[LS_LANES];
    memcpy(lanes, &value, sizeof lanes);
    for (int step = LS_LANES / 2; step > 0; step /= 2)
        for (int i = 0; i < step; i++) lanes[i] += lanes[i + step];
    return lanes[0];
}

/* The sums of LS_LANES vectors that lie one after the other, each by the same tree: with every step
 * half as many vectors, in which half as many lanes belong to one sum. */
LS_INLINE ls_vec ls_vec_sums(const float *data) {
    ls_vec sums[LS_LANES];
    for (int i = 0; i < LS_LANES; i++) sums[i] = ls_load(data, LS_F32, i * LS_LANES);
#define LS_JOIN(count, first, second)                                                              \
    for (int i = 0; i < (count); i++)                                                              \
    sums[i] = __builtin_shufflevector(sums[2 * i], sums[2 * i + 1], LS_LIST first) +               \
              __builtin_shufflevector(sums[2 * i], sums[2 * i + 1], LS_LIST second)
#define LS_LIST(...) __VA_ARGS__
#if defined(LS_ISA_avx512)
    LS_JOIN(8, (0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23),
            (8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
    LS_JOIN(4, (0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27),
            (4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31));
    LS_JOIN(2, (0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29),
            (2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31));
    LS_JOIN(1, (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
            (1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31));
#elif defined(LS_ISA_avx2)
    LS_JOIN(4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15));
    LS_JOIN(2, (0, 1, 4, 5, 8, 9, 12, 13), (2, 3, 6, 7, 10, 11, 14, 15));
    LS_JOIN(1, (0, 2, 4, 6, 8, 10, 12, 14), (1, 3, 5, 7, 9, 11, 13, 15));
#else
    LS_JOIN(2, (0, 1, 4, 5), (2, 3, 6, 7));
    LS_JOIN(1, (0, 2, 4, 6), (1, 3, 5, 7));
#endif
#undef LS_LIST
#undef LS_JOIN
    return sums[0];
}

LS_INLINE ls_vec ls_vec_pick(ls_ivec mask, ls_vec yes, ls_vec no) {
    return (ls_vec)(((ls_ivec)yes & mask) | ((ls_ivec)no & ~mask));
}

/* The larger; of a NaN in b NaN. */
LS_INLINE ls_vec ls_vec_max(ls_vec a, ls_vec b) {
#if defined(LS_ISA_avx512)
    return (ls_vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(LS_ISA_avx2)
    return (ls_vec)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__ARM_NEON)
    return (ls_vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b);
#else
    return ls_vec_pick(a > b, a, b);
#endif
}

LS_INLINE ls_vec ls_vec_abs(ls_vec x) {
    return (ls_vec)((ls_ivec)x & 0x7fffffff);
}

/* e^r on [-ln2/2, ln2/2], relative error below 2e-7. Terms are joined in pairs: a processor looks
 * only so far ahead, and one after the other they take longer than they have to. */
LS_INLINE ls_vec ls_vec_exp_near(ls_vec r) {
    ls_vec q = r * r, low = r * 1.6666665459e-1f + 5.0000001201e-1f;
    ls_vec middle = r * 8.3334519073e-3f + 4.1665795894e-2f;
    ls_vec high = r * 1.9875691500e-4f + 1.3981999507e-3f;
    return ((high * q + middle) * q + low) * q + (r + 1.0f);
}

#if defined(__ARM_NEON)
/* x 2^n by adding n to x's exponent, for x near 1 and a product that is normal or, from x = 1,
 * infinite. A NaN n counts as 0. */
LS_INLINE ls_vec ls_vec_scaled(ls_vec x, ls_vec n) {
    return (ls_vec)vaddq_s32((int32x4_t)x, vshlq_n_s32(vcvtq_s32_f32(n), 23));
}
#endif

/* e^x = 2^n e^r. Far below it is 0, far above infinity; NaN stays NaN. */
LS_INLINE ls_vec ls_vec_exp(ls_vec x) {
#if defined(LS_ISA_avx512)
    /* r has no digit left where n is large; of a NaN the comparison takes the second */
    const __m512 far = _mm512_set1_ps(128);
    ls_vec bounded = (ls_vec)_mm512_min_ps(far, _mm512_max_ps(-far, (__m512)x));
    ls_vec n = (ls_vec)_mm512_roundscale_ps((__m512)(bounded * 1.44269504088896341f), 0);
    ls_vec r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
    return (ls_vec)_mm512_scalef_ps((__m512)ls_vec_exp_near(r), (__m512)n);
#elif defined(__ARM_NEON)
    ls_vec low = ls_vec_all(-87.33f), high = ls_vec_all(88.72f);
    ls_vec bounded = vminq_f32(vmaxq_f32(x, low), high);
    ls_vec n = vrndnq_f32(bounded * 1.44269504088896341f);
    ls_vec r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
    return ls_vec_pick(x < low, ls_vec_all(0), ls_vec_scaled(ls_vec_exp_near(r), n));
#else
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    ls_vec low = ls_vec_all(-87.33f), high = ls_vec_all(88.72f);
    ls_vec bounded = ls_vec_pick(x < low, low, ls_vec_pick(x > high, high, x));
    ls_vec shifted = bounded * 1.44269504088896341f + magic;
    ls_vec n = shifted - magic;
    ls_vec r = bounded - n * 0.693359375f - n * -2.12194440e-4f;
    /* 2^n in two factors, because n = 128 is out of range for one */
    ls_ivec whole = (ls_ivec)shifted - 0x4B400000;
    ls_ivec half = whole >> 1;
    ls_vec scale = (ls_vec)((half + 127) << 23), rest = (ls_vec)((whole - half + 127) << 23);
    return ls_vec_pick(x < low, ls_vec_all(0), ls_vec_exp_near(r) * scale * rest);
#endif
}

/* 2^x, for exponents whose factor log2(e) was multiplied in beforehand; relative error below 2e-7.
 * Below -126 it is 0, far above infinity; NaN stays NaN. */
LS_INLINE ls_vec ls_vec_exp2(ls_vec x) {
#if defined(LS_ISA_avx512)
    ls_vec n = (ls_vec)_mm512_roundscale_ps((__m512)x, 0), f = x - n;
#elif defined(__ARM_NEON)
    ls_vec low = ls_vec_all(-126.0f);
    ls_vec bounded = vminq_f32(vmaxq_f32(x, low), ls_vec_all(128.0f));
    ls_vec n = vrndnq_f32(bounded), f = bounded - n;
#else
    const float magic = 12582912.0f; /* as in ls_vec_exp */
    ls_vec low = ls_vec_all(-126.0f), high = ls_vec_all(128.0f);
    ls_vec bounded = ls_vec_pick(x < low, low, ls_vec_pick(x > high, high, x));
    ls_vec shifted = bounded + magic, f = bounded - (shifted - magic);
#endif
    ls_vec poly = ls_vec_all(1.535336188e-4f);
    poly = poly * f + 1.339887440e-3f;
    poly = poly * f + 9.618437357e-3f;
    poly = poly * f + 5.550332471e-2f;
    poly = poly * f + 2.402264791e-1f;
    poly = poly * f + 6.931472028e-1f;
    poly = poly * f + 1.0f;
#if defined(LS_ISA_avx512)
    return (ls_vec)_mm512_scalef_ps((__m512)poly, (__m512)n);
#elif defined(__ARM_NEON)
    return ls_vec_pick(x < low, ls_vec_all(0), ls_vec_scaled(poly, n));
#else
    ls_ivec whole = (ls_ivec)shifted - 0x4B400000;
    ls_ivec half = whole >> 1;
    ls_vec scale = (ls_vec)((half + 127) << 23), rest = (ls_vec)((whole - half + 127) << 23);
    return ls_vec_pick(x < low, ls_vec_all(0), poly * scale * rest);
#endif
}

/* cos and sin of x quarter turns, absolute errors below 1e-7. Beyond 2^22, where no digit tells the
 * angle, it is taken for some whole number of them. */
LS_INLINE ls_vec ls_vec_cosine(ls_vec x, ls_vec *sine) {
    const float magic = 12582912.0f; /* as in ls_vec_exp; its last two bits are 0 */
    ls_vec shifted = x + magic;
    ls_ivec near = ls_vec_abs(x) < 4194304.0f;
    ls_vec f = ls_vec_pick(near, x - (shifted - magic), x - x); /* infinity and NaN become NaN */
    ls_vec q = f * f, odd = ls_vec_all(-4.602149213e-3f), even = ls_vec_all(9.067398959e-4f);
    odd = odd * q + 7.968021765e-2f;
    odd = odd * q - 6.459634777e-1f;
    odd = (odd * q + 1.570796322f) * f;
    even = even * q - 2.086152834e-2f;
    even = even * q + 2.536694104e-1f;
    even = even * q - 1.233700549f;
    even = even * q + 1.0f;
    ls_uvec quarter = (ls_uvec)shifted;
    ls_ivec transposed = (ls_ivec)(quarter << 31) >> 31;
    *sine = (ls_vec)((ls_uvec)ls_vec_pick(transposed, even, odd) ^ ((quarter & 2u) << 30));
    return (ls_vec)((ls_uvec)ls_vec_pick(transposed, odd, even) ^ (((quarter + 1u) & 2u) << 30));
}

/* 1 / x for x in [1, 1e30]: an estimate and a Newton step are as exact as
 * a division, and faster. */
LS_INLINE ls_vec ls_vec_reciprocal(ls_vec x) {
#if defined(LS_ISA_avx512)
    ls_vec guess = (ls_vec)_mm512_rcp14_ps((__m512)x);
    return guess + guess * (1.0f - x * guess);
#else
    return 1.0f / x;
#endif
}

LS_INLINE ls_vec ls_vec_sigmoid(ls_vec x) {
    return 1.0f / (1.0f + ls_vec_exp(-x));
}

/* log(1 + e^x) and its slope, relative error below 3e-7: with e = e^-|x| and s = e / (2 + e) it is
 * max(x, 0) + 2 artanh(s), and s <= 1/3 makes the series short. */
LS_INLINE ls_vec ls_vec_softplus(ls_vec x, ls_vec *slope) {
    ls_vec e = ls_vec_exp(-ls_vec_abs(x));
    ls_vec s = e / (2.0f + e), q = s * s, near = ls_vec_all(1.0f / 13);
    near = near * q + 1.0f / 11;
    near = near * q + 1.0f / 9;
    near = near * q + 1.0f / 7;
    near = near * q + 1.0f / 5;
    near = near * q + 1.0f / 3;
    near = near * q + 1.0f;
    *slope = ls_vec_pick(x < 0.0f, e, ls_vec_all(1)) / (1.0f + e);
    return ls_vec_pick(x < 0.0f, ls_vec_all(0), x) + 2.0f * s * near;
}

LS_INLINE ls_vec ls_vec_tanh(ls_vec x) {
    return 2.0f * ls_vec_sigmoid(2.0f * x) - 1.0f;
}

/* The normal distribution function, by the erf formula 7.1.26 of Abramowitz and Stegun: absolute
 * error below 1e-7. `density` gets e^(-x^2/2). */
LS_INLINE ls_vec ls_vec_normal_cdf(ls_vec x, ls_vec *density) {
    ls_vec size = ls_vec_abs(x) * 0.70710678118654752f;
    ls_vec t = ls_vec_reciprocal(1.0f + 0.3275911f * size);
    *density = ls_vec_exp(-size * size);
    ls_vec q = t * t, low = t * -0.284496736f + 0.254829592f;
    ls_vec poly = (q * 1.061405429f + (t * -1.453152027f + 1.421413741f)) * q + low;
    ls_vec tail = 0.5f * poly * t * *density;
    return ls_vec_pick(x < 0.0f, tail, 1.0f - tail);
}

/* Between these two the calling thread takes subnormal numbers for 0: states that decay would
 * otherwise spend most of their time there, at many times the cost. */
LS_INLINE uint64_t ls_subnormals_flush(void) {
#if defined(__SSE__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u); /* results and operands */
    return before;
#elif defined(__aarch64__)
    uint64_t before;
    __asm__ volatile("mrs %0, fpcr" : "=r"(before));
    __asm__ volatile("msr fpcr, %0" : : "r"(before | UINT64_C(1) << 24)); /* both */
    return before;
#else
    return 0;
#endif
}
LS_INLINE void ls_subnormals_restore(uint64_t before) {
#if defined(__SSE__)
    _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
    (void)before;
#endif
}

#endif
