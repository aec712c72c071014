/* Requests for completions: JSON from outside, read whole and checked before anything is done.
 * Every number has a range; a member that is not known is refused by name. */
#ifndef LS_SERVE_REQUEST_H
#define LS_SERVE_REQUEST_H

#include "base/json.h"
#include "data/tokenizer.h"
#include "model/model.h"
#include "serve/scored.h"
#include "serve/template.h"

enum { LS_REQUEST_CHOICES = 128, LS_REQUEST_STOPS = 16, LS_REQUEST_STOP_BYTES = 256 };

/* What requests are read against: the same throughout a server's life. */
typedef struct ls_serving {
    const ls_tokenizer *tokenizer;
    const char *model;        /* its name in requests and answers */
    int64_t vocabulary;       /* of the model: ids are below it */
    int64_t context;          /* tokens of a sequence at most */
    unsigned text_flags;      /* LS_ENCODE_TEMPLATE where the checkpoint expects it */
    const ls_template *chat;  /* NULL: there is none */
    const char *chat_missing; /* then: a sentence why */
} ls_serving;

typedef enum { LS_ASKS_COMPLETION, LS_ASKS_CHAT } ls_asks;

typedef struct ls_request {
    ls_asks kind;
    bool echo, stream, usage; /* usage: a stream ends with the counts */
    int64_t max_tokens, n;
    int64_t tops; /* likeliest tokens told of each place; -1: no log-probabilities at all */
    ls_sampling how;
    size_t stops;
    struct ls_stop_text {
        char bytes[LS_REQUEST_STOP_BYTES];
        size_t length;
    } stop[LS_REQUEST_STOPS];
    ls_ids *prompt; /* [prompts], each at least one id */
    size_t prompts;
} ls_request;

/* LS_EUSE in one sentence for what is not as it should be; clear *out in any case. */
ls_status ls_request_read(ls_ctx *ctx, const ls_serving *serving, ls_asks kind, const char *body,
                          size_t length, ls_request *out);
void ls_request_clear(ls_ctx *ctx, ls_request *request);

/* The bodies of /tokenize and /detokenize: ids of a text, and ids given. `with_pieces`: whether the
 * client asked for the tokens' texts. */
ls_status ls_request_tokenize(ls_ctx *ctx, const ls_serving *serving, const char *body,
                              size_t length, ls_ids *out, bool *with_pieces);
ls_status ls_request_detokenize(ls_ctx *ctx, const ls_serving *serving, const char *body,
                                size_t length, ls_ids *out);

#endif
