/* The form of a model: all that decides what it computes, as settings in one spelling, so that two
 * descriptions can be compared and public configurations written from one.
 *
 * Keys are those of recipes, with these differences. model.layers is a number. `mixer` and
 * mixer.KEY are of the first layer; layers.N.mixer and layers.N.mixer.KEY of those where they
 * differ. Options of 0 that stand for something else are that. What is of training alone is left
 * out. */
#ifndef LS_MODEL_FORM_H
#define LS_MODEL_FORM_H

#include "model/model.h"

ls_status ls_form_of(ls_ctx *ctx, const ls_model_config *config, ls_settings *out);
/* Appends what a model has and another form has not, "KEY=VALUE (OTHER there)" with ", " between
 * them; gives back how many. */
size_t ls_form_differs(ls_ctx *ctx, const ls_settings *form, const ls_settings *other,
                       ls_text *out);

#endif
