#ifndef LS_TENSOR_OP_PADDING_H
#define LS_TENSOR_OP_PADDING_H

#include "tensor/engine/program.h"

/* u8 [B,T]: 1 where ids[B,T] has a token, 0 where it is below 0. No gradient. */
ls_tensor *ls_valid_rows(ls_program *p, ls_tensor *ids);
/* x [B,T,D] with zeros in the rows that are not valid; x itself where valid is NULL. */
ls_tensor *ls_mask_rows(ls_program *p, ls_tensor *x, ls_tensor *valid);
typedef enum { LS_POOL_MEAN, LS_POOL_FIRST, LS_POOL_LAST } ls_pool_kind;
/* One row of each sequence's valid ones (valid NULL: all): [B,T,D] -> [B,D]; zeros where there is
 * none. */
ls_tensor *ls_pool_rows(ls_program *p, ls_pool_kind kind, ls_tensor *x, ls_tensor *valid);

#endif
