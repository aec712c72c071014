#ifndef LS_TENSOR_OP_CHOOSE_H
#define LS_TENSOR_OP_CHOOSE_H

#include "tensor/engine/program.h"

/* The column of the largest of the first `columns` logits [B,V], the lower of equal ones: it is
 * written to tokens i32 [B,1], an input, which the next run then finds there, and kept for the last
 * LS_CHOICES positions: result i32 [B,LS_CHOICES], column position % LS_CHOICES. No gradient. A NaN
 * is never larger; where the first is one, it is chosen. */
enum { LS_CHOICES = 64 };
ls_tensor *ls_choose(ls_program *p, ls_tensor *logits, int64_t columns, ls_tensor *tokens);

/* ---- for the kernels: in: logits, tokens, choices; the last two are written ---- */

typedef struct ls_choose_attributes {
    int64_t columns;
} ls_choose_attributes;

#endif
