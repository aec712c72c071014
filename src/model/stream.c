/* Streams: a state, and programs for the chunk lengths that came up. */
#include <string.h>

#include "base/file.h"
#include "model/head.h"
#include "model/marks.h"
#include "model/stream_internal.h"

/* Whether the next chunk comes with the source. */
static bool reads(const ls_stream *stream) {
    return stream->source > 0 && stream->state != NULL && ls_state_position(stream->state) == 0;
}

/* Whether it begins with a mark. Chunks are cut so that within one marks come after every so many
 * tokens, or not at all. */
static bool mark_due(const ls_stream *stream) {
    if (stream->marks == 0 || stream->state == NULL) return false;
    const int64_t position = ls_stream_position(stream);
    return position > 0 && position % stream->marks == 0;
}

static ls_status make_program(ls_stream *stream, ls_model_use use, int64_t length, int64_t picked,
                              ls_program **out) {
    ls_program_options options = {.batch = stream->batch,
                                  .length = length,
                                  .streaming = true,
                                  .capacity = stream->capacity,
                                  .chunk_max = stream->chunk,
                                  .parts = stream->parts};
    const ls_recording how = {.use = use,
                              .source = stream->source,
                              .source_read = stream->source > 0 && !reads(stream),
                              .mark_due = mark_due(stream),
                              .picked = picked};
    return ls_model_record(stream->model, &how, options, out);
}

/* The program for a chunk length (and logits of so many rows): kept ones first; the one unused for
 * longest makes room. */
static ls_status program_for(ls_stream *stream, ls_model_use use, int64_t length, int64_t picked,
                             ls_program **out) {
    ls_program_cache *cache = stream->cache;
    int at = 0;
    for (int i = 0; i < cache->programs; i++) {
        if (cache->cached[i].use == use && cache->cached[i].length == length &&
            cache->cached[i].picked == picked && cache->cached[i].first == reads(stream) &&
            cache->cached[i].due == mark_due(stream)) {
            cache->cached[i].last_used = ++cache->clock;
            *out = cache->cached[i].program;
            return LS_OK;
        }
        if (cache->cached[i].last_used < cache->cached[at].last_used) at = i;
    }
    LS_TRY(make_program(stream, use, length, picked, out));
    if (cache->programs < PROGRAMS_MAX)
        at = cache->programs++;
    else
        ls_program_free(cache->cached[at].program);
    cache->cached[at].use = use;
    cache->cached[at].length = length;
    cache->cached[at].picked = picked;
    cache->cached[at].first = reads(stream);
    cache->cached[at].due = mark_due(stream);
    cache->cached[at].program = *out;
    cache->cached[at].last_used = ++cache->clock;
    return LS_OK;
}

/* Asks the model what it takes at once; programs that share a state are made for the same. */
static ls_status settle_chunk(ls_stream *stream) {
    ls_program *program;
    LS_TRY(program_for(stream, LS_MODEL_LOGITS, 1, 0, &program));
    int64_t chunk = ls_min(stream->chunk, ls_program_chunk_limit(program));
    stream->unit = ls_program_unit(program);
    chunk = ls_min(ls_max(chunk / stream->unit, 1) * stream->unit, stream->capacity);
    if (chunk != stream->chunk) {
        ls_program_free(program);
        stream->cache->programs = 0;
        stream->chunk = chunk;
        LS_TRY(program_for(stream, LS_MODEL_LOGITS, 1, 0, &program));
    }
    return ls_state_new(program, &stream->state);
}

static ls_status make_buffers(ls_stream *stream) {
    ls_ctx *ctx = stream->model->ctx;
    const int64_t batch = stream->batch, source = stream->source, chunk = stream->chunk;
    stream->tokens = ls_new(ctx, (size_t)(batch * (source + chunk)), sizeof *stream->tokens);
    stream->wanted = ls_new(ctx, (size_t)(batch * chunk), sizeof *stream->wanted);
    stream->read = ls_new(ctx, (size_t)(batch * source + 1), sizeof *stream->read);
    stream->losses = ls_new(ctx, (size_t)(batch * chunk), sizeof *stream->losses);
    stream->tail = ls_new(ctx, (size_t)(batch * stream->unit), sizeof *stream->tail);
    return stream->tokens == NULL || stream->wanted == NULL || stream->read == NULL ||
                   stream->losses == NULL || stream->tail == NULL
               ? LS_ENOMEM
               : LS_OK;
}

