/* Batches of an evaluation that several ranks share: batch n is computed by rank n mod their
 * number.
 *
 * With eval.context neighbouring ranks form groups, each of which computes a batch together: every
 * one of them keeps a part of the rows that the model's caches have of a text (ls_parts). Batch n
 * is that of group n mod their number; the group's first rank has the say.
 *
 * Rank 0 goes through all batches in their order. Of one that another rank has computed it takes
 * the losses instead of computing them, and adds them up as its own. So every sum is that of one
 * process, to the last bit, on any number of ranks. The other ranks go through theirs alone; what
 * they add up themselves is of no use. Without ranks every batch is this process's own. */
#ifndef LS_EVAL_SHARED_H
#define LS_EVAL_SHARED_H

#include "base/status.h"
#include "ranks/ranks.h"
#include "tensor/engine/program.h"

typedef struct ls_shared {
    ls_ctx *ctx;
    ls_ranks *ranks; /* NULL: this process is alone */
    int together;    /* ranks that compute a batch */
    int owner;       /* the first of those that compute the batch that is gone through */
    double *values;  /* losses of that batch, in the order in which they are added up */
    size_t count, taken, room;
} ls_shared;

ls_shared ls_shared_of(ls_ctx *ctx, ls_ranks *ranks, int64_t context);
/* The part of this rank in what its group computes; the ls_shared must stay where it is. */
ls_parts ls_shared_parts(ls_shared *shared, int64_t context);
/* There is nothing to cut: each rank computes batches of its own. */
void ls_shared_part_ways(ls_shared *shared);
void ls_shared_clear(ls_shared *shared);
/* Begins a batch with at most so many values. *wanted: this rank goes through it. */
ls_status ls_shared_begin(ls_shared *shared, int64_t number, int64_t most, bool *wanted);
/* Whether it computes it too. */
bool ls_shared_computes(const ls_shared *shared);
/* Values as they are added up: kept for rank 0, or, where they were not computed here, filled
 * in. */
ls_status ls_shared_values(ls_shared *shared, double *values, int64_t count);
/* Those of a row's losses that have a target. */
ls_status ls_shared_losses(ls_shared *shared, const int32_t *targets, double *losses,
                           int64_t count);
/* Ends it: what was kept goes to rank 0. */
ls_status ls_shared_end(ls_shared *shared);

#endif
