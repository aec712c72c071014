/* Relative effective context length (arXiv 1901.02860, appendix C): how far back a model of a group
 * gains from context beyond what the best of the group makes of less. */
#ifndef LS_EVAL_RECL_H
#define LS_EVAL_RECL_H

#include "base/memory.h"

/* Losses of the same tokens by every model of a group at several lengths of context. */
typedef struct ls_recl_group {
    int64_t models, contexts, tokens;
    const int64_t *context; /* [contexts], rising */
    const double *loss;     /* [models, contexts, tokens], nats */
} ls_recl_group;

/* The largest context up to which each step to the next one gains at least `least`, relatively, on
 * the share of tokens that are hardest for the group with the shorter one: an index into
 * group->context for every model. gain [contexts - 1] of each model (may be NULL) are all steps'
 * gains, those after the end too. */
ls_status ls_recl(ls_ctx *ctx, const ls_recl_group *group, double share, double least,
                  int64_t *index, double *gain);

#endif
