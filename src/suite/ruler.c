/* RULER: needles of several kinds, tracking of variables, common and frequent words, at any length.
 * Prompts are the official ones; what is drawn comes from streams of this program, and words are
 * its own (docs/suites.md). The tasks on SQuAD and HotpotQA read their files.
 *
 * likelihood: the right value, name or word ranked against others; vt has a second chain for
 * them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "suite/lib/haystack.h"
#include "suite/lib/questions.h"
#include "suite/lib/ruler.h"
#include "task/lib/writing.h"

enum { LENGTH_LEAST = 2048 };
enum { NUMBER = 7, NAME = 40, KEYS_MAX = 4, CANDIDATES_MAX = 256, CODED = 6, LINES_MOST = 1 << 20 };

typedef enum { NOISE, ESSAY, NEEDLES, TRACKING, COMMON, FREQUENT, SQUAD, HOTPOT } kind;
typedef struct task {
    const char *name;
    kind kind;
    bool uuid_keys, uuids;
    int64_t keys, values, queries, new_tokens;
} task;
static const task tasks[] = {
    {"niah_single_1", NOISE, false, false, 1, 1, 1, 128},
    {"niah_single_2", ESSAY, false, false, 1, 1, 1, 128},
    {"niah_single_3", ESSAY, false, true, 1, 1, 1, 128},
    {"niah_multikey_1", ESSAY, false, false, 4, 1, 1, 128},
    {"niah_multikey_2", NEEDLES, false, false, 1, 1, 1, 128},
    {"niah_multikey_3", NEEDLES, true, true, 1, 1, 1, 128},
    {"niah_multivalue", ESSAY, false, false, 1, 4, 1, 128},
    {"niah_multiquery", ESSAY, false, false, 4, 1, 4, 128},
    {"vt", TRACKING, false, false, 0, 0, 0, 30},
    {"cwe", COMMON, false, false, 0, 0, 0, 120},
    {"fwe", FREQUENT, false, false, 0, 0, 0, 50},
    {"qa_1", SQUAD, false, false, 0, 0, 0, 32},
    {"qa_2", HOTPOT, false, false, 0, 0, 0, 32},
};
enum { TASKS = sizeof tasks / sizeof tasks[0] };

typedef struct ruler {
    ls_hay hay;
    ls_questions questions[2]; /* of SQuAD, of HotpotQA; without any: there is no such file */
    const task *chosen[TASKS];
    int64_t task_count, lengths[LS_OPTION_LIST_MAX], length_count, samples;
} ruler;

static const char *task_name(const void *list, size_t index) {
    (void)list;
    return index < TASKS ? tasks[index].name : NULL;
}

static bool asks(const task *what) {
    return what->kind == SQUAD || what->kind == HOTPOT;
}

static const ls_questions *questions_of(const ruler *own, const task *what) {
    return &own->questions[what->kind == HOTPOT];
}

/* Whether the files are there that a task reads. */
static bool has_files(const ruler *own, const task *what) {
    if (asks(what)) return questions_of(own, what)->count > 0;
    return what->kind != ESSAY || own->hay.whole.bytes != NULL;
}

/* suite.path: a text, and files of questions (.json), in any order. */
static ls_status open_files(ls_suite *suite) {
    ruler *own = suite->own;
    char paths[LS_OPTION_TEXT_BYTES], *rest = NULL;
    snprintf(paths, sizeof paths, "%s", suite->settings.path);
    suite->settings.path[0] = '\0';
    for (char *path = strtok_r(paths, ",", &rest); path; path = strtok_r(NULL, ",", &rest)) {
        const size_t length = strlen(path);
        if (length < 5 || strcmp(path + length - 5, ".json") != 0) {
            if (suite->settings.path[0] != '\0')
                return LS_FAIL(suite->ctx, LS_EUSE, "suite.path names two texts: %s and %s",
                               suite->settings.path, path);
            snprintf(suite->settings.path, sizeof suite->settings.path, "%s", path);
            continue;
        }
        ls_questions read;
        ls_status status = ls_questions_open(suite, path, &read);
        ls_questions *place = &own->questions[!read.squad];
        if (status == LS_OK && place->count > 0)
            status = LS_FAIL(suite->ctx, LS_EUSE, "suite.path names two files of %s",
                             read.squad ? "SQuAD" : "HotpotQA");
        if (status != LS_OK) {
            ls_questions_close(suite->ctx, &read);
            return status;
        }
        *place = read;
    }
    return ls_hay_open(suite, &own->hay);
}

