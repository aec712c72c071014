/* A task's own measurement: how often the most likely token or class is the answer, by length. */
#ifndef LS_EVAL_TASK_H
#define LS_EVAL_TASK_H

#include "eval/eval.h"
#include "task/task.h"

/* One row per length, of the protocol "task". Samples are those that `seed` draws for tests: the
 * same at every call, none of them a training sample. They go in chunks with a carried state, and
 * logits exist only where something is scored; where classes are asked for, samples go whole.
 * LS_EUSE for settings that do not fit. Clear *out in any case. */
ls_status ls_eval_task(ls_model *model, const ls_task *task, uint64_t seed,
                       const ls_eval_settings *settings, const ls_eval_hooks *hooks,
                       ls_eval_results *out);

#endif
