/* A file that is read piece by piece, as checkpoints are: nobody holds it still meanwhile. Reading
 * cannot fail where it stands; what could not be read is zeros, the source remembers it, and
 * whoever has read all that it wanted asks. So a file that is cut ends in an error, where a mapping
 * of it would end the process. Several threads may read. */
#ifndef LS_BASE_SOURCE_H
#define LS_BASE_SOURCE_H

#include "base/memory.h"

typedef struct ls_source ls_source;

/* Opens a plain file of *length bytes; release it with ls_source_close, which takes NULL. */
ls_status ls_source_open(ls_ctx *ctx, const char *path, ls_source **out, size_t *length);
void ls_source_close(ls_ctx *ctx, ls_source *source);

/* `count` bytes from `at` on. */
void ls_source_read(ls_source *source, size_t at, size_t count, void *out);

/* LS_EINPUT where the file has changed since it was opened, LS_EIO where it could not be read. */
ls_status ls_source_check(ls_ctx *ctx, const ls_source *source);

#endif
