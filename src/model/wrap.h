/* Wraps: what is around a stack of layers, from a model's tokens to the rows that its head reads.
 * One file is one of them: src/model/wrap/NAME.c defines ls_wrap_NAME; the build finds it by its
 * name, and the settings decide which one serves a model. */
#ifndef LS_MODEL_WRAP_H
#define LS_MODEL_WRAP_H

#include "model/model.h"

typedef struct ls_wrap_type {
    const char *name, *summary, *paper;
    bool reads_source; /* tokens come behind those of a source, see ls_recording */
    /* Whether a model has this one: of all types exactly one says so. */
    bool (*serves)(const ls_model_config *config);
    /* Refuses settings of its own that cannot be, or that nobody would read (one sentence); asked
     * whether it serves or not. May be NULL. */
    ls_status (*check)(ls_ctx *ctx, const ls_model_config *config);
    /* tokens [B,T], or with those of sources before it (valid: see ls_mixer; NULL: no padding) ->
     * what the head reads, [B,T,D], and the embedding, which is the head where tied. */
    ls_tensor *(*rows)(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding);
} ls_wrap_type;

extern const ls_wrap_type *const ls_wrap_types[];
extern const size_t ls_wrap_count;

/* The one that serves a model. */
const ls_wrap_type *ls_wrap_of(const ls_model_config *config);

/* tokens [B,T] -> rows [B,T,D], and their table (NULL where the head has another one). */
ls_tensor *ls_embed_tokens(ls_program *p, const ls_model_settings *about, ls_tensor *tokens,
                           ls_tensor **embedding);
/* Keeps a tensor under a name, and with gradients lets them begin there: NAME and cot.NAME. */
void ls_observe(ls_program *p, const char *name, ls_tensor *tensor);
/* What a segment leaves, NAME.NUMBER, in a program that keeps such. */
void ls_observe_segment(ls_program *p, const ls_recording *how, const char *name, int64_t number,
                        ls_tensor *tensor);

#endif
