/* What the files of this room share. */
#ifndef LS_RANKS_INTERNAL_H
#define LS_RANKS_INTERNAL_H

#include <stdbool.h>

#include "ranks/ranks.h"

/* What a launcher's environment says. */
typedef struct ls_launch {
    int rank, size; /* size 0: no launcher */
    int local;      /* also in processes that a rank started */
    bool mpi;       /* ranks meet through MPI, else at host and port */
    char host[256], port[8];
    uint64_t job; /* hash of what only processes of this job know */
} ls_launch;
ls_status ls__launch_read(ls_ctx *ctx, ls_launch *out);

/* Of the program's version and its sources: ranks of two of them may disagree on anything. */
uint64_t ls__ranks_version(void);

/* A failure of this rank as it tells others; and one that was told, checked and in words: it may be
 * anything that came over a wire. */
ls_rank_failure ls__failure_of(const ls_ctx *ctx, int rank, ls_status status);
ls_status ls__failure_say(ls_ctx *ctx, int size, const ls_rank_failure *told);

/* What an exchange with a rank, or a wait for it, came to, in words. */
ls_status ls__ranks_judge(ls_ctx *ctx, ls_ranks *ranks, int with, ls_rank_result result,
                          const ls_rank_failure *told);

/* Ranks on sockets; all meet at rank 0. Where that fails *told is what rank 0 said of it; without a
 * message it is rank 0 that is gone. */
ls_status ls__tcp_open(ls_ctx *ctx, const ls_launch *launch, const ls_rank_wait *wait,
                       ls_rank_failure *told, ls_transport **out);
/* The MPI plug-in. */
ls_status ls__mpi_open(ls_ctx *ctx, ls_launch *launch, ls_transport **out);
bool ls__mpi_found(void);

#endif
