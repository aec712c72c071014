/* A folder for the files of one test program, and files with given contents in it. Include after
 * cmocka.h. */
#ifndef LS_TESTS_DATA_FIXTURE_H
#define LS_TESTS_DATA_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static char fixture_folder[256];

static inline int fixture_make(void **state) {
    (void)state;
    const char *root = getenv("TMPDIR");
    snprintf(fixture_folder, sizeof fixture_folder, "%s/longshot-data-XXXXXX",
             root == NULL ? "/tmp" : root);
    return mkdtemp(fixture_folder) == NULL;
}

static inline int fixture_remove(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, fixture_folder) != LS_OK;
}

/* The path of a name in the folder; four may be in use at once. */
static inline const char *fixture_path(const char *name) {
    static char paths[4][600];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", fixture_folder, name);
    return path;
}

static inline const char *fixture_file(const char *name, const void *bytes, size_t length) {
    const char *path = fixture_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
    return path;
}

static inline const char *fixture_text(const char *name, const char *text) {
    return fixture_file(name, text, strlen(text));
}

#endif
