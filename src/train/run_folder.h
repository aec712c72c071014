/* The folder of a run, beside its metrics and checkpoints: config.yaml, which describes the run and
 * is compared when it goes on, the tokenizer, and env.json. */
#ifndef LS_TRAIN_RUN_FOLDER_H
#define LS_TRAIN_RUN_FOLDER_H

#include "base/settings.h"
#include "data/data.h"
#include "model/model.h"
#include "task/task.h"
#include "train/mixture.h"
#include "train/train.h"

/* All that a run is described by. */
typedef struct ls_run_settings {
    ls_model_config model;
    ls_task task;          /* type NULL: a corpus */
    ls_data_settings data; /* of the corpus */
    ls_mixture mixture;    /* with it */
    ls_train_settings train;
} ls_run_settings;

void ls_run_settings_clear(ls_ctx *ctx, ls_run_settings *settings);

/* The settings as text. */
ls_status ls_run_folder_print(ls_ctx *ctx, const ls_run_settings *settings, ls_text *out);
/* The text of config.yaml. Where the folder holds one that means the same, as a run that an older
 * version began does, which does not name what came later, *out is that one. */
ls_status ls_run_folder_config(ls_ctx *ctx, const char *folder, const ls_run_settings *settings,
                               ls_text *out);
/* The run keeps its own copy of the tokenizer, so that the folder can be moved and read alone. One
 * that is not whole, after a kill or on a full disk, is written again. */
ls_status ls_run_folder_tokenizer(ls_ctx *ctx, const char *folder, const ls_tokenizer *tokenizer);
/* What the run was computed with: for people; nothing reads it back. */
ls_status ls_run_folder_environment(ls_ctx *ctx, const char *folder);
/* Whether there is a checkpoint to go on from. */
bool ls_run_folder_begun(ls_ctx *ctx, const char *folder);

#endif
