/* Token files: tokenised documents in one file.
 *
 *   header (128 bytes) | tokens, 2 or 4 bytes each, zero-padded to 8 | document starts, u64
 *   [documents + 1] | bytes of each document's text, u64 [documents]
 *
 * All numbers little-endian. Header: "LSTOKENS", u32 version, u32 width, then u64 vocabulary,
 * tokenizer hash, key, documents, tokens, text bytes, XXH3 of everything after the header, zeros,
 * and at 120 the XXH3 of the header before it. A file is written whole and renamed, and checked
 * whole when opened, so that every id is known to be inside the vocabulary. What is read later is
 * compared, by pieces, with what it was then: a file may be cut or overwritten meanwhile.
 *
 * Where the tokenizer has an end-of-document id, every document ends with it. */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include "base/file.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

typedef struct ls_token_file ls_token_file;
typedef struct ls_token_writer ls_token_writer;

/* Opens and validates; LS_EINPUT says what is wrong with which file. The caller owns *out. */
ls_status ls_token_file_open(ls_ctx *ctx, const char *path, ls_token_file **out);
/* The same over bytes the caller keeps alive. */
ls_status ls_token_file_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                             ls_token_file **out);
void ls_token_file_close(ls_ctx *ctx, ls_token_file *file); /* NULL is fine */

int64_t ls_token_file_documents(const ls_token_file *file);
int64_t ls_token_file_tokens(const ls_token_file *file);
int64_t ls_token_file_text_bytes(const ls_token_file *file);
int64_t ls_token_file_vocabulary(const ls_token_file *file);
uint64_t ls_token_file_tokenizer(const ls_token_file *file); /* its ls_tokenizer_hash */
uint64_t ls_token_file_key(const ls_token_file *file);       /* as given to the writer */
uint64_t ls_token_file_hash(const ls_token_file *file);      /* of the contents */

/* Tokens [begin, begin + count) of the concatenated documents; the range must be inside. Zeros
 * where the file is no longer what it was: who has read asks ls_token_file_status, which then names
 * the file. */
void ls_token_file_read(const ls_token_file *file, int64_t begin, int64_t count, int32_t *out);
ls_status ls_token_file_status(ls_ctx *ctx, const ls_token_file *file);
/* Where a document begins, how many tokens it has and how many bytes of text it stands for. */
typedef struct ls_token_span {
    int64_t begin, count, text_bytes;
} ls_token_span;
ls_token_span ls_token_file_document(const ls_token_file *file, int64_t index);
/* The document that holds a token, by bisection. */
int64_t ls_token_file_document_at(const ls_token_file *file, int64_t token);
/* The first document from `from` on with at least `least` tokens, or -1. */
int64_t ls_token_file_next_long(const ls_token_file *file, int64_t from, int64_t least);

/* Streams documents to a temporary file beside path; finish makes it durable and renames it, free
 * without finish removes it. The key is the caller's: it tells a file of other data under the same
 * name. */
ls_status ls_token_writer_new(ls_ctx *ctx, const char *path, const ls_tokenizer *tokenizer,
                              uint64_t key, ls_token_writer **out);
ls_status ls_token_writer_add(ls_ctx *ctx, ls_token_writer *writer, const int32_t *ids,
                              size_t count, size_t text_bytes);
ls_status ls_token_writer_finish(ls_ctx *ctx, ls_token_writer *writer);
void ls_token_writer_free(ls_ctx *ctx, ls_token_writer *writer);

typedef enum {
    LS_SPLIT_TRAIN,
    LS_SPLIT_VALIDATION,
    LS_SPLIT_TEST,
    LS_SPLIT_ALL,
    LS_SPLIT_NONE, /* documents that are left out */
} ls_token_side;

ls_token_side ls_token_side_of(const ls_document *document);

/* Tokenises the documents of one side of a split corpus into a file. */
ls_status ls_token_file_build(ls_ctx *ctx, ls_corpus *corpus, const ls_tokenizer *tokenizer,
                              ls_token_side split, uint64_t key, const char *path);

#endif
