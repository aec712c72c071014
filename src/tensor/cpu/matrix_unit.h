/* Products of bf16 tiles by the processor's own instructions for them: AMX, or ARM's. */
#ifndef LS_TENSOR_CPU_MATRIX_UNIT_H
#define LS_TENSOR_CPU_MATRIX_UNIT_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/engine/kernel.h"

/* The copy for AVX-512 serves processors without AMX too: what uses AMX, or the conversions to bf16
 * that come with it, is compiled for it function by function. */
#if LS_ISA_avx512
#define LS_WITH_AMX __attribute__((target("avx512bf16,amx-tile,amx-bf16")))
#else
#define LS_WITH_AMX
#endif

#define ls_unit_usable LS_ISA_SYMBOL(ls__unit_usable)
#define ls_unit_begin LS_ISA_SYMBOL(ls__unit_begin)
#define ls_unit_end LS_ISA_SYMBOL(ls__unit_end)
#define ls_unit_product LS_ISA_SYMBOL(ls__unit_product)

/* Whether this copy of the kernels, the processor and the operating system have it. */
bool ls_unit_usable(void);
/* Each thread, around its products. */
void ls_unit_begin(void);
void ls_unit_end(void);

/* c[i][lane] = (add ? c : 0) + sum_k a[i][k] * b[k][lane]. rows is a multiple of 16, lanes and
 * depth are multiples of 32. b holds pairs of k as 32-bit units: b[k / 2][lane] = (b of k, b of k +
 * 1), the lower half first. Strides: a in bf16 elements, b in units, c in floats. */
void ls_unit_product(int64_t rows, int64_t lanes, int64_t depth, const ls_bf16 *a, int64_t a_stride,
                     const float *b, int64_t b_stride, float *c, int64_t c_stride, bool add);

#endif
