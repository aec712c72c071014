/* Loss by position in the window: exact sums, the flat tail, and buckets to show. */
#ifndef LS_EVAL_POSITIONS_H
#define LS_EVAL_POSITIONS_H

#include "base/memory.h"

/* Position p of a window is the prediction made from its tokens 0..p. */
typedef struct ls_position_losses {
    int64_t length;
    double *sum;    /* [length] of losses, in nats */
    int64_t *count; /* [length] of scored tokens */
} ls_position_losses;
ls_status ls_position_losses_init(ls_ctx *ctx, int64_t length, ls_position_losses *out);
void ls_position_losses_clear(ls_ctx *ctx, ls_position_losses *losses);

/* What the mean loss over the tokens scored in `at` would be if each position below the trained
 * length had its mean loss of `reference` (measured at the trained length), and each from there on
 * the mean loss of the reference's positions trained / 2 .. trained - 1. */
double ls_flat_tail(const ls_position_losses *at, const ls_position_losses *reference,
                    int64_t trained);

typedef struct ls_position_bucket {
    int64_t first, end; /* positions [first, end) */
    int64_t tokens;     /* scored there; buckets without any are left out */
    double loss;        /* their mean, in nats */
} ls_position_bucket;
typedef struct ls_position_buckets {
    ls_position_bucket *at;
    size_t count;
} ls_position_buckets;
/* Positions below 64 stand alone; then each doubling of the position has eight buckets. */
ls_status ls_position_buckets_of(ls_ctx *ctx, const ls_position_losses *losses,
                                 ls_position_buckets *out);

#endif
