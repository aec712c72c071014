#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/temporary.h"

enum { PATH_BYTES = 4096 };

/* Whether a file cannot be opened because of what it is; else it may be whole, and the machine is
 * at fault: a disk, a limit. */
static bool is_about_the_path(int reason) {
    return reason == ENOENT || reason == ENOTDIR || reason == EACCES || reason == EPERM ||
           reason == ELOOP || reason == ENAMETOOLONG || reason == ENXIO;
}

static ls_status fail_opening(ls_ctx *ctx, const char *path) {
    const int reason = errno;
    return LS_FAIL(ctx, is_about_the_path(reason) ? LS_EINPUT : LS_EIO, "%s: %s", path,
                   strerror(reason));
}

ls_status ls_file_open(ls_ctx *ctx, const char *path, int *fd, size_t *length) {
    *length = 0;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for a writer */
    if (*fd < 0) return fail_opening(ctx, path);
    struct stat about;
    const bool known = fstat(*fd, &about) == 0;
    if (!known || !S_ISREG(about.st_mode)) {
        const int reason = errno;
        close(*fd);
        *fd = -1;
        if (!known) return LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(reason));
        return LS_FAIL(ctx, LS_EINPUT, "%s is %s", path,
                       S_ISDIR(about.st_mode) ? "a folder, where a file is wanted"
                                              : "not a plain file");
    }
    *length = (size_t)about.st_size;
    return LS_OK;
}

/* The next bytes of a file; *got 0 at its end. */
static ls_status read_some(ls_ctx *ctx, int fd, const char *path, char *into, size_t room,
                           size_t *got) {
    ssize_t count;
    do count = read(fd, into, room);
    while (count < 0 && errno == EINTR);
    *got = count < 0 ? 0 : (size_t)count;
    return count < 0 ? LS_FAIL(ctx, LS_EIO, "reading %s: %s", path, strerror(errno)) : LS_OK;
}

ls_status ls_file_read(ls_ctx *ctx, const char *path, size_t most, ls_text *out) {
    int fd;
    size_t length;
    LS_TRY(ls_file_open(ctx, path, &fd, &length));
    ls_status status = LS_OK;
    if (length > most) {
        status =
            LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes; at most %zu are read", path, length, most);
        goto fail;
    }
    char block[65536];
    for (size_t got;;) {
        LS_TRY_GOTO(read_some(ctx, fd, path, block, sizeof block, &got));
        if (got == 0) break;
        if (out->length + got > most) {
            status = LS_FAIL(ctx, LS_EINPUT, "%s is larger than %zu bytes", path, most);
            goto fail;
        }
        ls_text_append(ctx, out, block, got);
    }
    ls_text_append(ctx, out, "", 0);
    status = ls_text_status(out);
fail:
    close(fd);
    return status;
}

ls_status ls_file_hash(ls_ctx *ctx, const char *path, bool stops, size_t *length, uint64_t *hash) {
    int fd;
    size_t got = 1;
    char block[65536];
    LS_TRY(ls_file_open(ctx, path, &fd, length));
    XXH3_state_t *state = XXH3_createState();
    ls_status status = LS_OK;
    if (state == NULL)
        status = LS_FAIL(ctx, LS_ENOMEM, "no memory for a checksum");
    else
        XXH3_64bits_reset(state);
    for (*length = 0; status == LS_OK && got > 0; *length += got) {
        if (stops) status = ls_check_stop(ctx, "checking a file");
        if (status == LS_OK) status = read_some(ctx, fd, path, block, sizeof block, &got);
        if (status == LS_OK) XXH3_64bits_update(state, block, got);
    }
    if (status == LS_OK) *hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    close(fd);
    return status;
}

/* The file's bytes in room for them; one that is cut meanwhile has fewer. */
static ls_status read_into(ls_ctx *ctx, int fd, const char *path, bool stops, ls_whole *into) {
    enum { PIECE = 1 << 20 }; /* a slow disk has it in a tenth of a second */
    size_t got = 1, done = 0;
    ls_status status = LS_OK;
    while (status == LS_OK && got > 0 && done < into->length) {
        const size_t left = into->length - done;
        if (stops) status = ls_check_stop(ctx, "reading a file");
        if (status == LS_OK)
            status = read_some(ctx, fd, path, (char *)(uintptr_t)into->bytes + done,
                               left < PIECE ? left : PIECE, &got);
        if (status == LS_OK) done += got;
    }
    if (status == LS_OK && done < into->length)
        status = LS_FAIL(ctx, LS_EINPUT, "%s was cut while it was read", path);
    return status;
}

