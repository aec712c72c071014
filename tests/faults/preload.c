/* Stands between a program and the C library (LD_PRELOAD): makes a chosen system call fail, and
 * keeps a journal of what is done to files. For tests alone.
 *
 *   FAULTS_STATE    file of the counters, shared by all processes of a run (`faults_state`)
 *   FAULTS_AT       number of the call that fails, from 1; 0: none
 *   FAULTS_WAY      which of the ways in which that call can fail (`fault_ways`)
 *   FAULTS_STICKY   1: calls of that kind fail from then on, as on a disk that is full
 *   FAULTS_JOURNAL  file to which what is done below FAULTS_ROOT is appended
 *
 * The C library's own streams do not come past here, so streams are made of functions that do
 * (fopencookie): every write of a stream is a write of ours. The standard error stays as it is:
 * there is nowhere to report its failure. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "journal.h"
#include "preload.h"

#define SHOWN __attribute__((visibility("default")))
/* The C library's function of the same name. */
#define REAL(name) ((__typeof__(&name))real_function(#name))

enum { STREAMS_MAX = 256, ROOT_BYTES = 4096 };

static faults_state *shared;
static int64_t fault_at;
static int fault_way;
static bool sticky;
static int journal = -1;
static char root[ROOT_BYTES];

static void *real_function(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) abort();
    return found;
}

/* ---- the call that fails ---- */

static uint8_t row_of(const char *call) {
    uint8_t row = 0;
    while (row < FAULT_CALLS && strcmp(fault_ways[row].call, call) != 0) row++;
    if (row == FAULT_CALLS) abort();
    return row;
}

/* What happens to this call: 0 nothing, FAULT_SHORT, or the error. */
/* LLVM's OpenMP does not look whether its own file in shared memory could be sized and mapped. */
static bool of_openmp(const char *what) {
    static const char prefix[] = "/dev/shm/__KMP_";
    return strncmp(what, prefix, sizeof prefix - 1) == 0;
}

static int fault(const char *call, const char *what) {
    if (shared == NULL || of_openmp(what)) return 0;
    const int64_t number = __atomic_add_fetch(&shared->calls, 1, __ATOMIC_SEQ_CST);
    const uint8_t row = row_of(call);
    if (number < FAULTS_TRACED) shared->trace[number] = row;
    const bool again = sticky && shared->fired && strcmp(shared->call, call) == 0;
    if (number != fault_at && !again) return 0;
    const int error = fault_ways[row].errors[fault_way];
    if (error == 0) return 0;
    if (!again) {
        snprintf(shared->call, sizeof shared->call, "%s", call);
        snprintf(shared->what, sizeof shared->what, "%s", what);
        shared->error = error < 0 ? 0 : error;
        shared->fired = 1;
    }
    if (error == FAULT_DIES) kill(getpid(), SIGKILL);
    if (error == FAULT_STOPS) {
        shared->stopped = 1;
        kill(shared->first, SIGTERM);
    }
    return error;
}

