/* How ranks on sockets find one another. Rank 0 listens at MASTER_ADDR:MASTER_PORT, and there alone.
 * The others come and say who they are and where they listen themselves: at the address by which
 * they reach rank 0. Once all are there rank 0 answers with a table of these places, and each rank
 * connects with the ranks below it. Whoever does not know the job is sent away without a word. */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "ranks/tcp.h"

#ifndef LS_VERSION
#define LS_VERSION "0"
#endif

enum { LOOK_EVERY = 50 /* ms */, HELLO_SECONDS = 2 };
static const char magic[16] = "longshot ranks 1";

/* What a rank says first. */
typedef struct hello {
    char magic[16];
    uint64_t job, version;
    uint32_t rank, size, port, reserved;
} hello;

/* Where a rank listens. */
typedef struct place {
    uint16_t family, port; /* as sockets have them */
    uint8_t address[16];
} place;

typedef struct meeting {
    ls_tcp *tcp;
    const ls_launch *launch;
    const ls_rank_wait *wait;
    double until;
    int listener;
    place *places; /* [size] */
} meeting;

static uint64_t version_hash(void) {
    return ls_hash(LS_VERSION, strlen(LS_VERSION));
}

static void settle_socket(int fd) {
    const int on = 1, idle = 30;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on); /* of a machine that is gone */
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
}

/* LS_OK while there is time left and nobody asked for the end. */
static ls_status check_time(meeting *m, const char *missing) {
    ls_ctx *ctx = m->tcp->ctx;
    if (m->wait->stop != NULL && *m->wait->stop != 0)
        return LS_FAIL(ctx, LS_ESTOP, "stopped while the ranks met");
    if (ls_clock() < m->until) return LS_OK;
    return LS_FAIL(ctx, LS_ERANK, "%s within %g seconds (LONGSHOT_RANK_WAIT)", missing,
                   m->wait->limit);
}

static ls_status listen_at(meeting *m, const struct sockaddr *address, socklen_t length) {
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
    return LS_OK;
}

static ls_status find_host(meeting *m, struct addrinfo **out) {
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const int code = getaddrinfo(m->launch->host, m->launch->port, &wanted, out);
    if (code == 0) return LS_OK;
    return LS_FAIL(m->tcp->ctx, LS_EUSE, "MASTER_ADDR=%s: %s", m->launch->host, gai_strerror(code));
}

/* -1: not now. */
static int try_connect(const struct sockaddr *address, socklen_t length) {
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd at = {.fd = fd, .events = POLLOUT};
    int failed = 0;
    socklen_t bytes = sizeof failed;
    if (fd < 0) return -1;
    if (connect(fd, address, length) == 0) return fd;
    if (errno == EINPROGRESS && poll(&at, 1, 1000 * HELLO_SECONDS) == 1 &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) == 0 && failed == 0)
        return fd;
    close(fd);
    return -1;
}

static void reach(meeting *m, const struct sockaddr *address, socklen_t length, int rank) {
    const int fd = try_connect(address, length);
    if (fd < 0) {
        poll(NULL, 0, LOOK_EVERY);
        return;
    }
    m->tcp->links[rank] = fd;
    settle_socket(fd);
}

/* Says who this is, and at which port it listens. */
static ls_status greet(meeting *m, int rank, uint16_t port) {
    hello ours = {.job = m->launch->job,
                  .version = version_hash(),
                  .rank = (uint32_t)m->tcp->rank,
                  .size = (uint32_t)m->tcp->size,
                  .port = port};
    memcpy(ours.magic, magic, sizeof magic);
    if (ls__tcp_write(m->tcp->links[rank], &ours, sizeof ours, HELLO_SECONDS)) return LS_OK;
    return LS_FAIL(m->tcp->ctx, LS_ERANK, "rank %d of %d is gone", rank, m->tcp->size);
}

static uint16_t *port_of(struct sockaddr_storage *address) {
    return address->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)address)->sin6_port
                                          : &((struct sockaddr_in *)address)->sin_port;
}

