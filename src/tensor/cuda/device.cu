/* The device itself: memory, copies, the stream, captured graphs, errors. See
 * tensor/engine/device.h. */
#include <cublasLt.h>

#include "tensor/cuda/cuda.cuh"
#include "tensor/cuda/product.cuh"

extern "C" const ls_kernel *const ls__cuda_kernels[];

/* ---- errors ---- */

void ls_cuda_note_text(ls_cuda *cuda, const char *what, const char *why) {
    if (cuda->wrong == cudaSuccess)
        snprintf(cuda->message, sizeof cuda->message, "%s: %s", what, why);
    if (cuda->wrong == cudaSuccess) cuda->wrong = cudaErrorUnknown;
}

void ls_cuda_note(ls_cuda *cuda, cudaError_t error, const char *what) {
    if (error == cudaSuccess || cuda->wrong != cudaSuccess) return;
    ls_cuda_note_text(cuda, what, cudaGetErrorString(error));
    cuda->wrong = error;
}

static ls_status settle(ls_device *device, ls_ctx *ctx) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaStreamSynchronize(cuda->stream), "waiting");
    if (cuda->wrong == cudaSuccess) return LS_OK;
    ls_status code = cuda->wrong == cudaErrorMemoryAllocation ? LS_ENOMEM : LS_EBUG;
    cuda->wrong = cudaSuccess;
    return ls_fail_at(ctx, __FILE__, __LINE__, code, "the CUDA device failed: %s", cuda->message);
}

/* ---- memory ---- */

static void *take(ls_device *device, size_t bytes) {
    void *there = NULL;
    if (bytes == 0) bytes = 1;
    if ((device->shared ? cudaMallocManaged(&there, bytes) : cudaMalloc(&there, bytes)) ==
        cudaSuccess)
        return there;
    cudaGetLastError(); /* it is no error of a kernel */
    return NULL;
}

static void wait_where_shared(ls_cuda *cuda) {
    if (cuda->device.shared) ls_cuda_note(cuda, cudaStreamSynchronize(cuda->stream), "waiting");
}

static void give(ls_device *device, void *there) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaFree(there), "giving memory back");
}

static void *take_far(ls_device *device, size_t bytes) {
    (void)device;
    void *far = NULL;
    if (bytes == 0) bytes = 1;
    if (cudaHostAlloc(&far, bytes, cudaHostAllocMapped) == cudaSuccess)
        return memset(far, 0, bytes);
    cudaGetLastError();
    return NULL;
}

static void give_far(ls_device *device, void *far) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaStreamSynchronize(cuda->stream), "waiting");
    ls_cuda_note(cuda, cudaFreeHost(far), "giving memory back");
}

static void put(ls_device *device, void *there, const void *here, size_t bytes) {
    ls_cuda *cuda = (ls_cuda *)device;
    /* pageable memory is staged before the call returns */
    ls_cuda_note(cuda, cudaMemcpyAsync(there, here, bytes, cudaMemcpyHostToDevice, cuda->stream),
                 "copying to the device");
    wait_where_shared(cuda);
}

static void get(ls_device *device, void *here, const void *there, size_t bytes) {
    ls_cuda *cuda = (ls_cuda *)device;
    const bool handed = cuda->handed != NULL && bytes <= LS_CUDA_HANDED;
    void *to = handed ? cuda->handed : here;
    ls_cuda_note(cuda, cudaMemcpyAsync(to, there, bytes, cudaMemcpyDeviceToHost, cuda->stream),
                 "copying from the device");
    ls_cuda_note(cuda, cudaStreamSynchronize(cuda->stream), "copying from the device");
    if (handed) memcpy(here, to, bytes);
}

static void fill(ls_device *device, void *there, int byte, size_t bytes) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaMemsetAsync(there, byte, bytes, cuda->stream), "filling memory");
    wait_where_shared(cuda);
}

/* ---- memory for both sides ---- */

typedef struct staged {
    struct staged *next;
    const ls_node *node;
    size_t bytes;
    void *memory;
} staged;

static bool take_staged(ls_cuda *cuda, staged *place, size_t bytes) {
    ls_cuda_note(cuda, cudaFreeHost(place->memory), "giving memory back");
    place->memory = NULL;
    place->bytes = 0;
    cudaError_t error = cudaHostAlloc(&place->memory, bytes, cudaHostAllocMapped);
    ls_cuda_note(cuda, error, "taking memory of the host");
    if (error != cudaSuccess) return false;
    memset(place->memory, 0, bytes);
    place->bytes = bytes;
    return true;
}

