#include "tensor/engine/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "base/clock.h"
#include "tensor/engine/device.h"
#include "tensor/ops.h"

int64_t ls_machine_peak_bytes(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_maxrss * INT64_C(1024) : 0;
}

#if defined(__x86_64__)

static void processor_name(char *out, size_t bytes) {
    unsigned words[12];
    snprintf(out, bytes, "unknown");
    for (unsigned i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                         &words[4 * i + 3]))
            return;
    char text[sizeof words + 1] = "";
    memcpy(text, words, sizeof words);
    snprintf(out, bytes, "%s", text + strspn(text, " "));
}

static void instructions(char *out, size_t bytes) {
    unsigned a, b, c, d;
    bool amx = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1u) && (d >> 24 & 1u);
    snprintf(out, bytes, "%s%s%s%s", __builtin_cpu_supports("avx2") ? "AVX2 " : "",
             __builtin_cpu_supports("avx512f") ? "AVX-512 " : "",
             __builtin_cpu_supports("avx512bf16") ? "AVX-512-BF16 " : "", amx ? "AMX " : "");
}

#elif defined(__aarch64__) && defined(__linux__)

/* A number that /proc/cpuinfo gives for the first processor, or 0. */
static unsigned cpuinfo_number(const char *key) {
    unsigned number = 0;
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (file == NULL) return 0;
    while (number == 0 && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon != NULL && strncmp(line, key, strlen(key)) == 0)
            number = (unsigned)strtoul(colon + 1, NULL, 0);
    }
    fclose(file);
    return number;
}

static void processor_name(char *out, size_t bytes) {
    static const struct {
        unsigned part;
        const char *name;
    } known[] = {{0xd03, "Cortex-A53"},  {0xd08, "Cortex-A72"},  {0xd0b, "Cortex-A76"},
                 {0xd0c, "Neoverse N1"}, {0xd40, "Neoverse V1"}, {0xd49, "Neoverse N2"},
                 {0xd4f, "Neoverse V2"}, {0xd83, "Neoverse V3"}, {0xd8e, "Neoverse N3"}};
    const unsigned maker = cpuinfo_number("CPU implementer"), part = cpuinfo_number("CPU part");
    if (maker == 0 || part == 0)
        snprintf(out, bytes, "ARM, unknown");
    else
        snprintf(out, bytes, "ARM, implementer 0x%x, part 0x%x", maker, part);
    for (size_t i = 0; maker == 0x41 && i < sizeof known / sizeof known[0]; i++)
        if (known[i].part == part) snprintf(out, bytes, "ARM %s", known[i].name);
}

static void instructions(char *out, size_t bytes) {
    snprintf(out, bytes, "NEON %s", getauxval(AT_HWCAP2) & HWCAP2_BF16 ? "BF16 " : "");
}

#else

static void processor_name(char *out, size_t bytes) {
    snprintf(out, bytes, "unknown");
}

static void instructions(char *out, size_t bytes) {
    snprintf(out, bytes, "unknown ");
}

#endif

