#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/temporary.h"
#include "data/encode_team.h"
#include "data/token_file.h"
#include "data/token_layout.h"

enum { PATH_BYTES = 4096, BLOCK = 4096 };

struct ls_token_writer {
    char path[PATH_BYTES], temporary[PATH_BYTES];
    FILE *file;
    XXH3_state_t *hash;
    ls_token_header header;
    uint64_t *starts, *text_bytes; /* of each document */
    size_t start_capacity, text_capacity;
};

static void store(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

static ls_status put(ls_ctx *ctx, ls_token_writer *writer, const void *bytes, size_t length) {
    XXH3_64bits_update(writer->hash, bytes, length);
    return ls_file_put(ctx, writer->file, writer->temporary, bytes, length);
}

static ls_status put_header(ls_ctx *ctx, ls_token_writer *writer) {
    const ls_token_header *h = &writer->header;
    const uint64_t words[] = {h->vocabulary, h->tokenizer,  h->key,         h->documents,
                              h->tokens,     h->text_bytes, h->content_hash};
    uint8_t bytes[LS_TOKEN_HEADER_BYTES] = {0};
    memcpy(bytes, LS_TOKEN_MAGIC, 8);
    store(bytes + 8, h->version, 4);
    store(bytes + 12, h->width, 4);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        store(bytes + 16 + 8 * i, words[i], 8);
    store(bytes + LS_TOKEN_HASH_AT, ls_hash(bytes, LS_TOKEN_HASH_AT), 8);
    return ls_file_put(ctx, writer->file, writer->temporary, bytes, sizeof bytes);
}

ls_status ls_token_writer_new(ls_ctx *ctx, const char *path, const ls_tokenizer *tokenizer,
                              uint64_t key, ls_token_writer **out) {
    *out = NULL;
    ls_token_writer *writer = ls_new(ctx, 1, sizeof *writer);
    if (writer == NULL) return LS_ENOMEM;
    ls_status status;
    int64_t vocabulary = ls_tokenizer_vocabulary(tokenizer);
    writer->header = (ls_token_header){.version = LS_TOKEN_VERSION,
                                       .width = vocabulary <= 65536 ? 2 : 4,
                                       .vocabulary = (uint64_t)vocabulary,
                                       .tokenizer = ls_tokenizer_hash(tokenizer),
                                       .key = key};
    if (strlen(path) >= PATH_BYTES) {
        status = LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
        goto fail;
    }
    memcpy(writer->path, path, strlen(path) + 1);
    writer->hash = XXH3_createState();
    if (writer->hash == NULL) {
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory for a checksum");
        goto fail;
    }
    XXH3_64bits_reset(writer->hash);
    status = ls_temporary_file(ctx, path, writer->temporary, PATH_BYTES, &writer->file);
    if (status != LS_OK) writer->temporary[0] = '\0';
    LS_TRY_GOTO(status);
    LS_TRY_GOTO(put_header(ctx, writer)); /* room for the one that counts */
    *out = writer;
    return LS_OK;
fail:
    ls_token_writer_free(ctx, writer);
    return status;
}

ls_status ls_token_writer_add(ls_ctx *ctx, ls_token_writer *writer, const int32_t *ids,
                              size_t count, size_t text_bytes) {
    uint8_t bytes[BLOCK * 4];
    ls_token_header *h = &writer->header;
    size_t index = (size_t)h->documents;
    if (count == 0) return LS_OK;
    if (!ls_array_reserve(ctx, &writer->starts, &writer->start_capacity, index + 1,
                          sizeof *writer->starts) ||
        !ls_array_reserve(ctx, &writer->text_bytes, &writer->text_capacity, index + 1,
                          sizeof *writer->text_bytes))
        return LS_ENOMEM;
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t part = count - at < BLOCK ? count - at : BLOCK;
        LS_TRY(ls_check_stop(ctx, "writing a token file"));
        for (size_t i = 0; i < part; i++) {
            if (ids[at + i] < 0 || (uint64_t)ids[at + i] >= h->vocabulary)
                return LS_FAIL(ctx, LS_EINPUT, "the id %ld is outside the vocabulary of %llu",
                               (long)ids[at + i], (unsigned long long)h->vocabulary);
            store(bytes + i * h->width, (uint64_t)ids[at + i], (int)h->width);
        }
        LS_TRY(put(ctx, writer, bytes, part * h->width));
    }
    writer->starts[index] = h->tokens;
    writer->text_bytes[index] = text_bytes;
    h->documents++;
    h->tokens += count;
    h->text_bytes += text_bytes;
    return LS_OK;
}

