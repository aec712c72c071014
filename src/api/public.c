/* The installed interface: see include/longshot/longshot.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "api/generate.h"
#include "longshot/longshot.h"
#include "train/trained.h"

static_assert(LONGSHOT_EUSE == (int)LS_EUSE && LONGSHOT_EINPUT == (int)LS_EINPUT &&
                  LONGSHOT_ENOMEM == (int)LS_ENOMEM && LONGSHOT_EIO == (int)LS_EIO &&
                  LONGSHOT_ESTOP == (int)LS_ESTOP && LONGSHOT_EBUG == (int)LS_EBUG,
              "the public codes are the inner ones");

struct longshot {
    ls_ctx ctx;
    ls_trained trained;
    ls_settings overrides;
};

struct longshot_stream {
    longshot *session;
    ls_stream *stream;
};

const char *longshot_version(void) {
    return LS_VERSION;
}

longshot_options longshot_options_default(void) {
    return (longshot_options){.size = sizeof(longshot_options)};
}

/* Every call begins without an error: the first failure of a context stays in it. */
static ls_ctx *begin(longshot *session) {
    session->ctx.error = (ls_error){0};
    return &session->ctx;
}

static ls_status take_words(longshot *session, const char *words) {
    ls_ctx *ctx = &session->ctx;
    char *copy = ls_copy_text(ctx, words), *rest = NULL;
    if (copy == NULL) return LS_ENOMEM;
    ls_status status = LS_OK;
    for (char *word = strtok_r(copy, " ", &rest); word != NULL && status == LS_OK;
         word = strtok_r(NULL, " ", &rest))
        status = ls_settings_put_word(ctx, &session->overrides, word);
    ls_free(ctx, copy);
    return status;
}

static ls_status choose_type(ls_ctx *ctx, const char *name, ls_dtype *out) {
    for (int t = 0; t < LS_REAL_TYPES; t++)
        if (strcmp(name, ls_dtype_name((ls_dtype)t)) == 0) {
            *out = (ls_dtype)t;
            return LS_OK;
        }
    return LS_FAIL(ctx, LS_EUSE, "dtype %s: choose f64, f32 or bf16", name);
}

static ls_status open_session(longshot *session, const char *path,
                              const longshot_options *options) {
    ls_ctx *ctx = &session->ctx;
    ls_dtype type = LS_F32;
    if (options->size != sizeof *options)
        return LS_FAIL(ctx, LS_EUSE, "fill the options with longshot_options_default");
    if (options->threads < 0 || options->threads > 1024)
        return LS_FAIL(ctx, LS_EUSE, "threads=%d: use 0 to 1024", options->threads);
    if (options->threads > 0) ctx->threads = options->threads;
    if (options->dtype != NULL) LS_TRY(choose_type(ctx, options->dtype, &type));
    if (options->extend != NULL) LS_TRY(take_words(session, options->extend));
    LS_TRY(ls_trained_open(ctx, path, &session->overrides, options->dtype == NULL ? NULL : &type,
                           &session->trained));
    return ls_settings_finish(ctx, &session->overrides, (const char *const[]){"extend", NULL});
}

int longshot_open(const char *path, const longshot_options *options, longshot **out) {
    const longshot_options fallback = longshot_options_default();
    *out = calloc(1, sizeof **out);
    if (*out == NULL) return LONGSHOT_ENOMEM;
    (*out)->ctx = ls_ctx_default();
    (*out)->trained.ctx = &(*out)->ctx;
    return (int)open_session(*out, path, options == NULL ? &fallback : options);
}

void longshot_close(longshot *session) {
    if (session == NULL) return;
    ls_trained_clear(&session->trained);
    ls_settings_clear(&session->ctx, &session->overrides);
    free(session);
}

const char *longshot_error(const longshot *session) {
    return session == NULL ? "out of memory" : session->ctx.error.message;
}

int64_t longshot_vocabulary(const longshot *session) {
    return session->trained.config.model.vocabulary;
}

int64_t longshot_trained_length(const longshot *session) {
    return session->trained.config.model.length;
}

int64_t longshot_parameters(const longshot *session) {
    return ls_parameters_elements(session->trained.model->store);
}

