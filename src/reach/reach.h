/* How far a model reaches: what `longshot reach MODEL` measures within a time budget, the sentence
 * that it makes of that, and the page. docs/reach.md has the definitions.
 *
 * Everything is a job: one measurement of one variant of the model (as it is, or with a test-time
 * extension) at one length. reach.json keeps the plan and every job that is done, so the same
 * command goes on where another ended. ls_reach_open, _run, _clear. */
#ifndef LS_REACH_REACH_H
#define LS_REACH_REACH_H

#include "base/deadline.h"
#include "eval/evaluation.h"

typedef struct ls_reach_keys {
    char budget[LS_OPTION_TEXT_BYTES], out[LS_OPTION_TEXT_BYTES], lambada[LS_OPTION_TEXT_BYTES];
    int64_t tokens, times;
} ls_reach_keys;
extern const ls_option_table ls_reach_options; /* without a section */

/* Everything is borrowed. */
typedef struct ls_reach_request {
    const char *path;            /* a run, a public checkpoint's folder or file */
    const ls_settings *settings; /* section data */
    const ls_reach_keys *keys;
    const ls_dtype *type; /* NULL: as trained */
    const char *cache;
    uint64_t seed;
} ls_reach_request;

typedef struct ls_reach_hooks {
    const volatile sig_atomic_t *stop; /* or NULL */
    void (*progress)(void *user, const char *line);
    void *user;
} ls_reach_hooks;

typedef struct ls_reach {
    ls_ctx *ctx;
    ls_reach_request request;
    const ls_reach_hooks *hooks;
    ls_settings settings; /* of the variant that is open */
    ls_evaluation model;  /* likewise */
    int64_t variant;      /* -1: none is open */
    ls_dataset data;
    char folder[LS_TRAINED_PATH];
    double begun, budget; /* seconds */
    ls_deadline deadline;
    json_t *state; /* reach.json */
} ls_reach;

/* When measuring ends: the sentence and the page are made within the budget too. */
double ls_reach_end(const ls_reach *reach);
/* Opens the model and reads all settings; the caller then looks whether some were not used. Clear
 * *out in any case. */
ls_status ls_reach_open(ls_ctx *ctx, const ls_reach_request *request, ls_reach *out);
/* Measures until all is done or the budget is spent, and writes reach.json and reach.html. LS_ESTOP
 * where a signal came: both are written with what there is. */
ls_status ls_reach_run(ls_reach *reach, const ls_reach_hooks *hooks);
void ls_reach_clear(ls_reach *reach);

/* ---- inside ---- */

/* Loss above the flat tail, in nats per token, up to which a text is read usefully; the share of
 * questions that must be right at every depth. */
#define LS_REACH_EXCESS 0.1
#define LS_REACH_FOUND 0.5

typedef enum {
    LS_REACH_PERPLEXITY,
    LS_REACH_NEEDLE,
    LS_REACH_MIDDLE,
    LS_REACH_RESOLUTION,
    LS_REACH_HEADS,
    LS_REACH_LAMBADA,
} ls_reach_kind;
typedef struct ls_reach_job {
    ls_reach_kind kind;
    int64_t variant;
    int64_t size;  /* tokens; of middle: pairs; of lambada: passages */
    int64_t round; /* of needle, middle and heads, from 1 */
} ls_reach_job;

/* Whether the model ends where its learned positions do. */
bool ls_reach_bounded(const ls_reach *reach);
/* The plan, made once from the measured speed (reach.json's "plan" and "variants"). */
ls_status ls_reach_plan(ls_reach *reach);
/* Jobs in the order of their use. `late`: those that follow from what the others gave. A new list
 * of *count jobs (ls_free). */
ls_status ls_reach_jobs(ls_reach *reach, bool late, ls_reach_job **jobs, size_t *count);
void ls_reach_job_id(const ls_reach *reach, const ls_reach_job *job, char *out, size_t bytes);
enum { LS_REACH_PASSAGE = 90 }; /* tokens of a passage of LAMBADA, about */
/* Opens a variant's model, unless it is open. */
ls_status ls_reach_use(ls_reach *reach, int64_t variant);
/* All of them whose turn comes in time; the others are noted in "left_out". */
ls_status ls_reach_turns(ls_reach *reach, bool late);
/* Writes reach.json, and the page. */
ls_status ls_reach_save(ls_reach *reach, bool page);
/* Asked to end, other than by the clock. */
bool ls_reach_stopped(const ls_reach *reach);
/* Does one. *result is a new reference. LS_EUSE: it does not apply to this model. */
ls_status ls_reach_do(ls_reach *reach, const ls_reach_job *job, json_t **result);
ls_status ls_reach_resolution(ls_reach *reach, int64_t length, json_t **result);
/* tokens 0: as planned. */
ls_status ls_reach_perplexity(ls_reach *reach, int64_t length, int64_t tokens, json_t **result);

/* What was read from `path`: every number in its range, for a model of that trained length. */
ls_status ls_reach_check(ls_ctx *ctx, const char *path, const json_t *state, int64_t trained);
/* Where a cell's like stands in a list of `end` cells, told by the numbers under these keys: its
 * place, or `end`, which is then its own. `places` is an object, empty at first. False: no memory. */
bool ls_reach_place(json_t *places, const json_t *cell, const char *const *keys, size_t count,
                    size_t end, size_t *place);

/* Members of state: */
int64_t ls_reach_planned(const ls_reach *reach, const char *key);
const char *ls_reach_variant(const ls_reach *reach, int64_t variant); /* its name; NULL: no more */
const json_t *ls_reach_result(const json_t *state, const char *id);   /* NULL: not done, refused */
/* Rounds together: {"cells": ..., "chance", "trained_length"}, or NULL where there are none; a new
 * reference. */
json_t *ls_reach_rounds(const json_t *state, const char *kind, const char *variant);
/* All heads that were looked at, at all lengths, as the suite's results are; NULL: none. A new
 * reference. */
json_t *ls_reach_heads(ls_ctx *ctx, const json_t *state);
/* "finding" and "sentence" of the state, from its jobs. */
ls_status ls_reach_find(ls_ctx *ctx, json_t *state);
/* The loss above that of a flat tail of the model as it is; NAN: not known. */
double ls_reach_excess(const json_t *state, const char *variant, int64_t length);
/* Sections of the page; nothing where it was not measured. */
void ls_reach_page_heads(ls_ctx *ctx, const json_t *state, ls_text *out);
void ls_reach_page_lambada(ls_ctx *ctx, const json_t *state, ls_text *out);
void ls_reach_page(ls_ctx *ctx, const json_t *state, ls_text *out);

#endif
