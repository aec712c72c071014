/* Streams at places of their own, a piece of the same length further together. */
#include "model/stream_internal.h"

/* Weights that stay in the caches: then it is better that each thread takes some of the streams
 * through the whole model than that all of them share every product. */
enum { CACHED_WEIGHTS = 4 << 20 }; /* elements */

/* What is to be fed. */
typedef struct pieces {
    ls_stream *const *streams;
    int64_t count, length;
    const int32_t *tokens; /* [count, length] */
    double *logits;        /* [count, vocabulary] */
} pieces;

static int64_t vocabulary_of(const pieces *p) {
    return p->streams[0]->model->config->model.vocabulary;
}

static pieces part_of(const pieces *all, int64_t part, int64_t parts) {
    const int64_t first = part * all->count / parts, end = (part + 1) * all->count / parts;
    pieces some = *all;
    some.streams += first;
    some.count = end - first;
    some.tokens += first * all->length;
    some.logits += first * vocabulary_of(all);
    return some;
}

static ls_status record(const ls_stream *stream, int64_t batch, int64_t length, ls_program **out) {
    const ls_program_options options = {.batch = batch,
                                        .length = length,
                                        .streaming = true,
                                        .capacity = stream->capacity,
                                        .chunk_max = stream->chunk};
    return ls_model_program(stream->model, LS_MODEL_LOGITS, options, out);
}

/* The programs of the group of that number: made once. */
static ls_status together_for(const pieces *p, int64_t group, ls_together **out) {
    const ls_stream *stream = p->streams[0];
    ls_program_cache *cache = stream->cache;
    struct ls_piece_programs *own = &cache->group[group][p->length - 1];
    if ((*out = own->of[p->count]) != NULL || cache->apart) return LS_OK;
    for (int64_t b = 0; b < p->count; b++)
        if (own->one[b] == NULL) LS_TRY(record(stream, 1, p->length, &own->one[b]));
    ls_program *many;
    LS_TRY(record(stream, p->count, p->length, &many));
    LS_TRY(ls_together_new(many, own->one, p->count, &own->of[p->count]));
    *out = own->of[p->count];
    cache->apart = *out == NULL;
    return LS_OK;
}

static ls_status feed_alone(const pieces *p) {
    const int64_t V = vocabulary_of(p);
    for (int64_t b = 0; b < p->count; b++)
        LS_TRY(ls_stream_logits(p->streams[b], p->tokens + b * p->length, p->length, p->length,
                                p->logits + b * V));
    return LS_OK;
}

/* Groups of about the same size, beside each other. */
static ls_status feed_groups(const pieces *p, int64_t groups) {
    ls_model *model = p->streams[0]->model;
    ls_together *together[LS_GROUPS_MOST];
    ls_state *states[LS_GROUPS_MOST * LS_TOGETHER_MOST];
    for (int64_t g = 0; g < groups; g++) {
        const pieces some = part_of(p, g, groups);
        LS_TRY(together_for(&some, g, &together[g]));
        if (together[g] == NULL) return feed_alone(p);
        LS_TRY(ls_model_put_tokens(model, ls_together_program(together[g]), "tokens", some.tokens));
    }
    for (int64_t b = 0; b < p->count; b++) states[b] = p->streams[b]->state;
    LS_TRY(ls_together_run(together, groups, states));
    for (int64_t g = 0; g < groups; g++)
        LS_TRY(ls_model_read(ls_together_program(together[g]), "logits",
                             part_of(p, g, groups).logits));
    return LS_OK;
}

/* How many groups run beside each other: one for each thread, of two streams or more. */
static int64_t groups_beside(const ls_stream *stream, int64_t count) {
    const ls_ctx *ctx = stream->model->ctx;
    if (ctx->device != NULL || stream->model->store->total > CACHED_WEIGHTS) return 1;
    return ls_max(1, ls_min(ls_min(ctx->threads, LS_GROUPS_MOST), count / 2));
}

static ls_status check(const pieces *p) {
    ls_stream *const *streams = p->streams;
    ls_ctx *ctx = streams[0]->model->ctx;
    const int64_t V = vocabulary_of(p);
    for (int64_t b = 0; b < p->count; b++) {
        if (streams[b]->batch != 1 || streams[b]->cache != streams[0]->cache ||
            streams[b]->source > 0)
            return LS_FAIL(ctx, LS_EBUG, "streams that step together are forks of one sequence");
        if (ls_stream_position(streams[b]) + p->length > streams[b]->capacity)
            return LS_FAIL(ctx, LS_EUSE, "a stream is full: no more tokens fit");
    }
    for (int64_t i = 0; i < p->count * p->length; i++)
        if (p->tokens[i] < 0 || p->tokens[i] >= V)
            return LS_FAIL(ctx, LS_EINPUT, "token %d is outside the vocabulary", (int)p->tokens[i]);
    return LS_OK;
}

ls_status ls_streams_feed(ls_stream *const *streams, int64_t count, const int32_t *tokens,
                          int64_t length, double *logits) {
    if (count < 1) return LS_OK;
    const pieces all = {streams, count, length, tokens, logits};
    LS_TRY(check(&all));
    if (count == 1 || length > LS_TOGETHER_LENGTH || streams[0]->unit > 1 || streams[0]->marks != 0)
        return feed_alone(&all);
    const int64_t beside = groups_beside(streams[0], count);
    const int64_t most = beside * (LS_TOGETHER_MOST / length), rounds = (count + most - 1) / most;
    for (int64_t r = 0; r < rounds; r++) {
        const pieces some = part_of(&all, r, rounds);
        LS_TRY(feed_groups(&some, beside));
    }
    return LS_OK;
}
