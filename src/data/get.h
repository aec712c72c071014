/* Corpora that anyone can have: what packages hold, through the system's own clients, which check
 * what they fetch. Nothing else is asked for, and nothing is installed. */
#ifndef LS_DATA_GET_H
#define LS_DATA_GET_H

#include "base/memory.h"

typedef enum ls_get_kind { LS_GET_DEBIAN, LS_GET_PYTHON } ls_get_kind;

/* A side of an official split: the next bytes of the text, for data.KEY. */
typedef struct ls_get_part {
    const char *key;
    size_t bytes;
} ls_get_part;

enum { LS_GET_PACKAGES = 10, LS_GET_ENDINGS = 4 }; /* at most */

typedef struct ls_get_source {
    const char *name;
    ls_get_kind kind;
    const char *packages[LS_GET_PACKAGES];  /* up to the first NULL, as the endings below */
    const char *version, *builder, *sha256; /* of a source archive of Python: see get_client.c */
    const char *archive; /* of tar, packed with xz, a file of the packages; or NULL */
    /* Its files: below a folder of this path, with one of these endings, plain or with .gz behind
     * it; folders called `without`, if it is not NULL, are left out. */
    const char *under, *endings[LS_GET_ENDINGS], *without;
    const char *licence, *about;
    /* Else one text, the file `under`, of this ls_hash, in parts up to one without a key. */
    const ls_get_part *parts;
    uint64_t hash;
} ls_get_source;
const ls_get_source *ls_get_sources(size_t *count);

/* Writes the documents of a source to the folder `out` ("": corpora/NAME), each to a file, those
 * that are the same once, or the parts of its text, each to KEY.txt, and says what there is
 * (appended to *said). LS_EUSE for a folder that is there, or a system without the programs that it
 * takes; LS_EINPUT where the client does not get a package, or it holds something else. */
ls_status ls_get_from(ls_ctx *ctx, const ls_get_source *source, const char *out, ls_text *said);
/* The same of the source of this name; LS_EUSE where there is none. */
ls_status ls_data_get(ls_ctx *ctx, const char *name, const char *out, ls_text *said);

#endif
