/* What a model makes of token sequences: log-likelihoods of what follows, and what it would say
 * itself. Contexts that several sequences share are computed once, and the stream goes back to
 * where they end. */
#ifndef LS_SUITE_LIB_SCORER_H
#define LS_SUITE_LIB_SCORER_H

#include "suite/suite.h"

typedef struct ls_scorer {
    ls_model *model;
    int64_t batch, chunk; /* 0: chosen here */
    bool share;           /* contexts are computed once, not for each item */
    const volatile sig_atomic_t *stop;
    int64_t tokens; /* fed so far */
    double *logits;
    size_t logits_room;
} ls_scorer;

typedef struct ls_likelihood {
    double logprob; /* sum over the tokens, in nats */
    bool greedy;    /* each token is the likeliest in its place */
    bool last_greedy;
} ls_likelihood;

/* Of one item; [candidate_count] each, with and without the evidence; or what was generated. */
typedef struct ls_item_score {
    ls_likelihood *with, *without; /* in the group's pool; `without` NULL: there is no contrast */
    ls_ids generated;
} ls_item_score;

/* All items of a group; scores are [item_count], zeroed. */
ls_status ls_score_group(ls_scorer *scorer, const ls_tokenizer *tokenizer, ls_suite_group *group,
                         ls_item_score *scores);
/* Groups of one item with one candidate each, in one batch; scores are [count]. */
ls_status ls_score_batch(ls_scorer *scorer, ls_suite_group *groups, int64_t count,
                         ls_likelihood *scores);
/* How many such sequences go together. */
int64_t ls_scorer_batch(const ls_scorer *scorer, int64_t length);
/* LS_ESTOP where the run was asked to stop. */
ls_status ls_scorer_check_stop(const ls_scorer *scorer);
void ls_scorer_clear(ls_scorer *scorer);

#endif
