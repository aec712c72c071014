/* A training from a recipe: its settings resolved and checked, then a run folder made or continued.
 * ls_training_read, ls_training_run, ls_training_clear. */
#ifndef LS_TRAIN_TRAINING_H
#define LS_TRAIN_TRAINING_H

#include <jansson.h>

#include "train/run_folder.h"

/* Everything is borrowed. */
typedef struct ls_training_request {
    /* Sections model, mixer, position, data or task, train. What they leave open is put into them;
     * what is read is marked as used. */
    ls_settings *settings;
    const char *folder; /* of the run; empty: runs/MIXER-POSITION, after the task if there is one */
    const char *cache;  /* of token files and tokenizers: see ls_data_open */
    int64_t seed;       /* where train.seed is not given */
    bool resolved;      /* the settings are those that a run has settled */
    const char *paths;  /* the folder whose paths they have (ls_path_find); NULL: that of the run */
    bool rough;         /* for costs alone: train.from need not be there yet */
    ls_ranks *ranks;    /* or NULL: alone. See ls_train_job */
} ls_training_request;

typedef struct ls_training {
    ls_ctx *ctx;
    ls_settings *given; /* borrowed from the request */
    ls_ranks *ranks;    /* likewise */
    const char *cache;
    char folder[LS_OPTION_TEXT_BYTES];
    const char *paths; /* see the request */
    bool resolved;     /* the settings are those of the run in it */
    ls_run_settings settings;
    int64_t extended_from; /* the length that extensions measure against: of the model that training
                              goes on from; 0: the model's own */
    /* opened by ls_training_run */
    ls_dataset data;
    ls_loader *loader, *validation;    /* of a corpus */
    ls_task_batches batches, held_out; /* of a task */
    ls_model *model;
    ls_text config; /* config.yaml */
    int lock;       /* of the folder; -1: none */
} ls_training;

typedef struct ls_training_hooks {
    const volatile sig_atomic_t *stop;                   /* or NULL: see ls_train_job */
    void (*step)(void *user, const ls_train_step *step); /* or NULL */
    void (*progress)(void *user, const ls_metrics_row *row, const char *line); /* or NULL */
    void *user;
    bool trial;  /* a few steps are timed, see ls_train_job; the folder is not touched */
    double peak; /* of the machine in the type that is trained in, see ls_train_job; 0: measured */
} ls_training_hooks;

/* Refuses extensions of a training that begins without weights, where they act on trained ones. */
ls_status ls_training_check_extensions(ls_ctx *ctx, const ls_settings *given,
                                       const ls_position *position);

/* Reads and checks all settings before any data are touched; the caller then looks whether some
 * were not used (ls_settings_finish). Clear *out in any case. */
ls_status ls_training_read(ls_ctx *ctx, const ls_training_request *request, ls_training *out);
/* Trains to the end, or goes on with the run in the folder: see ls_train_run for what comes back.
 * LS_EUSE where another process is at work there. In a rehearsal (ls_ctx) the folder is not
 * touched; `config` then says what it would hold. */
ls_status ls_training_run(ls_training *training, const ls_training_hooks *hooks,
                          ls_train_result *result);
/* What a training gave, for machines: a new reference, NULL where memory is short. */
json_t *ls_training_json(const ls_training *training, const ls_train_result *result);
void ls_training_clear(ls_training *training);

/* What a training would take: counted, with memory that costs nothing and programs that do not
 * compute. */
typedef struct ls_training_cost {
    int64_t parameters, trained, tokens;
    int64_t layers_fp8, layers; /* as in ls_train_result */
    int64_t leaves;             /* as many ranks can share it, or a power of two below */
    size_t bytes; /* at most at one time; of one of the request's ranks, which may be imagined */
} ls_training_cost;
ls_status ls_training_rehearse(ls_ctx *ctx, const ls_training_request *request,
                               ls_training_cost *out);

/* The same of one process, and what each of 2, 4, ... ranks would take where the batch has leaves
 * for them. */
enum { LS_RANKS_SAID = 10 };
typedef struct ls_training_forecast {
    ls_training_cost alone;
    int counts; /* of ranks that were tried: 2, 4, ... */
    size_t bytes[LS_RANKS_SAID];
    uint64_t sent[LS_RANKS_SAID]; /* by rank 0 in a step */
} ls_training_forecast;
ls_status ls_training_foresee(ls_ctx *ctx, const ls_training_request *request,
                              ls_training_forecast *out);

#endif
