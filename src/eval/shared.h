/* Batches of an evaluation that several ranks share: batch n is computed by rank n mod their number.
 *
 * Rank 0 goes through all batches in their order. Of one that another rank has computed it takes the
 * losses instead of computing them, and adds them up as its own. So every sum is that of one process,
 * to the last bit, on any number of ranks. The other ranks go through theirs alone; what they add up
 * themselves is of no use. Without ranks every batch is this process's own. */
#ifndef LS_EVAL_SHARED_H
#define LS_EVAL_SHARED_H

#include "base/status.h"
#include "ranks/ranks.h"

typedef struct ls_shared {
    ls_ctx *ctx;
    ls_ranks *ranks; /* NULL: this process is alone */
    int owner;       /* of the batch that is gone through */
    double *values;  /* losses of that batch, in the order in which they are added up */
    size_t count, taken, room;
} ls_shared;

ls_shared ls_shared_of(ls_ctx *ctx, ls_ranks *ranks);
void ls_shared_clear(ls_shared *shared);
/* Begins a batch with at most so many values. *wanted: this rank goes through it. */
ls_status ls_shared_begin(ls_shared *shared, int64_t number, int64_t most, bool *wanted);
/* Whether it computes it too. */
bool ls_shared_computes(const ls_shared *shared);
/* Values as they are added up: kept for rank 0, or, where they were not computed here, filled in. */
ls_status ls_shared_values(ls_shared *shared, double *values, int64_t count);
/* Those of a row's losses that have a target. */
ls_status ls_shared_losses(ls_shared *shared, const int32_t *targets, double *losses,
                           int64_t count);
/* Ends it: what was kept goes to rank 0. */
ls_status ls_shared_end(ls_shared *shared);

#endif
