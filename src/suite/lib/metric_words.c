/* Metrics on words: SQuAD's normal form and F1, substrings, classes, numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "suite/lib/metric.h"

static bool is_article(ls_points word) {
    static const char *const articles[] = {"a", "an", "the"};
    for (size_t k = 0; k < 3; k++) {
        const size_t length = strlen(articles[k]);
        size_t i = 0;
        while (i < length && word.count == length && word.at[i] == articles[k][i]) i++;
        if (i == length) return true;
    }
    return false;
}

/* Every longest run of word characters that is an article becomes a blank. */
static ls_points without_articles(ls_pool *pool, ls_points text) {
    int32_t *out = ls_pool_take(pool, text.count, sizeof *out);
    size_t count = 0;
    for (size_t i = 0; out != NULL && i < text.count;) {
        size_t end = i;
        while (end < text.count && ls_point_is_word(text.at[end])) end++;
        if (end > i && is_article((ls_points){text.at + i, end - i})) {
            out[count++] = ' ';
            i = end;
            continue;
        }
        end = end == i ? i + 1 : end;
        while (i < end) out[count++] = text.at[i++];
    }
    return (ls_points){out, count};
}

ls_points ls_normalize_answer(ls_pool *pool, ls_points text) {
    text = ls_points_lower(pool, text);
    text = ls_points_without(pool, text, ls_point_is_ascii_punctuation);
    text = without_articles(pool, text);
    return ls_points_join(pool, ls_points_split(pool, text), ' ');
}

/* LongBench's list of Chinese punctuation, as ranges of code points. */
static bool is_zh_punctuation(int32_t p) {
    static const int32_t ranges[][2] = {
        {0x2013, 0x2014}, {0x2018, 0x2019}, {0x201B, 0x201F}, {0x2026, 0x2027}, {0x3001, 0x3003},
        {0x300B, 0x3011}, {0x3014, 0x301F}, {0x3030, 0x3030}, {0x303E, 0x303F}, {0xFE4F, 0xFE4F},
        {0xFF01, 0xFF0D}, {0xFF0F, 0xFF0F}, {0xFF1A, 0xFF20}, {0xFF3B, 0xFF40}, {0xFF5B, 0xFF64}};
    if (ls_point_is_ascii_punctuation(p)) return true;
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (p >= ranges[i][0] && p <= ranges[i][1]) return true;
    return false;
}

ls_points ls_normalize_zh_answer(ls_pool *pool, ls_points text) {
    text = ls_points_lower(pool, text);
    text = ls_points_without(pool, text, is_zh_punctuation);
    return ls_points_without(pool, text, ls_point_is_space);
}

ls_points ls_ruler_clean(ls_pool *pool, ls_points text) {
    text = ls_points_strip(text);
    int32_t *out = ls_pool_take(pool, text.count, sizeof *out);
    if (out == NULL) return (ls_points){0};
    for (size_t i = 0; i < text.count; i++) out[i] = text.at[i] < 0x20 ? '\n' : text.at[i];
    return ls_points_strip((ls_points){out, text.count});
}

static int by_points(const void *a, const void *b) {
    return ls_points_compare(*(const ls_points *)a, *(const ls_points *)b);
}

static ls_points_list sorted(ls_pool *pool, ls_points_list list) {
    ls_points_list out = {ls_pool_take(pool, list.count, sizeof *out.at), list.count};
    if (out.at == NULL) return (ls_points_list){0};
    if (list.count > 0) {
        memcpy(out.at, list.at, list.count * sizeof *out.at);
        qsort(out.at, out.count, sizeof *out.at, by_points);
    }
    return out;
}

