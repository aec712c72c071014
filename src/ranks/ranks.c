#include "ranks/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/identity.h"
#include "base/memory.h"
#include "ranks/ranks_internal.h"

#ifndef LS_VERSION
#define LS_VERSION "0"
#endif

enum { WAIT_DEFAULT = 600 };

uint64_t ls__ranks_version(void) {
    const uint64_t parts[2] = {ls_hash(LS_VERSION, strlen(LS_VERSION)),
                               ls_hash(ls_identity, strlen(ls_identity))};
    return ls_hash(parts, sizeof parts);
}

ls_ranks ls_ranks_alone(void) {
    return ls_ranks_imagined(0, 1);
}

ls_ranks ls_ranks_imagined(int rank, int size) {
    return (ls_ranks){.rank = rank, .size = size, .limit = WAIT_DEFAULT};
}

static ls_rank_wait wait_of(const ls_ctx *ctx, const ls_ranks *ranks) {
    return (ls_rank_wait){ranks->limit, ctx->stop};
}

static ls_status read_limit(ls_ctx *ctx, double *out) {
    const char *text = getenv("LONGSHOT_RANK_WAIT");
    char *end;
    *out = WAIT_DEFAULT;
    if (text == NULL || text[0] == '\0') return LS_OK;
    const double value = strtod(text, &end);
    if (*end != '\0' || !(value >= 1 && value <= 1e7))
        return LS_FAIL(ctx, LS_EUSE, "LONGSHOT_RANK_WAIT=%.40s: it is a number of seconds from 1",
                       text);
    *out = value;
    return LS_OK;
}

ls_rank_failure ls__failure_of(const ls_ctx *ctx, int rank, ls_status status) {
    ls_rank_failure failure = {.rank = rank, .code = status};
    snprintf(failure.message, sizeof failure.message, "%.*s", (int)sizeof failure.message - 1,
             ctx->error.code != LS_OK ? ctx->error.message : ls_status_sentence(status));
    return failure;
}

ls_status ls__failure_say(ls_ctx *ctx, int size, const ls_rank_failure *told) {
    char message[sizeof told->message];
    bool known = false;
    snprintf(message, sizeof message, "%.*s", (int)sizeof message - 1, told->message);
    /* what came over a wire is no more than a number until it is found in the table */
#define LOOK(name, value, exit_code, sentence, hint) known |= (value) != 0 && told->code == (value);
    LS_STATUS_MAP(LOOK)
#undef LOOK
    if (!known || told->rank < 0 || told->rank >= size)
        return LS_FAIL(ctx, LS_ERANK, "a rank sent a failure that makes no sense");
    const bool named = strncmp(message, "rank ", 5) == 0; /* of another one, or of several */
    if (message[0] == '\0')
        return LS_FAIL(ctx, (ls_status)told->code, "rank %d of %d is gone", told->rank, size);
    if (told->rank == 0 || named) return LS_FAIL(ctx, (ls_status)told->code, "%s", message);
    return LS_FAIL(ctx, (ls_status)told->code, "rank %d: %s", told->rank, message);
}

/* A failure of which another rank told. */
static ls_status pass_on(ls_ctx *ctx, ls_ranks *ranks, const ls_rank_failure *told) {
    ranks->failure = *told;
    ranks->failure.message[sizeof told->message - 1] = '\0';
    return ls__failure_say(ctx, ranks->size, told);
}

ls_status ls_ranks_join(ls_ctx *ctx, ls_ranks *out) {
    ls_launch launch;
    *out = ls_ranks_alone();
    LS_TRY(ls__launch_read(ctx, &launch));
    LS_TRY(read_limit(ctx, &out->limit));
    out->local = launch.local;
    out->launched = launch.size > 0;
    if (launch.size <= 1) return LS_OK;
    const ls_rank_wait wait = wait_of(ctx, out);
    ls_rank_failure told = {0};
    out->rank = launch.rank;
    out->size = launch.size;
    const ls_status status = launch.mpi ? ls__mpi_open(ctx, &launch, &out->transport)
                                        : ls__tcp_open(ctx, &launch, &wait, &told, &out->transport);
    out->rank = launch.rank; /* MPI may number them otherwise */
    if (told.message[0] != '\0') return pass_on(ctx, out, &told);
    out->failure = told;
    LS_TRY(status);
    return ls_ranks_compare(ctx, out, ls__ranks_version(), "another version or build of longshot");
}

