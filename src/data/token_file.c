#include "data/token_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/token_layout.h"

struct ls_token_file {
    ls_map map; /* of an opened file; zero for a view */
    const uint8_t *tokens, *starts, *text_bytes;
    int width;
    ls_token_header header;
};

static uint64_t load_u64(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static ls_status read_header(ls_ctx *ctx, ls_reader *reader, const char *what,
                             ls_token_header *out) {
    const uint8_t *bytes;
    if (!ls_reader_take(reader, LS_TOKEN_HEADER_BYTES, &bytes) ||
        memcmp(bytes, LS_TOKEN_MAGIC, 8) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is not a token file", what);
    ls_reader fields = {bytes + 8, LS_TOKEN_HEADER_BYTES - 8};
    bool whole = ls_reader_u32(&fields, &out->version) && ls_reader_u32(&fields, &out->width);
    uint64_t *const words[] = {&out->vocabulary,  &out->tokenizer, &out->key,
                               &out->documents,   &out->tokens,    &out->text_bytes,
                               &out->content_hash};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        whole = whole && ls_reader_u64(&fields, words[i]);
    if (!whole || load_u64(bytes + LS_TOKEN_HASH_AT) != ls_hash(bytes, LS_TOKEN_HASH_AT))
        return LS_FAIL(ctx, LS_EINPUT, "%s: the header's checksum is wrong", what);
    if (out->version != LS_TOKEN_VERSION)
        return LS_FAIL(ctx, LS_EINPUT, "%s has version %" PRIu32 "; this program reads %d", what,
                       out->version, LS_TOKEN_VERSION);
    if ((out->width != 2 && out->width != 4) || out->vocabulary < 1 ||
        out->vocabulary > LS_TOKEN_VOCABULARY_MAX || (out->width == 2 && out->vocabulary > 65536) ||
        out->text_bytes > INT64_MAX)
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s: width %" PRIu32 " with vocabulary %" PRIu64 " cannot be", what,
                       out->width, out->vocabulary);
    return LS_OK;
}

/* Takes the three arrays; the sizes in the header must use the file up exactly. */
static bool take_arrays(ls_reader *reader, ls_token_file *file) {
    const ls_token_header *h = &file->header;
    int64_t documents, tokens, token_bytes, start_bytes;
    if (h->documents > INT64_MAX || h->tokens > INT64_MAX) return false;
    documents = (int64_t)h->documents;
    tokens = (int64_t)h->tokens;
    if (!ls_mul(tokens, (int64_t)h->width, &token_bytes) || !ls_add(token_bytes, 7, &token_bytes) ||
        !ls_add(documents, 1, &start_bytes) || !ls_mul(start_bytes, 8, &start_bytes))
        return false;
    token_bytes = token_bytes / 8 * 8;
    return ls_reader_take(reader, (size_t)token_bytes, &file->tokens) &&
           ls_reader_take(reader, (size_t)start_bytes, &file->starts) &&
           ls_reader_take(reader, (size_t)start_bytes - 8, &file->text_bytes) && reader->left == 0;
}

static ls_status check_documents(ls_ctx *ctx, const ls_token_file *file, const char *what) {
    uint64_t before = 0, text_bytes = 0;
    for (uint64_t i = 0; i <= file->header.documents; i++) {
        uint64_t start = load_u64(file->starts + 8 * i);
        if (i == 0 ? start != 0 : start <= before || start > file->header.tokens)
            return LS_FAIL(ctx, LS_EINPUT, "%s: document %" PRIu64 " starts at a wrong place", what,
                           i);
        before = start;
    }
    if (before != file->header.tokens)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the documents do not cover the tokens", what);
    for (uint64_t i = 0; i < file->header.documents; i++) {
        uint64_t bytes = load_u64(file->text_bytes + 8 * i);
        if (__builtin_add_overflow(text_bytes, bytes, &text_bytes)) break;
    }
    if (text_bytes != file->header.text_bytes)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the documents' bytes do not sum up", what);
    return LS_OK;
}

static ls_status check_ids(ls_ctx *ctx, const ls_token_file *file, const char *what) {
    enum { BLOCK = 4096 };
    int32_t ids[BLOCK], vocabulary = (int32_t)file->header.vocabulary;
    int64_t tokens = (int64_t)file->header.tokens;
    for (int64_t at = 0; at < tokens; at += BLOCK) {
        int64_t count = ls_min(BLOCK, tokens - at);
        bool bad = false;
        ls_token_file_read(file, at, count, ids);
        for (int64_t i = 0; i < count; i++) bad |= ids[i] < 0 || ids[i] >= vocabulary;
        if (bad)
            return LS_FAIL(ctx, LS_EINPUT,
                           "%s: an id outside the vocabulary within 4096 tokens of %" PRId64, what,
                           at);
    }
    return LS_OK;
}

static ls_status check(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                       ls_token_file *file) {
    ls_reader reader = {bytes, length};
    LS_TRY(read_header(ctx, &reader, what, &file->header));
    file->width = (int)file->header.width;
    const uint8_t *content = reader.at;
    if (!take_arrays(&reader, file))
        return LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes, which its header does not agree with",
                       what, length);
    if (ls_hash(content, length - LS_TOKEN_HEADER_BYTES) != file->header.content_hash)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the checksum of its contents is wrong", what);
    LS_TRY(check_documents(ctx, file, what));
    return check_ids(ctx, file, what);
}

