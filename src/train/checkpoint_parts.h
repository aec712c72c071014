/* What the files of checkpoints share; within this room only. */
#ifndef LS_TRAIN_CHECKPOINT_PARTS_H
#define LS_TRAIN_CHECKPOINT_PARTS_H

#include "train/checkpoint.h"

#define LS_CHECKPOINT_BEST "best-"

/* The step in the name of a folder that begins with `start`; -1 where it is none of ours. */
int64_t ls__checkpoint_step(const char *name, const char *start);
/* Writes all files of a checkpoint and syncs them; whatever was in the folder is gone. */
ls_status ls__checkpoint_write(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                               ls_optimizer *optimizer);
/* LS_OK where the weights in a checkpoint's folder are as they were written. */
ls_status ls__checkpoint_verify_weights(ls_ctx *ctx, const char *folder, int64_t step);

#endif
