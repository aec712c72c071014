/* The runs of tiles against the predicate tried on every pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the above first */
#include <cmocka.h>

#include "base/random.h"
#include "tensor/op/attention/tile_schedule.h"
#include "tensor/ops.h"

static bool admits(const ls_tile_rule *rule, int64_t n, int64_t m) {
    if (n - m < rule->lo || n - m > rule->hi) return false;
    if (m < rule->key_first || m >= rule->key_end) return false;
    if (rule->group > 0 && m >= n / rule->group) return false;
    if (rule->block == 0 && rule->span.block > 0) {
        int64_t from = m - n / rule->span.block * rule->span.step;
        return from >= rule->span.from && from < rule->span.to;
    }
    if (rule->block == 0) return true;
    int64_t apart = (n + rule->shift) / rule->block - (m + rule->shift) / rule->block;
    return apart >= 0 && apart <= (rule->alone ? 0 : 1);
}

typedef struct tally {
    int64_t admitted, pairs;
} tally;

static tally count_pairs(const ls_tile_rule *rule, ls_interval queries, ls_interval keys) {
    tally sum = {0};
    for (int64_t n = queries.first; n < queries.end; n++)
        for (int64_t m = keys.first; m < keys.end; m++) {
            sum.admitted += admits(rule, n, m);
            sum.pairs++;
        }
    return sum;
}

/* -1: not listed, 0: partial, 1: full. */
static int kind_of(const ls_tile_run *runs, int count, int64_t tile) {
    int kind = -1;
    for (int i = 0; i < count; i++)
        if (tile >= runs[i].first && tile < runs[i].end) {
            assert_int_equal(kind, -1); /* listed once */
            kind = runs[i].full;
        }
    return kind;
}

static ls_interval tile_of(ls_interval all, int64_t tile, int64_t size) {
    ls_interval part = {all.first + tile * size, all.first + (tile + 1) * size};
    return ls_interval_cut(part, all);
}

static void check(const ls_tile_rule *rule, ls_interval asked, ls_interval held) {
    const int64_t query_tiles = (ls_interval_length(asked) + LS_TILE_QUERIES - 1) / LS_TILE_QUERIES;
    const int64_t key_tiles = (ls_interval_length(held) + LS_TILE_KEYS - 1) / LS_TILE_KEYS;
    for (int64_t i = 0; i < query_tiles; i++)
        for (int64_t j = 0; j < key_tiles; j++) {
            ls_interval queries = tile_of(asked, i, LS_TILE_QUERIES);
            ls_interval keys = tile_of(held, j, LS_TILE_KEYS);
            ls_tile_run runs[LS_TILE_RUNS_MAX];
            tally pairs = count_pairs(rule, queries, keys);
            bool all = pairs.admitted == pairs.pairs && !rule->checked;
            int row = kind_of(runs, ls_tile_runs_of_queries(rule, queries, held, runs), j);
            /* what is admitted is listed; a tile may be listed and empty, never FULL and pierced */
            if (pairs.admitted > 0) assert_true(row >= 0);
            assert_int_equal(row == 1, all && ls_interval_length(keys) == LS_TILE_KEYS);
            int column = kind_of(runs, ls_tile_runs_of_keys(rule, keys, asked, runs), i);
            if (pairs.admitted > 0) assert_true(column >= 0);
            assert_int_equal(column == 1, all);
        }
}

static int64_t below(uint64_t *draw, uint64_t bound) {
    return (int64_t)ls_random_below((ls_random){.seed = 3}, (*draw)++, bound);
}

static void runs_follow_the_predicate(void **state) {
    (void)state;
    uint64_t draw = 0;
    for (int round = 0; round < 400; round++) {
        ls_tile_rule rule = {.lo = -LS_FAR, .hi = LS_FAR, .key_first = 0, .key_end = LS_FAR};
        if (below(&draw, 3) > 0) rule.lo = below(&draw, 2) * (below(&draw, 200) - 100);
        if (below(&draw, 2) > 0)
            rule.hi = (rule.lo < -LS_FAR / 2 ? 0 : rule.lo) + below(&draw, 300);
        if (below(&draw, 3) == 0) rule.block = 1 + below(&draw, 150);
        if (rule.block > 0 && below(&draw, 2) == 0) rule.shift = below(&draw, (uint64_t)rule.block);
        if (rule.block == 0 && below(&draw, 2) == 0) {
            rule.span = (ls_span){1 + below(&draw, 150), 0, below(&draw, 300) - 250, 0};
            rule.span.step = below(&draw, 2) ? rule.span.block : 1 + below(&draw, 40);
            rule.span.to = rule.span.from + 1 + below(&draw, 300);
        }
        if (below(&draw, 3) == 0) rule.key_first = below(&draw, 300);
        if (below(&draw, 3) == 0) rule.key_end = rule.key_first + below(&draw, 300);
        if (below(&draw, 4) == 0) rule.group = 1 + below(&draw, 8);
        rule.checked = below(&draw, 6) == 0;
        rule.alone = below(&draw, 2) == 0;
        int64_t start = below(&draw, 2) * below(&draw, 500),
                first = below(&draw, 2) * below(&draw, 400);
        ls_interval asked = {start, start + 1 + below(&draw, 200)};
        ls_interval held = {first, first + 1 + below(&draw, 300)};
        check(&rule, asked, held);
    }
}

/* The pieces of a row's parts follow one another from its first entry to its end. */
static void check_plan(const double *first, int64_t rows) {
    static double words[1 << 16];
    int64_t next[64] = {0}, parts = 0, joined = 0;
    const ls_block_plan plan = ls_block_plan_of(first, rows);
    assert_true(ls_block_plan_words(&plan) <= (int64_t)(sizeof words / sizeof words[0]));
    ls_block_plan_write(&plan, first, rows, words);
    for (int64_t i = 0; i < plan.pieces; i++) {
        const double *piece = words + LS_PIECE_WORDS * i;
        const int64_t row = (int64_t)piece[0];
        assert_true(piece[1] == first[row] + (double)next[row] && piece[2] >= piece[1]);
        assert_true(piece[2] - piece[1] <= (double)plan.longest);
        next[row] = (int64_t)(piece[2] - first[row]);
        if (piece[3] < 0) assert_true(piece[2] == first[row + 1]);
        if (piece[3] >= 0) assert_int_equal((int64_t)piece[3], parts++);
    }
    for (int64_t row = 0; row < rows; row++)
        assert_int_equal(next[row], (int64_t)(first[row + 1] - first[row]));
    for (int64_t i = 0; i < plan.joins; i++) {
        const double *join = words + LS_PIECE_WORDS * plan.pieces + LS_JOIN_WORDS * i;
        assert_int_equal((int64_t)join[1], joined);
        assert_true(join[2] > 1 &&
                    first[(int64_t)join[0] + 1] - first[(int64_t)join[0]] > (double)plan.longest);
        joined += (int64_t)join[2];
    }
    assert_int_equal(parts, plan.parts);
    assert_int_equal(joined, parts);
}

static void pieces_cover_rows(void **state) {
    (void)state;
    double first[65] = {0}; /* short rows, some of them empty, and a few long ones */
    for (int i = 0; i < 64; i++) first[i + 1] = first[i] + (i % 9 == 0 ? 64 + i : i % 8);
    check_plan(first, 64);
    for (int i = 0; i < 64; i++) first[i + 1] = first[i] + 16;
    check_plan(first, 64);
    for (int i = 0; i < 64; i++) first[i + 1] = first[i] + 3000; /* more parts than are wanted */
    check_plan(first, 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(runs_follow_the_predicate),
                                       cmocka_unit_test(pieces_cover_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