void *ls_cuda_stage(ls_cuda *cuda, const ls_node *node, size_t bytes) {
    staged *place = (staged *)cuda->staged;
    while (place != NULL && place->node != node) place = place->next;
    if (place == NULL) {
        place = (staged *)calloc(1, sizeof *place);
        if (place == NULL) {
            ls_cuda_note_text(cuda, "taking memory of the host", "there is none");
            return NULL;
        }
        place->next = (staged *)cuda->staged;
        place->node = node;
        cuda->staged = place;
    }
    /* another size: a node of another program has this address now */
    if (place->bytes != bytes && !take_staged(cuda, place, bytes)) return NULL;
    return place->memory;
}

static void give_staged(ls_cuda *cuda) {
    while (cuda->staged != NULL) {
        staged *place = (staged *)cuda->staged;
        cuda->staged = place->next;
        cudaFreeHost(place->memory);
        free(place);
    }
}

/* ---- memory for what is computed once ---- */

enum { KEPT_MOST = 32 };
typedef struct kept {
    struct kept *next;
    size_t key_bytes;
    void *key, *memory;
} kept;

static void drop_kept(kept *one) {
    if (one == NULL) return;
    cudaFree(one->memory);
    free(one->key);
    free(one);
}

void *ls_cuda_keep(ls_cuda *cuda, const void *key, size_t key_bytes, size_t bytes, bool *fresh) {
    int count = 0;
    *fresh = false;
    for (kept *one = (kept *)cuda->kept; one != NULL; one = one->next, count++)
        if (one->key_bytes == key_bytes && memcmp(one->key, key, key_bytes) == 0)
            return one->memory;
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    ls_cuda_note(cuda, cudaStreamIsCapturing(cuda->stream, &capturing), "looking at the stream");
    if (capturing != cudaStreamCaptureStatusNone || count == KEPT_MOST) return NULL;
    kept *one = (kept *)calloc(1, sizeof *one);
    if (one == NULL || (one->key = malloc(key_bytes)) == NULL ||
        cudaMalloc(&one->memory, bytes) != cudaSuccess) {
        cudaGetLastError(); /* no room is no error */
        drop_kept(one);
        return NULL;
    }
    memcpy(one->key, key, key_bytes);
    one->key_bytes = key_bytes;
    one->next = (kept *)cuda->kept;
    cuda->kept = one;
    *fresh = true;
    return one->memory;
}

static void give_kept(ls_cuda *cuda) {
    while (cuda->kept != NULL) {
        kept *one = (kept *)cuda->kept;
        cuda->kept = one->next;
        drop_kept(one);
    }
}

/* ---- kernels ---- */

/* Whether LONGSHOT_CUDA_JOIN lets a kernel of several nodes be used: 0 none, the names of some
 * (residual_norm+linear,cache_append+attention) those alone, names after minus signs all but those;
 * 1, or without it, all. */
static bool may_join(const char *op) {
    const char *join = getenv("LONGSHOT_CUDA_JOIN");
    if (join == NULL || strcmp(join, "1") == 0) return true;
    const size_t length = strlen(op);
    const bool but = join[0] == '-';
    for (const char *at = join; (at = strstr(at, op)) != NULL; at += length) {
        const bool begins = but ? at[-1] == '-' : at == join || at[-1] == ',';
        if (begins && (at[length] == 0 || at[length] == ',')) return !but;
    }
    return but;
}

static const ls_kernel *kernel(const ls_device *device, const char *op) {
    (void)device;
    if (strchr(op, '+') != NULL && !may_join(op)) return NULL;
    for (size_t i = 0; ls__cuda_kernels[i] != NULL; i++)
        for (const ls_kernel *k = ls__cuda_kernels[i]; k->op != NULL; k++)
            if (strcmp(k->op, op) == 0) return k;
    return NULL;
}

void ls_cuda_chain_apart(const ls_run *run, const ls_node *node) {
    bool all = true, one;
    ls_run each = *run;
    each.steady = &one;
    for (int i = 0; i < node->part_count; i++) {
        const ls_node *part = &node->parts[i];
        one = ls__node_anywhere(part);
        kernel(run->device, part->op->name)->by_type[part->in[0]->type](&each, part);
        all = all && one;
    }
    if (run->steady != NULL) *run->steady = all;
}

