/* model.length and train.length are one number, the trained length, unless something makes two of
 * them: weights that training goes on from (train.from) were made for a length of their own, and
 * positions that are drawn (PoSE, CLEX) reach further than a row of tokens. */
#ifndef LS_TRAIN_LENGTHS_H
#define LS_TRAIN_LENGTHS_H

#include "model/model.h"
#include "task/task.h"

/* Fills in what the settings leave open: model.length is train.length, else the task's own where
 * there is a task. LS_EUSE where the length does not suit the task. */
ls_status ls_lengths_settle(ls_ctx *ctx, const ls_task *task, ls_settings *settings);
/* LS_EUSE for a model that was read from the settings, where they name two lengths without
 * reason. */
ls_status ls_lengths_check(ls_ctx *ctx, const ls_settings *settings, const ls_model_config *model);

#endif
