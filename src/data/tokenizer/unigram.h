/* The most likely division of a text into pieces (Viterbi), for tokenizer.json's Unigram and for
 * SentencePiece's. */
#ifndef LS_DATA_TOKENIZER_UNIGRAM_H
#define LS_DATA_TOKENIZER_UNIGRAM_H

#include "data/tokenizer/trie.h"

typedef struct ls_unigram {
    ls_trie trie;   /* pieces to ids */
    double *scores; /* by id */
    bool *user;     /* by id, or NULL: user-defined, scored by user_score for each byte */
    float user_score;
    double unk_score; /* of a character that is no piece */
    int32_t unk;      /* the id of such a character */
    bool single;      /* sums are rounded to f32, as SentencePiece's are */
} ls_unigram;
void ls__unigram_clear(ls_ctx *ctx, ls_unigram *unigram);

typedef struct ls_unigram_node {
    double score;    /* of the best way here */
    int32_t id;      /* its last piece ... */
    uint32_t length; /* ... and the bytes of that; 0: no way yet */
} ls_unigram_node;
typedef struct ls_unigram_work {
    ls_unigram_node *nodes;
    size_t capacity;
    uint32_t *ends;
    size_t end_capacity;
} ls_unigram_work;
void ls__unigram_work_clear(ls_ctx *ctx, ls_unigram_work *work);

/* Hands the pieces of valid UTF-8 to `take` in order. */
typedef ls_status (*ls_unigram_take)(ls_ctx *ctx, void *user, const uint8_t *piece, size_t length,
                                     int32_t id);
ls_status ls__unigram_run(ls_ctx *ctx, const ls_unigram *unigram, ls_unigram_work *work,
                          const uint8_t *text, size_t length, ls_unigram_take take, void *user);

#endif
