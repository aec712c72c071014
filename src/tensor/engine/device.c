#include "tensor/engine/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/far.h"
#include "base/memory.h"
#include "base/own.h"

ls_status ls_device_open(ls_ctx *ctx, const char *name, int number) {
    char why[400] = "", file[64], path[PATH_MAX];
    if (strcmp(name, "cpu") == 0) return LS_OK;
    snprintf(file, sizeof file, "liblongshot-%s.so", name);
    if (!ls_own_plugin(file, path, sizeof path))
        return LS_FAIL(ctx, LS_EUSE, "device=%s cannot be used: %s is %s", name, file,
                       ls_own_plugin_nowhere());
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return LS_FAIL(ctx, LS_EUSE, "device=%s cannot be used: %s", name, dlerror());
    ls_device_open_fn open;
    void *symbol = dlsym(library, LS_DEVICE_OPEN_NAME);
    memcpy(&open, &symbol, sizeof open);
    if (open == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "device=%s cannot be used: %s is not a plug-in of this program", name, file);
    /* the library stays open: its kernels may be running until the process ends */
    ctx->device = open(LS_DEVICE_BUILD, number, why, sizeof why);
    if (ctx->device == NULL)
        return LS_FAIL(ctx, LS_EUSE, "device=%s cannot be used: %s", name, why);
    return LS_OK;
}

void ls_device_close(ls_ctx *ctx) {
    if (ctx->device != NULL) ctx->device->close(ctx->device);
    ctx->device = NULL;
}

typedef struct title {
    char *out;
    size_t bytes;
} title;

static void keep_title(void *user, const char *key, const char *value) {
    const title *t = user;
    if (strcmp(key, "device") == 0) snprintf(t->out, t->bytes, "%s", value);
}

void ls_device_title(const ls_ctx *ctx, char *out, size_t bytes) {
    title t = {out, bytes};
    out[0] = '\0';
    if (ctx->device == NULL) return;
    snprintf(out, bytes, "%s", ctx->device->name);
    if (ctx->device->describe != NULL) ctx->device->describe(ctx->device, keep_title, &t);
}

/* Whether buffers are the device's. A rehearsal has all of them beside it, where they are
 * counted. */
static bool is_far(const ls_ctx *ctx) {
    return ctx->device != NULL && !ctx->rehearsal;
}

void *ls_device_take(ls_ctx *ctx, size_t count, size_t size) {
    if (!is_far(ctx)) return ls_new_raw(ctx, count, size);
    size_t bytes;
    void *there = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes)) there = ctx->device->take(ctx->device, bytes);
    if (there == NULL)
        LS_FAIL(ctx, LS_ENOMEM, "the device has no room for %.2f GB",
                1e-9 * (double)count * (double)size);
    return there;
}

void *ls_device_take_cleared(ls_ctx *ctx, size_t count, size_t size) {
    if (!is_far(ctx)) return ls_new(ctx, count, size);
    void *there = ls_device_take(ctx, count, size);
    if (there != NULL) ctx->device->fill(ctx->device, there, 0, count * size);
    return there;
}

void ls_device_give(ls_ctx *ctx, void *there) {
    if (!is_far(ctx))
        ls_free(ctx, there);
    else if (there != NULL)
        ctx->device->give(ctx->device, there);
}

void *ls_device_take_far(ls_ctx *ctx, size_t bytes) {
    if (!is_far(ctx)) return ls_far_new(ctx, bytes);
    void *far = ctx->device->take_far(ctx->device, bytes);
    if (far == NULL)
        LS_FAIL(ctx, LS_ENOMEM, "the host has no room for %.2f GB of keys and values",
                1e-9 * (double)bytes);
    return far;
}

void ls_device_give_far(ls_ctx *ctx, void *far, size_t bytes) {
    if (!is_far(ctx))
        ls_far_free(far, bytes);
    else if (far != NULL)
        ctx->device->give_far(ctx->device, far);
}

void ls_device_put(ls_ctx *ctx, void *there, const void *here, size_t bytes) {
    if (is_far(ctx))
        ctx->device->put(ctx->device, there, here, bytes);
    else if (bytes > 0)
        memcpy(there, here, bytes);
}

ls_status ls_device_get(ls_ctx *ctx, void *here, const void *there, size_t bytes) {
    if (is_far(ctx)) {
        ctx->device->get(ctx->device, here, there, bytes);
        return ctx->device->settle(ctx->device, ctx);
    }
    if (bytes > 0) memcpy(here, there, bytes);
    return LS_OK;
}

ls_status ls_device_copy(ls_ctx *ctx, void *to, const void *from, size_t bytes) {
    if (!is_far(ctx)) {
        if (bytes > 0) memcpy(to, from, bytes);
        return LS_OK;
    }
    void *here = ls_new_raw(ctx, bytes, 1);
    if (here == NULL) return LS_ENOMEM;
    ls_status status = ls_device_get(ctx, here, from, bytes);
    if (status == LS_OK) ls_device_put(ctx, to, here, bytes);
    ls_free(ctx, here);
    return status;
}

void ls_device_fill(ls_ctx *ctx, void *there, int byte, size_t bytes) {
    if (is_far(ctx))
        ctx->device->fill(ctx->device, there, byte, bytes);
    else if (bytes > 0)
        memset(there, byte, bytes);
}

ls_status ls_device_settle(ls_ctx *ctx) {
    return ctx->device == NULL ? LS_OK : ctx->device->settle(ctx->device, ctx);
}