ls_status ls_stream_new(ls_model *model, int64_t batch, int64_t capacity, int64_t chunk,
                        ls_stream **out) {
    return ls_stream_new_reading(model, batch, 0, capacity, chunk, out);
}

ls_status ls_stream_new_reading(ls_model *model, int64_t batch, int64_t source, int64_t capacity,
                                int64_t chunk, ls_stream **out) {
    return ls_stream_new_parts(model, batch, source, capacity, chunk, &(ls_parts){0}, out);
}

ls_status ls_stream_new_parts(ls_model *model, int64_t batch, int64_t source, int64_t capacity,
                              int64_t chunk, const ls_parts *parts, ls_stream **out) {
    ls_ctx *ctx = model->ctx;
    *out = NULL;
    if (batch < 1 || capacity < 1 || chunk < 1)
        return LS_FAIL(ctx, LS_EUSE,
                       "a stream needs a batch, a capacity and a chunk of at least 1");
    if (source > 0 && model->config->encoder_layers == 0)
        return LS_FAIL(ctx, LS_EUSE, "this model has no encoder that would read a source");
    if (model->config->model.head == LS_HEAD_MASKED)
        return LS_FAIL(ctx, LS_EUSE,
                       "a masked language model finds tokens from both sides of them: it reads a "
                       "text whole, and does not write on (`longshot eval` measures it)");
    ls_stream *stream = ls_new(ctx, 1, sizeof *stream);
    if (stream == NULL) return LS_ENOMEM;
    *stream = (ls_stream){.model = model,
                          .batch = batch,
                          .capacity = capacity,
                          .chunk = ls_min(chunk, capacity),
                          .parts = *parts,
                          .source = source,
                          .marks = ls_marks_every(model->config)};
    if (stream->marks > 0 && stream->chunk > stream->marks)
        stream->chunk -= stream->chunk % stream->marks;
    ls_status status = LS_ENOMEM;
    if ((stream->cache = ls_new(ctx, 1, sizeof *stream->cache)) == NULL) goto fail;
    stream->cache->streams = 1;
    LS_TRY_GOTO(settle_chunk(stream));
    LS_TRY_GOTO(make_buffers(stream));
    *out = stream;
    return LS_OK;
fail:
    ls_stream_free(stream);
    return status;
}

ls_status ls_stream_fork(const ls_stream *from, ls_stream **out) {
    ls_ctx *ctx = from->model->ctx;
    *out = NULL;
    ls_stream *stream = ls_new(ctx, 1, sizeof *stream);
    if (stream == NULL) return LS_ENOMEM;
    *stream = (ls_stream){.model = from->model,
                          .batch = from->batch,
                          .capacity = from->capacity,
                          .chunk = from->chunk,
                          .source = from->source,
                          .unit = from->unit,
                          .waiting = from->waiting,
                          .marks = from->marks,
                          .cache = from->cache};
    stream->cache->streams++;
    ls_status status;
    LS_TRY_GOTO(make_buffers(stream));
    memcpy(stream->read, from->read, (size_t)(from->batch * from->source) * sizeof *from->read);
    memcpy(stream->tail, from->tail, (size_t)(from->batch * from->unit) * sizeof *from->tail);
    LS_TRY_GOTO(ls_state_copy(from->state, &stream->state));
    *out = stream;
    return LS_OK;
fail:
    ls_stream_free(stream);
    return status;
}

ls_status ls_stream_mark_new(const ls_stream *stream, ls_stream_mark **out) {
    ls_ctx *ctx = stream->model->ctx;
    const size_t tail = (size_t)(stream->batch * stream->unit) * sizeof *stream->tail;
    ls_stream_mark *mark = *out = ls_new_raw(ctx, 1, sizeof *mark + tail);
    if (mark == NULL) return LS_ENOMEM;
    *mark = (ls_stream_mark){.waiting = stream->waiting};
    memcpy(mark->tail, stream->tail, tail);
    ls_status status = ls_state_mark(stream->state, &mark->state);
    if (status == LS_OK) return LS_OK;
    ls_free(ctx, mark);
    *out = NULL;
    return status;
}

