/* Corpora that anyone can have: documents of Debian packages, through the system's own client, which
 * checks what it fetches. Nothing else is asked for, and nothing is installed. */
#ifndef LS_DATA_GET_H
#define LS_DATA_GET_H

#include "base/memory.h"

typedef struct ls_get_source {
    const char *name, *package;
    const char *under, *ending; /* its files: below a folder of this path, with this ending */
    const char *licence, *about;
} ls_get_source;
const ls_get_source *ls_get_sources(size_t *count);

/* Writes the documents of a source to the folder `out` ("": corpora/NAME), each to a file, those that
 * are the same once, and says what there is (appended to *said). LS_EUSE for a name that is not known,
 * a folder that is there, or a system without apt-get and dpkg-deb; LS_EINPUT where the client does
 * not get the package. */
ls_status ls_data_get(ls_ctx *ctx, const char *name, const char *out, ls_text *said);

#endif
