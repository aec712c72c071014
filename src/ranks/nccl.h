/* Bytes from device to device, through NCCL where ranks have a device each. It only moves them:
 * sums are taken by whoever asks for the bytes, so that their order is ours.
 *
 * Which way bytes go is settled once by all ranks (ls_nccl_open); the transport of the ranks
 * carries NCCL's id, and is watched during every wait, so that a rank that fails or is killed is
 * named. */
#ifndef LS_RANKS_NCCL_H
#define LS_RANKS_NCCL_H

#include "ranks/ranks.h"

/* Of LONGSHOT_TRANSPORT: auto (NCCL where it can be, else host memory), host, nccl. */
typedef enum { LS_ACROSS_AUTO, LS_ACROSS_HOST, LS_ACROSS_NCCL } ls_across;
ls_status ls_across_read(ls_ctx *ctx, ls_across *out);

/* Its version, or why it cannot be used: a line for people. */
bool ls_nccl_describe(char *out, size_t bytes);

/* The device's order of work in which an exchange stands. */
typedef struct ls_nccl_lane {
    void *stream; /* the device's own */
    bool (*idle)(void *user);
    void *user;
} ls_nccl_lane;

/* Both may be nothing; the other rank has the same sizes the other way round. */
typedef struct ls_nccl_span {
    const void *send;
    size_t send_bytes;
    void *receive;
    size_t receive_bytes;
} ls_nccl_span;

enum { LS_NCCL_TRIAL = 8, LS_NCCL_TRIAL_BYTES = 16 * LS_NCCL_TRIAL };
/* With whom a rank swaps halves in that round of the tree, -1 after the last. Alone it is its own
 * partner, of a trial. The number of ranks is a power of two. */
int ls_nccl_partner(const ls_ranks *ranks, int round);
/* All ranks call it. Makes ranks->nccl, or leaves it NULL and says why bytes go through host memory
 * (`unable`: this rank's reason, or NULL); LS_EUSE where NCCL was asked for and cannot be. `trial`
 * is memory of the device: its first LS_NCCL_TRIAL bytes go to each partner of the tree, and those
 * of the partner at the distance 2^k arrive at LS_NCCL_TRIAL * (k + 1). */
ls_status ls_nccl_open(ls_ctx *ctx, ls_ranks *ranks, ls_across wish, const char *unable,
                       const ls_nccl_lane *lane, char *trial);
/* Swaps spans with one rank and waits for them, as ls_ranks_exchange does. */
ls_status ls_nccl_exchange(ls_ctx *ctx, ls_ranks *ranks, const ls_nccl_lane *lane, int with,
                           const ls_nccl_span *spans, size_t count);
/* After a failure nobody is waited for. */
void ls_nccl_close(ls_ctx *ctx, ls_ranks *ranks, bool failed);

#endif
