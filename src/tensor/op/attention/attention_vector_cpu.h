/* What attention needs of vectors besides vector.h. In the tiles of attention the 32 queries of a
 * tile lie along the lanes. */
#ifndef LS_TENSOR_CPU_ATTENTION_VECTOR_H
#define LS_TENSOR_CPU_ATTENTION_VECTOR_H

#include <stdbool.h>

#include "tensor/cpu/vector.h"

#if defined(LS_ISA_avx512) || defined(__ARM_NEON)
enum { LANES = LS_LANES, BLOCK_ROWS = 8 };
#else
enum { LANES = LS_LANES, BLOCK_ROWS = 4 };
#endif

/* Whether f32 rows of a tile are read where they lie even if they lie apart: in caches of few ways,
 * as ARM's, they push each other out. */
#if defined(__ARM_NEON)
enum { ROWS_MAY_LIE_APART = 0 };
#else
enum { ROWS_MAY_LIE_APART = 1 };
#endif

/* How many tiles of queries meet a tile of keys before the next one at most: the keys and values of
 * a long text come from the last cache, once for all of them. */
#if defined(LS_ISA_avx512)
enum { TOGETHER = 4 };
#else
enum { TOGETHER = 1 };
#endif

typedef ls_vec vec;
typedef ls_ivec vec_int;

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

LS_INLINE vec vec_load(const float *from) {
    return ls_load(from, LS_F32, 0);
}
LS_INLINE void vec_store(float *to, vec x) {
    ls_store(to, LS_F32, 0, x);
}

/* 2^x for x <= 1: relative error below 1.7e-7, exactly 0 below -126.5; NaN stays NaN. The
 * polynomial is 2^f on [-1/2, 1/2]. */
LS_INLINE vec vec_exp2(vec x) {
    const vec c5 = ls_vec_all(0.001326472731307149f), c4 = ls_vec_all(0.009671512991189957f),
              c3 = ls_vec_all(0.05550733581185341f), c2 = ls_vec_all(0.24022242426872253f),
              c1 = ls_vec_all(0.6931470036506653f), c0 = ls_vec_all(1.0f);
    x = ls_vec_max(ls_vec_all(-127.0f), x);
#if LS_ISA_avx512
    vec whole = (vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const vec magic = ls_vec_all(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
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

/* cap tanh(x / cap): with y = x / cap, up to 1 the seventh convergent of Lambert's continued
 * fraction (error below 1e-11), beyond it by 2^-2y; relative error below 3e-7. */
LS_INLINE vec vec_cap(vec x, float cap) {
    const vec y = x / cap, size = ls_vec_abs(y), q = y * y;
    const vec above = ((q + 378.0f) * q + 17325.0f) * q + 135135.0f;
    const vec below = ((28.0f * q + 3150.0f) * q + 62370.0f) * q + 135135.0f;
    const vec e = vec_exp2(size * -2.88539008f);
    const vec far = (1.0f - e) / (1.0f + e) * cap;
    return ls_vec_pick(size < 1.0f, x * (above / below), ls_vec_pick(y < 0.0f, -far, far));
}

#endif
