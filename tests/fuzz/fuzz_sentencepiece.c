/* SentencePiece models of hostile origin: one byte with the length of the text, the text, the
 * model. Whatever loads must encode and decode within its vocabulary. */
#include <stdlib.h>

#include "data/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 100000 || (size_t)*data + 1 > size) return 0;
    ls_ctx ctx = ls_ctx_default();
    const size_t length = *data;
    const char *text = (const char *)data + 1;
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_new_sentencepiece(&ctx, data + 1 + length, size - 1 - length, NULL, "fuzz",
                                       &tokenizer) != LS_OK)
        return 0;
    ls_ids ids = {0};
    ls_text out = {0};
    if (ls_tokenizer_encode(&ctx, tokenizer, text, length, LS_ENCODE_TEMPLATE, &ids) != LS_OK)
        abort();
    for (size_t i = 0; i < ids.count; i++)
        if (ids.at[i] < 0 || ids.at[i] >= ls_tokenizer_vocabulary(tokenizer)) abort();
    if (ls_tokenizer_decode(&ctx, tokenizer, ids.at, ids.count, &out) != LS_OK) abort();
    for (unsigned flags = 0; flags < 4; flags++)
        if (ls_tokenizer_decode_text(&ctx, tokenizer, ids.at, ids.count, flags, &out) != LS_OK)
            abort();
    ls_ids_clear(&ctx, &ids);
    ls_text_clear(&ctx, &out);
    ls_tokenizer_free(&ctx, tokenizer);
    return 0;
}
