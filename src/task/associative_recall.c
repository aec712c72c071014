/* Associative recall as H3 tests it: pairs of a key and the value that this sample gives it, then a
 * mark and one of the keys; the answer is its value. Keys are the first half of the ordinary
 * tokens (or several of them in a row), values the second. */
#include <string.h>

#include "task/task.h"

typedef struct recall_options {
    int64_t vocabulary, key_tokens;
    bool absent;
} recall_options;
#define FIELD(name) recall_options, name
static const ls_option options[] = {
    LS_INT("vocabulary", FIELD(vocabulary), "10", 4, 1 << 24,
           "Tokens; the last but one is the mark, the last says that there is no answer."),
    LS_INT("key_tokens", FIELD(key_tokens), "1", 1, 8, "Tokens of a key."),
    LS_BOOL("absent", FIELD(absent), "false",
            "Whether keys that did not occur are asked for too: then the last token is the "
            "answer."),
};

enum { KEYS_MAX = 1 << 30 };

static int64_t vocabulary(const void *given) {
    return ((const recall_options *)given)->vocabulary;
}

static int64_t key_alphabet(const recall_options *o) {
    return (o->vocabulary - 2) / 2;
}

/* Different keys; KEYS_MAX + 1 where there are more than that. */
static int64_t key_count(const recall_options *o) {
    int64_t count = 1;
    for (int64_t i = 0; i < o->key_tokens; i++)
        count = ls_min(count * key_alphabet(o), (int64_t)KEYS_MAX + 1);
    return count;
}

static ls_status check(ls_ctx *ctx, const void *given, int64_t length) {
    const recall_options *o = given;
    const int64_t step = o->key_tokens + 1;
    if (length < 2 * step || length % step != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "task associative_recall needs a length of at least %lld that %lld divides, "
                       "not %lld",
                       (long long)(2 * step), (long long)step, (long long)length);
    if (key_count(o) > KEYS_MAX)
        return LS_FAIL(ctx, LS_EUSE, "task associative_recall has too many keys of %lld tokens",
                       (long long)o->key_tokens);
    return LS_OK;
}

static void put_key(const recall_options *o, int64_t number, int32_t *tokens) {
    for (int64_t i = o->key_tokens - 1; i >= 0; i--, number /= key_alphabet(o))
        tokens[i] = (int32_t)(number % key_alphabet(o));
}

static int32_t value_of(const recall_options *o, ls_random key, int64_t number) {
    const int64_t first = key_alphabet(o), values = o->vocabulary - 2 - first;
    return (int32_t)(first + (int64_t)ls_random_below(ls_task_stream(key, "values"),
                                                      (uint64_t)number, (uint64_t)values));
}

/* The key of a pair. */
static int64_t key_at(const recall_options *o, ls_random key, int64_t pair) {
    return (int64_t)ls_random_below(ls_task_stream(key, "keys"), (uint64_t)pair,
                                    (uint64_t)key_count(o));
}

/* The first pair that has the key; `pairs` where none has. */
static int64_t first_pair(const recall_options *o, const int32_t *tokens, int64_t pairs,
                          int64_t number) {
    int32_t wanted[8];
    const size_t bytes = (size_t)o->key_tokens * sizeof *wanted;
    int64_t pair = 0;
    put_key(o, number, wanted);
    while (pair < pairs && memcmp(tokens + pair * (o->key_tokens + 1), wanted, bytes) != 0) pair++;
    return pair;
}

/* One of the keys that occurred, each as likely: draws among all keys where they are few, among the
 * pairs otherwise, until one counts; so no list of them is needed. */
static int64_t ask(const recall_options *o, ls_random key, const int32_t *tokens, int64_t pairs) {
    const ls_random draws = ls_task_stream(key, "question");
    const int64_t keys = key_count(o);
    if (o->absent) return (int64_t)ls_random_below(draws, 0, (uint64_t)keys);
    for (uint64_t draw = 0;; draw++) {
        if (keys <= pairs) {
            int64_t number = (int64_t)ls_random_below(draws, draw, (uint64_t)keys);
            if (first_pair(o, tokens, pairs, number) < pairs) return number;
        } else {
            int64_t pair = (int64_t)ls_random_below(draws, draw, (uint64_t)pairs);
            int64_t number = key_at(o, key, pair);
            if (first_pair(o, tokens, pairs, number) == pair) return number;
        }
    }
}

static int64_t first_answer(const void *given, int64_t length) {
    (void)given;
    return length - 1;
}

static void fill(const void *given, ls_random key, int64_t length, int32_t *inputs,
                 int32_t *targets) {
    const recall_options *o = given;
    const int64_t step = o->key_tokens + 1, pairs = length / step - 1;
    for (int64_t pair = 0; pair < pairs; pair++) {
        const int64_t number = key_at(o, key, pair);
        put_key(o, number, inputs + pair * step);
        inputs[pair * step + o->key_tokens] = value_of(o, key, number);
    }
    const int64_t asked = ask(o, key, inputs, pairs);
    inputs[pairs * step] = (int32_t)(o->vocabulary - 2);
    put_key(o, asked, inputs + pairs * step + 1);
    const bool there = first_pair(o, inputs, pairs, asked) < pairs;
    targets[length - 1] = there ? value_of(o, key, asked) : (int32_t)(o->vocabulary - 1);
}

const ls_task_type ls_task_associative_recall = {
    .name = "associative_recall",
    .summary = "the value that stood beside a key, asked once at the end",
    .paper = "Fu et al. 2022 (H3); Poli et al. 2023 (Hyena, safari)",
    .options = LS_OPTIONS(options, recall_options),
    .length = 22, /* ten pairs, the mark and a key */
    .vocabulary = vocabulary,
    .check = check,
    .fill = fill,
    .first_answer = first_answer,
};
