/* Public checkpoints of one small layer in a fuzz target's folder, of which the target writes one
 * file anew for each input. */
#ifndef LS_FUZZ_PUBLIC_H
#define LS_FUZZ_PUBLIC_H

#include "fuzz_folder.h"
#include "model/family.h"

#define FUZZ_EMBEDDING "model.embed_tokens.weight"
#define FUZZ_QUERY "model.layers.0.self_attn.q_proj"
#define FUZZ_NORM "model.norm.weight"
#define FUZZ_HEAD "lm_head.weight"

enum { FUZZ_WIDTH = 4 };
static const int64_t fuzz_square[2] = {FUZZ_WIDTH, FUZZ_WIDTH};
static const float fuzz_values[FUZZ_WIDTH * FUZZ_WIDTH] = {1, -2, 3, -4, 5, -6, 7};

/* A row, or a square of that width. */
#define FUZZ_ROW(name)                                                                             \
    { name, LS_STORED_F32, 1, fuzz_square, fuzz_values }
#define FUZZ_SQUARE(name)                                                                          \
    { name, LS_STORED_F32, 2, fuzz_square, fuzz_values }

static inline void fuzz_public_put(const char *name, const ls_safetensor_source *tensors,
                                   size_t count) {
    ls_ctx ctx = ls_ctx_default();
    char path[256];
    snprintf(path, sizeof path, "%s/%s", fuzz_folder_make(), name);
    if (ls_safetensors_write(&ctx, path, tensors, count, NULL, 0) != LS_OK) abort();
}

static inline void fuzz_public_put_config(const char *folder) {
    static const char config[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 4, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 1, \"intermediate_size\": 4, \"vocab_size\": 4, "
        "\"tie_word_embeddings\": true}";
    char name[64];
    snprintf(name, sizeof name, "%s/config.json", folder);
    fuzz_folder_put(name, config, sizeof config - 1);
}

/* The folder is a checkpoint whose tensors have names of their own and can be read, or an error
 * with a sentence. */
static inline void fuzz_public_open(const char *name) {
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    char folder[256];
    double values[FUZZ_WIDTH * FUZZ_WIDTH];
    snprintf(folder, sizeof folder, "%s/%s", fuzz_folder_make(), name);
    if (ls_family_open(&ctx, folder, &family) == LS_OK) {
        for (size_t i = 0; i < family.file.count; i++) {
            const ls_safetensor *item = &family.file.items[i];
            if (ls_safetensors_find(&family.file, item->name) != item) abort();
            if (item->count > FUZZ_WIDTH * FUZZ_WIDTH) abort();
            ls_safetensor_f64(item, 0, item->count, values);
        }
        if (ls_safetensors_check(&ctx, &family.file) != LS_OK) abort();
    } else if (ctx.error.message[0] == '\0') {
        abort();
    }
    ls_family_close(&ctx, &family);
}

#endif
