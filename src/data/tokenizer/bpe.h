/* What the files of the kind `bpe` share: byte-level pair encoding with GPT-2's word pattern and
 * <|endoftext|> as the end of a document. */
#ifndef LS_DATA_TOKENIZER_BPE_H
#define LS_DATA_TOKENIZER_BPE_H

#include "data/tokenizer/kind.h"
#include "data/tokenizer/merge.h"
#include "data/tokenizer/pattern.h"

#define LS_BPE_END_TEXT "<|endoftext|>"
enum { LS_BPE_TOKEN_BYTES = 512 };

typedef struct ls_bpe {
    ls_tokenizer base; /* pieces: the bytes of all tokens */
    bool *plain;       /* [vocabulary] written in vocab.json as itself, not in the byte alphabet */
    int32_t byte_id[256];
    ls_merges merges; /* the rank of a merge is its number */
    ls_pattern *pattern;
} ls_bpe;

extern const ls_tokenizer_type ls__bpe_kind;

/* Tables made of the tokens and merges that the caller has filled in: byte ids, pairs, hash,
 * pattern, end. LS_EINPUT where a byte has no token or a pair is merged twice. */
ls_status ls__bpe_complete(ls_ctx *ctx, ls_bpe *bpe, const char *what);

/* Cuts text into the words of a pattern and hands each to `take`; bytes that are not UTF-8 are
 * words of one byte. */
typedef ls_status (*ls_bpe_take)(ls_ctx *ctx, void *user, const uint8_t *word, size_t length);
ls_status ls__bpe_words(ls_ctx *ctx, const ls_pattern *pattern, ls_matcher *matcher,
                        const uint8_t *text, size_t length, ls_bpe_take take, void *user);

/* Writes vocab.json and merges.txt. */
ls_status ls__bpe_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder);
void ls__bpe_clear(ls_ctx *ctx, ls_tokenizer *tokenizer);

#endif
