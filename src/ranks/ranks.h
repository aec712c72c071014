/* Several processes that do one work: its ranks.
 *
 * A launcher (mpirun, srun, torchrun) starts the same command many times and tells each process its
 * number through the environment. ls_ranks_join reads that, meets the others and compares versions.
 * Alone, which is rank 0 of 1, every call below returns at once.
 *
 * Every wait has a limit. Whoever fails tells the others why (ls_ranks_leave), and rank 0 speaks
 * for all: a job ends with one sentence. */
#ifndef LS_RANKS_RANKS_H
#define LS_RANKS_RANKS_H

#include "base/status.h"
#include "ranks/transport.h"

enum { LS_RANKS_MAX = 1024 };

typedef struct ls_ranks {
    int rank, size;
    int local;               /* number among those of this machine: which device is this rank's */
    bool launched;           /* by a launcher, be it as the only one */
    ls_transport *transport; /* NULL: alone, or imagined for a rehearsal, which sends nothing */
    struct ls_nccl *nccl;    /* device to device: nccl.h; NULL: through host memory */
    double limit;            /* seconds of a wait: LONGSHOT_RANK_WAIT, 600 */
    ls_rank_failure failure; /* of another rank that ended this one; code 0: none */
    double seconds;          /* spent in exchanges so far */
    uint64_t bytes;          /* sent so far */
} ls_ranks;

/* Alone. */
ls_ranks ls_ranks_alone(void);
/* One of so many that are not there, for a rehearsal of what it would take. */
ls_ranks ls_ranks_imagined(int rank, int size);
/* As the environment says; returns once all have met. LS_EUSE where the variables make no sense or
 * a transport is missing, LS_ERANK where a rank does not come or is another program. */
ls_status ls_ranks_join(ls_ctx *ctx, ls_ranks *out);
/* Ends this rank's part with what it came to: the others hear of a failure. */
void ls_ranks_leave(ls_ctx *ctx, ls_ranks *ranks, ls_status status);
/* Whether this rank tells people what went wrong: rank 0; rank 1 where rank 0 is gone; or one that
 * never came as far as telling rank 0. */
bool ls_ranks_speaks(const ls_ranks *ranks);
/* Makes children of this process start alone. */
void ls_ranks_forget_launch(void);
/* What of this build can connect ranks: a line for people. */
void ls_ranks_describe(char *out, size_t bytes);

/* Sends to one rank and receives from it, both at once; either may be nothing. LS_ERANK in a
 * sentence with the rank that is gone or late; where another rank has failed, its code and
 * sentence. */
ls_status ls_ranks_exchange(ls_ctx *ctx, ls_ranks *ranks, int with, const void *send,
                            size_t send_bytes, void *receive, size_t receive_bytes);
/* Bytes whose number the other does not know, sent after it; and that number received, of which the
 * bytes follow in an exchange. More than `most` is LS_ERANK: "rank 2 sends 9 bytes of WHAT". */
ls_status ls_ranks_send(ls_ctx *ctx, ls_ranks *ranks, int to, const void *bytes, size_t length);
ls_status ls_ranks_expect(ls_ctx *ctx, ls_ranks *ranks, int from, const char *what, size_t most,
                          size_t *length);
/* Rank 0's bytes to all. */
ls_status ls_ranks_broadcast(ls_ctx *ctx, ls_ranks *ranks, void *bytes, size_t length);
/* all[size][each], of which every rank has written its own: all have all. The number of ranks is a
 * power of two. */
ls_status ls_ranks_share(ls_ctx *ctx, ls_ranks *ranks, void *all, size_t each);
/* Returns once every rank has called it. */
ls_status ls_ranks_barrier(ls_ctx *ctx, ls_ranks *ranks);
/* LS_EUSE naming the first rank whose number differs from rank 0's: "rank 2 has another WHAT". */
ls_status ls_ranks_compare(ls_ctx *ctx, ls_ranks *ranks, uint64_t hash, const char *what);

#endif
