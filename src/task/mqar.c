/* Multi-query associative recall: pairs of a key and a value, all different, then every key once
 * more, at gaps that follow a power law; where a key stands again, its value is the answer. */
#include <math.h>

#include "task/task.h"

typedef struct mqar_options {
    int64_t vocabulary, pairs, passes;
    double power;
    bool random_fill;
} mqar_options;
#define FIELD(name) mqar_options, name
static const ls_option options[] = {
    LS_INT("vocabulary", FIELD(vocabulary), "8192", 4, 1 << 24,
           "Tokens; 0 fills, the rest of the first half are keys, the second half are values."),
    LS_INT("pairs", FIELD(pairs), "8", 1, 1 << 22, "Pairs, and questions."),
    LS_INT("passes", FIELD(passes), "1", 1, 1024,
           "Times that the pairs are shown before the questions."),
    LS_REAL("power", FIELD(power), "0.01", 0, 1,
            "Exponent of the weights i^(power - 1) of the slots for questions; 1: all the same."),
    LS_BOOL("random_fill", FIELD(random_fill), "true",
            "Whether what is neither pair nor question is a random token; false: 0."),
};

static int64_t vocabulary(const void *given) {
    return ((const mqar_options *)given)->vocabulary;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const mqar_options *o = given;
    const int64_t keys = o->vocabulary / 2 - 1, shortest = 2 * o->pairs * (o->passes + 1);
    if (o->pairs > keys)
        return LS_FAIL(ctx, LS_EUSE, "task mqar has %lld keys in a vocabulary of %lld, not %lld",
                       (long long)keys, (long long)o->vocabulary, (long long)o->pairs);
    if (length < shortest || length % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "task mqar with %lld pairs needs an even length of at least %lld, not %lld",
                       (long long)o->pairs, (long long)shortest, (long long)length);
    return LS_OK;
}

/* Sums of x^-s as integrals, and back. */
static double area(double s, double x) {
    return s == 1 ? log(x) : (pow(x, 1 - s) - 1) / (1 - s);
}
static double area_inverse(double s, double y) {
    return s == 1 ? exp(y) : pow(1 + (1 - s) * y, 1 / (1 - s));
}

/* One of 1..count with weight i^-s, exactly: rejection-inversion (Hoermann & Derflinger 1996). The
 * area about i is at least its weight, of which the rest is rejected. */
static int64_t draw_slot(ls_random key, uint64_t *draw, double s, int64_t count) {
    const double low = area(s, 1.5) - 1, high = area(s, (double)count + 0.5);
    for (;;) {
        double y = low + (high - low) * ls_random_unit(key, (*draw)++);
        int64_t slot = ls_max(1, ls_min(count, (int64_t)floor(area_inverse(s, y) + 0.5)));
        if (y >= area(s, (double)slot + 0.5) - pow((double)slot, -s)) return slot;
    }
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const mqar_options *o = given;
    const int64_t half = o->vocabulary / 2, context = 2 * o->pairs * o->passes;
    const ls_random keys = ls_task_stream(key, "keys"), values = ls_task_stream(key, "values");
    const ls_random slots = ls_task_stream(key, "slots"), rest = ls_task_stream(key, "fill");
    uint64_t draw = 0;
    for (int64_t t = context; t < length; t++) inputs[t] = 0;
    for (int64_t i = 0; i < o->pairs; i++) {
        const int32_t name =
            1 + (int32_t)ls_random_permute(keys, (uint64_t)i, (uint64_t)(half - 1));
        const int32_t value =
            (int32_t)(half + (int64_t)ls_random_permute(values, (uint64_t)i,
                                                        (uint64_t)(o->vocabulary - half)));
        for (int64_t pass = 0; pass < o->passes; pass++) {
            inputs[2 * (pass * o->pairs + i)] = name;
            inputs[2 * (pass * o->pairs + i) + 1] = value;
        }
        /* no key is 0: a slot that holds one is taken */
        int64_t at;
        do at = context + 2 * (draw_slot(slots, &draw, 1 - o->power, (length - context) / 2) - 1);
        while (inputs[at] != 0);
        inputs[at] = name;
        targets[at] = value;
    }
    for (int64_t t = context; o->random_fill && t < length; t++)
        if (inputs[t] == 0)
            inputs[t] = (int32_t)ls_random_below(rest, (uint64_t)t, (uint64_t)o->vocabulary);
}

const ls_task_type ls_task_mqar = {
    .name = "mqar",
    .summary = "multi-query associative recall: every key's value, at gaps of a power law",
    .paper = "Arora et al. 2023 (Zoology)",
    .options = LS_OPTIONS(options, mqar_options),
    .length = 64,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
