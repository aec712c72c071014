/* A folder of its own for a fuzz target whose subject reads files by name; removed at the end. */
#ifndef LS_FUZZ_FOLDER_H
#define LS_FUZZ_FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char fuzz_folder[64];

static inline void fuzz_folder_remove(void) {
    ls_ctx ctx = ls_ctx_default();
    ls_folder_remove(&ctx, fuzz_folder);
}

static inline const char *fuzz_folder_make(void) {
    if (fuzz_folder[0] == '\0') {
        snprintf(fuzz_folder, sizeof fuzz_folder, "%s/longshot-fuzz-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(fuzz_folder) == NULL || atexit(fuzz_folder_remove) != 0) abort();
    }
    return fuzz_folder;
}

static inline void fuzz_folder_put(const char *name, const void *bytes, size_t count) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder_make(), name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) abort();
}

/* The bytes before the first NUL go to one file, those behind it to another; without a NUL the
 * other is not there. */
static inline void fuzz_folder_put_two(const char *first, const char *second, const uint8_t *bytes,
                                       size_t length) {
    char path[256];
    const uint8_t *cut = length == 0 ? NULL : memchr(bytes, 0, length);
    snprintf(path, sizeof path, "%s/%s", fuzz_folder_make(), second);
    unlink(path);
    fuzz_folder_put(first, bytes, cut == NULL ? length : (size_t)(cut - bytes));
    if (cut != NULL) fuzz_folder_put(second, cut + 1, length - (size_t)(cut + 1 - bytes));
}

#endif
