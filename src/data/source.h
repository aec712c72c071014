/* Bytes of a file, plain or zstd-compressed (told by its first bytes, not by its name), read in
 * pieces. Within this room only. */
#ifndef LS_DATA_SOURCE_H
#define LS_DATA_SOURCE_H

#include "base/memory.h"

typedef struct ls_source ls_source;

/* LS_EINPUT where the file is missing or no plain file. `path` is borrowed until the close. */
ls_status ls__source_open(ls_ctx *ctx, const char *path, ls_source **out);
/* Up to `room` bytes into `into`; *got 0 at the end. LS_EINPUT for broken zstd data, or for data
 * that expands more than a text can. */
ls_status ls__source_read(ls_ctx *ctx, ls_source *source, void *into, size_t room, size_t *got);
void ls__source_close(ls_ctx *ctx, ls_source *source); /* NULL is fine */

#endif
