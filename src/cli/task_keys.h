/* Tasks on the command line: what `train`, `study` and its check agree on. */
#ifndef LS_CLI_TASK_KEYS_H
#define LS_CLI_TASK_KEYS_H

#include "task/task.h"

/* Fills in what the settings leave open once a task is chosen: model.length is train.length, else
 * the task's own, and model.vocabulary is the task's. LS_EUSE where the vocabulary given is too
 * small, or where a corpus is named too. */
ls_status ls_task_settle(ls_ctx *ctx, const ls_task *task, ls_settings *settings);

#endif
