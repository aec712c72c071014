#include "train/link.h"

#include <string.h>

#include "tensor/engine/device.h"

static bool is_idle(void *user) {
    ls_device *device = user;
    return device->idle(device);
}

static ls_nccl_lane lane_of(ls_device *device) {
    return (ls_nccl_lane){device->stream(device), is_idle, device};
}

/* What a rank sends to its partners at first: its number, and nothing that is there by chance. */
static void sign(char out[LS_NCCL_TRIAL], int rank) {
    const uint64_t word = 0x6c6f6e6773686f74u + (uint64_t)rank;
    memcpy(out, &word, LS_NCCL_TRIAL);
}

static ls_status check_trial(ls_ctx *ctx, const ls_ranks *ranks, const char *trial) {
    char here[LS_NCCL_TRIAL_BYTES], wanted[LS_NCCL_TRIAL];
    LS_TRY(ls_device_get(ctx, here, trial, sizeof here));
    for (int k = 0; ls_nccl_partner(ranks, k) >= 0; k++) {
        const int with = ls_nccl_partner(ranks, k);
        sign(wanted, with);
        if (memcmp(here + LS_NCCL_TRIAL * (k + 1), wanted, sizeof wanted) != 0)
            return LS_FAIL(ctx, LS_ERANK,
                           "NCCL brings other bytes than rank %d sent: LONGSHOT_TRANSPORT=host "
                           "goes without it",
                           with);
    }
    return LS_OK;
}

static ls_status open_on(ls_ctx *ctx, ls_ranks *ranks, ls_across wish) {
    const ls_nccl_lane lane = lane_of(ctx->device);
    char here[LS_NCCL_TRIAL_BYTES] = "";
    char *trial = ls_device_take(ctx, sizeof here, 1);
    if (trial == NULL) return LS_ENOMEM;
    sign(here, ranks->rank);
    ls_device_put(ctx, trial, here, sizeof here);
    ls_status status = ls_device_settle(ctx);
    if (status == LS_OK) status = ls_nccl_open(ctx, ranks, wish, NULL, &lane, trial);
    if (status == LS_OK && ranks->nccl != NULL) status = check_trial(ctx, ranks, trial);
    ls_device_give(ctx, trial);
    return status;
}

ls_status ls_link_open(ls_ctx *ctx, ls_ranks *ranks) {
    ls_across wish;
    LS_TRY(ls_across_read(ctx, &wish));
    if (ranks == NULL || (ranks->size == 1 && wish != LS_ACROSS_NCCL)) return LS_OK;
    if (ctx->device == NULL)
        return ls_nccl_open(ctx, ranks, wish, "it computes on the processor", NULL, NULL);
    if (ctx->device->shared)
        return ls_nccl_open(ctx, ranks, wish, "the device's memory is the processor's", NULL, NULL);
    return open_on(ctx, ranks, wish);
}

void ls_link_close(ls_ctx *ctx, ls_ranks *ranks, ls_status status) {
    if (ranks != NULL) ls_nccl_close(ctx, ranks, status != LS_OK);
}

ls_status ls_link_swap(ls_ctx *ctx, ls_ranks *ranks, int with, const ls_nccl_span *spans,
                       size_t count) {
    const ls_nccl_lane lane = lane_of(ctx->device);
    LS_TRY(ls_device_settle(ctx)); /* the limit of the wait is for the other rank's part alone */
    return ls_nccl_exchange(ctx, ranks, &lane, with, spans, count);
}
