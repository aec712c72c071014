/* Perceiver AR's mirrored copy: symbols, then the same backwards, behind a token that begins them.
 * 0 begins, the symbols follow it. */
#include "task/task.h"

typedef struct mirror_options {
    int64_t symbols;
} mirror_options;

#define FIELD(name) mirror_options, name
static const ls_option options[] = {
    LS_INT("symbols", FIELD(symbols), "256", 2, 1 << 24,
           "Different symbols; 0 begins a sample besides."),
};

enum { START, FIRST };

static int64_t vocabulary(const void *given) {
    return FIRST + ((const mirror_options *)given)->symbols;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    if (length < 2)
        return LS_FAIL(ctx, LS_EUSE, "task mirrored_copy needs a length of at least 2, not %lld",
                       (long long)length);
    return LS_OK;
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return length - length / 2;
}

/* The last symbol is only predicted; a token too many at an odd length is one more that begins. */
static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const mirror_options *o = given;
    const int64_t n = length / 2, start = 1 + length % 2;
    int32_t *symbols = inputs + start;
    for (int64_t t = 0; t < start; t++) inputs[t] = START;
    ls_task_tokens(ls_task_stream(key, "symbols"), o->symbols, n, symbols);
    for (int64_t i = 0; i < n; i++) symbols[i] += FIRST;
    for (int64_t i = 0; i < n; i++) {
        const int64_t before = start + n - 1 + i; /* predicts the i-th of the second half */
        targets[before] = symbols[n - 1 - i];
        if (before + 1 < length) inputs[before + 1] = targets[before];
    }
}

const ls_task_type ls_task_mirrored_copy = {
    .name = "mirrored_copy",
    .summary = "symbols, then the symbols backwards, without a mark between them",
    .paper = "Hawthorne et al. 2022 (Perceiver AR)",
    .options = LS_OPTIONS(options, mirror_options),
    .length = 32, /* of 16 symbols */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
