/* Package clients of the system; within this room only. */
#ifndef LS_DATA_GET_CLIENT_H
#define LS_DATA_GET_CLIENT_H

#include "data/get.h"

/* How the names of packed files end: their documents' names are without it. */
#define LS_GET_PACKED ".gz"

/* Who fetches such packages, in words; and the first program it takes that is not here, or NULL. */
const char *ls__get_client(ls_get_kind kind);
const char *ls__get_missing(const ls_get_source *source);
/* Fetches the source's packages into the folder, and unpacks them, and an archive in them, below
 * FOLDER/tree; `packages` has the names of their files then. */
ls_status ls__get_fetch(ls_ctx *ctx, const ls_get_source *source, const char *folder,
                        ls_text *packages);
/* Reads a whole plain file of a package, unpacked where it is packed. LS_EINPUT where it has more
 * than `most` bytes, or is packed and not whole. */
ls_status ls__get_read(ls_ctx *ctx, const char *path, size_t most, ls_text *out);

/* Whether a name ends so and has something before. */
bool ls__get_ends_in(const char *name, const char *ending);

#endif
