/* Continuations of a stream, none of which it keeps. */
#include "model/stream_internal.h"

/* What is to be tried. */
typedef struct attempt {
    ls_stream *stream;
    const ls_stream_mark *mark;
    int64_t count, length;
    const int32_t *tokens; /* [count, length] */
    double *logits;        /* [count, length, vocabulary] */
} attempt;

static attempt part_of(const attempt *all, int64_t first, int64_t count) {
    const int64_t V = all->stream->model->config->model.vocabulary;
    attempt some = *all;
    some.count = count;
    some.tokens += first * all->length;
    some.logits += first * all->length * V;
    return some;
}

void ls_fork_programs_clear(ls_fork_programs *programs) {
    for (int i = 0; i <= LS_TOGETHER_MOST; i++) ls_together_free(programs->of[i]);
    for (int i = 0; i < LS_TOGETHER_MOST; i++) ls_program_free(programs->one[i]);
    *programs = (ls_fork_programs){0};
}

static ls_status record(const ls_stream *stream, int64_t batch, int64_t length, ls_program **out) {
    const ls_program_options options = {.batch = batch,
                                        .length = length,
                                        .streaming = true,
                                        .capacity = stream->capacity,
                                        .chunk_max = stream->chunk,
                                        .forks = true};
    const ls_recording how = {.use = LS_MODEL_LOGITS, .picked = LS_EVERY_ROW};
    return ls_model_record(stream->model, &how, options, out);
}

/* Those of a length: kept ones first; the ones unused for longest make room. */
static ls_fork_programs *programs_of(ls_program_cache *cache, int64_t length) {
    ls_fork_programs *at = &cache->forks[0];
    for (int i = 0; i < FORK_LENGTHS_MAX; i++) {
        ls_fork_programs *other = &cache->forks[i];
        if (other->length == length) {
            at = other;
            break;
        }
        if (other->last_used < at->last_used) at = other;
    }
    if (at->length != length) ls_fork_programs_clear(at);
    at->length = length;
    at->last_used = ++cache->clock;
    return at;
}

/* NULL: this model's sequences go one by one. */
static ls_status together_for(const attempt *a, ls_together **out) {
    ls_program_cache *cache = a->stream->cache;
    ls_fork_programs *own = programs_of(cache, a->length);
    if ((*out = own->of[a->count]) != NULL) return LS_OK;
    for (int64_t b = 0; b < a->count; b++)
        if (own->one[b] == NULL) LS_TRY(record(a->stream, 1, a->length, &own->one[b]));
    ls_program *many;
    LS_TRY(record(a->stream, a->count, a->length, &many));
    LS_TRY(ls_together_new(many, own->one, a->count, &own->of[a->count]));
    *out = own->of[a->count];
    cache->forks_apart = *out == NULL;
    return LS_OK;
}

static ls_status try_alone(const attempt *a) {
    const int64_t V = a->stream->model->config->model.vocabulary;
    int32_t *every = ls_new(a->stream->model->ctx, (size_t)a->length, sizeof *every);
    ls_status status = every == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t t = 0; status == LS_OK && t < a->length; t++) every[t] = (int32_t)t;
    for (int64_t c = 0; status == LS_OK && c < a->count; c++) {
        status = ls_stream_back(a->stream, a->mark);
        if (status == LS_OK)
            status = ls_stream_logits_at(a->stream, a->tokens + c * a->length, a->length, a->length,
                                         every, a->length, a->logits + c * a->length * V);
    }
    ls_free(a->stream->model->ctx, every);
    return status == LS_OK ? ls_stream_back(a->stream, a->mark) : status;
}

static ls_status try_together(const attempt *a) {
    ls_together *together = NULL;
    if (a->count > 1) LS_TRY(together_for(a, &together));
    if (together == NULL) return try_alone(a);
    ls_program *program = ls_together_program(together);
    LS_TRY(ls_model_put_tokens(a->stream->model, program, "tokens", a->tokens));
    LS_TRY(ls_together_try(together, a->stream->state, a->mark->state));
    return ls_model_read(program, "logits", a->logits);
}

/* How many go at once. */
static int64_t most_at_once(const ls_stream *stream, int64_t length) {
    if (stream->cache->forks_apart || stream->unit > 1 || stream->marks != 0 || stream->source > 0)
        return 1;
    return length >= LS_TOGETHER_MANY ? LS_TOGETHER_MOST : ls_max(1, LS_TOGETHER_MOST / length);
}

ls_status ls_stream_try(ls_stream *stream, const ls_stream_mark *mark, const int32_t *tokens,
                        int64_t count, int64_t length, double *logits) {
    const attempt all = {stream, mark, count, length, tokens, logits};
    if (stream->batch != 1)
        return LS_FAIL(stream->model->ctx, LS_EBUG, "one sequence is continued, not a batch");
    LS_TRY(ls_stream_back(stream, mark));
    if (length < 1 || length > ls_stream_room(stream))
        return LS_FAIL(stream->model->ctx, LS_EBUG, "more was tried than is taken at once");
    for (int64_t done = 0; done < count;) {
        const int64_t most = most_at_once(stream, length);
        const attempt some = part_of(&all, done, ls_min(most, count - done));
        LS_TRY(try_together(&some));
        done += some.count;
    }
    return LS_OK;
}
