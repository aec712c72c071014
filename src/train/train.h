/* The training loop: batches, gradients, the guard, updates, metrics, checkpoints; and all of it
 * again from where it stopped.
 *
 * A run is a pure function of its settings, data and starting weights: cut by any signal, limit or
 * crash and continued, also with another number of threads, it ends with the same bytes. */
#ifndef LS_TRAIN_TRAIN_H
#define LS_TRAIN_TRAIN_H

#include <signal.h>

#include "base/option.h"
#include "data/loader.h"
#include "model/model.h"
#include "ranks/ranks.h"
#include "task/task.h"
#include "tensor/engine/program.h"
#include "train/guard.h"
#include "train/metrics.h"
#include "train/optimizer.h"
#include "train/schedule.h"

typedef struct ls_train_settings {
    int64_t steps, batch, length, accumulate, shards, context, carry, seed;
    char from[LS_OPTION_TEXT_BYTES]; /* for the caller, who loads them; empty: weights are drawn */
    bool from_part;                  /* likewise */
    int64_t lora_rank;               /* see ls_train_adapter */
    double lora_alpha, lora_dropout;
    bool lora_rs, lora_embeddings, lora_norms;
    char lora_targets[LS_OPTION_TEXT_BYTES];
    int dtype;  /* see ls_train_dtype */
    int matmul; /* ls_train_matmul */
    bool recompute;
    double label_smoothing;
    double lr, state_lr, beta1, beta2, eps, weight_decay, clip;
    int decay;    /* 0: of weights, 1: of all */
    int schedule; /* ls_schedule_kind */
    double min_lr, power, decay_share;
    int64_t warmup;
    int guard; /* ls_guard_policy */
    int64_t guard_window, guard_rejections;
    double guard_spread, guard_norm_spread, guard_lower;
    int64_t checkpoint_every, keep, log_every;
    int64_t validate_every, validate_tokens, patience;
    int select; /* ls_train_select */
    double max_minutes;
} ls_train_settings;
typedef enum { LS_TRAIN_MATMUL_EXACT, LS_TRAIN_MATMUL_TF32 } ls_train_matmul;
typedef enum { LS_TRAIN_SELECT_BEST, LS_TRAIN_SELECT_LAST } ls_train_select;
extern const ls_option_table ls_train_options; /* section "train" */

/* Parts in which a batch is computed: leaves (ls_leaves), each in train.accumulate of them. */
int64_t ls_train_parts(const ls_train_settings *settings);
ls_dtype ls_train_dtype(const ls_train_settings *settings); /* of fp8: bf16, and */
bool ls_train_fp8(const ls_train_settings *settings);
ls_schedule ls_train_schedule(const ls_train_settings *settings);
ls_guard_settings ls_train_guard(const ls_train_settings *settings);
ls_adapter ls_train_adapter(const ls_train_settings *settings); /* rank 0: none */
ls_optimizer_settings ls_train_optimizer(const ls_train_settings *settings);

/* Where batches come from: a pure function of the batch's number. Fills `rows` rows of the batch
 * from row `row` on: inputs and targets (-1: not scored), and fresh[i]: row i does not continue
 * the same row of the batch before. A row may have another number of inputs than of targets. */
typedef struct ls_train_source {
    const void *user;
    void (*rows)(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                 int32_t *targets, bool *fresh);
    /* or NULL: what is wrong with the data, asked after each batch */
    ls_status (*status)(ls_ctx *ctx, const void *user);
    uint64_t identity;       /* of the data and their order: a run that goes on compares it */
    uint64_t records;        /* of all samples that come from files, likewise; 0: none do */
    int64_t vocabulary;      /* inputs must be below it */
    int64_t answers;         /* targets must be below it; 0: the vocabulary */
    int64_t inputs, targets; /* of a row; 0: the settings' length */
    int64_t source;          /* inputs of a row that come first, for an encoder; 0: none */
    int64_t untrained;       /* targets at the start of each row that count as not scored */
    bool padded;             /* inputs may be -1: they are no tokens */
    bool resets;             /* rows become fresh each for itself, not all at one batch */
} ls_train_source;
/* Borrows the loader; `vocabulary` is the model's. */
ls_train_source ls_train_source_of(const ls_loader *loader, int64_t vocabulary);
/* Batches of a task's samples; borrows them. LS_EUSE where the length does not suit the task. */
typedef struct ls_task_batches {
    const ls_task *task;
    int64_t batch, length;
    uint64_t seed;
    bool held_out;  /* samples of the test's kind in place of training's */
    int threads;    /* that make samples at once; 0: one */
    int32_t *whole; /* [batch, 2, length] to work in where samples are cut into a source and the
                       rest (ls_task_cut); NULL: they are not */
    uint8_t *kept;  /* ls_task_kept_bytes, all zero, to keep training samples in; NULL: they are
                       made each time */
} ls_task_batches;
/* What keeping takes: 0 where samples are cheap, do not come again, or would be too many. */
size_t ls_task_kept_bytes(const ls_task_batches *from);
ls_status ls_train_source_of_task(ls_ctx *ctx, const ls_task_batches *from, int64_t vocabulary,
                                  ls_train_source *out);

