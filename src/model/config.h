/* The parts of reading a model's description: see ls_model_config_read. */
#ifndef LS_MODEL_CONFIG_H
#define LS_MODEL_CONFIG_H

#include "model/model.h"

/* Puts a preset's keys into the settings where they are not given yet. LS_EUSE names the nearest.
 */
ls_status ls__preset_add(ls_ctx *ctx, ls_settings *settings, const char *name);
/* Layers, their mixers and the options of these. Settings from `given` on come from a preset. */
ls_status ls__layers_read(ls_ctx *ctx, const ls_settings *settings, size_t given,
                          ls_model_config *config);
/* What the conditions of a mixer's options ask: whether layers that have it are causal. */
void ls__mixer_facts(const ls_model_config *config, int which, ls_fact facts[3]);

#endif
