/* The flat buffers of a parameter store as named tensors in safetensors files. */
#ifndef LS_MODEL_WEIGHTS_H
#define LS_MODEL_WEIGHTS_H

#include "model/safetensors.h"
#include "tensor/engine/parameter.h"

/* A buffer laid out as the store's, in the master's type, where the context computes; and the
 * prefix its tensors' names bear in a file ("" for the weights themselves, "m." for a moment). */
enum { LS_WEIGHTS_PARTS_MAX = 4 }; /* of one call */
typedef struct ls_weights_part {
    const char *prefix;
    void *buffer;
    /* or, where the buffer is not here as a whole (NULL), what reads and writes some elements of
     * it; values are in the caller's memory */
    ls_status (*get)(void *user, int64_t first, int64_t count, void *values);
    ls_status (*put)(void *user, int64_t first, int64_t count, const void *values);
    void *user;
} ls_weights_part;

/* Writes the parts to an open file (`path` is for messages). */
ls_status ls_weights_put(ls_ctx *ctx, FILE *file, const char *path, const ls_parameters *store,
                         const ls_weights_part *parts, size_t count, const ls_stored_text *metadata,
                         size_t metadata_count);
/* LS_EINPUT where a part's tensor is missing, or has another shape, or is not of reals. With
 * `missing` those that are missing are counted there, and no fault. */
ls_status ls_weights_check(ls_ctx *ctx, const ls_safetensors *file, const char *path,
                           const ls_parameters *store, const ls_weights_part *parts, size_t count,
                           size_t *missing);
/* Fills the parts from a file that ls_weights_check passed; what it lacks stays as it is. */
ls_status ls_weights_fill(const ls_safetensors *file, const ls_parameters *store,
                          const ls_weights_part *parts, size_t count);
/* The name of a parameter with a value that is not finite; NULL: all are. A signal ends it. */
ls_status ls_weights_find_broken(const ls_parameters *store, const char **out);
/* The master weights (and the shadow) of a sealed store from a file; `missing` as above. Unchanged
 * where the file is another model's; a signal, or a file that changes, leaves them half read. */
ls_status ls_weights_load(ls_ctx *ctx, const char *path, ls_parameters *store, size_t *missing);

#endif
