#include "model/blocks.h"

#include <math.h>
#include <string.h>

#include "tensor/engine/dtype.h"

/* ---- halves ---- */

float ls_f16_value(uint16_t bits) {
    const uint32_t exponent = bits >> 10 & 31, mantissa = bits & 1023u;
    const uint32_t sign = (uint32_t)(bits >> 15) << 31;
    float value;
    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f;
        return sign ? -value : value;
    }
    const uint32_t wide = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | mantissa << 13;
    memcpy(&value, &wide, 4);
    return value;
}

uint16_t ls_f16_bits(float value) {
    enum { LARGEST = 0x477ff000, SMALLEST = 0x38800000 }; /* that round to infinity; normal ones */
    uint32_t bits;
    memcpy(&bits, &value, 4);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= LARGEST) return (uint16_t)(sign | 0x7c00);
    if (bits < SMALLEST) /* in units of 2^-24; the sum is exact but for the last rounding */
        return (uint16_t)(sign | (uint16_t)lrintf(fabsf(value) * 0x1p24f));
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - (112u << 23)) >> 13);
}

static float half_at(const uint8_t *at) {
    return ls_f16_value((uint16_t)(at[0] | at[1] << 8));
}

/* ---- blocks of 32 ---- */

static void q4_0(const uint8_t *b, float *y) {
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)((b[2 + i] & 15) - 8) * d;
        y[i + 16] = (float)((b[2 + i] >> 4) - 8) * d;
    }
}

static void q4_1(const uint8_t *b, float *y) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)(b[4 + i] & 15) * d + m;
        y[i + 16] = (float)(b[4 + i] >> 4) * d + m;
    }
}

/* The fifth bits: bit i is that of value i. */
static int fifth(const uint8_t *bits, int i) {
    return (bits[i / 8] >> i % 8 & 1) << 4;
}

static void q5_0(const uint8_t *b, float *y) {
    const float d = half_at(b);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)(((b[6 + i] & 15) | fifth(b + 2, i)) - 16) * d;
        y[i + 16] = (float)((b[6 + i] >> 4 | fifth(b + 2, i + 16)) - 16) * d;
    }
}

static void q5_1(const uint8_t *b, float *y) {
    const float d = half_at(b), m = half_at(b + 2);
    for (int i = 0; i < 16; i++) {
        y[i] = (float)((b[8 + i] & 15) | fifth(b + 4, i)) * d + m;
        y[i + 16] = (float)(b[8 + i] >> 4 | fifth(b + 4, i + 16)) * d + m;
    }
}

static void q8_0(const uint8_t *b, float *y) {
    const float d = half_at(b);
    for (int i = 0; i < 32; i++) y[i] = (float)(int8_t)b[2 + i] * d;
}

/* ---- blocks of 256 ---- */

static void q2_k(const uint8_t *b, float *y) {
    const uint8_t *scale = b, *q = b + 16;
    const float d = half_at(b + 80), least = half_at(b + 82);
    for (int i = 0; i < 16; i++) { /* runs of 16 values with a scale of their own */
        const float step = d * (float)(scale[i] & 15), low = least * (float)(scale[i] >> 4);
        const uint8_t *from = q + 32 * (i / 8) + 16 * (i % 2);
        for (int l = 0; l < 16; l++)
            y[16 * i + l] = step * (float)(from[l] >> 2 * (i % 8 / 2) & 3) - low;
    }
}

static void q3_k(const uint8_t *b, float *y) {
    const uint8_t *high = b, *q = b + 32, *s = b + 96;
    const float d = half_at(b + 108);
    for (int i = 0; i < 16; i++) {
        const int low = i < 8 ? s[i] & 15 : s[i - 8] >> 4, top = s[8 + i % 4] >> 2 * (i / 4) & 3;
        const float step = d * (float)((low | top << 4) - 32);
        const int from = 16 * (i % 2), bit = i / 2;
        for (int l = 0; l < 16; l++) {
            const int value = q[32 * (i / 8) + from + l] >> 2 * (i % 8 / 2) & 3;
            y[16 * i + l] = step * (float)(value - (high[from + l] >> bit & 1 ? 0 : 4));
        }
    }
}

/* Scale and least value of run j, of six bits each, as Q4_K and Q5_K pack them. */
static void six_bits(const uint8_t *s, int j, int *scale, int *least) {
    if (j < 4) {
        *scale = s[j] & 63;
        *least = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
        *least = s[j + 4] >> 4 | s[j] >> 6 << 4;
    }
}

/* With the fifth bits in `high`, or NULL. */
static void q45_k(const uint8_t *b, const uint8_t *high, const uint8_t *q, float *y) {
    const float d = half_at(b), least = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        int scale, m;
        six_bits(b + 4, j, &scale, &m);
        const float step = d * (float)scale, low = least * (float)m;
        for (int l = 0; l < 32; l++) {
            int value = q[32 * (j / 2) + l] >> 4 * (j % 2) & 15;
            if (high != NULL) value += (high[l] >> j & 1) << 4;
            y[32 * j + l] = step * (float)value - low;
        }
    }
}

