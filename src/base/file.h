/* Files: whole reads with a cap, atomic and durable writes, a bounds-checked
 * cursor. Nothing read from a file is trusted. */
#ifndef LS_BASE_FILE_H
#define LS_BASE_FILE_H

#include <stdio.h>

#include "base/memory.h"

/* Reads a whole file of at most `most` bytes into `out` (cleared by the caller). LS_EINPUT where it
 * is missing or too large, LS_EIO where reading fails. */
ls_status ls_file_read(ls_ctx *ctx, const char *path, size_t most, ls_text *out);

/* A plain file to read, and its length; nothing else: a pipe would wait for a writer. Close *fd. */
ls_status ls_file_open(ls_ctx *ctx, const char *path, int *fd, size_t *length);
/* Length and ls_hash of a file, read in pieces; where `stops`, a signal ends it. */
ls_status ls_file_hash(ls_ctx *ctx, const char *path, bool stops, size_t *length, uint64_t *hash);

/* A whole file of at most 4 GiB in pages of its own, with a zero byte behind it: read, not mapped,
 * since reading a mapping of a file that is cut meanwhile ends the process. An empty file gives
 * length 0. Where `stops`, a signal ends it. */
typedef struct ls_whole {
    const uint8_t *bytes;
    size_t length;
} ls_whole;
ls_status ls_whole_read(ls_ctx *ctx, const char *path, bool stops, ls_whole *out);
void ls_whole_free(ls_whole *whole);

/* A plain file to write: emptied, or to append to. LS_EIO where it cannot be, also where something
 * else has its name: a pipe would wait for a reader. */
ls_status ls_file_create(ls_ctx *ctx, const char *path, bool append, FILE **out);
/* Durable and atomic: writes beside it, fsyncs, renames, fsyncs the folder. On failure the old file
 * stands and the temporary is removed. Several processes may write the same file: one of theirs
 * stands there then. */
ls_status ls_file_write(ls_ctx *ctx, const char *path, const void *bytes, size_t length);
/* Writes all bytes and reports a short write or a full disk as LS_EIO. */
ls_status ls_file_put(ls_ctx *ctx, FILE *file, const char *path, const void *bytes, size_t length);
/* Flushes, fsyncs and closes; the file is closed in any case. */
ls_status ls_file_finish(ls_ctx *ctx, FILE *file, const char *path);
/* Renames within a folder, and fsyncs that: after a power cut the name is the new one. LS_EIO where a
 * device or a socket has it, or a link to one. */
ls_status ls_path_rename(ls_ctx *ctx, const char *from, const char *to);
/* With parents, durably; fine where it exists. */
ls_status ls_folder_make(ls_ctx *ctx, const char *path);
ls_status ls_folder_sync(ls_ctx *ctx, const char *path);
/* Removes a folder and all in it; missing is fine. */
ls_status ls_folder_remove(ls_ctx *ctx, const char *path);
/* What cannot be looked at counts as there: who opens it learns why. */
bool ls_path_exists(const char *path);
bool ls_path_is_folder(const char *path);
/* LS_EINPUT for what a user named ("the corpus") and cannot be looked at, by the number of the
 * error: paths are those of the folder in which a command is given, and where another one was meant
 * this says so. */
ls_status ls_fail_path(ls_ctx *ctx, const char *what, const char *path, int reason);
/* Sorted names (not paths) of a folder's entries, without . and .. ; free each and the array. */
ls_status ls_folder_list(ls_ctx *ctx, const char *path, char ***names, size_t *count);
void ls_names_free(ls_ctx *ctx, char **names, size_t count);
/* prints "a/b" into out; LS_EUSE where it does not fit. */
ls_status ls_path_join(ls_ctx *ctx, char *out, size_t bytes, const char *a, const char *b);

/* Where a path leads that stands in the settings of a run: as it was given, or, where that is not
 * there and not absolute, from a folder above the run's (`run`; NULL or empty: no run). So a run
 * goes on from any folder, and where both were moved together. Where it leads nowhere it stays as
 * it is: who opens it says so. */
ls_status ls_path_find(ls_ctx *ctx, const char *given, const char *run, char *out, size_t bytes);

/* The only way to walk through bytes from outside: every take is checked against what is left. */
typedef struct ls_reader {
    const uint8_t *at;
    size_t left;
} ls_reader;
bool ls_reader_take(ls_reader *reader, size_t bytes, const uint8_t **out);
bool ls_reader_u32(ls_reader *reader, uint32_t *out); /* little-endian */
bool ls_reader_u64(ls_reader *reader, uint64_t *out);

/* XXH3, 64 bits: checksums of checkpoints and identities of settings. */
uint64_t ls_hash(const void *bytes, size_t length);

#endif
