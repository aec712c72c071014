/* Kernels: what an operation does on a device. An operation's node looks its kernel up by name
 * once, when its program is planned; running a program is calling these functions in order. */
#ifndef LS_TENSOR_KERNEL_H
#define LS_TENSOR_KERNEL_H

#include "tensor/engine/dtype.h"

typedef struct ls_run ls_run;   /* what holds while a program runs: see program.h */
typedef struct ls_node ls_node; /* one recorded operation: see program.h */

typedef void (*ls_kernel_fn)(const ls_run *run, const ls_node *node);

typedef struct ls_kernel {
    const char *op;                      /* the operation's name; NULL ends a table */
    ls_kernel_fn by_type[LS_REAL_TYPES]; /* by the program's compute type: f64, f32, bf16 */
    size_t (*workspace)(const ls_node *node, int threads); /* scratch bytes, or NULL for none */
} ls_kernel;

/* The instruction set whose kernels run: `wish` where this processor has it (NULL: the best); NULL
 * where it has not. */
const char *ls_kernel_isa(const char *wish);
/* The kernels of this build one after the other, for listings; NULL after the last. */
const ls_kernel *ls_kernel_at(size_t index);

/* Each file NAME_cpu.c is compiled once per instruction set; LS_ISA_SYMBOL keeps the copies
 * apart. A file defines one table: const ls_kernel LS_CPU_TABLE(rmsnorm)[] = {..., {0}}; */
#ifdef LS_ISA
#define LS_ISA_PASTE2(name, isa) name##_##isa
#define LS_ISA_PASTE(name, isa) LS_ISA_PASTE2(name, isa)
#define LS_ISA_SYMBOL(name) LS_ISA_PASTE(name, LS_ISA)
#define LS_CPU_TABLE(name) LS_ISA_SYMBOL(ls__cpu_##name)
#endif

/* A kernel that is written once for several types, NAME_typed(run, node, type), becomes a function
 * for each, NAME_f32 and so on: the fast types, or all of them. */
#define LS_KERNEL_FOR(name, suffix, type)                                                          \
    static void name##_##suffix(const ls_run *run, const ls_node *node) {                          \
        name##_typed(run, node, type);                                                             \
    }
#define LS_KERNEL_FAST(name)                                                                       \
    LS_KERNEL_FOR(name, f32, LS_F32)                                                               \
    LS_KERNEL_FOR(name, bf16, LS_BF16)
#define LS_KERNEL_ALL(name)                                                                        \
    LS_KERNEL_FOR(name, f64, LS_F64)                                                               \
    LS_KERNEL_FAST(name)
/* The three of them in a table. */
#define LS_KERNEL_BY_TYPE(name)                                                                    \
    { name##_f64, name##_f32, name##_bf16 }

#endif
