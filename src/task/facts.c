/* Facts in noise, after BABILong: "person went place" said here and there in filler, the same
 * person perhaps often; at the end "where person", to be answered with the last place. Filler
 * tokens come first, then `went`, `where`, the persons and the places. */
#include "task/task.h"

typedef struct facts_options {
    int64_t facts, persons, places, filler;
} facts_options;
#define FIELD(name) facts_options, name
static const ls_option options[] = {
    LS_INT("facts", FIELD(facts), "4", 1, 1 << 22, "Facts of a sample."),
    LS_INT("persons", FIELD(persons), "4", 1, 1 << 22, "Different persons."),
    LS_INT("places", FIELD(places), "6", 2, 1 << 22, "Different places."),
    LS_INT("filler", FIELD(filler), "16", 1, 1 << 22, "Different filler tokens, all as likely."),
};

enum { FACT = 3, QUESTION = 2 }; /* tokens of each */

static int32_t went(const facts_options *o) {
    return (int32_t)o->filler;
}
static int32_t where(const facts_options *o) {
    return went(o) + 1;
}
static int32_t person(const facts_options *o, int64_t number) {
    return where(o) + 1 + (int32_t)number;
}
static int32_t place(const facts_options *o, int64_t number) {
    return person(o, o->persons + number);
}

static int64_t vocabulary(const void *given) {
    const facts_options *o = given;
    return place(o, o->places);
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const facts_options *o = given;
    const int64_t shortest = FACT * o->facts + QUESTION;
    if (length < shortest)
        return LS_FAIL(ctx, LS_EUSE,
                       "task facts with %lld of them needs a length of at least %lld, not %lld",
                       (long long)o->facts, (long long)shortest, (long long)length);
    return LS_OK;
}

/* Who went in a fact. */
static int64_t who(const facts_options *o, ls_random key, int64_t fact) {
    return (int64_t)ls_random_below(ls_task_stream(key, "persons"), (uint64_t)fact,
                                    (uint64_t)o->persons);
}

/* One of the persons who went somewhere, each as likely: the first such of all in a random order.
 * Gives the last fact about that one. */
static int64_t last_fact(const facts_options *o, ls_random key) {
    const ls_random order = ls_task_stream(key, "question");
    for (uint64_t i = 0;; i++) {
        const int64_t asked = (int64_t)ls_random_permute(order, i, (uint64_t)o->persons);
        int64_t fact = o->facts - 1;
        while (fact >= 0 && who(o, key, fact) != asked) fact--;
        if (fact >= 0) return fact;
    }
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return length - 1;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const facts_options *o = given;
    const ls_random choice = ls_task_stream(key, "order"), places = ls_task_stream(key, "places");
    const int64_t asked = last_fact(o, key), end = length - QUESTION;
    int64_t units = end - (FACT - 1) * o->facts; /* facts and filler tokens still to come */
    ls_task_tokens(ls_task_stream(key, "filler"), o->filler, end, inputs);
    for (int64_t t = 0, fact = 0; fact < o->facts; units--) {
        /* each order of facts and filler is as likely: so many of those left are facts */
        if ((int64_t)ls_random_below(choice, (uint64_t)units, (uint64_t)units) >= o->facts - fact) {
            t++;
            continue;
        }
        inputs[t] = person(o, who(o, key, fact));
        inputs[t + 1] = went(o);
        inputs[t + 2] =
            place(o, (int64_t)ls_random_below(places, (uint64_t)fact, (uint64_t)o->places));
        if (fact == asked) targets[length - 1] = inputs[t + 2];
        t += FACT;
        fact++;
    }
    inputs[end] = where(o);
    inputs[end + 1] = person(o, who(o, key, asked));
}

const ls_task_type ls_task_facts = {
    .name = "facts",
    .summary = "the last place somebody went to, told among noise",
    .paper = "Kuratov et al. 2024 (BABILong); Weston et al. 2015 (bAbI)",
    .options = LS_OPTIONS(options, facts_options),
    .length = 512, /* a segment there */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
