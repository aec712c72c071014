/* Heads: what ends a model, from the rows of its last layer to logits and losses. One file is one
 * of them: src/model/head/NAME.c defines ls_head_NAME; the build finds it by its name, and the
 * settings decide which one serves a model. */
#ifndef LS_MODEL_HEAD_H
#define LS_MODEL_HEAD_H

#include "model/model.h"

/* What a head reads. */
typedef struct ls_head_input {
    ls_tensor *x;         /* rows [B,T,D], or those that were picked */
    ls_tensor *valid;     /* u8 [B,T]: 0 for rows that are padding; NULL: none is */
    ls_tensor *embedding; /* [V,D]; NULL where the head embeds tokens itself */
} ls_head_input;

/* The last product: logits = x weight^T + bias. */
typedef struct ls_output {
    ls_tensor *x, *weight, *bias;
} ls_output;

typedef struct ls_head_type {
    const char *name, *summary, *paper;
    int64_t sequences; /* of an example: one, or the two of a pair */
    bool classes;      /* an example has one answer, a class; else each token has one */
    bool padded;       /* sequences may end with padding */
    bool rows_alone;   /* nothing is predicted: there is no output, no loss and no logits */
    /* Whether a model has this one: of all types exactly one says so. */
    bool (*serves)(const ls_model_settings *about);
    /* Refuses settings of its own that cannot be, or that nobody would read (one sentence); asked
     * whether it serves or not. May be NULL. */
    ls_status (*check)(ls_ctx *ctx, const ls_model_settings *about);
    /* The same when parameters are to be made: nothing may be left open then. */
    ls_status (*complete)(ls_ctx *ctx, const ls_model_settings *about);
    /* tokens [B,T] -> rows [B,T,D], where the head embeds tokens; NULL: one table does. */
    ls_tensor *(*embed)(ls_program *p, const ls_model_settings *about, ls_tensor *tokens);
    /* What the last product is made of. */
    ls_output (*output)(ls_program *p, const ls_model_settings *about, const ls_head_input *in);
    /* In place of a product's: logits, which have no gradient, and losses of out.x. Both NULL, or
     * neither. */
    ls_tensor *(*logits)(ls_program *p, const ls_model_settings *about, ls_output out);
    ls_tensor *(*loss)(ls_program *p, const ls_model_settings *about, ls_output out,
                       ls_tensor *targets, ls_tensor *weights, double smoothing);
} ls_head_type;

extern const ls_head_type *const ls_head_types[];
extern const size_t ls_head_count;

/* The one that serves a model. */
const ls_head_type *ls_head_of(const ls_model_settings *about);
/* Logits and, as ls_linear_cross_entropy has them, losses of what a head made. */
ls_tensor *ls_head_logits(ls_program *p, const ls_model_settings *about, ls_output out);
ls_tensor *ls_head_loss(ls_program *p, const ls_model_settings *about, ls_output out,
                        ls_tensor *targets, ls_tensor *weights, double smoothing);

/* ---- for heads with classes ---- */

/* One row of each sequence, as model.pool says. */
ls_tensor *ls_head_pool(ls_program *p, const ls_model_settings *about, const ls_head_input *in);
/* The product that makes logits of classes from such rows. */
ls_output ls_head_classes(ls_program *p, const ls_model_settings *about, ls_tensor *x);
ls_status ls_head_classes_check(ls_ctx *ctx, const ls_model_settings *about);
ls_status ls_head_classes_complete(ls_ctx *ctx, const ls_model_settings *about);

#endif
