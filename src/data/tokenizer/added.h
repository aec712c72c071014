/* Added tokens: strings that are cut out of a text before anything else looks at it. */
#ifndef LS_DATA_TOKENIZER_ADDED_H
#define LS_DATA_TOKENIZER_ADDED_H

#include "base/json.h"
#include "data/tokenizer/trie.h"

typedef struct ls_added_token {
    int32_t id;
    bool special, normalized, lstrip, rstrip, single_word;
    char *content; /* what is searched: of a normalized one its normal form */
    size_t length;
} ls_added_token;

typedef struct ls_added {
    ls_added_token *tokens;
    size_t count, capacity;
    ls_trie tries[2]; /* of those searched in the raw and in the normalised text */
    bool any[2];
} ls_added;

ls_status ls__added_put(ls_ctx *ctx, ls_added *added, ls_added_token token, const char *content,
                        size_t length);
/* The list `added_tokens` of tokenizer.json. */
ls_status ls__added_read(ls_ctx *ctx, const json_t *list, const char *what, ls_added *out);
/* Makes the tries once all tokens have their last content. */
ls_status ls__added_finish(ls_ctx *ctx, ls_added *added);
void ls__added_clear(ls_ctx *ctx, ls_added *added);

/* The token with an id, or NULL. */
const ls_added_token *ls__added_find(const ls_added *added, int32_t id);

typedef struct ls_added_match {
    const ls_added_token *token; /* NULL: no more */
    size_t begin, end;           /* with the white space it swallows */
    size_t next;                 /* where the search goes on */
} ls_added_match;
/* The next token at or after `from`: leftmost, then longest. `done` is where the token before it
 * ended; without `special` special tokens are text. */
ls_added_match ls__added_next(const ls_added *added, bool normalized, bool special,
                              const uint8_t *text, size_t length, size_t from, size_t done);

#endif
