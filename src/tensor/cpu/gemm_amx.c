/* Kernels on AMX tiles, for bf16 and for f32.
 *
 * A step of k is 32 elements. A panel holds, for each step, 2 tiles of 16 lines of 64 bytes: in
 * A's panel a line is a row's 32 elements; in B's it is a pair of k, its two elements beside each
 * other for each of 16 columns.
 *
 * f32 on AMX: x = high + middle + low, three bf16 numbers of 8 significant bits that together hold
 * all 24 of x. Each is the rounded rest of those before it. Of the nine products of two such sums
 * the three smallest are below 2^-24 of the whole and are left out; the other six are summed in
 * f32. `high` stays below infinity where x does; what was infinite or NaN becomes NaN.
 *
 * With f32 the two elements of a pair are k and k + 16 of the step, which needs no shuffling; the
 * order within a step is free as long as both operands use the same. */
#include "tensor/cpu/gemm_kernel.h"
#include "tensor/cpu/matrix_unit.h"

#if LS_ISA_avx512

#include <immintrin.h>

enum {
    TILE = 16, /* lines of a tile, and f32 numbers of a line */
    STEP = 32, /* k of one tile product */
    TILE_BYTES = TILE * 64,
    PANEL = 2 * TILE, /* rows or columns of a panel */
};

static inline __mmask16 first_lanes(int64_t count) {
    int64_t lanes = count < 0 ? 0 : ls_gemm_least(count, 16);
    return (__mmask16)((1u << lanes) - 1);
}

static inline __m512i widen_bf16(__m256i halves) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
}

static inline __m512 load_floats(ls_dtype type, const char *from, int64_t i, __mmask16 lanes) {
    if (type == LS_BF16)
        return _mm512_castsi512_ps(
            widen_bf16(_mm256_maskz_loadu_epi16(lanes, (const ls_bf16 *)(const void *)from + i)));
    return _mm512_maskz_loadu_ps(lanes, (const float *)(const void *)from + i);
}

/* The bf16 numbers in the upper halves of x and y, side by side. */
static inline __m512i join_upper(__m512 x, __m512 y) {
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000u);
    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(x), 16),
                                     _mm512_castps_si512(y), upper, 0xf8); /* x | (y & upper) */
}

static inline __m512 cut(__m512 x) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000u)));
}

static inline __m512 rounded(__m512 x) {
    return cut(
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000))));
}

/* x, or the largest finite bf16 of its sign. */
static inline __m512 within_bf16(__m512 x) {
    const __m512 largest = _mm512_castsi512_ps(_mm512_set1_epi32(0x7f7f0000));
    return _mm512_range_ps(x, largest, 2); /* the smaller absolute value, the sign of x */
}

/* Write a line of each plane (high, middle, low) from 16 pairs of f32. */
static inline void store_split(char *line, __m512 x, __m512 y) {
    const size_t plane_bytes = 2 * TILE_BYTES;
    __m512 x_high = rounded(within_bf16(x)), y_high = rounded(within_bf16(y));
    _mm512_store_si512(line, join_upper(x_high, y_high));
    x = _mm512_sub_ps(x, x_high);
    y = _mm512_sub_ps(y, y_high);
    __m512 x_middle = rounded(x), y_middle = rounded(y);
    _mm512_store_si512(line + plane_bytes, join_upper(x_middle, y_middle));
    _mm512_store_si512(line + 2 * plane_bytes,
                       join_upper(_mm512_sub_ps(x, x_middle), _mm512_sub_ps(y, y_middle)));
}