ls_status ls_stream_back(ls_stream *stream, const ls_stream_mark *mark) {
    stream->waiting = mark->waiting;
    memcpy(stream->tail, mark->tail, (size_t)(stream->batch * stream->unit) * sizeof *stream->tail);
    return ls_state_back(stream->state, mark->state);
}

void ls_stream_mark_free(ls_ctx *ctx, ls_stream_mark *mark) {
    if (mark == NULL) return;
    ls_state_free(ctx, mark->state);
    ls_free(ctx, mark);
}

static void cache_leave(ls_ctx *ctx, ls_program_cache *cache) {
    if (cache == NULL || --cache->streams > 0) return;
    for (int i = 0; i < cache->programs; i++) ls_program_free(cache->cached[i].program);
    for (int g = 0; g < LS_GROUPS_MOST * LS_TOGETHER_LENGTH; g++) {
        struct ls_piece_programs *own =
            &cache->group[g / LS_TOGETHER_LENGTH][g % LS_TOGETHER_LENGTH];
        for (int i = 0; i <= LS_TOGETHER_MOST; i++) ls_together_free(own->of[i]);
        for (int i = 0; i < LS_TOGETHER_MOST; i++) ls_program_free(own->one[i]);
    }
    for (int i = 0; i < FORK_LENGTHS_MAX; i++) ls_fork_programs_clear(&cache->forks[i]);
    ls_free(ctx, cache);
}

void ls_stream_free(ls_stream *stream) {
    if (stream == NULL) return;
    ls_ctx *ctx = stream->model->ctx;
    cache_leave(ctx, stream->cache);
    ls_state_free(ctx, stream->state);
    ls_free(ctx, stream->tokens);
    ls_free(ctx, stream->wanted);
    ls_free(ctx, stream->read);
    ls_free(ctx, stream->losses);
    ls_free(ctx, stream->tail);
    ls_free(ctx, stream);
}

void ls_stream_reset(ls_stream *stream) {
    ls_state_reset(stream->state);
    stream->waiting = 0;
}

ls_status ls_stream_read(ls_stream *stream, const int32_t *source, int64_t stride) {
    if (stream->source == 0 || ls_stream_position(stream) > 0)
        return LS_FAIL(stream->model->ctx, LS_EBUG, "a source is read once, before all else");
    for (int64_t b = 0; b < stream->batch; b++)
        memcpy(stream->read + b * stream->source, source + b * stride,
               (size_t)stream->source * sizeof *source);
    return LS_OK;
}

int64_t ls_stream_position(const ls_stream *stream) {
    const int64_t rows = ls_state_position(stream->state);
    return ls_marks_tokens(stream->marks, rows, false) + stream->waiting;
}

bool ls_stream_on_device(const ls_stream *stream) {
    return stream->model->ctx->device != NULL && stream->model->type != LS_F64;
}

bool ls_stream_in_parts(const ls_stream *stream) {
    return ls_program_in_parts(stream->cache->cached[0].program);
}

size_t ls_stream_state_bytes(const ls_stream *stream) {
    return ls_state_bytes(stream->state);
}

size_t ls_stream_bytes(const ls_stream *stream) {
    size_t bytes = ls_state_bytes(stream->state);
    for (int i = 0; i < stream->cache->programs; i++)
        bytes += ls_program_bytes(stream->cache->cached[i].program);
    return bytes;
}

/* Layout: "LSSTREAM", unit, source, waiting; tail [batch, waiting] and source [batch, source] as
 * i32; the state. */
