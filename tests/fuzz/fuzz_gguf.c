/* Any bytes as a GGUF file: a refusal with a message, or one whose every key and value can be read;
 * its model and its tokenizer are refused or can be used. */
#include <stdlib.h>

#include "data/tokenizer.h"
#include "model/blocks.h"
#include "model/family.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);

static double read_key(const ls_gguf_key *key) {
    ls_gguf_walk walk = ls_gguf_walk_of(key);
    ls_gguf_text text = {0};
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    uint64_t seen = 0;
    while (ls_gguf_next(&walk)) {
        seen++;
        ls_gguf_real(&walk.element, &real);
        if (ls_gguf_string(&walk.element, &text) && text.length > 0)
            real = text.at[text.length - 1];
    }
    if (key->kind == LS_GGUF_ARRAY && seen != key->count) abort();
    ls_gguf_integer(key, &whole);
    ls_gguf_boolean(key, &flag);
    return real + flag;
}

static double read_values(const ls_gguf_tensor *tensor) {
    const ls_safetensor stored = ls_blocks_tensor(tensor);
    double sum = 0;
    if (stored.block != 0 && !ls_blocks_known(stored.block)) return 0;
    for (int64_t k = 0; k < stored.count && k < 100000; k++) {
        double value;
        float narrow;
        ls_safetensor_f64(&stored, k, 1, &value);
        ls_safetensor_f32(&stored, k, 1, &narrow);
        sum += value + (double)narrow;
    }
    return sum;
}

static void read_model(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_family family;
    ls_model_config config = {0};
    if (ls_family_parse_gguf(&ctx, bytes, length, "input", &family) == LS_OK) {
        if (family.type == NULL || family.naming.rules == 0) abort();
        if (ls_model_config_read(&ctx, &family.settings, &config) == LS_OK &&
            config.model.vocabulary < 1)
            abort();
        ls_model_config_clear(&ctx, &config);
    } else if (ctx.error.message[0] == '\0') {
        abort();
    }
    ls_family_close(&ctx, &family);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    ls_tokenizer *tokenizer = NULL;
    double sum = 0;
    if (ls_gguf_view(&ctx, bytes, length, "input", &file) != LS_OK) {
        if (ctx.error.message[0] == '\0') abort();
        return 0;
    }
    for (size_t i = 0; i < file.key_count; i++) {
        if (ls_gguf_find(&file, file.keys[i].name) != &file.keys[i]) abort();
        sum += read_key(&file.keys[i]);
    }
    for (size_t i = 0; i < file.tensor_count; i++) sum += read_values(&file.tensors[i]);
    if (ls_tokenizer_new_in_gguf(&ctx, &file, "input", &tokenizer) == LS_OK)
        ls_tokenizer_free(&ctx, tokenizer);
    ls_gguf_close(&ctx, &file);
    read_model(bytes, length);
    return sum == 1.5;
}