void ls_ranks_leave(ls_ctx *ctx, ls_ranks *ranks, ls_status status) {
    ls_transport *transport = ranks->transport;
    if (transport == NULL) return;
    if (status != LS_OK) {
        /* one that was told passes on what it was told: whoever failed first is named by all */
        const ls_rank_failure failure = ranks->failure.code != LS_OK
                                            ? ranks->failure
                                            : ls__failure_of(ctx, ranks->rank, status);
        for (int i = 0; i < ranks->size; i++)
            if (i != ranks->rank && i != failure.rank) transport->tell(transport, i, &failure);
    }
    transport->close(transport, status != LS_OK);
    ranks->transport = NULL;
}

bool ls_ranks_speaks(const ls_ranks *ranks) {
    const ls_rank_failure *failure = &ranks->failure;
    if (ranks->rank == 0) return true;
    if (failure->code == LS_OK) return ranks->transport == NULL; /* they never met */
    return ranks->rank == 1 && failure->rank == 0 && failure->message[0] == '\0';
}

/* The other is gone, or will not come any more: nobody there can say why. */
static ls_status miss(ls_ctx *ctx, ls_ranks *ranks, int rank, ls_status code, const char *how) {
    const ls_status first = LS_FAIL(ctx, code, "rank %d of %d %s", rank, ranks->size, how);
    ranks->failure = (ls_rank_failure){.rank = rank, .code = first};
    if (ranks->rank != 0 && rank == 0) return first; /* rank 1 says so: ls_ranks_speaks */
    snprintf(ranks->failure.message, sizeof ranks->failure.message, "%.*s",
             (int)sizeof ranks->failure.message - 1, ctx->error.message);
    return first;
}

ls_status ls__ranks_judge(ls_ctx *ctx, ls_ranks *ranks, int with, ls_rank_result result,
                          const ls_rank_failure *told) {
    char how[96];
    switch (result) {
    case LS_RANK_DONE:
        return LS_OK;
    case LS_RANK_TOLD:
        return pass_on(ctx, ranks, told);
    case LS_RANK_STOPPED:
        return miss(ctx, ranks, with, LS_ESTOP, "did not come any more after a signal");
    case LS_RANK_LATE:
        snprintf(how, sizeof how, "has not answered for %g seconds (LONGSHOT_RANK_WAIT)",
                 ranks->limit);
        return miss(ctx, ranks, with, LS_ERANK, how);
    case LS_RANK_ASTRAY: /* it is there, and hears of it */
        return LS_FAIL(ctx, LS_ERANK, "rank %d of %d sends what does not belong here", with,
                       ranks->size);
    case LS_RANK_LOST:
        break;
    }
    return miss(ctx, ranks, with, LS_ERANK, "is gone: it was killed, or its machine was lost");
}

ls_status ls_ranks_exchange(ls_ctx *ctx, ls_ranks *ranks, int with, const void *send,
                            size_t send_bytes, void *receive, size_t receive_bytes) {
    ls_transport *transport = ranks->transport;
    ls_rank_failure told = {0};
    if (transport == NULL && ranks->size > 1)
        ranks->bytes += send_bytes; /* imagined: counted alone */
    if (transport == NULL || (send_bytes == 0 && receive_bytes == 0)) return LS_OK;
    const ls_rank_wait wait = wait_of(ctx, ranks);
    const double begun = ls_clock();
    const ls_rank_result result = transport->exchange(transport, &wait, with, send, send_bytes,
                                                      receive, receive_bytes, &told);
    ranks->seconds += ls_clock() - begun;
    ranks->bytes += send_bytes;
    return ls__ranks_judge(ctx, ranks, with, result, &told);
}