/* Line i of a tile that lies at (first, k): a row's step, or a pair of k for 16 rows. */
static inline void store_line(const ls_gemm_operand *x, ls_dtype type, int planes, int64_t first,
                              int64_t rows, int64_t k, int64_t k_count, int i, char *line) {
    int64_t size = (int64_t)ls_dtype_size(type);
    if (x->along_k) {
        const char *from = x->data + (first + i) * x->stride + k * size;
        __builtin_prefetch(from + 2 * STEP * size);
        if (i >= rows) k_count = 0;
        if (planes == 1) {
            __mmask32 lanes = (__mmask32)first_lanes(k_count) | (__mmask32)first_lanes(k_count - 16)
                                                                    << 16;
            _mm512_store_si512(line, _mm512_maskz_loadu_epi16(lanes, from));
        } else {
            store_split(line, load_floats(type, from, 0, first_lanes(k_count)),
                        load_floats(type, from, 16, first_lanes(k_count - 16)));
        }
        return;
    }
    int64_t one = planes == 1 ? 2 * i : i, other = planes == 1 ? one + 1 : one + 16;
    const char *from = x->data + (k + one) * x->stride + first * size;
    const char *from_other = x->data + (k + other) * x->stride + first * size;
    __builtin_prefetch(from + STEP * x->stride); /* no hardware follows steps this long */
    __builtin_prefetch(from_other + STEP * x->stride);
    __mmask16 lanes = first_lanes(one < k_count ? rows : 0);
    __mmask16 lanes_other = first_lanes(other < k_count ? rows : 0);
    if (planes == 1)
        _mm512_store_si512(
            line, _mm512_or_si512(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, from)),
                                  widen_bf16(_mm256_maskz_loadu_epi16(lanes_other, from_other))));
    else
        store_split(line, load_floats(type, from, 0, lanes),
                    load_floats(type, from_other, 0, lanes_other));
}

/* Transpose a tile of 16 x 16 words in place. */
static inline void transpose(char *tile) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i++) a[i] = _mm512_load_si512(tile + i * 64);
    LS_GEMM_UNROLL
    for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    LS_GEMM_UNROLL
    for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    /* a[4 q + c] holds, in its lane l, column 4 l + c of rows 4 q .. 4 q + 3 */
    LS_GEMM_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512i low01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0x44);
        __m512i high01 = _mm512_shuffle_i32x4(a[c], a[4 + c], 0xee);
        __m512i low23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x44);
        __m512i high23 = _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xee);
        _mm512_store_si512(tile + c * 64, _mm512_shuffle_i32x4(low01, low23, 0x88));
        _mm512_store_si512(tile + (4 + c) * 64, _mm512_shuffle_i32x4(low01, low23, 0xdd));
        _mm512_store_si512(tile + (8 + c) * 64, _mm512_shuffle_i32x4(high01, high23, 0x88));
        _mm512_store_si512(tile + (12 + c) * 64, _mm512_shuffle_i32x4(high01, high23, 0xdd));
    }
}

/* One step of a panel: [plane][2 tiles]. Lines come as they lie in memory; where the panel wants
 * the other direction the tiles are transposed. */
static inline void pack_step(const ls_gemm_operand *x, ls_dtype type, int planes, bool pairs_of_k,
                             int64_t first, int64_t k, int64_t k_count, char *panel) {
    for (int t = 0; t < 2; t++) {
        char *tile = panel + t * TILE_BYTES;
        int64_t row = first + t * TILE;
        for (int i = 0; i < TILE; i++)
            store_line(x, type, planes, row, x->count - row, k, k_count, i, tile + i * 64);
        if (pairs_of_k == x->along_k)
            for (int p = 0; p < planes; p++) transpose(tile + p * 2 * TILE_BYTES);
    }
}

/* [panel][step], visited in the order in which the operand lies in memory: to come back to a page
 * later costs more than the packing. */
static inline void pack(const ls_gemm_operand *x, ls_dtype type, int planes, bool pairs_of_k,
                        int64_t first, int64_t panels, int64_t k, int64_t k_count, char *packed) {
    int64_t steps = ls_gemm_pieces(k_count, STEP);
    for (int64_t i = 0; i < panels * steps; i++) {
        int64_t panel = x->along_k ? i / steps : i % panels;
        int64_t step = x->along_k ? i % steps : i / panels;
        pack_step(x, type, planes, pairs_of_k, first + panel * PANEL, k + step * STEP,
                  k_count - step * STEP, packed + (panel * steps + step) * planes * 2 * TILE_BYTES);
    }
}