void ls_machine_describe(ls_machine *out) {
    *out = (ls_machine){0};
    processor_name(out->name, sizeof out->name);
    instructions(out->instructions, sizeof out->instructions);
    const size_t length = strlen(out->instructions);
    if (length > 0) out->instructions[length - 1] = '\0'; /* the space after the last */
#ifdef LS_HAVE_ONEDNN
    out->onednn = "found";
#else
    out->onednn = "not built in";
#endif
    struct utsname system;
    if (uname(&system) == 0) {
        snprintf(out->system, sizeof out->system, "%s", system.sysname);
        snprintf(out->release, sizeof out->release, "%s", system.release);
    }
    out->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

ls_status ls_machine_random(const ls_program *program, const ls_tensor *tensor, ls_random key) {
    ls_ctx *ctx = ls_program_ctx(program);
    int64_t count = ls_count(tensor);
    void *values = ls_new(ctx, (size_t)count, ls_dtype_size(tensor->type));
    if (values == NULL) return LS_ENOMEM;
    if (ctx->rehearsal) count = 0; /* the room is counted */
#pragma omp parallel for num_threads(ctx->threads)
    for (int64_t i = 0; i < count; i++) {
        double value = ls_random_unit(key, (uint64_t)i) - 0.5;
        if (tensor->type == LS_F64)
            ((double *)values)[i] = value;
        else if (tensor->type == LS_F32)
            ((float *)values)[i] = (float)value;
        else
            ((ls_bf16 *)values)[i] = ls_bf16_from_f32((float)value);
    }
    if (!ctx->rehearsal) ls_tensor_put(program, tensor, values);
    ls_free(ctx, values);
    return LS_OK;
}

/* Seconds of the best run of a program within half a second. */
static ls_status best_run(ls_program *program, double *best) {
    const double least_seconds = ls_program_ctx(program)->rehearsal ? 0 : 0.5;
    double began = ls_clock();
    *best = 1e9;
    for (int run = 0; run < 5 || ls_clock() - began < least_seconds; run++) {
        double start = ls_clock();
        LS_TRY(ls_program_run(program, NULL, 0, 0));
        LS_TRY(ls_device_settle(ls_program_ctx(program)));
        double seconds = ls_clock() - start;
        if (seconds < *best) *best = seconds;
    }
    return LS_OK;
}

/* One operation on an input of [1, rows, width], with its parameters. */
typedef struct probe {
    int64_t rows, width;
    bool random; /* the input's values matter for the speed */
    ls_tensor *(*record)(ls_program *p, ls_tensor *x);
} probe;

static ls_tensor *record_product(ls_program *p, ls_tensor *x) {
    int64_t width = x->dim[2];
    return ls_linear(
        p, x,
        ls_param(p, "weight", LS_DIMS(width, width), (ls_init){.kind = LS_INIT_UNIFORM, .a = 0.02}),
        NULL);
}

static ls_tensor *record_scaling(ls_program *p, ls_tensor *x) {
    return ls_times(p, x, 1.5);
}

static ls_status run_probe(ls_ctx *ctx, ls_dtype type, const probe *what, double *best) {
    ls_parameters *store = NULL;
    ls_program *program = NULL;
    const ls_program_options options = {.type = type, .batch = 1, .length = what->rows};
    ls_status status;
    LS_TRY_GOTO(ls_parameters_new(ctx, type, &store));
    /* twice: the first recording declares the parameters */
    for (int pass = 0; pass < 2; pass++) {
        ls_program_free(program);
        program = NULL;
        LS_TRY_GOTO(ls_program_new(ctx, &options, store, &program));
        ls_tensor *x = ls_input(program, "x", type, LS_DIMS(1, what->rows, what->width), false);
        ls_keep(program, "y", what->record(program, x));
        if (pass == 0) LS_TRY_GOTO(ls_parameters_seal(store, 1, false));
    }
    LS_TRY_GOTO(ls_program_finish(program));
    const ls_tensor *input = ls_program_find(program, "x");
    if (what->random) LS_TRY_GOTO(ls_machine_random(program, input, (ls_random){.seed = 1}));
    LS_TRY_GOTO(best_run(program, best));
fail:
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

/* One large product: large for what computes it, and no larger, as trainings of small models
 * measure it too and take less. */
ls_status ls_machine_peak(ls_ctx *ctx, ls_dtype type, double *out) {
    enum { EACH = 256, LEAST = 512, MOST = 2048 }; /* rows, for a thread and in all */
    probe product = {EACH * (int64_t)ctx->threads, 1024, true, record_product};
    double best;
    *out = 0;
    if (product.rows < LEAST) product.rows = LEAST;
    if (product.rows > MOST) product.rows = MOST;
    if (ctx->device != NULL) product.rows = product.width = 8192;
    LS_TRY(run_probe(ctx, type, &product, &best));
    *out = 2.0 * (double)product.rows * (double)product.width * (double)product.width / best;
    return LS_OK;
}

/* A device's memory is read and written by one pass over 1 GiB. */
static ls_status device_bandwidth(ls_ctx *ctx, double *out) {
    const probe scaling = {1 << 14, 1 << 15, false, record_scaling};
    double best;
    LS_TRY(run_probe(ctx, LS_BF16, &scaling, &best));
    *out = 2.0 * 2.0 * (double)(scaling.rows * scaling.width) / best;
    return LS_OK;
}

/* The sum of a piece's words, read as the kernels of decoding read: several streams at once, and
 * ahead. One stream alone takes longer. */
static uint64_t read_piece(const char *from, size_t bytes) {
    typedef uint64_t pair __attribute__((vector_size(16)));
    enum { STREAMS = 4, LINE = 64, AHEAD = 512 };
    const size_t part = bytes / STREAMS;
    pair total[STREAMS] = {{0}}, more;
    for (size_t i = 0; i < part; i += LINE)
        for (size_t s = 0; s < STREAMS; s++) {
            const char *line = from + s * part + i;
            __builtin_prefetch(line + AHEAD);
            for (size_t j = 0; j < LINE; j += sizeof more) {
                memcpy(&more, line + j, sizeof more);
                total[s] += more;
            }
        }
    for (size_t s = 1; s < STREAMS; s++) total[0] += total[s];
    return total[0][0] + total[0][1];
}

ls_status ls_machine_bandwidth(ls_ctx *ctx, double *out) {
    if (ctx->device != NULL) return device_bandwidth(ctx, out);
    const size_t bytes = (size_t)1 << 29, piece = (size_t)1 << 20; /* far beyond any cache */
    char *buffer = ls_new(ctx, bytes, 1);
    *out = 0;
    if (buffer == NULL) return LS_ENOMEM;
    memset(buffer, 1, bytes);
    uint64_t total = 0;
    double best = 1e9;
    for (int run = 0; run < 10; run++) {
        double start = ls_clock();
#pragma omp parallel for reduction(+ : total) num_threads(ctx->threads) schedule(static)
        for (size_t i = 0; i < bytes / piece; i++) total += read_piece(buffer + i * piece, piece);
        double seconds = ls_clock() - start;
        if (seconds < best) best = seconds;
    }
    ls_free(ctx, buffer);
    /* the sum is looked at, so that the reads cannot be left out */
    *out = total == 0 ? 0 : (double)bytes / best;
    return LS_OK;
}