ls_status ls_whole_read(ls_ctx *ctx, const char *path, bool stops, ls_whole *out) {
    const size_t most = (size_t)4 << 30;
    int fd;
    *out = (ls_whole){.bytes = (const uint8_t *)""}; /* of an empty file: readers add to it */
    LS_TRY(ls_file_open(ctx, path, &fd, &out->length));
    ls_status status = LS_OK;
    if (out->length > most)
        status = LS_FAIL(ctx, LS_EINPUT, "%s has %zu bytes; at most %zu are read", path,
                         out->length, most);
    void *bytes = MAP_FAILED;
    const size_t room = out->length + 1;
    if (status == LS_OK && out->length > 0) {
        bytes = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bytes == MAP_FAILED)
            status =
                LS_FAIL(ctx, LS_ENOMEM, "no memory for the %zu bytes of %s", out->length, path);
    }
    if (bytes != MAP_FAILED) {
        out->bytes = bytes;
        status = read_into(ctx, fd, path, stops, out);
        if (status != LS_OK) munmap(bytes, room);
    }
    if (status != LS_OK) *out = (ls_whole){0};
    close(fd);
    return status;
}

void ls_whole_free(ls_whole *whole) {
    if (whole->length > 0) munmap((void *)(uintptr_t)whole->bytes, whole->length + 1);
    *whole = (ls_whole){0};
}

ls_status ls_file_put(ls_ctx *ctx, FILE *file, const char *path, const void *bytes, size_t length) {
    if (length > 0 && fwrite(bytes, 1, length, file) != length)
        return LS_FAIL(ctx, LS_EIO, "writing %s: %s", path, strerror(errno));
    return LS_OK;
}

ls_status ls_file_finish(ls_ctx *ctx, FILE *file, const char *path) {
    const bool good = fflush(file) == 0 && fsync(fileno(file)) == 0;
    int reason = good ? 0 : errno;
    if (fclose(file) != 0 && good) reason = errno;
    if (reason != 0) return LS_FAIL(ctx, LS_EIO, "writing %s: %s", path, strerror(reason));
    return LS_OK;
}

ls_status ls_file_create(ls_ctx *ctx, const char *path, bool append, FILE **out) {
    struct stat about;
    *out = NULL;
    const int fd =
        open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (append ? O_APPEND : 0), 0666);
    if (fd < 0) return LS_FAIL(ctx, LS_EIO, "creating %s: %s", path, strerror(errno));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        close(fd);
        return LS_FAIL(ctx, LS_EIO, "%s is not a plain file", path);
    }
    if ((!append && ftruncate(fd, 0) != 0) || (*out = fdopen(fd, append ? "ab" : "wb")) == NULL) {
        const int reason = errno;
        close(fd);
        return LS_FAIL(ctx, LS_EIO, "creating %s: %s", path, strerror(reason));
    }
    return LS_OK;
}

/* The folder that a path lies in. */
static ls_status sync_parent(ls_ctx *ctx, const char *path) {
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == folder)
        slash[1] = '\0';
    else if (slash != NULL)
        *slash = '\0';
    return ls_folder_sync(ctx, slash == NULL ? "." : folder);
}

/* Whether a call failed because there is nothing of that name. */
static bool is_missing(void) {
    return errno == ENOENT || errno == ENOTDIR;
}

/* A device or a socket is somebody's, and so is a link to one or into /proc, as /dev/stdout is: no
 * file takes its place. What cannot be looked at could be one. */
