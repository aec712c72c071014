/* Files that suites read: lines of JSON or of text, checked as they are read. */
#ifndef LS_SUITE_LIB_LINES_H
#define LS_SUITE_LIB_LINES_H

#include "suite/suite.h"

typedef struct ls_lines {
    ls_whole whole;
    const char *path;
    const char **at; /* [count]: where each line begins; empty ones are left out */
    size_t *length;  /* [count] */
    int64_t *number; /* [count]: from 1 */
    int64_t count;
} ls_lines;

/* Opens a file, checks that it is UTF-8, and notes its hash in the suite's notes. LS_EINPUT in one
 * sentence where it has no lines. Close in any case. */
ls_status ls_lines_open(ls_suite *suite, const char *path, ls_lines *out);
/* LS_EINPUT where a file is not UTF-8: it names the line. */
ls_status ls_lines_check(ls_ctx *ctx, const char *path, const ls_whole *whole);
void ls_lines_close(ls_ctx *ctx, ls_lines *lines);
/* The line as a JSON object; a new reference. */
ls_status ls_lines_json(ls_ctx *ctx, const ls_lines *lines, int64_t index, json_t **out);
/* Members of such an object: LS_EINPUT names the file, the line and the key. */
ls_status ls_lines_text(ls_ctx *ctx, const ls_lines *lines, int64_t index, const json_t *object,
                        const char *key, const char **out, size_t *length);
/* A list that is not empty, of texts. */
ls_status ls_lines_texts(ls_ctx *ctx, const ls_lines *lines, int64_t index, const json_t *object,
                         const char *key, const json_t **out);

#endif
