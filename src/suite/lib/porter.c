/* Porter's stemmer (1980) with the departures of NLTK's default mode, which published ROUGE values
 * of English rest on. */
#include <string.h>

#include "suite/lib/metric.h"

typedef struct word {
    char *at;
    size_t length, room;
} word;

static bool is_consonant(const word *w, size_t i) {
    size_t first = i; /* of a run of y: each is what the letter before it is not */
    while (first > 0 && w->at[first] == 'y' && w->at[first - 1] == 'y') first--;
    if (w->at[first] != 'y') return strchr("aeiou", w->at[first]) == NULL;
    const bool begins = first == 0 || strchr("aeiou", w->at[first - 1]) != NULL;
    return begins == ((i - first) % 2 == 0);
}

static bool has_vowel(const word *w, size_t length) {
    for (size_t i = 0; i < length; i++)
        if (!is_consonant(w, i)) return true;
    return false;
}

/* How often a consonant follows a vowel in the first letters. */
static int measure(const word *w, size_t length) {
    int times = 0;
    for (size_t i = 1; i < length; i++) times += is_consonant(w, i) && !is_consonant(w, i - 1);
    return times;
}

static bool ends_twice(const word *w) {
    const size_t n = w->length;
    return n >= 2 && w->at[n - 1] == w->at[n - 2] && is_consonant(w, n - 1);
}

static bool ends_short(const word *w, size_t n) {
    if (n == 2) return !is_consonant(w, 0) && is_consonant(w, 1);
    return n >= 3 && is_consonant(w, n - 3) && !is_consonant(w, n - 2) && is_consonant(w, n - 1) &&
           strchr("wxy", w->at[n - 1]) == NULL;
}

static bool ends_with(const word *w, const char *suffix) {
    const size_t length = strlen(suffix);
    return w->length >= length && memcmp(w->at + w->length - length, suffix, length) == 0;
}

static size_t stem_length(const word *w, const char *suffix) {
    return w->length - strlen(suffix);
}

static void replace(word *w, const char *suffix, const char *by) {
    const size_t stem = stem_length(w, suffix), length = strlen(by);
    if (stem + length > w->room) return;
    memcpy(w->at + stem, by, length);
    w->length = stem + length;
}

/* Suffixes and what stands for them, where the measure of the stem is more than `above`. The first
 * that fits decides. */
typedef struct rule {
    const char *suffix, *by;
} rule;

static bool apply(word *w, const rule *rules, size_t count, int above) {
    for (size_t i = 0; i < count; i++) {
        if (!ends_with(w, rules[i].suffix)) continue;
        if (measure(w, stem_length(w, rules[i].suffix)) > above)
            replace(w, rules[i].suffix, rules[i].by);
        return true;
    }
    return false;
}
#define APPLY(w, rules, above) apply((w), (rules), sizeof(rules) / sizeof((rules)[0]), (above))

static void step_1a(word *w) {
    static const rule rules[] = {{"sses", "ss"}, {"ies", "i"}, {"ss", "ss"}, {"s", ""}};
    if (ends_with(w, "ies") && w->length == 4)
        replace(w, "ies", "ie");
    else
        APPLY(w, rules, -1);
}

static void step_1b(word *w) {
    static const rule rules[] = {{"at", "ate"}, {"bl", "ble"}, {"iz", "ize"}};
    if (ends_with(w, "ied")) {
        replace(w, "ied", w->length == 4 ? "ie" : "i");
        return;
    }
    if (ends_with(w, "eed")) {
        if (measure(w, stem_length(w, "eed")) > 0) replace(w, "eed", "ee");
        return;
    }
    if (ends_with(w, "ed") && has_vowel(w, stem_length(w, "ed")))
        replace(w, "ed", "");
    else if (ends_with(w, "ing") && has_vowel(w, stem_length(w, "ing")))
        replace(w, "ing", "");
    else
        return;
    if (APPLY(w, rules, -1)) return;
    if (ends_twice(w)) {
        if (strchr("lsz", w->at[w->length - 1]) == NULL) w->length--;
    } else if (measure(w, w->length) == 1 && ends_short(w, w->length)) {
        replace(w, "", "e");
    }
}

