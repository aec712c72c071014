/* longshot: sequence models in a program of your own. Opens what `longshot eval` opens, computes
 * logits and losses, streams, generates, trains, evaluates and runs studies.
 *
 * Objects. An engine is a device with threads, an allocator, a log and the sentence of the last
 * failure. Models, tokenizers and streams are opened from it and closed before it; a stream is
 * closed before its model. All of them are opaque.
 *
 * Errors. Functions that can fail return LONGSHOT_OK or one of the negative codes below, and leave
 * a sentence for longshot_error. Results leave through the last arguments; where a function fails
 * they are NULL, 0 or not written, as it says. The library never prints, exits or aborts.
 *
 * Threads. An engine, with everything opened from it, belongs to one thread at a time: calls on it
 * must not overlap. Different engines may be used in different threads at once. Functions that may
 * be called from anywhere say so. Callbacks come from the thread that called, during the call, and
 * must not call the engine they came from, longshot_stop excepted.
 *
 * Ownership. What a function takes is borrowed for the duration of the call, unless it says more.
 * What an `_open` or `_fork` gives belongs to the caller until the `_close`. Texts that are given
 * as `char **` belong to the caller until longshot_text_free. Pointers must not be NULL unless the
 * function says that NULL is fine.
 *
 * Options. Every options struct begins with `size`, which the caller sets to its sizeof; 0 in any
 * other member means its default, so `{.size = sizeof options}` are the defaults, as is NULL in
 * place of the struct. A program built against an older header, whose struct is smaller, gets
 * defaults for the rest. A larger struct is accepted where what this library does not know is 0.
 * Results work alike: what the caller's struct has no room for is left out, and what the library
 * does not know is set to 0.
 *
 * Settings. `settings` is a NULL-ended array of "key=value" words, as the program takes them; NULL
 * means none. docs/options.md lists the keys. An unknown key is LONGSHOT_EUSE. */
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
    LONGSHOT_EUSE = -2,   /* wrong use: an unknown key, a number out of range */
    LONGSHOT_EINPUT = -3, /* a file, a token or saved bytes that are not as they should be */
    LONGSHOT_ENOMEM = -4, /* out of memory, of the device or of the allocator */
    LONGSHOT_EIO = -5,    /* a file that cannot be read or written */
    LONGSHOT_ESTOP = -6,  /* a callback or longshot_stop asked for it */
    LONGSHOT_EBUG = -7    /* a promise within the library was broken */
};

typedef struct longshot_engine longshot_engine;
typedef struct longshot_model longshot_model;
typedef struct longshot_tokenizer longshot_tokenizer;
typedef struct longshot_stream longshot_stream;

/* "0.2.0". Any thread; the text lives as long as the program. */
LS_API const char *longshot_version(void);
/* What a code means, and what to do about it: one sentence each, "" for a number that is no code.
 * Any thread; the texts live as long as the program. */
LS_API const char *longshot_code_sentence(int code);
LS_API const char *longshot_code_hint(int code);

/* ---- engines ---- */

/* 64-byte aligned memory, or NULL where there is none. */
typedef void *(*longshot_take_fn)(void *user, size_t bytes);
typedef void (*longshot_give_fn)(void *user, void *pointer); /* never NULL */
/* A line of progress or a message, without a line end; valid during the call. */
typedef void (*longshot_log_fn)(void *user, const char *line);

typedef struct longshot_engine_options {
    size_t size;
    const char *device; /* "cpu" (NULL means it) or "cuda", through its plug-in */
    int64_t threads;    /* 0: as many as there are processors, or OMP_NUM_THREADS */
    const char *isa;    /* kernels: "base", "avx2", "avx512"; NULL: the best of this processor */
    const char *cache;  /* folder of token files and tokenizers; NULL: in the user's cache folder */
    /* Both or neither. All tensors and the library's own structs come from here; what jansson,
     * PCRE2, zstd, OpenMP and the device's driver need for themselves does not. Called from the
     * thread that uses the engine alone; must outlive it. */
    longshot_take_fn take;
    longshot_give_fn give;
    void *allocator_user;
    longshot_log_fn log; /* NULL: nothing is said */
    void *log_user;
} longshot_engine_options;

