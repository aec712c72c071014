/* A text of random letters, said again and again. Scored is all that was said before. */
#include "task/lib/writing.h"

typedef struct copy_options {
    int64_t least;
} copy_options;
#define FIELD(name) copy_options, name
static const ls_option options[] = {
    LS_INT("least", FIELD(least), "8", 1, 1 << 20,
           "Letters of the shortest text; the longest is said twice."),
};

static int64_t vocabulary(const void *given) {
    (void)given;
    return 256;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const copy_options *o = given;
    if (length < 2 * o->least)
        return LS_FAIL(ctx, LS_EUSE, "task text_copy needs a length of at least %lld, not %lld",
                       (long long)(2 * o->least), (long long)length);
    return LS_OK;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz ";
    const copy_options *o = given;
    const ls_random text = ls_task_stream(key, "letters");
    const int64_t period =
        o->least + (int64_t)ls_random_below(ls_task_stream(key, "period"), 0,
                                            (uint64_t)(length / 2 - o->least) + 1);
    ls_writing w = {inputs, targets, length, 0};
    while (w.at <= length) {
        const uint64_t at = (uint64_t)(w.at % period);
        ls_write(&w, &letters[ls_random_below(text, at, sizeof letters - 1)], 1, w.at >= period);
    }
}

const ls_task_type ls_task_text_copy = {
    .name = "text_copy",
    .summary = "random letters said again and again, as bytes of a text",
    .paper = "Olsson et al. 2022 (repeated random tokens)",
    .options = LS_OPTIONS(options, copy_options),
    .length = 256,
    .bytes = true,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
