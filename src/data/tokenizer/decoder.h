/* The decoders of tokenizer.json: a list of tokens to text. */
#ifndef LS_DATA_TOKENIZER_DECODER_H
#define LS_DATA_TOKENIZER_DECODER_H

#include "base/json.h"
#include "data/tokenizer/pattern.h"

typedef struct ls_decoder_step ls_decoder_step;
typedef struct ls_decoder {
    ls_decoder_step *steps;
    size_t count, capacity;
    bool none; /* no decoder: tokens are joined by spaces */
} ls_decoder;

/* Tokens one after the other. Zero-initialise. */
typedef struct ls_token_list {
    ls_text text;
    size_t *ends; /* [count] */
    size_t count, capacity;
} ls_token_list;
ls_status ls__token_list_add(ls_ctx *ctx, ls_token_list *list, const void *bytes, size_t length);
void ls__token_list_clear(ls_ctx *ctx, ls_token_list *list);

/* LS_EINPUT naming what is not understood. */
ls_status ls__decoder_read(ls_ctx *ctx, const json_t *json, const char *what, ls_decoder *out);
void ls__decoder_clear(ls_ctx *ctx, ls_decoder *decoder);

enum {
    LS_DECODER_UTF8 = 1,  /* bytes that are not UTF-8 become U+FFFD */
    LS_DECODER_INNER = 2, /* the tokens stand inside a text: nothing is done for its beginning */
};
/* Appends the text of the tokens, which are used up. */
ls_status ls__decoder_run(ls_ctx *ctx, const ls_decoder *decoder, ls_matcher *matcher,
                          unsigned flags, ls_token_list *tokens, ls_text *out);

#endif
