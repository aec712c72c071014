/* Induction heads as H3 tests them: n random tokens with marks among them, each followed by the
 * same tokens; then a mark, after which they are to be copied. The length counts the mark at the
 * end and all of the copy but its last token, which is only predicted. */
#include "task/task.h"

typedef struct h3_induction_options {
    int64_t vocabulary, copy, triggers;
} h3_induction_options;
#define FIELD(name) h3_induction_options, name
static const ls_option options[] = {
    LS_INT("vocabulary", FIELD(vocabulary), "20", 3, 1 << 24,
           "Tokens; the last but one is the mark, the last is never used here."),
    LS_INT("copy", FIELD(copy), "1", 1, 1 << 20, "Tokens to copy."),
    LS_INT("triggers", FIELD(triggers), "1", 1, 1 << 20,
           "Marks at most; half of the samples have one, overlapping ones are left out."),
};

static int64_t vocabulary(const void *given) {
    return ((const h3_induction_options *)given)->vocabulary;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const h3_induction_options *o = given;
    if (length < 2 * o->copy + 2)
        return LS_FAIL(ctx, LS_EUSE, "task h3_induction needs a length of at least %lld, not %lld",
                       (long long)(2 * o->copy + 2), (long long)length);
    return LS_OK;
}

/* The smallest of the places drawn that lies beyond `after`; -1: none. */
static int64_t next_place(ls_random key, int64_t triggers, int64_t places, int64_t after) {
    int64_t best = -1;
    for (int64_t i = 0; i < triggers; i++) {
        int64_t place = (int64_t)ls_random_below(key, (uint64_t)i, (uint64_t)places);
        if (place > after && (best < 0 || place < best)) best = place;
    }
    return best;
}

static int64_t first_answer(const void *given, int64_t length) {
    return length - ((const h3_induction_options *)given)->copy;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const h3_induction_options *o = given;
    const int32_t mark = (int32_t)(o->vocabulary - 2);
    const int64_t n = length - o->copy;
    const ls_random places = ls_task_stream(key, "places");
    const bool single = ls_random_unit(ls_task_stream(key, "triggers"), 0) < 0.5;
    const int64_t triggers = single ? 1 : o->triggers;
    ls_task_tokens(ls_task_stream(key, "tokens"), mark, n, inputs);
    const int64_t first = next_place(places, triggers, n - 1 - o->copy, -1);
    for (int64_t at = first; at >= 0;
         at = next_place(places, triggers, n - 1 - o->copy, at + o->copy)) {
        inputs[at] = mark;
        for (int64_t i = 1; i <= o->copy; i++) inputs[at + i] = inputs[first + i];
    }
    inputs[n] = mark;
    for (int64_t i = 0; i < o->copy; i++) {
        targets[n + i] = inputs[first + 1 + i];
        if (i + 1 < o->copy) inputs[n + 1 + i] = targets[n + i];
    }
}

const ls_task_type ls_task_h3_induction = {
    .name = "h3_induction",
    .summary = "the tokens that followed the mark among n random tokens",
    .paper = "Fu et al. 2022 (H3); Poli et al. 2023 (Hyena, safari)",
    .options = LS_OPTIONS(options, h3_induction_options),
    .length = 31, /* 30 tokens and the mark */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
