/* Which kernels this processor runs: the build holds a copy of all of them per instruction set. */
#include "tensor/engine/kernel.h"

#include <stdbool.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

extern const ls_kernel *const ls__cpu_kernels_base[];
#if defined(__x86_64__)
extern const ls_kernel *const ls__cpu_kernels_avx2[];
extern const ls_kernel *const ls__cpu_kernels_avx512[];
#endif

typedef struct isa_choice {
    const char *name;
    const ls_kernel *const *tables;
    bool (*supported)(void);
} isa_choice;

static bool always(void) {
    return true;
}
#if defined(__x86_64__)
static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

static const isa_choice choices[] = {
#if defined(__x86_64__)
    {"avx512", ls__cpu_kernels_avx512, has_avx512},
    {"avx2", ls__cpu_kernels_avx2, has_avx2},
#endif
    {"base", ls__cpu_kernels_base, always},
};

static const isa_choice *choose(const char *isa) {
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if ((isa == NULL || strcmp(isa, choices[i].name) == 0) && choices[i].supported())
            return &choices[i];
    return NULL;
}

const char *ls_kernel_isa(const char *wish) {
    const isa_choice *choice = choose(wish);
    return choice == NULL ? NULL : choice->name;
}

const ls_kernel *ls__kernel_find(const char *isa, const char *op) {
    const isa_choice *choice = choose(isa);
    if (choice == NULL) return NULL;
    for (size_t i = 0; choice->tables[i] != NULL; i++)
        for (const ls_kernel *kernel = choice->tables[i]; kernel->op != NULL; kernel++)
            if (strcmp(kernel->op, op) == 0) return kernel;
    return NULL;
}

ls_device *ls__device_of(const ls_ctx *ctx, ls_dtype type) {
    bool reference = type == LS_F64 && ctx->device != NULL && ctx->device->shared;
    return reference ? NULL : ctx->device;
}

const ls_kernel *ls__kernel_of(const ls_ctx *ctx, ls_dtype type, const char *op) {
    ls_device *device = ls__device_of(ctx, type);
    if (device != NULL) return device->kernel(device, op);
    /* the reference is one: f64 never depends on the processor's kind */
    return ls__kernel_find(type == LS_F64 ? "base" : ctx->isa, op);
}

const ls_kernel *ls_kernel_at(size_t index) {
    const isa_choice *choice = choose("base");
    for (size_t i = 0; choice->tables[i] != NULL; i++)
        for (const ls_kernel *kernel = choice->tables[i]; kernel->op != NULL; kernel++)
            if (index-- == 0) return kernel;
    return NULL;
}
