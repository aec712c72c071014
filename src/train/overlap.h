/* Sums of gradients over ranks while the backward part goes on.
 *
 * The flat gradient is cut into buckets (ls_optimizer). Where the last run of a rank's batch has
 * added all that it adds to a bucket, a thread of its own takes it along the tree: the sums within
 * the rank (ls_leaves_sum), then those with other ranks. Each element takes the same way as
 * without, so the bits are the same. Runs before the last one have nothing to send: their sums are
 * the rank's own.
 *
 * From ls_overlap_begin to ls_overlap_end no one else may use the ranks. */
#ifndef LS_TRAIN_OVERLAP_H
#define LS_TRAIN_OVERLAP_H

#include "tensor/engine/program.h"
#include "train/leaves.h"
#include "train/optimizer.h"

typedef struct ls_overlap ls_overlap;

/* Everything is borrowed. *out is NULL where there is nothing to sum with others, or the ranks are
 * reached from one thread alone: then ls_optimizer_reduce does it. */
ls_status ls_overlap_new(ls_ctx *ctx, ls_program *program, ls_optimizer *optimizer,
                         ls_leaves *leaves, ls_overlap **out);
/* Also amid sums, which then end unfinished. NULL is fine. */
void ls_overlap_free(ls_overlap *overlap);
/* The run that follows is this rank's last one of the batch. */
void ls_overlap_begin(ls_overlap *overlap);
/* After it: waits for all sums. That time alone counts as spent in exchanges. */
ls_status ls_overlap_end(ls_overlap *overlap);

#endif
