/* What `longshot eval` measures: loss by protocol and length, loss by position, excess over the
 * flat tail, attention resolution. docs/protocols.md says what each number means.
 *
 * Texts go through the model in chunks with a carried state, so memory is that of the weights, the
 * states and one chunk, whatever the length. */
#ifndef LS_EVAL_EVAL_H
#define LS_EVAL_EVAL_H

#include <jansson.h>
#include <signal.h>

#include "data/token_file.h"
#include "eval/positions.h"
#include "eval/protocol.h"
#include "eval/resolution.h"
#include "model/model.h"
#include "ranks/ranks.h"

typedef struct ls_eval_settings {
    char protocol[LS_OPTION_TEXT_BYTES]; /* names, separated by commas */
    ls_ints lengths;                     /* empty: once, twice and four times the trained length */
    int64_t stride;                      /* of slide and winmean; 0: half the length */
    int64_t tokens;                      /* to score, about; 0: all */
    int documents;                       /* ls_eval_documents */
    int64_t room;                        /* documents have room for; 0: the largest length */
    int64_t lex_tokens;                  /* of each document, for lex; 0: the largest length */
    int64_t batch, chunk;                /* batch 0: as many as keep memory small */
    int64_t context;                     /* ranks over which a text is cut */
    int64_t mask_every;                  /* of masked models; 0: the window */
    bool positions, excess, resolution;
    int64_t resolution_tokens;
    int64_t samples, sample_tokens;    /* of a task, at each length */
    char losses[LS_OPTION_TEXT_BYTES]; /* file for the loss of every scored token; empty: none */
} ls_eval_settings;
extern const ls_option_table ls_eval_options; /* section "eval" */
/* What its conditions ask: whether a task is measured, or a corpus, and by which head. */
const ls_fact *ls_eval_facts(bool task, const ls_model_config *config);

typedef struct ls_eval_hooks {
    const volatile sig_atomic_t *stop; /* or NULL: not 0 ends the evaluation with LS_ESTOP */
    /* or NULL: what is being measured, and the share of it that is done, 0 to 1 */
    void (*progress)(void *user, const char *what, int64_t length, double share);
    void *user;
    ls_ranks *ranks; /* that share the work, or NULL; what rank 0 has measured is the result */
} ls_eval_hooks;

typedef struct ls_eval_row {
    char protocol[LS_PROTOCOL_NAME_BYTES];
    int64_t length; /* tokens of a window; of `stream`, of the longest stretch */
    int64_t stride; /* tokens from one window to the next */
    double loss;    /* nats per token, averaged as the protocol says */
    double perplexity;
    double token_loss;    /* every scored token counted once */
    double bits_per_byte; /* NAN where the tokenizer is not known */
    double flat, excess;  /* the flat tail's prediction of token_loss, and what lies above it */
    int64_t tokens;       /* scored; of winmean, once per window that scores them */
    int64_t windows, documents;
    bool judged;            /* a task: these three were measured */
    double accuracy, exact; /* share of answers that are right, of samples with no wrong one */
    double chance;          /* share that the most frequent answer would get right */
    double seconds, tokens_per_second;
    size_t bytes;                  /* weights, states, programs and workspaces */
    size_t state_bytes;            /* of one sequence of that length; 0: not known */
    bool uncut;                    /* eval.context had nothing to cut: ranks shared the windows */
    ls_position_buckets positions; /* empty unless asked for */
    int64_t *scored_at;            /* [tokens], rising: which tokens of the file were scored, */
    double *losses;                /* and the loss of each; NULL unless asked for */
} ls_eval_row;

typedef struct ls_eval_results {
    int64_t trained_length;
    char objective[128]; /* what is asked where it is not the next token; else empty */
    ls_eval_row *rows;   /* by protocol, then in the order of the lengths */
    size_t count;
    ls_resolution *resolutions; /* one per length where asked for */
    size_t resolution_count;
} ls_eval_results;

/* Measures a model on a file of test documents. `tokenizer` may be NULL: no bits per byte. LS_EUSE
 * for settings that do not fit, LS_EINPUT where no document is long enough, each in one sentence.
 * Clear *out in any case. */
ls_status ls_eval_run(ls_model *model, const ls_tokenizer *tokenizer, const ls_token_file *test,
                      const ls_eval_settings *settings, const ls_eval_hooks *hooks,
                      ls_eval_results *out);
void ls_eval_results_clear(ls_ctx *ctx, ls_eval_results *results);

/* {"trained_length", "results": [row, ...], "resolution": [...]}; a new reference, NULL where
 * memory is short. Numbers that are not finite or not known are null. */
json_t *ls_eval_results_json(const ls_eval_results *results);
/* The table for people. */
void ls_eval_results_print(ls_ctx *ctx, const ls_eval_results *results, ls_text *out);

/* The losses of all tokens as a file: PROTOCOL-LENGTH, and under PROTOCOL-LENGTH.at the tokens'
 * places in the file of test documents. */
ls_status ls_eval_losses_write(ls_ctx *ctx, const ls_eval_results *results, const char *path);

/* "nonoverlap,slide-512": a name for the file of an evaluation that tells its protocols and
 * stride from others'. */
void ls_eval_name(const ls_eval_settings *settings, char *out, size_t bytes);

#endif