static ls_status choose_tasks(ls_suite *suite) {
    ruler *own = suite->own;
    char names[LS_OPTION_TEXT_BYTES], *rest = NULL;
    snprintf(names, sizeof names, "%s", suite->settings.tasks);
    for (size_t i = 0; names[0] == '\0' && i < TASKS; i++)
        if (has_files(own, &tasks[i])) own->chosen[own->task_count++] = &tasks[i];
    for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        size_t index;
        LS_TRY(ls_name_find(suite->ctx, "task of ruler", name, task_name, NULL, &index));
        if (!has_files(own, &tasks[index]))
            return LS_FAIL(suite->ctx, LS_EUSE, "task %s %s: give suite.path=", name,
                           tasks[index].kind == SQUAD    ? "reads a .json file of SQuAD"
                           : tasks[index].kind == HOTPOT ? "reads a .json file of HotpotQA"
                                                         : "hides in a text");
        if (own->task_count < TASKS) own->chosen[own->task_count++] = &tasks[index];
    }
    return LS_OK;
}

/* A chain has as many wrong names as the other one. */
static int64_t candidates_of(const ls_suite *suite, const task *what) {
    const int64_t asked = suite->settings.candidates;
    return what->kind == TRACKING ? ls_min(asked, LS_RULER_CHAIN + 1) : asked;
}

static ls_status open_suite(ls_suite *suite) {
    ruler *own = suite->own;
    LS_TRY(open_files(suite));
    LS_TRY(choose_tasks(suite));
    LS_TRY(ls_suite_lengths(suite, own->lengths, &own->length_count));
    if (suite->settings.lengths.count == 0) { /* of its own choice: those that hold every task */
        int64_t kept = 0;
        for (int64_t i = 0; i < own->length_count; i++)
            if (own->lengths[i] >= LENGTH_LEAST) own->lengths[kept++] = own->lengths[i];
        if (kept == 0) own->lengths[kept++] = LENGTH_LEAST;
        own->length_count = kept;
    }
    own->samples = suite->settings.samples > 0 ? suite->settings.samples : 20;
    suite->groups = own->task_count * own->length_count * own->samples;
    suite->lengths = ls_new(suite->ctx, (size_t)suite->groups, sizeof *suite->lengths);
    if (suite->lengths == NULL) return LS_ENOMEM;
    for (int64_t g = 0; g < suite->groups; g++)
        suite->lengths[g] = own->lengths[g / own->samples / own->task_count];
    suite->measure = suite->generates ? "share of the references in the answer"
                                      : "the right one gains most from the context";
    suite->chance = suite->generates ? NAN : 0;
    for (int64_t t = 0; t < own->task_count; t++)
        suite->chance += 1.0 / (double)(candidates_of(suite, own->chosen[t]) * own->task_count);
    return LS_OK;
}

/* ---- what is drawn ---- */

typedef struct prompt {
    const ls_suite *suite;
    const task *what;
    int64_t example;
    ls_pool *pool;
    bool bare; /* without what is asked for */
    ls_text text;
    size_t prefix;
    const char *outputs[32];
    int64_t output_count;
    const char *others[CANDIDATES_MAX]; /* wrong answers of the same kind, in or out of the text */
    int64_t other_count;
} prompt;

