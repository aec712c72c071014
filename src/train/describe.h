/* What a run folder, a checkpoint folder or a safetensors file holds. */
#ifndef LS_TRAIN_DESCRIBE_H
#define LS_TRAIN_DESCRIBE_H

#include <jansson.h>

#include "base/memory.h"

/* A file: {"file", "elements", "metadata", "tensors"}. A folder: {"folder", "step", "checkpoints",
 * "config", "weights"}, each checkpoint with what is wrong with it; weights as of a file, null
 * where no checkpoint is whole; "memory", what it takes to open it and to score a text of its
 * trained length, in bytes. A new reference. */
ls_status ls_describe_file(ls_ctx *ctx, const char *path, json_t **out);
ls_status ls_describe_run(ls_ctx *ctx, const char *path, json_t **out);
/* Either of them as lines for people. */
void ls_describe_print(ls_ctx *ctx, const json_t *description, ls_text *out);

#endif