static void step_1c(word *w) {
    const size_t n = w->length;
    if (n > 2 && w->at[n - 1] == 'y' && is_consonant(w, n - 2)) w->at[n - 1] = 'i';
}

static void step_2(word *w) {
    static const rule rules[] = {{"ational", "ate"}, {"tional", "tion"}, {"enci", "ence"},
                                 {"anci", "ance"},   {"izer", "ize"},    {"bli", "ble"},
                                 {"alli", "al"},     {"entli", "ent"},   {"eli", "e"},
                                 {"ousli", "ous"},   {"ization", "ize"}, {"ation", "ate"},
                                 {"ator", "ate"},    {"alism", "al"},    {"iveness", "ive"},
                                 {"fulness", "ful"}, {"ousness", "ous"}, {"aliti", "al"},
                                 {"iviti", "ive"},   {"biliti", "ble"},  {"fulli", "ful"}};
    while (ends_with(w, "alli") && measure(w, stem_length(w, "alli")) > 0) replace(w, "alli", "al");
    if (APPLY(w, rules, 0)) return;
    if (ends_with(w, "logi") && measure(w, w->length - 3) > 0) replace(w, "logi", "log");
}

static void step_3(word *w) {
    static const rule rules[] = {{"icate", "ic"}, {"ative", ""}, {"alize", "al"}, {"iciti", "ic"},
                                 {"ical", "ic"},  {"ful", ""},   {"ness", ""}};
    APPLY(w, rules, 0);
}

static void step_4(word *w) {
    static const rule before[] = {{"al", ""},    {"ance", ""}, {"ence", ""}, {"er", ""},
                                  {"ic", ""},    {"able", ""}, {"ible", ""}, {"ant", ""},
                                  {"ement", ""}, {"ment", ""}, {"ent", ""}};
    static const rule after[] = {{"ou", ""},  {"ism", ""}, {"ate", ""}, {"iti", ""},
                                 {"ous", ""}, {"ive", ""}, {"ize", ""}};
    if (APPLY(w, before, 1)) return;
    if (ends_with(w, "ion")) {
        const size_t stem = stem_length(w, "ion");
        if (measure(w, stem) > 1 && strchr("st", w->at[stem - 1]) != NULL) w->length = stem;
        return;
    }
    APPLY(w, after, 1);
}

static void step_5(word *w) {
    if (ends_with(w, "e")) {
        const size_t stem = w->length - 1;
        const int m = measure(w, stem);
        if (m > 1 || (m == 1 && !ends_short(w, stem))) w->length = stem;
    }
    if (ends_with(w, "ll") && measure(w, w->length - 1) > 1) w->length--;
}

static const rule irregular[] = {
    {"sky", "sky"},        {"skies", "sky"},       {"dying", "die"},        {"lying", "lie"},
    {"tying", "tie"},      {"news", "news"},       {"innings", "inning"},   {"inning", "inning"},
    {"outings", "outing"}, {"outing", "outing"},   {"cannings", "canning"}, {"canning", "canning"},
    {"howe", "howe"},      {"proceed", "proceed"}, {"exceed", "exceed"},    {"succeed", "succeed"},
};

size_t ls_porter_stem(char *text, size_t length, size_t room) {
    word w = {text, length, room};
    for (size_t i = 0; i < sizeof irregular / sizeof irregular[0]; i++)
        if (strlen(irregular[i].suffix) == length && ends_with(&w, irregular[i].suffix)) {
            replace(&w, irregular[i].suffix, irregular[i].by);
            return w.length;
        }
    if (length <= 2) return length;
    step_1a(&w);
    step_1b(&w);
    step_1c(&w);
    step_2(&w);
    step_3(&w);
    step_4(&w);
    step_5(&w);
    return w.length;
}