ls_status ls_stream_save(const ls_stream *stream, ls_text *out) {
    ls_ctx *ctx = stream->model->ctx;
    const int64_t head[3] = {stream->unit, stream->source, stream->waiting};
    ls_text_append(ctx, out, "LSSTREAM", 8);
    ls_text_append(ctx, out, head, sizeof head);
    for (int64_t b = 0; b < stream->batch; b++)
        ls_text_append(ctx, out, stream->tail + b * stream->unit,
                       (size_t)stream->waiting * sizeof *stream->tail);
    ls_text_append(ctx, out, stream->read,
                   (size_t)(stream->batch * stream->source) * sizeof *stream->read);
    return ls_state_save(ctx, stream->state, out);
}

/* So many tokens out of the bytes; those of a source may be padding. */
static bool tokens_fit(const ls_stream *stream, ls_reader *reader, int64_t count, int32_t lowest,
                       const uint8_t **out) {
    if (!ls_reader_take(reader, (size_t)count * sizeof(int32_t), out)) return false;
    for (int64_t i = 0; i < count; i++) {
        int32_t token;
        memcpy(&token, *out + (size_t)i * sizeof token, sizeof token);
        if (token < lowest || token >= stream->model->config->model.vocabulary) return false;
    }
    return true;
}

ls_status ls_stream_load(ls_stream *stream, const void *bytes, size_t length) {
    ls_ctx *ctx = stream->model->ctx;
    ls_reader reader = {bytes, length};
    const uint8_t *magic, *tail, *source;
    uint64_t unit, sources, waiting;
    if (!ls_reader_take(&reader, 8, &magic) || memcmp(magic, "LSSTREAM", 8) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "these bytes are not a saved stream");
    if (!ls_reader_u64(&reader, &unit) || !ls_reader_u64(&reader, &sources) ||
        !ls_reader_u64(&reader, &waiting) || unit != (uint64_t)stream->unit ||
        sources != (uint64_t)stream->source || waiting >= unit ||
        waiting > (uint64_t)stream->chunk ||
        !tokens_fit(stream, &reader, stream->batch * (int64_t)waiting, 0, &tail) ||
        !tokens_fit(stream, &reader, stream->batch * stream->source, -1, &source))
        return LS_FAIL(ctx, LS_EINPUT, "the saved stream is damaged or of another model");
    LS_TRY(ls_state_load(ctx, stream->state, reader.at, reader.left));
    stream->waiting = (int64_t)waiting;
    for (int64_t b = 0; b < stream->batch; b++)
        memcpy(stream->tail + b * stream->unit, tail + (size_t)b * waiting * sizeof *stream->tail,
               waiting * sizeof *stream->tail);
    memcpy(stream->read, source, (size_t)(stream->batch * stream->source) * sizeof *stream->read);
    return LS_OK;
}

enum { WIDEN = 256 };

static void widen_f32(const void *from, int64_t count, double *out) {
    float part[WIDEN];
    memcpy(part, from, (size_t)count * sizeof *part);
    for (int64_t i = 0; i < count; i++) out[i] = (double)part[i];
}

static void widen_bf16(const void *from, int64_t count, double *out) {
    ls_bf16 part[WIDEN];
    memcpy(part, from, (size_t)count * sizeof *part);
    for (int64_t i = 0; i < count; i++) out[i] = (double)ls_bf16_to_f32(part[i]);
}

ls_status ls_model_read(const ls_program *program, const char *name, double *out) {
    const ls_tensor *tensor = ls_program_find(program, name);
    const int64_t count = ls_count(tensor);
    const size_t size = ls_dtype_size(tensor->type);
    /* they come to lie at the end, so that none is overwritten before it is read */
    const char *narrow = (const char *)out + (size_t)count * (sizeof *out - size);
    LS_TRY(ls_tensor_get(program, tensor, (void *)(uintptr_t)narrow));
    for (int64_t done = 0; done < count && tensor->type != LS_F64; done += WIDEN)
        (tensor->type == LS_F32 ? widen_f32 : widen_bf16)(narrow + (size_t)done * size,
                                                          ls_min(WIDEN, count - done), out + done);
    return LS_OK;
}