static const char *draw_number(const prompt *p, int64_t index) {
    char *out = ls_pool_take(p->pool, NUMBER + 1, 1);
    if (out != NULL)
        ls_suite_digits(p->suite, "ruler numbers", p->example, index, NUMBER, false, out);
    return out;
}

static const char *draw_uuid(const prompt *p, const char *purpose, int64_t index) {
    char digits[33], *out = ls_pool_take(p->pool, NAME, 1);
    ls_suite_digits(p->suite, purpose, p->example, index, 32, true, digits);
    digits[12] = '4';
    digits[16] = "89ab"[(digits[16] <= '9' ? digits[16] - '0' : digits[16] - 'a' + 10) % 4];
    if (out != NULL)
        snprintf(out, NAME, "%.8s-%.4s-%.4s-%.4s-%.12s", digits, digits + 8, digits + 12,
                 digits + 16, digits + 20);
    return out;
}

static const char *draw_key(const prompt *p, int64_t index) {
    if (p->what->uuid_keys) return draw_uuid(p, "ruler keys", index);
    char *out = ls_pool_take(p->pool, NAME, 1);
    if (out != NULL) ls_suite_key(p->suite, p->example, index, out, NAME);
    return out;
}

static const char *draw_value(const prompt *p, int64_t index) {
    return p->what->uuids ? draw_uuid(p, "ruler values", index) : draw_number(p, index);
}

static const char *draw_letters(const prompt *p, int64_t index, int count, char first) {
    const ls_random random = ls_suite_random(p->suite, "ruler letters", p->example);
    char *out = ls_pool_take(p->pool, (size_t)count + 1, 1);
    for (int i = 0; out != NULL && i < count; i++)
        out[i] = (char)(first + (char)ls_random_below(random, (uint64_t)(index * 16 + i), 26));
    return out;
}

static const char *needle_line(prompt *p, const char *key, const char *value) {
    ls_text text = {0};
    ls_ruler_needle(p->suite->ctx, p->what->uuids ? "uuids" : "numbers", key, value, &text);
    const char *copy = ls_pool_copy(p->pool, text.bytes, text.length);
    ls_text_clear(p->suite->ctx, &text);
    return copy;
}

/* `count` different whole numbers below `bound` that rise. */
static void draw_places(const prompt *p, const char *purpose, size_t count, size_t bound,
                        size_t *out) {
    const ls_random random = ls_suite_random(p->suite, purpose, p->example);
    for (size_t i = 0; i < count; i++) {
        size_t drawn = bound == 0 ? 0 : (size_t)ls_random_permute(random, i % bound, bound), at = i;
        for (; at > 0 && out[at - 1] > drawn; at--) out[at] = out[at - 1];
        out[at] = drawn;
    }
}

/* ---- tasks ---- */

/* The first `size` words of the text, with needles between its sentences. */
static void put_essay(prompt *p, const ruler *own, ls_words needles, size_t size, ls_text *out) {
    const char *text = own->hay.text;
    size_t places[KEYS_MAX], used = 0, at = 0, next = 0;
    draw_places(p, "ruler depths", needles.count, size, places);
    bool ended = true; /* a sentence */
    while (used < size || next < needles.count) {
        for (; next < needles.count && (used >= size || (ended && places[next] <= used)); next++)
            ls_text_printf(p->suite->ctx, out, "%s%s", out->length == 0 ? "" : " ",
                           needles.at[next]);
        if (used >= size) continue;
        while (at < own->hay.length && strchr(" \t\r\n\f\v", text[at]) != NULL) at++;
        if (at >= own->hay.length) {
            at = 0;
            if (used == 0) return; /* nothing but blanks */
            continue;
        }
        size_t end = at;
        while (end < own->hay.length && strchr(" \t\r\n\f\v", text[end]) == NULL) end++;
        if (out->length > 0) ls_text_append(p->suite->ctx, out, " ", 1);
        ls_text_append(p->suite->ctx, out, text + at, end - at);
        ended = strchr(".!?", text[end - 1]) != NULL;
        at = end;
        used++;
    }
}

