/* Files and folders that are written beside their place and then renamed, in a folder that several
 * processes share. Each is locked while its writer lives: what a killed one left is told from what
 * another is writing, whatever machine or container that runs in. */
#ifndef LS_BASE_TEMPORARY_H
#define LS_BASE_TEMPORARY_H

#include <stdio.h>

#include "base/status.h"

#define LS_TEMPORARY_END ".tmp"

/* A new file PATH.NUMBER.tmp, whose name goes to `name`; locked until it is closed. */
ls_status ls_temporary_file(ls_ctx *ctx, const char *path, char *name, size_t bytes, FILE **out);
/* The same for a folder: close *lock. */
ls_status ls_temporary_folder(ls_ctx *ctx, const char *path, char *name, size_t bytes, int *lock);
/* A file that takes the place of another, or of none, when it is whole. */
typedef struct ls_replacement {
    char name[4096]; /* under which it is written */
    FILE *file;
    int lock; /* held until it has its place */
} ls_replacement;
/* Removes first what killed writers of the same path left. */
ls_status ls_replacement_begin(ls_ctx *ctx, const char *path, ls_replacement *out);
/* Takes the status of the writing: LS_OK makes it durable under its path, anything else removes it,
 * and what stood there stands. Gives the first failure. */
ls_status ls_replacement_end(ls_ctx *ctx, const char *path, ls_replacement *r, ls_status status);
/* Removes those in a folder that nobody holds. `ours` says of a name without its folder whether it
 * is one of these; a folder that is missing is fine. */
ls_status ls_temporaries_sweep(ls_ctx *ctx, const char *folder, bool (*ours)(const char *name));
/* Those of one path, which stand beside it. */
ls_status ls_temporaries_sweep_beside(ls_ctx *ctx, const char *path);
/* Of any name that ends in .tmp: for folders that this process has locked. */
bool ls_is_temporary(const char *name);

#endif
