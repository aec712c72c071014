/* The pre-tokenisers of tokenizer.json: text to the words that the model is given one by one. */
#ifndef LS_DATA_TOKENIZER_PRETOKENIZER_H
#define LS_DATA_TOKENIZER_PRETOKENIZER_H

#include "base/json.h"
#include "data/tokenizer/pattern.h"

typedef struct ls_pretokenizer_step ls_pretokenizer_step;
typedef struct ls_pretokenizer {
    ls_pretokenizer_step *steps;
    size_t count, capacity;
    bool bytes; /* ByteLevel: the words are bytes, each of which stands for a letter */
    int prefix; /* tokenizer_config.json's add_prefix_space for ByteLevel: 0, 1, or -1: the file's
                 */
} ls_pretokenizer;

/* Adds the steps of a pre-tokeniser (null: none). LS_EINPUT naming what is not understood. */
ls_status ls__pretokenizer_read(ls_ctx *ctx, const json_t *json, const char *what,
                                ls_pretokenizer *out);
void ls__pretokenizer_clear(ls_ctx *ctx, ls_pretokenizer *pretokenizer);

/* What one thread works with. Zero-initialise, set the first three. */
typedef struct ls_pretokenizing {
    const ls_pretokenizer *pretokenizer;
    ls_status (*take)(ls_ctx *ctx, void *user, const uint8_t *word, size_t length);
    void *user;
    ls_matcher *matcher;
    ls_text *texts; /* [steps + 1] */
} ls_pretokenizing;
ls_status ls__pretokenizing_init(ls_ctx *ctx, ls_pretokenizing *p); /* makes texts */
void ls__pretokenizing_clear(ls_ctx *ctx, ls_pretokenizing *p);

/* Hands the words of valid UTF-8 to `take`. `start`: the text begins the whole input. */
ls_status ls__pretokenize(ls_ctx *ctx, ls_pretokenizing *p, const uint8_t *text, size_t length,
                          bool start);

#endif
