/* Needles as the suite `needle` hides them: sentences that tell a number, in noise, each asked for
 * at the end by its own beginning. Scored are the numbers. A sample of several rounds has as many
 * such texts one after the other: more is asked, over shorter distances. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "task/lib/writing.h"

typedef struct needle_options {
    int64_t needles, digits, rounds;
    double depth;
} needle_options;
#define FIELD(name) needle_options, name
enum { TEXT = 128, NEEDLES = 64, ROUNDS = 16, KEY_MAX = 17 };
static const ls_option options[] = {
    LS_INT("needles", FIELD(needles), "4", 1, 64,
           "Needles at most: each number from 1 on is as likely, as far as the length allows."),
    LS_INT("digits", FIELD(digits), "5", 1, 32, "Digits of a number."),
    LS_REAL("depth", FIELD(depth), "-1", -1, 1,
            "Share of the noise that stands before the needles; negative: any, for each its own."),
    LS_INT(
        "rounds", FIELD(rounds), "1", 1, ROUNDS,
        "Texts of a sample at most, each with its needles and questions: each number from 1 on is "
        "as likely, as far as the length allows."),
};

static const char saying[] = " The special magic number for %s is";

static int64_t vocabulary(const void *given) {
    (void)given;
    return 256;
}

/* What the longest needle and its question take. */
static int64_t most_bytes(const needle_options *o) {
    return 2 * ((int64_t)strlen(saying) + KEY_MAX + o->digits);
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const int64_t most = most_bytes(given);
    if (length < most)
        return LS_FAIL(ctx, LS_EUSE, "task text_needle needs a length of at least %lld, not %lld",
                       (long long)most, (long long)length);
    return LS_OK;
}

typedef struct hidden {
    char beginning[TEXT], number[TEXT];
    int64_t place; /* in the noise */
} hidden;

static void hide(const needle_options *o, ls_random key, int64_t i, hidden *out) {
    char name[TEXT / 2];
    const ls_random names = ls_task_stream(key, "names");
    ls_word_pair(ls_random_permute(names, (uint64_t)i, LS_WORD_PAIRS), name, sizeof name);
    snprintf(out->beginning, sizeof out->beginning, saying, name);
    out->number[0] = ' ';
    ls_write_digits(ls_task_stream(key, "numbers"), (uint64_t)i, o->digits, false, out->number + 1);
}

/* With its full stop. */
static int64_t bytes_of(const hidden *one) {
    return (int64_t)(strlen(one->beginning) + strlen(one->number)) + 1;
}

/* The noise, sentence after sentence on lines of their own. */
static char noise_at(int64_t at) {
    const int64_t period = (int64_t)strlen(ls_noise_sentence) + 1;
    return at % period == period - 1 ? '\n' : ls_noise_sentence[at % period];
}

/* Needles follow full stops, or come first. */
static int64_t place_of(const needle_options *o, ls_random key, int64_t i, int64_t noise) {
    int64_t at = o->depth < 0 ? (int64_t)ls_random_below(ls_task_stream(key, "places"), (uint64_t)i,
                                                         (uint64_t)noise + 1)
                              : (int64_t)floor(o->depth * (double)noise + 0.5);
    while (at > 0 && noise_at(at - 1) != '.') at--;
    return at;
}

static void put(const hidden *one, bool scored, ls_writing *w) {
    ls_write_text(w, one->beginning, false);
    ls_write_text(w, one->number, scored);
    ls_write_text(w, ".", false);
}

/* A round of so many bytes, which ends with a full stop. */
static void put_round(const needle_options *o, ls_random key, int64_t round, int64_t bytes,
                      ls_writing *w) {
    hidden all[NEEDLES];
    const int64_t first = round * NEEDLES; /* its indices among the random numbers */
    const int64_t wanted = 1 + (int64_t)ls_random_below(ls_task_stream(key, "count"),
                                                        (uint64_t)round, (uint64_t)o->needles);
    int64_t count = 0, noise = bytes;
    for (; count < wanted; count++) {
        hide(o, key, first + count, &all[count]);
        if (noise < 2 * bytes_of(&all[count])) break;
        noise -= 2 * bytes_of(&all[count]);
    }
    for (int64_t i = 0; i < count; i++) all[i].place = place_of(o, key, first + i, noise);
    for (int64_t at = 0; at <= noise; at++) {
        for (int64_t i = 0; i < count; i++)
            if (all[i].place == at) put(&all[i], false, w);
        const char c = noise_at(at);
        if (at < noise) ls_write(w, &c, 1, false);
    }
    const ls_random order = ls_task_stream(key, "order");
    for (int64_t i = 0; i < count; i++)
        put(&all[ls_random_permute(order, (uint64_t)((i + round) % count), (uint64_t)count)], true,
            w);
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const needle_options *o = given;
    /* the full stop behind the last answer is left out */
    const int64_t bytes = length + 2;
    const int64_t most = ls_min(o->rounds, ls_max(1, bytes / (most_bytes(o) + 2)));
    const int64_t rounds =
        1 + (int64_t)ls_random_below(ls_task_stream(key, "rounds"), 0, (uint64_t)most);
    ls_writing w = {inputs, targets, length, 0};
    for (int64_t r = 0; r < rounds; r++)
        put_round(o, key, r, (r + 1) * bytes / rounds - r * bytes / rounds, &w);
}

const ls_task_type ls_task_text_needle = {
    .name = "text_needle",
    .summary = "numbers told somewhere in noise and asked for, as bytes of a text",
    .paper = "Kamradt 2023; Hsieh et al. 2024 (RULER)",
    .options = LS_OPTIONS(options, needle_options),
    .length = 512,
    .bytes = true,
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
};