double ls_f1(ls_pool *pool, ls_points_list prediction, ls_points_list reference) {
    const ls_points_list a = sorted(pool, prediction), b = sorted(pool, reference);
    size_t same = 0;
    for (size_t i = 0, j = 0; i < a.count && j < b.count;) {
        const int order = ls_points_compare(a.at[i], b.at[j]);
        same += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    if (same == 0) return 0;
    const double precision = (double)same / (double)a.count;
    const double recall = (double)same / (double)b.count;
    return (2 * precision * recall) / (precision + recall);
}

static double qa_f1(ls_pool *pool, const ls_answer *answer, size_t r) {
    const ls_points a = ls_normalize_answer(pool, answer->prediction);
    const ls_points b = ls_normalize_answer(pool, answer->references.at[r]);
    return ls_f1(pool, ls_points_split(pool, a), ls_points_split(pool, b));
}

static ls_points_list normal_words(ls_pool *pool, ls_points_list words) {
    ls_points_list out = {ls_pool_take(pool, words.count, sizeof *out.at), 0};
    for (size_t i = 0; out.at != NULL && i < words.count; i++) {
        const ls_points word = ls_normalize_zh_answer(pool, words.at[i]);
        if (word.count > 0) out.at[out.count++] = word;
    }
    return out;
}

static double qa_f1_zh(ls_pool *pool, const ls_answer *answer, size_t r) {
    return ls_f1(pool, normal_words(pool, *answer->prediction_words),
                 normal_words(pool, answer->reference_words[r]));
}

static double rouge(ls_pool *pool, const ls_answer *answer, size_t r) {
    return ls_rouge_l(pool, answer->prediction, answer->references.at[r], answer->most_steps);
}

static double rouge_stripped(ls_pool *pool, const ls_answer *answer, size_t r) {
    return ls_rouge_l(pool, ls_points_strip(answer->prediction), answer->references.at[r],
                      answer->most_steps);
}

static double rouge_zh(ls_pool *pool, const ls_answer *answer, size_t r) {
    return ls_rouge_l(pool, ls_points_join(pool, *answer->prediction_words, ' '),
                      ls_points_join(pool, answer->reference_words[r], ' '), answer->most_steps);
}

/* Classes named in the prediction. The official loop removes parts of the truth from the list that
 * it walks, so that what follows a removed one is not looked at. */
static double classification(ls_pool *pool, const ls_answer *answer, size_t r) {
    const ls_points truth = answer->references.at[r];
    const ls_points_list all = answer->classes;
    ls_points *found = ls_pool_take(pool, all.count, sizeof *found);
    size_t count = 0;
    if (found == NULL) return 0;
    for (size_t i = 0; i < all.count; i++)
        if (ls_points_has(answer->prediction, all.at[i])) found[count++] = all.at[i];
    for (size_t i = 0; i < count; i++) {
        if (ls_points_equal(found[i], truth) || !ls_points_has(truth, found[i])) continue;
        size_t first = 0; /* list.remove takes the first that is equal */
        while (!ls_points_equal(found[first], found[i])) first++;
        memmove(found + first, found + first + 1, (count - first - 1) * sizeof *found);
        count--;
    }
    for (size_t i = 0; i < count; i++)
        if (ls_points_equal(found[i], truth)) return 1.0 / (double)count;
    return 0;
}

static double share_equal(ls_pool *pool, ls_points prediction, ls_points truth) {
    const ls_points_list numbers = ls_points_numbers(pool, prediction);
    size_t right = 0;
    for (size_t i = 0; i < numbers.count; i++) right += ls_points_equal(numbers.at[i], truth);
    return numbers.count == 0 ? 0 : (double)right / (double)numbers.count;
}

static double count_score(ls_pool *pool, const ls_answer *answer, size_t r) {
    return share_equal(pool, answer->prediction, answer->references.at[r]);
}

/* The number after the first `word` that a number follows. */
static double retrieval_after(ls_pool *pool, const ls_answer *answer, size_t r, const char *word) {
    const ls_points mark = ls_points_text(pool, word);
    ls_points rest = answer->references.at[r];
    size_t at;
    if (mark.count == 0) return 0; /* without memory */
    while ((at = ls_points_find(rest, mark)) != SIZE_MAX) {
        rest = (ls_points){rest.at + at + mark.count, rest.count - at - mark.count};
        if (rest.count == 0 || !ls_point_is_digit(rest.at[0])) continue;
        const ls_points_list numbers = ls_points_numbers(pool, rest);
        return numbers.count == 0 ? 0 : share_equal(pool, answer->prediction, numbers.at[0]);
    }
    return 0;
}

static double retrieval(ls_pool *pool, const ls_answer *answer, size_t r) {
    return retrieval_after(pool, answer, r, "Paragraph ");
}

static double retrieval_zh(ls_pool *pool, const ls_answer *answer, size_t r) {
    return retrieval_after(pool, answer, r, "\xE6\xAE\xB5\xE8\x90\xBD"); /* "paragraph" */
}

static bool is_code(ls_points line) {
    for (size_t i = 0; i < line.count; i++)
        if (line.at[i] == '`' || line.at[i] == '#' ||
            (line.at[i] == '/' && i + 1 < line.count && line.at[i + 1] == '/'))
            return false;
    return true;
}

/* The first line that is neither comment nor fence; lm-eval's port also skips blank ones, and
 * LongBench's own takes newlines away before it looks. */
static ls_points first_code(ls_pool *pool, ls_points text, bool skip_blank) {
    while (!skip_blank && text.count > 0 && text.at[0] == '\n') {
        text.at++;
        text.count--;
    }
    const ls_points_list lines = ls_points_cut(pool, text, '\n');
    for (size_t i = 0; i < lines.count; i++)
        if (is_code(lines.at[i]) && !(skip_blank && ls_points_strip(lines.at[i]).count == 0))
            return lines.at[i];
    return (ls_points){0};
}

static double similarity(ls_pool *pool, const ls_answer *answer, size_t r, bool skip_blank) {
    const ls_points a = first_code(pool, answer->prediction, skip_blank);
    const ls_points b = answer->references.at[r];
    if (ls_points_equal(a, b)) return 1;
    if (a.count == 0 || b.count == 0) return 0;
    const double ratio =
        answer->levenshtein ? ls_similarity_edits(pool, a, b) : ls_similarity_blocks(pool, a, b);
    char whole[32]; /* rounded half to even, as Python's round */
    snprintf(whole, sizeof whole, "%.0f", 100 * ratio);
    return atof(whole) / 100;
}

static double code_similarity(ls_pool *pool, const ls_answer *answer, size_t r) {
    return similarity(pool, answer, r, false);
}

static double code_similarity_lm_eval(ls_pool *pool, const ls_answer *answer, size_t r) {
    return similarity(pool, answer, r, true);
}

static bool has_folded(ls_pool *pool, ls_points text, ls_points part) {
    return ls_points_has(ls_points_lower(pool, text), ls_points_lower(pool, part));
}

static double string_match(ls_pool *pool, const ls_answer *answer, size_t r) {
    return has_folded(pool, ls_ruler_clean(pool, answer->prediction), answer->references.at[r]);
}

static double key_value(ls_pool *pool, const ls_answer *answer, size_t r) {
    return has_folded(pool, answer->prediction, answer->references.at[r]);
}

static double subspan(ls_pool *pool, const ls_answer *answer, size_t r) {
    ls_points text = answer->prediction;
    if (answer->first_line) text = ls_points_strip(ls_points_first_line(text));
    return ls_points_has(ls_normalize_answer(pool, text),
                         ls_normalize_answer(pool, answer->references.at[r]));
}

/* Shared words of small letters, over all words of the reference. */
static double needle_words(ls_pool *pool, const ls_answer *answer, size_t r) {
    const ls_points_list said = ls_points_split(pool, ls_points_lower(pool, answer->prediction));
    const ls_points_list wanted = ls_points_split(pool, answer->references.at[r]);
    size_t shared = 0;
    for (size_t i = 0; i < wanted.count; i++) {
        bool again = false, found = false;
        for (size_t j = 0; j < i; j++) again |= ls_points_equal(wanted.at[j], wanted.at[i]);
        for (size_t j = 0; j < said.count; j++) found |= ls_points_equal(said.at[j], wanted.at[i]);
        shared += found && !again;
    }
    return wanted.count == 0 ? 0 : (double)shared / (double)wanted.count;
}

static double needle_rouge(ls_pool *pool, const ls_answer *answer, size_t r) {
    return 10 * ls_rouge_1_stemmed(pool, answer->prediction, answer->references.at[r]);
}

static ls_points without_zeros(ls_points number) {
    while (number.count > 1 && ls_point_digit(number.at[0]) == 0) {
        number.at++;
        number.count--;
    }
    return number;
}

/* The first number, compared as a whole number of any script's digits. */
static double passkey(ls_pool *pool, const ls_answer *answer, size_t r) {
    const ls_points_list said = ls_points_numbers(pool, answer->prediction);
    const ls_points_list wanted = ls_points_numbers(pool, answer->references.at[r]);
    if (said.count == 0 || wanted.count == 0) return 0;
    const ls_points a = without_zeros(said.at[0]), b = without_zeros(wanted.at[0]);
    if (a.count != b.count) return 0;
    for (size_t i = 0; i < a.count; i++)
        if (ls_point_digit(a.at[i]) != ls_point_digit(b.at[i])) return 0;
    return 1;
}

static ls_points babilong_output(ls_pool *pool, ls_points text) {
    static const char *const ends[] = {".", "<context>", "<example>"};
    text = ls_points_lower(pool, text);
    for (size_t i = 0; i < 3; i++) text = ls_points_before(text, ls_points_text(pool, ends[i]));
    return text;
}

/* The labels that the output names and the question does not must be the target, or its parts. */
static double babilong(ls_pool *pool, const ls_answer *answer, size_t r) {
    const ls_points output = babilong_output(pool, answer->prediction);
    const ls_points target = ls_points_lower(pool, answer->references.at[r]);
    const ls_points question = ls_points_lower(pool, answer->question);
    ls_points_list wanted = {(ls_points[]){target}, 1};
    if (target.count > 3 && ls_points_has(target, ls_points_text(pool, ",")))
        wanted = ls_points_cut(pool, target, ',');
    size_t named = 0, right = 0;
    for (size_t i = 0; i < answer->classes.count; i++) {
        const ls_points label = ls_points_lower(pool, answer->classes.at[i]);
        if (!ls_points_has(output, label) || ls_points_has(question, label)) continue;
        named++;
        for (size_t j = 0; j < wanted.count; j++) right += ls_points_equal(wanted.at[j], label);
    }
    return named == wanted.count && right == wanted.count;
}

static double babilong_old(ls_pool *pool, const ls_answer *answer, size_t r) {
    return ls_points_has(babilong_output(pool, answer->prediction),
                         ls_points_lower(pool, answer->references.at[r]));
}

static double babilong_lm_eval(ls_pool *pool, const ls_answer *answer, size_t r) {
    return has_folded(pool, ls_ruler_clean(pool, answer->prediction),
                      ls_points_strip(answer->references.at[r]));
}

const ls_metric ls_suite_metrics[] = {
    {"longbench", "qa_f1_score", qa_f1, LS_METRIC_BEST, false, false},
    {"longbench", "qa_f1_zh_score", qa_f1_zh, LS_METRIC_BEST, false, true},
    {"longbench", "rouge_score", rouge, LS_METRIC_BEST, false, false},
    {"longbench", "rouge_zh_score", rouge_zh, LS_METRIC_BEST, false, true},
    {"longbench", "classification_score", classification, LS_METRIC_BEST, false, false},
    {"longbench", "retrieval_score", retrieval, LS_METRIC_BEST, false, false},
    {"longbench", "retrieval_zh_score", retrieval_zh, LS_METRIC_BEST, false, false},
    {"longbench", "count_score", count_score, LS_METRIC_BEST, false, false},
    {"longbench", "code_sim_score", code_similarity, LS_METRIC_BEST, false, false},
    {"lm_eval", "longbench.qa_f1_score", qa_f1, LS_METRIC_BEST, false, false},
    {"lm_eval", "longbench.rouge_score", rouge_stripped, LS_METRIC_BEST, false, false},
    {"lm_eval", "longbench.code_sim_score", code_similarity_lm_eval, LS_METRIC_BEST, false, false},
    {"lm_eval", "ruler.string_match_part", string_match, LS_METRIC_MEAN, false, false},
    {"lm_eval", "babilong.acc", babilong_lm_eval, LS_METRIC_BEST, false, false},
    {"ruler", "string_match_all", string_match, LS_METRIC_MEAN, true, false},
    {"ruler", "string_match_part", string_match, LS_METRIC_BEST, true, false},
    {"lost_in_the_middle", "best_subspan_em", subspan, LS_METRIC_BEST, false, false},
    {"lost_in_the_middle", "kv_accuracy", key_value, LS_METRIC_BEST, false, false},
    {"lceg", "needle_plot_score", needle_words, LS_METRIC_BEST, false, false},
    {"lceg", "needle_rouge1_x10", needle_rouge, LS_METRIC_BEST, false, false},
    {"landmark", "passkey", passkey, LS_METRIC_BEST, false, false},
    {"babilong", "compare_answers", babilong, LS_METRIC_BEST, false, false},
    {"babilong", "compare_answers_legacy", babilong_old, LS_METRIC_BEST, false, false},
    {0},
};

const ls_metric *ls_metric_find(const char *suite, const char *name) {
    for (const ls_metric *metric = ls_suite_metrics; metric->suite != NULL; metric++)
        if (strcmp(metric->suite, suite) == 0 && strcmp(metric->name, name) == 0) return metric;
    return NULL;
}

double ls_round_percent(double value) {
    char text[400];
    snprintf(text, sizeof text, "%.2f", value);
    return atof(text);
}

double ls_metric_score(ls_pool *pool, const ls_metric *metric, const ls_answer *answer) {
    double best = 0, sum = 0;
    for (size_t r = 0; r < answer->references.count; r++) {
        const double score = metric->one(pool, answer, r);
        best = score > best ? score : best;
        sum += score;
    }
    if (answer->references.count == 0) return 0;
    return metric->over == LS_METRIC_BEST ? best : sum / (double)answer->references.count;
}
