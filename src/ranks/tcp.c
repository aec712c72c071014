/* Ranks on sockets, each connected with each. Bytes travel in frames: a header with kind and
 * length, which must be what the receiver expects, or the reason why the sender has ended. */
#include "ranks/tcp.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"

enum { DATA = 0x4c534431, FAILURE = 0x4c534631, LOOK_EVERY = 100 /* ms */ };

typedef struct frame_header {
    uint32_t kind, reserved;
    uint64_t length;
} frame_header;

/* One direction of an exchange: a header and then the bytes. */
typedef struct half {
    frame_header header;
    char *bytes;
    size_t length, done; /* done: of header and bytes together */
} half;

static bool is_over(const half *h) {
    return h->length == 0 || h->done == sizeof h->header + h->length;
}

/* What comes next, and how much of it. */
static char *next_part(half *h, size_t *left) {
    const size_t head = sizeof h->header;
    if (h->done < head) {
        *left = head - h->done;
        return (char *)&h->header + h->done;
    }
    *left = h->length - (h->done - head);
    return h->bytes + (h->done - head);
}

static bool would_wait(void) {
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Moves bytes for as long as the socket takes them; the number moved, -1: the other is gone. */
static ssize_t push(int fd, half *h) {
    ssize_t all = 0;
    while (!is_over(h)) {
        size_t left;
        const char *from = next_part(h, &left);
        const ssize_t n = send(fd, from, left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0) return would_wait() ? all : -1;
        h->done += (size_t)n;
        all += n;
    }
    return all;
}

bool ls__tcp_read(int fd, void *bytes, size_t length, double seconds) {
    const double until = ls_clock() + seconds;
    size_t done = 0;
    while (done < length) {
        struct pollfd at = {.fd = fd, .events = POLLIN};
        if (ls_clock() > until || (poll(&at, 1, LOOK_EVERY) < 0 && errno != EINTR)) return false;
        const ssize_t n = recv(fd, (char *)bytes + done, length - done, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && !would_wait())) return false;
        if (n > 0) done += (size_t)n;
    }
    return true;
}

bool ls__tcp_write(int fd, const void *bytes, size_t length, double seconds) {
    const double until = ls_clock() + seconds;
    size_t done = 0;
    while (done < length) {
        struct pollfd at = {.fd = fd, .events = POLLOUT};
        if (ls_clock() > until || (poll(&at, 1, LOOK_EVERY) < 0 && errno != EINTR)) return false;
        const ssize_t n =
            send(fd, (const char *)bytes + done, length - done, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && !would_wait()) return false;
        if (n > 0) done += (size_t)n;
    }
    return true;
}

static ls_rank_result take_failure(int fd, const frame_header *header, ls_rank_failure *told) {
    const double enough = 5;
    if (header->length != sizeof *told || !ls__tcp_read(fd, told, sizeof *told, enough))
        return LS_RANK_LOST;
    return LS_RANK_TOLD;
}

/* Receives what is there. A header is looked at before anything behind it is believed. */
static ls_rank_result pull(int fd, half *h, bool *moved, ls_rank_failure *told) {
    while (!is_over(h)) {
        size_t left;
        char *to = next_part(h, &left);
        const ssize_t n = recv(fd, to, left, MSG_DONTWAIT);
        if (n == 0) return LS_RANK_LOST;
        if (n < 0) return would_wait() ? LS_RANK_DONE : LS_RANK_LOST;
        *moved = true;
        h->done += (size_t)n;
        if (h->done != sizeof h->header) continue;
        if (h->header.kind == FAILURE) return take_failure(fd, &h->header, told);
        if (h->header.kind != DATA || h->header.length != h->length) return LS_RANK_ASTRAY;
    }
    return LS_RANK_DONE;
}

/* While nothing is to be received: a failure may come all the same. *watch ends where the next
 * frame is data, for a later call. */
static ls_rank_result peek(int fd, bool *watch, ls_rank_failure *told) {
    frame_header header;
    const ssize_t n = recv(fd, &header, sizeof header, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && !would_wait())) return LS_RANK_LOST;
    if (n != (ssize_t)sizeof header) return LS_RANK_DONE;
    *watch = header.kind == FAILURE;
    if (!*watch || recv(fd, &header, sizeof header, MSG_DONTWAIT) != (ssize_t)sizeof header)
        return LS_RANK_DONE;
    return take_failure(fd, &header, told);
}

/* The socket does not take any more: the other may have said why before it went. */
static ls_rank_result last_word(int fd, half *in, ls_rank_failure *told) {
    bool any;
    half header_alone = {.length = SIZE_MAX / 2}; /* no data has this length */
    if (in->length > 0 && in->done >= sizeof in->header) return LS_RANK_LOST;
    if (in->length == 0) in = &header_alone;
    return pull(fd, in, &any, told) == LS_RANK_TOLD ? LS_RANK_TOLD : LS_RANK_LOST;
}

/* One look at the socket, for LOOK_EVERY at most. */
static ls_rank_result look(int fd, half *out, half *in, bool *watch, bool *moved,
                           ls_rank_failure *told) {
    const bool receives = !is_over(in);
    struct pollfd at = {.fd = fd};
    at.events = (short)((is_over(out) ? 0 : POLLOUT) | (receives || *watch ? POLLIN : 0));
    if (poll(&at, 1, LOOK_EVERY) < 0) return errno == EINTR ? LS_RANK_DONE : LS_RANK_LOST;
    ls_rank_result result = LS_RANK_DONE;
    if ((at.revents & (POLLIN | POLLHUP | POLLERR)) != 0)
        result = receives ? pull(fd, in, moved, told) : *watch ? peek(fd, watch, told) : result;
    if (result != LS_RANK_DONE || (at.revents & (POLLOUT | POLLHUP | POLLERR)) == 0) return result;
    const ssize_t sent = push(fd, out);
    *moved |= sent > 0;
    return sent < 0 ? last_word(fd, in, told) : LS_RANK_DONE;
}

