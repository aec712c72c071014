/* A device of this machine's memory with the processor's kernels, as the plug-in that device=cuda
 * opens: what trains on it goes every way that a device's work goes. Its kernels are done when they
 * return; what the stand-in of NCCL does on its streams is not, and `settle` waits for it for ever,
 * as a device does. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stream.h"
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

typedef struct stand_in {
    ls_device device;
    stand_in_stream stream;
    int number;
} stand_in;

static void *take(ls_device *device, size_t bytes) {
    (void)device;
    return aligned_alloc(256, (bytes + 256) / 256 * 256);
}
static void give(ls_device *device, void *there) {
    (void)device;
    free(there);
}
static void *take_far(ls_device *device, size_t bytes) {
    (void)device;
    return calloc(bytes + 1, 1);
}
static void put(ls_device *device, void *there, const void *here, size_t bytes) {
    (void)device;
    memcpy(there, here, bytes);
}
static void get(ls_device *device, void *here, const void *there, size_t bytes) {
    (void)device;
    memcpy(here, there, bytes);
}
static void fill(ls_device *device, void *there, int byte, size_t bytes) {
    (void)device;
    memset(there, byte, bytes);
}
static const ls_kernel *kernel(const ls_device *device, const char *op) {
    (void)device;
    return ls__kernel_find(NULL, op);
}
static void begin(ls_device *device, const ls_run *run) {
    (void)device;
    (void)run;
}
static void capture(ls_device *device) {
    (void)device;
}
static void *captured(ls_device *device) {
    (void)device;
    return NULL; /* it cannot keep kernels */
}
static void *stream(ls_device *device) {
    return &((stand_in *)device)->stream;
}
static bool idle(ls_device *device) {
    return atomic_load(&((stand_in *)device)->stream.pending) == 0;
}
static ls_status settle(ls_device *device, ls_ctx *ctx) {
    const struct timespec pause = {.tv_nsec = 20000};
    (void)ctx;
    while (!idle(device)) nanosleep(&pause, NULL);
    return LS_OK;
}
static void mark(ls_device *beside, int number) {
    (void)beside;
    (void)number;
}
static void describe(ls_device *device,
                     void (*line)(void *user, const char *key, const char *value), void *user) {
    char text[32];
    snprintf(text, sizeof text, "stand-in %d", ((stand_in *)device)->number);
    line(user, "device", text);
}
static void close_it(ls_device *device) {
    free(device);
}
static ls_device *beside(ls_device *device, int marks) {
    stand_in *lane = malloc(sizeof *lane);
    (void)marks;
    if (lane == NULL) return NULL;
    memcpy(lane, device, sizeof *lane);
    atomic_store(&lane->stream.pending, 0);
    return &lane->device;
}

__attribute__((visibility("default"))) ls_device *
ls_device_plugin_open(const char *build, int number, char *why, size_t bytes);
ls_device *ls_device_plugin_open(const char *build, int number, char *why, size_t bytes) {
    const char *devices = getenv("STAND_IN_DEVICES"); /* how many there are */
    stand_in *made = calloc(1, sizeof *made);
    if (strcmp(build, LS_DEVICE_BUILD) != 0 || made == NULL) {
        snprintf(why, bytes, "the stand-in is of another build");
        free(made);
        return NULL;
    }
    made->number = number % (devices == NULL ? 8 : atoi(devices));
    snprintf(why, bytes, "%d", made->number);
    setenv("STAND_IN_DEVICE", why, 1); /* as CUDA's own library knows the device of a thread */
    made->device = (ls_device){.name = "cuda",
                               .take = take,
                               .give = give,
                               .take_far = take_far,
                               .give_far = give,
                               .put = put,
                               .get = get,
                               .fill = fill,
                               .kernel = kernel,
                               .begin = begin,
                               .capture = capture,
                               .captured = captured,
                               .beside = beside,
                               .mark = mark,
                               .follow = mark,
                               .stream = stream,
                               .idle = idle,
                               .settle = settle,
                               .describe = describe,
                               .close = close_it};
    return &made->device;
}
