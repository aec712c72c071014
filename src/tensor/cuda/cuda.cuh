/* What the CUDA kernels share. Each file op/NAME/NAME_cuda.cu defines one table of kernels,
 * LS_CUDA_TABLE(NAME), under the operations' names, as the processor's do; it is found by its name.
 *
 * A kernel function runs on the host: it resolves the node's tensors to addresses and launches on
 * the device's one stream. It never waits, never allocates and never depends on values that change
 * from run to run (a program that does not stream is captured once and replayed): seed and step are
 * read on the device, from ls_cuda.now. Positions (run->start, extents of caches) may be used on
 * the host: a program that streams is captured only where every node said ls_cuda_steady, that is
 * launches the same whatever the position and reads it there (ls_cuda_start). The same bits each
 * time: no floating-point atomics. */
#ifndef LS_TENSOR_CUDA_H
#define LS_TENSOR_CUDA_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

#include "tensor/cuda/bf16.cuh"

extern "C" {
#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"
}

/* What changes from run to run and is read on the device. */
typedef struct ls_cuda_now {
    uint64_t seed;
    int64_t start;
    uint32_t step;
} ls_cuda_now;

enum { LS_CUDA_PRODUCT_WORKSPACE = 64 << 20, LS_CUDA_ARRIVALS = 1 << 14, LS_CUDA_HANDED = 1 << 20 };

typedef struct ls_cuda {
    ls_device device; /* first */
    cudaStream_t stream;
    int number;                       /* of the device among those that are seen */
    int processors, major, minor;     /* multiprocessors, compute capability */
    size_t shared_max;                /* shared memory a block can ask for */
    struct cublasLtContext *products; /* a cublasLtHandle_t */
    void *product_workspace;
    void *known_products; /* what product.cu keeps; NULL before the first product */
    void *staged;         /* what ls_cuda_stage has given */
    void *kept;           /* what ls_cuda_keep has */
    ls_cuda_now *now;     /* on the device */
    ls_cuda_now *now_here;
    bool now_is_new;    /* no kernel was launched since it was told */
    unsigned *arrivals; /* [LS_CUDA_ARRIVALS] on the device: 0 between kernels, which count in them
                             the blocks that are done */
    void *handed;       /* LS_CUDA_HANDED bytes of the host that copies to it pass through: the
                             device writes them in place; NULL: none */
    struct ls_cuda *main; /* of one that is beside it, with `marks` events; else NULL */
    cudaEvent_t *marks;
    int mark_count;
    cudaError_t wrong; /* the first error since settle */
    char message[256];
} ls_cuda;

static inline ls_cuda *ls_cuda_of(const ls_run *run) {
    return (ls_cuda *)run->device;
}

/* This node's launches are the same at every position of a stream, while caches only grow. */
static inline void ls_cuda_steady(const ls_run *run) {
    if (run->steady != NULL) *run->steady = true;
}

/* Position of a run's first token, read on the device where it moves. */
typedef struct ls_cuda_start {
    const int64_t *there; /* NULL: it is at `fixed` */
    int64_t fixed;
    __device__ __forceinline__ int64_t at() const { return there == NULL ? fixed : *there; }
} ls_cuda_start;
static inline ls_cuda_start ls_cuda_start_of(const ls_run *run) {
    if (run->state == NULL) return {NULL, run->start};
    return {&ls_cuda_of(run)->now->start, 0};
}

/* Remembers the first error with what was being done. */
void ls_cuda_note(ls_cuda *cuda, cudaError_t error, const char *what);
void ls_cuda_note_text(ls_cuda *cuda, const char *what, const char *why);
/* After each launch. */
static inline void ls_cuda_launched(const ls_run *run, const char *what) {
    ls_cuda_note(ls_cuda_of(run), cudaGetLastError(), what);
}

/* Memory of the host that the device reaches too, for a node that the host has a part in; the same
 * each time, so that a graph can keep it. Cleared when it is new, held until the device is closed;
 * the first run, which is not captured, asks for it. NULL after an error was noted. */
void *ls_cuda_stage(ls_cuda *cuda, const ls_node *node, size_t bytes);
/* Memory of the device for what is computed once and read often, such as tables: that which is under
 * the key already, or new memory and *fresh, which the caller fills at once. NULL, where there is no
 * room or work is being captured: then the caller does without. */
void *ls_cuda_keep(ls_cuda *cuda, const void *key, size_t key_bytes, size_t bytes, bool *fresh);

/* The nodes of a chain (engine/join.c) one by one, where they do not fit what would do them in one.
 */
void ls_cuda_chain_apart(const ls_run *run, const ls_node *node);
size_t ls_cuda_chain_workspace(const ls_node *node, int threads); /* that is enough for each */

#define LS_CUDA_TABLE(name) ls__cuda_##name
#define LS_CUDA_DECLARE_TABLE(name) extern "C" const ls_kernel LS_CUDA_TABLE(name)[]

/* The elements of an f32 tensor; NULL where there is none. */
static inline float *ls_cuda_floats(const ls_tensor *tensor) {
    return tensor == NULL ? NULL : (float *)ls_data(tensor);
}

static __device__ __forceinline__ float ls_cuda_sigmoid(float x) {
    return __fdividef(1.0f, 1.0f + expf(-x));
}

#endif
