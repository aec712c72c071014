/* The models of tokenizer.json: a word to ids. A model is one file that defines a type. */
#ifndef LS_DATA_TOKENIZER_SUBWORD_H
#define LS_DATA_TOKENIZER_SUBWORD_H

#include "base/json.h"
#include "data/tokenizer/merge.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/word_cache.h"

typedef struct ls_subword_type ls_subword_type;
typedef struct ls_subword {
    const ls_subword_type *type;
    ls_vocabulary vocabulary; /* tokens as the file spells them, indexed */
    int32_t unk;              /* -1: none */
} ls_subword;

/* What one thread scribbles on. Zero-initialise. */
typedef struct ls_subword_work {
    ls_merge_work merge;
    ls_unigram_work unigram;
    ls_word_cache cache;
} ls_subword_work;
void ls__subword_work_clear(ls_ctx *ctx, ls_subword_work *work);

struct ls_subword_type {
    const char *name;
    size_t size; /* of its struct, which begins with ls_subword */
    /* fills a zeroed struct. `bytes`: words will be bytes that stand for letters of the byte
     * alphabet */
    ls_status (*read)(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                      ls_subword *out);
    void (*clear)(ls_ctx *ctx, ls_subword *model); /* but for the vocabulary; or NULL */
    /* appends the ids of a word of at least one byte, valid UTF-8 unless it is bytes */
    ls_status (*encode)(ls_ctx *ctx, const ls_subword *model, ls_subword_work *work,
                        const uint8_t *word, size_t length, ls_ids *out);
};
extern const ls_subword_type ls__subword_bpe, ls__subword_unigram, ls__subword_wordpiece;

/* The model that `json` describes; LS_EINPUT naming what is not understood. */
ls_status ls__subword_new(ls_ctx *ctx, const json_t *json, bool bytes, const char *what,
                          ls_subword **out);
void ls__subword_free(ls_ctx *ctx, ls_subword *model); /* NULL is fine */
/* The same through the cache of words. */
ls_status ls__subword_encode(ls_ctx *ctx, const ls_subword *model, ls_subword_work *work,
                             const uint8_t *word, size_t length, ls_ids *out);

/* For types: a vocabulary {"token": id}; the token named by `key`, -1 where it is null. */
ls_status ls__subword_vocabulary(ls_ctx *ctx, const json_t *vocab, const char *what,
                                 ls_vocabulary *out);
ls_status ls__subword_unknown(ls_ctx *ctx, const json_t *json, const char *what, ls_subword *model);
/* The ids of <0x00> to <0xFF>, -1 for those that are not there. */
void ls__subword_byte_ids(const ls_vocabulary *vocabulary, int32_t out[256]);

#endif
