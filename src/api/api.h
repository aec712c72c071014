/* Behind the installed interface (include/longshot/longshot.h): its objects, and what its files
 * share. */
#ifndef LS_API_API_H
#define LS_API_API_H

#include <jansson.h>
#include <signal.h>

#include "longshot/longshot.h"
#include "train/trained.h"

struct longshot_engine {
    ls_ctx ctx;
    char cache[LS_OPTION_TEXT_BYTES]; /* folder; empty: the user's */
    char device[32];
    int64_t threads; /* as asked for */
    volatile sig_atomic_t stop;
    char folder[LS_OPTION_TEXT_BYTES]; /* of the last training or study */
    ls_known_keys known;               /* of the call */
};

struct longshot_tokenizer {
    longshot_engine *engine;
    ls_tokenizer *inner;
    bool borrowed; /* it is a model's */
};

struct longshot_model {
    longshot_engine *engine;
    ls_trained trained;
    longshot_tokenizer tokenizer; /* inner NULL: there is none */
    longshot_stream *scorer;      /* of whole sequences: made when first needed */
};

struct longshot_stream {
    longshot_engine *engine;
    longshot_model *model;
    ls_stream *inner;
    int64_t batch, capacity, source;
    bool sourced; /* what the encoder reads is there */
    double *wide; /* what the model gives before it is narrowed; grows */
    int32_t *columns;
    size_t wide_count, columns_count;
};

/* Every call begins without an error: the first failure of a context stays in it. */
ls_ctx *ls__api_begin(longshot_engine *engine);
/* The end of a call that could be stopped: a stop that was obeyed is over. */
int ls__api_end(longshot_engine *engine, ls_status status);

/* Options of any age into the `known` bytes of this version's struct: see longshot.h. `given` NULL:
 * all 0. */
ls_status ls__api_options(ls_ctx *ctx, const void *given, void *out, size_t known,
                          const char *what);
/* A result for the caller's struct, whose size it has set itself: `from` is this version's. */
ls_status ls__api_check_result(ls_ctx *ctx, const void *result, const char *what);
void ls__api_put_result(const void *from, size_t known, void *result);

/* Adds the words of a NULL-ended array (or NULL). */
ls_status ls__api_put_settings(ls_ctx *ctx, const char *const *words, ls_settings *settings);
/* The seed, which has no section. */
ls_status ls__api_read_seed(ls_ctx *ctx, const ls_settings *settings, int64_t *out);
/* LS_EUSE where a recipe wants what the engine decides: device, threads, isa, cache. */
ls_status ls__api_refuse_engine_keys(ls_ctx *ctx, const ls_settings *settings);
/* Ids into the caller's room: *count is what they take, LS_EUSE where that is more. */
ls_status ls__api_give_ids(ls_ctx *ctx, const ls_ids *ids, int32_t *tokens, size_t room,
                           size_t *count);
/* A text that the caller frees. */
ls_status ls__api_give_text(ls_ctx *ctx, const char *text, char **out);
/* The same of JSON, which is released; NULL is LS_ENOMEM. */
ls_status ls__api_give_json(ls_ctx *ctx, json_t *json, char **out);

#endif
