/* tokenizer.json of hostile origin. The first byte chooses: even, the input is FILE 0 TEXT; odd, it
 * is PARTS 0 TEXT, where PARTS is an object of everything but the model, which is then one of three
 * small good ones, so that the parts are reached. Whatever loads must encode and decode within its
 * vocabulary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"

enum { TEXT_MOST = 300, FILE_MOST = 30000 };

static const char *const models[] = {
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"a\", \"byte_fallback\": true, \"vocab\": "
    "{\"a\": 0, \"b\": 1, \"ab\": 2, \"\xc4\xa0\": 3, \"\xc4\xa0\x61\": 4, \"<0x41>\": 5, "
    "\"\xe2\x96\x81\": 6, \"aba\": 7}, \"merges\": [\"a b\", [\"\xc4\xa0\", \"a\"], \"ab a\"]}",
    "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": true, \"vocab\": "
    "[[\"<unk>\", 0], [\"a\", -1], [\"ab\", -1.5], [\"\xe2\x96\x81\x61\", -2], [\"<0x41>\", -3]]}",
    "\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"[UNK]\", "
    "\"continuing_subword_prefix\": \"##\", \"max_input_chars_per_word\": 20, \"vocab\": "
    "{\"[UNK]\": 0, \"a\": 1, \"##b\": 2, \"ab\": 3, \"##\xc3\xa9\": 4}}",
};

static void use(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *text, size_t length) {
    for (unsigned flags = 0; flags < 4; flags++) {
        ls_ids ids = {0};
        ls_text out = {0};
        ls_status status = ls_tokenizer_encode(ctx, tokenizer, text, length, flags, &ids);
        if (status != LS_OK && status != LS_EINPUT) abort();
        for (size_t i = 0; i < ids.count; i++)
            if (ids.at[i] < 0 || ids.at[i] >= ls_tokenizer_vocabulary(tokenizer)) abort();
        if (ls_tokenizer_decode(ctx, tokenizer, ids.at, ids.count, &out) != LS_OK) abort();
        status = ls_tokenizer_decode_text(ctx, tokenizer, ids.at, ids.count, flags, &out);
        if (status != LS_OK && status != LS_EINPUT) abort();
        ls_ids_clear(ctx, &ids);
        ls_text_clear(ctx, &out);
        ctx->error = (ls_error){0};
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    const uint8_t choice = *data++;
    size--;
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    size_t length = end == NULL ? size : (size_t)(end - data);
    const char *text = end == NULL ? "" : (const char *)end + 1;
    size_t text_length = end == NULL ? 0 : size - length - 1;
    if (text_length > TEXT_MOST || length > FILE_MOST) return 0;
    ls_text json = {0};
    if (choice & 1) {
        /* { PARTS without its first brace, after the model */
        ls_text_printf(&ctx, &json, "{%s, ", models[choice / 2 % 3]);
        if (length > 0) ls_text_append(&ctx, &json, data + 1, length - 1);
    } else {
        ls_text_append(&ctx, &json, data, length);
    }
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_new_json(&ctx, json.bytes, json.length, NULL, "fuzz", &tokenizer) == LS_OK) {
        use(&ctx, tokenizer, text, text_length);
        ls_tokenizer_free(&ctx, tokenizer);
    }
    ls_text_clear(&ctx, &json);
    return 0;
}