static ls_status put_words(ls_ctx *ctx, ls_token_writer *writer, const uint64_t *words,
                           size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        store(bytes, words[i], 8);
        LS_TRY(put(ctx, writer, bytes, sizeof bytes));
    }
    return LS_OK;
}

ls_status ls_token_writer_finish(ls_ctx *ctx, ls_token_writer *writer) {
    static const uint8_t zeros[8] = {0};
    ls_token_header *h = &writer->header;
    size_t documents = (size_t)h->documents;
    LS_TRY(put(ctx, writer, zeros, (8 - h->tokens * h->width % 8) % 8));
    LS_TRY(put_words(ctx, writer, writer->starts, documents));
    LS_TRY(put_words(ctx, writer, &h->tokens, 1));
    LS_TRY(put_words(ctx, writer, writer->text_bytes, documents));
    h->content_hash = XXH3_64bits_digest(writer->hash);
    if (fseek(writer->file, 0, SEEK_SET) != 0)
        return LS_FAIL(ctx, LS_EIO, "writing %s: %s", writer->temporary, strerror(errno));
    LS_TRY(put_header(ctx, writer));
    /* it stays open, and so held, until it has its name */
    if (fflush(writer->file) != 0 || fsync(fileno(writer->file)) != 0)
        return LS_FAIL(ctx, LS_EIO, "writing %s: %s", writer->temporary, strerror(errno));
    LS_TRY(ls_path_rename(ctx, writer->temporary, writer->path));
    writer->temporary[0] = '\0';
    return LS_OK;
}

void ls_token_writer_free(ls_ctx *ctx, ls_token_writer *writer) {
    if (writer == NULL) return;
    if (writer->file != NULL) fclose(writer->file);
    if (writer->temporary[0] != '\0') unlink(writer->temporary);
    XXH3_freeState(writer->hash);
    ls_free(ctx, writer->starts);
    ls_free(ctx, writer->text_bytes);
    ls_free(ctx, writer);
}

ls_token_side ls_token_side_of(const ls_document *document) {
    if (document->left_out) return LS_SPLIT_NONE;
    if (document->test) return LS_SPLIT_TEST;
    return document->validation ? LS_SPLIT_VALIDATION : LS_SPLIT_TRAIN;
}

static ls_status add_encoded(ls_ctx *ctx, void *user, const int32_t *ids, size_t count,
                             size_t text_bytes) {
    return ls_token_writer_add(ctx, user, ids, count, text_bytes);
}

ls_status ls_token_file_build(ls_ctx *ctx, ls_corpus *corpus, const ls_tokenizer *tokenizer,
                              ls_token_side split, uint64_t key, const char *path) {
    ls_token_writer *writer = NULL;
    ls_encode_team *team = NULL;
    ls_document document;
    ls_status status;
    LS_TRY_GOTO(ls_token_writer_new(ctx, path, tokenizer, key, &writer));
    LS_TRY_GOTO(ls_encode_team_new(ctx, tokenizer, add_encoded, writer, &team));
    ls_corpus_rewind(ctx, corpus);
    for (;;) {
        LS_TRY_GOTO(ls_corpus_next(ctx, corpus, &document));
        if (document.text == NULL) break;
        if (split != LS_SPLIT_ALL && ls_token_side_of(&document) != split) continue;
        LS_TRY_GOTO(ls_encode_team_add(ctx, team, document.text, document.length));
    }
    LS_TRY_GOTO(ls_encode_team_finish(ctx, team));
    LS_TRY_GOTO(ls_token_writer_finish(ctx, writer));
fail:
    ls_token_writer_free(ctx, writer);
    ls_encode_team_free(ctx, team);
    ls_corpus_rewind(ctx, corpus);
    return status;
}
