#include "data/tokenizer.h"

#include <string.h>

#include "base/file.h"
#include "data/tokenizer/kind.h"
#include "data/tokenizer/unicode.h"

enum { PATH_BYTES = 4096 };

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

ls_status ls__tokenizer_new(ls_ctx *ctx, const ls_tokenizer_type *kind, size_t size, void *out) {
    ls_tokenizer *tokenizer = ls_new(ctx, 1, size);
    if (tokenizer == NULL) return LS_ENOMEM;
    tokenizer->kind = kind;
    tokenizer->special = (ls_special_ids){-1, -1, -1, -1};
    memcpy(out, &tokenizer, sizeof tokenizer);
    return LS_OK;
}

ls_status ls__tokenizer_keep(ls_ctx *ctx, ls_tokenizer *tokenizer, const char *name,
                             const void *bytes, size_t length) {
    ls_kept_file *file = tokenizer->files;
    while (file->name != NULL) file++;
    file->name = name;
    ls_text_append(ctx, &file->text, bytes, length);
    return ls_text_status(&file->text);
}

void ls_tokenizer_free(ls_ctx *ctx, ls_tokenizer *tokenizer) {
    if (tokenizer == NULL) return;
    if (tokenizer->kind->clear != NULL) tokenizer->kind->clear(ctx, tokenizer);
    ls__vocabulary_clear(ctx, &tokenizer->pieces);
    for (int i = 0; i < LS_KEPT_FILES; i++) ls_text_clear(ctx, &tokenizer->files[i].text);
    ls_free(ctx, tokenizer);
}

ls_status ls_tokenizer_save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    char path[PATH_BYTES];
    if (tokenizer->kind->save != NULL) return tokenizer->kind->save(ctx, tokenizer, folder);
    for (int i = 0; i < LS_KEPT_FILES && tokenizer->files[i].name != NULL; i++) {
        const ls_kept_file *file = &tokenizer->files[i];
        LS_TRY(ls_path_join(ctx, path, sizeof path, folder, file->name));
        LS_TRY(ls_file_write(ctx, path, file->text.bytes, file->text.length));
    }
    return LS_OK;
}

const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer) {
    return tokenizer->kind->name;
}

int64_t ls_tokenizer_vocabulary(const ls_tokenizer *tokenizer) {
    return tokenizer->vocabulary;
}

ls_special_ids ls_tokenizer_special(const ls_tokenizer *tokenizer) {
    return tokenizer->special;
}

int32_t ls_tokenizer_end(const ls_tokenizer *tokenizer) {
    return tokenizer->special.eos;
}

uint64_t ls_tokenizer_hash(const ls_tokenizer *tokenizer) {
    return tokenizer->hash;
}

ls_status ls_tokenizer_check(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                             size_t count) {
    for (size_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= tokenizer->vocabulary)
            return LS_FAIL(ctx, LS_EINPUT, "the id %ld is outside the vocabulary of %lld",
                           (long)ids[i], (long long)tokenizer->vocabulary);
    return LS_OK;
}

ls_status ls_tokenizer_decode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                              size_t count, ls_text *out) {
    ls_text_append(ctx, out, "", 0);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_tokenizer_check(ctx, tokenizer, &ids[i], 1));
        ls_bytes piece = ls__vocabulary_at(&tokenizer->pieces, ids[i]);
        ls_text_append(ctx, out, piece.at, piece.length);
    }
    return ls_text_status(out);
}

static ls_status join_pieces(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                             size_t count, unsigned flags, ls_text *out) {
    for (size_t i = 0; i < count; i++) {
        bool known = ids[i] >= 0 && ids[i] < tokenizer->vocabulary;
        if (!known || ((flags & LS_DECODE_SKIP_SPECIAL) && ids[i] == tokenizer->special.eos))
            continue;
        LS_TRY(ls_tokenizer_decode(ctx, tokenizer, &ids[i], 1, out));
    }
    return ls_text_status(out);
}

ls_status ls_tokenizer_decode_text(ls_ctx *ctx, const ls_tokenizer *tokenizer, const int32_t *ids,
                                   size_t count, unsigned flags, ls_text *out) {
    ls_text_append(ctx, out, "", 0);
    if (tokenizer->kind->decode != NULL)
        return tokenizer->kind->decode(ctx, tokenizer, ids, count, flags, out);
    if (!(flags & LS_DECODE_UTF8)) return join_pieces(ctx, tokenizer, ids, count, flags, out);
    ls_text bytes = {0};
    ls_text_append(ctx, &bytes, "", 0);
    ls_status status = join_pieces(ctx, tokenizer, ids, count, flags, &bytes);
    if (status == LS_OK)
        ls__utf8_append_valid(ctx, (const uint8_t *)bytes.bytes, bytes.length, out);
    ls_text_clear(ctx, &bytes);
    return status != LS_OK ? status : ls_text_status(out);
}

ls_status ls_encoder_new(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_encoder **out) {
    *out = NULL;
    ls_encoder *encoder = ls_new(ctx, 1, tokenizer->kind->encoder_size);
    if (encoder == NULL) return LS_ENOMEM;
    encoder->tokenizer = tokenizer;
    ls_status status = LS_OK;
    if (tokenizer->kind->encoder_init != NULL) status = tokenizer->kind->encoder_init(ctx, encoder);
    if (status == LS_OK)
        *out = encoder;
    else
        ls_encoder_free(ctx, encoder);
    return status;
}

void ls_encoder_free(ls_ctx *ctx, ls_encoder *encoder) {
    if (encoder == NULL) return;
    const ls_tokenizer_type *kind = encoder->tokenizer->kind;
    if (kind->encoder_clear != NULL) kind->encoder_clear(ctx, encoder);
    ls_free(ctx, encoder);
}

ls_status ls_encoder_encode(ls_ctx *ctx, ls_encoder *encoder, const char *text, size_t length,
                            unsigned flags, ls_ids *out) {
    return encoder->tokenizer->kind->encode(ctx, encoder, (const uint8_t *)text, length, flags,
                                            out);
}

ls_status ls_tokenizer_encode(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *text,
                              size_t length, unsigned flags, ls_ids *out) {
    ls_encoder *encoder;
    LS_TRY(ls_encoder_new(ctx, tokenizer, &encoder));
    ls_status status = ls_encoder_encode(ctx, encoder, text, length, flags, out);
    ls_encoder_free(ctx, encoder);
    return status;
}

/* What stands on either side of a letter. */
ls_status ls_frame_of(ls_ctx *ctx, const ls_tokenizer *tokenizer, ls_frame *out) {
    ls_ids bare = {0}, framed = {0};
    *out = (ls_frame){0};
    ls_status status = ls_tokenizer_encode(ctx, tokenizer, "a", 1, 0, &bare);
    if (status == LS_OK)
        status = ls_tokenizer_encode(ctx, tokenizer, "a", 1, LS_ENCODE_TEMPLATE, &framed);
    size_t at = 0;
    while (at < framed.count && bare.count > 0 && framed.at[at] != bare.at[0]) at++;
    if (status == LS_OK && bare.count > 0 && at + bare.count <= framed.count &&
        at <= LS_FRAME_MAX && framed.count - at - bare.count <= LS_FRAME_MAX) {
        for (size_t i = 0; i < at; i++) out->before[out->before_count++] = framed.at[i];
        for (size_t i = at + bare.count; i < framed.count; i++)
            out->after[out->after_count++] = framed.at[i];
    }
    ls_ids_clear(ctx, &bare);
    ls_ids_clear(ctx, &framed);
    return status;
}