static ls_status check_replaceable(ls_ctx *ctx, const char *path) {
    static const char system[] = "/proc/";
    enum { LENGTH = sizeof system - 1 };
    char target[LENGTH];
    struct stat about;
    bool within = false, known = lstat(path, &about) == 0;
    if (!known && is_missing()) return LS_OK;
    if (known && S_ISLNK(about.st_mode)) {
        const ssize_t length = readlink(path, target, LENGTH);
        within = length == LENGTH && memcmp(target, system, LENGTH) == 0;
        known = length >= 0 && (within || stat(path, &about) == 0);
        if (length >= 0 && !known && errno != EIO) return LS_OK; /* it leads nowhere */
    }
    if (!known) return LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(errno));
    if (within || S_ISCHR(about.st_mode) || S_ISBLK(about.st_mode) || S_ISSOCK(about.st_mode))
        return LS_FAIL(ctx, LS_EIO,
                       "%s is a device or a socket, or leads to one: it is not replaced", path);
    return LS_OK;
}

ls_status ls_path_rename(ls_ctx *ctx, const char *from, const char *to) {
    LS_TRY(check_replaceable(ctx, to));
    if (rename(from, to) != 0)
        return LS_FAIL(ctx, LS_EIO, "renaming %s: %s", from, strerror(errno));
    return sync_parent(ctx, to);
}

ls_status ls_file_write(ls_ctx *ctx, const char *path, const void *bytes, size_t length) {
    ls_replacement r;
    LS_TRY(ls_replacement_begin(ctx, path, &r));
    return ls_replacement_end(ctx, path, &r, ls_file_put(ctx, r.file, r.name, bytes, length));
}

ls_status ls_folder_make(ls_ctx *ctx, const char *path) {
    char part[PATH_BYTES];
    if ((size_t)snprintf(part, sizeof part, "%s", path) >= sizeof part)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", path);
    for (char *c = part + 1;; c++) {
        if (*c != '/' && *c != '\0') continue;
        char kept = *c;
        *c = '\0';
        if (mkdir(part, 0777) == 0)
            LS_TRY(sync_parent(ctx, part)); /* what is written into it is lost with its name */
        else if (errno != EEXIST)
            return LS_FAIL(ctx, LS_EIO, "making the folder %s: %s", part, strerror(errno));
        if (kept == '\0') break;
        *c = kept;
    }
    if (!ls_path_is_folder(path)) return LS_FAIL(ctx, LS_EUSE, "%s is a file: name a folder", path);
    return LS_OK;
}

ls_status ls_folder_sync(ls_ctx *ctx, const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return LS_FAIL(ctx, LS_EIO, "%s: %s", path, strerror(errno));
    int result = fsync(fd);
    int reason = errno;
    close(fd);
    /* some file systems cannot sync a folder and say EINVAL: there is nothing better to do there */
    if (result != 0 && reason != EINVAL)
        return LS_FAIL(ctx, LS_EIO, "syncing %s: %s", path, strerror(reason));
    return LS_OK;
}

ls_status ls_folder_remove(ls_ctx *ctx, const char *path) {
    struct stat about;
    if (lstat(path, &about) != 0) {
        if (is_missing()) return LS_OK;
        return LS_FAIL(ctx, LS_EIO, "removing %s: %s", path, strerror(errno));
    }
    if (S_ISDIR(about.st_mode)) {
        char **names;
        size_t count;
        LS_TRY(ls_folder_list(ctx, path, &names, &count));
        ls_status status = LS_OK;
        for (size_t i = 0; i < count && status == LS_OK; i++) {
            char inner[PATH_BYTES];
            status = ls_path_join(ctx, inner, sizeof inner, path, names[i]);
            if (status == LS_OK) status = ls_folder_remove(ctx, inner);
        }
        ls_names_free(ctx, names, count);
        LS_TRY(status);
        if (rmdir(path) != 0) return LS_FAIL(ctx, LS_EIO, "removing %s: %s", path, strerror(errno));
    } else if (unlink(path) != 0) {
        return LS_FAIL(ctx, LS_EIO, "removing %s: %s", path, strerror(errno));
    }
    return LS_OK;
}

bool ls_path_exists(const char *path) {
    struct stat about;
    return stat(path, &about) == 0 || !is_missing();
}

bool ls_path_is_folder(const char *path) {
    struct stat about;
    if (stat(path, &about) != 0) return !is_missing();
    return S_ISDIR(about.st_mode);
}

