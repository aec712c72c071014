#include "tensor/op/adamw/adamw.h"

#include <math.h>

#include "base/memory.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

static void call(ls_ctx *ctx, const char *name, ls_dtype type, const void *attributes) {
    const ls_kernel *kernel = ls__kernel_of(ctx, type, name);
    ls_run run = {.threads = ctx->threads, .device = ls__device_of(ctx, type)};
    ls_node node = {.attributes = attributes};
    kernel->by_type[type](&run, &node);
    if (ctx->device != NULL && ctx->device->shared) ls_device_settle(ctx);
}

ls_status ls_adamw_squares(ls_ctx *ctx, const ls_adamw *pass, double *sums_here) {
    call(ctx, "adamw_norm", pass->type, pass);
    return ls_device_get(ctx, sums_here, pass->sums, (size_t)pass->piece_count * sizeof(double));
}

ls_status ls_adamw_norm(ls_ctx *ctx, const ls_adamw *pass, double *norm) {
    enum { TOGETHER = 512 };
    double sums[TOGETHER], sum = 0;
    call(ctx, "adamw_norm", pass->type, pass);
    for (int64_t first = 0; first < pass->piece_count; first += TOGETHER) {
        int64_t count = ls_min(TOGETHER, pass->piece_count - first);
        LS_TRY(ls_device_get(ctx, sums, pass->sums + first, (size_t)count * sizeof *sums));
        for (int64_t i = 0; i < count; i++) sum += sums[i];
    }
    *norm = sqrt(sum);
    return LS_OK;
}

void ls_adamw_apply(ls_ctx *ctx, const ls_adamw *pass) {
    call(ctx, "adamw", pass->type, pass);
}

void ls_gradient_add(ls_ctx *ctx, const ls_gradient_sum *sum) {
    call(ctx, "gradient_add", sum->type, sum);
}
