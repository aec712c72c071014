/* The streams that fuzz_stream.c loads saved bytes into, and that its seeds are made with. */
#ifndef LS_FUZZ_STREAM_FIXTURE_H
#define LS_FUZZ_STREAM_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"

enum { STREAM_KINDS = 4, STREAM_VOCABULARY = 7 };

/* A stream of a small model of each kind of state; it lives as long as the program. */
static inline ls_stream *fuzz_stream(ls_ctx *ctx, size_t kind) {
    static const char *const kinds[STREAM_KINDS] = {
        "mixer.heads=1 model.position=rope",
        "mixer.heads=1 model.position=none model.segment=5 model.memory=1",
        "model.mixer=transformer_xl mixer.heads=1 mixer.segment=4 mixer.memory=6",
        "model.mixer=mamba",
    };
    static ls_model_config configs[STREAM_KINDS];
    static ls_stream *made[STREAM_KINDS];
    if (made[kind] != NULL) return made[kind];
    char words[256];
    ls_model *model;
    snprintf(words, sizeof words, "model.layers=1 model.width=8 model.vocabulary=7 %s",
             kinds[kind]);
    if (ls_model_config_read_words(ctx, words, &configs[kind]) != LS_OK ||
        ls_model_new(ctx, &configs[kind], LS_F32, 3, false, &model) != LS_OK ||
        ls_stream_new(model, 1, 16, 8, &made[kind]) != LS_OK)
        abort();
    return made[kind];
}

#endif