static ls_status put_niah(prompt *p, const ruler *own, size_t size) {
    const task *what = p->what;
    const char *keys[KEYS_MAX], *needles[KEYS_MAX], **lines = NULL;
    const char *type = what->uuids ? "uuids" : "numbers";
    size_t places[KEYS_MAX];
    ls_words all = {needles, 0};
    ls_text context = {0};
    p->output_count = 0;
    for (int64_t k = 0; k < what->keys; k++) {
        keys[k] = draw_key(p, k);
        for (int64_t v = 0; v < what->values; v++) {
            const char *value = draw_value(p, k * what->values + v);
            needles[all.count++] = needle_line(p, keys[k], value);
            if (k < what->queries) p->outputs[p->output_count++] = value;
        }
    }
    p->other_count = p->suite->settings.candidates;
    for (int64_t i = 0; i < p->other_count; i++) p->others[i] = draw_value(p, 1000000 + i);
    if (what->kind == NEEDLES) {
        lines = ls_pool_take(p->pool, size, sizeof *lines);
        for (size_t i = 0; lines != NULL && i < size; i++)
            lines[i] = needle_line(p, draw_key(p, 16 + (int64_t)i), draw_value(p, 16 + (int64_t)i));
    }
    LS_TRY(ls_pool_status(p->pool));
    if (p->bare) all.count = 0;
    if (what->kind == ESSAY) {
        put_essay(p, own, all, size, &context);
    } else {
        draw_places(p, "ruler places", all.count, size, places);
        ls_ruler_lines(p->suite->ctx, lines, ls_noise_sentence, size, all, places, &context);
    }
    ls_ruler_niah(p->suite->ctx, type, context.bytes == NULL ? "" : context.bytes, context.length,
                  (ls_words){keys, (size_t)what->queries}, (size_t)p->output_count, &p->text,
                  &p->prefix);
    if (context.failed) p->text.failed = true;
    ls_text_clear(p->suite->ctx, &context);
    return LS_OK;
}

static ls_status put_tracking(prompt *p, size_t size) {
    enum { N = LS_RULER_CHAIN };
    const size_t chains = p->suite->generates ? 1 : 2;
    const char *names[2 * N], *values[2];
    size_t places[2 * N];
    for (int64_t i = 0; i < 2 * N; i++) names[i] = draw_letters(p, i, 5, 'A');
    for (int64_t c = 0; c < 2; c++) {
        char *value = ls_pool_take(p->pool, 8, 1);
        if (value == NULL) return LS_ENOMEM;
        ls_suite_digits(p->suite, "ruler vt", p->example, c, 5, false, value);
        values[c] = value;
    }
    LS_TRY(ls_pool_status(p->pool));
    draw_places(p, "ruler chain 1", N, size, places);
    draw_places(p, "ruler chain 2", N, size, places + N);
    p->output_count = N;
    for (int64_t i = 0; i < N; i++) p->outputs[i] = names[i];
    p->other_count = N;
    for (int64_t i = 0; i < N; i++) p->others[i] = names[N + i];
    ls_ruler_tracking(p->suite->ctx, p->pool, (ls_words){names, p->bare ? 0 : N * chains}, values,
                      size, places, &p->text, &p->prefix);
    return LS_OK;
}

