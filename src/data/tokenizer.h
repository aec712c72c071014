/* Tokenisers: text to whole numbers and back.
 *
 * Kinds, each a file of src/data/tokenizer:
 *   byte           the 256 byte values; no end-of-document id, so documents are kept apart by the
 *                  borders of the token file alone
 *   bpe            byte-level pair encoding in GPT-2's two files, or trained here
 *   tokenizer.json the pipeline of that file: BPE, Unigram or WordPiece
 *   sentencepiece  a SentencePiece .model: unigram or BPE
 * GGUF's embedded vocabularies become one of the last two.
 *
 * Bytes that are not UTF-8: byte, bpe and byte-level BPE of tokenizer.json encode any byte string
 * and give it back; the others read each such byte as U+FFFD, as SentencePiece does.
 *
 * A tokenizer never changes once made and may be shared between threads; what encoding needs to
 * scribble on lives in an encoder, one per thread. */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include "base/gguf.h"

typedef struct ls_tokenizer ls_tokenizer;
typedef struct ls_encoder ls_encoder;
typedef struct ls_bpe_trainer ls_bpe_trainer;

/* A growable array of ids; zero-initialise, clear at the end. */
typedef struct ls_ids {
    int32_t *at;
    size_t count, capacity;
} ls_ids;
ls_status ls_ids_append(ls_ctx *ctx, ls_ids *ids, const int32_t *more, size_t count);
/* Adds the ids of a text, which is ended by a zero: between commas or blanks, or as JSON, a list or
 * an object that has one as `ids`. LS_EUSE or LS_EINPUT where something is no id. */
ls_status ls_ids_parse(ls_ctx *ctx, const char *text, size_t length, ls_ids *out);
void ls_ids_clear(ls_ctx *ctx, ls_ids *ids);

ls_status ls_tokenizer_new_byte(ls_ctx *ctx, ls_tokenizer **out);

/* From the two files' contents, which are only read during the call; `what` names them in
 * messages. LS_EINPUT unless ids are dense, every byte has a token, and every merge joins two
 * known tokens into a third. */
ls_status ls_tokenizer_new_bpe(ls_ctx *ctx, const char *vocab, size_t vocab_length,
                               const char *merges, size_t merges_length, const char *what,
                               ls_tokenizer **out);

/* From tokenizer.json or a SentencePiece model in memory; `config` (NULL: none) is the text of
 * tokenizer_config.json. What is not understood is LS_EINPUT with a sentence that names it. */
ls_status ls_tokenizer_new_json(ls_ctx *ctx, const char *json, size_t length, const char *config,
                                const char *what, ls_tokenizer **out);
ls_status ls_tokenizer_new_sentencepiece(ls_ctx *ctx, const void *model, size_t length,
                                         const char *config, const char *what, ls_tokenizer **out);

/* A vocabulary as a GGUF file holds it (keys tokenizer.ggml.*). Everything is only read during the
 * call. */
typedef struct ls_gguf_vocabulary {
    const char *model;        /* gpt2, llama, t5, bert */
    const char *pre;          /* name of the word pattern, or NULL: the architecture tells */
    const char *architecture; /* general.architecture, or NULL */
    const ls_gguf_text *tokens, *merges;
    size_t token_count, merge_count;
    const float *scores;  /* [token_count] or NULL */
    const int32_t *types; /* [token_count] or NULL: 1 normal, 2 unknown, 3 control, 4 user-defined,
                             5 unused, 6 byte */
    int64_t bos, eos, unk, pad, cls, sep; /* -1: not in the file */
    int add_bos, add_eos;                 /* 0, 1, or -1: not in the file */
    int add_space_prefix, remove_extra_whitespaces;
    const uint8_t *charsmap; /* precompiled_charsmap, or NULL */
    size_t charsmap_length;
} ls_gguf_vocabulary;
extern const ls_gguf_vocabulary ls_gguf_vocabulary_empty; /* nothing in the file */
ls_status ls_tokenizer_new_gguf(ls_ctx *ctx, const ls_gguf_vocabulary *vocabulary, const char *what,
                                ls_tokenizer **out);

