/* How ranks on sockets find one another. Rank 0 listens at MASTER_ADDR:MASTER_PORT, and there
 * alone. The others come and say who they are and where they listen themselves: at the address by
 * which they reach rank 0. Once all are there rank 0 answers with a table of these places, and each
 * rank connects with the ranks below it. Then each reports to rank 0, which lets all go at once.
 *
 * Until then every rank listens to rank 0 beside all else, and rank 0 to every rank. So one that is
 * killed or fails while they meet is noticed by rank 0, which names it and ends the job. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "ranks/tcp_meet.h"

enum { LATE_SECONDS = 10 };
static const char gone[] = "is gone: it was killed, or its machine was lost";

static bool send_word(const ls_meeting *m, int rank, const void *word, size_t bytes) {
    return ls__tcp_write(m->tcp->links[rank], word, bytes, LS_HELLO_SECONDS);
}

/* Rank 0 has closed its end. Where it takes calls all the same, it did not want this one. Without
 * it nobody speaks for all: ls_ranks_speaks says who does. */
static ls_status lose_first(ls_meeting *m) {
    const ls_tcp *tcp = m->tcp;
    if (m->words == 0 && ls__meet_first_listens(m))
        return LS_FAIL(tcp->ctx, LS_ERANK,
                       "rank 0 of %d does not take rank %d in: it has another job (LONGSHOT_JOB)",
                       tcp->size, tcp->rank);
    *m->told = (ls_rank_failure){.code = LS_ERANK};
    return LS_FAIL(tcp->ctx, LS_ERANK, "rank 0 of %d %s", tcp->size, gone);
}

/* Something has come from rank 0: its next word, which is LS_OK or the end of the job. */
static ls_status take_word(ls_meeting *m) {
    const ls_tcp *tcp = m->tcp;
    ls_rank_failure word;
    if (!ls__tcp_read(tcp->links[0], &word, sizeof word, LS_HELLO_SECONDS)) return lose_first(m);
    if (word.code != LS_OK) {
        *m->told = word;
        return LS_ERANK;
    }
    if (m->words++ > 0 || ls__tcp_read(tcp->links[0], m->places,
                                       (size_t)tcp->size * sizeof *m->places, LS_HELLO_SECONDS))
        return LS_OK;
    return lose_first(m);
}

/* Rank 0: something has come from another, or it is gone. */
static ls_status take_report(ls_meeting *m, int rank) {
    const ls_tcp *tcp = m->tcp;
    ls_rank_failure report;
    if (!ls__tcp_read(tcp->links[rank], &report, sizeof report, LS_HELLO_SECONDS))
        return LS_FAIL(tcp->ctx, LS_ERANK, "rank %d of %d %s", rank, tcp->size, gone);
    report.rank = rank;
    m->ready[rank] = true;
    return report.code == LS_OK ? LS_OK : ls__failure_say(tcp->ctx, tcp->size, &report);
}

/* A short look at the door and at whom this rank listens to. Ends where the time is over, or
 * somebody asked for the end. */
static ls_status look_around(ls_meeting *m, const char *missing) {
    const ls_tcp *tcp = m->tcp;
    const int first = tcp->rank == 0 ? 1 : 0, end = tcp->rank == 0 ? tcp->size : 1;
    int came;
    struct pollfd at[1 + LS_RANKS_MAX] = {{.fd = m->listener, .events = POLLIN}};
    for (int i = first; i < end; i++)
        at[1 + i - first] = (struct pollfd){.fd = tcp->links[i], .events = POLLIN};
    if (poll(at, (nfds_t)(1 + end - first), LS_MEET_LOOK) > 0) {
        for (int i = first; i < end; i++)
            if (at[1 + i - first].revents != 0)
                LS_TRY(tcp->rank == 0 ? take_report(m, i) : take_word(m));
        if (at[0].revents != 0) LS_TRY(ls__meet_accept(m, &came));
    }
    if (m->wait->stop != NULL && *m->wait->stop != 0)
        return LS_FAIL(tcp->ctx, LS_ESTOP, "stopped while the ranks met");
    if (ls_clock() < m->until) return LS_OK;
    return LS_FAIL(tcp->ctx, LS_ERANK, "%s within %g seconds (LONGSHOT_RANK_WAIT)", missing,
                   m->wait->limit);
}

/* Those above this rank. */
static ls_status accept_all(ls_meeting *m) {
    const ls_tcp *tcp = m->tcp;
    for (int next = tcp->rank + 1; next < tcp->size;) {
        char what[64];
        snprintf(what, sizeof what, "rank %d of %d has not come", next, tcp->size);
        if (tcp->links[next] >= 0)
            next++;
        else
            LS_TRY(look_around(m, what));
    }
    return LS_OK;
}

/* ---- rank 0 ---- */

static void tell_all(const ls_meeting *m, ls_status status) {
    const ls_rank_failure word = ls__failure_of(m->tcp->ctx, 0, status);
    for (int i = 1; i < m->tcp->size; i++)
        if (m->tcp->links[i] >= 0) send_word(m, i, &word, sizeof word);
}

/* Where all the others are; and then until each says that it is linked with all. */
static ls_status link_all(ls_meeting *m) {
    const ls_tcp *tcp = m->tcp;
    const size_t bytes = (size_t)tcp->size * sizeof *m->places;
    tell_all(m, LS_OK);
    for (int i = 1; i < tcp->size; i++) send_word(m, i, m->places, bytes);
    m->until = ls_clock() + m->wait->limit;
    for (int next = 1; next < tcp->size;) {
        char what[64];
        snprintf(what, sizeof what, "rank %d of %d has not met the others", next, tcp->size);
        if (m->ready[next])
            next++;
        else
            LS_TRY(look_around(m, what));
    }
    return LS_OK;
}

