#include "data/source.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/file.h"

#include "base/sanitize.h"

/* Text shrinks 3 to 10 times, logs up to a few hundred; beyond this a file is a bomb. */
enum { INPUT_BYTES = 1 << 17, EXPANSION_MAX = 2000, EXPANSION_FREE = 1 << 20 };

struct ls_source {
    const char *path;
    int fd;
    ZSTD_DStream *stream; /* NULL: plain */
    bool frame_open;      /* a frame has begun and not ended */
    bool ended;           /* the file has no more bytes */
    int64_t taken, given; /* bytes read from the file and handed out */
    size_t at, filled;    /* of input */
    uint8_t input[INPUT_BYTES];
};

static ls_status fill(ls_ctx *ctx, ls_source *source) {
    while (source->at == source->filled && !source->ended) {
        ssize_t got = read(source->fd, source->input, sizeof source->input);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return LS_FAIL(ctx, LS_EIO, "reading %s: %s", source->path, strerror(errno));
        source->ended = got == 0;
        source->at = 0;
        source->filled = (size_t)got;
        source->taken += got;
    }
    return LS_OK;
}

ls_status ls__source_open(ls_ctx *ctx, const char *path, ls_source **out) {
    static const uint8_t magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
    *out = NULL;
    ls_source *source = ls_new(ctx, 1, sizeof *source);
    if (source == NULL) return LS_ENOMEM;
    ls_status status;
    size_t length;
    source->path = path;
    source->fd = -1;
    LS_TRY_GOTO(ls_file_open(ctx, path, &source->fd, &length));
    LS_TRY_GOTO(fill(ctx, source));
    if (source->filled >= sizeof magic && memcmp(source->input, magic, sizeof magic) == 0) {
        source->stream = ZSTD_createDStream();
        if (source->stream == NULL) {
            status = LS_FAIL(ctx, LS_ENOMEM, "no memory to decompress %s", path);
            goto fail;
        }
    } else if (strlen(path) > 4 && strcmp(path + strlen(path) - 4, ".zst") == 0) {
        status = LS_FAIL(ctx, LS_EINPUT, "%s is named .zst but holds no zstd data", path);
        goto fail;
    }
    *out = source;
    return LS_OK;
fail:
    ls__source_close(ctx, source);
    return status;
}

static ls_status read_zstd(ls_ctx *ctx, ls_source *source, void *into, size_t room, size_t *got) {
    ZSTD_outBuffer output = {into, room, 0};
    while (output.pos == 0) {
        LS_TRY(fill(ctx, source));
        if (source->ended && !source->frame_open) break;
        ZSTD_inBuffer input = {source->input, source->filled, source->at};
        size_t left = ZSTD_decompressStream(source->stream, &output, &input);
        if (ZSTD_isError(left) && ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
            return LS_FAIL(ctx, LS_ENOMEM, "no memory to decompress %s", source->path);
        if (ZSTD_isError(left))
            return LS_FAIL(ctx, LS_EINPUT, "%s: broken zstd data: %s", source->path,
                           ZSTD_getErrorName(left));
        LS_WRITTEN(into, output.pos);
        bool idle = input.pos == source->at && output.pos == 0;
        source->at = input.pos;
        source->frame_open = left != 0;
        if (source->ended && idle && left != 0)
            return LS_FAIL(ctx, LS_EINPUT, "%s ends in the middle of zstd data", source->path);
    }
    *got = output.pos;
    source->given += (int64_t)output.pos;
    if (source->given / EXPANSION_MAX > source->taken + EXPANSION_FREE / EXPANSION_MAX)
        return LS_FAIL(ctx, LS_EINPUT, "%s expands more than %d times: no text does that",
                       source->path, EXPANSION_MAX);
    return LS_OK;
}

ls_status ls__source_read(ls_ctx *ctx, ls_source *source, void *into, size_t room, size_t *got) {
    *got = 0;
    if (room == 0) return LS_OK;
    if (source->stream != NULL) return read_zstd(ctx, source, into, room, got);
    LS_TRY(fill(ctx, source));
    size_t count = source->filled - source->at;
    if (count > room) count = room;
    memcpy(into, source->input + source->at, count);
    source->at += count;
    *got = count;
    return LS_OK;
}

void ls__source_close(ls_ctx *ctx, ls_source *source) {
    if (source == NULL) return;
    if (source->stream != NULL) ZSTD_freeDStream(source->stream);
    if (source->fd >= 0) close(source->fd);
    ls_free(ctx, source);
}