static void note_place(const struct sockaddr_storage *from, uint16_t port, place *out) {
    *out = (place){.family = (uint16_t)from->ss_family, .port = port};
    if (from->ss_family == AF_INET6)
        memcpy(out->address, &((const struct sockaddr_in6 *)from)->sin6_addr, 16);
    else
        memcpy(out->address, &((const struct sockaddr_in *)from)->sin_addr, 4);
}

static socklen_t address_of(const place *from, struct sockaddr_storage *out) {
    *out = (struct sockaddr_storage){.ss_family = from->family};
    *port_of(out) = from->port;
    if (from->family == AF_INET6)
        memcpy(&((struct sockaddr_in6 *)out)->sin6_addr, from->address, 16);
    else
        memcpy(&((struct sockaddr_in *)out)->sin_addr, from->address, 4);
    return from->family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

/* One that belongs to this job; whether it fits is another question. Others are sent away: *rank
 * is then 0. */
static ls_status accept_one(meeting *m, int *rank) {
    ls_ctx *ctx = m->tcp->ctx;
    struct pollfd at = {.fd = m->listener, .events = POLLIN};
    struct sockaddr_storage from = {0};
    socklen_t length = sizeof from;
    hello theirs;
    *rank = 0;
    if (poll(&at, 1, LOOK_EVERY) <= 0) return LS_OK;
    const int fd =
        accept4(m->listener, (struct sockaddr *)&from, &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return LS_OK;
    if (!ls__tcp_read(fd, &theirs, sizeof theirs, HELLO_SECONDS) ||
        memcmp(theirs.magic, magic, sizeof magic) != 0 || theirs.job != m->launch->job ||
        theirs.rank <= (uint32_t)m->tcp->rank || theirs.rank >= LS_RANKS_MAX) {
        close(fd);
        return LS_OK;
    }
    const int number = (int)theirs.rank;
    ls_status status = LS_OK;
    if (theirs.version != version_hash())
        status = LS_FAIL(ctx, LS_EUSE,
                         "rank %d is another version of longshot than rank %d, " LS_VERSION, number,
                         m->tcp->rank);
    else if (theirs.size != (uint32_t)m->tcp->size)
        status = LS_FAIL(ctx, LS_EUSE, "rank %d was started as one of %u, rank %d as one of %d",
                         number, theirs.size, m->tcp->rank, m->tcp->size);
    else if (number >= m->tcp->size)
        status = LS_FAIL(ctx, LS_EUSE, "one of %d says that it is rank %d", m->tcp->size, number);
    else if (m->tcp->links[number] >= 0)
        status = LS_FAIL(ctx, LS_EUSE, "two processes say that they are rank %d", number);
    if (status != LS_OK) {
        const ls_rank_failure why = {.code = status};
        ls__tcp_write(fd, &why, sizeof why, HELLO_SECONDS);
        close(fd);
        return status;
    }
    settle_socket(fd);
    m->tcp->links[number] = fd;
    note_place(&from, htons((uint16_t)theirs.port), &m->places[number]);
    *rank = number;
    return LS_OK;
}

/* Those above this rank. */
static ls_status accept_all(meeting *m) {
    int missing = m->tcp->size - 1 - m->tcp->rank;
    while (missing > 0) {
        char what[64];
        int rank, first = m->tcp->rank + 1;
        LS_TRY(accept_one(m, &rank));
        missing -= rank > 0;
        while (missing > 0 && m->tcp->links[first] >= 0) first++;
        snprintf(what, sizeof what, "rank %d of %d has not come", first, m->tcp->size);
        if (missing > 0) LS_TRY(check_time(m, what));
    }
    return LS_OK;
}

/* Rank 0: once all are there, or one does not fit, everybody hears of it. */
static ls_status meet_first(meeting *m) {
    ls_tcp *tcp = m->tcp;
    struct addrinfo *found = NULL;
    LS_TRY(find_host(m, &found));
    ls_status status = listen_at(m, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    if (status == LS_OK) status = accept_all(m);
    const ls_rank_failure answer = {.code = status};
    for (int i = 1; i < tcp->size; i++) {
        if (tcp->links[i] < 0) continue;
        ls__tcp_write(tcp->links[i], &answer, sizeof answer, HELLO_SECONDS);
        if (status == LS_OK)
            ls__tcp_write(tcp->links[i], m->places, (size_t)tcp->size * sizeof *m->places,
                          HELLO_SECONDS);
    }
    return status;
}

/* Any other: to rank 0, and a listener of its own at the address that leads there. */
static ls_status reach_first(meeting *m) {
    struct addrinfo *found = NULL;
    char what[320];
    LS_TRY(find_host(m, &found));
    ls_status status = LS_OK;
    snprintf(what, sizeof what, "rank 0 does not listen at %s:%s", m->launch->host,
             m->launch->port);
    while (status == LS_OK && m->tcp->links[0] < 0) {
        for (struct addrinfo *at = found; at != NULL && m->tcp->links[0] < 0; at = at->ai_next)
            reach(m, at->ai_addr, at->ai_addrlen, 0);
        if (m->tcp->links[0] < 0) status = check_time(m, what);
    }
    freeaddrinfo(found);
    return status;
}

static ls_status listen_too(meeting *m) {
    ls_tcp *tcp = m->tcp;
    struct sockaddr_storage here = {0};
    socklen_t length = sizeof here;
    if (getsockname(tcp->links[0], (struct sockaddr *)&here, &length) != 0)
        return LS_FAIL(tcp->ctx, LS_ERANK, "rank 0 of %d is gone: %s", tcp->size, strerror(errno));
    *port_of(&here) = 0;
    LS_TRY(listen_at(m, (struct sockaddr *)&here, length));
    if (getsockname(m->listener, (struct sockaddr *)&here, &length) != 0)
        return LS_FAIL(tcp->ctx, LS_EUSE, "rank %d cannot listen: %s", tcp->rank, strerror(errno));
    return greet(m, 0, ntohs(*port_of(&here)));
}

static ls_status meet_others(meeting *m, bool *told) {
    ls_tcp *tcp = m->tcp;
    ls_rank_failure answer;
    LS_TRY(reach_first(m));
    LS_TRY(listen_too(m));
    /* rank 0 gives up first, and says so */
    const double patience = m->wait->limit + 2 * HELLO_SECONDS;
    if (!ls__tcp_read(tcp->links[0], &answer, sizeof answer, patience))
        return LS_FAIL(tcp->ctx, LS_ERANK,
                       "rank 0 of %d does not take rank %d in: it is gone, or has another job",
                       tcp->size, tcp->rank);
    *told = answer.code != LS_OK;
    if (*told) return LS_FAIL(tcp->ctx, LS_ERANK, "the ranks do not fit together");
    if (!ls__tcp_read(tcp->links[0], m->places, (size_t)tcp->size * sizeof *m->places, patience))
        return LS_FAIL(tcp->ctx, LS_ERANK, "rank 0 of %d is gone", tcp->size);
    for (int i = 1; i < tcp->rank; i++) {
        struct sockaddr_storage there;
        char what[64];
        snprintf(what, sizeof what, "rank %d of %d does not listen", i, tcp->size);
        const socklen_t length = address_of(&m->places[i], &there);
        while (tcp->links[i] < 0) {
            reach(m, (struct sockaddr *)&there, length, i);
            if (tcp->links[i] < 0) LS_TRY(check_time(m, what));
        }
        LS_TRY(greet(m, i, 0));
    }
    return accept_all(m);
}

ls_status ls__tcp_meet(ls_tcp *tcp, const ls_launch *launch, const ls_rank_wait *wait, bool *told) {
    meeting m = {tcp, launch, wait, ls_clock() + wait->limit, -1, NULL};
    m.places = ls_new(tcp->ctx, (size_t)tcp->size, sizeof *m.places);
    if (m.places == NULL) return LS_ENOMEM;
    const ls_status status = tcp->rank == 0 ? meet_first(&m) : meet_others(&m, told);
    if (m.listener >= 0) close(m.listener);
    ls_free(tcp->ctx, m.places);
    return status;
}
