#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { PATH_BYTES = 4096, TRIES = 10000 };

/* Makes the thing of one name and opens it; -1 with errno. */
static int make(const char *name, bool folder) {
    if (!folder) return open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return mkdir(name, 0777) != 0 ? -1 : open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Locks it; false where somebody swept it away before it was. */
static bool hold(int fd) {
    struct stat about;
    while (flock(fd, LOCK_EX) != 0)
        if (errno != EINTR) return true; /* a file system without locks: it is never swept there */
    return fstat(fd, &about) != 0 || about.st_nlink > 0;
}

static ls_status make_held(ls_ctx *ctx, const char *path, bool folder, char *name, size_t bytes,
                           int *out) {
    for (int i = 0; i < TRIES; i++) {
        if ((size_t)snprintf(name, bytes, "%s.%ld-%d" LS_TEMPORARY_END, path, (long)getpid(), i) >=
            bytes)
            return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
        *out = make(name, folder);
        if (*out < 0 && errno == EEXIST) continue;
        if (*out < 0) return LS_FAIL(ctx, LS_EIO, "creating %s: %s", name, strerror(errno));
        if (hold(*out)) return LS_OK;
        close(*out);
    }
    return LS_FAIL(ctx, LS_EIO, "no free name for a temporary file beside %s", path);
}

ls_status ls_temporary_file(ls_ctx *ctx, const char *path, char *name, size_t bytes, FILE **out) {
    int fd;
    *out = NULL;
    LS_TRY(make_held(ctx, path, false, name, bytes, &fd));
    *out = fdopen(fd, "wb");
    if (*out != NULL) return LS_OK;
    const int reason = errno;
    close(fd);
    unlink(name);
    return LS_FAIL(ctx, LS_EIO, "creating %s: %s", name, strerror(reason));
}

ls_status ls_temporary_folder(ls_ctx *ctx, const char *path, char *name, size_t bytes, int *lock) {
    return make_held(ctx, path, true, name, bytes, lock);
}

ls_status ls_replacement_begin(ls_ctx *ctx, const char *path, ls_replacement *out) {
    out->file = NULL;
    LS_TRY(ls_temporaries_sweep_beside(ctx, path));
    LS_TRY(ls_temporary_file(ctx, path, out->name, sizeof out->name, &out->file));
    out->lock = dup(fileno(out->file)); /* closing the file would give the lock up */
    return LS_OK;
}

ls_status ls_replacement_end(ls_ctx *ctx, const char *path, ls_replacement *r, ls_status status) {
    if (status == LS_OK)
        status = ls_file_finish(ctx, r->file, r->name);
    else
        fclose(r->file);
    r->file = NULL;
    if (status == LS_OK) status = ls_path_rename(ctx, r->name, path);
    if (status != LS_OK) unlink(r->name); /* where it still has this name */
    if (r->lock >= 0) close(r->lock);
    return status;
}

bool ls_is_temporary(const char *name) {
    const size_t length = strlen(name), end = sizeof LS_TEMPORARY_END - 1;
    return length > end && strcmp(name + length - end, LS_TEMPORARY_END) == 0;
}

static ls_status sweep_one(ls_ctx *ctx, const char *path) {
    struct stat about;
    if (lstat(path, &about) != 0) return LS_OK;
    const bool lockable = S_ISREG(about.st_mode) || S_ISDIR(about.st_mode);
    const int fd = lockable ? open(path, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC) : -1;
    const bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
    ls_status status = held || (lockable && fd < 0) ? LS_OK : ls_folder_remove(ctx, path);
    if (fd >= 0) close(fd);
    if (status != LS_EIO) return status;
    ctx->error = (ls_error){0}; /* of another owner, or on a disk that is only read: it stays */
    return LS_OK;
}

/* Whether a name is STEM.PROCESS-NUMBER.tmp. */
static bool is_of(const char *name, const char *stem) {
    const size_t length = strlen(stem);
    unsigned long process, number;
    int used = 0;
    return strncmp(name, stem, length) == 0 &&
           sscanf(name + length, ".%10lu-%10lu" LS_TEMPORARY_END "%n", &process, &number, &used) ==
               2 &&
           used > 0 && name[length + (size_t)used] == '\0';
}

/* Those of a stem, or where it is NULL those that `ours` says. */
static ls_status sweep(ls_ctx *ctx, const char *folder, bool (*ours)(const char *name),
                       const char *stem) {
    char **names, path[PATH_BYTES];
    size_t count;
    if (!ls_path_is_folder(folder)) return LS_OK;
    LS_TRY(ls_folder_list(ctx, folder, &names, &count));
    ls_status status = LS_OK;
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        if (!ls_is_temporary(names[i])) continue;
        if (stem != NULL ? !is_of(names[i], stem) : !ours(names[i])) continue;
        status = ls_path_join(ctx, path, sizeof path, folder, names[i]);
        if (status == LS_OK) status = sweep_one(ctx, path);
    }
    ls_names_free(ctx, names, count);
    return status;
}

ls_status ls_temporaries_sweep(ls_ctx *ctx, const char *folder, bool (*ours)(const char *name)) {
    return sweep(ctx, folder, ours, NULL);
}

ls_status ls_temporaries_sweep_beside(ls_ctx *ctx, const char *path) {
    char folder[PATH_BYTES];
    const char *slash = strrchr(path, '/');
    const int length = slash == NULL ? 1 : slash == path ? 1 : (int)(slash - path);
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", length, slash == NULL ? "." : path) >=
        sizeof folder)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
    const ls_status status = sweep(ctx, folder, NULL, slash == NULL ? path : slash + 1);
    if (status != LS_EINPUT && status != LS_EIO) return status;
    ctx->error = (ls_error){0}; /* a folder that cannot be listed can still be written to */
    return LS_OK;
}
