/* Tokenisers: text to whole numbers and back.
 *
 * Two kinds. `byte`: the 256 byte values themselves, no end-of-document id, so documents are kept
 * apart by the borders of the token file alone. `bpe`: byte-level pair encoding in the files of
 * GPT-2 (vocab.json + merges.txt, or encoder.json + vocab.bpe), with its word pattern and
 * <|endoftext|> as the end of a document.
 *
 * Every byte string, valid UTF-8 or not, encodes and decodes back to itself.
 *
 * A tokenizer never changes once made and may be shared between threads; what encoding needs to
 * scribble on lives in an encoder, one per thread. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include "base/memory.h"

typedef struct ls_tokenizer ls_tokenizer;
typedef struct ls_encoder ls_encoder;
typedef struct ls_bpe_trainer ls_bpe_trainer;

/* A growable array of ids; zero-initialise, clear at the end. */
typedef struct ls_ids {
    int32_t *at;
    size_t count, capacity;
} ls_ids;
ls_status ls_ids_append(ls_ctx *ctx, ls_ids *ids, const int32_t *more, size_t count);
void ls_ids_clear(ls_ctx *ctx, ls_ids *ids);

ls_status ls_tokenizer_new_byte(ls_ctx *ctx, ls_tokenizer **out);

/* From the two files' contents, which are only read during the call; `what` names them in
 * messages. LS_EINPUT unless ids are dense, every byte has a token, and every merge joins two
 * known tokens into a third. */
ls_status ls_tokenizer_new_bpe(ls_ctx *ctx, const char *vocab, size_t vocab_length,
                               const char *merges, size_t merges_length, const char *what,
                               ls_tokenizer **out);

/* `source` is "byte", a folder holding either pair of files (or what ls_tokenizer_save wrote), or
 * the two paths joined by a comma: vocab.json,merges.txt. The caller owns *out. */
ls_status ls_tokenizer_load(ls_ctx *ctx, const char *source, ls_tokenizer **out);

/* Writes into an existing folder what ls_tokenizer_load and, for bpe, GPT-2 tools read. */
ls_status ls_tokenizer_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);
void ls_tokenizer_free(ls_ctx *ctx, ls_tokenizer *tokenizer); /* NULL is fine */

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer); /* "byte" or "bpe" */
int64_t ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer); /* id of end-of-document, or -1 */
/* The same for two tokenisers exactly where they give the same ids to every text. */
uint64_t ls_tokenizer_hash(const ls_tokenizer *tokenizer);

/* Appends the bytes of the ids. Bytes of a cut sequence join to the bytes of the whole, so any cut
 * may be decoded alone. LS_EINPUT for an id outside the vocabulary. */
ls_status ls_tokenizer_decode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                              size_t count, ls_text *out);

/* The encoder borrows the tokenizer, which must outlive it. */
ls_status ls_encoder_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoder **out);
void ls_encoder_free(ls_ctx *ctx, ls_encoder *encoder);

/* Appends the ids of a text. With `special`, "<|endoftext|>" in the text becomes the end id; text
 * from outside should be encoded without, so that it cannot forge a border. */
ls_status ls_encoder_encode(ls_ctx *ctx, ls_encoder *encoder, const char *text, size_t length,
                            bool special, ls_ids *out);

/* One text with an encoder of its own: for prompts, not for corpora. */
ls_status ls_tokenizer_encode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *text,
                              size_t length, bool special, ls_ids *out);

/* Training: feed texts, then finish once. The result depends on the texts only through how often
 * each word occurs; of pairs that are equally frequent the one with the smaller ids is merged. */
ls_status ls_bpe_trainer_new(ls_ctx *ctx, ls_bpe_trainer **out);
ls_status ls_bpe_trainer_add(ls_ctx *ctx, ls_bpe_trainer *trainer, const char *text, size_t length);
/* A tokenizer of `vocabulary` ids (at least 257: the bytes and the end), or of fewer where no pair
 * of the texts occurs twice any more. The trainer is still to be freed. */
ls_status ls_bpe_trainer_finish(ls_ctx *ctx, ls_bpe_trainer *trainer, int64_t vocabulary,
                                ls_tokenizer **out);
void ls_bpe_trainer_free(ls_ctx *ctx, ls_bpe_trainer *trainer);

#endif
