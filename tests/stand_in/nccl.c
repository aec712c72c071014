/* A stand-in for libnccl.so.2 on a machine without devices: the same symbols, for processes of one
 * machine, whose "device memory" is their own. Ranks are linked by sockets; a thread of each
 * communicator moves the bytes of a group after its call has returned, and the stream is busy until
 * they are there. A partner that does not come is waited for until ncclCommAbort, as on a device.
 *
 * What it is told to do wrong: STAND_IN_NCCL, words with commas between them.
 *   version=N          ncclGetVersion's answer (22703)
 *   fail=SYMBOL[:N]    that call fails, from the N-th on (1)
 *   only=RANK          what fails, fails on this rank alone
 *   flip               a byte of what arrives is another */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "ranks/nccl_library.h"
#include "stream.h"

enum { RANKS = 64, OPERATIONS = 256, INVALID = 5, SYSTEM = 2 };
typedef struct operation {
    char *at;
    size_t bytes, done;
    int with;
    bool sends;
    stand_in_stream *stream;
} operation;
typedef struct communicator {
    int rank, size, device[RANKS], links[RANKS], listener;
    int self[2]; /* to itself it sends through the first, and receives through the second */
    ls_nccl_id id;
    atomic_int state, stop;
    operation queue[OPERATIONS];
    atomic_int queued;
    pthread_t thread;
} communicator;

static _Thread_local operation group[OPERATIONS];
static _Thread_local int grouped;
static _Thread_local communicator *group_of;
static int own_rank = -1;
static const char *last = "";

#define EXPORT __attribute__((visibility("default")))

static const char *told(const char *word) {
    const char *all = getenv("STAND_IN_NCCL"), *at = all == NULL ? NULL : strstr(all, word);
    return at == NULL ? NULL : at + strlen(word);
}

/* Whether a call fails, by what the test says. */
static bool fails(const char *symbol) {
    static atomic_int calls;
    const char *what = told("fail="), *only = told("only=");
    const size_t length = strlen(symbol);
    if (what == NULL || strncmp(what, symbol, length) != 0 || strcspn(what, ",:") != length)
        return false;
    if (only != NULL && own_rank >= 0 && atoi(only) != own_rank) return false;
    const int from = what[length] == ':' ? atoi(what + length + 1) : 1;
    last = "the stand-in was told to fail";
    return atomic_fetch_add(&calls, 1) + 1 >= from;
}

/* ---- the thread of a communicator ---- */

static void nap(void) {
    const struct timespec pause = {.tv_nsec = 200000};
    nanosleep(&pause, NULL);
}

static struct sockaddr_un place(const ls_nccl_id *id, int rank, socklen_t *length) {
    struct sockaddr_un at = {.sun_family = AF_UNIX}; /* in the abstract space: no file is left */
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                          (size_t)snprintf(at.sun_path + 1, 100, "%.60s.%d", id->bytes, rank));
    return at;
}

static bool whole(const communicator *c, int fd, void *bytes, size_t length, bool sends) {
    for (size_t done = 0; done < length;) {
        if (atomic_load(&c->stop)) return false;
        const ssize_t n = sends ? send(fd, (char *)bytes + done, length - done, MSG_NOSIGNAL)
                                : recv(fd, (char *)bytes + done, length - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
        if (n > 0) done += (size_t)n;
        if (n < 0) nap();
    }
    return true;
}

static bool greet(communicator *c, int fd, int with) { /* with: -1 where it is to be heard */
    int own[2] = {c->rank, c->device[c->rank]}, theirs[2];
    if (!whole(c, fd, own, sizeof own, true) || !whole(c, fd, theirs, sizeof theirs, false) ||
        theirs[0] < 0 || theirs[0] >= c->size || (with >= 0 && theirs[0] != with))
        return false;
    c->device[theirs[0]] = theirs[1];
    c->links[theirs[0]] = fd;
    return true;
}

static bool link_all(communicator *c) {
    for (int i = 0; i < c->rank; i++) {
        socklen_t length;
        const struct sockaddr_un at = place(&c->id, i, &length);
        const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        while (connect(fd, (const struct sockaddr *)&at, length) != 0) {
            if (atomic_load(&c->stop)) return false;
            nap();
        }
        if (!greet(c, fd, i)) return false;
    }
    for (int i = c->rank + 1; i < c->size; i++) {
        struct pollfd door = {.fd = c->listener, .events = POLLIN};
        while (poll(&door, 1, 10) <= 0)
            if (atomic_load(&c->stop)) return false;
        if (!greet(c, accept4(c->listener, NULL, NULL, SOCK_CLOEXEC), -1)) return false;
    }
    for (int i = 0; i < c->size; i++)
        for (int j = 0; j < i; j++)
            if (c->device[i] == c->device[j]) {
                last = "Duplicate GPU detected";
                atomic_store(&c->state, INVALID);
                return false;
            }
    return true;
}

/* Moves what can be moved; whether all of it has been. A rank that is gone is waited for: with
 * shared memory NCCL would not notice it either. */
static bool move(communicator *c, int count) {
    bool all = true, busy[2][RANKS] = {{false}};
    for (int i = 0; i < count; i++) {
        operation *o = &c->queue[i];
        bool *turn = &busy[o->sends][o->with]; /* operations with one rank keep their order */
        const int fd = o->with == c->rank ? c->self[!o->sends] : c->links[o->with];
        if (o->done == o->bytes) continue;
        all = false;
        if (*turn) continue;
        *turn = true;
        const ssize_t n =
            o->sends ? send(fd, o->at + o->done, o->bytes - o->done, MSG_NOSIGNAL | MSG_DONTWAIT)
                     : recv(fd, o->at + o->done, o->bytes - o->done, MSG_DONTWAIT);
        if (n > 0 && !o->sends && told("flip") != NULL) o->at[o->done] ^= 1;
        if (n > 0) o->done += (size_t)n;
    }
    return all;
}

static void *work(void *user) {
    communicator *c = user;
    const bool linked = link_all(c);
    if (!linked && atomic_load(&c->state) == LS_NCCL_BUSY) atomic_store(&c->state, SYSTEM);
    if (linked) atomic_store(&c->state, LS_NCCL_DONE);
    while (linked && !atomic_load(&c->stop)) {
        const int count = atomic_load(&c->queued);
        if (count > 0 && move(c, count)) {
            stand_in_stream *stream = c->queue[0].stream;
            atomic_store(&c->queued, 0);
            atomic_fetch_sub(&stream->pending, 1);
        }
        nap();
    }
    return NULL;
}

static void end(communicator *c) {
    atomic_store(&c->stop, 1);
    pthread_join(c->thread, NULL);
    if (atomic_load(&c->queued) > 0) atomic_fetch_sub(&c->queue[0].stream->pending, 1);
    for (int i = 0; i < c->size; i++)
        if (c->links[i] >= 0) close(c->links[i]);
    close(c->listener);
    close(c->self[0]);
    close(c->self[1]);
    free(c);
}

/* ---- NCCL's symbols ---- */

#define DECLARE(field, symbol, result, arguments) EXPORT result symbol arguments;
LS_NCCL_CALLS(DECLARE)

int ncclGetVersion(int *version) {
    const char *other = told("version=");
    *version = other == NULL ? 22703 : atoi(other);
    return fails("ncclGetVersion") ? SYSTEM : LS_NCCL_DONE;
}

int ncclGetUniqueId(ls_nccl_id *id) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "stand-in-%d-%ld", (int)getpid(), now.tv_nsec);
    return fails("ncclGetUniqueId") ? SYSTEM : LS_NCCL_DONE;
}