size_t ls_cuda_chain_workspace(const ls_node *node, int threads) {
    size_t most = 0;
    for (int i = 0; i < node->part_count; i++) {
        const ls_node *part = &node->parts[i];
        const ls_kernel *own = kernel(NULL, part->op->name);
        const size_t bytes = own->workspace == NULL ? 0 : own->workspace(part, threads);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Not as a copy: that of ordinary memory may wait for all that was asked for before. */
static __global__ void set_now(ls_cuda_now *to, const ls_cuda_now now) {
    *to = now;
}

static void begin(ls_device *device, const ls_run *run) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_now now = {run->seed, run->start, run->step};
    if (memcmp(&now, cuda->now_here, sizeof now) == 0) return;
    *cuda->now_here = now;
    set_now<<<1, 1, 0, cuda->stream>>>(cuda->now, now);
    cuda->now_is_new = true;
    ls_cuda_note(cuda, cudaGetLastError(), "saying where a run stands");
    wait_where_shared(cuda);
}

static void capture(ls_device *device) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal),
                 "beginning a capture");
}

static void *captured(ls_device *device) {
    ls_cuda *cuda = (ls_cuda *)device;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    ls_cuda_note(cuda, cudaStreamEndCapture(cuda->stream, &graph), "ending a capture");
    if (graph != NULL) ls_cuda_note(cuda, cudaGraphInstantiate(&ready, graph, 0), "making a graph");
    if (graph != NULL) cudaGraphDestroy(graph);
    return ready;
}

static void replay(ls_device *device, void *graph) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_note(cuda, cudaGraphLaunch((cudaGraphExec_t)graph, cuda->stream), "replaying a graph");
}

