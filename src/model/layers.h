/* The parts of a block beside its mixer. */
#ifndef LS_MODEL_LAYERS_H
#define LS_MODEL_LAYERS_H

#include "model/model.h"

/* The model's norm of rows of a width, under a name; and that norm of x + delta, see
 * ls_residual_norm. valid: of a batch norm, see ls_mixer. */
ls_norm ls_layer_norm_of(ls_program *p, const ls_model_settings *about, const char *name,
                         int64_t width);
ls_tensor *ls_layer_norm(ls_program *p, const ls_model_settings *about, const char *name,
                         ls_tensor *x, ls_tensor *delta, ls_tensor *valid);
/* The width inside the feed-forward layer. */
int64_t ls_hidden_width(const ls_model_settings *about);
ls_tensor *ls_feed_forward(ls_program *p, const ls_model_settings *about, ls_tensor *x);
/* x [.., in] to [.., out], with a bias where the model has them. */
ls_tensor *ls_project(ls_program *p, const ls_model_settings *about, const char *name, ls_tensor *x,
                      int64_t out, bool biased);
/* A gated recurrent unit (Cho et al. 2014) with x as its input and `before` as what it replaces;
 * its parameters are NAME.input and NAME.OWN. */
ls_tensor *ls_gated_unit(ls_program *p, const ls_model_settings *about, const char *name,
                         const char *own, ls_tensor *x, ls_tensor *before);

#endif