static ls_status put_common(prompt *p, size_t size, int64_t length) {
    const bool shorter = length < 4096;
    ls_words words = {ls_pool_take(p->pool, size, sizeof *words.at), size};
    if (words.at == NULL) return LS_ENOMEM;
    for (size_t i = 0; i < size; i++) words.at[i] = draw_key(p, (int64_t)i);
    LS_TRY(ls_pool_status(p->pool));
    p->output_count = ls_min(10, (int64_t)size);
    for (int64_t i = 0; i < p->output_count; i++) p->outputs[i] = words.at[i];
    p->other_count = 0;
    for (size_t i = 10; i < size && p->other_count < CANDIDATES_MAX; i++)
        p->others[p->other_count++] = words.at[i];
    if (p->bare) words.count = 0;
    ls_ruler_common(p->suite->ctx, p->pool, words, shorter ? 6 : 30, shorter ? 1 : 3,
                    (uint32_t)(p->suite->seed + (uint64_t)p->example), &p->text, &p->prefix);
    return LS_OK;
}

static ls_status put_frequent(prompt *p, size_t size, int64_t length) {
    const int64_t kinds = ls_max(12, length / 50);
    ls_words drawn = {ls_pool_take(p->pool, (size_t)kinds, sizeof *drawn.at), (size_t)kinds};
    if (drawn.at == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < kinds; i++) drawn.at[i] = draw_letters(p, i, CODED, 'a');
    const uint32_t seed = (uint32_t)(p->suite->seed + (uint64_t)p->example);
    const ls_words vocabulary = ls_ruler_vocabulary(p->pool, drawn, seed);
    LS_TRY(ls_pool_status(p->pool));
    p->output_count = 3;
    for (size_t i = 0; i < 3; i++) p->outputs[i] = vocabulary.at[i + 1];
    p->other_count = 0;
    for (size_t i = 4; i < vocabulary.count && p->other_count < CANDIDATES_MAX; i++)
        p->others[p->other_count++] = vocabulary.at[i];
    ls_ruler_coded(p->suite->ctx, p->pool, vocabulary, p->bare ? 0 : size, seed, &p->text,
                   &p->prefix);
    return LS_OK;
}

/* Wrong answers are those of other questions. */
static ls_status put_documents(prompt *p, const ruler *own, size_t size) {
    const ls_questions *all = questions_of(own, p->what);
    const size_t number = (size_t)(p->example % own->samples) % all->count;
    const ls_asked *asked = &all->at[number];
    const ls_random random = ls_suite_random(p->suite, "ruler answers", p->example);
    const ls_words documents = ls_questions_draw(all, asked, random, p->bare ? 0 : size, p->pool);
    LS_TRY(ls_pool_status(p->pool));
    p->output_count = ls_min(32, (int64_t)json_array_size(asked->answers));
    for (int64_t i = 0; i < p->output_count; i++)
        p->outputs[i] = json_string_value(json_array_get(asked->answers, (size_t)i));
    p->other_count = 0;
    for (size_t i = 0; i < all->count && p->other_count < p->suite->settings.candidates; i++) {
        const ls_asked *other = &all->at[ls_random_permute(random, i, all->count)];
        const char *text = json_string_value(json_array_get(other->answers, 0));
        bool same = text[0] == '\0';
        for (int64_t k = 0; k < p->output_count; k++) same |= strcmp(text, p->outputs[k]) == 0;
        for (int64_t k = 0; k < p->other_count; k++) same |= strcmp(text, p->others[k]) == 0;
        if (!same) p->others[p->other_count++] = text;
    }
    ls_ruler_qa(p->suite->ctx, documents, asked->question, &p->text, &p->prefix);
    return LS_OK;
}

static ls_status put_prompt(prompt *p, size_t size, int64_t length) {
    const ruler *own = p->suite->own;
    p->text.length = 0;
    LS_TRY(p->what->kind == TRACKING   ? put_tracking(p, size)
           : p->what->kind == COMMON   ? put_common(p, size, length)
           : p->what->kind == FREQUENT ? put_frequent(p, size, length)
           : asks(p->what)             ? put_documents(p, own, size)
                                       : put_niah(p, own, size));
    return ls_text_status(&p->text);
}