static void q4_k(const uint8_t *b, float *y) {
    q45_k(b, NULL, b + 16, y);
}

static void q5_k(const uint8_t *b, float *y) {
    q45_k(b, b + 16, b + 48, y);
}

static void q6_k(const uint8_t *b, float *y) {
    const uint8_t *low = b, *high = b + 128, *scale = b + 192;
    const float d = half_at(b + 208);
    for (int i = 0; i < 16; i++) {
        const int a = i / 8, k = i % 8 / 2, from = 16 * (i % 2);
        const float step = d * (float)(int8_t)scale[i];
        for (int l = from; l < from + 16; l++) {
            const int nibble = low[64 * a + 32 * (k & 1) + l] >> 4 * (k / 2) & 15;
            const int value = (nibble | (high[32 * a + l] >> 2 * k & 3) << 4) - 32;
            y[32 * (i / 2) + l] = step * (float)value;
        }
    }
}

/* ---- any ---- */

static const struct {
    uint32_t type;
    void (*unpack)(const uint8_t *block, float *out);
} known[] = {
    {LS_GGML_Q4_0, q4_0}, {LS_GGML_Q4_1, q4_1}, {LS_GGML_Q5_0, q5_0}, {LS_GGML_Q5_1, q5_1},
    {LS_GGML_Q8_0, q8_0}, {LS_GGML_Q2_K, q2_k}, {LS_GGML_Q3_K, q3_k}, {LS_GGML_Q4_K, q4_k},
    {LS_GGML_Q5_K, q5_k}, {LS_GGML_Q6_K, q6_k},
};

static size_t find(uint32_t type) {
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && known[i].type != type) i++;
    return i;
}

bool ls_blocks_known(uint32_t type) {
    return find(type) < sizeof known / sizeof known[0];
}

void ls_blocks_f32(uint32_t type, const uint8_t *blocks, int64_t count, float *out) {
    const size_t at = find(type);
    const ls_gguf_type *about = ls_gguf_type_of(type);
    for (int64_t i = 0; i < count; i++)
        known[at].unpack(blocks + i * about->bytes, out + i * about->values);
}

/* ---- tensors ---- */

ls_safetensor ls_blocks_tensor(const ls_gguf_tensor *tensor) {
    static const struct {
        uint32_t theirs;
        ls_stored_type ours;
    } plain[] = {
        {LS_GGML_F32, LS_STORED_F32}, {LS_GGML_F16, LS_STORED_F16}, {LS_GGML_BF16, LS_STORED_BF16},
        {LS_GGML_F64, LS_STORED_F64}, {LS_GGML_I8, LS_STORED_I8},   {LS_GGML_I16, LS_STORED_I16},
        {LS_GGML_I32, LS_STORED_I32}, {LS_GGML_I64, LS_STORED_I64},
    };
    ls_safetensor out = {.name = tensor->name,
                         .type = LS_STORED_F32,
                         .block = tensor->type,
                         .rank = tensor->rank,
                         .count = tensor->count,
                         .data = tensor->data,
                         .from = tensor->from,
                         .at = tensor->at,
                         .bytes = tensor->bytes};
    for (int i = 0; i < tensor->rank; i++) out.dim[i] = tensor->dim[i];
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (plain[i].theirs == tensor->type) {
            out.type = plain[i].ours;
            out.block = 0;
        }
    return out;
}

/* ---- packing ---- */

static void put_half(uint8_t *at, uint16_t bits) {
    at[0] = (uint8_t)bits;
    at[1] = (uint8_t)(bits >> 8);
}

/* As ggml's reference: the scale is rounded behind the quotients, halves go away from 0. */
static void pack_q8_0(const float *x, uint8_t *out) {
    float most = 0;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float d = most / 127, inverse = d != 0 ? 1.0f / d : 0;
    put_half(out, ls_f16_bits(d));
    for (int i = 0; i < 32; i++) out[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
}

size_t ls_blocks_pack(uint32_t type, const float *values, int64_t count, uint8_t *out) {
    switch (type) {
    case LS_GGML_F16:
        for (int64_t i = 0; i < count; i++) put_half(out + 2 * i, ls_f16_bits(values[i]));
        return (size_t)count * 2;
    case LS_GGML_BF16:
        for (int64_t i = 0; i < count; i++) put_half(out + 2 * i, ls_bf16_from_f32(values[i]));
        return (size_t)count * 2;
    case LS_GGML_Q8_0:
        for (int64_t i = 0; i < count; i++) pack_q8_0(values + 32 * i, out + 34 * i);
        return (size_t)count * 34;
    default:
        memcpy(out, values, (size_t)count * 4);
        return (size_t)count * 4;
    }
}
