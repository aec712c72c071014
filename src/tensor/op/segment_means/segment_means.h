#ifndef LS_TENSOR_OP_SEGMENT_MEANS_H
#define LS_TENSOR_OP_SEGMENT_MEANS_H

#include "tensor/engine/program.h"

/* Means of M consecutive pieces of every text x [B,T,H,W]: y [B,M,H,W]. Of n rows (those that are
 * not padding, u8 valid [B,T], NULL: all) the first (s+1) M - n pieces have s = floor(n / M) rows,
 * the others s + 1. A text of n <= M rows has them as they are, then zeros. *used (may be NULL) is
 * u8 [B,M], 0 for these zeros; *few (may be NULL) is u8 [B], 1 where n <= M. */
ls_tensor *ls_segment_means(ls_program *p, ls_tensor *x, int64_t M, ls_tensor *valid,
                            ls_tensor **used, ls_tensor **few);

#endif
