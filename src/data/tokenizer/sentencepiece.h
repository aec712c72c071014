/* What the files of the kind `sentencepiece` share. */
#ifndef LS_DATA_TOKENIZER_SENTENCEPIECE_H
#define LS_DATA_TOKENIZER_SENTENCEPIECE_H

#include "data/tokenizer/added.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/merge.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/unigram.h"

typedef enum {
    LS_PIECE_NORMAL = 1,
    LS_PIECE_UNKNOWN,
    LS_PIECE_CONTROL,
    LS_PIECE_USER,
    LS_PIECE_UNUSED,
    LS_PIECE_BYTE,
} ls_piece_type;

typedef struct ls_sentencepiece {
    ls_tokenizer base;
    ls_vocabulary names; /* pieces as the file spells them; normal, user and unused are indexed */
    float *scores;
    uint8_t *types;
    bool bpe, byte_fallback, suffix;         /* suffix: white space belongs to the end of a word */
    bool dummy_prefix, remove_extra, escape; /* the normaliser's switches */
    char *unk_surface;                       /* what an unknown piece decodes to */
    int32_t unk, byte_id[256];
    ls_charsmap map;
    ls_trie user; /* user-defined pieces */
    bool any_user, any_unused;
    ls_unigram unigram; /* or */
    ls_merges merges;   /* over ids, and over LS_STRANGER(point) for characters without one */
    int32_t *direct;    /* [LS_DIRECT] ids of characters */
    ls_added added;     /* from tokenizer_config.json: recognised in texts */
    ls_post_processor post;
} ls_sentencepiece;

/* The symbol of a character that is no piece. */
#define LS_STRANGER(sp, point) ((sp)->names.count + (point))

/* Reads the protobuf into a zeroed struct: names, scores, types, switches, map, special ids. */
ls_status ls__sentencepiece_parse(ls_ctx *ctx, const uint8_t *bytes, size_t length,
                                  const char *what, ls_sentencepiece *out);

typedef struct ls_piece_split {
    int32_t left, right;
} ls_piece_split;
typedef struct ls_sentencepiece_encoder {
    ls_encoder base;
    ls_text normal;
    ls_merge_work merge;
    ls_unigram_work unigram;
    struct ls_cached_word *cache;
    ls_ids symbols, stack;
    ls_piece_split *splits; /* [pieces] how an unused piece was merged */
    ls_ids *out;
    size_t begin; /* of the present text's ids in out */
} ls_sentencepiece_encoder;
void ls__sentencepiece_encoder_clear(ls_ctx *ctx, ls_encoder *encoder);
ls_status ls__sentencepiece_encode(ls_ctx *ctx, ls_encoder *encoder, const uint8_t *text,
                                   size_t length, unsigned flags, ls_ids *out);

#endif
