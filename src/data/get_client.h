/* Package clients of the system; within this room only. */
#ifndef LS_DATA_GET_CLIENT_H
#define LS_DATA_GET_CLIENT_H

#include "data/get.h"

/* Who fetches such packages, in words; and the first program it takes that is not here, or NULL. */
const char *ls__get_client(ls_get_kind kind);
const char *ls__get_missing(ls_get_kind kind);
/* Fetches the source's package into the folder, whose file is `package` then, and unpacks it and
 * what is packed in it below FOLDER/tree. */
ls_status ls__get_fetch(ls_ctx *ctx, const ls_get_source *source, const char *folder, char *package,
                        size_t bytes);

/* Whether a name ends so and has something before. */
bool ls__get_ends_in(const char *name, const char *ending);

#endif
