/* vocab.json and merges.txt of hostile origin. The first byte chooses: even, the input is
 * VOCAB 0 MERGES 0 TEXT; odd, the vocabulary is the bytes with some words and the input is
 * MERGES 0 TEXT, so that merges are reached. Whatever loads must give every text back. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/tokenizer.h"

static const char *good_vocabulary(ls_ctx *ctx, size_t *length) {
    static ls_text text; /* made once, kept to the end */
    static const int first[] = {33, 161, 174, 256}, last[] = {126, 172, 255, 323};
    static const char *const words[] = {"ab", "abc", "bc", "aa", "aaa", "aaaa", "the", "th", "he"};
    if (text.length == 0) {
        int id = 0;
        for (int range = 0; range < 4; range++)
            for (int letter = first[range]; letter <= last[range]; letter++, id++) {
                ls_text_printf(ctx, &text, "%s\"", id == 0 ? "{" : ", ");
                if (letter == '"' || letter == '\\') ls_text_append(ctx, &text, "\\", 1);
                char bytes[2] = {(char)(letter < 128 ? letter : 0xC0 | letter >> 6),
                                 (char)(0x80 | (letter & 0x3F))};
                ls_text_append(ctx, &text, bytes, letter < 128 ? 1 : 2);
                ls_text_printf(ctx, &text, "\": %d", id);
            }
        for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
            ls_text_printf(ctx, &text, ", \"%s\": %d", words[i], id++);
        ls_text_append(ctx, &text, "}", 1);
    }
    *length = text.length;
    return text.bytes;
}

/* What comes before the next 0 byte. */
static const char *part(const uint8_t **at, size_t *left, size_t *length) {
    const char *begin = (const char *)*at;
    const uint8_t *end = *left > 0 ? memchr(*at, 0, *left) : NULL;
    *length = end == NULL ? *left : (size_t)(end - *at);
    size_t used = *length + (end != NULL);
    *at += used;
    *left -= used;
    return begin;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    ls_ctx ctx = ls_ctx_default();
    bool merges_only = *data & 1;
    size_t vocab_length, merges_length;
    data++;
    size--;
    const char *vocab =
        merges_only ? good_vocabulary(&ctx, &vocab_length) : part(&data, &size, &vocab_length);
    const char *merges = part(&data, &size, &merges_length);
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_new_bpe(&ctx, vocab, vocab_length, merges, merges_length, "fuzz",
                             &tokenizer) != LS_OK)
        return 0;
    ls_ids ids = {0};
    ls_text back = {0};
    if (ls_tokenizer_encode(&ctx, tokenizer, (const char *)data, size, false, &ids) != LS_OK ||
        ls_tokenizer_decode(&ctx, tokenizer, ids.at, ids.count, &back) != LS_OK ||
        back.length != size || (size > 0 && memcmp(back.bytes, data, size) != 0))
        abort();
    ids.count = 0;
    if (ls_tokenizer_encode(&ctx, tokenizer, (const char *)data, size, true, &ids) != LS_OK)
        abort();
    ls_ids_clear(&ctx, &ids);
    ls_text_clear(&ctx, &back);
    ls_tokenizer_free(&ctx, tokenizer);
    return 0;
}
