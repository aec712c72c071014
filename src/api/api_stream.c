/* Streams of the installed interface: numbers leave in f32. */
#include <string.h>

#include "api/api.h"

int longshot_stream_open(longshot_model *model, const longshot_stream_options *options,
                         longshot_stream **out) {
    enum { MAX = 1 << 30 };
    ls_ctx *ctx = ls__api_begin(model->engine);
    longshot_stream_options all;
    *out = NULL;
    ls_status status = ls__api_options(ctx, options, &all, sizeof all, "longshot_stream_options");
    if (status != LS_OK) return (int)status;
    if (all.batch == 0) all.batch = 1;
    if (all.capacity == 0) all.capacity = longshot_model_trained_length(model);
    if (all.chunk == 0) all.chunk = 512;
    if (all.batch < 1 || all.batch > 1 << 20 || all.capacity < 1 || all.capacity > MAX ||
        all.chunk < 1 || all.source < 0 || all.source > MAX)
        return (int)LS_FAIL(
            ctx, LS_EUSE, "a stream needs a batch of 1 to %d, and a capacity and chunk of 1 to %d",
            1 << 20, (int)MAX);
    if (longshot_model_classes(model) > 0)
        return (int)LS_FAIL(ctx, LS_EUSE,
                            "a classifier reads whole sequences: use longshot_model_logits");
    if (model->trained.config.encoder_layers > 0 && all.source == 0)
        return (int)LS_FAIL(ctx, LS_EUSE,
                            "the model has an encoder: open a stream with room for a source");
    longshot_stream *stream = ls_new(ctx, 1, sizeof *stream);
    if (stream == NULL) return LONGSHOT_ENOMEM;
    *stream = (longshot_stream){.engine = model->engine,
                                .model = model,
                                .batch = all.batch,
                                .capacity = all.capacity,
                                .source = all.source};
    status = ls_stream_new_reading(model->trained.model, all.batch, all.source, all.capacity,
                                   all.chunk, &stream->inner);
    if (status == LS_OK)
        *out = stream;
    else
        longshot_stream_close(stream);
    return (int)status;
}

void longshot_stream_close(longshot_stream *stream) {
    if (stream == NULL) return;
    ls_ctx *ctx = &stream->engine->ctx;
    ls_stream_free(stream->inner);
    ls_free(ctx, stream->wide);
    ls_free(ctx, stream->columns);
    ls_free(ctx, stream);
}

int longshot_stream_fork(const longshot_stream *stream, longshot_stream **out) {
    ls_ctx *ctx = ls__api_begin(stream->engine);
    *out = NULL;
    longshot_stream *fork = ls_new(ctx, 1, sizeof *fork);
    if (fork == NULL) return LONGSHOT_ENOMEM;
    *fork = (longshot_stream){.engine = stream->engine,
                              .model = stream->model,
                              .batch = stream->batch,
                              .capacity = stream->capacity,
                              .source = stream->source,
                              .sourced = stream->sourced};
    ls_status status = ls_stream_fork(stream->inner, &fork->inner);
    if (status == LS_OK)
        *out = fork;
    else
        longshot_stream_close(fork);
    return (int)status;
}

void longshot_stream_reset(longshot_stream *stream) {
    stream->sourced = false;
    ls_stream_reset(stream->inner);
}

int64_t longshot_stream_batch(const longshot_stream *stream) {
    return stream->batch;
}

int64_t longshot_stream_position(const longshot_stream *stream) {
    return ls_stream_position(stream->inner);
}

size_t longshot_stream_bytes(const longshot_stream *stream) {
    return ls_stream_bytes(stream->inner);
}

int longshot_stream_read(longshot_stream *stream, const int32_t *source) {
    ls_ctx *ctx = ls__api_begin(stream->engine);
    if (stream->source == 0 || ls_stream_position(stream->inner) > 0)
        return (int)LS_FAIL(ctx, LS_EUSE,
                            "a source is read at the start of a stream that was opened for one");
    stream->sourced = true;
    return (int)ls_stream_read(stream->inner, source, stream->source);
}

/* Room for what the model gives. */
static ls_status reserve(longshot_stream *stream, int64_t count) {
    return ls_array_reserve(&stream->engine->ctx, &stream->wide, &stream->wide_count, (size_t)count,
                            sizeof *stream->wide)
               ? LS_OK
               : LS_ENOMEM;
}

/* LS_EUSE unless so many more tokens fit; so what fails in the midst is memory or a token alone. */
static ls_status check_count(const longshot_stream *stream, int64_t count) {
    const int64_t at = ls_stream_position(stream->inner);
    if (stream->source > 0 && !stream->sourced)
        return LS_FAIL(&stream->engine->ctx, LS_EUSE,
                       "the stream has no source yet: give it with longshot_stream_read");
    if (count >= 1 && count <= stream->capacity - at) return LS_OK;
    return LS_FAIL(&stream->engine->ctx, LS_EUSE,
                   "%lld tokens for a stream that is at %lld of %lld: feed 1 or more, as they fit",
                   (long long)count, (long long)at, (long long)stream->capacity);
}

