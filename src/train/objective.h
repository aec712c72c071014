/* What a model is to find in a text: the token after each (language models), those that were masked
 * (arXiv 1810.04805), or how a text goes on whose first half was read (arXiv 1910.10683 section
 * 3.2.3: prefix language modelling). */
#ifndef LS_TRAIN_OBJECTIVE_H
#define LS_TRAIN_OBJECTIVE_H

#include "data/loader.h"
#include "data/tokenizer.h"
#include "model/model.h"
#include "train/train.h"

typedef enum { LS_OBJECTIVE_NEXT, LS_OBJECTIVE_MASKED, LS_OBJECTIVE_CONTINUE } ls_objective;

/* Of the model's head and wrap. LS_EUSE where a text is nothing for it, or an id that the objective
 * needs (model.mask_token, model.start_token) is not known. */
ls_status ls_objective_of(ls_ctx *ctx, const ls_model_config *config, ls_objective *out);
/* The id of the mask among a tokenizer's special tokens; -1: it has none. */
ls_status ls_objective_mask_of(ls_ctx *ctx, const ls_tokenizer *tokenizer, int32_t *out);

/* Tokens that an encoder reads of a text of T; the decoder goes on with the others. */
int64_t ls_objective_source(int64_t T);
/* text [T] -> inputs [T], a source and what the decoder is given, and targets [T - source]. */
void ls_objective_cut(const ls_model_config *config, const int32_t *text, int64_t T,
                      int32_t *inputs, int32_t *targets);

/* Tokens [0, first) of a text of `tokens` and as many behind them, up to `end`, as fill a row of
 * length; targets follow inputs across the gap as well. */
void ls_objective_skip(const int32_t *inputs, const int32_t *targets, int64_t first, int64_t end,
                       int64_t length, int32_t *row, int32_t *wanted);

/* Batches of a text for an objective; `loader`, of texts as long as the model's position method
 * reads them, borrowed. */
typedef struct ls_objective_batches {
    const ls_loader *loader;
    const ls_model_config *config;
    ls_objective objective;
    int64_t length;
    uint64_t seed;
    int64_t text;   /* tokens of a text for each of a row (in training: ls_position_text) */
    int32_t *spare; /* [batch, length], or of texts their inputs and targets: owned */
} ls_objective_batches;
ls_status ls_objective_batches_init(ls_ctx *ctx, const ls_loader *loader,
                                    const ls_model_config *config,
                                    const ls_train_settings *settings, int64_t text,
                                    ls_objective_batches *out);
ls_train_source ls_objective_batches_source(const ls_objective_batches *batches);

#endif