static void give_spare(ls_meeting *m) {
    if (m->spare >= 0) close(m->spare);
    m->spare = -1;
}

/* All that have come have heard how it ends. Those that come in the next seconds hear it too, lest
 * they wait for a rank 0 that is gone. */
static void tell_late(ls_meeting *m, ls_status status) {
    const ls_tcp *tcp = m->tcp;
    const ls_rank_failure word = ls__failure_of(tcp->ctx, 0, status);
    const double until = ls_clock() + LATE_SECONDS;
    const ls_error first = tcp->ctx->error;
    int missing = 0;
    give_spare(m);
    for (int i = 1; i < tcp->size; i++) missing += tcp->links[i] < 0;
    while (missing > 0 && m->listener >= 0 && ls_clock() < until &&
           (m->wait->stop == NULL || *m->wait->stop == 0)) {
        struct pollfd at = {.fd = m->listener, .events = POLLIN};
        int rank = 0;
        if (poll(&at, 1, LS_MEET_LOOK) <= 0) continue;
        tcp->ctx->error = (ls_error){0}; /* one that is not taken in hears why */
        const ls_status came = ls__meet_accept(m, &rank);
        if (came == LS_EIO) break; /* there is no socket for anybody */
        if (came != LS_OK || rank == 0) continue;
        missing -= send_word(m, rank, &word, sizeof word);
        close(tcp->links[rank]); /* for the next one */
        tcp->links[rank] = -1;
    }
    tcp->ctx->error = first;
}

static ls_status meet_first(ls_meeting *m) {
    ls_status status = ls__meet_listen(m);
    if (status == LS_OK) status = accept_all(m);
    if (status == LS_OK) status = link_all(m);
    tell_all(m, status);
    /* one that did not come in all that time will not come now */
    if (status != LS_OK && ls_clock() < m->until) tell_late(m, status);
    return status;
}

/* ---- the others ---- */

static ls_status reach(ls_meeting *m, int rank, const char *missing) {
    while (m->tcp->links[rank] < 0) {
        LS_TRY(ls__meet_reach(m, rank));
        if (m->tcp->links[rank] < 0) LS_TRY(look_around(m, missing));
    }
    return LS_OK;
}

/* To rank 0, which knows then where this one listens; a rank that cannot says so there. */
static ls_status reach_first(ls_meeting *m) {
    char what[320];
    snprintf(what, sizeof what, "rank 0 does not listen at %s:%s", m->launch->host,
             m->launch->port);
    const ls_status status = reach(m, 0, what);
    if (status == LS_ERANK) *m->told = (ls_rank_failure){.code = LS_ERANK}; /* rank 1 says so */
    LS_TRY(status);
    const ls_status listens = ls__meet_listen(m);
    LS_TRY(ls__meet_greet(m, 0));
    return listens;
}

/* Rank 0 gives up before this one does, and says so. */
static ls_status await_word(ls_meeting *m, int number) {
    char what[64];
    snprintf(what, sizeof what, "rank 0 of %d has not answered", m->tcp->size);
    m->until = ls_clock() + m->wait->limit + 2 * LS_HELLO_SECONDS;
    while (m->words < number) {
        const ls_status status = look_around(m, what);
        if (status == LS_ERANK && m->told->code == LS_OK && ls_clock() >= m->until)
            *m->told = (ls_rank_failure){.code = LS_ERANK};
        LS_TRY(status);
    }
    return LS_OK;
}

static ls_status link_with_all(ls_meeting *m) {
    ls_tcp *tcp = m->tcp;
    const ls_rank_failure ready = {.rank = tcp->rank};
    LS_TRY(await_word(m, 1)); /* with the places of all */
    m->until = ls_clock() + m->wait->limit;
    for (int i = 1; i < tcp->rank; i++) {
        char what[64];
        snprintf(what, sizeof what, "rank %d of %d does not listen", i, tcp->size);
        LS_TRY(reach(m, i, what));
        LS_TRY(ls__meet_greet(m, i));
    }
    LS_TRY(accept_all(m));
    if (!send_word(m, 0, &ready, sizeof ready)) return lose_first(m);
    return await_word(m, 2);
}

/* What went wrong here goes to rank 0, whose word about it is the job's. */
static void report(ls_meeting *m, ls_status status) {
    const ls_rank_failure why = ls__failure_of(m->tcp->ctx, m->tcp->rank, status);
    if (m->tcp->links[0] < 0 || m->told->code != LS_OK) return;
    if (!send_word(m, 0, &why, sizeof why))
        lose_first(m);
    else
        while (m->words < 2 && take_word(m) == LS_OK) continue;
}

static ls_status meet_others(ls_meeting *m) {
    ls_status status = reach_first(m);
    if (status == LS_OK) status = link_with_all(m);
    if (status != LS_OK) report(m, status);
    return status;
}

ls_status ls__tcp_meet(ls_tcp *tcp, const ls_launch *launch, const ls_rank_wait *wait,
                       ls_rank_failure *told) {
    ls_meeting m = {.tcp = tcp,
                    .launch = launch,
                    .wait = wait,
                    .until = ls_clock() + wait->limit,
                    .listener = -1,
                    .spare = -1,
                    .told = told};
    ls_status status = LS_ENOMEM;
    m.places = ls_new(tcp->ctx, (size_t)tcp->size, sizeof *m.places);
    m.ready = ls_new(tcp->ctx, (size_t)tcp->size, sizeof *m.ready);
    if (m.places != NULL && m.ready != NULL)
        status = tcp->rank == 0 ? meet_first(&m) : meet_others(&m);
    if (m.listener >= 0) close(m.listener);
    give_spare(&m);
    ls_free(tcp->ctx, m.places);
    ls_free(tcp->ctx, m.ready);
    return status;
}
