/* The loss on documents that are kept for validation: the same windows each time, forward alone,
 * without dropout and label smoothing, each window from an empty state. */
#ifndef LS_TRAIN_VALIDATION_H
#define LS_TRAIN_VALIDATION_H

#include "train/train.h"

/* The program and source are borrowed. */
typedef struct ls_validation {
    ls_ctx *ctx;
    ls_program *program; /* inputs tokens and targets, keeps loss; of one part of the rows */
    ls_train_source source;
    int64_t rows;              /* to score: the first so many of the source */
    int64_t batch;             /* rows at once */
    int32_t *inputs, *targets; /* [batch, ...] */
    bool *fresh;
    void *losses;
    int64_t parts; /* in which rows are computed, one after another; with more than one: */
    ls_state *state;
    int32_t *cut[2]; /* one part of the inputs, and of the targets */
} ls_validation;

/* `source` has the shapes of its rows settled. Clear *out in any case. */
ls_status ls_validation_init(ls_ctx *ctx, ls_program *program, const ls_train_source *source,
                             int64_t rows, int64_t parts, ls_validation *out);
/* Mean loss of the scored tokens; may be not finite. Makes no allocation. LS_EINPUT where a token
 * is outside the vocabulary, nothing is scored, or the data were changed. */
ls_status ls_validation_measure(ls_validation *validation, double *loss);
void ls_validation_clear(ls_validation *validation);

/* How far a run has come: what the state of a checkpoint keeps. */
typedef struct ls_best {
    int64_t step; /* of the least loss; 0: none was measured */
    double loss;
    int64_t stale; /* measurements since */
} ls_best;
/* Takes a new measurement in; true where it is the best so far. */
bool ls_best_take(ls_best *best, int64_t step, double loss);
json_t *ls_best_save(const ls_best *best); /* a new reference, or NULL */
/* Of a run at `step`; LS_EINPUT for numbers that cannot be. */
ls_status ls_best_load(ls_ctx *ctx, const json_t *json, const char *what, int64_t step,
                       ls_best *out);

#endif