/* Any thread. *out is an engine also where the call fails, so that longshot_error can tell why;
 * where memory is out it is NULL. Close it in any case. */
LS_API int longshot_engine_open(const longshot_engine_options *options, longshot_engine **out);
/* NULL is fine. Everything opened from the engine must be closed before. */
LS_API void longshot_engine_close(longshot_engine *engine);
/* The sentence of the last failure, "" where the last call did not fail. The engine owns it, until
 * the next call. NULL, which longshot_engine_open leaves where memory is out, is fine. */
LS_API const char *longshot_error(const longshot_engine *engine);
/* Asks the training, evaluation, study or generation that runs to end with LONGSHOT_ESTOP; where
 * none runs, the next one ends so. Any thread, and signal handlers. */
LS_API void longshot_stop(longshot_engine *engine);
/* Gives back a text that a function of this engine gave. NULL is fine. */
LS_API void longshot_text_free(longshot_engine *engine, char *text);
/* What there is to choose from, as a JSON array: "mixers", "positions", "extensions", "presets",
 * "tasks" or "operations", with summary, paper, traits and options. */
LS_API int longshot_catalogue(longshot_engine *engine, const char *subject, char **json);

/* ---- tokenizers ---- */

enum {
    LONGSHOT_ENCODE_SPECIAL = 1, /* special tokens written in the text become their ids */
    LONGSHOT_ENCODE_TEMPLATE = 2 /* what the tokenizer puts around a text (BOS, EOS) is added */
};

/* "byte"; a tokenizer.json, a SentencePiece .model or a vocab.txt; "vocab.json,merges.txt"; or a
 * folder with one of these, a run folder included. */
LS_API int longshot_tokenizer_open(longshot_engine *engine, const char *source,
                                   longshot_tokenizer **out);
/* NULL is fine, and so is a model's own, which is then left alone. */
LS_API void longshot_tokenizer_close(longshot_tokenizer *tokenizer);
/* Ids are below this. */
LS_API int64_t longshot_tokenizer_vocabulary(const longshot_tokenizer *tokenizer);
/* The id that ends a document, or -1. */
LS_API int32_t longshot_tokenizer_end(const longshot_tokenizer *tokenizer);
/* Text to ids. *count is what the whole result takes, also where it is more than the room: then
 * LONGSHOT_EUSE, and nothing is written. tokens may be NULL where room is 0. flags: a sum of
 * LONGSHOT_ENCODE_*; 0 for text that is not trusted. */
LS_API int longshot_encode(longshot_tokenizer *tokenizer, const char *text, size_t length,
                           unsigned flags, int32_t *tokens, size_t room, size_t *count);
/* The bytes of ids, which may begin or end inside a character; *length and room as above. */
LS_API int longshot_decode(longshot_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                           char *text, size_t room, size_t *length);

/* ---- models ---- */

typedef struct longshot_model_options {
    size_t size;
    /* dtype=f64|f32|bf16 (default: as trained), extend=NAME, extend.KEY=VALUE, and options of
     * mixers that may differ at test */
    const char *const *settings;
} longshot_model_options;

/* Opens anything that `longshot eval` opens: a run folder (its newest good checkpoint), a
 * checkpoint folder, or a public checkpoint (a folder with config.json, a .gguf file). *out is NULL
 * where it fails. The model borrows the engine. */
LS_API int longshot_model_open(longshot_engine *engine, const char *path,
                               const longshot_model_options *options, longshot_model **out);
