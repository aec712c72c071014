/* What every kind of tokenizer has; no other room includes this. A kind is one file that defines an
 * ls_tokenizer_type and a struct that begins with ls_tokenizer. */
#ifndef LS_DATA_TOKENIZER_KIND_H
#define LS_DATA_TOKENIZER_KIND_H

#include "data/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

typedef struct ls_tokenizer_type {
    const char *name;
    void (*clear)(ls_ctx *ctx, ls_tokenizer *tokenizer); /* what the kind itself holds, or NULL */
    /* writes the tokenizer into a folder; NULL: its kept files are written */
    ls_status (*save)(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);
    /* as the library that the kind comes from decodes; NULL: the pieces are joined */
    ls_status (*decode)(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                        size_t count, unsigned flags, ls_text *out);
    size_t encoder_size; /* of the kind's encoder, which begins with ls_encoder */
    ls_status (*encoder_init)(ls_ctx *ctx, ls_encoder *encoder); /* or NULL */
    void (*encoder_clear)(ls_ctx *ctx, ls_encoder *encoder); /* or NULL; after init failed too */
    ls_status (*encode)(ls_ctx *ctx, ls_encoder *encoder, const uint8_t *text, size_t length,
                        unsigned flags, ls_ids *out);
} ls_tokenizer_type;

/* A file as it was read, for saving. */
typedef struct ls_kept_file {
    const char *name; /* a constant */
    ls_text text;
} ls_kept_file;

enum { LS_KEPT_FILES = 2 };

struct ls_tokenizer {
    const ls_tokenizer_type *kind;
    int64_t vocabulary;
    uint64_t hash;
    ls_special_ids special;
    ls_vocabulary pieces; /* the bytes that each id adds to a text */
    ls_kept_file files[LS_KEPT_FILES];
};

struct ls_encoder {
    const ls_tokenizer *tokenizer;
};

/* A zeroed tokenizer of `size` bytes, with no special ids. Free it with ls_tokenizer_free. */
ls_status ls__tokenizer_new(ls_ctx *ctx, const ls_tokenizer_type *kind, size_t size, void *out);
/* Keeps a copy of a file for ls_tokenizer_save; `name` is a constant. */
ls_status ls__tokenizer_keep(ls_ctx *ctx, ls_tokenizer *tokenizer, const char *name,
                             const void *bytes, size_t length);
/* The bytes that a token spells in GPT-2's byte alphabet, at most `length` of them; false where a
 * letter is not of the alphabet. */
bool ls__byte_letters_read(const char *text, size_t length, uint8_t *out, size_t *out_length);
/* The letter (a code point of at most 323) of a byte, and the byte of a letter (-1: none). */
int32_t ls__byte_letter(uint8_t byte);
int32_t ls__letter_byte(int32_t letter);

#define LS_BYTE_FILE "byte_tokenizer.json" /* what the kind `byte` is saved as */

/* From the text of the files; `config` (may be empty) is tokenizer_config.json. */
ls_status ls__tokenizer_new_json(ls_ctx *ctx, const ls_text *json, const ls_text *config,
                                 const char *what, ls_tokenizer **out);
ls_status ls__tokenizer_new_sentencepiece(ls_ctx *ctx, const ls_text *model, const ls_text *config,
                                          const char *what, ls_tokenizer **out);
/* BERT's vocab.txt, one token a line. */
ls_status ls__tokenizer_new_vocab_txt(ls_ctx *ctx, const ls_text *lines, const ls_text *config,
                                      const char *what, ls_tokenizer **out);

/* Of GGUF files. */
ls_status ls__tokenizer_load_gguf(ls_ctx *ctx, const char *path, ls_tokenizer **out);
bool ls__tokenizer_is_in_gguf(const char *path);

#endif