static void forget(ls_device *device, void *graph) {
    (void)device;
    cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

/* ---- an order of its own ---- */

static void mark(ls_device *beside, int number) {
    ls_cuda *lane = (ls_cuda *)beside, *cuda = lane->main;
    ls_cuda_note(cuda, cudaEventRecord(lane->marks[number], cuda->stream), "marking a place");
}

static void follow(ls_device *beside, int number) {
    ls_cuda *lane = (ls_cuda *)beside;
    ls_cuda_note(lane, cudaSetDevice(lane->number), "taking the device"); /* of this thread */
    ls_cuda_note(lane, cudaStreamWaitEvent(lane->stream, lane->marks[number], 0),
                 "following a mark");
}

static void close_beside(ls_device *beside) {
    ls_cuda *lane = (ls_cuda *)beside;
    if (lane->stream != NULL) cudaStreamSynchronize(lane->stream);
    for (int i = 0; i < lane->mark_count; i++) cudaEventDestroy(lane->marks[i]);
    if (lane->stream != NULL) cudaStreamDestroy(lane->stream);
    free(lane->marks);
    free(lane);
}

static ls_device *beside(ls_device *device, int marks) {
    ls_cuda *lane = (ls_cuda *)calloc(1, sizeof *lane);
    if (lane == NULL) return NULL;
    *lane = *(ls_cuda *)device;
    lane->main = (ls_cuda *)device;
    lane->staged = lane->known_products = lane->handed = NULL;
    lane->wrong = cudaSuccess;
    lane->stream = NULL;
    lane->mark_count = 0;
    lane->device.close = close_beside;
    lane->marks = (cudaEvent_t *)calloc((size_t)marks + 1, sizeof *lane->marks);
    bool all = lane->marks != NULL &&
               cudaStreamCreateWithFlags(&lane->stream, cudaStreamNonBlocking) == cudaSuccess;
    while (all && lane->mark_count < marks) {
        all = cudaEventCreateWithFlags(&lane->marks[lane->mark_count], cudaEventDisableTiming) ==
              cudaSuccess;
        lane->mark_count += all;
    }
    if (all) return &lane->device;
    cudaGetLastError(); /* it is no error of a kernel */
    close_beside(&lane->device);
    return NULL;
}

/* ---- libraries that work here themselves ---- */

static void *stream_of(ls_device *device) {
    return ((ls_cuda *)device)->stream;
}

static bool idle(ls_device *device) {
    ls_cuda *cuda = (ls_cuda *)device;
    const cudaError_t state = cudaStreamQuery(cuda->stream);
    if (state == cudaErrorNotReady) return false;
    ls_cuda_note(cuda, state, "working");
    return true;
}

/* ---- life ---- */

static void close_device(ls_device *device) {
    ls_cuda *cuda = (ls_cuda *)device;
    ls_cuda_products_close(cuda);
    give_staged(cuda);
    give_kept(cuda);
    if (cuda->products != NULL) cublasLtDestroy(cuda->products);
    cudaFree(cuda->product_workspace);
    cudaFree(cuda->now);
    cudaFree(cuda->arrivals);
    cudaFreeHost(cuda->handed);
    if (cuda->stream != NULL) cudaStreamDestroy(cuda->stream);
    free(cuda->now_here);
    free(cuda);
}

static void describe(ls_device *device,
                     void (*line)(void *user, const char *key, const char *value), void *user) {
    ls_cuda *cuda = (ls_cuda *)device;
    cudaDeviceProp about;
    int driver = 0, runtime = 0;
    size_t unused = 0, all = 0;
    char text[300];
    if (cudaGetDeviceProperties(&about, cuda->number) != cudaSuccess) return;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cudaMemGetInfo(&unused, &all);
    line(user, "device", about.name);
    snprintf(text, sizeof text, "%d.%d, %d multiprocessors", cuda->major, cuda->minor,
             cuda->processors);
    line(user, "compute capability", text);
    snprintf(text, sizeof text, "%.1f GB, %.1f GB free", 1e-9 * (double)all, 1e-9 * (double)unused);
    line(user, "device memory", text);
    snprintf(text, sizeof text, "driver %d.%d, runtime %d.%d, cuBLASLt %zu", driver / 1000,
             driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion());
    line(user, "versions", text);
}

static bool opened(ls_cuda *cuda, int number, const char **what, cudaError_t *error) {
    cudaDeviceProp about;
    int devices = 0;
#define STEP(words, call)                                                                          \
    do {                                                                                           \
        *what = (words);                                                                           \
        *error = (call);                                                                           \
        if (*error != cudaSuccess) return false;                                                   \
    } while (0)
    STEP("looking for a device", cudaGetDeviceCount(&devices));
    if (devices > 0) cuda->number = number % devices;
    STEP("taking the device", cudaSetDevice(cuda->number));
    STEP("reading its properties", cudaGetDeviceProperties(&about, cuda->number));
    cuda->processors = about.multiProcessorCount;
    cuda->major = about.major;
    cuda->minor = about.minor;
    cuda->device.fp8 = about.major > 8 || (about.major == 8 && about.minor >= 9);
    cuda->shared_max = about.sharedMemPerBlockOptin;
    STEP("making a stream", cudaStreamCreateWithFlags(&cuda->stream, cudaStreamNonBlocking));
    STEP("taking memory", cudaMalloc(&cuda->product_workspace, LS_CUDA_PRODUCT_WORKSPACE));
    STEP("taking memory", cudaMalloc((void **)&cuda->now, sizeof *cuda->now));
    STEP("clearing memory", cudaMemset(cuda->now, 0, sizeof *cuda->now));
    const size_t arrivals = LS_CUDA_ARRIVALS * sizeof *cuda->arrivals;
    STEP("taking memory", cudaMalloc((void **)&cuda->arrivals, arrivals));
    STEP("clearing memory", cudaMemset(cuda->arrivals, 0, arrivals));
    STEP("taking memory of the host",
         cudaHostAlloc(&cuda->handed, LS_CUDA_HANDED, cudaHostAllocDefault));
#undef STEP
    *what = "starting cuBLASLt";
    *error = cudaErrorUnknown;
    return cublasLtCreate(&cuda->products) == CUBLAS_STATUS_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) ls_device *
ls_device_plugin_open(const char *build, int number, char *why, size_t bytes) {
    if (strcmp(build, LS_DEVICE_BUILD) != 0) {
        snprintf(why, bytes, "liblongshot-cuda.so is of another version of longshot");
        return NULL;
    }
    ls_cuda *cuda = (ls_cuda *)calloc(1, sizeof *cuda);
    if (cuda != NULL) cuda->now_here = (ls_cuda_now *)calloc(1, sizeof *cuda->now_here);
    if (cuda == NULL || cuda->now_here == NULL) {
        snprintf(why, bytes, "no memory");
        free(cuda);
        return NULL;
    }
    const char *shared = getenv("LONGSHOT_CUDA_SHARED");
    ls_device *device = &cuda->device;
    device->name = "cuda";
    device->shared = shared != NULL && strcmp(shared, "1") == 0;
    device->take = take;
    device->give = give;
    device->take_far = take_far;
    device->give_far = give_far;
    device->put = put;
    device->get = get;
    device->fill = fill;
    device->kernel = kernel;
    device->begin = begin;
    device->capture = capture;
    device->captured = captured;
    device->replay = replay;
    device->forget = forget;
    device->beside = beside;
    device->mark = mark;
    device->follow = follow;
    device->stream = stream_of;
    device->idle = idle;
    device->settle = settle;
    device->describe = describe;
    device->close = close_device;
    const char *what = "";
    cudaError_t error = cudaSuccess;
    if (!opened(cuda, number, &what, &error)) {
        snprintf(why, bytes, "%s: %s", what, cudaGetErrorString(error));
        close_device(device);
        return NULL;
    }
    return device;
}
