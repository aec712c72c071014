/* What the optimiser's two files share: how its buffers are cut over ranks. */
#ifndef LS_TRAIN_OPTIMIZER_RANKS_H
#define LS_TRAIN_OPTIMIZER_RANKS_H

#include "train/optimizer.h"

enum { LS_OPTIMIZER_WHOLLY = 31 };

/* The pieces [*from, *end) that are a rank's after so many halvings, or wholly. In the k-th the rank
 * that has bit k of its number set takes the upper half. */
void ls__optimizer_part(const ls_optimizer *optimizer, int rank, int halvings, int64_t *from,
                        int64_t *end);
/* Memory for chunks on their way. */
ls_status ls__optimizer_chunks(ls_ctx *ctx, ls_optimizer *optimizer);
void ls__optimizer_give_chunks(ls_ctx *ctx, ls_optimizer *optimizer);
/* ls_optimizer_reduce of some pieces alone. All ranks sum the same ones in the same order. */
typedef struct ls_pieces {
    int64_t from, end;
} ls_pieces;
ls_status ls__optimizer_reduce_pieces(ls_ctx *ctx, ls_optimizer *optimizer, ls_pieces among);
/* Every rank's sums to all. */
ls_status ls__optimizer_share_sums(ls_ctx *ctx, const ls_optimizer *optimizer);
/* After an update: every rank's part of the weights to all; the gradient is zero. */
ls_status ls__optimizer_share_weights(ls_ctx *ctx, ls_optimizer *optimizer);

#endif
