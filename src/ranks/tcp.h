/* Sockets between ranks: what meeting and exchanging share. */
#ifndef LS_RANKS_TCP_H
#define LS_RANKS_TCP_H

#include "ranks/ranks_internal.h"

typedef struct ls_tcp {
    ls_transport transport;
    ls_ctx *ctx;
    int rank, size;
    int *links;  /* [size]: sockets that do not block; -1: none */
    bool *begun; /* [size]: part of a frame has been sent, and not its end */
} ls_tcp;

/* All of a few bytes within so many seconds; false: not so. */
bool ls__tcp_read(int fd, void *bytes, size_t length, double seconds);
bool ls__tcp_write(int fd, const void *bytes, size_t length, double seconds);
/* Fills the links of all ranks. */
ls_status ls__tcp_meet(ls_tcp *tcp, const ls_launch *launch, const ls_rank_wait *wait,
                       ls_rank_failure *told);

#endif
