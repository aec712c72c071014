/* TensorBoard event files: records of a length, a masked CRC-32C, an Event message and its CRC. The
 * few fields of the protocol buffers that scalars need are written by hand. */
#ifndef LS_TRAIN_EVENTS_H
#define LS_TRAIN_EVENTS_H

#include "base/file.h"

typedef struct ls_scalar {
    const char *tag; /* at most 64 bytes */
    double value;
} ls_scalar;
enum { LS_EVENT_SCALARS_MAX = 16 };

/* The checksum of the records (Castagnoli's polynomial), not masked. */
uint32_t ls_crc32c(const void *bytes, size_t length);

/* The first record of a file; and the one that tells readers that the run began again before
 * `step`, so that they drop what an earlier file has from there on. */
ls_status ls_events_begin(ls_ctx *ctx, FILE *file, const char *path, double wall_time);
ls_status ls_events_restart(ls_ctx *ctx, FILE *file, const char *path, double wall_time,
                            int64_t step);
/* One record with all scalars of a step; makes no allocation. */
ls_status ls_events_add(ls_ctx *ctx, FILE *file, const char *path, double wall_time, int64_t step,
                        const ls_scalar *scalars, size_t count);

#endif
