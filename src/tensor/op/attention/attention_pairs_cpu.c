#include "tensor/op/attention/attention_pairs_cpu.h"

#include "tensor/cpu/matrix_unit.h"

half_rows ls_half_load(const ls_attention_array *x, int64_t b, int64_t head, int64_t row,
                       int64_t count, int64_t rows, int64_t width, ls_bf16 *buffer) {
    const ls_bf16 *from = (const ls_bf16 *)x->data + b * x->batch + row * x->row + head * x->head;
    if (width % PAD == 0 && count == rows && x->row % 2 == 0) return (half_rows){from, x->row};
    int64_t wide = padded(width);
    for (int64_t i = 0; i < rows; i++) {
        int64_t real = i < count ? width : 0;
        memcpy(buffer + i * wide, from + i * x->row, (size_t)real * sizeof *buffer);
        memset(buffer + i * wide + real, 0, (size_t)(wide - real) * sizeof *buffer);
    }
    return (half_rows){buffer, wide};
}

LS_WITH_AMX LS_INLINE void store_half(ls_bf16 *to, vec x) {
#if LS_ISA_avx512 /* one instruction; it takes subnormals for zero, as AMX does */
    const __m256bh half = _mm512_cvtneps_pbh((__m512)x);
    memcpy(to, &half, sizeof half);
#else
    ls_narrow(to, x);
#endif
}

LS_WITH_AMX void ls_half_round(const float *from, int64_t rows, int64_t width, ls_bf16 *to) {
    for (int64_t i = 0; i < rows * width; i += LANES) store_half(to + i, vec_load(from + i));
}

LS_INLINE ls_uvec load_words(const ls_bf16 *from) {
    ls_hvec x;
    memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, ls_uvec);
}

void ls_half_pair_rows(half_rows from, int64_t rows, int64_t width, float *units, int64_t stride) {
    for (int64_t i = 0; i < rows / 2; i++) {
        const ls_bf16 *even = from.at + 2 * i * from.stride, *odd = even + from.stride;
        for (int64_t e = 0; e < width; e += LANES)
            vec_store(units + i * stride + e,
                      (vec)(load_words(even + e) | load_words(odd + e) << 16));
    }
}

void ls_half_pair_elements(half_rows from, int64_t width, float *units) {
    ls_tile_transpose((const float *)(const void *)from.at, from.stride / 2, QUERIES, width / 2,
                      units, QUERIES);
}

void ls_half_turn(half_rows from, int64_t width, float *units, ls_bf16 *to) {
    ls_half_pair_rows(from, KEYS, width, units, width);
    ls_tile_transpose(units, width, KEYS / 2, width, (float *)(void *)to, KEYS / 2);
}

LS_WITH_AMX LS_INLINE void store_pair(float *units, vec even, vec odd) {
#if LS_ISA_avx512
    const __m512i order =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)odd, (__m512)even);
    vec_store(units, (vec)_mm512_permutexvar_epi16(order, both));
#else
    ls_bf16 halves[2][LANES];
    store_half(halves[0], even);
    store_half(halves[1], odd);
    vec_store(units, (vec)(load_words(halves[0]) | load_words(halves[1]) << 16));
#endif
}

LS_WITH_AMX void ls_half_pair_floats(const float *from, int64_t count, int64_t rows, float *units) {
    for (int64_t j = 0; j < rows; j += 2)
        for (int r = 0; r < QUERIES; r += LANES) {
            const float *at = from + j * QUERIES + r;
            vec even = j < count ? vec_load(at) : (vec){0};
            vec odd = j + 1 < count ? vec_load(at + QUERIES) : (vec){0};
            store_pair(units + j / 2 * QUERIES + r, even, odd);
        }
}
