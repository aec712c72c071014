/* Sums of blocks of rows, and the way back: every row gets its block's gradient. */
#include <string.h>

#include "tensor/op/block_sums/block_sums.h"

static const uint8_t *valid_of(const ls_tensor *valid, int64_t b) {
    return valid == NULL ? NULL : (const uint8_t *)ls_data(valid) + b * valid->stride[0];
}

static void describe(const ls_node *node) {
    const ls_block_sums_attributes *about = node->attributes;
    const ls_tensor *x = node->in[0], *most = node->out[1], *there = node->out[2];
    for (int64_t b = 0; b < x->dim[0]; b++) {
        const uint8_t *valid = valid_of(node->in[1], b);
        int64_t complete = ls_blocks_complete(valid, x->dim[1], about->block);
        uint8_t *is = (uint8_t *)ls_data(there) + b * there->stride[0];
        ((int32_t *)ls_data(most))[b] = (int32_t)complete - 1;
        for (int64_t j = 0; j < there->dim[1]; j++)
            is[j] = about->adopt ? j < complete
                                 : valid == NULL || valid[(j + 1) * about->block - 1] != 0;
    }
}

#define SAME(value) (value)
/* Columns in pieces that fit the registers. */
#define DEFINE_SUMS(name, STORED, WIDE, LOAD, STORE)                                               \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        enum { PIECE = 64 };                                                                       \
        const ls_block_sums_attributes *about = node->attributes;                                  \
        const ls_tensor *x = node->in[0], *y = node->out[0];                                       \
        const int64_t T = x->dim[1], D = x->dim[2], blocks = y->dim[1];                            \
        describe(node);                                                                            \
        _Pragma(                                                                                   \
            "omp parallel for schedule(static) num_threads(run->threads)") for (int64_t row = 0;   \
                                                                                row < y->dim[0] *  \
                                                                                          blocks;  \
                                                                                row++) {           \
            const int64_t b = row / blocks, j = row % blocks;                                      \
            const uint8_t *valid = valid_of(node->in[1], b);                                       \
            const int64_t complete = ls_blocks_complete(valid, T, about->block);                   \
            const ls_interval rows = ls_block_sum_rows(about, j, complete, T);                     \
            const STORED *from = (const STORED *)ls_data(x) + b * x->stride[0];                    \
            STORED *to = (STORED *)ls_data(y) + b * y->stride[0] + j * y->stride[1];               \
            for (int64_t first = 0; first < D; first += PIECE) {                                   \
                WIDE sum[PIECE] = {0};                                                             \
                const int64_t count = ls_min(PIECE, D - first);                                    \
                for (int64_t t = rows.first; t < rows.end; t++) {                                  \
                    if (valid != NULL && valid[t] == 0) continue;                                  \
                    const STORED *at = from + t * x->stride[1] + first;                            \
                    for (int64_t i = 0; i < count; i++) sum[i] += LOAD(at[i]);                     \
                }                                                                                  \
                for (int64_t i = 0; i < count; i++) to[first + i] = STORE(sum[i]);                 \
            }                                                                                      \
        }                                                                                          \
    }
DEFINE_SUMS(sums_f64, double, double, SAME, SAME)
DEFINE_SUMS(sums_f32, float, float, SAME, SAME)
DEFINE_SUMS(sums_bf16, ls_bf16, float, ls_bf16_to_f32, ls_bf16_from_f32)

static void grad(const ls_run *run, const ls_node *node) {
    const ls_block_sums_attributes *about = node->attributes;
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const int64_t T = dx->dim[1], size = (int64_t)ls_dtype_size(dx->type);
    const size_t bytes = (size_t)(dx->dim[2] * size);
    for (int64_t b = 0; b < dx->dim[0]; b++) {
        const uint8_t *valid = valid_of(node->in[1], b);
        const int64_t last = ls_blocks_complete(valid, T, about->block) - 1;
#pragma omp parallel for schedule(static) num_threads(run->threads)
        for (int64_t t = 0; t < T; t++) {
            int64_t j = t / about->block;
            if (about->adopt) j = ls_min(j, last);
            char *to = (char *)ls_data(dx) + (b * dx->stride[0] + t * dx->stride[1]) * size;
            if (j >= 0 && j < dy->dim[1] && (valid == NULL || valid[t] != 0))
                memcpy(to, (char *)ls_data(dy) + (b * dy->stride[0] + j * dy->stride[1]) * size,
                       bytes);
            else
                memset(to, 0, bytes);
        }
    }
}

extern const ls_kernel LS_CPU_TABLE(block_sums)[];
const ls_kernel LS_CPU_TABLE(block_sums)[] = {
    {"block_sums", LS_KERNEL_BY_TYPE(sums), NULL},
    {"block_sums_grad", {grad, grad, grad}, NULL},
    {0},
};
