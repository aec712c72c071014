/* How bytes get from one rank to another. A transport knows neither what they mean nor how failures
 * are put into words; one in a plug-in needs nothing of the program that opens it. */
#ifndef LS_RANKS_TRANSPORT_H
#define LS_RANKS_TRANSPORT_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>

/* Why a rank has ended, as it tells the others. */
typedef struct ls_rank_failure {
    int32_t rank;
    int32_t code; /* ls_status */
    char message[480];
} ls_rank_failure;

typedef enum {
    LS_RANK_DONE,
    LS_RANK_LOST,   /* the other is gone */
    LS_RANK_LATE,   /* nothing came or went for as long as the limit says */
    LS_RANK_ASTRAY, /* the other sends what does not belong here */
    LS_RANK_TOLD,   /* the other says that the job has failed, and why */
    LS_RANK_STOPPED /* a signal asked for the end, and the other did not come meanwhile */
} ls_rank_result;

enum { LS_RANK_GRACE = 5 }; /* seconds that a wait may go on after a signal */

typedef struct ls_rank_wait {
    double limit;                      /* seconds without any byte */
    const volatile sig_atomic_t *stop; /* or NULL */
} ls_rank_wait;

typedef struct ls_transport ls_transport;
struct ls_transport {
    const char *name;
    int any_thread; /* any thread may call it, one at a time; 0: the one that opened it alone */
    /* Both at once; either may have no bytes. `told` is filled with LS_RANK_TOLD alone. */
    ls_rank_result (*exchange)(ls_transport *transport, const ls_rank_wait *wait, int with,
                               const void *send, size_t send_bytes, void *receive,
                               size_t receive_bytes, ls_rank_failure *told);
    /* Whether any rank has failed, without waiting: LS_RANK_TOLD, LS_RANK_LOST with the rank that
     * is gone, or LS_RANK_DONE: nothing is known. For waits for something else than its own
     * bytes. */
    ls_rank_result (*watch)(ls_transport *transport, int *gone, ls_rank_failure *told);
    /* Tells one rank of a failure; does not wait for it to listen. */
    void (*tell)(ls_transport *transport, int rank, const ls_rank_failure *failure);
    /* Ends it; what was sent still arrives. After a failure no one is waited for. */
    void (*close)(ls_transport *transport, int failed);
};

/* What a plug-in shows: a new transport with its rank and size, or NULL after writing one sentence
 * to `why`. `build` must be LS_TRANSPORT_BUILD, so that program and plug-in agree on every
 * struct. */
#define LS_TRANSPORT_BUILD "longshot transport 3"
typedef ls_transport *(*ls_transport_open_fn)(const char *build, int *rank, int *size, char *why,
                                              size_t bytes);
#define LS_TRANSPORT_OPEN_NAME "ls_transport_plugin_open"

#endif
