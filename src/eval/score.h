/* Runs windows through a model and adds up their losses. */
#ifndef LS_EVAL_SCORE_H
#define LS_EVAL_SCORE_H

#include "eval/eval.h"
#include "train/objective.h"

typedef struct ls_scoring {
    ls_model *model;
    const ls_token_file *file;
    const int32_t *token_bytes;    /* [vocabulary] or NULL: bytes of text each token stands for */
    int64_t batch, chunk, context; /* as in the settings */
    const char *what;              /* for the hooks: the protocol */
    int64_t length;
    bool every; /* the loss of every scored token is wanted */
    ls_objective objective;
    int64_t mask_every; /* masked: tokens of which one is masked at once; 0: one of a window */
    ls_frame frame;     /* masked: stands around every window */
    const ls_eval_hooks *hooks;
} ls_scoring;

typedef struct ls_token_loss {
    int64_t at; /* the token's place in the file */
    double loss;
} ls_token_loss;

typedef struct ls_scores {
    double loss;           /* sum over all scored tokens, in nats */
    double window_means;   /* sum of the windows' mean losses */
    int64_t tokens, bytes; /* scored; bytes of text they stand for */
    double seconds;
    size_t memory;
    bool uncut;   /* eval.context had nothing to cut */
    size_t state; /* of one sequence, with room for a whole window; 0: nothing was streamed */
    ls_position_losses by_position;
    ls_token_loss *every; /* [tokens], by their places; NULL unless asked for */
} ls_scores;

/* Clear *out in any case. */
ls_status ls_score_windows(const ls_scoring *how, const ls_windows *windows, ls_scores *out);

/* The same for what is read whole; called by ls_score_windows. */
ls_status ls_score_whole(const ls_scoring *how, const ls_windows *windows, ls_scores *out);
/* Adds the losses of `count` tokens of a window from `first` on; only scored ones have a target. */
void ls_score_row(const ls_scoring *how, const ls_window *window, int64_t first, int64_t count,
                  const int32_t *targets, const double *loss, double *window_loss, ls_scores *out);

void ls_scores_clear(ls_ctx *ctx, ls_scores *scores);

/* How many sequences of a length go together, of `count`; batch as in the settings. Batches are
 * about equally full. */
int64_t ls_eval_batch(int64_t batch, int64_t length, int64_t count);
/* The lengths of the settings, whole and different. */
ls_status ls_eval_lengths(ls_ctx *ctx, const ls_eval_settings *settings, int64_t trained,
                          int64_t lengths[LS_OPTION_LIST_MAX], size_t *count);
/* LS_EUSE where a text cannot be cut over eval.context ranks, in a sentence; `whole`: the model
 * reads windows whole. */
ls_status ls_eval_check_context(ls_ctx *ctx, const ls_eval_settings *settings,
                                const ls_ranks *ranks, bool whole);
/* LS_ESTOP where the hooks' flag is set. */
ls_status ls_eval_check_stop(ls_ctx *ctx, const volatile sig_atomic_t *stop, int64_t length);
/* Bytes of a model's weights. */
size_t ls_eval_weight_bytes(const ls_model *model);

#endif
