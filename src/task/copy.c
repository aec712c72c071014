/* Copying as RMT tests it: symbols, a mark, and the symbols twice. */
#include "task/recital.h"

enum { TIMES = 2 }; /* said again */

static const ls_option options[] = {LS_RECITAL_OPTIONS};

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    return ls_recital_check(ctx, "copy", length, TIMES);
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return ls_recital_mark(length, TIMES);
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    ls_recital_fill(given, key, length, TIMES, false, inputs, targets);
}

const ls_task_type ls_task_copy = {
    .name = "copy",
    .summary = "symbols, a mark, then the symbols twice",
    .paper = "Bulatov et al. 2022 (RMT)",
    .options = LS_OPTIONS(options, ls_recital),
    .length = 72, /* of 24 symbols */
    .vocabulary = ls_recital_vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
