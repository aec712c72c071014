/* Answers as JSON: the shapes that clients of OpenAI's interface read. */
#ifndef LS_SERVE_ANSWER_H
#define LS_SERVE_ANSWER_H

#include "serve/batch.h"

/* Which answer of which model, for its id and its time. */
typedef struct ls_answer_head {
    const ls_serving *serving;
    uint64_t number;
    int64_t created; /* seconds since 1970 */
} ls_answer_head;

/* The whole answer of a job that has ended. */
ls_status ls_answer_write(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job, ls_text *out);

/* What a stream has been sent of a choice; zero-initialise. */
typedef struct ls_answer_sent {
    bool begun, ended;
    size_t text;   /* bytes */
    size_t scored; /* entries */
    int64_t characters;
} ls_answer_sent;
/* Appends events with what a choice has beyond that. Characters stay whole, and what may become a
 * stop waits. */
ls_status ls_answer_event(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job,
                          const ls_choice *choice, ls_answer_sent *sent, ls_text *out);
/* Ends the events of a job. */
ls_status ls_answer_last(ls_ctx *ctx, const ls_answer_head *head, const ls_job *job, ls_text *out);

/* {"error": {...}}, with the sentence. */
ls_status ls_answer_error(ls_ctx *ctx, int code, const char *sentence, ls_text *out);

/* A JSON text of bytes; what is not UTF-8 becomes U+FFFD. */
void ls_answer_text(ls_ctx *ctx, const char *bytes, size_t length, ls_text *out);
/* A token's bytes as clients read them: parts of characters as bytes:\\x.. */
ls_status ls_answer_token(ls_ctx *ctx, const ls_serving *serving, int32_t token, ls_text *out);

ls_status ls_answer_models(ls_ctx *ctx, const ls_answer_head *head, ls_text *out);
ls_status ls_answer_tokens(ls_ctx *ctx, const ls_serving *serving, const ls_ids *ids,
                           bool with_pieces, ls_text *out);
ls_status ls_answer_detokenized(ls_ctx *ctx, const ls_serving *serving, const ls_ids *ids,
                                ls_text *out);
ls_status ls_answer_tokenizer(ls_ctx *ctx, const ls_serving *serving, const char *chat_template,
                              ls_text *out);

#endif