ls_status ls_fail_path(ls_ctx *ctx, const char *what, const char *path, int reason) {
    char here[4096];
    if (path[0] == '/' || reason != ENOENT || getcwd(here, sizeof here) == NULL)
        return LS_FAIL(ctx, LS_EINPUT, "%s %s: %s", what, path, strerror(reason));
    return LS_FAIL(ctx, LS_EINPUT,
                   "%s %s: %s in %s; paths are those of the folder in which the command is given",
                   what, path, strerror(reason), here);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

ls_status ls_folder_list(ls_ctx *ctx, const char *path, char ***names, size_t *count) {
    *names = NULL;
    *count = 0;
    DIR *folder = opendir(path);
    if (folder == NULL) return fail_opening(ctx, path);
    size_t capacity = 0;
    ls_status status = LS_OK;
    while (status == LS_OK) {
        errno = 0; /* the only way to tell the end from a failure */
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            if (errno != 0) status = LS_FAIL(ctx, LS_EIO, "reading %s: %s", path, strerror(errno));
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (*count == capacity) {
            size_t larger = capacity == 0 ? 16 : 2 * capacity;
            char **grown = ls_grow(ctx, *names, capacity, larger, sizeof **names);
            if (grown == NULL) {
                status = LS_ENOMEM;
                break;
            }
            *names = grown;
            capacity = larger;
        }
        (*names)[*count] = ls_copy_text(ctx, entry->d_name);
        if ((*names)[*count] == NULL)
            status = LS_ENOMEM;
        else
            (*count)++;
    }
    closedir(folder);
    if (status != LS_OK) {
        ls_names_free(ctx, *names, *count);
        *names = NULL;
        *count = 0;
        return status;
    }
    if (*count > 0) qsort(*names, *count, sizeof **names, compare_names);
    return LS_OK;
}

void ls_names_free(ls_ctx *ctx, char **names, size_t count) {
    for (size_t i = 0; i < count; i++) ls_free(ctx, names[i]);
    ls_free(ctx, names);
}

ls_status ls_path_join(ls_ctx *ctx, char *out, size_t bytes, const char *a, const char *b) {
    if ((size_t)snprintf(out, bytes, "%s/%s", a, b) >= bytes)
        return LS_FAIL(ctx, LS_EUSE, "the path %s/%s is too long", a, b);
    return LS_OK;
}

ls_status ls_path_find(ls_ctx *ctx, const char *given, const char *run, char *out, size_t bytes) {
    enum { ABOVE_MAX = 8 };
    char above[PATH_BYTES];
    size_t length = (size_t)snprintf(above, sizeof above, "%s", run == NULL ? "" : run);
    const bool looks = run != NULL && run[0] != '\0' && given[0] != '/' && !ls_path_exists(given);
    for (int i = 0; looks && i < ABOVE_MAX && length + 3 < sizeof above; i++) {
        length += (size_t)snprintf(above + length, sizeof above - length, "/..");
        LS_TRY(ls_path_join(ctx, out, bytes, above, given));
        if (ls_path_exists(out)) return LS_OK;
    }
    if ((size_t)snprintf(out, bytes, "%s", given) >= bytes)
        return LS_FAIL(ctx, LS_EUSE, "the path %s is too long", given);
    return LS_OK;
}

/* lengths in files have 64 bits: each is a size that can be asked for */
_Static_assert(sizeof(size_t) >= sizeof(uint64_t), "sizes have 64 bits");

bool ls_reader_take(ls_reader *reader, size_t bytes, const uint8_t **out) {
    if (bytes > reader->left) return false;
    *out = reader->at;
    reader->at += bytes;
    reader->left -= bytes;
    return true;
}

bool ls_reader_u32(ls_reader *reader, uint32_t *out) {
    const uint8_t *b;
    if (!ls_reader_take(reader, 4, &b)) return false;
    *out = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return true;
}

bool ls_reader_u64(ls_reader *reader, uint64_t *out) {
    uint32_t low, high;
    if (!ls_reader_u32(reader, &low) || !ls_reader_u32(reader, &high)) return false;
    *out = (uint64_t)high << 32 | low;
    return true;
}

uint64_t ls_hash(const void *bytes, size_t length) {
    return XXH3_64bits(bytes, length);
}
