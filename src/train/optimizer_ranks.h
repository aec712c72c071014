/* What the optimiser's two files share: how its buffers are cut over ranks. */
#ifndef LS_TRAIN_OPTIMIZER_RANKS_H
#define LS_TRAIN_OPTIMIZER_RANKS_H

#include "train/optimizer.h"

enum { LS_OPTIMIZER_WHOLLY = 31 };

/* Pieces from .. end - 1. */
typedef struct ls_pieces {
    int64_t from, end;
} ls_pieces;

/* Those of a bucket that are a rank's after so many halvings, or wholly. In the k-th the rank that
 * has bit k of its number set takes the upper half, or with that bit of the bucket's number the
 * lower: odd pieces are not always the same ranks'. */
ls_pieces ls__optimizer_part(const ls_optimizer *optimizer, int64_t bucket, int rank, int halvings);
/* Memory for chunks on their way. */
ls_status ls__optimizer_chunks(ls_ctx *ctx, ls_optimizer *optimizer);
void ls__optimizer_give_chunks(ls_ctx *ctx, ls_optimizer *optimizer);
/* ls_optimizer_reduce of one bucket. All ranks take them in the same order. */
ls_status ls__optimizer_reduce_bucket(ls_ctx *ctx, ls_optimizer *optimizer, int64_t bucket);
/* Bytes of a buffer. */
typedef struct ls_part_bytes {
    char *at;
    size_t bytes;
} ls_part_bytes;
/* Every rank's part of a buffer to all: span(optimizer, bucket, rank, halvings) is where it
 * lies. */
typedef ls_part_bytes (*ls_part_fn)(const ls_optimizer *optimizer, int64_t bucket, int rank,
                                    int halvings);
ls_status ls__optimizer_share(ls_ctx *ctx, ls_optimizer *optimizer, ls_part_fn span);
/* optimizer_masters.c. Over ranks in bf16: takes this rank's part of the masters, as rank 0 has
 * them, and gives the store's back. */
ls_status ls__optimizer_cut_masters(ls_ctx *ctx, ls_optimizer *optimizer);
/* After an update of masters that are cut, or `loaded` from a checkpoint: what programs read of
 * them, to all. */
ls_status ls__optimizer_share_masters(ls_ctx *ctx, ls_optimizer *optimizer, bool loaded);
/* Every rank's sums to all. */
ls_status ls__optimizer_share_sums(ls_ctx *ctx, const ls_optimizer *optimizer);
/* After an update: every rank's part of the weights to all; the gradient is zero. */
ls_status ls__optimizer_share_weights(ls_ctx *ctx, ls_optimizer *optimizer);

#endif
