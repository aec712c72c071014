/* Ranks through MPI. Data and failures have tags of their own; a failure is looked for while data
 * is waited for. MPI itself decides what happens where a rank is killed: mpirun and srun end the
 * job and name it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ranks/transport.h"

enum { DATA = 1, FAILURE = 2, PIECE = 1 << 30 };

typedef struct mpi_transport {
    ls_transport transport;
    MPI_Comm all;
    int rank;
    int stuck; /* a message that nobody waits for any more is on its way still */
} mpi_transport;

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* A failure of any rank that has come. */
static int take_failure(MPI_Comm all, ls_rank_failure *told) {
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, FAILURE, all, &there, &status) != MPI_SUCCESS || !there)
        return 0;
    return MPI_Recv(told, sizeof *told, MPI_BYTE, status.MPI_SOURCE, FAILURE, all,
                    MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/* More than there is room for is cut by MPI, and is no death. */
static ls_rank_result judge(int code, const MPI_Status *received) {
    int kind = MPI_SUCCESS;
    if (code == MPI_ERR_IN_STATUS) code = received->MPI_ERROR;
    MPI_Error_class(code, &kind);
    return kind == MPI_ERR_TRUNCATE ? LS_RANK_ASTRAY : LS_RANK_LOST;
}

/* Of an exchange that has failed. Its caller gives the memory back, so nothing may arrive there or
 * be read from there later: a message that has not begun is taken back, others get a moment. */
static void abandon(mpi_transport *t, MPI_Request both[2]) {
    const struct timespec pause = {.tv_nsec = 1000000};
    const double until = now() + 1;
    MPI_Status states[2]; /* not read; gcc takes mpich's MPI_STATUSES_IGNORE for an array of none */
    int done = 0;
    if (both[0] != MPI_REQUEST_NULL) MPI_Cancel(&both[0]);
    while (MPI_Testall(2, both, &done, states) == MPI_SUCCESS && !done && now() < until)
        nanosleep(&pause, NULL);
    t->stuck |= !done;
}

/* Waits for both, giving the core back after a short while. */
static ls_rank_result wait_for(mpi_transport *t, const ls_rank_wait *wait, MPI_Request both[2],
                               MPI_Status states[2], ls_rank_failure *told) {
    const double begun = now();
    double asked = 0;
    for (long turn = 0;; turn++) {
        int done = 0;
        const int code = MPI_Testall(2, both, &done, states);
        if (code != MPI_SUCCESS) return judge(code, &states[0]);
        if (done) return LS_RANK_DONE;
        if (turn < 200) continue;
        const struct timespec pause = {.tv_nsec = turn < 2000 ? 20000 : 200000};
        nanosleep(&pause, NULL);
        const double at = now();
        if (take_failure(t->all, told)) return LS_RANK_TOLD;
        if (at - begun > wait->limit) return LS_RANK_LATE;
        if (wait->stop != NULL && *wait->stop != 0 && asked == 0) asked = at;
        if (asked > 0 && at - asked > LS_RANK_GRACE) return LS_RANK_STOPPED;
    }
}

static ls_rank_result exchange(ls_transport *transport, const ls_rank_wait *wait, int with,
                               const void *send, size_t send_bytes, void *receive,
                               size_t receive_bytes, ls_rank_failure *told) {
    mpi_transport *t = (mpi_transport *)transport;
    for (size_t done = 0; done < send_bytes || done < receive_bytes; done += PIECE) {
        MPI_Request both[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        MPI_Status states[2];
        const size_t out = done >= send_bytes ? 0 : send_bytes - done;
        const size_t in = done >= receive_bytes ? 0 : receive_bytes - done;
        const int out_now = (int)(out < PIECE ? out : PIECE),
                  in_now = (int)(in < PIECE ? in : PIECE);
        int came = 0;
        const int begun = (in_now == 0 || MPI_Irecv((char *)receive + done, in_now, MPI_BYTE, with,
                                                    DATA, t->all, &both[0]) == MPI_SUCCESS) &&
                          (out_now == 0 || MPI_Isend((const char *)send + done, out_now, MPI_BYTE,
                                                     with, DATA, t->all, &both[1]) == MPI_SUCCESS);
        const ls_rank_result result = begun ? wait_for(t, wait, both, states, told) : LS_RANK_LOST;
        if (result != LS_RANK_DONE) {
            abandon(t, both);
            return result;
        }
        if (in_now > 0 &&
            (MPI_Get_count(&states[0], MPI_BYTE, &came) != MPI_SUCCESS || came != in_now))
            return LS_RANK_ASTRAY;
    }
    return LS_RANK_DONE;
}

/* Of a rank that is gone the launcher takes care. */
static ls_rank_result watch_all(ls_transport *transport, int *gone, ls_rank_failure *told) {
    (void)gone;
    return take_failure(((mpi_transport *)transport)->all, told) ? LS_RANK_TOLD : LS_RANK_DONE;
}

/* Small enough to be on its way when this returns; a request that is not waited for is MPI's. */
static void tell(ls_transport *transport, int rank, const ls_rank_failure *failure) {
    mpi_transport *t = (mpi_transport *)transport;
    static ls_rank_failure kept; /* must outlive the call; the same for all */
    MPI_Request request;
    int done = 0;
    if (t->stuck) { /* any call may move that message on: said here, and close_mpi ends all */
        if (t->rank > 0 && kept.message[0] == '\0' && failure->message[0] != '\0')
            fprintf(stderr, "longshot: rank %d: %s\n", t->rank, failure->message);
        kept = *failure;
        return;
    }
    kept = *failure;
    if (MPI_Isend(&kept, sizeof kept, MPI_BYTE, rank, FAILURE, t->all, &request) == MPI_SUCCESS)
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

/* MPI's own end waits for all ranks, which after a failure may be gone. They get a moment to hear
 * of it; then the launcher ends what is left. */
static void close_mpi(ls_transport *transport, int failed) {
    mpi_transport *t = (mpi_transport *)transport;
    if (t->stuck) MPI_Abort(t->all, 4); /* mpirun names this rank and ends all */
    if (failed) {
        const struct timespec pause = {.tv_nsec = 50000000};
        int there;
        for (int turn = 0; turn < 20; turn++) { /* MPI moves messages on while it is called */
            MPI_Iprobe(MPI_ANY_SOURCE, FAILURE, t->all, &there, MPI_STATUS_IGNORE);
            nanosleep(&pause, NULL);
        }
        return;
    }
    MPI_Finalize();
    free(t);
}

__attribute__((visibility("default"))) ls_transport *
ls_transport_plugin_open(const char *build, int *rank, int *size, char *why, size_t bytes);
ls_transport *ls_transport_plugin_open(const char *build, int *rank, int *size, char *why,
                                       size_t bytes) {
    static const ls_transport functions = {"MPI", 0, exchange, watch_all, tell, close_mpi};
    int level;
    if (strcmp(build, LS_TRANSPORT_BUILD) != 0) {
        snprintf(why, bytes, "the plug-in is of another version");
        return NULL;
    }
    mpi_transport *t = calloc(1, sizeof *t);
    if (t == NULL || MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS) {
        snprintf(why, bytes, "%s", t == NULL ? "no memory" : "MPI_Init failed");
        free(t);
        return NULL;
    }
    t->transport = functions;
    t->transport.any_thread = level >= MPI_THREAD_SERIALIZED;
    t->all = MPI_COMM_WORLD;
    if (MPI_Comm_set_errhandler(t->all, MPI_ERRORS_RETURN) == MPI_SUCCESS &&
        MPI_Comm_rank(t->all, rank) == MPI_SUCCESS && MPI_Comm_size(t->all, size) == MPI_SUCCESS) {
        t->rank = *rank;
        return &t->transport;
    }
    snprintf(why, bytes, "MPI does not say which rank this is");
    free(t);
    return NULL;
}
