/* Status codes and the context every fallible function takes.
 *
 * Every fallible function returns an ls_status; results leave through last pointer arguments.
 * The first failure writes one sentence into the caller's context; LS_TRY passes the code on.
 * The library never exits, aborts or prints. */
#ifndef LS_BASE_STATUS_H
#define LS_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* code, value, exit code of the program, sentence, what to do */
#define LS_STATUS_MAP(X)                                                                           \
    X(OK, 0, 0, "done", "nothing")                                                                 \
    X(EBAR, -1, 1, "a measurement failed its stated bar", "look at the figure that is named")      \
    X(EUSE, -2, 2, "wrong use", "see `longshot help`, and `longshot help VERB` for the keys")      \
    X(EINPUT, -3, 3, "bad input or data", "check the path, or mend the file that is named")        \
    X(ENOMEM, -4, 4, "out of memory", "use a smaller batch, length or model")                      \
    X(EIO, -5, 4, "a file could not be read or written", "check space, limits and permissions")    \
    X(ESTOP, -6, 75, "stopped on a signal, with what was done kept",                               \
      "run the same command to go on")                                                             \
    X(EBUG, -7, 70, "an internal promise was broken", "please report the command and the message") \
    X(ERANK, -8, 4, "another process of the job is gone", "run the same command to go on")

#define LS_STATUS_ENUM(name, value, exit_code, sentence, hint) LS_##name = (value),
typedef enum { LS_STATUS_MAP(LS_STATUS_ENUM) } ls_status;
#undef LS_STATUS_ENUM

typedef struct ls_error {
    ls_status code;
    char message[512];
    const char *file; /* where in the source it was first noticed */
    int line;
    /* Which option of the refusing function cannot be as it was given, by its field's name; NULL:
     * not said. Who set it from a recipe says which key that was. */
    const char *option;
} ls_error;

/* Memory comes from here, so that a caller can supply its own and a test can make the k-th
 * allocation fail. */
typedef struct ls_allocator {
    void *(*take)(void *user, size_t bytes); /* 64-byte aligned, or NULL */
    void (*give)(void *user, void *pointer);
    void *user;
    bool cleared; /* what `take` gives is all zeros */
} ls_allocator;

typedef struct ls_ctx {
    ls_allocator allocator;
    ls_error error;
    int threads;       /* worker threads of the kernels, at least 1 */
    int64_t team_work; /* floating-point operations: less than that one thread does alone */
    const char *isa;   /* kernels to use: base, avx2, avx512; NULL: the best this processor has */
    struct ls_device
        *device; /* where to compute: see tensor/engine/device.h; NULL: the processor */
    void (*log)(void *user, const char *line); /* progress and messages; may be NULL */
    void *log_user;
    /* The keys that whoever uses this context takes, as lists of sections (base/option.h);
     * NULL-ended, or NULL. An error about a key that there is not may name one of them. */
    const struct ls_section *const *sections;
    int64_t allocations;      /* made so far: lets a test prove that a loop makes none */
    const volatile int *stop; /* a sig_atomic_t, or NULL: see ls_check_stop */
    /* Everything is prepared as for work, and no program computes: what a work would take is then
     * known without doing it (base/meter.h). */
    bool rehearsal;
} ls_ctx;

/* Waking threads and waiting for them takes longer than they save below this: about 20 microseconds
 * of a product with one row. */
enum { LS_TEAM_WORK = 1 << 18 };

/* A context on the C library's allocator, with as many threads as there are processors (or as
 * OMP_NUM_THREADS says), which share work from LS_TEAM_WORK on (or as LONGSHOT_TEAM_WORK says:
 * tests share the smallest). */
ls_ctx ls_ctx_default(void);

const char *ls_status_name(ls_status code);
const char *ls_status_sentence(ls_status code);
const char *ls_status_hint(ls_status code);
int ls_status_exit_code(ls_status code);

/* LS_ESTOP once a signal has asked for the end. For work that takes long and has nothing to keep,
 * such as reading a corpus: asked at least every tenth of a second there. */
ls_status ls_check_stop(ls_ctx *ctx, const char *what);

ls_status ls_fail_at(ls_ctx *ctx, const char *file, int line, ls_status code, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
/* Adds to the sentence of a failure what its caller alone knows. */
void ls_fail_add(ls_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define LS_FAIL(ctx, code, ...) ls_fail_at((ctx), __FILE__, __LINE__, (code), __VA_ARGS__)

#define LS_TRY(expression)                                                                         \
    do {                                                                                           \
        ls_status ls_try_status_ = (expression);                                                   \
        if (ls_try_status_ != LS_OK) return ls_try_status_;                                        \
    } while (0)

/* The same, leaving through the function's `fail:` label with `status` set. */
#define LS_TRY_GOTO(expression)                                                                    \
    do {                                                                                           \
        status = (expression);                                                                     \
        if (status != LS_OK) goto fail;                                                            \
    } while (0)

void ls_say(const ls_ctx *ctx, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
