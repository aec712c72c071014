/* Numbers of 8 bits, as products on fp8 units take them: e4m3 (largest 448, no infinity) and e5m2
 * (largest 57344). What is rounded to one goes to the nearest, ties to the even one; beyond the
 * largest it becomes the largest, also infinity; NaN stays NaN. */
#ifndef LS_BASE_FP8_H
#define LS_BASE_FP8_H

#include <stdint.h>
#include <string.h>

typedef enum { LS_FP8_E4M3, LS_FP8_E5M2 } ls_fp8;
enum { LS_FP8_NAN = 0x7f }; /* one of them: sign and all other bits set is one in both */

/* The reference: any code's value, and the code of any number. */
double ls_fp8_value(ls_fp8 format, uint8_t code);
uint8_t ls_fp8_code(ls_fp8 format, double value);

/* A tensor is multiplied by the power of two, 2^this, that brings its largest absolute value, given
 * as the bits of a finite bf16 without their sign, as near to the format's largest as can be; 0 of
 * zeros. Within -100 .. 60: two of them multiply to a number that f32 holds. */
int ls_fp8_exponent(ls_fp8 format, uint16_t largest);

/* The code of an f32, the same as the reference's, fast. */
static inline uint8_t ls_fp8_from_f32(ls_fp8 format, float value) {
    const int mantissa = format == LS_FP8_E4M3 ? 3 : 2, bias = format == LS_FP8_E4M3 ? 7 : 15;
    const uint32_t most = format == LS_FP8_E4M3 ? 0x7e : 0x7b;
    const float unit =
        format == LS_FP8_E4M3 ? 0x1p14f : 0x1p7f; /* of which 2^-23 is the smallest */
    const int cut = 23 - mantissa;
    uint32_t bits, low;
    memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 24 & 0x80u, size = bits & 0x7fffffffu;
    float small;
    memcpy(&small, &size, 4);
    /* below the normal numbers: an addition in f32 rounds at the place of the last bit */
    small += unit;
    memcpy(&low, &small, 4);
    low &= 0xffu;
    uint32_t high = size + (1u << (cut - 1)) - 1 + (size >> cut & 1u);
    high = (high >> cut) - ((uint32_t)(127 - bias) << mantissa);
    const uint32_t normal = (uint32_t)(128 - bias) << 23;
    uint32_t code = size < normal ? low : high > most ? most : high;
    code = size > 0x7f800000u ? (uint32_t)LS_FP8_NAN : code;
    return (uint8_t)(sign | code);
}

#endif
