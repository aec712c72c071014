/* Passkey retrieval: a number stands somewhere in filler, said twice behind a mark each time; at
 * the end it is asked for, digit by digit. Digits are 0 to 9; then come the mark, the question and
 * the filler. The last digit of the answer is only predicted. */
#include <math.h>

#include "task/task.h"

typedef struct passkey_options {
    int64_t digits, filler;
    double depth;
    bool random_fill;
} passkey_options;
#define FIELD(name) passkey_options, name
static const ls_option options[] = {
    LS_INT("digits", FIELD(digits), "5", 1, 1 << 20,
           "Digits of the number; of several the first is not 0."),
    LS_INT("filler", FIELD(filler), "16", 1, 1 << 24, "Different filler tokens."),
    LS_BOOL("random_fill", FIELD(random_fill), "false",
            "Whether filler tokens are random; false: they come in turn, as copies of one "
            "sentence."),
    LS_REAL("depth", FIELD(depth), "-1", -1, 1,
            "Share of the filler that stands before the number; negative: any, each place as "
            "likely."),
};

enum { MARK = 10, QUESTION, FIRST_FILLER, TOLD = 2 /* times */ };

static int64_t vocabulary(const void *given) {
    return FIRST_FILLER + ((const passkey_options *)given)->filler;
}

/* Tokens that tell the number, and those of question and answer. */
static int64_t told(const passkey_options *o) {
    return TOLD * (1 + o->digits);
}
static int64_t asked(const passkey_options *o) {
    return o->digits;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const passkey_options *o = given;
    const int64_t shortest = told(o) + asked(o);
    if (length < shortest)
        return LS_FAIL(ctx, LS_EUSE,
                       "task passkey of %lld digits needs a length of at least %lld, not %lld",
                       (long long)o->digits, (long long)shortest, (long long)length);
    return LS_OK;
}

static int64_t first_answer(const void *given, int64_t length) {
    return length - asked(given);
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const passkey_options *o = given;
    const int64_t room = length - told(o) - asked(o), question = length - asked(o);
    const ls_random digits = ls_task_stream(key, "digits"), fill = ls_task_stream(key, "filler");
    const int64_t place =
        o->depth < 0 ? (int64_t)ls_random_below(ls_task_stream(key, "place"), 0, (uint64_t)room + 1)
                     : (int64_t)floor(o->depth * (double)room + 0.5);
    if (o->random_fill) ls_task_tokens(fill, o->filler, question, inputs);
    for (int64_t t = 0; t < question; t++) {
        const int64_t turn = t < place ? t : t - told(o); /* the filler goes on behind the number */
        inputs[t] = FIRST_FILLER + (o->random_fill ? inputs[t] : (int32_t)(turn % o->filler));
    }
    inputs[question] = QUESTION;
    for (int64_t i = 0; i < o->digits; i++) {
        const int lowest = i == 0 && o->digits > 1;
        const int32_t digit =
            lowest + (int32_t)ls_random_below(digits, (uint64_t)i, (uint64_t)(MARK - lowest));
        for (int64_t again = 0; again < TOLD; again++) {
            int32_t *sentence = inputs + place + again * (1 + o->digits);
            sentence[0] = MARK;
            sentence[1 + i] = digit;
        }
        targets[question + i] = digit;
        if (i + 1 < o->digits) inputs[question + 1 + i] = digit;
    }
}

const ls_task_type ls_task_passkey = {
    .name = "passkey",
    .summary = "a number that was told once somewhere in filler",
    .paper = "Mohtashami & Jaggi 2023 (Landmark); Chen et al. 2023 (PI)",
    .options = LS_OPTIONS(options, passkey_options),
    .length = 256, /* the sources give words, not tokens of this kind */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
