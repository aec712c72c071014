/* A run's config.yaml: written once, compared whenever the run goes on; and runs that grow, whose
 * train.steps are raised. That is the same run where the learning rates up to now are those that
 * the longer run would have had. */
#ifndef LS_TRAIN_GROWTH_H
#define LS_TRAIN_GROWTH_H

#include "train/train.h"

/* Writes config.yaml where there is none. LS_EUSE where the folder's is another than `config`, but
 * for fewer train.steps: *grows. */
ls_status ls_growth_settle(ls_ctx *ctx, const char *folder, const char *config, int64_t steps,
                           bool *grows);
/* Whether a run that has come to `step` on the way to `before` steps may go on to settings->steps.
 * LS_EUSE says why not, and what to do. */
ls_status ls_growth_check(ls_ctx *ctx, const char *folder, const ls_train_settings *settings,
                          int64_t before, int64_t step);
/* From now on the folder's settings are these. */
ls_status ls_growth_write(ls_ctx *ctx, const char *folder, const char *config);

#endif
