/* longshot: trained sequence models in a program of your own.
 *
 * A session is a model opened from a run folder or a checkpoint, with its tokenizer and the message
 * of the last failure. Functions return 0 or one of the negative codes below; results leave through
 * the last arguments. The library never prints, exits or aborts. A session and its streams belong
 * to one thread at a time. */
#ifndef LONGSHOT_H
#define LONGSHOT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LS_API __attribute__((visibility("default")))
#else
#define LS_API
#endif

enum {
    LONGSHOT_OK = 0,
    LONGSHOT_EUSE = -2,   /* wrong use: an unknown option, a bad number */
    LONGSHOT_EINPUT = -3, /* a file or a token that is not as it should be */
    LONGSHOT_ENOMEM = -4,
    LONGSHOT_EIO = -5,
    LONGSHOT_ESTOP = -6, /* a callback asked to stop */
    LONGSHOT_EBUG = -7,
};

typedef struct longshot longshot;
typedef struct longshot_stream longshot_stream;

/* Fill with longshot_options_default, then change what is wanted. */
typedef struct longshot_options {
    size_t size;        /* of this struct, as the default sets it */
    int threads;        /* 0: as many as there are processors */
    const char *dtype;  /* "f64", "f32", "bf16"; NULL: as trained */
    const char *extend; /* test-time extension in words, e.g. "extend=yarn extend.factor=4"; NULL */
} longshot_options;

LS_API const char *longshot_version(void);
LS_API longshot_options longshot_options_default(void);

/* Opens a run folder (its newest good checkpoint) or a checkpoint folder. options may be NULL.
 * *out is a session also where the call fails (unless memory is out: then NULL), so that
 * longshot_error can tell why; close it in any case. */
LS_API int longshot_open(const char *path, const longshot_options *options, longshot **out);
LS_API void longshot_close(longshot *session); /* NULL is fine */
/* The sentence of the last failure, "" where there was none; valid until the next call. */
LS_API const char *longshot_error(const longshot *session);

LS_API int64_t longshot_vocabulary(const longshot *session);
LS_API int64_t longshot_trained_length(const longshot *session);
LS_API int64_t longshot_parameters(const longshot *session);

/* Text to tokens and back. *count (*length) is what the whole result takes, also where it is more
 * than the room: then LONGSHOT_EUSE, and nothing is written. */
LS_API int longshot_encode(longshot *session, const char *text, size_t length, int32_t *tokens,
                           size_t room, size_t *count);
LS_API int longshot_decode(longshot *session, const int32_t *tokens, size_t count, char *text,
                           size_t room, size_t *length);

/* A sequence walking through the model: however it is cut into calls, the numbers are the same.
 * capacity: most tokens it will ever have; chunk: how many are computed at once at most. Close it
 * before its session. */
LS_API int longshot_stream_open(longshot *session, int64_t capacity, int64_t chunk,
                                longshot_stream **out);
LS_API void longshot_stream_close(longshot_stream *stream); /* NULL is fine */
LS_API void longshot_stream_reset(longshot_stream *stream);
LS_API int64_t longshot_stream_position(const longshot_stream *stream);
/* loss[i] = -log p(targets[i] | tokens so far, up to tokens[i]), in nats; 0 where a target is -1.
 */
LS_API int longshot_stream_loss(longshot_stream *stream, const int32_t *tokens,
                                const int32_t *targets, int64_t count, double *loss);
/* Feeds tokens; logits [vocabulary] after the last of them. */
LS_API int longshot_stream_logits(longshot_stream *stream, const int32_t *tokens, int64_t count,
                                  double *logits);

/* How tokens are drawn: temperature 0 takes the most likely; top_k 0 and top_p 1 mean all. */
typedef struct longshot_sampling {
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
} longshot_sampling;
/* Called with the bytes of each token (which may end inside a character); not 0 stops. */
typedef int (*longshot_text)(void *user, const char *bytes, size_t length);
/* Goes on from a prompt for at most `tokens` tokens. The same seed gives the same text. */
LS_API int longshot_generate(longshot *session, const char *prompt, int64_t tokens,
                             const longshot_sampling *how, longshot_text text, void *user);

#ifdef __cplusplus
}
#endif

#endif
