/* What the files of byte-level pair encoding share; no other room includes this. */
#ifndef LS_DATA_BPE_H
#define LS_DATA_BPE_H

#include "data/tokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#define LS_BPE_END_TEXT "<|endoftext|>"
enum { LS_BPE_VOCABULARY_MOST = 1 << 24, LS_BPE_TOKEN_BYTES = 512 };

/* Merge number r joins left and right into result; a smaller r is applied first. */
typedef struct ls_bpe_merge {
    int32_t left, right, result;
} ls_bpe_merge;

struct ls_tokenizer {
    ls_allocator allocator; /* a copy, so that PCRE2 can keep a pointer to it */
    bool bpe;               /* the rest is for bpe alone */
    int64_t vocabulary;
    int32_t end;
    uint64_t hash;
    uint8_t *pool;   /* the bytes of all tokens, by id */
    uint32_t *begin; /* [vocabulary + 1] into pool */
    bool *plain;     /* [vocabulary] written in vocab.json as itself, not in the byte alphabet */
    int32_t byte_id[256];
    ls_bpe_merge *merges;
    int32_t merge_count;
    int32_t *pair_slots; /* open addressing: merge number, or -1 */
    size_t pair_mask;
    pcre2_general_context *memory;
    pcre2_code *pattern;
};

/* The merge number of a pair, or -1. */
int32_t ls__bpe_rank(const ls_tokenizer *tokenizer, int32_t left, int32_t right);

/* Tables made of the tokens and merges that the caller has filled in: byte ids, pair slots, hash,
 * pattern, end. LS_EINPUT where a byte has no token or a pair is merged twice. */
ls_status ls__bpe_complete(ls_ctx *ctx, ls_tokenizer *tokenizer, const char *what);

/* Code point (at most 323) that stands for a byte in the files, and back (-1: none). */
int32_t ls__bpe_letter_of(uint8_t byte);
int32_t ls__bpe_byte_of(int32_t letter);

/* Cuts text into the words of GPT-2's pattern and hands each to `take`; bytes that are not UTF-8
 * are words of one byte. `match` comes from ls__bpe_match_new. */
typedef ls_status (*ls_bpe_take)(ls_ctx *ctx, void *user, const uint8_t *word, size_t length);
ls_status ls__bpe_words(ls_ctx *ctx, const ls_tokenizer *tokenizer, pcre2_match_data *match,
                        const uint8_t *text, size_t length, ls_bpe_take take, void *user);
ls_status ls__bpe_match_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, pcre2_match_data **out);

/* Writes vocab.json and merges.txt. */
ls_status ls__bpe_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);

#endif
