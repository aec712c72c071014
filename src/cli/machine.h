/* This machine: what it is, and what it was measured to do. */
#ifndef LS_CLI_MACHINE_H
#define LS_CLI_MACHINE_H

#include "base/memory.h"
#include "tensor/dtype.h"

typedef struct ls_machine {
    char name[128]; /* of the processor */
    bool avx2, avx512, avx512_bf16, amx;
    const char *onednn; /* "found" or "not built in" */
    int64_t memory_bytes;
} ls_machine;

void ls_machine_describe(ls_machine *out);
/* Floating-point operations per second of large matrix products of a type, on ctx->threads. */
ls_status ls_machine_peak(ls_ctx *ctx, ls_dtype type, double *out);
/* Bytes per second that all threads together read from memory. */
ls_status ls_machine_bandwidth(ls_ctx *ctx, double *out);
double ls_machine_seconds(void);     /* a clock that never goes back */
int64_t ls_machine_peak_bytes(void); /* most memory this process has had */

#endif
