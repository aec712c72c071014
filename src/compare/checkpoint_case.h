/* Cases of a file of expected values: what a public checkpoint was given, and the runs in which it
 * is given the same here. */
#ifndef LS_COMPARE_CHECKPOINT_CASE_H
#define LS_COMPARE_CHECKPOINT_CASE_H

#include "model/model.h"
#include "model/safetensors.h"

typedef struct ls_checkpoint_case {
    char name[32];   /* with its dot */
    int64_t B, T;    /* rows, and tokens of each that have logits */
    int64_t S;       /* tokens of a source; 0: none */
    int32_t *tokens; /* [B,T] */
    int32_t *mask;   /* [B,T]: 0 is padding */
    int32_t *source; /* [B,S], with its mask; NULL: none */
    int32_t *source_mask;
    int32_t *types;        /* [B,T] or NULL */
    int32_t *globals;      /* [B,T] or NULL: 1 is a global token */
    int32_t *labels;       /* [B,T] of case a, else NULL; -100: not counted */
    bool shifted;          /* the label of a token is that of the next column */
    int64_t counted;       /* labels that count */
    double *logits, *rows; /* [B,T,V], [B,T,D]; 0 where nothing was computed */
} ls_checkpoint_case;

/* The case whose ids are given; `what` names the file in messages. Clear it in any case. */
ls_status ls_checkpoint_case_read(ls_ctx *ctx, const ls_safetensors *file, const char *what,
                                  const ls_safetensor *ids, const ls_model_config *config,
                                  ls_checkpoint_case *out);
void ls_checkpoint_case_clear(ls_ctx *ctx, ls_checkpoint_case *about);
/* Whether a name in such a file means something. */
bool ls_checkpoint_case_knows(const char *name);

/* Rows that are computed together: all of a case where its padding comes last and the model takes
 * padding; else one alone, without its padding. */
typedef struct ls_checkpoint_run {
    int64_t rows, source, count; /* tokens are [rows, source + count] */
    int32_t *tokens, *targets;   /* targets [rows, count]; -1: not counted */
    int32_t *types;              /* [rows, count]; NULL: all 0 */
    int64_t *at;                 /* [rows, count]: where in the case, b T + t; -1: padding */
    int32_t *room;
} ls_checkpoint_run;

bool ls_checkpoint_case_together(const ls_checkpoint_case *about, const ls_model_config *config);
/* Row b, or with b = -1 all of them. */
ls_status ls_checkpoint_run_take(ls_ctx *ctx, const ls_checkpoint_case *about, int64_t b,
                                 ls_checkpoint_run *out);
void ls_checkpoint_run_clear(ls_ctx *ctx, ls_checkpoint_run *run);

#endif