static ls_status fits(prompt *p, size_t size, int64_t length, bool *out) {
    const ls_suite *suite = p->suite;
    ls_pool pool = {.ctx = suite->ctx}, *kept = p->pool;
    ls_ids ids = {0};
    LS_TRY(ls_check_stop(suite->ctx, "making a prompt"));
    p->pool = &pool;
    ls_status status = put_prompt(p, size, length);
    if (status == LS_OK)
        status =
            ls_encoder_encode(suite->ctx, suite->encoder, p->text.bytes, p->text.length, 0, &ids);
    *out = (int64_t)ids.count + p->what->new_tokens <= length;
    ls_ids_clear(suite->ctx, &ids);
    ls_pool_clear(&pool);
    p->pool = kept;
    return status;
}

/* The largest size with which prompt and answer have at most `length` tokens. */
static ls_status fit_size(prompt *p, int64_t length, size_t *out) {
    const ruler *own = p->suite->own;
    const size_t most = p->what->kind == COMMON ? 1024
                        : asks(p->what)         ? questions_of(own, p->what)->document_count
                                                : LINES_MOST;
    const size_t least = (size_t)ls_min((int64_t)most, p->what->kind == TRACKING ? 5
                                                       : p->what->kind == COMMON ? 30
                                                       : p->what->kind == SQUAD  ? 1
                                                       : p->what->kind == HOTPOT ? 10
                                                                                 : 4);
    size_t low = least, high = least;
    bool good;
    LS_TRY(fits(p, least, length, &good));
    if (!good)
        return LS_FAIL(p->suite->ctx, LS_EUSE, "a context of %lld tokens is too short for task %s",
                       (long long)length, p->what->name);
    while (good && high < most) {
        low = high;
        high = 2 * high < most ? 2 * high : most;
        LS_TRY(fits(p, high, length, &good));
    }
    if (good) low = high;
    while (low + 1 < high) {
        const size_t middle = (low + high) / 2;
        LS_TRY(fits(p, middle, length, &good));
        if (good)
            low = middle;
        else
            high = middle;
    }
    *out = low;
    return LS_OK;
}

/* ---- items ---- */

static ls_status keep_prompt(prompt *p, size_t size, int64_t length, ls_tokens *out) {
    LS_TRY(put_prompt(p, size, length));
    return ls_suite_encode(p->suite, p->pool, p->text.bytes, p->text.length, 0, out);
}

static ls_status put_candidates(prompt *p, int64_t number, ls_suite_group *group) {
    const int64_t count = candidates_of(p->suite, p->what);
    const int64_t truth = ls_suite_slot(p->suite, number, number, count);
    const char *list[CANDIDATES_MAX];
    const bool blank = p->what->kind != TRACKING; /* its prefix ends with one */
    const char *right = p->outputs[p->what->kind == TRACKING ? number % LS_RULER_CHAIN : 0];
    for (int64_t c = 0, other = 0; c < count; c++) {
        const char *text = c == truth ? right : p->others[other++];
        list[c] = ls_pool_join(p->pool, " ", blank, text, strlen(text));
    }
    LS_TRY(ls_pool_status(p->pool));
    return ls_suite_candidates(p->suite, group, &group->items[0], list, count, truth);
}

static ls_status put_references(prompt *p, ls_suite_group *group) {
    ls_suite_item *item = &group->items[0];
    const size_t count = (size_t)p->output_count;
    item->new_tokens = p->what->new_tokens;
    item->metric =
        ls_metric_find("ruler", asks(p->what) ? "string_match_part" : "string_match_all");
    item->answer.references =
        (ls_points_list){ls_pool_take(p->pool, count, sizeof(ls_points)), count};
    LS_TRY(ls_pool_status(p->pool));
    for (size_t i = 0; i < count; i++)
        item->answer.references.at[i] = ls_points_text(p->pool, p->outputs[i]);
    return LS_OK;
}

