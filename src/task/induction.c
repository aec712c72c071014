/* Induction heads as Mamba tests them: a mark stands once among random tokens and again at the end;
 * the answer is the token that followed it. */
#include "task/task.h"

typedef struct induction_options {
    int64_t vocabulary;
} induction_options;
#define FIELD(name) induction_options, name
static const ls_option options[] = {
    LS_INT("vocabulary", FIELD(vocabulary), "16", 2, 1 << 24,
           "Tokens; the last of them is the mark."),
};

enum { SHORTEST = 3 }; /* the mark, what follows it, the mark again */

static int64_t vocabulary(const void *given) {
    return ((const induction_options *)given)->vocabulary;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    (void)given;
    if (length < SHORTEST)
        return LS_FAIL(ctx, LS_EUSE, "task induction needs a length of at least %d, not %lld",
                       SHORTEST, (long long)length);
    return LS_OK;
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return length - 1;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const int32_t mark = (int32_t)(vocabulary(given) - 1);
    /* the place is uniform over all that there are, or it could be learnt */
    int64_t place =
        (int64_t)ls_random_below(ls_task_stream(key, "place"), 0, (uint64_t)(length - 2));
    ls_task_tokens(ls_task_stream(key, "tokens"), mark, length, inputs);
    inputs[place] = inputs[length - 1] = mark;
    targets[length - 1] = inputs[place + 1];
}

const ls_task_type ls_task_induction = {
    .name = "induction",
    .summary = "the token that followed the mark when it stood there before",
    .paper = "Gu & Dao 2023 (Mamba), appendix E.1",
    .options = LS_OPTIONS(options, induction_options),
    .length = 256,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
