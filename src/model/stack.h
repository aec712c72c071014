/* A stack of blocks: rows [B,T,D] through layers, each with its mixer. */
#ifndef LS_MODEL_STACK_H
#define LS_MODEL_STACK_H

#include "model/cross.h"

/* Layers [first, end), which read the rows of `context` too, or attend to a source (NULL: there are
 * none). */
typedef struct ls_stack {
    int64_t first, end;
    ls_tensor *context;
    ls_tensor *places; /* see ls_mixer */
    const char *norm;  /* name of the last norm, where the form of the blocks has one */
    bool encodes;      /* a source: the encoder's layers, not the model's own */
    const ls_source *source;
} ls_stack;

/* All of a model's own layers. */
ls_stack ls_stack_whole(const ls_model_config *config);
/* Embedded tokens [B,T,D] -> what comes out of the last layer. valid: see ls_mixer. */
ls_tensor *ls_stack_record(ls_program *p, const ls_model_config *config, const ls_stack *layers,
                           ls_tensor *x, ls_tensor *valid);
/* Whether a layer leaves rows other than those it was given. */
bool ls_stack_other_rows(const ls_model_config *config);

#endif