static ls_status fill_group(prompt *p, int64_t number, int64_t length, ls_suite_group *out) {
    ls_suite_item *item = &out->items[0];
    json_t *references = json_array();
    size_t size = 0;
    char id[64];
    LS_TRY(fit_size(p, length, &size));
    if (!p->suite->generates) {
        p->bare = true;
        LS_TRY(keep_prompt(p, size, length, &out->contexts[1]));
        p->bare = false;
        item->bare = 1;
    }
    LS_TRY(keep_prompt(p, size, length, &out->contexts[0]));
    for (int64_t i = 0; i < p->output_count; i++)
        json_array_append_new(references, json_string(p->outputs[i]));
    snprintf(id, sizeof id, "%lld", (long long)number);
    item->id = ls_pool_copy(p->pool, id, strlen(id));
    item->references = ls_group_keep(out, references);
    item->cell = ls_group_keep(
        out, json_pack("{s:s, s:I}", "task", p->what->name, "length", (json_int_t)length));
    if (!p->suite->generates)
        json_object_set_new(item->cell, "chance",
                            json_real(1.0 / (double)candidates_of(p->suite, p->what)));
    if (!p->suite->generates && p->other_count < candidates_of(p->suite, p->what) - 1)
        return LS_FAIL(p->suite->ctx, LS_EUSE,
                       "task %s has too few words at %lld tokens for "
                       "suite.candidates=%lld",
                       p->what->name, (long long)length, (long long)p->suite->settings.candidates);
    return p->suite->generates ? put_references(p, out) : put_candidates(p, number, out);
}

static ls_status make(ls_suite *suite, int64_t number, ls_suite_group *out) {
    const ruler *own = suite->own;
    const int64_t which = number / own->samples;
    LS_TRY(ls_group_room(out, suite->generates ? 1 : 2, 1));
    prompt p = {.suite = suite,
                .what = own->chosen[which % own->task_count],
                .example = number,
                .pool = &out->pool};
    ls_status status = fill_group(&p, number, own->lengths[which / own->task_count], out);
    ls_text_clear(suite->ctx, &p.text);
    return status;
}

/* The score of each length over the tasks, and the effective length: the longest up to which it is
 * at least half-way between chance and that of the shortest; of generated answers 85.6 %. */
static ls_status finish(ls_suite *suite, json_t *results) {
    const ruler *own = suite->own;
    const json_t *cells = json_object_get(results, "cells");
    json_t *list = json_array();
    double bar = 0.856;
    int64_t effective = 0;
    bool reaches = true;
    for (int64_t l = 0; l < own->length_count; l++) {
        double sum = 0;
        int64_t count = 0;
        for (size_t i = 0; i < json_array_size(cells); i++) {
            const json_t *cell = json_array_get(cells, i);
            if (json_integer_value(json_object_get(cell, "length")) != own->lengths[l]) continue;
            sum += json_number_value(json_object_get(cell, "score"));
            count++;
        }
        const double score = count == 0 ? 0 : sum / (double)count;
        if (l == 0 && !suite->generates) bar = (score + suite->chance) / 2;
        reaches = reaches && score >= bar && (suite->generates || score > suite->chance);
        if (reaches) effective = own->lengths[l];
        json_array_append_new(
            list, json_pack("{s:I, s:f}", "length", (json_int_t)own->lengths[l], "score", score));
    }
    json_object_set_new(results, "by_length", list);
    json_object_set_new(results, "effective_length", json_integer(effective));
    return LS_OK;
}

static void clear(ls_suite *suite) {
    ruler *own = suite->own;
    ls_hay_close(&own->hay);
    for (int i = 0; i < 2; i++) ls_questions_close(suite->ctx, &own->questions[i]);
}

const ls_suite_type ls_suite_ruler = {
    .name = "ruler",
    .summary = "needles, variables, word counts and questions at any length; effective length",
    .paper = "Hsieh et al. 2024 (RULER)",
    .likelihood = true,
    .generate = true,
    .size = sizeof(ruler),
    .open = open_suite,
    .make = make,
    .finish = finish,
    .clear = clear,
};
