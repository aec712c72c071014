/* What the tests of evaluation share: a small model, a file of documents, and losses
 * computed plainly. Include after cmocka.h. */
#ifndef LS_TESTS_EVAL_FIXTURE_H
#define LS_TESTS_EVAL_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "eval/eval.h"

enum { PLAIN_MAX = 256 };

typedef struct world {
    ls_ctx ctx;
    ls_model_config config;
    ls_model *model;
    ls_tokenizer *tokenizer;
    ls_token_file *file;
    const int64_t *sizes;
    int documents;
    ls_program *plain[PLAIN_MAX]; /* by length, for plain_losses */
} world;

static inline void world_expect(world *w, ls_status status) {
    if (status != LS_OK) fail_msg("%s: %s", ls_status_name(status), w->ctx.error.message);
}

/* A model from words such as "model.position=rope model.layers=2". */
static inline void world_model(world *w, const char *words, ls_dtype type) {
    char text[1024];
    w->ctx = ls_ctx_default();
    snprintf(text, sizeof text, "model.vocabulary=256 %s", words);
    world_expect(w, ls_model_config_read_words(&w->ctx, text, &w->config));
    world_expect(w, ls_model_new(&w->ctx, &w->config, type, 3, false, &w->model));
    world_expect(w, ls_tokenizer_new_byte(&w->ctx, &w->tokenizer));
}

/* Documents of the given sizes: of random bytes, or (constant) of one byte. */
static inline void world_documents(world *w, const int64_t *sizes, int count, bool constant) {
    char path[64];
    ls_token_writer *writer;
    w->sizes = sizes;
    w->documents = count;
    snprintf(path, sizeof path, "/tmp/longshot-eval-%ld.tokens", (long)getpid());
    world_expect(w, ls_token_writer_new(&w->ctx, path, w->tokenizer, 1, &writer));
    for (int d = 0; d < count; d++) {
        int32_t *ids = malloc((size_t)sizes[d] * sizeof *ids);
        ls_random key = {.seed = 5, .step = (uint32_t)d};
        for (int64_t i = 0; i < sizes[d]; i++)
            ids[i] = constant ? 7 : (int32_t)(ls_random_word(key, (uint64_t)i) % 256);
        world_expect(w,
                     ls_token_writer_add(&w->ctx, writer, ids, (size_t)sizes[d], (size_t)sizes[d]));
        free(ids);
    }
    world_expect(w, ls_token_writer_finish(&w->ctx, writer));
    ls_token_writer_free(&w->ctx, writer);
    world_expect(w, ls_token_file_open(&w->ctx, path, &w->file));
    unlink(path); /* the mapping keeps it */
}

static inline void world_clear(world *w) {
    for (int i = 0; i < PLAIN_MAX; i++) ls_program_free(w->plain[i]);
    ls_token_file_close(&w->ctx, w->file);
    ls_tokenizer_free(&w->ctx, w->tokenizer);
    ls_model_free(w->model);
    ls_model_config_clear(&w->ctx, &w->config);
    *w = (world){0};
}

/* Where a document begins in the file. */
static inline int64_t world_begin(const world *w, int document) {
    int64_t begin = 0;
    for (int d = 0; d < document; d++) begin += w->sizes[d];
    return begin;
}

/* The losses of a window of `length` inputs from token `begin` of the file on, by one whole pass
 * that does not stream; good until the next call. */
static inline const double *plain_losses(world *w, int64_t begin, int64_t length) {
    int32_t inputs[PLAIN_MAX], targets[PLAIN_MAX];
    assert_in_range(length, 1, PLAIN_MAX - 1);
    const ls_program_options options = {.batch = 1, .length = length};
    if (w->plain[length] == NULL)
        world_expect(w, ls_model_program(w->model, LS_MODEL_LOSS, options, &w->plain[length]));
    ls_program *program = w->plain[length];
    ls_token_file_read(w->file, begin, length, inputs);
    ls_token_file_read(w->file, begin + 1, length, targets);
    world_expect(w, ls_model_put_tokens(w->model, program, "tokens", inputs));
    world_expect(w, ls_model_put_tokens(w->model, program, "targets", targets));
    world_expect(w, ls_program_run(program, NULL, 0, 0));
    return ls_data(ls_program_find(program, "loss"));
}

/* Settings as "protocol=slide lengths=8,16 stride=4". */
static inline ls_eval_settings world_settings(world *w, const char *words) {
    char text[1024], *left = text;
    ls_eval_settings settings;
    world_expect(w, ls_options_default(&w->ctx, &ls_eval_options, &settings));
    snprintf(text, sizeof text, "%s", words);
    for (char *word; (word = strsep(&left, " ")) != NULL;) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        world_expect(w, ls_options_set(&w->ctx, &ls_eval_options, "eval.", word, value, &settings));
    }
    return settings;
}

static inline ls_eval_results world_run(world *w, const char *words) {
    ls_eval_settings settings = world_settings(w, words);
    ls_eval_results results;
    world_expect(w, ls_eval_run(w->model, w->tokenizer, w->file, &settings, NULL, &results));
    return results;
}

#endif
