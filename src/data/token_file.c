#include "data/token_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "data/token_layout.h"

/* Tokens are read from the file in pieces of this size. Each is compared with what it was when the
 * file was opened and checked whole. */
enum { PIECE = 1 << 14, LOOK_EVERY = 64 };

struct ls_token_file {
    int fd;               /* of an opened file; -1 for a view */
    const uint8_t *bytes; /* of a view */
    size_t length;
    char *what;        /* its path, for messages */
    uint64_t *pieces;  /* hash of each piece of the tokens */
    uint64_t *starts;  /* [documents + 1] */
    uint64_t *lengths; /* [documents]: bytes of text */
    int width;
    int64_t changed; /* a piece that is no longer what it was, counted from 1; 0: none was met */
    ls_token_header header;
};

static uint64_t load_u64(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

/* Bytes of the file; false where it has become shorter or cannot be read. */
static bool fetch(const ls_token_file *file, size_t at, size_t bytes, void *into) {
    char *to = into;
    if (at > file->length || bytes > file->length - at) return false;
    if (file->fd < 0) {
        if (bytes > 0) memcpy(into, file->bytes + at, bytes);
        return true;
    }
    while (bytes > 0) {
        const ssize_t got = pread(file->fd, to, bytes, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        to += got;
        at += (size_t)got;
        bytes -= (size_t)got;
    }
    return true;
}

static ls_status read_header(ls_ctx *ctx, ls_token_file *file) {
    uint8_t bytes[LS_TOKEN_HEADER_BYTES];
    ls_token_header *out = &file->header;
    const char *what = file->what;
    if (!fetch(file, 0, sizeof bytes, bytes) || memcmp(bytes, LS_TOKEN_MAGIC, 8) != 0)
        return LS_FAIL(ctx, LS_EINPUT, "%s is not a token file", what);
    ls_reader fields = {bytes + 8, LS_TOKEN_HEADER_BYTES - 8}; /* all that follows is in it */
    ls_reader_u32(&fields, &out->version);
    ls_reader_u32(&fields, &out->width);
    uint64_t *const words[] = {&out->vocabulary,  &out->tokenizer, &out->key,
                               &out->documents,   &out->tokens,    &out->text_bytes,
                               &out->content_hash};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) ls_reader_u64(&fields, words[i]);
    if (load_u64(bytes + LS_TOKEN_HASH_AT) != ls_hash(bytes, LS_TOKEN_HASH_AT))
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
    file->width = (int)out->width;
    return LS_OK;
}

/* Bytes of the tokens, padded, and of the documents' starts and lengths; they must use the file up
 * exactly. */
static bool sizes_fit(const ls_token_file *file, int64_t *token_bytes, int64_t *start_bytes) {
    const ls_token_header *h = &file->header;
    int64_t all;
    if (h->documents > INT64_MAX || h->tokens > INT64_MAX) return false;
    if (!ls_mul((int64_t)h->tokens, (int64_t)h->width, token_bytes) ||
        !ls_add(*token_bytes, 7, token_bytes) || !ls_add((int64_t)h->documents, 1, start_bytes) ||
        !ls_mul(*start_bytes, 8, start_bytes))
        return false;
    *token_bytes = *token_bytes / 8 * 8;
    return ls_add(*token_bytes, *start_bytes, &all) && ls_add(all, *start_bytes - 8, &all) &&
           ls_add(all, LS_TOKEN_HEADER_BYTES, &all) && (uint64_t)all == file->length;
}

static bool ids_fit(const ls_token_file *file, const uint8_t *piece, int64_t count) {
    const uint64_t vocabulary = file->header.vocabulary;
    bool fit = true;
    for (int64_t i = 0; i < count; i++) {
        uint64_t id = 0;
        for (int b = file->width - 1; b >= 0; b--) id = id << 8 | piece[i * file->width + b];
        fit &= id < vocabulary;
    }
    return fit;
}

/* The tokens once through: their hash, that of each piece, and the first piece with an id outside
 * the vocabulary. */
static ls_status check_tokens(ls_ctx *ctx, ls_token_file *file, int64_t bytes, XXH3_state_t *hash,
                              int64_t *outside) {
    uint8_t piece[PIECE];
    int64_t left = (int64_t)file->header.tokens;
    const int64_t count = ls_ceil_div(bytes, PIECE);
    *outside = -1;
    file->pieces = ls_new_raw(ctx, (size_t)count + 1, sizeof *file->pieces);
    if (file->pieces == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        const size_t here = (size_t)ls_min(PIECE, bytes - i * PIECE);
        const int64_t ids = ls_min(left, (int64_t)here / file->width);
        if (i % LOOK_EVERY == 0) LS_TRY(ls_check_stop(ctx, "checking a token file"));
        if (!fetch(file, LS_TOKEN_HEADER_BYTES + (size_t)(i * PIECE), here, piece))
            return LS_FAIL(ctx, LS_EINPUT, "%s could not be read whole", file->what);
        XXH3_64bits_update(hash, piece, here);
        file->pieces[i] = ls_hash(piece, here);
        if (*outside < 0 && !ids_fit(file, piece, ids)) *outside = i;
        left -= ids;
    }
    return LS_OK;
}

static ls_status read_words(ls_ctx *ctx, ls_token_file *file, int64_t at, int64_t bytes,
                            XXH3_state_t *hash, uint64_t **out) {
    *out = ls_new_raw(ctx, (size_t)bytes / 8 + 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    if (!fetch(file, LS_TOKEN_HEADER_BYTES + (size_t)at, (size_t)bytes, *out))
        return LS_FAIL(ctx, LS_EINPUT, "%s could not be read whole", file->what);
    XXH3_64bits_update(hash, *out, (size_t)bytes);
    for (int64_t i = 0; i < bytes / 8; i++) (*out)[i] = load_u64((const uint8_t *)(*out + i));
    return LS_OK;
}

static ls_status check_documents(ls_ctx *ctx, const ls_token_file *file) {
    uint64_t before = 0, text_bytes = 0;
    for (uint64_t i = 0; i <= file->header.documents; i++) {
        const uint64_t start = file->starts[i];
        if (i == 0 ? start != 0 : start <= before || start > file->header.tokens)
            return LS_FAIL(ctx, LS_EINPUT, "%s: document %" PRIu64 " starts at a wrong place",
                           file->what, i);
        before = start;
    }
    if (before != file->header.tokens)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the documents do not cover the tokens", file->what);
    for (uint64_t i = 0; i < file->header.documents; i++)
        if (__builtin_add_overflow(text_bytes, file->lengths[i], &text_bytes)) break;
    if (text_bytes != file->header.text_bytes)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the documents' bytes do not sum up", file->what);
    return LS_OK;
}

static ls_status read_contents(ls_ctx *ctx, ls_token_file *file, XXH3_state_t *hash) {
    int64_t token_bytes, start_bytes, outside;
    if (!sizes_fit(file, &token_bytes, &start_bytes))
        return LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes, which its header does not agree with",
                       file->what, file->length);
    XXH3_64bits_reset(hash);
    LS_TRY(check_tokens(ctx, file, token_bytes, hash, &outside));
    LS_TRY(read_words(ctx, file, token_bytes, start_bytes, hash, &file->starts));
    LS_TRY(read_words(ctx, file, token_bytes + start_bytes, start_bytes - 8, hash, &file->lengths));
    if (XXH3_64bits_digest(hash) != file->header.content_hash)
        return LS_FAIL(ctx, LS_EINPUT, "%s: the checksum of its contents is wrong", file->what);
    LS_TRY(check_documents(ctx, file));
    if (outside < 0) return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s: an id outside the vocabulary within %d tokens of %" PRId64,
                   file->what, PIECE / file->width, outside * (PIECE / file->width));
}

