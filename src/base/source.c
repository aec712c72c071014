#include "base/source.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

struct ls_source {
    int fd;
    struct stat before; /* when it was opened */
    int failure;        /* the number of an error that a read met, ENODATA at an early end, or 0 */
    char path[];
};

ls_status ls_source_open(ls_ctx *ctx, const char *path, ls_source **out, size_t *length) {
    int fd;
    *out = NULL;
    LS_TRY(ls_file_open(ctx, path, &fd, length));
    const size_t name = strlen(path) + 1;
    ls_source *source = ls_new(ctx, 1, sizeof *source + name);
    ls_status status = source == NULL ? LS_ENOMEM : LS_OK;
    if (status == LS_OK) {
        source->fd = fd;
        memcpy(source->path, path, name);
        if (fstat(fd, &source->before) != 0)
            status = LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(errno));
    }
    if (status == LS_OK) {
        *out = source;
    } else {
        ls_free(ctx, source);
        close(fd);
    }
    return status;
}

void ls_source_close(ls_ctx *ctx, ls_source *source) {
    if (source != NULL) close(source->fd);
    ls_free(ctx, source);
}

void ls_source_read(ls_source *source, size_t at, size_t count, void *out) {
    char *to = out;
    while (count > 0) {
        const ssize_t got = pread(source->fd, to, count, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            __atomic_store_n(&source->failure, got < 0 ? errno : ENODATA, __ATOMIC_RELAXED);
            memset(to, 0, count);
            return;
        }
        to += got;
        at += (size_t)got;
        count -= (size_t)got;
    }
}

ls_status ls_source_check(ls_ctx *ctx, const ls_source *source) {
    struct stat now;
    const struct stat *before = &source->before;
    int failure = __atomic_load_n(&source->failure, __ATOMIC_RELAXED);
    if (failure == 0 && fstat(source->fd, &now) != 0) failure = errno;
    if (failure != 0 && failure != ENODATA)
        return LS_FAIL(ctx, LS_EIO, "reading %s: %s", source->path, strerror(failure));
    if (failure == 0 && now.st_size == before->st_size &&
        now.st_mtim.tv_sec == before->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == before->st_mtim.tv_nsec)
        return LS_OK;
    return LS_FAIL(ctx, LS_EINPUT, "%s was changed while it was read", source->path);
}
