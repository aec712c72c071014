#include "cli/machine.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "tensor/ops.h"

double ls_machine_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int64_t ls_machine_peak_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * INT64_C(1024) : 0;
}

static void processor_name(char *out, size_t bytes) {
    snprintf(out, bytes, "unknown");
#if defined(__x86_64__)
    unsigned words[12];
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                         &words[4 * i + 3]))
            return;
    char text[sizeof words + 1] = "";
    memcpy(text, words, sizeof words);
    snprintf(out, bytes, "%s", text + strspn(text, " "));
#endif
}

void ls_machine_describe(ls_machine *out) {
    *out = (ls_machine){0};
    processor_name(out->name, sizeof out->name);
#if defined(__x86_64__)
    out->avx2 = __builtin_cpu_supports("avx2");
    out->avx512 = __builtin_cpu_supports("avx512f");
    out->avx512_bf16 = __builtin_cpu_supports("avx512bf16");
    unsigned a, b, c, d;
    out->amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1u) && (d >> 24 & 1u);
#endif
#ifdef LS_HAVE_ONEDNN
    out->onednn = "found";
#else
    out->onednn = "not built in";
#endif
    out->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

/* A program of one large product, run until half a second is over; the best run counts. */
ls_status ls_machine_peak(ls_ctx *ctx, ls_dtype type, double *out) {
    enum { SIZE = 1024, ROWS = 2048 };
    const double least_seconds = 0.5;
    ls_parameters *store = NULL;
    ls_program *program = NULL;
    const ls_program_options options = {.type = type, .batch = 1, .length = ROWS};
    *out = 0;
    ls_status status;
    LS_TRY_GOTO(ls_parameters_new(ctx, type, &store));
    /* twice: the first recording declares the weight */
    for (int pass = 0; pass < 2; pass++) {
        ls_program_free(program);
        program = NULL;
        LS_TRY_GOTO(ls_program_new(ctx, &options, store, &program));
        ls_tensor *x = ls_input(program, "x", type, LS_DIMS(1, ROWS, SIZE), false);
        ls_tensor *weight = ls_param(program, "weight", LS_DIMS(SIZE, SIZE), ls_init_normal(0.02));
        ls_keep(program, "y", ls_linear(program, x, weight, NULL));
        if (pass == 0) LS_TRY_GOTO(ls_parameters_seal(store, 1, false));
    }
    LS_TRY_GOTO(ls_program_finish(program));
    const ls_tensor *x = ls_program_find(program, "x");
    memset(ls_data(x), 0, (size_t)ls_count(x) * ls_dtype_size(type));
    double began = ls_machine_seconds(), best = 1e9;
    for (int run = 0; run < 3 || ls_machine_seconds() - began < least_seconds; run++) {
        double start = ls_machine_seconds();
        LS_TRY_GOTO(ls_program_run(program, NULL, 0, 0));
        double seconds = ls_machine_seconds() - start;
        if (seconds < best) best = seconds;
    }
    *out = 2.0 * ROWS * SIZE * SIZE / best;
fail:
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

ls_status ls_machine_bandwidth(ls_ctx *ctx, double *out) {
    enum { LANES = 8 };
    const int64_t words = (int64_t)1 << 26; /* 512 MiB: far beyond any cache */
    uint64_t *buffer = ls_new(ctx, (size_t)words, sizeof *buffer);
    *out = 0;
    if (buffer == NULL) return LS_ENOMEM;
    memset(buffer, 1, (size_t)words * sizeof *buffer);
    uint64_t total = 0;
    double best = 1e9;
    for (int run = 0; run < 10; run++) {
        double start = ls_machine_seconds();
#pragma omp parallel for reduction(+ : total) num_threads(ctx->threads) schedule(static)
        for (int64_t i = 0; i < words / LANES; i++)
            for (int lane = 0; lane < LANES; lane++) total += buffer[i * LANES + lane];
        double seconds = ls_machine_seconds() - start;
        if (seconds < best) best = seconds;
    }
    ls_free(ctx, buffer);
    /* the sum is looked at, so that the reads cannot be left out */
    *out = total == 0 ? 0 : (double)words * sizeof *buffer / best;
    return LS_OK;
}
