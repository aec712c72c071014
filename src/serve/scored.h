/* What a model thought of the tokens of a text: the log-probability of each, and the likeliest in
 * its place. */
#ifndef LS_SERVE_SCORED_H
#define LS_SERVE_SCORED_H

#include "base/memory.h"

enum { LS_TOP_MAX = 20 };

/* [count] and [count, tops]; zero-initialise with `tops` set. */
typedef struct ls_scored {
    int64_t tops; /* kept of each place; -1: nothing is kept at all */
    size_t count, capacity;
    struct ls_scored_token {
        int32_t token;
        bool given; /* false: nothing came before it, so there is no probability */
        float logprob;
    } * at;
    struct ls_scored_top {
        int32_t token;
        float logprob;
    } * top; /* the likeliest first */
    size_t top_capacity;
} ls_scored;

/* Adds a token and what logits [vocabulary] after those before it say of it; NULL: the first. */
ls_status ls_scored_add(ls_ctx *ctx, ls_scored *scored, int32_t token, const double *logits,
                        int64_t vocabulary);
/* The first `count` of another, with as many or fewer tops. */
ls_status ls_scored_copy(ls_ctx *ctx, ls_scored *to, const ls_scored *from, size_t count);
size_t ls_scored_bytes(const ls_scored *scored);
void ls_scored_clear(ls_ctx *ctx, ls_scored *scored);

#endif
