/* Paths that are nearly too long: whatever uses a folder works up to some length of its name, and from
 * there on refuses it as too long. Nothing is done in a folder whose name was cut. */
#ifndef LS_TESTS_READER_PATHS_H
#define LS_TESTS_READER_PATHS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"

enum { LONGEST = 4096, TRIED = 90 };

typedef ls_status (*path_use)(ls_ctx *ctx, const char *path);

/* The same place under a name of so many letters. */
static inline void pad(char *out, const char *path, size_t length) {
    size_t used = (size_t)snprintf(out, LONGEST + 8, "%s", path);
    assert_true(used + 2 < length);
    while (used + 2 <= length) used += (size_t)snprintf(out + used, 3, "/.");
    if (used < length) strcpy(out + used, "/");
}

static inline void sweep(const char *about, const char *place, path_use use) {
    static char path[LONGEST + 8], real[512];
    ls_status before = LS_OK;
    snprintf(real, sizeof real, "%s", place);
    for (size_t length = LONGEST - TRIED; length <= LONGEST + 2; length++) {
        ls_ctx ctx = ls_ctx_default();
        pad(path, real, length);
        const ls_status status = use(&ctx, path);
        if (length == LONGEST - TRIED && status != LS_OK)
            fail_msg("%s: %s", about, ctx.error.message);
        if (before != LS_OK && status == LS_OK)
            fail_msg("%s works with %zu letters, and not with one less", about, length);
        if (status != LS_OK && strstr(ctx.error.message, "too long") == NULL)
            fail_msg("%s, %zu letters: %s", about, length, ctx.error.message);
        before = status;
    }
    if (before == LS_OK) fail_msg("%s takes names of any length", about);
}

#endif
