#include "data/tokenizer.h"

#include <string.h>

#include "base/json.h"
#include "data/bpe.h"

enum { PATH_BYTES = 4096, FILE_MOST = 100000000 };
#define BYTE_FILE "byte_tokenizer.json"

ls_status ls_ids_append(ls_ctx *ctx, ls_ids *ids, const int32_t *more, size_t count) {
    if (!ls_array_reserve(ctx, &ids->at, &ids->capacity, ids->count + count, sizeof *ids->at))
        return LS_ENOMEM;
    if (count > 0) memcpy(ids->at + ids->count, more, count * sizeof *more);
    ids->count += count;
    return LS_OK;
}

void ls_ids_clear(ls_ctx *ctx, ls_ids *ids) {
    ls_free(ctx, ids->at);
    *ids = (ls_ids){0};
}

ls_status ls_tokenizer_new_byte(ls_ctx *ctx, ls_tokenizer **out) {
    *out = ls_new(ctx, 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    (*out)->vocabulary = 256;
    (*out)->end = -1;
    (*out)->hash = ls_hash("byte", 4);
    return LS_OK;
}

static ls_status load_pair(ls_ctx *ctx, const char *vocab_path, const char *merges_path,
                           ls_tokenizer **out) {
    ls_text vocab = {0}, merges = {0};
    ls_status status = ls_file_read(ctx, vocab_path, FILE_MOST, &vocab);
    if (status == LS_OK) status = ls_file_read(ctx, merges_path, FILE_MOST, &merges);
    if (status == LS_OK)
        status = ls_tokenizer_new_bpe(ctx, vocab.bytes, vocab.length, merges.bytes, merges.length,
                                      vocab_path, out);
    ls_text_clear(ctx, &vocab);
    ls_text_clear(ctx, &merges);
    return status;
}

ls_status ls_tokenizer_load(ls_ctx *ctx, const char *source, ls_tokenizer **out) {
    static const char *const pairs[][2] = {{"vocab.json", "merges.txt"},
                                           {"encoder.json", "vocab.bpe"}};
    char first[PATH_BYTES], second[PATH_BYTES];
    *out = NULL;
    if (strcmp(source, "byte") == 0) return ls_tokenizer_new_byte(ctx, out);
    if (ls_path_is_folder(source)) {
        for (size_t i = 0; i < 2; i++) {
            LS_TRY(ls_path_join(ctx, first, sizeof first, source, pairs[i][0]));
            LS_TRY(ls_path_join(ctx, second, sizeof second, source, pairs[i][1]));
            if (ls_path_exists(first)) return load_pair(ctx, first, second, out);
        }
        LS_TRY(ls_path_join(ctx, first, sizeof first, source, BYTE_FILE));
        if (ls_path_exists(first)) return ls_tokenizer_new_byte(ctx, out);
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s holds neither vocab.json + merges.txt nor encoder.json + vocab.bpe",
                       source);
    }
    const char *comma = strchr(source, ',');
    if (comma == NULL)
        return LS_FAIL(ctx, LS_EINPUT,
                       "the tokenizer %s is neither `byte`, a folder, nor VOCAB.json,MERGES.txt",
                       source);
    if ((size_t)(comma - source) >= sizeof first)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", source);
    memcpy(first, source, (size_t)(comma - source));
    first[comma - source] = '\0';
    return load_pair(ctx, first, comma + 1, out);
}

ls_status ls_tokenizer_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    static const char byte_text[] = "{\"kind\": \"byte\", \"vocabulary\": 256}\n";
    char path[PATH_BYTES];
    if (tokenizer->bpe) return ls__bpe_save(ctx, tokenizer, folder);
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, BYTE_FILE));
    return ls_file_write(ctx, path, byte_text, sizeof byte_text - 1);
}

void ls_tokenizer_free(ls_ctx *ctx, ls_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    if (tokenizer->pattern != NULL) pcre2_code_free(tokenizer->pattern);
    if (tokenizer->memory != NULL) pcre2_general_context_free(tokenizer->memory);
    ls_free(ctx, tokenizer->pool);
    ls_free(ctx, tokenizer->begin);
    ls_free(ctx, tokenizer->plain);
    ls_free(ctx, tokenizer->merges);
    ls_free(ctx, tokenizer->pair_slots);
    ls_free(ctx, tokenizer);
}

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer) {
    return tokenizer->bpe ? "bpe" : "byte";
}

int64_t ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer) {
    return tokenizer->vocabulary;
}

int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer) {
    return tokenizer->end;
}

uint64_t ls_tokenizer_hash(const ls_tokenizer *tokenizer) {
    return tokenizer->hash;
}

ls_status ls_tokenizer_decode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                              size_t count, ls_text *out) {
    ls_text_append(ctx, out, "", 0);
    for (size_t i = 0; i < count; i++) {
        int32_t id = ids[i];
        if (id < 0 || id >= tokenizer->vocabulary)
            return LS_FAIL(ctx, LS_EINPUT, "the id %ld is outside the vocabulary of %lld", (long)id,
                           (long long)tokenizer->vocabulary);
        if (tokenizer->bpe) {
            uint32_t begin = tokenizer->begin[id];
            ls_text_append(ctx, out, tokenizer->pool + begin, tokenizer->begin[id + 1] - begin);
        } else {
            uint8_t byte = (uint8_t)id;
            ls_text_append(ctx, out, &byte, 1);
        }
    }
    return ls_text_status(out);
}

ls_status ls_tokenizer_encode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *text,
                              size_t length, bool special, ls_ids *out) {
    ls_encoder *encoder;
    LS_TRY(ls_encoder_new(ctx, tokenizer, &encoder));
    ls_status status = ls_encoder_encode(ctx, encoder, text, length, special, out);
    ls_encoder_free(ctx, encoder);
    return status;
}
