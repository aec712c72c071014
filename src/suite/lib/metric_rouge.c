/* ROUGE: summary-level ROUGE-L over sets of words, as the package `rouge` 1.0.1 computes it, and
 * ROUGE-1 of stemmed words, as `rouge-score` does. */
#include <stdlib.h>
#include <string.h>

#include "suite/lib/metric.h"

/* Pieces of a text, between full stops, as numbers of their words. */
typedef struct piece {
    size_t first, count; /* words */
} piece;

typedef struct side {
    piece *pieces;
    size_t piece_count;
    ls_points *words;
    int32_t *ids; /* [word_count] */
    size_t word_count;
} side;

static side cut_side(ls_pool *pool, ls_points text) {
    const ls_points_list parts = ls_points_cut(pool, text, '.');
    side out = {.pieces = ls_pool_take(pool, parts.count, sizeof *out.pieces),
                .words = ls_pool_take(pool, text.count + 1, sizeof *out.words)};
    if (out.pieces == NULL || out.words == NULL) return (side){0};
    for (size_t i = 0; i < parts.count; i++) {
        if (parts.at[i].count == 0) continue;
        const ls_points_list words = ls_points_split(pool, parts.at[i]);
        /* of blanks alone: one empty word */
        const piece made = {out.word_count, words.count == 0 ? 1 : words.count};
        for (size_t w = 0; w < words.count; w++) out.words[out.word_count + w] = words.at[w];
        out.pieces[out.piece_count++] = made;
        out.word_count += made.count;
    }
    out.ids = ls_pool_take(pool, out.word_count, sizeof *out.ids);
    if (out.ids == NULL) return (side){0};
    return out;
}

typedef struct numbered {
    ls_points word;
    int32_t *id;
} numbered;

static int by_word(const void *a, const void *b) {
    return ls_points_compare(((const numbered *)a)->word, ((const numbered *)b)->word);
}

/* Equal words get equal numbers; how many there are. */
static size_t number_words(ls_pool *pool, side *a, side *b) {
    const size_t count = a->word_count + b->word_count;
    numbered *all = ls_pool_take(pool, count, sizeof *all);
    if (all == NULL) return 0;
    for (size_t i = 0; i < a->word_count; i++) all[i] = (numbered){a->words[i], &a->ids[i]};
    for (size_t i = 0; i < b->word_count; i++)
        all[a->word_count + i] = (numbered){b->words[i], &b->ids[i]};
    qsort(all, count, sizeof *all, by_word);
    int32_t id = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && !ls_points_equal(all[i].word, all[i - 1].word)) id++;
        *all[i].id = id;
    }
    return count == 0 ? 0 : (size_t)id + 1;
}

static size_t count_different(const side *s, uint8_t *seen, size_t ids) {
    size_t different = 0;
    memset(seen, 0, ids);
    for (size_t i = 0; i < s->word_count; i++) {
        different += seen[s->ids[i]] == 0;
        seen[s->ids[i]] = 1;
    }
    return different;
}

/* Marks the words of one longest common subsequence of x and y; false where the walk back takes
 * more than `most` steps (0: any number) or memory is short. */
static bool mark_common(ls_pool *pool, const int32_t *x, size_t n, const int32_t *y, size_t m,
                        int64_t most, uint8_t *common) {
    uint8_t *up = ls_pool_take(pool, n * m, 1); /* whether the walk goes up from unequal words */
    int32_t *rows = ls_pool_take(pool, 2 * (m + 1), sizeof *rows);
    if (up == NULL || rows == NULL) return false;
    for (size_t i = 1; i <= n; i++) {
        int32_t *before = rows + (i - 1) % 2 * (m + 1), *row = rows + i % 2 * (m + 1);
        row[0] = 0;
        for (size_t j = 1; j <= m; j++) {
            const bool higher = before[j] > row[j - 1];
            up[(i - 1) * m + j - 1] = higher;
            row[j] = x[i - 1] == y[j - 1] ? before[j - 1] + 1 : higher ? before[j] : row[j - 1];
        }
    }
    size_t i = n, j = m;
    for (int64_t steps = 0; i > 0 && j > 0; steps++) {
        if (most > 0 && steps >= most) return false;
        if (x[i - 1] == y[j - 1]) {
            common[x[i - 1]] = 1;
            i--;
            j--;
        } else if (up[(i - 1) * m + j - 1]) {
            i--;
        } else {
            j--;
        }
    }
    return true;
}

double ls_rouge_l(ls_pool *pool, ls_points prediction, ls_points reference, int64_t most_steps) {
    side said = cut_side(pool, prediction), wanted = cut_side(pool, reference);
    if (said.piece_count == 0 || wanted.piece_count == 0) return 0;
    const size_t ids = number_words(pool, &said, &wanted);
    uint8_t *common = ls_pool_take(pool, ids, 1), *seen = ls_pool_take(pool, ids, 1);
    if (ids == 0 || common == NULL || seen == NULL) return 0;
    for (size_t w = 0; w < wanted.piece_count; w++)
        for (size_t s = 0; s < said.piece_count; s++) {
            const piece x = wanted.pieces[w], y = said.pieces[s];
            if (!mark_common(pool, wanted.ids + x.first, x.count, said.ids + y.first, y.count,
                             most_steps, common))
                return 0;
        }
    size_t both = 0;
    for (size_t i = 0; i < ids; i++) both += common[i];
    const double p = (double)both / (double)count_different(&said, seen, ids);
    const double r = (double)both / (double)count_different(&wanted, seen, ids);
    return 2.0 * ((p * r) / (p + r + 1e-8));
}

/* Runs of a-z and 0-9 in small letters; those of more than three are cut to their stems. */
static ls_points_list stemmed_words(ls_pool *pool, ls_points text) {
    text = ls_points_lower(pool, text);
    ls_points_list out = {ls_pool_take(pool, text.count / 2 + 1, sizeof *out.at), 0};
    for (size_t i = 0; out.at != NULL && i < text.count;) {
        const size_t start = i;
        while (i < text.count && text.at[i] < 0x80 && text.at[i] != '_' &&
               ls_point_is_word(text.at[i]))
            i++;
        if (i == start) {
            i++;
            continue;
        }
        const size_t length = i - start, room = length + 2;
        char *word = ls_pool_take(pool, room, 1);
        if (word == NULL) break;
        for (size_t k = 0; k < length; k++) word[k] = (char)text.at[start + k];
        const size_t kept = length > 3 ? ls_porter_stem(word, length, room) : length;
        out.at[out.count++] = ls_points_of(pool, word, kept);
    }
    return out;
}

double ls_rouge_1_stemmed(ls_pool *pool, ls_points prediction, ls_points reference) {
    return ls_f1(pool, stemmed_words(pool, prediction), stemmed_words(pool, reference));
}
