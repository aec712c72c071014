/* Embeddings and a head whose width shrinks with the rarity of tokens: see adaptive.md. */
#ifndef LS_MODEL_HEAD_ADAPTIVE_H
#define LS_MODEL_HEAD_ADAPTIVE_H

#include "model/head.h"

/* tokens [B,T] -> rows [B,T,D]. */
ls_tensor *ls_adaptive_rows(ls_program *p, const ls_model_settings *about, ls_tensor *tokens);
/* As ls_linear_cross_entropy of rows x [B,T,D]. */
ls_tensor *ls_adaptive_loss(ls_program *p, const ls_model_settings *about, ls_tensor *x,
                            ls_tensor *targets, ls_tensor *weights, double smoothing);
/* Logarithms of probabilities [..,V] of rows x [..,D]. */
ls_tensor *ls_adaptive_logits(ls_program *p, const ls_model_settings *about, ls_tensor *x);

#endif