/* NULL is fine. */
LS_API void longshot_model_close(longshot_model *model);
LS_API longshot_engine *longshot_model_engine(const longshot_model *model);
LS_API int64_t longshot_model_vocabulary(const longshot_model *model);
/* 0 for a language model, else the classes of a classifier. */
LS_API int64_t longshot_model_classes(const longshot_model *model);
/* Sequences of an example: 2 for a classifier of pairs, else 1. */
LS_API int64_t longshot_model_sequences(const longshot_model *model);
/* 1 where an encoder reads a source first (longshot_stream_read), else 0. */
LS_API int longshot_model_encoder(const longshot_model *model);
/* The token that the decoder after an encoder begins with, or -1. */
LS_API int32_t longshot_model_start(const longshot_model *model);
LS_API int64_t longshot_model_trained_length(const longshot_model *model);
LS_API int64_t longshot_model_parameters(const longshot_model *model);
/* Training steps behind the weights, or -1 where that is not known. */
LS_API int64_t longshot_model_step(const longshot_model *model);
/* Its tokenizer, which belongs to the model; NULL where it was trained on a task. */
LS_API longshot_tokenizer *longshot_model_tokenizer(const longshot_model *model);
/* The resolved description as YAML. */
LS_API int longshot_model_config(longshot_model *model, char **yaml);

/* Whole sequences, tokens [batch, count]. The state is kept for the next call of the same batch
 * (longshot_model_close frees it); a sequence goes through in chunks of 512 tokens, so memory is
 * that of one chunk and the states.
 *
 * logits [batch, count, vocabulary] of a language model, [batch, classes] of a classifier, where
 * tokens of -1 at a sequence's end are padding. A classifier of pairs reads tokens
 * [batch, 2, count]. Models with an encoder are streams' alone. */
LS_API int longshot_model_logits(longshot_model *model, const int32_t *tokens, int64_t batch,
                                 int64_t count, float *logits);
/* loss [batch, count - 1] in nats: of tokens[i + 1] after those up to tokens[i]. */
LS_API int longshot_model_loss(longshot_model *model, const int32_t *tokens, int64_t batch,
                               int64_t count, float *loss);

/* ---- streams ---- */

/* A batch of sequences walking through a language model side by side. However they are cut into
 * calls, the numbers are the same. */
typedef struct longshot_stream_options {
    size_t size;
    int64_t batch;    /* 0: 1 */
    int64_t capacity; /* tokens that each sequence will have at most; 0: the trained length */
    int64_t chunk;    /* tokens computed at once at most; 0: 512 */
    int64_t source;   /* tokens that an encoder reads first (longshot_stream_read); 0: none */
} longshot_stream_options;

/* The stream borrows the model. *out is NULL where it fails. */
LS_API int longshot_stream_open(longshot_model *model, const longshot_stream_options *options,
                                longshot_stream **out);
/* NULL is fine. */
LS_API void longshot_stream_close(longshot_stream *stream);
/* Back to the start. */
LS_API void longshot_stream_reset(longshot_stream *stream);
LS_API int64_t longshot_stream_batch(const longshot_stream *stream);
LS_API int64_t longshot_stream_position(const longshot_stream *stream); /* tokens so far */
LS_API size_t longshot_stream_bytes(const longshot_stream *stream);     /* its state and programs */
/* Of a model with an encoder, before the first token: source [batch, source], padded at the end
 * with -1. */
LS_API int longshot_stream_read(longshot_stream *stream, const int32_t *source);
/* Feeds tokens [batch, count]; logits [batch, vocabulary] after the last of them, or NULL where
 * they are not wanted. Where it fails in the midst of several chunks, those before stay fed. */
LS_API int longshot_stream_feed(longshot_stream *stream, const int32_t *tokens, int64_t count,
                                float *logits);
/* The same with logits [batch, count, vocabulary] after each of them. */
LS_API int longshot_stream_logits(longshot_stream *stream, const int32_t *tokens, int64_t count,
                                  float *logits);
/* The same with loss [batch, count] in nats of targets [batch, count]; 0 where a target is -1. */
LS_API int longshot_stream_loss(longshot_stream *stream, const int32_t *tokens,
                                const int32_t *targets, int64_t count, float *loss);