int longshot_encode(longshot *session, const char *text, size_t length, int32_t *tokens,
                    size_t room, size_t *count) {
    ls_ctx *ctx = begin(session);
    ls_ids ids = {0};
    *count = 0;
    ls_status status = ls_trained_needs_text(&session->trained);
    if (status == LS_OK)
        status = ls_tokenizer_encode(ctx, session->trained.tokenizer, text, length, false, &ids);
    if (status == LS_OK) *count = ids.count;
    if (status == LS_OK && ids.count > room)
        status = LS_FAIL(ctx, LS_EUSE, "%zu tokens do not fit into %zu", ids.count, room);
    if (status == LS_OK && ids.count > 0) memcpy(tokens, ids.at, ids.count * sizeof *tokens);
    ls_ids_clear(ctx, &ids);
    return (int)status;
}

int longshot_decode(longshot *session, const int32_t *tokens, size_t count, char *text, size_t room,
                    size_t *length) {
    ls_ctx *ctx = begin(session);
    ls_text bytes = {0};
    *length = 0;
    ls_status status = ls_trained_needs_text(&session->trained);
    if (status == LS_OK)
        status = ls_tokenizer_decode(ctx, session->trained.tokenizer, tokens, count, &bytes);
    if (status == LS_OK) *length = bytes.length;
    if (status == LS_OK && bytes.length > room)
        status = LS_FAIL(ctx, LS_EUSE, "%zu bytes do not fit into %zu", bytes.length, room);
    if (status == LS_OK && bytes.length > 0) memcpy(text, bytes.bytes, bytes.length);
    ls_text_clear(ctx, &bytes);
    return (int)status;
}

int longshot_stream_open(longshot *session, int64_t capacity, int64_t chunk,
                         longshot_stream **out) {
    ls_ctx *ctx = begin(session);
    *out = ls_new(ctx, 1, sizeof **out);
    if (*out == NULL) return LONGSHOT_ENOMEM;
    (*out)->session = session;
    ls_status status = ls_stream_new(session->trained.model, 1, capacity, chunk, &(*out)->stream);
    if (status != LS_OK) {
        ls_free(ctx, *out);
        *out = NULL;
    }
    return (int)status;
}

void longshot_stream_close(longshot_stream *stream) {
    if (stream == NULL) return;
    ls_stream_free(stream->stream);
    ls_free(&stream->session->ctx, stream);
}

void longshot_stream_reset(longshot_stream *stream) {
    ls_stream_reset(stream->stream);
}

int64_t longshot_stream_position(const longshot_stream *stream) {
    return ls_stream_position(stream->stream);
}

int longshot_stream_loss(longshot_stream *stream, const int32_t *tokens, const int32_t *targets,
                         int64_t count, double *loss) {
    begin(stream->session);
    return (int)ls_stream_loss(stream->stream, tokens, targets, count, count, loss);
}

int longshot_stream_logits(longshot_stream *stream, const int32_t *tokens, int64_t count,
                           double *logits) {
    begin(stream->session);
    return (int)ls_stream_logits(stream->stream, tokens, count, count, logits);
}

typedef struct listener {
    ls_ctx *ctx;
    longshot_text text;
    void *user;
} listener;

static ls_status hand_over(void *user, const char *bytes, size_t length) {
    listener *to = user;
    if (to->text(to->user, bytes, length) != 0) return LS_FAIL(to->ctx, LS_ESTOP, "stopped");
    return LS_OK;
}

int longshot_generate(longshot *session, const char *prompt, int64_t tokens,
                      const longshot_sampling *how, longshot_text text, void *user) {
    ls_ctx *ctx = begin(session);
    if (tokens < 1 || how->temperature < 0 || how->top_k < 0 || how->top_p < 0 || how->top_p > 1)
        return (int)LS_FAIL(ctx, LS_EUSE,
                            "generation needs tokens of 1 or more, a temperature and top_k of 0 "
                            "or more, and top_p in 0 to 1");
    const ls_sampling sampling = {.temperature = how->temperature,
                                  .top_k = how->top_k,
                                  .top_p = how->top_p,
                                  .seed = how->seed};
    listener to = {ctx, text, user};
    return (int)ls_generate(&session->trained, prompt, tokens, &sampling, hand_over, &to);
}