static ls_status take(ls_ctx *ctx, ls_token_file from, const char *what, ls_token_file **out) {
    XXH3_state_t *hash = XXH3_createState();
    ls_token_file *file = ls_new(ctx, 1, sizeof *file);
    ls_status status = LS_ENOMEM;
    if (file != NULL) {
        *file = from;
        file->what = ls_copy_text(ctx, what);
    } else if (from.fd >= 0) {
        close(from.fd);
    }
    if (hash == NULL) LS_FAIL(ctx, LS_ENOMEM, "no memory for a checksum");
    if (file != NULL && file->what != NULL && hash != NULL) {
        status = read_header(ctx, file);
        if (status == LS_OK) status = read_contents(ctx, file, hash);
    }
    XXH3_freeState(hash);
    if (status == LS_OK)
        *out = file;
    else
        ls_token_file_close(ctx, file);
    return status;
}

ls_status ls_token_file_view(ls_ctx *ctx, const void *bytes, size_t length, const char *what,
                             ls_token_file **out) {
    *out = NULL;
    return take(ctx, (ls_token_file){.fd = -1, .bytes = bytes, .length = length}, what, out);
}

ls_status ls_token_file_open(ls_ctx *ctx, const char *path, ls_token_file **out) {
    ls_token_file from = {.fd = -1};
    *out = NULL;
    LS_TRY(ls_file_open(ctx, path, &from.fd, &from.length));
    return take(ctx, from, path, out);
}