/* A second stream at the same place, which the caller closes; both go on alike to the bit, each
 * for itself. It costs its state: what else is needed is shared. */
LS_API int longshot_stream_fork(const longshot_stream *stream, longshot_stream **out);
/* The place as bytes. *length is what they take, also where that is more than the room: then
 * LONGSHOT_EUSE, and nothing is written. bytes may be NULL where room is 0. */
LS_API int longshot_stream_save(const longshot_stream *stream, void *bytes, size_t room,
                                size_t *length);
/* Goes to a saved place, of a stream with the same options of the same model. Bytes of anything
 * else are LONGSHOT_EINPUT and change nothing; that the weights are the same is not checked. */
LS_API int longshot_stream_load(longshot_stream *stream, const void *bytes, size_t length);

/* ---- generation ---- */

typedef struct longshot_sampling {
    size_t size;
    double temperature; /* divides the logits; 0: always the most likely token */
    int64_t top_k;      /* among so many most likely tokens; 0: all */
    double top_p;       /* among the most likely that together have this probability; 0: all */
    uint64_t seed;
} longshot_sampling;

/* One token from logits [count]. `index` numbers the draws of a seed: the same seed, index and
 * logits give the same token. */
LS_API int longshot_sample(longshot_engine *engine, const float *logits, int64_t count,
                           const longshot_sampling *how, uint64_t index, int32_t *token);
/* For a loop of one's own: the ids that longshot_generate begins with after a prompt, what a public
 * checkpoint expects around a text among them; *count and room as longshot_encode. */
LS_API int longshot_prompt(longshot_model *model, const char *prompt, int32_t *tokens, size_t room,
                           size_t *count);
/* 1 where the token ends a text, else 0. Of a model without a tokenizer none does. */
LS_API int longshot_model_ends(const longshot_model *model, int32_t token);
/* A token and its bytes, which may end inside a character and are valid during the call. Not 0
 * stops: LONGSHOT_ESTOP. */
typedef int (*longshot_token_fn)(void *user, int32_t token, const char *bytes, size_t length);
/* Goes on from a prompt ("": the start of a document, or of a line) for at most `tokens` tokens,
 * or to the end of the document. The same seed gives the same text. */
LS_API int longshot_generate(longshot_model *model, const char *prompt, int64_t tokens,
                             const longshot_sampling *how, longshot_token_fn on_token, void *user);

/* ---- training ---- */

typedef struct longshot_step {
    size_t size;
    int64_t step, steps; /* done so far, rejected ones too; of all */
    int64_t tokens;      /* read so far */
    double loss, learning_rate, gradient_norm;
    int64_t accepted; /* 0: the guard kept the weights as they were */
} longshot_step;
/* Valid during the call. Not 0 ends the run after a checkpoint: LONGSHOT_ESTOP. */
typedef int (*longshot_step_fn)(void *user, const longshot_step *step);

typedef struct longshot_train_options {
    size_t size;
    const char *recipe; /* path of a YAML file; NULL: settings alone. What neither says has the
                           defaults that `longshot help train` prints */
    const char *const *settings; /* before what the recipe says: model.*, train.*, data.* or task,
                                    out=RUN, seed=N */
    longshot_step_fn on_step;    /* or NULL: after every step */
    void *user;
} longshot_train_options;

typedef struct longshot_train_result {
    size_t size;
    const char *folder; /* of the run: longshot_model_open opens it. The engine owns the text, until
                           the next training, study or close */
    int64_t parameters;
    int64_t resumed; /* the step that this call began at */
    int64_t step, tokens, rejected;
    double loss; /* of the last step */
} longshot_train_result;

/* As `longshot train`: makes a run folder, or goes on with the one that is there. LONGSHOT_ESTOP:
 * stopped after a checkpoint, and the same call goes on. result may be NULL; it is filled where the
 * call succeeds or was stopped. */
LS_API int longshot_train(longshot_engine *engine, const longshot_train_options *options,
                          longshot_train_result *result);

