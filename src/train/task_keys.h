/* What a chosen task decides about the other settings of a run. */
#ifndef LS_TRAIN_TASK_KEYS_H
#define LS_TRAIN_TASK_KEYS_H

#include "task/task.h"

/* Fills in what the settings leave open once a task is chosen: model.vocabulary is the task's, and
 * so are head and classes where it has classes; spikes of the loss are let through. Lengths are
 * settled in lengths.h. LS_EUSE where vocabulary or head do not suit the task, or where a corpus is
 * named too. */
ls_status ls_task_settle(ls_ctx *ctx, const ls_task *task, ls_settings *settings);

#endif