/* The path of an open file, for messages. */
static const char *name_of(int fd, char out[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = REAL(readlink)(link, out, PATH_MAX - 1);
    out[length > 0 ? length : 0] = '\0';
    return out;
}

#define FAIL_FD(call, fd)                                                                          \
    char fd_name[PATH_MAX] = "";                                                                   \
    const int failure = fault(call, shared == NULL ? "" : name_of(fd, fd_name));                   \
    if (failure > 0) {                                                                             \
        errno = failure;                                                                           \
        return -1;                                                                                 \
    }
#define FAIL_PATH(call, path)                                                                      \
    const int failure = fault(call, path);                                                         \
    if (failure > 0) {                                                                             \
        errno = failure;                                                                           \
        return -1;                                                                                 \
    }

/* ---- the journal ---- */

/* The path from the root; false where it is neither that nor below it. */
static bool within(const char *path, char out[PATH_MAX]) {
    char whole[2 * PATH_MAX], here[PATH_MAX];
    if (journal < 0) return false;
    if (path[0] == '/')
        snprintf(whole, sizeof whole, "%s", path);
    else if (getcwd(here, sizeof here) != NULL)
        snprintf(whole, sizeof whole, "%s/%s", here, path);
    else
        return false;
    const size_t length = strlen(root);
    if (strncmp(whole, root, length) != 0) return false;
    if (whole[length] != '/' && whole[length] != '\0') return false;
    snprintf(out, PATH_MAX, "%s", whole + length + (whole[length] == '/'));
    return true;
}

static void put(journal_kind kind, const char *path, const char *other, journal_record about,
                const void *bytes) {
    about.kind = kind;
    about.path_bytes = (uint32_t)strlen(path);
    about.other_bytes = (uint32_t)strlen(other);
    const struct iovec parts[] = {{&about, sizeof about},
                                  {(void *)(uintptr_t)path, about.path_bytes},
                                  {(void *)(uintptr_t)other, about.other_bytes},
                                  {(void *)(uintptr_t)bytes, bytes == NULL ? 0 : about.length}};
    const size_t all = sizeof about + about.path_bytes + about.other_bytes + parts[3].iov_len;
    if (writev(journal, parts, 4) != (ssize_t)all) abort();
}

/* The inode of an open file below the root; 0: none. */
static uint64_t inode_of(int fd) {
    char path[PATH_MAX], inner[PATH_MAX];
    struct stat about;
    if (journal < 0 || !within(name_of(fd, path), inner)) return 0;
    return REAL(fstat)(fd, &about) == 0 ? (uint64_t)about.st_ino : 0;
}

static void note_path(journal_kind kind, const char *path) {
    char inner[PATH_MAX];
    struct stat about = {0};
    if (!within(path, inner)) return;
    if (kind != JOURNAL_REMOVE && REAL(lstat)(path, &about) != 0) return;
    put(kind, inner, "", (journal_record){.inode = (uint64_t)about.st_ino}, NULL);
}

static void note_written(int fd, const void *bytes, ssize_t count, off_t offset) {
    const uint64_t inode = count > 0 ? inode_of(fd) : 0;
    if (inode == 0) return;
    if (offset < 0) offset = REAL(lseek)(fd, 0, SEEK_CUR) - count;
    put(JOURNAL_WRITE, "", "",
        (journal_record){.inode = inode, .offset = (uint64_t)offset, .length = (uint64_t)count},
        bytes);
}

static void note_length(int fd, off_t length) {
    const uint64_t inode = inode_of(fd);
    if (inode != 0)
        put(JOURNAL_TRUNCATE, "", "", (journal_record){.inode = inode, .offset = (uint64_t)length},
            NULL);
}

/* ---- files ---- */

SHOWN int open(const char *path, int flags, ...) {
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0) {
        va_list list;
        va_start(list, flags);
        mode = (mode_t)va_arg(list, unsigned);
        va_end(list);
    }
    FAIL_PATH("open", path)
    struct stat about;
    const bool creates = (flags & O_CREAT) != 0 && REAL(stat)(path, &about) != 0;
    const int fd = REAL(open)(path, flags, mode);
    if (fd >= 0 && creates) note_path(JOURNAL_FILE, path);
    if (fd >= 0 && !creates && (flags & O_TRUNC) != 0) note_length(fd, 0);
    return fd;
}

SHOWN ssize_t read(int fd, void *bytes, size_t count) {
    FAIL_FD("read", fd)
    return REAL(read)(fd, bytes, failure == FAULT_SHORT && count > 1 ? 1 : count);
}

SHOWN ssize_t pread(int fd, void *bytes, size_t count, off_t offset) {
    FAIL_FD("read", fd)
    return REAL(pread)(fd, bytes, failure == FAULT_SHORT && count > 1 ? 1 : count, offset);
}

SHOWN ssize_t write(int fd, const void *bytes, size_t count) {
    FAIL_FD("write", fd)
    const ssize_t written =
        REAL(write)(fd, bytes, failure == FAULT_SHORT && count > 1 ? count / 2 : count);
    note_written(fd, bytes, written, -1);
    return written;
}

SHOWN ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) {
    FAIL_FD("write", fd)
    const ssize_t written =
        REAL(pwrite)(fd, bytes, failure == FAULT_SHORT && count > 1 ? count / 2 : count, offset);
    note_written(fd, bytes, written, offset);
    return written;
}

SHOWN int fsync(int fd) {
    FAIL_FD("fsync", fd)
    const uint64_t inode = inode_of(fd);
    const int result = REAL(fsync)(fd);
    if (result == 0 && inode != 0)
        put(JOURNAL_SYNC, "", "", (journal_record){.inode = inode}, NULL);
    return result;
}

/* A close that fails has closed the file all the same. */
SHOWN int close(int fd) {
    char name[PATH_MAX] = "";
    const int failure = fault("close", shared == NULL ? "" : name_of(fd, name));
    const int result = REAL(close)(fd);
    if (result != 0 || failure <= 0) return result;
    errno = failure;
    return -1;
}

SHOWN int ftruncate(int fd, off_t length) {
    FAIL_FD("truncate", fd)
    const int result = REAL(ftruncate)(fd, length);
    if (result == 0) note_length(fd, length);
    return result;
}

