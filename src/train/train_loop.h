/* The training loop's state, and what its files share: train.c (steps), train_batch.c (a batch's
 * gradient), train_resume.c (checkpoints). */
#ifndef LS_TRAIN_TRAIN_LOOP_H
#define LS_TRAIN_TRAIN_LOOP_H

#include "train/leaves.h"
#include "train/overlap.h"
#include "train/train.h"
#include "train/validation.h"

enum { LS_LOOP_PATH_BYTES = 4096, LS_LOOP_REJECTIONS = 1000 };

/* A rejected step, for rejected.json. */
typedef struct ls_rejection {
    int64_t step, batch;
    double loss, norm;
    ls_guard_verdict verdict;
} ls_rejection;

/* A whole batch in the caller's memory. */
typedef struct ls_batch_rows {
    int64_t number; /* -1: none yet */
    int32_t *inputs, *targets;
    int32_t *places; /* NULL: none are drawn */
    int32_t scale;   /* 0: none is drawn */
    bool *fresh;
    int64_t tokens, scored;
    bool wrong; /* a token is outside the vocabulary */
} ls_batch_rows;

/* What a rank has of sequences that are cut in parts (train_context.c). */
typedef struct ls_context {
    int64_t parts, length;        /* of a sequence; tokens of a part */
    int64_t low, high;            /* its own parts of a sequence: low .. high - 1 */
    int before, after;            /* ranks with the part before and the one after these; -1: none */
    int64_t count;                /* train.accumulate */
    ls_state **state, **gradient; /* [count] */
    ls_state **mark;              /* [count][high - low]: what its parts began with */
    int32_t *tokens, *targets;    /* of one part of one program's rows */
    uint8_t *packet;              /* room for a state on its way */
    size_t packet_bytes;
} ls_context;

/* Why a run should end before its last step. */
enum { LS_LOOP_STOP = 1, LS_LOOP_LATE = 2 };

typedef struct ls_loop {
    ls_ctx *ctx;
    const ls_train_job *job;
    const ls_train_settings *settings;
    ls_ranks *ranks;         /* NULL: alone */
    bool first;              /* alone, or rank 0: writes and reports */
    int64_t inputs, targets; /* of a row */
    ls_optimizer *optimizer;
    ls_leaves leaves;
    ls_overlap *overlap; /* NULL: sums over ranks follow the backward part */
    ls_context context;
    int64_t part, part_end; /* the parts of a batch that this rank computes */
    ls_guard guard;
    ls_schedule schedule;
    ls_metrics *metrics;
    ls_state **carried;       /* one for each of these parts; NULL where nothing is carried */
    ls_batch_rows rows[2];    /* this batch and the next, by the parity of their numbers */
    void *reals;              /* what goes in and out of one run: one for each target */
    ls_rejection *rejections; /* those in a row */
    char checkpoints[LS_LOOP_PATH_BYTES];
    uint64_t config_hash, rest_hash;
    /* where the run is: what a checkpoint stores */
    int64_t step, updates, batch, tokens;
    double seconds; /* up to this call */
    ls_best best;   /* by validation */
    /* since this call began */
    int64_t saved_step, rollbacks;
    double started, loss;
    double auxiliary; /* what is minimised beside the loss, of the last step */
    unsigned marks;   /* LS_LOOP_*: what the ranks agreed on in the last step */
    int64_t first_step;
    /* since the last line of the log */
    int64_t fresh_steps, fresh_tokens;
    double logged_at, logged_waits;
} ls_loop;

/* train_batch.c */
ls_status ls__loop_make_batches(ls_loop *loop);
void ls__loop_free_batches(ls_loop *loop);
/* Gradients and the mean loss of the whole batch. */
ls_status ls__loop_compute(ls_loop *loop, double *loss);
/* The weights of targets, of which each that is scored counts alike, into the program; and their
 * losses out of it, once it has run. */
void ls__loop_put_weights(ls_loop *loop, const int32_t *targets, double each);
ls_status ls__loop_take_losses(ls_loop *loop, const int32_t *targets, double each, ls_leaf *leaf);
/* LS_LOOP_*: what this process would do. */
unsigned ls__loop_marks(const ls_loop *loop);

/* train_context.c: of train.context > 1 */
ls_status ls__loop_make_context(ls_loop *loop);
void ls__loop_free_context(ls_loop *loop);
ls_status ls__loop_compute_cut(ls_loop *loop, ls_batch_rows *now, double each);

/* train_resume.c */
ls_status ls__loop_save(ls_loop *loop);
ls_status ls__loop_save_best(ls_loop *loop);
/* Takes the memory that a checkpoint takes beside the run. */
ls_status ls__loop_rehearse_save(ls_loop *loop);
/* The newest checkpoint, or with `all` false the one that a rollback goes to; over ranks also where
 * none is found: afterwards all have the same weights. */
ls_status ls__loop_load(ls_loop *loop, bool all, bool *found);
/* What a rollback goes back to are the checkpoints of the schedule alone, also the one of step 0:
 * one that was made because the run was stopped would make it another run. 0: it never does. */
int64_t ls__loop_rollback_schedule(const ls_loop *loop);

#endif