int ncclCommInitRankConfig(void **out, int size, ls_nccl_id id, int rank, ls_nccl_config *config) {
    const char *device = getenv("STAND_IN_DEVICE");
    communicator *c = calloc(1, sizeof *c);
    socklen_t length;
    own_rank = rank;
    *out = NULL;
    if (c == NULL || size > RANKS || config->magic != 0xcafebeefu || config->blocking != 0 ||
        fails("ncclCommInitRankConfig")) {
        free(c);
        return INVALID;
    }
    c->rank = rank;
    c->size = size;
    c->id = id;
    for (int i = 0; i < size; i++) c->links[i] = -1;
    c->device[rank] = device == NULL ? 0 : atoi(device);
    atomic_store(&c->state, LS_NCCL_BUSY);
    const struct sockaddr_un at = place(&id, rank, &length);
    c->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, c->self) != 0 ||
        bind(c->listener, (const struct sockaddr *)&at, length) != 0 ||
        listen(c->listener, RANKS) != 0 || pthread_create(&c->thread, NULL, work, c) != 0) {
        close(c->listener);
        free(c);
        return SYSTEM;
    }
    *out = c;
    return LS_NCCL_BUSY;
}

int ncclCommGetAsyncError(void *of, int *state) {
    *state = atomic_load(&((communicator *)of)->state);
    if (fails("async")) *state = SYSTEM;
    return fails("ncclCommGetAsyncError") ? SYSTEM : LS_NCCL_DONE;
}

int ncclCommFinalize(void *of) {
    (void)of;
    return fails("ncclCommFinalize") ? SYSTEM : LS_NCCL_DONE;
}

int ncclCommDestroy(void *of) {
    end(of);
    return fails("ncclCommDestroy") ? SYSTEM : LS_NCCL_DONE;
}

int ncclCommAbort(void *of) {
    end(of);
    return fails("ncclCommAbort") ? SYSTEM : LS_NCCL_DONE;
}

int ncclGroupStart(void) {
    grouped = 0;
    group_of = NULL;
    return fails("ncclGroupStart") ? SYSTEM : LS_NCCL_DONE;
}

static int add(void *at, size_t bytes, int with, bool sends, void *of, void *stream) {
    communicator *c = of;
    if (grouped == OPERATIONS || with < 0 || with >= c->size) return INVALID;
    group[grouped++] = (operation){at, bytes, 0, with, sends, stream};
    group_of = c;
    return LS_NCCL_DONE;
}

int ncclSend(const void *from, size_t count, int type, int with, void *of, void *stream) {
    void *at;
    memcpy(&at, &from, sizeof at); /* only read from */
    if (fails("ncclSend") || type != LS_NCCL_BYTE) return INVALID;
    return add(at, count, with, true, of, stream);
}

int ncclRecv(void *to, size_t count, int type, int with, void *of, void *stream) {
    if (fails("ncclRecv") || type != LS_NCCL_BYTE) return INVALID;
    return add(to, count, with, false, of, stream);
}

int ncclGroupEnd(void) {
    if (fails("ncclGroupEnd")) return SYSTEM;
    if (group_of == NULL) return LS_NCCL_DONE;
    while (atomic_load(&group_of->queued) > 0) nap();
    memcpy(group_of->queue, group, sizeof group);
    atomic_fetch_add(&group[0].stream->pending, 1);
    atomic_store(&group_of->queued, grouped);
    return LS_NCCL_BUSY;
}

const char *ncclGetErrorString(int code) {
    return code == SYSTEM ? "unhandled system error" : "invalid usage";
}

const char *ncclGetLastError(void *of) {
    (void)of;
    return last;
}
