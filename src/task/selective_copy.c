/* Selective copying: data tokens scattered over noise, to be said again in their order at marks at
 * the end. Not scattered, at the start, it is the copying task. */
#include "task/task.h"

typedef struct copy_options {
    int64_t vocabulary, tokens;
    bool scattered;
} copy_options;
#define FIELD(name) copy_options, name
static const ls_option options[] = {
    LS_INT("vocabulary", FIELD(vocabulary), "16", 3, 1 << 24,
           "Tokens; 0 is noise, the last is the mark, those between are data."),
    LS_INT("tokens", FIELD(tokens), "16", 1, 1 << 24, "Data tokens to copy."),
    LS_BOOL("scattered", FIELD(scattered), "true",
            "Whether data are at random places among the noise; false: at the start, which is "
            "plain copying."),
};

static int64_t vocabulary(const void *given) {
    return ((const copy_options *)given)->vocabulary;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const copy_options *o = given;
    if (length < 2 * o->tokens)
        return LS_FAIL(ctx, LS_EUSE,
                       "task selective_copy of %lld tokens needs a length of at least %lld, not "
                       "%lld",
                       (long long)o->tokens, (long long)(2 * o->tokens), (long long)length);
    return LS_OK;
}

static int64_t first_answer(const void *given, int64_t length) {
    return length - ((const copy_options *)given)->tokens;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const copy_options *o = given;
    const int64_t places = length - o->tokens;
    const ls_random data = ls_task_stream(key, "data"), choice = ls_task_stream(key, "places");
    int64_t done = 0;
    for (int64_t t = 0; t < places; t++) {
        /* each set of places is as likely: so many of those left are still to be taken */
        bool taken = done < o->tokens;
        if (o->scattered && taken)
            taken = (int64_t)ls_random_below(choice, (uint64_t)t, (uint64_t)(places - t)) <
                    o->tokens - done;
        inputs[t] = 0;
        if (!taken) continue;
        inputs[t] = 1 + (int32_t)ls_random_below(data, (uint64_t)done, (uint64_t)o->vocabulary - 2);
        targets[places + done++] = inputs[t];
    }
    for (int64_t t = places; t < length; t++) inputs[t] = (int32_t)(o->vocabulary - 1);
}

const ls_task_type ls_task_selective_copy = {
    .name = "selective_copy",
    .summary = "data tokens scattered over noise, said again in order at the end",
    .paper = "Gu & Dao 2023 (Mamba), section 4.1.1; Arjovsky et al. 2016 for plain copying",
    .options = LS_OPTIONS(options, copy_options),
    .length = 4096,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