/* Which rows' logits are wanted: columns [batch, picked] of what is fed. */
static void put_columns(ls_stream *stream, ls_program *program, const int32_t *at, int64_t picked,
                        int64_t whole) {
    int32_t *rows = stream->wanted; /* there are no targets then */
    for (int64_t b = 0; b < stream->batch; b++)
        for (int64_t i = 0; i < picked; i++)
            rows[b * picked + i] = (int32_t)(b * whole + stream->waiting) + at[b * picked + i];
    ls_tensor_put(program, ls_program_find(program, "at"), rows);
}

/* One chunk: what waits, and then `length` tokens of each row, rows being `stride` apart. */
static ls_status feed(ls_stream *stream, ls_model_use use, const int32_t *tokens,
                      const int32_t *targets, const int32_t *at, int64_t picked, int64_t length,
                      int64_t stride, ls_program **out) {
    const int64_t waiting = stream->waiting, unit = stream->unit, whole = waiting + length;
    const int64_t source = reads(stream) ? stream->source : 0, each = source + whole;
    if (length < 1) /* a capacity below a unit, and it is full */
        return LS_FAIL(stream->model->ctx, LS_EUSE,
                       "the stream was made for %lld tokens and is at %lld: no more fit",
                       (long long)stream->capacity, (long long)ls_stream_position(stream));
    LS_TRY(program_for(stream, use, whole, picked, out));
    int32_t *inputs = stream->tokens, *wanted = stream->wanted;
    for (int64_t b = 0; b < stream->batch; b++) {
        int32_t *row = inputs + b * each + source;
        memcpy(inputs + b * each, stream->read + b * source, (size_t)source * sizeof *row);
        memcpy(row, stream->tail + b * unit, (size_t)waiting * sizeof *row);
        memcpy(row + waiting, tokens + b * stride, (size_t)length * sizeof *row);
        for (int64_t t = 0; targets != NULL && t < whole; t++)
            wanted[b * whole + t] = t < waiting ? -1 : targets[b * stride + t - waiting];
    }
    LS_TRY(ls_model_put_tokens(stream->model, *out, "tokens", inputs));
    if (targets != NULL) LS_TRY(ls_model_put_tokens(stream->model, *out, "targets", wanted));
    if (picked > 0) put_columns(stream, *out, at, picked, whole);
    LS_TRY(ls_program_run(*out, stream->state, 0, 0));
    stream->waiting = whole % unit;
    for (int64_t b = 0; b < stream->batch; b++)
        memcpy(stream->tail + b * unit, inputs + (b + 1) * each - stream->waiting,
               (size_t)stream->waiting * sizeof *inputs);
    return LS_OK;
}

/* How many of `count` tokens the next chunk takes. */
static int64_t room(const ls_stream *stream, int64_t count) {
    return ls_min(ls_stream_room(stream), count);
}

ls_status ls_stream_loss(ls_stream *stream, const int32_t *tokens, const int32_t *targets,
                         int64_t count, int64_t stride, double *loss) {
    for (int64_t first = 0, length; first < count; first += length) {
        const int64_t waiting = stream->waiting;
        ls_program *program;
        length = room(stream, count - first);
        LS_TRY(feed(stream, LS_MODEL_LOSS, tokens + first, targets + first, NULL, 0, length, stride,
                    &program));
        LS_TRY(ls_model_read(program, "loss", stream->losses));
        for (int64_t b = 0; b < stream->batch; b++)
            memcpy(loss + b * stride + first, stream->losses + b * (waiting + length) + waiting,
                   (size_t)length * sizeof *loss);
    }
    return LS_OK;
}

ls_status ls_stream_logits(ls_stream *stream, const int32_t *tokens, int64_t count, int64_t stride,
                           double *logits) {
    if (count < 1) return LS_FAIL(stream->model->ctx, LS_EUSE, "logits need at least one token");
    ls_program *program = NULL;
    for (int64_t first = 0, length; first < count; first += length) {
        length = room(stream, count - first);
        LS_TRY(
            feed(stream, LS_MODEL_LOGITS, tokens + first, NULL, NULL, 0, length, stride, &program));
    }
    return ls_model_read(program, "logits", logits);
}