SHOWN int truncate(const char *path, off_t length) {
    FAIL_PATH("truncate", path)
    const int result = REAL(truncate)(path, length);
    struct stat about;
    char inner[PATH_MAX];
    if (result == 0 && within(path, inner) && REAL(stat)(path, &about) == 0)
        put(JOURNAL_TRUNCATE, "", "",
            (journal_record){.inode = (uint64_t)about.st_ino, .offset = (uint64_t)length}, NULL);
    return result;
}

SHOWN off_t lseek(int fd, off_t offset, int whence) {
    FAIL_FD("lseek", fd)
    return REAL(lseek)(fd, offset, whence);
}

SHOWN int flock(int fd, int operation) {
    FAIL_FD("flock", fd)
    return REAL(flock)(fd, operation);
}

SHOWN int fstat(int fd, struct stat *out) {
    FAIL_FD("fstat", fd)
    return REAL(fstat)(fd, out);
}

/* Also of memory alone, which the program maps where it reads a file whole. */
SHOWN void *mmap(void *at, size_t length, int protection, int flags, int fd, off_t offset) {
    char name[PATH_MAX] = "";
    const int failure = fault("mmap", fd < 0 || shared == NULL ? "" : name_of(fd, name));
    if (failure > 0) {
        errno = failure;
        return MAP_FAILED;
    }
    return REAL(mmap)(at, length, protection, flags, fd, offset);
}

/* It gives the error, and leaves errno as it is. */
SHOWN int posix_fallocate(int fd, off_t offset, off_t length) {
    char name[PATH_MAX] = "";
    const int failure = fault("posix_fallocate", shared == NULL ? "" : name_of(fd, name));
    return failure > 0 ? failure : REAL(posix_fallocate)(fd, offset, length);
}

/* ---- names ---- */

SHOWN int rename(const char *from, const char *to) {
    char a[PATH_MAX], b[PATH_MAX];
    FAIL_PATH("rename", from)
    const int result = REAL(rename)(from, to);
    if (result == 0 && within(from, a) && within(to, b))
        put(JOURNAL_RENAME, a, b, (journal_record){0}, NULL);
    return result;
}

SHOWN int mkdir(const char *path, mode_t mode) {
    FAIL_PATH("mkdir", path)
    const int result = REAL(mkdir)(path, mode);
    if (result == 0) note_path(JOURNAL_FOLDER, path);
    return result;
}

SHOWN int unlink(const char *path) {
    FAIL_PATH("unlink", path)
    const int result = REAL(unlink)(path);
    if (result == 0) note_path(JOURNAL_REMOVE, path);
    return result;
}

SHOWN int rmdir(const char *path) {
    FAIL_PATH("rmdir", path)
    const int result = REAL(rmdir)(path);
    if (result == 0) note_path(JOURNAL_REMOVE, path);
    return result;
}

SHOWN int stat(const char *path, struct stat *out) {
    FAIL_PATH("stat", path)
    return REAL(stat)(path, out);
}

SHOWN int lstat(const char *path, struct stat *out) {
    FAIL_PATH("lstat", path)
    return REAL(lstat)(path, out);
}

SHOWN int access(const char *path, int mode) {
    FAIL_PATH("access", path)
    return REAL(access)(path, mode);
}

SHOWN ssize_t readlink(const char *path, char *out, size_t bytes) {
    FAIL_PATH("readlink", path)
    return REAL(readlink)(path, out, bytes);
}

SHOWN char *realpath(const char *path, char *out) {
    const int failure = fault("realpath", path);
    if (failure <= 0) return REAL(realpath)(path, out);
    errno = failure;
    return NULL;
}

SHOWN DIR *opendir(const char *path) {
    const int failure = fault("opendir", path);
    if (failure <= 0) return REAL(opendir)(path);
    errno = failure;
    return NULL;
}

SHOWN struct dirent *readdir(DIR *folder) {
    char name[PATH_MAX] = "";
    const int failure = fault("readdir", shared == NULL ? "" : name_of(dirfd(folder), name));
    if (failure <= 0) return REAL(readdir)(folder);
    errno = failure;
    return NULL;
}

/* ---- processes ---- */

SHOWN pid_t fork(void) {
    FAIL_PATH("fork", "")
    return REAL(fork)();
}

SHOWN int dup(int from) {
    FAIL_FD("dup", from)
    return REAL(dup)(from);
}

SHOWN int dup2(int from, int to) {
    FAIL_PATH("dup2", "")
    return REAL(dup2)(from, to);
}

SHOWN int execv(const char *path, char *const argv[]) {
    FAIL_PATH("exec", path)
    return REAL(execv)(path, argv);
}

