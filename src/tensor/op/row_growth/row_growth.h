#ifndef LS_TENSOR_OP_ROW_GROWTH_H
#define LS_TENSOR_OP_ROW_GROWTH_H

#include "tensor/engine/program.h"

/* y = x max(1, ln(n + 1) / ln(length)) for rows x [B,T,H,K] at the positions n of the chunk, each
 * sequence's own where sequences begin anew: queries that grow with what they see (ReRoPE,
 * Self-Extend), so that the softmax over more keys stays as sharp. length > 1. */
ls_tensor *ls_row_growth(ls_program *p, ls_tensor *x, double length);

#endif
