/* Tiles of bf16 in the forms that products by AMX want: rows of one operand as they lie, and of the
 * other pairs of rows (or of a row's elements) as 32-bit units, which travel in float storage. */
#ifndef LS_TENSOR_CPU_ATTENTION_PAIRS_H
#define LS_TENSOR_CPU_ATTENTION_PAIRS_H

#include "tensor/op/attention/attention_tile_cpu.h"

/* Rows of bf16, `stride` elements apart. */
typedef struct half_rows {
    const ls_bf16 *at;
    int64_t stride;
} half_rows;

#define ls_half_load LS_ISA_SYMBOL(ls__half_load)
#define ls_half_round LS_ISA_SYMBOL(ls__half_round)
#define ls_half_pair_rows LS_ISA_SYMBOL(ls__half_pair_rows)
#define ls_half_pair_elements LS_ISA_SYMBOL(ls__half_pair_elements)
#define ls_half_turn LS_ISA_SYMBOL(ls__half_turn)
#define ls_half_pair_floats LS_ISA_SYMBOL(ls__half_pair_floats)

/* As ls_tile_load, for bf16 tensors; the stride is even. */
half_rows ls_half_load(const ls_attention_array *x, int64_t b, int64_t head, int64_t row,
                       int64_t count, int64_t rows, int64_t width, ls_bf16 *buffer);
/* to[i][e] = from[i][e] rounded; width is a multiple of PAD, and the stride of `to`. */
void ls_half_round(const float *from, int64_t rows, int64_t width, ls_bf16 *to);
/* units[i][e] = (from[2i][e], from[2i + 1][e]) */
void ls_half_pair_rows(half_rows from, int64_t rows, int64_t width, float *units, int64_t stride);
/* units[e][i] = (from[i][2e], from[i][2e + 1]) for QUERIES rows */
void ls_half_pair_elements(half_rows from, int64_t width, float *units);
/* to[e][i] = from[i][e] for KEYS rows; `units` is scratch of KEYS / 2 * width floats. */
void ls_half_turn(half_rows from, int64_t width, float *units, ls_bf16 *to);
/* units[i][lane] = (from[2i][lane], from[2i + 1][lane]) rounded, for `rows` rows (a multiple of 2)
 * of QUERIES lanes, those from `count` on being 0. */
void ls_half_pair_floats(const float *from, int64_t count, int64_t rows, float *units);

#endif