/* The one that an open GGUF file holds. */
ls_status ls_tokenizer_new_in_gguf(ls_ctx *ctx, const ls_gguf *file, const char *what,
                                   ls_tokenizer **out);

/* `source` is "byte"; a tokenizer.json, SentencePiece .model, vocab.txt or .gguf; GPT-2's two files
 * joined by a comma, vocab.json,merges.txt; or a folder with any of these, with what
 * ls_tokenizer_save wrote, or with a folder `tokenizer` that has (a run). tokenizer.json comes
 * before the others. The caller owns *out. */
ls_status ls_tokenizer_load(ls_ctx *ctx, const char *source, ls_tokenizer **out);

/* Whether a folder itself has files of a tokenizer, or a GGUF file holds one. */
bool ls_tokenizer_is_in(const char *path);

/* Writes into an existing folder what ls_tokenizer_load reads: the files that a tokenizer was
 * loaded from, or for bpe those of GPT-2. */
ls_status ls_tokenizer_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);
/* Appends the tokenizer as a tokenizer.json: byte, bpe, and those that came as one. */
ls_status ls_tokenizer_json(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_text *out);
/* The same in files that others open: tokenizer.json and tokenizer_config.json for byte and bpe. */
ls_status ls_tokenizer_export(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);
void ls_tokenizer_free(ls_ctx *ctx, ls_tokenizer *tokenizer); /* NULL is fine */

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer); /* as listed above */
/* Ids are below this; some below it may stand for nothing. */
int64_t ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer);
typedef struct ls_special_ids {
    int32_t bos, eos, unk, pad; /* -1: none */
} ls_special_ids;
ls_special_ids ls_tokenizer_special(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer); /* the end of a document: eos, or -1 */
/* The same for two tokenisers only where they give the same ids to every text. */
uint64_t ls_tokenizer_hash(const ls_tokenizer *tokenizer);

/* LS_EINPUT for an id outside the vocabulary. */
ls_status ls_tokenizer_check(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                             size_t count);
/* Appends the bytes of the ids, each by itself: bytes of a cut sequence join to the bytes of the
 * whole, so any cut may be decoded alone. LS_EINPUT for an id outside the vocabulary. */
ls_status ls_tokenizer_decode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                              size_t count, ls_text *out);

enum {
    LS_DECODE_SKIP_SPECIAL = 1, /* special tokens give nothing */
    LS_DECODE_UTF8 = 2,         /* bytes that are not UTF-8 become U+FFFD, as in the libraries */
};
/* Appends the text of a whole sequence as the library of its kind prints it: without the space that
 * encoding put in front, with WordPiece's clean-up. Ids that stand for nothing are left out, and so
 * are those outside the vocabulary. */
ls_status ls_tokenizer_decode_text(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                                   size_t count, unsigned flags, ls_text *out);

/* The encoder borrows the tokenizer, which must outlive it. */
ls_status ls_encoder_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoder **out);
void ls_encoder_free(ls_ctx *ctx, ls_encoder *encoder);

enum {
    /* Special tokens written in the text ("<|endoftext|>") become their ids. Text from outside
     * should be encoded without, so that it cannot forge a border. */
    LS_ENCODE_SPECIAL = 1,
    /* What the tokenizer puts around a text (BOS, EOS) is added. */
    LS_ENCODE_TEMPLATE = 2,
};
/* Appends the ids of a text. */
ls_status ls_encoder_encode(ls_ctx *ctx, ls_encoder *encoder, const char *text, size_t length,
                            unsigned flags, ls_ids *out);

/* One text with an encoder of its own: for prompts, not for corpora. */
ls_status ls_tokenizer_encode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *text,
                              size_t length, unsigned flags, ls_ids *out);

/* What a tokenizer puts around a text: [CLS] and [SEP], for example. */
enum { LS_FRAME_MAX = 8 };
typedef struct ls_frame {
    int32_t before[LS_FRAME_MAX], after[LS_FRAME_MAX];
    int64_t before_count, after_count;
} ls_frame;
ls_status ls_frame_of(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_frame *out);

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
