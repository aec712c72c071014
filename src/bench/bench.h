/* Speed and memory of this build on this machine, beside what the machine allows and beside peers.
 */
#ifndef LS_BENCH_BENCH_H
#define LS_BENCH_BENCH_H

#include <jansson.h>
#include <signal.h>

#include "base/option.h"

typedef struct ls_bench_settings {
    char what[LS_OPTION_TEXT_BYTES]; /* names of parts, separated by commas */
    char peer[LS_OPTION_TEXT_BYTES], scripts[LS_OPTION_TEXT_BYTES];
    char llm_c[LS_OPTION_TEXT_BYTES], llama_cpp[LS_OPTION_TEXT_BYTES]; /* programs; empty: none */
    double patience; /* seconds for a run of them */
    char only[LS_OPTION_TEXT_BYTES];
    char out[LS_OPTION_TEXT_BYTES], compare[LS_OPTION_TEXT_BYTES]; /* files; empty: none */
    int dtype;                                                     /* ls_bench_dtype */
    bool add;                                                      /* to what `out` holds */
    bool recompute;
    int matmul; /* ls_train_matmul */
    int64_t rounds;
    double seconds;
    ls_ints lengths, depths, streams;
} ls_bench_settings;
typedef enum { LS_BENCH_BOTH, LS_BENCH_F32, LS_BENCH_BF16, LS_BENCH_FP8 } ls_bench_dtype;
extern const ls_option_table ls_bench_options;

typedef struct ls_bench_hooks {
    const volatile sig_atomic_t *stop; /* or NULL: not 0 ends the measurements with LS_ESTOP */
    /* or NULL: lines for people, a part at a time, each as soon as it has been measured */
    ls_status (*text)(void *user, const char *bytes, size_t length);
    /* or NULL: the table of the whole run, at its end */
    ls_status (*table)(void *user, const char *bytes, size_t length);
    void *user;
    double (*clock)(void);  /* or NULL: seconds, in place of the machine's */
    struct ls_ranks *ranks; /* for what=ranks, of which each calls this; or NULL */
} ls_bench_hooks;

/* Measures what the settings ask for on the context's threads or device. *out: a member for each
 * part, a new reference; NULL on failure. LS_EUSE where the settings name what there is not.
 * LS_EBAR where a row is slower than in the earlier result by more than its spread: *out is there
 * then too. */
ls_status ls_bench_run(ls_ctx *ctx, const ls_bench_settings *settings, const ls_bench_hooks *hooks,
                       json_t **out);

#endif
