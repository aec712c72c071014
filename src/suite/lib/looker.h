/* What every head of a model attends to over one text, told by the engine as the text goes through:
 * no matrix of weights is held. */
#ifndef LS_SUITE_LIB_LOOKER_H
#define LS_SUITE_LIB_LOOKER_H

#include <signal.h>

#include "base/json.h"
#include "model/observe.h"

/* Scores of a head; the first four are of texts that repeat a period after their first token. */
typedef enum {
    LS_SCORE_PREFIX,      /* ls_head_prefix, summed */
    LS_SCORE_PREFIX_PAIR, /* and per pair */
    LS_SCORE_INDUCTION,   /* ls_head_stripe of the period less 1 */
    LS_SCORE_DUPLICATE,   /* of the period */
    LS_SCORE_PREVIOUS,    /* of 1 */
    LS_SCORE_FIRST,       /* ls_head_first_token */
    LS_SCORE_FIRST_FOUR,  /* the first four together, from the fifth query on */
    LS_SCORE_ENTROPY,     /* ls_head_entropy */
    LS_SCORE_RELATIVE_ENTROPY,
    LS_SCORE_DISTANCE, /* ls_head_distance */
    LS_SCORES,
} ls_head_score;
extern const char *const ls_head_score_names[LS_SCORES];

enum { LS_REPEATS = 4 };
typedef struct ls_looker_layer {
    const char *name; /* of what it keeps */
    int64_t number;   /* in the model */
} ls_looker_layer;
typedef struct ls_looker {
    ls_observer observer;
    int64_t period;        /* the text is a first token and LS_REPEATS times a period */
    int64_t layers, heads; /* that attend */
    ls_looker_layer *layer;
    double *kept, *losses; /* of a chunk */
} ls_looker;

/* For texts of 1 + LS_REPEATS period tokens. LS_EUSE where no layer has patterns. Clear *out in any
 * case. */
ls_status ls_looker_open(ls_model *model, int64_t period, int64_t chunk, ls_looker *out);
void ls_looker_clear(ls_looker *looker);
/* scores [layers][heads][LS_SCORES]; loss [tokens - 1]: of token i + 1. */
ls_status ls_looker_walk(ls_looker *looker, const int32_t *tokens,
                         const volatile sig_atomic_t *stop, double *scores, double *loss);
/* How much each head copies, from weights alone: scores [layers][heads] of `count` different
 * tokens; NAN where values do not go straight from the embedding to the logits. */
ls_status ls_looker_copying(const ls_looker *looker, const int32_t *tokens, int64_t count,
                            double *scores);

/* From the cells of the suite `heads`: takes those of the whole model into "model", and adds the
 * strongest head as the score, "changes" (heads whose scores at a longer length differ most from
 * those at the shortest) and "summary" (lines for people). */
ls_status ls_heads_finish(ls_ctx *ctx, json_t *results);

#endif
