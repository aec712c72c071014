#ifndef LS_TENSOR_OP_EMBED_H
#define LS_TENSOR_OP_EMBED_H

#include "tensor/engine/program.h"

/* y[B,T,D] = table[ids[B,T]]; a row of zeros where the id is below 0 (padding). */
ls_tensor *ls_embed(ls_program *p, ls_tensor *ids, ls_tensor *table);
/* The last row of each sequence: [B,T,D] -> [B,D]. No gradient. */
ls_tensor *ls_last_row(ls_program *p, ls_tensor *x);
/* The rows with the given numbers, b T + t, of x [B,T,D]: at i32 [B,n] -> [B,n,D]. No gradient. */
ls_tensor *ls_pick_rows(ls_program *p, ls_tensor *x, ls_tensor *at);

#endif
