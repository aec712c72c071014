/* Associative retrieval as RMT tests it: pairs of a letter and a digit, one of the letters, a mark;
 * the answer is its digit. 0 is padding, which stands before the pairs where there is room, 1 the
 * mark; then come the digits and the letters. */
#include "task/task.h"

typedef struct retrieval_options {
    int64_t pairs, letters, symbols;
} retrieval_options;
#define FIELD(name) retrieval_options, name
static const ls_option options[] = {
    LS_INT("pairs", FIELD(pairs), "4", 1, 1 << 22, "Pairs; their letters are different."),
    LS_INT("letters", FIELD(letters), "26", 1, 1 << 22, "Different letters."),
    LS_INT("symbols", FIELD(symbols), "10", 2, 1 << 22, "Different digits."),
};

enum { PADDING, MARK, FIRST_DIGIT, QUESTION = 2 /* tokens: a letter and the mark */ };

static int64_t first_letter(const retrieval_options *o) {
    return FIRST_DIGIT + o->symbols;
}

static int64_t vocabulary(const void *given) {
    const retrieval_options *o = given;
    return first_letter(o) + o->letters;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const retrieval_options *o = given;
    const int64_t shortest = 2 * o->pairs + QUESTION;
    if (o->pairs > o->letters)
        return LS_FAIL(ctx, LS_EUSE, "task retrieval has %lld letters, too few for %lld pairs",
                       (long long)o->letters, (long long)o->pairs);
    if (length < shortest)
        return LS_FAIL(ctx, LS_EUSE,
                       "task retrieval of %lld pairs needs a length of at least %lld, not %lld",
                       (long long)o->pairs, (long long)shortest, (long long)length);
    return LS_OK;
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return length - 1;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const retrieval_options *o = given;
    const int64_t start = length - 2 * o->pairs - QUESTION;
    const ls_random letters = ls_task_stream(key, "letters"),
                    digits = ls_task_stream(key, "digits");
    int32_t *pairs = inputs + start;
    for (int64_t t = 0; t < start; t++) inputs[t] = PADDING;
    for (int64_t i = 0; i < o->pairs; i++) {
        const uint64_t letter = ls_random_permute(letters, (uint64_t)i, (uint64_t)o->letters);
        const uint64_t digit = ls_random_below(digits, (uint64_t)i, (uint64_t)o->symbols);
        pairs[2 * i] = (int32_t)(first_letter(o) + (int64_t)letter);
        pairs[2 * i + 1] = FIRST_DIGIT + (int32_t)digit;
    }
    const uint64_t asked = ls_random_below(ls_task_stream(key, "question"), 0, (uint64_t)o->pairs);
    inputs[length - 2] = pairs[2 * asked];
    inputs[length - 1] = MARK;
    targets[length - 1] = pairs[2 * asked + 1];
}

const ls_task_type ls_task_retrieval = {
    .name = "retrieval",
    .summary = "the digit that stood beside a letter, asked at the end",
    .paper = "Bulatov et al. 2022 (RMT); Ba et al. 2016",
    .options = LS_OPTIONS(options, retrieval_options),
    .length = 10, /* four pairs, a letter and the mark */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
