/* Streams at places of their own, a token further together. */
#include "model/stream_internal.h"

static ls_status record_step(const ls_stream *stream, int64_t batch, ls_program **out) {
    const ls_program_options options = {.batch = batch,
                                        .length = 1,
                                        .streaming = true,
                                        .capacity = stream->capacity,
                                        .chunk_max = stream->chunk};
    return ls_model_program(stream->model, LS_MODEL_LOGITS, options, out);
}

/* The programs of a step of `count`: made once. */
static ls_status together_for(const ls_stream *stream, int64_t count, ls_together **out) {
    ls_program_cache *cache = stream->cache;
    if ((*out = cache->together[count]) != NULL || cache->apart) return LS_OK;
    ls_program *many = NULL, *one[LS_TOGETHER_MOST] = {NULL};
    ls_status status;
    LS_TRY_GOTO(record_step(stream, count, &many));
    for (int64_t b = 0; b < count; b++) LS_TRY_GOTO(record_step(stream, 1, &one[b]));
    LS_TRY(ls_together_new(many, one, count, &cache->together[count]));
    *out = cache->together[count];
    cache->apart = *out == NULL;
    return LS_OK;
fail:
    for (int64_t b = 0; b < count; b++) ls_program_free(one[b]);
    ls_program_free(many);
    return status;
}

static ls_status step_together(ls_together *together, ls_stream *const *streams, int64_t count,
                               const int32_t *tokens, double *logits) {
    ls_state *states[LS_TOGETHER_MOST];
    ls_program *program = ls_together_program(together);
    for (int64_t b = 0; b < count; b++) states[b] = streams[b]->state;
    LS_TRY(ls_model_put_tokens(streams[0]->model, program, "tokens", tokens));
    LS_TRY(ls_together_run(together, states));
    return ls_model_read(program, "logits", logits);
}

static ls_status step_group(ls_stream *const *streams, int64_t count, const int32_t *tokens,
                            double *logits) {
    const int64_t V = streams[0]->model->config->model.vocabulary;
    ls_together *together = NULL;
    if (count > 1 && streams[0]->unit == 1 && streams[0]->marks == 0)
        LS_TRY(together_for(streams[0], count, &together));
    if (together != NULL) return step_together(together, streams, count, tokens, logits);
    for (int64_t b = 0; b < count; b++)
        LS_TRY(ls_stream_logits(streams[b], tokens + b, 1, 1, logits + b * V));
    return LS_OK;
}

ls_status ls_streams_step(ls_stream *const *streams, int64_t count, const int32_t *tokens,
                          double *logits) {
    if (count < 1) return LS_OK;
    ls_ctx *ctx = streams[0]->model->ctx;
    const int64_t V = streams[0]->model->config->model.vocabulary;
    for (int64_t b = 0; b < count; b++) {
        if (streams[b]->batch != 1 || streams[b]->cache != streams[0]->cache ||
            streams[b]->source > 0)
            return LS_FAIL(ctx, LS_EBUG, "streams that step together are forks of one sequence");
        if (ls_stream_position(streams[b]) >= streams[b]->capacity)
            return LS_FAIL(ctx, LS_EUSE, "a stream is full: no more tokens fit");
        if (tokens[b] < 0 || tokens[b] >= V)
            return LS_FAIL(ctx, LS_EINPUT, "token %d is outside the vocabulary", (int)tokens[b]);
    }
    /* groups of about the same size */
    const int64_t groups = (count + LS_TOGETHER_MOST - 1) / LS_TOGETHER_MOST;
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = g * count / groups, end = (g + 1) * count / groups;
        LS_TRY(step_group(streams + first, end - first, tokens + first, logits + first * V));
    }
    return LS_OK;
}
