/* Tokenizers of the installed interface. */
#include <string.h>

#include "api/api.h"

int longshot_tokenizer_open(longshot_engine *engine, const char *source, longshot_tokenizer **out) {
    ls_ctx *ctx = ls__api_begin(engine);
    *out = ls_new(ctx, 1, sizeof **out);
    if (*out == NULL) return LONGSHOT_ENOMEM;
    (*out)->engine = engine;
    ls_status status = ls_tokenizer_load(ctx, source, &(*out)->inner);
    if (status != LS_OK) {
        ls_free(ctx, *out);
        *out = NULL;
    }
    return (int)status;
}

void longshot_tokenizer_close(longshot_tokenizer *tokenizer) {
    if (tokenizer == NULL || tokenizer->borrowed) return;
    ls_ctx *ctx = &tokenizer->engine->ctx;
    ls_tokenizer_free(ctx, tokenizer->inner);
    ls_free(ctx, tokenizer);
}

int64_t longshot_tokenizer_vocabulary(const longshot_tokenizer *tokenizer) {
    return ls_tokenizer_vocabulary(tokenizer->inner);
}

int32_t longshot_tokenizer_end(const longshot_tokenizer *tokenizer) {
    return ls_tokenizer_end(tokenizer->inner);
}

ls_status ls__api_give_ids(ls_ctx *ctx, const ls_ids *ids, int32_t *tokens, size_t room,
                           size_t *count) {
    *count = ids->count;
    if (ids->count > room)
        return LS_FAIL(ctx, LS_EUSE, "%zu tokens do not fit into %zu", ids->count, room);
    if (ids->count > 0) memcpy(tokens, ids->at, ids->count * sizeof *tokens);
    return LS_OK;
}

int longshot_encode(longshot_tokenizer *tokenizer, const char *text, size_t length, unsigned flags,
                    int32_t *tokens, size_t room, size_t *count) {
    ls_ctx *ctx = ls__api_begin(tokenizer->engine);
    ls_ids ids = {0};
    *count = 0;
    if ((flags & ~(unsigned)(LONGSHOT_ENCODE_SPECIAL | LONGSHOT_ENCODE_TEMPLATE)) != 0)
        return (int)LS_FAIL(ctx, LS_EUSE, "flags=%u: a sum of LONGSHOT_ENCODE_*", flags);
    ls_status status = ls_tokenizer_encode(ctx, tokenizer->inner, text, length, flags, &ids);
    if (status == LS_OK) status = ls__api_give_ids(ctx, &ids, tokens, room, count);
    ls_ids_clear(ctx, &ids);
    return (int)status;
}

int longshot_decode(longshot_tokenizer *tokenizer, const int32_t *tokens, size_t count, char *text,
                    size_t room, size_t *length) {
    ls_ctx *ctx = ls__api_begin(tokenizer->engine);
    ls_text bytes = {0};
    *length = 0;
    ls_status status = ls_tokenizer_decode(ctx, tokenizer->inner, tokens, count, &bytes);
    if (status == LS_OK) status = ls_text_status(&bytes);
    if (status == LS_OK) *length = bytes.length;
    if (status == LS_OK && bytes.length > room)
        status = LS_FAIL(ctx, LS_EUSE, "%zu bytes do not fit into %zu", bytes.length, room);
    if (status == LS_OK && bytes.length > 0) memcpy(text, bytes.bytes, bytes.length);
    ls_text_clear(ctx, &bytes);
    return (int)status;
}