void ls_token_file_close(ls_ctx *ctx, ls_token_file *file) {
    if (file == NULL) return;
    if (file->fd >= 0) close(file->fd);
    ls_free(ctx, file->what);
    ls_free(ctx, file->pieces);
    ls_free(ctx, file->starts);
    ls_free(ctx, file->lengths);
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

static void put_ids(const uint8_t *at, int width, int64_t count, int32_t *out) {
    if (width == 2) {
        for (int64_t i = 0; i < count; i++, at += 2) out[i] = at[0] | at[1] << 8;
        return;
    }
    for (int64_t i = 0; i < count; i++, at += 4)
        out[i] = (int32_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                           (uint32_t)at[3] << 24);
}

void ls_token_file_read(const ls_token_file *file, int64_t begin, int64_t count, int32_t *out) {
    uint8_t piece[PIECE];
    const int64_t each = PIECE / file->width;
    const int64_t bytes = ls_round_up((int64_t)file->header.tokens * file->width, 8);
    for (int64_t end = begin + count, next; begin < end; begin = next) {
        const int64_t number = begin / each;
        const size_t here = (size_t)ls_min(PIECE, bytes - number * PIECE);
        next = ls_min(end, (number + 1) * each);
        if (fetch(file, LS_TOKEN_HEADER_BYTES + (size_t)(number * PIECE), here, piece) &&
            ls_hash(piece, here) == file->pieces[number]) {
            put_ids(piece + (begin - number * each) * file->width, file->width, next - begin, out);
        } else { /* the same for every reader, whoever asks first */
            memset(out, 0, (size_t)(next - begin) * sizeof *out);
            __atomic_store_n((int64_t *)(uintptr_t)&file->changed, number + 1, __ATOMIC_RELAXED);
        }
        out += next - begin;
    }
}

ls_status ls_token_file_status(ls_ctx *ctx, const ls_token_file *file) {
    const int64_t changed = __atomic_load_n(&file->changed, __ATOMIC_RELAXED);
    const int64_t each = PIECE / file->width;
    struct stat about;
    if (changed == 0) return LS_OK;
    if (file->fd >= 0 && fstat(file->fd, &about) == 0 && (size_t)about.st_size != file->length)
        return LS_FAIL(ctx, LS_EINPUT,
                       "%s has %lld bytes and had %zu when it was opened: it was changed meanwhile",
                       file->what, (long long)about.st_size, file->length);
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s was changed after it was opened: the checksum of its tokens %" PRId64
                   " to %" PRId64 " is wrong",
                   file->what, (changed - 1) * each,
                   ls_min(changed * each, (int64_t)file->header.tokens) - 1);
}

ls_token_span ls_token_file_document(const ls_token_file *file, int64_t index) {
    const int64_t begin = (int64_t)file->starts[index], end = (int64_t)file->starts[index + 1];
    return (ls_token_span){begin, end - begin, (int64_t)file->lengths[index]};
}

int64_t ls_token_file_document_at(const ls_token_file *file, int64_t token) {
    int64_t low = 0, high = (int64_t)file->header.documents;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if ((int64_t)file->starts[middle] <= token)
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
