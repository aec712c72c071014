/* Requests computed together: sequences join and leave as they come and go, and each has the bits
 * that it would have alone.
 *
 * A prompt is cut at multiples of `chunk` tokens from its start, and what is left over into powers
 * of two: a rule that knows nothing of its neighbours. Prompts that begin alike share what was
 * computed (prefix.h). After its prompt a sequence goes a token further in each turn, together with
 * all others and with the short pieces of prompts (ls_streams_feed). One thread owns a batch and
 * all jobs in it. */
#ifndef LS_SERVE_BATCH_H
#define LS_SERVE_BATCH_H

#include <stdatomic.h>

#include "serve/prefix.h"
#include "serve/request.h"
#include "train/trained.h"

typedef enum { LS_FINISH_NONE, LS_FINISH_STOP, LS_FINISH_LENGTH } ls_finish;

/* One continuation of one prompt. */
typedef struct ls_choice {
    struct ls_job *job;
    const ls_ids *prompt;
    int64_t number; /* in the answer */
    int64_t draw;   /* among those of its prompt */
    ls_stream *stream;
    int64_t fed; /* tokens of the prompt */
    int64_t reused;
    ls_scored scored; /* prompt tokens where they are echoed, then made ones */
    ls_ids made;      /* with the one that ended it, if one did */
    int64_t shown;    /* made tokens that are in the text */
    ls_text text;     /* bytes of what was made, up to a stop */
    ls_finish finish;
} ls_choice;

typedef struct ls_job {
    ls_request request;
    ls_choice *choice; /* [prompts * n] */
    size_t choices;
    size_t begun, ended; /* of its choices; those of one prompt begin after the first is read */
    /* What the first choice of each prompt left for the others, where n > 1. */
    struct ls_job_prompt {
        ls_stream *stream;
        double *last; /* logits */
        ls_scored scored;
    } * read;
    atomic_bool cancelled; /* set by any thread: it ends at the next turn */
    double deadline;       /* ls_clock */
    ls_status status;
    char why[512]; /* where it failed */
    /* Called in the batch's thread: a choice has a token more, or has ended. NULL: nobody asks. */
    void (*progress)(struct ls_job *job, const ls_choice *choice);
    void (*done)(struct ls_job *job);
    void *user;
    struct ls_job *next;
} ls_job;

/* Takes over the request. */
ls_status ls_job_new(ls_ctx *ctx, ls_request *request, ls_job **out);
void ls_job_free(ls_ctx *ctx, ls_job *job);

enum { LS_BATCH_SEQUENCES = 256 };
typedef struct ls_batch_options {
    int64_t sequences; /* computed at once, 1 to LS_BATCH_SEQUENCES */
    int64_t context;   /* tokens of a sequence */
    int64_t chunk;     /* tokens of a prompt computed at once */
    size_t prefix_bytes;
} ls_batch_options;

/* What was done so far; written by the batch's thread alone. */
typedef struct ls_batch_counts {
    int64_t prompt_tokens, reused_tokens, made_tokens, steps, stepped;
    int64_t active;
    size_t prefix_bytes;
    int64_t prefixes;
} ls_batch_counts;

typedef struct ls_batch ls_batch;
ls_status ls_batch_new(ls_trained *trained, const ls_batch_options *options, ls_batch **out);
void ls_batch_free(ls_batch *batch);
bool ls_batch_is_empty(const ls_batch *batch);
/* Whether another job may be added now. */
bool ls_batch_has_room(const ls_batch *batch);
/* Jobs stay the caller's; `done` is called once for each. */
void ls_batch_add(ls_batch *batch, ls_job *job);
/* A chunk of every prompt that is being read and a token of every sequence that is written; false
 * where there was nothing to do. */
bool ls_batch_turn(ls_batch *batch);
ls_batch_counts ls_batch_counted(const ls_batch *batch);

#endif
