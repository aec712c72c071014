/* The kind `byte`: the 256 byte values themselves. */
#include "base/file.h"
#include "data/tokenizer/kind.h"

enum { PATH_BYTES = 4096 };

static ls_status save(ls_ctx *ctx, const ls_tokenizer *tokenizer, const char *folder) {
    static const char text[] = "{\"kind\": \"byte\", \"vocabulary\": 256}\n";
    char path[PATH_BYTES];
    (void)tokenizer;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, LS_BYTE_FILE));
    return ls_file_write(ctx, path, text, sizeof text - 1);
}

static ls_status encode(ls_ctx *ctx, ls_encoder *encoder, const uint8_t *text, size_t length,
                        unsigned flags, ls_ids *out) {
    (void)encoder;
    (void)flags; /* there are no special tokens */
    if (!ls_array_reserve(ctx, &out->at, &out->capacity, out->count + length, sizeof *out->at))
        return LS_ENOMEM;
    for (size_t i = 0; i < length; i++) out->at[out->count + i] = text[i];
    out->count += length;
    return LS_OK;
}

static const ls_tokenizer_type byte_kind = {
    .name = "byte",
    .save = save,
    .encoder_size = sizeof(ls_encoder),
    .encode = encode,
};

ls_status ls_tokenizer_new_byte(ls_ctx *ctx, ls_tokenizer **out) {
    char bytes[256];
    ls_bytes entries[256];
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        entries[i] = (ls_bytes){&bytes[i], 1};
    }
    ls_tokenizer *tokenizer;
    *out = NULL;
    LS_TRY(ls__tokenizer_new(ctx, &byte_kind, sizeof *tokenizer, &tokenizer));
    ls_status status = ls__vocabulary_make(ctx, entries, 256, "bytes", &tokenizer->pieces);
    if (status != LS_OK) {
        ls_tokenizer_free(ctx, tokenizer);
        return status;
    }
    tokenizer->vocabulary = 256;
    tokenizer->hash = ls_hash("byte", 4);
    *out = tokenizer;
    return LS_OK;
}
