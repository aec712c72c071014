#include "base/far.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const char *folder(void) {
    const char *given = getenv("TMPDIR");
    return given != NULL && given[0] != '\0' ? given : "/tmp";
}

/* An open file of so many bytes that nobody else sees; -1 with errno. */
static int new_file(size_t bytes) {
    char name[4096];
    int fd = open(folder(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) { /* not every file system has files without a name */
        const int length = snprintf(name, sizeof name, "%s/longshot-XXXXXX", folder());
        if (length < 0 || (size_t)length >= sizeof name) return errno = ENAMETOOLONG, -1;
        if ((fd = mkostemp(name, O_CLOEXEC)) < 0) return -1;
        unlink(name);
    }
    int wrong = posix_fallocate(fd, 0, (off_t)bytes);
    while (wrong == EINTR) wrong = posix_fallocate(fd, 0, (off_t)bytes); /* as after any signal */
    if (wrong == 0) return fd;
    close(fd);
    return errno = wrong, -1;
}

void *ls_far_new(ls_ctx *ctx, size_t bytes) {
    if (bytes == 0) bytes = 1;
    int fd = -1, how = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE; /* nothing of it is touched */
    if (!ctx->rehearsal) {
        how = MAP_SHARED;
        if ((fd = new_file(bytes)) < 0) {
            LS_FAIL(ctx, LS_ENOMEM,
                    "%s has no room for %.2f GB of keys and values: %s (see TMPDIR)", folder(),
                    1e-9 * (double)bytes, strerror(errno));
            return NULL;
        }
    }
    void *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how, fd, 0);
    if (fd >= 0) close(fd);
    if (far != MAP_FAILED) return far;
    LS_FAIL(ctx, LS_ENOMEM, "%.2f GB of keys and values cannot be mapped: %s", 1e-9 * (double)bytes,
            strerror(errno));
    return NULL;
}

void ls_far_rest(void *far, size_t bytes) {
    if (far != NULL) madvise(far, bytes, MADV_DONTNEED);
}

void ls_far_free(void *far, size_t bytes) {
    if (far != NULL) munmap(far, bytes == 0 ? 1 : bytes);
}
