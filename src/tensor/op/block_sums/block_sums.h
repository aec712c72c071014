/* What the sums of blocks of rows and their kernels share. */
#ifndef LS_TENSOR_OP_BLOCK_SUMS_H
#define LS_TENSOR_OP_BLOCK_SUMS_H

#include "tensor/engine/program.h"
#include "tensor/op/attention/tile_schedule.h"

/* Sums of the valid rows of every block, [B,T / block,D] of x [B,T,D], T >= block; valid is u8
 * [B,T] or NULL. A block is complete where its last row is valid. With `adopt` the number F of
 * complete blocks counts: block j < F is there, the last of them takes all rows after it, and the
 * rest is zeros. *most, i32 [B], is then F - 1. Without, blocks that are not complete are not
 * there. *there, u8 [B,T / block], says which are. */
ls_tensor *ls_block_sums(ls_program *p, ls_tensor *x, ls_tensor *valid, int64_t block, bool adopt,
                         ls_tensor **most, ls_tensor **there);

/* ---- for the kernels ---- */

typedef struct ls_block_sums_attributes {
    int64_t block;
    bool adopt;
} ls_block_sums_attributes;

/* Complete blocks of one sequence; valid may be NULL. */
static inline int64_t ls_blocks_complete(const uint8_t *valid, int64_t T, int64_t block) {
    int64_t count = 0;
    if (valid == NULL) return T / block;
    for (int64_t end = block - 1; end < T; end += block) count += valid[end] != 0;
    return count;
}

/* Rows of block j, of which `complete` are. */
static inline ls_interval ls_block_sum_rows(const ls_block_sums_attributes *about, int64_t j,
                                            int64_t complete, int64_t T) {
    ls_interval rows = {j * about->block, (j + 1) * about->block};
    if (!about->adopt) return rows;
    if (j >= complete) return (ls_interval){0, 0};
    if (j == complete - 1) rows.end = T;
    return rows;
}

#endif
