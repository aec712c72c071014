/* Small models made of words, for tests of streams. */
#ifndef LS_TESTS_STREAM_MODEL_H
#define LS_TESTS_STREAM_MODEL_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"

enum { VOCABULARY = 29 };

typedef struct world {
    ls_ctx ctx;
    ls_model_config config;
    ls_model *model;
} world;

static inline void expect(world *w, ls_status status, const char *what) {
    if (status != LS_OK) fail_msg("%s: %s", what, w->ctx.error.message);
}
#define OK(w, expression) expect((w), (expression), #expression)
/* A failure that is meant: the next one has a code of its own. */
static inline void refused(world *w, ls_status status, ls_status code) {
    assert_int_equal(status, code);
    w->ctx.error = (ls_error){0};
}

/* "mixer.heads=2 model.position=rope": two layers of width 16 where the words do not say. */
static inline ls_status read_words(ls_ctx *ctx, const char *words, ls_model_config *out) {
    char all[512];
    snprintf(all, sizeof all, "model.layers=2 model.vocabulary=%d %s %s", VOCABULARY,
             strstr(words, "model.width") == NULL ? "model.width=16" : "", words);
    return ls_model_config_read_words(ctx, all, out);
}

static inline void world_open(world *w, const char *words, ls_dtype type, int threads) {
    *w = (world){.ctx = ls_ctx_default()};
    w->ctx.threads = threads;
    OK(w, read_words(&w->ctx, words, &w->config));
    OK(w, ls_model_new(&w->ctx, &w->config, type, 3, false, &w->model));
}

static inline void world_close(world *w) {
    ls_model_free(w->model);
    ls_model_config_clear(&w->ctx, &w->config);
}

/* A text by its number. */
static inline int32_t token_of(int64_t which, int64_t at) {
    return (int32_t)((7 * at + at * at / 3 + 11 * which) % VOCABULARY);
}

/* To the bit on the processor. A device's library takes other kernels for few rows than for
 * many. */
static inline bool same_logits(const world *w, ls_dtype type, const double *a, const double *b) {
    if (w->ctx.device == NULL) return memcmp(a, b, VOCABULARY * sizeof *a) == 0;
    const double bound = type == LS_BF16 ? 3e-2 : type == LS_F32 ? 1e-4 : 1e-12;
    bool near = true;
    for (int i = 0; i < VOCABULARY; i++) near &= fabs(a[i] - b[i]) <= bound * (1 + fabs(a[i]));
    return near;
}

#endif