ls_status ls_stream_logits_at(ls_stream *stream, const int32_t *tokens, int64_t count,
                              int64_t stride, const int32_t *at, int64_t picked, double *logits) {
    ls_program *program;
    if (count < 1 || room(stream, count) < count || picked < 1 || picked > stream->chunk)
        return LS_FAIL(stream->model->ctx, LS_EBUG, "more was fed than is taken at once");
    LS_TRY(feed(stream, LS_MODEL_LOGITS, tokens, NULL, at, picked, count, stride, &program));
    return ls_model_read(program, "logits", logits);
}

/* Whether the device can go on by itself: a step takes one token, and nothing beside it. */
static bool goes_on_alone(const ls_stream *stream) {
    return stream->unit == 1 && stream->waiting == 0 && stream->marks == 0 && !reads(stream) &&
           !ls_head_of(&stream->model->config->model)->classes;
}

/* By the caller's choice of each token. */
static ls_status choose_here(ls_stream *stream, const int32_t *tokens, int64_t stride,
                             int64_t known, int64_t steps, int32_t *out) {
    ls_ctx *ctx = stream->model->ctx;
    const int64_t batch = stream->batch, vocabulary = stream->model->config->model.vocabulary;
    const ls_sampling most_likely = {0};
    double *logits = ls_new(ctx, (size_t)(batch * vocabulary), sizeof *logits);
    int32_t *now = ls_new(ctx, (size_t)batch, sizeof *now);
    ls_status status = logits == NULL || now == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t b = 0; b < batch && status == LS_OK; b++) now[b] = tokens[b * stride];
    for (int64_t i = 0; i < steps && status == LS_OK; i++) {
        status = ls_stream_logits(stream, now, 1, 1, logits);
        for (int64_t b = 0; b < batch && status == LS_OK; b++)
            now[b] = out[b * steps + i] =
                ls_sample(&most_likely, logits + b * vocabulary, known, 0, NULL);
    }
    ls_free(ctx, logits);
    ls_free(ctx, now);
    return status;
}

/* So many steps that are not waited for; then what was chosen. */
static ls_status choose_there(ls_stream *stream, ls_program *program, int64_t steps, int64_t stride,
                              int32_t *out) {
    const int64_t first = ls_state_position(stream->state);
    int32_t *choices =
        ls_new(stream->model->ctx, (size_t)(stream->batch * LS_CHOICES), sizeof *choices);
    if (choices == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    for (int64_t i = 0; i < steps && status == LS_OK; i++)
        status = ls_program_run(program, stream->state, 0, 0);
    if (status == LS_OK)
        status = ls_tensor_get(program, ls_program_find(program, "choices"), choices);
    for (int64_t i = 0; i < stream->batch * steps && status == LS_OK; i++)
        out[i / steps * stride + i % steps] =
            choices[i / steps * LS_CHOICES + (first + i % steps) % LS_CHOICES];
    ls_free(stream->model->ctx, choices);
    return status;
}

ls_status ls_stream_choose(ls_stream *stream, const int32_t *tokens, int64_t stride, int64_t known,
                           int64_t steps, int32_t *out) {
    ls_program *program;
    if (known == 0) known = stream->model->config->model.vocabulary;
    if (!goes_on_alone(stream)) return choose_here(stream, tokens, stride, known, steps, out);
    LS_TRY(program_for(stream, LS_MODEL_CHOICE, 1, known, &program));
    for (int64_t b = 0; b < stream->batch; b++) stream->tokens[b] = tokens[b * stride];
    LS_TRY(ls_model_put_tokens(stream->model, program, "tokens", stream->tokens));
    for (int64_t done = 0; done < steps; done += LS_CHOICES)
        LS_TRY(choose_there(stream, program, ls_min(LS_CHOICES, steps - done), steps, out + done));
    return LS_OK;
}

int64_t ls_stream_chunk(const ls_stream *stream) {
    return stream->chunk;
}

int64_t ls_stream_room(const ls_stream *stream) {
    const int64_t room = stream->chunk - stream->waiting;
    const int64_t begun = stream->marks == 0 ? 0 : ls_stream_position(stream) % stream->marks;
    return begun == 0 ? room : ls_min(room, stream->marks - begun);
}
