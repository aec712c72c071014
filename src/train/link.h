/* How gradients and weights get from one rank's device to another's: through NCCL where each has
 * one of its own (ranks/nccl.h), else through host memory as the ranks' other bytes. */
#ifndef LS_TRAIN_LINK_H
#define LS_TRAIN_LINK_H

#include "ranks/nccl.h"

/* All ranks call it, before the first step; alone it does something only where NCCL was asked for.
 * LS_EUSE where that cannot be. */
ls_status ls_link_open(ls_ctx *ctx, ls_ranks *ranks);
/* Before the device is closed. */
void ls_link_close(ls_ctx *ctx, ls_ranks *ranks, ls_status status);
/* Swaps spans of the device's memory with a rank, behind all that was asked of the device, and
 * waits for them. */
ls_status ls_link_swap(ls_ctx *ctx, ls_ranks *ranks, int with, const ls_nccl_span *spans,
                       size_t count);

#endif