/* ---- evaluation ---- */

/* What is measured now, and the share of it that is done, 0 to 1. Not 0 stops. */
typedef int (*longshot_eval_progress_fn)(void *user, const char *what, int64_t length,
                                         double share);

/* docs/protocols.md says what each number means. NAN: not measured. */
typedef struct longshot_eval_row {
    size_t size;
    const char *protocol;
    int64_t length, stride; /* tokens of a window, and from one to the next */
    double loss;            /* nats per token, averaged as the protocol says */
    double perplexity, token_loss, bits_per_byte, flat, excess;
    int64_t tokens, windows, documents;
    double accuracy, exact; /* of a task */
    double seconds, tokens_per_second;
    int64_t bytes; /* weights, states, programs and scratch memory */
} longshot_eval_row;
/* A row of the results, once all are measured; valid during the call. Not 0 stops. */
typedef int (*longshot_eval_row_fn)(void *user, const longshot_eval_row *row);

typedef struct longshot_eval_options {
    size_t size;
    const char *const *settings; /* eval.*, extend, extend.*, data.*, task.*, dtype=, seed= */
    longshot_eval_progress_fn on_progress; /* or NULL */
    longshot_eval_row_fn on_row;           /* or NULL */
    void *user;                            /* of both */
    int64_t write; /* not 0: also written to eval/ in the run folder, as the program does */
} longshot_eval_options;

/* As `longshot eval PATH`. json may be NULL; else it is what the program prints with --json, and
 * NULL where the call fails. */
LS_API int longshot_eval(longshot_engine *engine, const char *path,
                         const longshot_eval_options *options, char **json);

/* ---- studies ---- */

/* A line for every job that ends, and how many of how many are done. Not 0 stops. */
typedef int (*longshot_study_progress_fn)(void *user, const char *line, int64_t done,
                                          int64_t count);

typedef struct longshot_study_options {
    size_t size;
    const char *const *settings; /* before what the study file says; out=, jobs=, seeds=, ... */
    const char *program;         /* path of `longshot`, whose train and eval are the jobs; NULL: the
                                    one installed with the library */
    longshot_study_progress_fn on_progress; /* or NULL */
    void *user;
} longshot_study_options;

typedef struct longshot_study_result {
    size_t size;
    const char *folder; /* with results.json and report.html; owned as longshot_train_result's */
    char *summary;      /* the table for people: the caller's, until longshot_text_free */
} longshot_study_result;

/* As `longshot study FILE`, with the engine's device and threads for each job; the jobs are
 * processes of their own. LONGSHOT_ESTOP: the same call goes on later. result may be NULL; where
 * the call fails its members are NULL. */
LS_API int longshot_study(longshot_engine *engine, const char *file,
                          const longshot_study_options *options, longshot_study_result *result);

/* ---- one mechanism alone ---- */

/* A tensor of a file against ours: the difference is relative to the largest reference value. Valid
 * during the call. */
typedef struct longshot_apply_row {
    size_t size;
    const char *tensor;
    double difference, tolerance;
    int64_t good; /* 0: beyond the tolerance */
} longshot_apply_row;
/* Not 0 stops. */
typedef int (*longshot_apply_row_fn)(void *user, const longshot_apply_row *row);

typedef struct longshot_apply_options {
    size_t size;
    const char *const *settings;  /* as `longshot apply` takes: mixer=NAME weights=W input=X
                                    output=Y, or golden=FILE, ... */
    longshot_apply_row_fn on_row; /* or NULL */
    void *user;
} longshot_apply_options;

/* As `longshot apply`: runs `what`, which is "mixer", "position", "model", "scan" or "tables", on
 * tensors of safetensors files, on the processor. output= gets the outputs and gradients; what
 * golden= has is compared, row by row. A difference is no failure: rows tell. */
LS_API int longshot_apply(longshot_engine *engine, const char *what,
                          const longshot_apply_options *options);

#ifdef __cplusplus
}
#endif

#endif