#define DEFINE_PACK(name, planes, pairs_of_k)                                                      \
    static void name(const ls_gemm_operand *x, int64_t first, int64_t panels, int64_t k,           \
                     int64_t k_count, void *packed) {                                              \
        if (x->type == LS_BF16)                                                                    \
            pack(x, LS_BF16, planes, pairs_of_k, first, panels, k, k_count, packed);               \
        else                                                                                       \
            pack(x, LS_F32, planes, pairs_of_k, first, panels, k, k_count, packed);                \
    }
DEFINE_PACK(pack_a1, 1, false)
DEFINE_PACK(pack_b1, 1, true)
DEFINE_PACK(pack_a3, 3, false)
DEFINE_PACK(pack_b3, 3, true)

/* Tiles 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B. */
#define LOAD_A(plane)                                                                              \
    do {                                                                                           \
        _tile_loadd(4, a + (plane)*2 * TILE_BYTES, 64);                                            \
        _tile_loadd(5, a + (plane)*2 * TILE_BYTES + TILE_BYTES, 64);                               \
    } while (0)
#define LOAD_B(plane)                                                                              \
    do {                                                                                           \
        _tile_loadd(6, b + (plane)*2 * TILE_BYTES, 64);                                            \
        _tile_loadd(7, b + (plane)*2 * TILE_BYTES + TILE_BYTES, 64);                               \
    } while (0)
#define MULTIPLY()                                                                                 \
    do {                                                                                           \
        _tile_dpbf16ps(0, 4, 6);                                                                   \
        _tile_dpbf16ps(1, 4, 7);                                                                   \
        _tile_dpbf16ps(2, 5, 6);                                                                   \
        _tile_dpbf16ps(3, 5, 7);                                                                   \
    } while (0)

/* Small products first; each differs from the one before in one operand only, to load less. */
LS_WITH_AMX static inline void multiply_tiles(int planes, int64_t k, const char *a, const char *b,
                                              float *to, int64_t stride) {
    enum { HIGH, MIDDLE, LOW };
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t done = 0; done < k; done += STEP) {
        if (planes == 3) {
            LOAD_A(HIGH);
            LOAD_B(LOW);
            MULTIPLY();
            LOAD_B(MIDDLE);
            MULTIPLY();
            LOAD_A(MIDDLE);
            MULTIPLY();
            LOAD_B(HIGH);
            MULTIPLY();
            LOAD_A(LOW);
            MULTIPLY();
        } else {
            LOAD_B(HIGH);
        }
        LOAD_A(HIGH);
        MULTIPLY();
        a += planes * 2 * TILE_BYTES;
        b += planes * 2 * TILE_BYTES;
    }
    const size_t row_bytes = (size_t)stride * sizeof(float);
    _tile_stored(0, to, row_bytes);
    _tile_stored(1, to + TILE, row_bytes);
    _tile_stored(2, to + TILE * stride, row_bytes);
    _tile_stored(3, to + TILE * stride + TILE, row_bytes);
}

LS_WITH_AMX static void multiply_amx1(int64_t k, const void *a, const void *b,
                                      const ls_gemm_target *target) {
    multiply_tiles(1, k, a, b, target->to, target->stride);
}
LS_WITH_AMX static void multiply_amx3(int64_t k, const void *a, const void *b,
                                      const ls_gemm_target *target) {
    multiply_tiles(3, k, a, b, target->to, target->stride);
}

#define PANELS(planes)                                                                             \
    .rows = PANEL, .columns = PANEL, .k_step = STEP, .element_bytes = (planes) * sizeof(ls_bf16),  \
    .column_block = 1536, .pack_a = pack_a##planes, .pack_b = pack_b##planes

const ls_gemm_kernel ls_gemm_amx_bf16 = {.name = "amx-bf16",
                                         PANELS(1),
                                         .k_block = 2048,
                                         .multiply = multiply_amx1,
                                         .begin = ls_unit_begin,
                                         .end = ls_unit_end};
const ls_gemm_kernel ls_gemm_amx_split3 = {.name = "amx-f32-split3",
                                           PANELS(3),
                                           .k_block = 768,
                                           .multiply = multiply_amx3,
                                           .begin = ls_unit_begin,
                                           .end = ls_unit_end};
#else
typedef int ls_gemm_amx_is_for_avx512; /* a file may not be empty */
#endif