static ls_rank_result exchange(ls_transport *transport, const ls_rank_wait *wait, int with,
                               const void *send_from, size_t send_bytes, void *receive,
                               size_t receive_bytes, ls_rank_failure *told) {
    ls_tcp *tcp = (ls_tcp *)transport;
    const int fd = tcp->links[with];
    half out = {.header = {.kind = DATA, .length = send_bytes}, .length = send_bytes};
    half in = {.bytes = receive, .length = receive_bytes};
    memcpy(&out.bytes, &send_from, sizeof out.bytes); /* only read from */
    double since = ls_clock(), asked = 0;
    bool watch = true;
    while (!is_over(&out) || !is_over(&in)) {
        bool moved = false;
        const ls_rank_result result = look(fd, &out, &in, &watch, &moved, told);
        tcp->begun[with] = out.done > 0 && !is_over(&out);
        if (result != LS_RANK_DONE) return result;
        const double now = ls_clock();
        if (moved) since = now;
        if (now - since > wait->limit) return LS_RANK_LATE;
        if (wait->stop != NULL && *wait->stop != 0 && asked == 0) asked = now;
        if (asked > 0 && now - asked > LS_RANK_GRACE && now - since > LS_RANK_GRACE)
            return LS_RANK_STOPPED;
    }
    return LS_RANK_DONE;
}

/* One that has ended may have told why before: that is read first. What else has come is for a
 * later exchange. */
static ls_rank_result watch_all(ls_transport *transport, int *gone, ls_rank_failure *told) {
    const ls_tcp *tcp = (ls_tcp *)transport;
    struct pollfd at[LS_RANKS_MAX];
    ls_rank_result result = LS_RANK_DONE;
    for (int i = 0; i < tcp->size; i++)
        at[i] = (struct pollfd){.fd = tcp->links[i], .events = POLLIN | POLLRDHUP};
    if (poll(at, (nfds_t)tcp->size, 0) <= 0) return LS_RANK_DONE;
    for (int i = 0; i < tcp->size; i++) {
        bool watch;
        if (at[i].revents == 0) continue;
        const ls_rank_result seen = peek(tcp->links[i], &watch, told);
        if (seen == LS_RANK_TOLD) return seen;
        const bool ended = (at[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
        if (result == LS_RANK_DONE && (seen == LS_RANK_LOST || ended)) {
            result = LS_RANK_LOST;
            *gone = i;
        }
    }
    return result;
}

static void tell(ls_transport *transport, int rank, const ls_rank_failure *failure) {
    const double enough = 1;
    const ls_tcp *tcp = (ls_tcp *)transport;
    const frame_header header = {.kind = FAILURE, .length = sizeof *failure};
    /* within a frame it would be taken for data */
    if (tcp->links[rank] < 0 || tcp->begun[rank]) return;
    if (ls__tcp_write(tcp->links[rank], &header, sizeof header, enough))
        ls__tcp_write(tcp->links[rank], failure, sizeof *failure, enough);
}

/* What was sent must not be lost because something unread is thrown away: the other ends first, or
 * a second passes. */
static void close_links(ls_transport *transport, int failed) {
    ls_tcp *tcp = (ls_tcp *)transport;
    ls_ctx *ctx = tcp->ctx;
    const double until = ls_clock() + (failed ? 1 : 10);
    for (int i = 0; i < tcp->size; i++)
        if (tcp->links[i] >= 0) shutdown(tcp->links[i], SHUT_WR);
    for (int i = 0; i < tcp->size; i++) {
        char unread[4096];
        struct pollfd at = {.fd = tcp->links[i], .events = POLLIN};
        while (at.fd >= 0 && ls_clock() < until) {
            if (poll(&at, 1, LOOK_EVERY) <= 0) continue;
            if (recv(at.fd, unread, sizeof unread, MSG_DONTWAIT) <= 0) break;
        }
        if (at.fd >= 0) close(at.fd);
    }
    ls_free(ctx, tcp->links);
    ls_free(ctx, tcp->begun);
    ls_free(ctx, tcp);
}

/* A rank has a socket for each other. The usual limit of files is that of programs with few. */
static void make_room(int size) {
    enum { BESIDE = 64 }; /* files of the program itself */
    const rlim_t wanted = (rlim_t)size + BESIDE;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
    files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &files); /* else a socket that is not to be had is told of */
}

ls_status ls__tcp_open(ls_ctx *ctx, const ls_launch *launch, const ls_rank_wait *wait,
                       ls_rank_failure *told, ls_transport **out) {
    const ls_transport functions = {"sockets", 1, exchange, watch_all, tell, close_links};
    ls_tcp *tcp = ls_new(ctx, 1, sizeof *tcp);
    *out = NULL;
    if (tcp == NULL) return LS_ENOMEM;
    make_room(launch->size);
    *tcp = (ls_tcp){functions, ctx, launch->rank, 0, NULL, NULL};
    tcp->links = ls_new(ctx, (size_t)launch->size, sizeof *tcp->links);
    tcp->begun = ls_new(ctx, (size_t)launch->size, sizeof *tcp->begun);
    ls_status status = LS_ENOMEM;
    if (tcp->links != NULL && tcp->begun != NULL) {
        tcp->size = launch->size;
        for (int i = 0; i < tcp->size; i++) tcp->links[i] = -1;
        status = ls__tcp_meet(tcp, launch, wait, told);
    }
    if (status == LS_OK)
        *out = &tcp->transport;
    else
        close_links(&tcp->transport, 1); /* rank 0's last word must arrive */
    return status;
}
