/* Where programs compute. The processor is a context without a device; any other device is a
 * library of its own that is opened at run time, so that the program never depends on it.
 *
 * A device has its own memory and its own copy of the kernels. Work asked of it is done in order,
 * after the call returned; `get` and `settle` wait. */
#ifndef LS_TENSOR_DEVICE_H
#define LS_TENSOR_DEVICE_H

#include "base/status.h"
#include "tensor/engine/kernel.h"

typedef struct ls_device ls_device;
struct ls_device {
    const char *name;
    /* The processor can reach this device's memory, and every call waits: slow, for tests. Programs
     * in f64 then run on the processor, so that tests have their reference beside what they try. */
    bool shared;
    bool fp8; /* it multiplies fp8 */
    /* Bytes of the device, aligned to 256 and not cleared; NULL where it has no room. */
    void *(*take)(ls_device *device, size_t bytes);
    void (*give)(ls_device *device, void *there);
    /* The same of the host's memory, which the device reaches in place: cleared, large, seldom
     * read. */
    void *(*take_far)(ls_device *device, size_t bytes);
    void (*give_far)(ls_device *device, void *far);
    /* Between the caller's memory (`here`) and the device's; `put` has read `here` when it returns,
     * `get` has written it. */
    void (*put)(ls_device *device, void *there, const void *here, size_t bytes);
    void (*get)(ls_device *device, void *here, const void *there, size_t bytes);
    void (*fill)(ls_device *device, void *there, int byte, size_t bytes);
    /* The kernel of an operation; NULL where the device has none. */
    const ls_kernel *(*kernel)(const ls_device *device, const char *op);
    /* Before the kernels of a run are called: makes seed, step and start known to the device. */
    void (*begin)(ls_device *device, const ls_run *run);
    /* From here on kernels are not done but kept, in order; `captured` gives them as one thing that
     * `replay` does again, with what `begin` said last. NULL where they cannot be kept. */
    void (*capture)(ls_device *device);
    void *(*captured)(ls_device *device);
    void (*replay)(ls_device *device, void *graph);
    void (*forget)(ls_device *device, void *graph);
    /* The same device with an order of its own, for another thread: it has memory, copies, kernels,
     * `settle` and `close`. mark(beside, i) is called where `device` is: follow(beside, i) then
     * makes what is asked of `beside` wait for what was asked of `device` up to there. NULL where
     * there is no room. */
    ls_device *(*beside)(ls_device *device, int marks);
    void (*mark)(ls_device *beside, int number);
    void (*follow)(ls_device *beside, int number);
    /* For libraries that work on the device themselves: the order of its work, as the device's own
     * makers call it, and whether all of it is done, without waiting. */
    void *(*stream)(ls_device *device);
    bool (*idle)(ls_device *device);
    /* Waits for everything asked for; LS_FAIL with the first thing that went
     * wrong since last time. */
    ls_status (*settle)(ls_device *device, ls_ctx *ctx);
    /* One line per fact, for `longshot doctor`. */
    void (*describe)(ls_device *device,
                     void (*line)(void *user, const char *key, const char *value), void *user);
    void (*close)(ls_device *device);
};

/* Opens the plug-in of a device ("cuda") for this context: what is made in the context from now on
 * lives there. Where there are several, `number` modulo how many says which. LS_EUSE in one
 * sentence where library, driver or device are missing. */
ls_status ls_device_open(ls_ctx *ctx, const char *name, int number);
void ls_device_close(ls_ctx *ctx);
/* What it is called, "NVIDIA H200"; "" where the context computes on the processor. */
void ls_device_title(const ls_ctx *ctx, char *out, size_t bytes);

/* Memory where the context computes. */
void *ls_device_take(ls_ctx *ctx, size_t count, size_t size);         /* not cleared */
void *ls_device_take_cleared(ls_ctx *ctx, size_t count, size_t size); /* all zero */
void ls_device_give(ls_ctx *ctx, void *there);
/* Memory outside it for what is seldom read, cleared: a file (base/far.h), or for a device the
 * host's memory. The processor reaches it in place; LS_ENOMEM as above. */
void *ls_device_take_far(ls_ctx *ctx, size_t bytes);
void ls_device_give_far(ls_ctx *ctx, void *far, size_t bytes);
void ls_device_put(ls_ctx *ctx, void *there, const void *here, size_t bytes);
ls_status ls_device_get(ls_ctx *ctx, void *here, const void *there, size_t bytes);
/* Within that memory; on a device through the caller's. */
ls_status ls_device_copy(ls_ctx *ctx, void *to, const void *from, size_t bytes);
void ls_device_fill(ls_ctx *ctx, void *there, int byte, size_t bytes);
ls_status ls_device_settle(ls_ctx *ctx);

/* What the plug-in shows: a new device, or NULL after writing one sentence to `why`. `build` must
 * be LS_DEVICE_BUILD, so that program and plug-in agree on every struct. */
#define LS_DEVICE_BUILD "longshot device 7"
typedef ls_device *(*ls_device_open_fn)(const char *build, int number, char *why, size_t bytes);
#define LS_DEVICE_OPEN_NAME "ls_device_plugin_open"

#endif
