/* Sizes that the shapes of weights tell, so that nobody has to type them.
 *
 * A mixer's are found by trying: with the right sizes its parameters are those that the file
 * gives. What is tried are the numbers in the file's shapes and what they are multiples of. A size
 * that no shape depends on, or several values of which would do, stays what it was. */
#ifndef LS_MODEL_FIT_H
#define LS_MODEL_FIT_H

#include "model/public_weights.h"

/* A weight by the name that it has below the mixer: ours, or one of public code. */
typedef struct ls_fit_weight {
    char *name; /* owned */
    const ls_safetensor *tensor;
} ls_fit_weight;
typedef struct ls_fit_weights {
    ls_fit_weight *items;
    size_t count, capacity;
} ls_fit_weights;
ls_status ls_fit_weights_add(ls_ctx *ctx, ls_fit_weights *weights, const char *name,
                             const ls_safetensor *tensor);
void ls_fit_weights_clear(ls_ctx *ctx, ls_fit_weights *weights);

/* Sets those options of a mixer of which `given` (one for each of its table) is false, where that
 * makes all weights fit; adds " key=value" of each to `found`. `options` is what mixer->options
 * points to, T a length to record it with. */
ls_status ls_fit_mixer(ls_ctx *ctx, const ls_mixer *mixer, void *options, const bool *given,
                       const ls_naming *naming, const ls_fit_weights *weights, int64_t T,
                       ls_text *found);
/* Puts sizes of a model that a file tells (width, vocabulary, layers, ...) into the settings where
 * they are not given. LS_EUSE where one is given that the file contradicts. */
ls_status ls_fit_model(ls_ctx *ctx, ls_settings *settings, const ls_naming *naming,
                       const ls_safetensors *file, const char *prefix, ls_text *found);
/* Then, of the description that was read from them, the sizes of its mixers. */
ls_status ls_fit_model_mixers(ls_ctx *ctx, const ls_settings *settings, ls_model_config *config,
                              const ls_naming *naming, const ls_safetensors *file,
                              const char *prefix, ls_text *found);

#endif