typedef enum {
    LS_TRAIN_BEFORE_RUN,   /* the batch is there, nothing is computed */
    LS_TRAIN_BEFORE_JUDGE, /* loss and gradient are there, the guard has not seen them */
} ls_train_point;

/* What one step gave. */
typedef struct ls_train_step {
    int64_t step, steps; /* done so far, rejected ones too; of all */
    int64_t tokens;      /* read so far */
    double loss, rate, norm;
    bool accepted; /* the weights were updated */
} ls_train_step;

/* Everything is borrowed. */
typedef struct ls_train_job {
    const char *folder; /* of the run; made where it is missing */
    const char *config; /* the resolved settings as YAML: config.yaml, and the run's identity */
    const ls_train_settings *settings;
    /* Finished, with gradients: inputs tokens, targets (i32) and weights, keeps loss; batch /
     * ls_train_parts rows of the source's inputs, and thrice of its targets. Where it streams,
     * state is carried from batch to batch; with options.resets each row's for itself. */
    ls_program *program;
    /* train.context > 1: `program` is then of one part of the sequences, gradients pass through its
     * state, and this is its forward part alone; else NULL */
    ls_program *forward;
    ls_parameters *store; /* the program's */
    /* or NULL: ls_train_run makes it. It may cut the store's masters over ranks: programs are
     * recorded afterwards. */
    struct ls_optimizer *optimizer;
    ls_train_source source;
    /* or NULL: draws where tokens stand, for the program's input places [rows, inputs] */
    const ls_position *drawn;
    int64_t model_length; /* for it */
    /* What is scored every settings.validate_every steps. Of ls_train_model a loader, of
     * ls_train_model_on a source with so many rows (0: none), of ls_train_run what they make of
     * it. */
    const ls_loader *validation_loader;
    ls_train_source validation_source;
    int64_t validation_rows;
    struct ls_validation *validation;
    /* or NULL: alone. Each computes some leaves of every batch; rank 0 alone writes, reads the
     * folder and reports. */
    ls_ranks *ranks;
    const volatile sig_atomic_t *stop; /* or NULL: once it is not 0, the run ends after this step */
    bool trial;  /* a few steps are timed, and nothing is written: ls_train_result.step_seconds */
    double peak; /* floating-point operations per second this machine can do; 0: not known */
    void (*step)(void *user, const ls_train_step *step); /* or NULL: after every step */
    /* or NULL: with every row of metrics (train.log_every), as a line for people too */
    void (*progress)(void *user, const ls_metrics_row *row, const char *line);
    /* Tests plant faults here (one may also write to the store); NULL otherwise. */
    void (*fault)(void *user, ls_train_point point, int64_t step, double *loss,
                  ls_parameters *store);
    void *user;
} ls_train_job;

typedef struct ls_train_result {
    int64_t resumed; /* the step this call began at */
    int64_t step, tokens, rejected;
    double loss;       /* of the last step */
    int64_t best_step; /* of the lowest validation loss; 0: none was measured */
    double best_loss;
    bool ended_early; /* train.patience */
    double step_operations;
    int64_t layers_fp8, layers; /* of train.dtype=fp8: linear layers in fp8, and all; else 0 */
    double step_seconds;        /* of a trial */
} ls_train_result;

/* Runs to the end, or continues a run to its end. LS_OK: all steps are done and in a checkpoint, or
 * those that train.patience allows.
 * LS_ESTOP: stopped by the flag or by max_minutes after a checkpoint; call again to go on. LS_EUSE:
 * the folder is that of other settings. LS_EINPUT: the guard ended the run (rejected.json names the
 * batches) or rejected its last steps, no checkpoint is whole, a token is outside the vocabulary,
 * or the data were changed meanwhile. LS_EIO: the disk; the last good checkpoint stands. The step
 * loop makes no allocation outside checkpoints. In a rehearsal (ls_ctx) all memory is taken and one
 * batch made; nothing is computed or written. */
ls_status ls_train_run(ls_ctx *ctx, const ls_train_job *job, ls_train_result *result);

/* The same for a model (made in ls_train_dtype; it gets gradients): records the program, whose peak
 * bytes it says (ls_say), and fills job's program, store and what the model decides about the
 * source (see ls_model_example: a row is an example); all else of `job` is the caller's. */
ls_status ls_train_model_on(ls_ctx *ctx, ls_model *model, const ls_train_job *job,
                            ls_train_result *result);
/* The same for a language model and a loader of the settings' batch and length, which becomes the
 * job's source. */
ls_status ls_train_model(ls_ctx *ctx, ls_model *model, const ls_loader *loader,
                         const ls_train_job *job, ls_train_result *result);

#endif
