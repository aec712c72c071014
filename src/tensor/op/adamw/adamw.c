#include "tensor/op/adamw/adamw.h"

#include <math.h>

#include "base/memory.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

static void call(ls_ctx *ctx, const char *name, const ls_adamw *pass) {
    const ls_kernel *kernel = ls__kernel_of(ctx, pass->type, name);
    ls_run run = {.threads = ctx->threads, .device = ls__device_of(ctx, pass->type)};
    ls_node node = {.attributes = pass};
    kernel->by_type[pass->type](&run, &node);
    if (ctx->device != NULL && ctx->device->shared) ls_device_settle(ctx);
}

ls_status ls_adamw_norm(ls_ctx *ctx, const ls_adamw *pass, double *norm) {
    enum { TOGETHER = 512 };
    double sums[TOGETHER], sum = 0;
    call(ctx, "adamw_norm", pass);
    for (int64_t first = 0; first < pass->piece_count; first += TOGETHER) {
        int64_t count = ls_min(TOGETHER, pass->piece_count - first);
        LS_TRY(ls_device_get(ctx, sums, pass->sums + first, (size_t)count * sizeof *sums));
        for (int64_t i = 0; i < count; i++) sum += sums[i];
    }
    *norm = sqrt(sum);
    return LS_OK;
}

void ls_adamw_apply(ls_ctx *ctx, const ls_adamw *pass) {
    call(ctx, "adamw", pass);
}
