#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, TRIES = 100 };

/* For people, and for the message of who comes later. */
static void note_holder(int lock) {
    char text[32];
    const int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)length, 0) != length) return;
}

static long holder_of(int lock) {
    char text[32] = "";
    const ssize_t length = pread(lock, text, sizeof text - 1, 0);
    return length > 0 ? strtol(text, NULL, 10) : 0;
}

static ls_status wait_for(ls_ctx *ctx, const char *folder, int lock) {
    const struct timespec pause = {0, 50 * 1000 * 1000};
    for (int i = 0; i < TRIES; i++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) return LS_OK;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return LS_FAIL(ctx, LS_EIO, "locking %s: %s", folder, strerror(errno));
        nanosleep(&pause, NULL);
    }
    const long holder = holder_of(lock);
    if (holder > 0)
        return LS_FAIL(ctx, LS_EUSE, "another longshot (process %ld) is at work in %s", holder,
                       folder);
    return LS_FAIL(ctx, LS_EUSE, "another longshot is at work in %s", folder);
}

ls_status ls_lock_take(ls_ctx *ctx, const char *folder, bool inherited, int *lock) {
    char path[PATH_BYTES];
    struct stat about;
    *lock = -1;
    LS_TRY(ls_path_join(ctx, path, sizeof path, folder, ".lock"));
    const int fd = open(path, O_RDWR | O_CREAT | O_NONBLOCK | (inherited ? 0 : O_CLOEXEC), 0666);
    if (fd < 0) return LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(errno));
    ls_status status = LS_OK;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
        status = LS_FAIL(ctx, LS_EIO, "%s is not a plain file", path);
    if (status == LS_OK) status = wait_for(ctx, folder, fd);
    if (status != LS_OK) {
        close(fd);
        return status;
    }
    note_holder(fd);
    *lock = fd;
    return LS_OK;
}

void ls_lock_give(int lock) {
    if (lock < 0) return;
    if (ftruncate(lock, 0) != 0) errno = 0; /* the note may stay */
    close(lock);
}
