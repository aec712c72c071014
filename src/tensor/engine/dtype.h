/* Element types. */
#ifndef LS_TENSOR_DTYPE_H
#define LS_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum {
    LS_F64, /* the reference */
    LS_F32,
    LS_BF16, /* storage only: arithmetic is in f32 */
    LS_I32,
    LS_U8,
    LS_E4M3, /* base/fp8.h: operands of products alone */
    LS_E5M2,
} ls_dtype;
enum { LS_REAL_TYPES = 3 }; /* f64, f32, bf16: what kernels come in */

typedef uint16_t ls_bf16;

static inline size_t ls_dtype_size(ls_dtype type) {
    static const size_t sizes[] = {8, 4, 2, 4, 1, 1, 1};
    return sizes[type];
}
const char *ls_dtype_name(ls_dtype type);

static inline float ls_bf16_to_f32(ls_bf16 value) {
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}
/* Round to nearest even; NaN stays NaN. */
static inline ls_bf16 ls_bf16_from_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (ls_bf16)(bits >> 16 | 0x40);
    return (ls_bf16)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* One element of a real tensor in any of its types. */
static inline double ls_element(const void *data, ls_dtype type, int64_t i) {
    if (type == LS_F64) return ((const double *)data)[i];
    if (type == LS_F32) return (double)((const float *)data)[i];
    return (double)ls_bf16_to_f32(((const ls_bf16 *)data)[i]);
}
static inline void ls_element_set(void *data, ls_dtype type, int64_t i, double value) {
    if (type == LS_F64)
        ((double *)data)[i] = value;
    else if (type == LS_F32)
        ((float *)data)[i] = (float)value;
    else
        ((ls_bf16 *)data)[i] = ls_bf16_from_f32((float)value);
}

#endif