ls_status ls_token_file_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                             ls_token_file **out) {
    *out = NULL;
    ls_token_file *file = ls_new(ctx, 1, sizeof *file);
    if (file == NULL) return LS_ENOMEM;
    ls_status status = check(ctx, bytes, length, what, file);
    if (status == LS_OK)
        *out = file;
    else
        ls_free(ctx, file);
    return status;
}

ls_status ls_token_file_open(ls_ctx *ctx, const char *path, ls_token_file **out) {
    ls_map map;
    *out = NULL;
    LS_TRY(ls_map_open(ctx, path, &map));
    ls_status status = ls_token_file_view(ctx, map.bytes, map.length, path, out);
    if (status == LS_OK)
        (*out)->map = map;
    else
        ls_map_close(&map);
    return status;
}

void ls_token_file_close(ls_ctx *ctx, ls_token_file *file) {
    if (file == NULL) return;
    ls_map_close(&file->map);
    ls_free(ctx, file);
}

int64_t ls_token_file_documents(const ls_token_file *file) {
    return (int64_t)file->header.documents;
}

int64_t ls_token_file_tokens(const ls_token_file *file) {
    return (int64_t)file->header.tokens;
}

int64_t ls_token_file_text_bytes(const ls_token_file *file) {
    return (int64_t)file->header.text_bytes;
}

int64_t ls_token_file_vocabulary(const ls_token_file *file) {
    return (int64_t)file->header.vocabulary;
}

uint64_t ls_token_file_tokenizer(const ls_token_file *file) {
    return file->header.tokenizer;
}

uint64_t ls_token_file_key(const ls_token_file *file) {
    return file->header.key;
}

uint64_t ls_token_file_hash(const ls_token_file *file) {
    return file->header.content_hash;
}

void ls_token_file_read(const ls_token_file *file, int64_t begin, int64_t count, int32_t *out) {
    const uint8_t *at = file->tokens + (size_t)begin * (size_t)file->width;
    if (file->width == 2) {
        for (int64_t i = 0; i < count; i++, at += 2) out[i] = at[0] | at[1] << 8;
    } else {
        for (int64_t i = 0; i < count; i++, at += 4) {
            uint32_t value = (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                             (uint32_t)at[3] << 24;
            out[i] = value > INT32_MAX ? -1 : (int32_t)value;
        }
    }
}

ls_token_span ls_token_file_document(const ls_token_file *file, int64_t index) {
    int64_t begin = (int64_t)load_u64(file->starts + 8 * (size_t)index);
    int64_t end = (int64_t)load_u64(file->starts + 8 * (size_t)(index + 1));
    return (ls_token_span){begin, end - begin,
                           (int64_t)load_u64(file->text_bytes + 8 * (size_t)index)};
}

int64_t ls_token_file_document_at(const ls_token_file *file, int64_t token) {
    int64_t low = 0, high = (int64_t)file->header.documents;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)load_u64(file->starts + 8 * (size_t)middle) <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t ls_token_file_next_long(const ls_token_file *file, int64_t from, int64_t least) {
    for (int64_t i = ls_max(from, 0); i < (int64_t)file->header.documents; i++)
        if (ls_token_file_document(file, i).count >= least) return i;
    return -1;
}
