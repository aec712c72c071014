/* What the tests of the readers' edges share: a folder of their own, and refusals by their
 * sentence. */
#ifndef LS_TESTS_READER_EDGES_H
#define LS_TESTS_READER_EDGES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char folder[] = "/tmp/longshot-edges-XXXXXX";

static inline const char *in_folder(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* NULL: it must be accepted. */
static inline void expect(const char *about, ls_status status, ls_ctx *ctx, const char *sentence) {
    if (sentence == NULL ? status != LS_OK
                         : status == LS_OK || strstr(ctx->error.message, sentence) == NULL)
        fail_msg("%s: %s, \"%s\" in place of \"%s\"", about, ls_status_name(status),
                 ctx->error.message, sentence == NULL ? "" : sentence);
    ctx->error = (ls_error){0};
}

static inline int begin(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static inline int end(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

#endif
