/* Checkpoints: checkpoints/step-N/ with model.safetensors, optimizer.safetensors, state.json, where
 * there are carried memories memory.bin, and manifest.json with every file's size and XXH3.
 *
 * A checkpoint appears whole or not at all: it is written to step-N.tmp, every file and the folder
 * reach the disk, then it is renamed. Reading goes from the newest to the oldest and takes the
 * first whose every byte is as it was written. */
#ifndef LS_TRAIN_CHECKPOINT_H
#define LS_TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/optimizer.h"

typedef struct ls_checkpoint {
    int64_t step;
    uint64_t config_hash; /* of the run's settings as text */
    uint64_t rest_hash;   /* the same without train.steps, which may be raised; 0: not known */
    json_t *state;        /* an object: whatever else the loop must know */
    /* Writes carried memories; NULL: there are none. A load gives them in `memory`. */
    ls_status (*put_memory)(void *user, FILE *file, const char *path);
    void *user;
    ls_whole memory;
    /* Those at multiples of it are what a run goes back to; the others only keep what a stopped run
     * had done, and go when another is saved. 0: all are alike. */
    int64_t every;
} ls_checkpoint;

void ls_checkpoint_clear(ls_checkpoint *checkpoint); /* what a load filled */

/* Writes `checkpoint`, the weights and the moments; then removes all but the newest `keep` (at
 * least 2) of the checkpoints up to this step. LS_EIO where the disk is full or a limit is hit: the
 * half-written one is gone and the older ones stand. LS_EINPUT where a weight is not finite. */
ls_status ls_checkpoint_save(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                             ls_optimizer *optimizer, int64_t keep);
/* Removes all but the newest `keep` of the checkpoints up to step `newest`, as a save does. */
ls_status ls_checkpoint_prune(ls_ctx *ctx, const char *folder, int64_t newest, int64_t every,
                              int64_t keep);
/* Fills weights, moments and *out from the newest good checkpoint; says (ls_say) which it rejected
 * and why. *found is false where there is none at all; LS_EINPUT where there are some and all are
 * bad. Unless it succeeds nothing is changed. */
ls_status ls_checkpoint_load(ls_ctx *ctx, const char *folder, ls_optimizer *optimizer,
                             ls_checkpoint *out, bool *found);
/* The same, of those at multiples of `every` alone. */
ls_status ls_checkpoint_load_scheduled(ls_ctx *ctx, const char *folder, int64_t every,
                                       ls_optimizer *optimizer, ls_checkpoint *out, bool *found);
/* The path and step of the newest checkpoint whose weights are as they were written; the rest,
 * which only training needs, may be missing. LS_EINPUT where there is none. */
ls_status ls_checkpoint_find(ls_ctx *ctx, const char *folder, char *path, size_t bytes,
                             int64_t *step);
/* Keeps this one, whose validation loss (`validation` of its state, see ls_best) is the least so
 * far, as best-N beside those that are saved by step, in place of the one before. */
ls_status ls_checkpoint_save_best(ls_ctx *ctx, const char *folder, const ls_checkpoint *checkpoint,
                                  ls_optimizer *optimizer);
/* Its path and step; *step -1 where there is none. LS_EINPUT where it is damaged. */
ls_status ls_checkpoint_find_best(ls_ctx *ctx, const char *folder, char *path, size_t bytes,
                                  int64_t *step);
/* The line of train.steps in settings as text; empty and at their end where there is none. */
void ls_checkpoint_steps_line(const char *config, size_t length, const char **line,
                              const char **end);
/* Of the settings as text, without that line. */
uint64_t ls_checkpoint_rest_hash(const char *config, size_t length);
/* Whether a run's config.yaml is no longer the one that a checkpoint (its own folder) was made
 * with, more steps aside. False where the checkpoint has no manifest that would tell. */
ls_status ls_checkpoint_edited(ls_ctx *ctx, const char *checkpoint, const char *config,
                               bool *edited);
/* LS_EINPUT: says so of a run's folder. */
ls_status ls_checkpoint_refuse_edited(ls_ctx *ctx, const char *folder);
/* LS_OK where the checkpoint of a step is whole; else what is wrong with it. */
ls_status ls_checkpoint_verify(ls_ctx *ctx, const char *folder, int64_t step);
/* Removes what an interrupted save left behind; a missing folder is fine. */
ls_status ls_checkpoint_sweep(ls_ctx *ctx, const char *folder);

#endif
