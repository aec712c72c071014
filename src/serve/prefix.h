/* Beginnings of prompts that were computed before: a stream after each, from which another prompt
 * that begins alike is forked. Kept up to so many bytes; the one unused for longest goes first. */
#ifndef LS_SERVE_PREFIX_H
#define LS_SERVE_PREFIX_H

#include "data/tokenizer.h"
#include "model/model.h"
#include "serve/scored.h"

typedef struct ls_prefix {
    int32_t *tokens; /* [count] */
    int64_t count;
    ls_stream *stream;
    /* where it was scored (tops >= 0): what of its tokens, and the logits after the last */
    ls_scored scored;
    double *last;
    size_t bytes;
    uint64_t used;
} ls_prefix;

typedef struct ls_prefixes {
    ls_prefix *at;
    size_t count, capacity;
    size_t bytes, most; /* held; allowed */
    uint64_t clock;
} ls_prefixes;

/* The longest one that `ids` [count] begin with, with at least so many tops of each token (-1: it
 * need not be scored), or NULL. Valid until the next call. */
const ls_prefix *ls_prefix_find(ls_prefixes *all, const int32_t *ids, int64_t count, int64_t tops);
/* How many tokens `ids` have in common with any of them. */
int64_t ls_prefix_shared(const ls_prefixes *all, const int32_t *ids, int64_t count);
/* Keeps a fork of the stream after ids [count]. scored and last (or NULL, not scored) are copied.
 * LS_OK also where it is too large to be kept. */
ls_status ls_prefix_keep(ls_ctx *ctx, ls_prefixes *all, const int32_t *ids, int64_t count,
                         const ls_stream *stream, const ls_scored *scored, const double *last,
                         int64_t vocabulary);
void ls_prefixes_clear(ls_ctx *ctx, ls_prefixes *all);

#endif
