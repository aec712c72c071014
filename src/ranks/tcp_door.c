/* The door of a rank on sockets: it listens, calls others, and looks at who calls. Whoever does not
 * know the job is sent away without a word. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "ranks/tcp_meet.h"

static const char magic[16] = "longshot ranks 1";

/* What a rank says first. */
typedef struct hello {
    char magic[16];
    uint64_t job, version;
    uint32_t rank, size, port, reserved; /* port 0: it could not listen, and says why next */
} hello;

static void settle_socket(int fd) {
    const int on = 1, idle = 30;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* of a machine that is gone */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

static ls_status listen_at(ls_meeting *m, const struct sockaddr *address, socklen_t length) {
    const int on = 1,
              fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    ls_ctx *ctx = m->tcp->ctx;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, address, length) != 0 || listen(fd, LS_RANKS_MAX) != 0) {
        const int why = errno;
        if (fd >= 0) close(fd);
        return LS_FAIL(ctx, LS_EUSE, "rank %d cannot listen%s%s%s%s: %s", m->tcp->rank,
                       m->tcp->rank == 0 ? " at MASTER_ADDR=" : "",
                       m->tcp->rank == 0 ? m->launch->host : "",
                       m->tcp->rank == 0 ? " MASTER_PORT=" : "",
                       m->tcp->rank == 0 ? m->launch->port : "", strerror(why));
    }
    m->listener = fd;
    m->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    return LS_OK;
}

static ls_status find_host(ls_meeting *m, struct addrinfo **out) {
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const int code = getaddrinfo(m->launch->host, m->launch->port, &wanted, out);
    if (code == 0) return LS_OK;
    return LS_FAIL(m->tcp->ctx, LS_EUSE, "MASTER_ADDR=%s: %s", m->launch->host, gai_strerror(code));
}

static uint16_t *port_of(struct sockaddr_storage *address) {
    return address->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)address)->sin6_port
                                          : &((struct sockaddr_in *)address)->sin_port;
}

static ls_status listen_first(ls_meeting *m) {
    struct addrinfo *found = NULL;
    LS_TRY(find_host(m, &found));
    const ls_status status = listen_at(m, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return status;
}

ls_status ls__meet_listen(ls_meeting *m) {
    const ls_tcp *tcp = m->tcp;
    struct sockaddr_storage here = {0};
    socklen_t length = sizeof here;
    if (tcp->rank == 0) return listen_first(m);
    if (getsockname(tcp->links[0], (struct sockaddr *)&here, &length) != 0)
        return LS_FAIL(tcp->ctx, LS_ERANK, "rank 0 of %d is gone: %s", tcp->size, strerror(errno));
    *port_of(&here) = 0;
    return listen_at(m, (struct sockaddr *)&here, length);
}

/* What waiting does not mend: errno says whether a socket is not to be had on this machine. */
static ls_status check_sockets(const ls_meeting *m, int why) {
    if (why != EMFILE && why != ENFILE && why != ENOMEM && why != ENOBUFS) return LS_OK;
    return LS_FAIL(m->tcp->ctx, LS_EIO,
                   "rank %d of %d gets no more sockets: %s (ulimit -n; a rank has one for each "
                   "other)",
                   m->tcp->rank, m->tcp->size, strerror(why));
}

/* -1: not now, and errno says why. */
static int try_connect(const struct sockaddr *address, socklen_t length) {
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd at = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t bytes = sizeof failed;
    if (fd < 0) return -1;
    if (connect(fd, address, length) == 0) return fd;
    if (errno == EINPROGRESS && poll(&at, 1, 1000 * LS_HELLO_SECONDS) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) == 0 && failed == 0)
        return fd;
    close(fd);
    errno = ECONNREFUSED;
    return -1;
}

static void settle_link(ls_meeting *m, int rank, int fd) {
    m->tcp->links[rank] = fd;
    settle_socket(fd);
}

/* Where a name has several addresses, any. */
static int call_first(const struct addrinfo *found) {
    int fd = -1;
    for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
        fd = try_connect(at->ai_addr, at->ai_addrlen);
    return fd;
}

static socklen_t address_of(const ls_rank_place *from, struct sockaddr_storage *out) {
    *out = (struct sockaddr_storage){.ss_family = from->family};
    *port_of(out) = from->port;
    if (from->family == AF_INET6)
        memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, from->address, 16);
    else
        memcpy(&((struct sockaddr_in *)out)->sin_addr, from->address, 4);
    return from->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

