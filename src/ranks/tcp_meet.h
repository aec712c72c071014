/* Sockets between ranks: what the files that make them meet share. */
#ifndef LS_RANKS_TCP_MEET_H
#define LS_RANKS_TCP_MEET_H

#include "ranks/tcp.h"

enum { LS_HELLO_SECONDS = 2, LS_MEET_LOOK = 50 /* ms */ };

/* Where a rank listens. */
typedef struct ls_rank_place {
    uint16_t family, port; /* as sockets have them */
    uint8_t address[16];
} ls_rank_place;

typedef struct ls_meeting {
    ls_tcp *tcp;
    const ls_launch *launch;
    const ls_rank_wait *wait;
    double until;
    int listener;          /* -1: none */
    int spare;             /* keeps a place free for those who are to hear that there is none */
    ls_rank_place *places; /* [size] */
    bool *ready;           /* [size]: rank 0 has heard that they are linked with all others */
    int words;             /* heard from rank 0: that all have come, and that all are linked */
    ls_rank_failure *told; /* why rank 0 ends the job; without a message: it is gone itself */
} ls_meeting;

/* A listener: rank 0's where the launcher says, another's beside its link to rank 0. */
ls_status ls__meet_listen(ls_meeting *m);
/* Tries to link with a rank: rank 0 where the launcher says, others at their places. Without one
 * after some milliseconds it is not to be had now. */
ls_status ls__meet_reach(ls_meeting *m, int rank);
/* Whether rank 0 still takes calls. */
bool ls__meet_first_listens(ls_meeting *m);
/* Says to a rank who this is, and where it listens itself. */
ls_status ls__meet_greet(ls_meeting *m, int rank);
/* One that calls and belongs to this job; LS_EUSE where it does not fit. Strangers are sent away:
 * *rank is 0 then. */
ls_status ls__meet_accept(ls_meeting *m, int *rank);

#endif