SHOWN int execvp(const char *file, char *const argv[]) {
    FAIL_PATH("exec", file)
    return REAL(execvp)(file, argv);
}

SHOWN int prctl(int option, ...) {
    unsigned long more[4];
    va_list list;
    va_start(list, option);
    for (int i = 0; i < 4; i++) more[i] = va_arg(list, unsigned long);
    va_end(list);
    FAIL_PATH("prctl", "")
    return REAL(prctl)(option, more[0], more[1], more[2], more[3]);
}

/* One that only finds out that there is nothing yet does not count: how often depends on time. */
SHOWN pid_t wait4(pid_t process, int *status, int options, struct rusage *usage) {
    siginfo_t about = {0};
    if ((options & WNOHANG) != 0 && process > 0 &&
        waitid(P_PID, (id_t)process, &about, WEXITED | WNOHANG | WNOWAIT) == 0 && about.si_pid == 0)
        return 0;
    FAIL_PATH("wait", "")
    return REAL(wait4)(process, status, options, usage);
}

SHOWN pid_t waitpid(pid_t process, int *status, int options) {
    return wait4(process, status, options, NULL);
}

/* ---- streams ---- */

static struct {
    FILE *stream;
    int fd;
} streams[STREAMS_MAX];

static int stream_fd(const void *cookie) {
    return (int)((intptr_t)cookie - 1);
}

static ssize_t stream_read(void *cookie, char *bytes, size_t count) {
    return read(stream_fd(cookie), bytes, count);
}

/* As the C library's own: short counts go on, errors do not. */
static ssize_t stream_write(void *cookie, const char *bytes, size_t count) {
    size_t done = 0;
    while (done < count) {
        const ssize_t part = write(stream_fd(cookie), bytes + done, count - done);
        if (part < 0) break;
        done += (size_t)part;
    }
    return (ssize_t)done;
}

static int stream_seek(void *cookie, off64_t *offset, int whence) {
    const off_t at = lseek(stream_fd(cookie), *offset, whence);
    if (at < 0) return -1;
    *offset = at;
    return 0;
}

static int stream_close(void *cookie) {
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i].stream != NULL && streams[i].fd == stream_fd(cookie))
            streams[i].stream = NULL;
    return close(stream_fd(cookie));
}

static FILE *make_stream(int fd, const char *mode) {
    const cookie_io_functions_t functions = {stream_read, stream_write, stream_seek, stream_close};
    FILE *stream = fopencookie((void *)((intptr_t)fd + 1), mode, functions);
    for (int i = 0; stream != NULL && i < STREAMS_MAX; i++)
        if (streams[i].stream == NULL) {
            streams[i].stream = stream;
            streams[i].fd = fd;
            return stream;
        }
    return stream;
}

SHOWN FILE *fdopen(int fd, const char *mode) {
    return make_stream(fd, mode);
}

/* What the machine is called is not data: where /proc cannot be read it is "unknown". */
SHOWN FILE *fopen(const char *path, const char *mode) {
    const int failure = strncmp(path, "/proc/", 6) == 0 ? 0 : fault("open", path);
    if (failure <= 0) return REAL(fopen)(path, mode);
    errno = failure;
    return NULL;
}

SHOWN int fileno(FILE *stream) {
    for (int i = 0; i < STREAMS_MAX; i++)
        if (streams[i].stream == stream) return streams[i].fd;
    return REAL(fileno)(stream);
}

/* ---- beginning ---- */

static int64_t number_of(const char *name) {
    const char *text = getenv(name);
    return text == NULL ? 0 : strtoll(text, NULL, 10);
}

__attribute__((constructor)) static void begin(void) {
    const char *state = getenv("FAULTS_STATE"), *kept = getenv("FAULTS_JOURNAL");
    const char *below = getenv("FAULTS_ROOT");
    fault_at = number_of("FAULTS_AT");
    fault_way = (int)number_of("FAULTS_WAY") % FAULT_WAYS;
    sticky = number_of("FAULTS_STICKY") == 1;
    if (kept != NULL && below != NULL) {
        snprintf(root, sizeof root, "%s", below);
        journal = REAL(open)(kept, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    }
    stdout = make_stream(STDOUT_FILENO, "w");
    if (state == NULL) return;
    const int fd = REAL(open)(state, O_RDWR | O_CLOEXEC);
    void *there = fd < 0
                      ? MAP_FAILED
                      : REAL(mmap)(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (there == MAP_FAILED) abort();
    REAL(close)(fd);
    shared = there;
    if (shared->first == 0) shared->first = (int32_t)getpid();
    if (shared->stopped) usleep(60000); /* so that it is asked before it takes signals */
}