ls_status ls_ranks_send(ls_ctx *ctx, ls_ranks *ranks, int to, const void *bytes, size_t length) {
    const uint64_t number = length;
    LS_TRY(ls_ranks_exchange(ctx, ranks, to, &number, sizeof number, NULL, 0));
    return ls_ranks_exchange(ctx, ranks, to, bytes, length, NULL, 0);
}

ls_status ls_ranks_expect(ls_ctx *ctx, ls_ranks *ranks, int from, const char *what, size_t most,
                          size_t *length) {
    uint64_t number = 0;
    LS_TRY(ls_ranks_exchange(ctx, ranks, from, NULL, 0, &number, sizeof number));
    if (number > most)
        return LS_FAIL(ctx, LS_ERANK, "rank %d sends %llu bytes of %s: there are %zu at most", from,
                       (unsigned long long)number, what, most);
    *length = (size_t)number;
    return LS_OK;
}

/* Along a tree: in round k the first 2^k ranks have the bytes. */
ls_status ls_ranks_broadcast(ls_ctx *ctx, ls_ranks *ranks, void *bytes, size_t length) {
    const int rank = ranks->rank;
    for (int have = 1; have < ranks->size; have *= 2) {
        if (rank < have && rank + have < ranks->size)
            LS_TRY(ls_ranks_exchange(ctx, ranks, rank + have, bytes, length, NULL, 0));
        else if (rank >= have && rank < 2 * have)
            LS_TRY(ls_ranks_exchange(ctx, ranks, rank - have, NULL, 0, bytes, length));
    }
    return LS_OK;
}

/* In round k neighbours at the distance 2^k swap the 2^k parts that they have. */
ls_status ls_ranks_share(ls_ctx *ctx, ls_ranks *ranks, void *all, size_t each) {
    for (int span = 1; span < ranks->size; span *= 2) {
        const int with = ranks->rank ^ span;
        char *ours = (char *)all + (size_t)(ranks->rank / span * span) * each;
        char *theirs = (char *)all + (size_t)(with / span * span) * each;
        const size_t bytes = (size_t)span * each;
        LS_TRY(ls_ranks_exchange(ctx, ranks, with, ours, bytes, theirs, bytes));
    }
    return LS_OK;
}

/* Everybody's byte has reached rank 0 before its answer does. */
ls_status ls_ranks_barrier(ls_ctx *ctx, ls_ranks *ranks) {
    uint8_t byte = 1;
    for (int i = 1; i < ranks->size && ranks->rank == 0; i++)
        LS_TRY(ls_ranks_exchange(ctx, ranks, i, NULL, 0, &byte, 1));
    if (ranks->rank != 0) LS_TRY(ls_ranks_exchange(ctx, ranks, 0, &byte, 1, NULL, 0));
    return ls_ranks_broadcast(ctx, ranks, &byte, 1);
}

ls_status ls_ranks_compare(ls_ctx *ctx, ls_ranks *ranks, uint64_t hash, const char *what) {
    int32_t other = 0;
    uint64_t theirs;
    if (ranks->transport == NULL) return LS_OK;
    for (int i = 1; i < ranks->size && ranks->rank == 0; i++) {
        LS_TRY(ls_ranks_exchange(ctx, ranks, i, NULL, 0, &theirs, sizeof theirs));
        if (theirs != hash && other == 0) other = i;
    }
    if (ranks->rank != 0) LS_TRY(ls_ranks_exchange(ctx, ranks, 0, &hash, sizeof hash, NULL, 0));
    LS_TRY(ls_ranks_broadcast(ctx, ranks, &other, sizeof other));
    if (other == 0) return LS_OK;
    return LS_FAIL(ctx, LS_EUSE, "rank %d has %s than rank 0", other, what);
}

void ls_ranks_describe(char *out, size_t bytes) {
    snprintf(out, bytes, "sockets%s", ls__mpi_found() ? ", MPI plug-in" : "; no MPI plug-in");
}
