/* Similarity of two lines of code: 2 * matching / (|a| + |b|), where what matches is found by
 * blocks (Ratcliff and Obershelp, as Python's difflib does) or is the longest common
 * subsequence. */
#include "suite/lib/metric.h"

/* From this length of b on, characters that are more than one in a hundred begin no block. */
enum { POPULAR_FROM = 200 };

typedef struct matcher {
    ls_points a, b;
    bool *popular;      /* [b] */
    size_t *lengths[2]; /* [b + 1]: of the blocks that end at each place */
} matcher;

typedef struct span {
    size_t a, a_end, b, b_end;
} span;

typedef struct match {
    size_t a, b, size;
} match;

static void find_popular(matcher *m) {
    const size_t n = m->b.count;
    for (size_t i = 0; n >= POPULAR_FROM && i < n; i++) {
        size_t times = 0;
        for (size_t j = 0; j < n; j++) times += m->b.at[j] == m->b.at[i];
        m->popular[i] = times > n / 100 + 1;
    }
}

/* The longest block without popular characters, the first in a, then in b; then as much more on
 * both sides as is equal. */
static match longest(const matcher *m, span within) {
    match best = {within.a, within.b, 0};
    size_t *before = m->lengths[0], *row = m->lengths[1];
    for (size_t j = within.b; j <= within.b_end; j++) before[j] = 0;
    for (size_t i = within.a; i < within.a_end; i++) {
        row[within.b] = 0;
        for (size_t j = within.b; j < within.b_end; j++) {
            const bool same = m->a.at[i] == m->b.at[j] && !m->popular[j];
            row[j + 1] = same ? before[j] + 1 : 0;
            if (row[j + 1] > best.size)
                best = (match){i + 1 - row[j + 1], j + 1 - row[j + 1], row[j + 1]};
        }
        size_t *other = before;
        before = row;
        row = other;
    }
    while (best.a > within.a && best.b > within.b && m->a.at[best.a - 1] == m->b.at[best.b - 1]) {
        best.a--;
        best.b--;
        best.size++;
    }
    while (best.a + best.size < within.a_end && best.b + best.size < within.b_end &&
           m->a.at[best.a + best.size] == m->b.at[best.b + best.size])
        best.size++;
    return best;
}

double ls_similarity_blocks(ls_pool *pool, ls_points a, ls_points b) {
    matcher m = {.a = a, .b = b};
    const size_t deepest = (a.count < b.count ? a.count : b.count) + 1;
    m.popular = ls_pool_take(pool, b.count, sizeof *m.popular);
    m.lengths[0] = ls_pool_take(pool, b.count + 1, sizeof *m.lengths[0]);
    m.lengths[1] = ls_pool_take(pool, b.count + 1, sizeof *m.lengths[1]);
    span *waiting = ls_pool_take(pool, 2 * deepest, sizeof *waiting);
    if (m.popular == NULL || m.lengths[0] == NULL || m.lengths[1] == NULL || waiting == NULL)
        return 0;
    find_popular(&m);
    size_t count = 0, matched = 0;
    waiting[count++] = (span){0, a.count, 0, b.count};
    while (count > 0) {
        const span at = waiting[--count];
        const match found = longest(&m, at);
        if (found.size == 0) continue;
        matched += found.size;
        if (at.a < found.a && at.b < found.b)
            waiting[count++] = (span){at.a, found.a, at.b, found.b};
        const size_t a_end = found.a + found.size, b_end = found.b + found.size;
        if (a_end < at.a_end && b_end < at.b_end)
            waiting[count++] = (span){a_end, at.a_end, b_end, at.b_end};
    }
    return 2.0 * (double)matched / (double)(a.count + b.count);
}

double ls_similarity_edits(ls_pool *pool, ls_points a, ls_points b) {
    size_t *row = ls_pool_take(pool, b.count + 1, sizeof *row);
    if (row == NULL) return 0;
    for (size_t i = 0; i < a.count; i++) {
        size_t corner = 0;
        for (size_t j = 0; j < b.count; j++) {
            const size_t above = row[j + 1];
            row[j + 1] = a.at[i] == b.at[j] ? corner + 1 : above > row[j] ? above : row[j];
            corner = above;
        }
    }
    return 2.0 * (double)row[b.count] / (double)(a.count + b.count);
}
