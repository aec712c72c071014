/* This machine: what it is, and what it was measured to do. */
#ifndef LS_TENSOR_ENGINE_MACHINE_H
#define LS_TENSOR_ENGINE_MACHINE_H

#include "tensor/engine/program.h"

typedef struct ls_machine {
    char name[128];        /* of the processor */
    char instructions[64]; /* of those that kernels use, as "AVX2 AVX-512" */
    const char *onednn;    /* "found" or "not built in" */
    int64_t memory_bytes;
    char system[65], release[65];
} ls_machine;

void ls_machine_describe(ls_machine *out);
/* Floating-point operations per second of large matrix products of a type, on ctx->threads or on
 * the context's device. */
ls_status ls_machine_peak(ls_ctx *ctx, ls_dtype type, double *out);
/* Bytes per second that all threads together read from memory; of a device: reads and writes. */
ls_status ls_machine_bandwidth(ls_ctx *ctx, double *out);
/* Fills an input with numbers from -0.5 to 0.5. */
ls_status ls_machine_random(const ls_program *program, const ls_tensor *tensor, ls_random key);
int64_t ls_machine_peak_bytes(void); /* most memory this process has had */

#endif
