#ifndef LS_TENSOR_OP_BUCKET_TABLE_H
#define LS_TENSOR_OP_BUCKET_TABLE_H

#include "tensor/engine/program.h"

/* table[H,R] from weight[buckets,H]: table[h][r] = weight[bucket[r]][h]. */
ls_tensor *ls_bucket_table(ls_program *p, ls_tensor *weight, int64_t R, const int32_t *bucket);

#endif
