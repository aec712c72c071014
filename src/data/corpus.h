/* Corpora: documents of text, one after another, from files as they are.
 *
 * A text file is one document; a folder is one document per text file, in the order of their
 * paths; a JSONL file is one document per line. Any of these may be zstd-compressed. Empty
 * documents are skipped. `default` is the documentation of Perl as Debian's perl-doc installs it.
 *
 * The split. Documents are sorted into classes by length (under 1 KiB, then by factors of four);
 * inside a class those with the smallest hash of their name are the test documents: the share
 * rounded to the nearest number, but at least one of a class of two or more. So the test has its
 * long documents, and where the corpus lies does not matter. Validation documents are the next of
 * each class, likewise; training keeps half of every class. A corpus of a single document is cut:
 * its last part, from the start of a line on, is the test document, the part before it that of
 * validation. */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H

#include "base/memory.h"

typedef struct ls_corpus ls_corpus;

typedef enum {
    LS_CORPUS_AUTO, /* folder, or by the name: .jsonl and .ndjson, else text */
    LS_CORPUS_TEXT,
    LS_CORPUS_FOLDER,
    LS_CORPUS_JSONL, /* a file, or a folder of .jsonl and .ndjson files */
} ls_corpus_format;

typedef struct ls_document {
    const char *name; /* relative to the corpus; lines of JSONL add :NUMBER */
    const char *text; /* NULL after the last document */
    size_t length;
    int64_t index;         /* among the documents of the corpus, empty ones not counted */
    bool test, validation; /* false until ls_corpus_split */
    bool left_out;         /* it is for nothing: ls_corpus_leave_out */
} ls_document;

/* Lists the files; of those in a folder the beginnings are looked at. `path` may be "default".
 * LS_EINPUT, with a sentence that says what to do, where there is nothing to read. The caller owns
 * *out. */
ls_status ls_corpus_open(ls_ctx *ctx, const char *path, ls_corpus_format format,
                         const char *text_key, ls_corpus **out);
/* Adds what lies at another path; its documents bear their whole paths as names. */
ls_status ls_corpus_add(ls_ctx *ctx, ls_corpus *corpus, const char *path, ls_corpus_format format);
void ls_corpus_free(ls_ctx *ctx, ls_corpus *corpus);
/* Whether one of its files, at least, is JSONL. */
bool ls_corpus_has_jsonl(const ls_corpus *corpus);

/* The same as long as the files' names, sizes and times of change are. */
uint64_t ls_corpus_key(const ls_corpus *corpus);

/* The next document; its memory is the corpus's and lasts until the next call. LS_EINPUT names file
 * and line of what cannot be read. */
ls_status ls_corpus_next(ls_ctx *ctx, ls_corpus *corpus, ls_document *out);
void ls_corpus_rewind(ls_ctx *ctx, ls_corpus *corpus);

/* Shares of the documents, each 0 to 0.5; 0: none. */
typedef struct ls_corpus_shares {
    double test, validation;
} ls_corpus_shares;
/* Reads all documents once, decides which are for what, rewinds. LS_EINPUT where the corpus holds
 * no text. */
ls_status ls_corpus_split(ls_ctx *ctx, ls_corpus *corpus, ls_corpus_shares shares);
/* A document by its index is for nothing from now on, until the next split. The parts of a lone
 * document stay. */
void ls_corpus_leave_out(ls_corpus *corpus, int64_t index);

#endif
