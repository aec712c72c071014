/* The files of a corpus; within this room only. */
#ifndef LS_DATA_CORPUS_FILES_H
#define LS_DATA_CORPUS_FILES_H

#include "data/corpus.h"

typedef struct ls_corpus_file {
    char *path;
    char *name; /* relative to the corpus */
    bool jsonl;
    int64_t size, seconds, nanoseconds; /* of the last change */
} ls_corpus_file;

typedef struct ls_corpus_files {
    ls_corpus_file *at;
    size_t count, capacity;
} ls_corpus_files;

/* What ls_corpus_open promises, added to the list; clear it in any case. */
ls_status ls__corpus_files_find(ls_ctx *ctx, const char *path, ls_corpus_format format,
                                ls_corpus_files *out);
void ls__corpus_files_clear(ls_ctx *ctx, ls_corpus_files *files);

#endif
