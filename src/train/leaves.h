/* A batch in leaves: train.shards parts of it, times train.context parts of their sequences, whose
 * gradients and losses are added up along one
 * binary tree, ((0 + 1) + (2 + 3)) + ... The tree is the same however many ranks share the leaves,
 * so their number does not change a bit. Ranks have neighbouring leaves, as many each: the lower
 * levels of the tree are summed within a rank, here, the upper ones by ls_optimizer_reduce. */
#ifndef LS_TRAIN_LEAVES_H
#define LS_TRAIN_LEAVES_H

#include "ranks/ranks.h"
#include "tensor/engine/parameter.h"

enum { LS_LEAVES_LEVELS = 12, LS_LEAVES_MAX = 1 << LS_LEAVES_LEVELS };

/* What is known of a leaf beside its gradient. */
typedef struct ls_leaf {
    double loss, auxiliary;
} ls_leaf;

typedef struct ls_leaves {
    ls_parameters *store;            /* borrowed */
    ls_ranks *ranks;                 /* borrowed; NULL: alone */
    int64_t count;                   /* of the batch: a power of two */
    int64_t first, own;              /* this rank's */
    void *waiting[LS_LEAVES_LEVELS]; /* sums of 2^k leaves that wait for the next 2^k */
    double *table;  /* [ranks][2 own + 1]: loss and auxiliary of each leaf, and the rank's mark */
    ls_leaf *sums;  /* [count] */
    bool in_ranges; /* of the last leaf ls_leaves_sum makes the sums: ls_leaves_add does not */
} ls_leaves;

/* LS_EUSE where the ranks cannot share so many leaves evenly. */
ls_status ls_leaves_check(ls_ctx *ctx, int64_t shards, int64_t context, const ls_ranks *ranks);
/* Clear *out in any case. */
ls_status ls_leaves_init(ls_ctx *ctx, ls_parameters *store, int64_t shards, int64_t context,
                         ls_ranks *ranks, ls_leaves *out);
void ls_leaves_clear(ls_ctx *ctx, ls_leaves *leaves);
/* The gradient of the i-th of this rank's leaves is in the store, which began with zeros. After the
 * last one the store has the sum of all of them; before, it is zero again. */
void ls_leaves_add(ls_ctx *ctx, ls_leaves *leaves, int64_t i, ls_leaf leaf);
/* A part of the sums that follow this rank's last leaf: of the gradient's elements from `first`
 * on. */
void ls_leaves_sum(ls_ctx *ctx, const ls_leaves *leaves, int64_t first, int64_t count);
/* The whole batch's loss and auxiliary loss, on all ranks; *marks has the bits that any rank set in
 * its own. */
ls_status ls_leaves_total(ls_ctx *ctx, ls_leaves *leaves, unsigned mark, ls_leaf *total,
                          unsigned *marks);

#endif
