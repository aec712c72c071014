#include "tensor/engine/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { PATH_BYTES = 4096 };

/* Where the program or library that asks lies; false where it cannot be told. A program may have
 * been started under any name, so its own path is asked of the system. */
static bool own_path(char *path, size_t bytes) {
    Dl_info here;
    if (dladdr((const void *)LS_DEVICE_BUILD, &here) != 0 && here.dli_fname != NULL &&
        strchr(here.dli_fname, '/') != NULL && strlen(here.dli_fname) < bytes) {
        strcpy(path, here.dli_fname);
        return true;
    }
    ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    if (length <= 0) return false;
    path[length] = '\0';
    return true;
}

/* The plug-in lies beside that; else the loader looks. */
static void *open_library(const char *name) {
    static const char *const places[] = {"", "lib/", "../lib/", "../"};
    char own[PATH_BYTES], path[PATH_BYTES + 64], file[64];
    snprintf(file, sizeof file, "liblongshot-%s.so", name);
    char *slash = own_path(own, sizeof own) ? strrchr(own, '/') : NULL;
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        slash[1] = '\0';
        snprintf(path, sizeof path, "%s%s%s", own, places[i], file);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) return library;
    }
    return dlopen(file, RTLD_NOW | RTLD_LOCAL);
}

ls_status ls_device_open(ls_ctx *ctx, const char *name) {
    char why[400] = "";
    if (strcmp(name, "cpu") == 0) return LS_OK;
    void *library = open_library(name);
    if (library == NULL)
        return LS_FAIL(ctx, LS_EUSE, "device=%s cannot be used: %s", name, dlerror());
    ls_device_open_fn open;
    void *symbol = dlsym(library, LS_DEVICE_OPEN_NAME);
    memcpy(&open, &symbol, sizeof open);
    if (open == NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "device=%s cannot be used: liblongshot-%s.so is not a plug-in of "
                       "this program",
                       name, name);
    /* the library stays open: its kernels may be running until the process ends */
    ctx->device = open(LS_DEVICE_BUILD, why, sizeof why);
    if (ctx->device == NULL)
        return LS_FAIL(ctx, LS_EUSE, "device=%s cannot be used: %s", name, why);
    return LS_OK;
}

void ls_device_close(ls_ctx *ctx) {
    if (ctx->device != NULL) ctx->device->close(ctx->device);
    ctx->device = NULL;
}

void *ls_device_take(ls_ctx *ctx, size_t count, size_t size) {
    if (ctx->device == NULL) return ls_new_raw(ctx, count, size);
    size_t bytes;
    void *there = NULL;
    if (!__builtin_mul_overflow(count, size, &bytes)) there = ctx->device->take(ctx->device, bytes);
    if (there == NULL)
        LS_FAIL(ctx, LS_ENOMEM, "the device has no room for %zu x %zu bytes", count, size);
    return there;
}

void *ls_device_take_cleared(ls_ctx *ctx, size_t count, size_t size) {
    if (ctx->device == NULL) return ls_new(ctx, count, size);
    void *there = ls_device_take(ctx, count, size);
    if (there != NULL) ctx->device->fill(ctx->device, there, 0, count * size);
    return there;
}

void ls_device_give(ls_ctx *ctx, void *there) {
    if (ctx->device == NULL)
        ls_free(ctx, there);
    else if (there != NULL)
        ctx->device->give(ctx->device, there);
}

void ls_device_put(ls_ctx *ctx, void *there, const void *here, size_t bytes) {
    if (ctx->device != NULL)
        ctx->device->put(ctx->device, there, here, bytes);
    else if (bytes > 0)
        memcpy(there, here, bytes);
}

ls_status ls_device_get(ls_ctx *ctx, void *here, const void *there, size_t bytes) {
    if (ctx->device != NULL) {
        ctx->device->get(ctx->device, here, there, bytes);
        return ctx->device->settle(ctx->device, ctx);
    }
    if (bytes > 0) memcpy(here, there, bytes);
    return LS_OK;
}

void ls_device_fill(ls_ctx *ctx, void *there, int byte, size_t bytes) {
    if (ctx->device != NULL)
        ctx->device->fill(ctx->device, there, byte, bytes);
    else if (bytes > 0)
        memset(there, byte, bytes);
}

ls_status ls_device_settle(ls_ctx *ctx) {
    return ctx->device == NULL ? LS_OK : ctx->device->settle(ctx->device, ctx);
}