static void narrow(const double *from, int64_t count, float *to) {
    for (int64_t i = 0; i < count; i++) to[i] = (float)from[i];
}

static ls_status feed(longshot_stream *stream, const int32_t *tokens, int64_t count,
                      float *logits) {
    const int64_t numbers = stream->batch * longshot_model_vocabulary(stream->model);
    LS_TRY(check_count(stream, count));
    LS_TRY(reserve(stream, numbers));
    LS_TRY(ls_stream_logits(stream->inner, tokens, count, count, stream->wide));
    if (logits != NULL) narrow(stream->wide, numbers, logits);
    return LS_OK;
}

int longshot_stream_feed(longshot_stream *stream, const int32_t *tokens, int64_t count,
                         float *logits) {
    ls__api_begin(stream->engine);
    return (int)feed(stream, tokens, count, logits);
}

/* Logits after `length` tokens from `first` on, as many as are taken at once. */
static ls_status logits_of_chunk(longshot_stream *stream, const int32_t *tokens, int64_t first,
                                 int64_t length, int64_t count, float *logits) {
    const int64_t V = longshot_model_vocabulary(stream->model), batch = stream->batch;
    LS_TRY(reserve(stream, batch * length * V));
    if (!ls_array_reserve(&stream->engine->ctx, &stream->columns, &stream->columns_count,
                          (size_t)(batch * length), sizeof *stream->columns))
        return LS_ENOMEM;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t t = 0; t < length; t++) stream->columns[b * length + t] = (int32_t)t;
    LS_TRY(ls_stream_logits_at(stream->inner, tokens + first, length, count, stream->columns,
                               length, stream->wide));
    for (int64_t b = 0; b < batch; b++)
        narrow(stream->wide + b * length * V, length * V, logits + (b * count + first) * V);
    return LS_OK;
}

static ls_status all_logits(longshot_stream *stream, const int32_t *tokens, int64_t count,
                            float *logits) {
    LS_TRY(check_count(stream, count));
    /* the wide copy stays below 64 MiB at any vocabulary */
    const int64_t numbers = stream->batch * longshot_model_vocabulary(stream->model);
    const int64_t longest = ls_max(1, (1 << 23) / numbers);
    for (int64_t first = 0, length; first < count; first += length) {
        length = ls_min(ls_min(ls_stream_room(stream->inner), longest), count - first);
        LS_TRY(logits_of_chunk(stream, tokens, first, length, count, logits));
    }
    return LS_OK;
}

int longshot_stream_logits(longshot_stream *stream, const int32_t *tokens, int64_t count,
                           float *logits) {
    ls__api_begin(stream->engine);
    return (int)all_logits(stream, tokens, count, logits);
}

static ls_status losses(longshot_stream *stream, const int32_t *tokens, const int32_t *targets,
                        int64_t count, float *loss) {
    int64_t cells;
    LS_TRY(check_count(stream, count));
    if (!ls_mul(stream->batch, count, &cells))
        return LS_FAIL(&stream->engine->ctx, LS_EUSE, "too many tokens");
    LS_TRY(reserve(stream, cells));
    LS_TRY(ls_stream_loss(stream->inner, tokens, targets, count, count, stream->wide));
    narrow(stream->wide, cells, loss);
    return LS_OK;
}

int longshot_stream_loss(longshot_stream *stream, const int32_t *tokens, const int32_t *targets,
                         int64_t count, float *loss) {
    ls__api_begin(stream->engine);
    return (int)losses(stream, tokens, targets, count, loss);
}

int longshot_stream_save(const longshot_stream *stream, void *bytes, size_t room, size_t *length) {
    ls_ctx *ctx = ls__api_begin(stream->engine);
    ls_text text = {0};
    *length = 0;
    ls_status status = ls_stream_save(stream->inner, &text);
    if (status == LS_OK) *length = text.length;
    if (status == LS_OK && text.length > room)
        status = LS_FAIL(ctx, LS_EUSE, "%zu bytes do not fit into %zu", text.length, room);
    if (status == LS_OK) memcpy(bytes, text.bytes, text.length);
    ls_text_clear(ctx, &text);
    return (int)status;
}

int longshot_stream_load(longshot_stream *stream, const void *bytes, size_t length) {
    ls_ctx *ctx = ls__api_begin(stream->engine);
    if (length == 0) return (int)LS_FAIL(ctx, LS_EINPUT, "these bytes are not a saved stream");
    ls_status status = ls_stream_load(stream->inner, bytes, length);
    if (status == LS_OK) stream->sourced = ls_stream_position(stream->inner) > 0;
    return (int)status;
}