ls_status ls__meet_reach(ls_meeting *m, int rank) {
    struct addrinfo *found = NULL;
    struct sockaddr_storage there;
    int fd, why;
    if (rank == 0) {
        LS_TRY(find_host(m, &found));
        fd = call_first(found);
        why = errno;
        freeaddrinfo(found);
    } else {
        const socklen_t length = address_of(&m->places[rank], &there);
        fd = try_connect((struct sockaddr *)&there, length);
        why = errno;
    }
    if (fd < 0) {
        poll(NULL, 0, LS_MEET_LOOK);
        return check_sockets(m, why);
    }
    settle_link(m, rank, fd);
    return LS_OK;
}

bool ls__meet_first_listens(ls_meeting *m) {
    struct addrinfo *found = NULL;
    poll(NULL, 0, 10 * LS_MEET_LOOK); /* a process that is killed loses its sockets one by one */
    if (find_host(m, &found) != LS_OK) return false;
    const int fd = call_first(found);
    freeaddrinfo(found);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* 0: none. */
static uint16_t own_port(const ls_meeting *m) {
    struct sockaddr_storage here = {0};
    socklen_t length = sizeof here;
    if (m->listener < 0 || getsockname(m->listener, (struct sockaddr *)&here, &length) != 0)
        return 0;
    return ntohs(*port_of(&here));
}

ls_status ls__meet_greet(ls_meeting *m, int rank) {
    hello ours = {.job = m->launch->job,
                  .version = ls__ranks_version(),
                  .rank = (uint32_t)m->tcp->rank,
                  .size = (uint32_t)m->tcp->size,
                  .port = own_port(m)};
    memcpy(ours.magic, magic, sizeof magic);
    if (ls__tcp_write(m->tcp->links[rank], &ours, sizeof ours, LS_HELLO_SECONDS)) return LS_OK;
    return LS_FAIL(m->tcp->ctx, LS_ERANK,
                   "rank %d of %d is gone: it was killed, or its machine was lost", rank,
                   m->tcp->size);
}

static void note_place(const struct sockaddr_storage *from, uint16_t port, ls_rank_place *out) {
    *out = (ls_rank_place){.family = (uint16_t)from->ss_family, .port = port};
    if (from->ss_family == AF_INET6)
        memcpy(out->address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    else
        memcpy(out->address, &((const struct sockaddr_in *)from)->sin_addr, 4);
}

/* Whether one that knows the job is the rank that is waited for. */
static ls_status check_hello(const ls_meeting *m, const hello *theirs) {
    const ls_tcp *tcp = m->tcp;
    const int number = (int)theirs->rank;
    if (theirs->version != ls__ranks_version())
        return LS_FAIL(tcp->ctx, LS_EUSE,
                       "rank %d has another version or build of longshot than rank %d", number,
                       tcp->rank);
    if (theirs->size != (uint32_t)tcp->size)
        return LS_FAIL(tcp->ctx, LS_EUSE, "rank %d was started as one of %u, rank %d as one of %d",
                       number, theirs->size, tcp->rank, tcp->size);
    if (number >= tcp->size)
        return LS_FAIL(tcp->ctx, LS_EUSE, "one of %d says that it is rank %d", tcp->size, number);
    if (tcp->links[number] >= 0)
        return LS_FAIL(tcp->ctx, LS_EUSE, "two processes say that they are rank %d", number);
    return LS_OK;
}

ls_status ls__meet_accept(ls_meeting *m, int *rank) {
    struct sockaddr_storage from = {0};
    socklen_t length = sizeof from;
    hello theirs;
    *rank = 0;
    const int fd =
        accept4(m->listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return check_sockets(m, errno);
    if (!ls__tcp_read(fd, &theirs, sizeof theirs, LS_HELLO_SECONDS) ||
        memcmp(theirs.magic, magic, sizeof magic) != 0 || theirs.job != m->launch->job ||
        theirs.rank <= (uint32_t)m->tcp->rank || theirs.rank >= LS_RANKS_MAX) {
        close(fd);
        return LS_OK;
    }
    const ls_status status = check_hello(m, &theirs);
    if (status != LS_OK) {
        const ls_rank_failure why = ls__failure_of(m->tcp->ctx, m->tcp->rank, status);
        ls__tcp_write(fd, &why, sizeof why, LS_HELLO_SECONDS);
        close(fd);
        return status;
    }
    *rank = (int)theirs.rank;
    settle_link(m, *rank, fd);
    note_place(&from, htons((uint16_t)theirs.port), &m->places[theirs.rank]);
    return LS_OK;
}
