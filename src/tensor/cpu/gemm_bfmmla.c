/* A kernel on ARM's bf16 matrix instruction: 2 x 4 times 4 x 2, added to a vector of 2 x 2 sums.
 *
 * A step of k is 4 elements. Both panels hold, for each step, pairs of rows (of columns for B): 4
 * elements of the first, then 4 of the second. */
#include "tensor/cpu/gemm_kernel.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

#include <arm_neon.h>

enum {
    STEP = 4,
    PANEL = 8, /* rows or columns of a panel: 16 vectors of sums and 8 of elements, of 32 */
    PAIRS = PANEL / 2,
};

/* Whole steps of a row, which lies along k. */
static inline void pack_along(const uint16_t *from, int64_t k_count, uint16_t *to) {
    int64_t k = 0;
    for (; k + STEP <= k_count; k += STEP, to += PANEL * STEP)
        memcpy(to, from + k, STEP * sizeof *to);
    if (k < k_count) {
        memset(to, 0, STEP * sizeof *to);
        memcpy(to, from + k, (size_t)(k_count - k) * sizeof *to);
    }
}

/* 4 elements of k, which lie across it, of 4 rows. */
static inline void pack_across(const char *from, int64_t stride, uint16_t *to) {
    const uint16x4_t k0 = vld1_u16((const void *)from),
                     k1 = vld1_u16((const void *)(from + stride));
    const uint16x4_t k2 = vld1_u16((const void *)(from + 2 * stride));
    const uint16x4_t k3 = vld1_u16((const void *)(from + 3 * stride));
    const uint16x4x2_t even = vzip_u16(k0, k2), odd = vzip_u16(k1, k3);
    const uint16x4x2_t first = vzip_u16(even.val[0], odd.val[0]);
    const uint16x4x2_t second = vzip_u16(even.val[1], odd.val[1]);
    vst1_u16(to, first.val[0]);
    vst1_u16(to + 4, first.val[1]);
    vst1_u16(to + 8, second.val[0]);
    vst1_u16(to + 12, second.val[1]);
}

static void pack_panel(const ls_gemm_operand *x, int64_t first, int64_t k, int64_t k_count,
                       uint16_t *panel) {
    const int64_t count = ls_gemm_least(PANEL, x->count - first), size = sizeof *panel;
    const int64_t steps = ls_gemm_pieces(k_count, STEP);
    if (count < PANEL) memset(panel, 0, (size_t)(steps * STEP * PANEL * size));
    if (x->along_k) {
        for (int64_t i = 0; i < count; i++)
            pack_along((const void *)(x->data + (first + i) * x->stride + k * size), k_count,
                       panel + i * STEP);
        return;
    }
    for (int64_t done = 0; done < k_count; done += STEP, panel += PANEL * STEP) {
        const char *from = x->data + (k + done) * x->stride + first * size;
        if (count == PANEL && done + STEP <= k_count) {
            for (int i = 0; i < PANEL; i += 4)
                pack_across(from + i * size, x->stride, panel + i * STEP);
            continue;
        }
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < STEP; j++)
                panel[i * STEP + j] =
                    done + j < k_count ? ((const uint16_t *)(const void *)(from + j * x->stride))[i]
                                       : 0;
    }
}

/* [panel][step]. Where the operand lies across k, few rows of all panels are done before the next:
 * to come back to a page later costs more than the packing. */
static void pack(const ls_gemm_operand *x, int64_t first, int64_t panels, int64_t k,
                 int64_t k_count, void *packed) {
    const int64_t length = ls_gemm_padded(k_count, STEP), piece = x->along_k ? length : 32;
    for (int64_t done = 0; done < k_count; done += piece)
        for (int64_t i = 0; i < panels; i++)
            pack_panel(x, first + i * PANEL, k + done, ls_gemm_least(piece, k_count - done),
                       (uint16_t *)packed + (i * length + done) * PANEL);
}

/* Two columns of a row of the target. */
LS_INLINE void put_pair(const ls_gemm_target *t, int row, int column, float32x2_t pair) {
    float *to = t->to + row * t->stride + column;
    if (t->bias) pair = vadd_f32(pair, vld1_f32(t->bias + column));
    if (t->add) pair = vadd_f32(pair, vld1_f32(to));
    vst1_f32(to, pair);
}

static void multiply(int64_t k, const void *panel_a, const void *panel_b,
                     const ls_gemm_target *target) {
    const bfloat16_t *a = panel_a, *b = panel_b;
    float32x4_t sum[PAIRS][PAIRS];
    LS_GEMM_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        LS_GEMM_UNROLL
        for (int j = 0; j < PAIRS; j++) sum[i][j] = vdupq_n_f32(0);
    }
    for (int64_t done = 0; done < k; done += STEP, a += PANEL * STEP, b += PANEL * STEP) {
        bfloat16x8_t rows[PAIRS];
        LS_GEMM_UNROLL
        for (int i = 0; i < PAIRS; i++) rows[i] = vld1q_bf16(a + 2 * STEP * i);
        LS_GEMM_UNROLL
        for (int j = 0; j < PAIRS; j++) {
            const bfloat16x8_t columns = vld1q_bf16(b + 2 * STEP * j);
            LS_GEMM_UNROLL
            for (int i = 0; i < PAIRS; i++) sum[i][j] = vbfmmlaq_f32(sum[i][j], rows[i], columns);
        }
    }
    LS_GEMM_UNROLL
    for (int i = 0; i < PAIRS; i++) {
        LS_GEMM_UNROLL
        for (int j = 0; j < PAIRS; j++) {
            put_pair(target, 2 * i, 2 * j, vget_low_f32(sum[i][j]));
            put_pair(target, 2 * i + 1, 2 * j, vget_high_f32(sum[i][j]));
        }
    }
}

const ls_gemm_kernel ls_gemm_bfmmla = {
    .name = "bfmmla",
    .rows = PANEL,
    .columns = PANEL,
    .k_step = STEP,
    .k_block = 1536,
    .column_block = 1536,
    .element_bytes = sizeof(ls_bf16),
    .finishes = true,
    .pack_a = pack,
    .pack_b = pack,
    .multiply = multiply,
};
#else
typedef int ls_gemm_bfmmla_is_for_arm; /* a file may not be empty */
#endif
