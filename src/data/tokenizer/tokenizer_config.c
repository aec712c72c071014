#include "data/tokenizer/tokenizer_config.h"

ls_status ls__config_parse(ls_ctx *ctx, const ls_text *text, json_t **out) {
    *out = NULL;
    if (text == NULL || text->length == 0) return LS_OK;
    LS_TRY(ls_json_parse(ctx, text->bytes, text->length, "tokenizer_config.json", out));
    if (json_is_object(*out)) return LS_OK;
    json_decref(*out);
    *out = NULL;
    return LS_FAIL(ctx, LS_EINPUT, "tokenizer_config.json must hold an object");
}

const char *ls__config_token(const json_t *config, const char *key) {
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    return json_string_value(value);
}

/* Without a configuration the names that public tokenizers use tell which token is which. */
static const char *const usual[4][6] = {
    {"<s>", "<|begin_of_text|>", "<bos>", "[CLS]", NULL},
    {"</s>", "<|end_of_text|>", "<eos>", "<|endoftext|>", "[SEP]", NULL},
    {"<unk>", "[UNK]", NULL},
    {"<pad>", "[PAD]", "<|padding|>", NULL},
};

void ls__config_special(const json_t *config, ls_config_find find, ls_tokenizer *tokenizer) {
    static const char *const keys[4] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    ls_special_ids *ids = &tokenizer->special;
    int32_t *const into[4] = {&ids->bos, &ids->eos, &ids->unk, &ids->pad};
    for (int i = 0; i < 4; i++) {
        const char *token = ls__config_token(config, keys[i]);
        if (token != NULL) *into[i] = find(tokenizer, token);
        for (int n = 0; config == NULL && *into[i] < 0 && usual[i][n] != NULL; n++)
            *into[i] = find(tokenizer, usual[i][n]);
    }
}
