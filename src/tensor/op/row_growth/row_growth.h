#ifndef LS_TENSOR_OP_ROW_GROWTH_H
#define LS_TENSOR_OP_ROW_GROWTH_H

#include "tensor/engine/program.h"

/* y = x times a factor of the position, for rows x [B,T,H,K] of the chunk: queries that grow with
 * what they see, so that the softmax over more keys stays as sharp. length > 1.
 *   each row: max(1, ln(n + 1) / ln(length)) at its own position n, each sequence's own where
 *             sequences begin anew (ReRoPE, Self-Extend)
 *   whole:    ln(N) / ln(length) for all rows, N the length after the chunk; below 1 before it
 * (CLEX) */
typedef struct ls_growth {
    double length;
    bool whole;
} ls_growth;
ls_tensor *ls_row_growth(ls_program *p, ls_tensor *x, ls_growth growth);

/* ---- for the kernels ---- */

/* in: x, where sequences began (or NULL); attributes: */
typedef struct ls_growth_attributes {
    ls_growth growth;
    int64_t chunk; /* tokens of a run */
} ls_growth_attributes;

#endif
