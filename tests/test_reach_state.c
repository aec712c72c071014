/* reach.json as it is read: every number in its range, and as much work as the file is long. The
 * state is a seed of fuzz_reach, which is of a model trained at 64 tokens. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "reach/reach.h"

static const char seed[] = LS_TEST_SOURCE "/tests/fuzz/seeds/fuzz_reach/reach";

static json_t *read_seed(ls_ctx *ctx) {
    json_t *state;
    assert_int_equal(ls_json_read(ctx, seed, 1 << 20, &state), LS_OK);
    return state;
}

/* What is reached by names with a tab between them; a number is a place in a list. */
static json_t *reach_for(json_t *at, const char *path) {
    char names[256], *next = names;
    snprintf(names, sizeof names, "%s", path);
    for (char *name; (name = strsep(&next, "\t")) != NULL;)
        at = json_is_array(at) ? json_array_get(at, (size_t)(name[0] - '0'))
                               : json_object_get(at, name);
    return at;
}

static void test_ranges(void **unused) {
    static const char loss[] = "jobs\tperplexity/as it is/64",
                      heads[] = "jobs\theads/as it is/64/1\tcells\t0",
                      middle[] = "jobs\tmiddle/as it is/16/1\tcells\t0",
                      lambada[] = "jobs\tlambada/as it is/20";
    static const struct {
        const char *where, *key, *value, *said;
    } forged[] = {
        {"", "trained_length", "-5", "`trained_length` must be 64 to 64"},
        {"", "trained_length", "128", "`trained_length` must be 64 to 64"},
        {"", "spent_seconds", "-1e300", "`spent_seconds` of the reach must be a number"},
        {"", "variants", "[]", "`variants` must be 1 to"},
        {"", "variants", "[{\"name\": 5}]", "`name` must be a text"},
        {"", "jobs", "[]", "`jobs` must be at most"},
        {"", "jobs", "{\"a\": 5}", "a job must be an object"},
        {"plan", "room", "4097", "`room` must be 1 to 4096"},
        {"plan", "times", "65", "`times` must be 1 to 64"},
        {"plan", "first", "-1", "`first` must be 0 to"},
        {"plan", "rounds", "101", "`rounds` must be 1 to 100"},
        {"plan", "lambada_passages", "-1", "`lambada_passages` must be 0 to"},
        {"plan", "tokens_per_second", "-1", "`tokens_per_second` of the plan must be"},
        {loss, "size", "-9223372036854775808", "`size` must be 0 to"},
        {loss, "size", "1.5", "`size` must be a whole number"},
        {loss, "kind", "6", "`kind` must be 0 to 5"},
        {loss, "took", "-1", "`took` of a job must be a number from 0"},
        {loss, "ppl", "-1", "`ppl` of a job must be a number from 0"},
        {loss, "flat", "\"x\"", "`flat` of a job must be a number"},
        {loss, "positions", "5", "positions must be an object"},
        {loss, "positions", "{\"loss\": [1], \"first\": []}", "must be a list as long as"},
        {heads, "n", "1e300", "`n` of cells must be a number from 0"},
        {heads, "layer", "-1", "`layer` of cells must be a number from 0"},
        {middle, "n", "4294967296", "`n` of cells must be a number from 0"},
        {middle, "position", "-1", "`position` of cells must be a number from 0"},
        {lambada, "accuracy_last_token", "2", "`accuracy_last_token` of a job must be"}};
    ls_ctx ctx = ls_ctx_default();
    (void)unused;
    json_t *whole = read_seed(&ctx);
    assert_int_equal(ls_reach_check(&ctx, "r", whole, 64), LS_OK);
    for (size_t i = 0; i < sizeof forged / sizeof forged[0]; i++) {
        json_t *state = json_deep_copy(whole);
        json_t *at = forged[i].where[0] == '\0' ? state : reach_for(state, forged[i].where);
        assert_non_null(at);
        json_object_set_new(at, forged[i].key, json_loads(forged[i].value, JSON_DECODE_ANY, NULL));
        assert_int_equal(ls_reach_check(&ctx, "r", state, 64), LS_EINPUT);
        if (strstr(ctx.error.message, forged[i].said) == NULL)
            fail_msg("%s: %s", forged[i].said, ctx.error.message);
        ctx.error = (ls_error){0};
        json_decref(state);
    }
    for (int i = 0; i < 5000; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        json_object_set_new(json_object_get(whole, "jobs"), name,
                            json_pack("{s:i, s:i}", "kind", 0, "size", i));
    }
    assert_int_equal(ls_reach_check(&ctx, "r", whole, 64), LS_EINPUT);
    json_decref(whole);
}

/* Cells of all rounds are found by their numbers, not by a walk: 60,000 of two kinds, twice. */
static void test_many_cells(void **unused) {
    enum { CELLS = 60000 };
    ls_ctx ctx = ls_ctx_default();
    ls_text page = {0};
    (void)unused;
    json_t *state = read_seed(&ctx), *jobs = json_object_get(state, "jobs");
    for (int round = 3; round < 5; round++) {
        char name[64];
        json_t *needles = json_array(), *heads = json_array();
        for (int i = 0; i < CELLS; i++) {
            json_array_append_new(needles, json_pack("{s:i, s:i, s:i, s:f}", "length", 1 + i,
                                                     "depth", 50, "n", 1, "score", 1.0));
            json_array_append_new(heads, json_pack("{s:i, s:i, s:i, s:i, s:{s:f}}", "length", 64,
                                                   "layer", i, "head", i, "n", 1, "metrics",
                                                   "prefix_matching", 0.5));
        }
        snprintf(name, sizeof name, "needle/as it is/64/%d", round);
        json_object_set_new(jobs, name,
                            json_pack("{s:i, s:i, s:o}", "kind", 1, "size", 64, "cells", needles));
        snprintf(name, sizeof name, "heads/as it is/64/%d", round);
        json_object_set_new(jobs, name,
                            json_pack("{s:i, s:i, s:o}", "kind", 4, "size", 64, "cells", heads));
    }
    const clock_t begun = clock();
    assert_int_equal(ls_reach_check(&ctx, "r", state, 64), LS_OK);
    assert_int_equal(ls_reach_find(&ctx, state), LS_OK);
    ls_reach_page(&ctx, state, &page);
    assert_int_equal(ls_text_status(&page), LS_OK);
    assert_true((double)(clock() - begun) / CLOCKS_PER_SEC < 30);
    json_t *needles = ls_reach_rounds(state, "needle", "as it is");
    json_t *cells = json_object_get(needles, "cells");
    assert_true(json_array_size(cells) > CELLS && json_array_size(cells) < CELLS + 10);
    assert_int_equal(json_integer_value(reach_for(cells, "5\tn")), 2); /* of both rounds */
    json_decref(needles);
    ls_text_clear(&ctx, &page);
    json_decref(state);
}

/* A signal is heard between jobs. */
static void test_stop(void **unused) {
    const volatile int stop = 1;
    ls_ctx ctx = ls_ctx_default();
    (void)unused;
    json_t *state = read_seed(&ctx);
    ctx.stop = &stop;
    assert_int_equal(ls_reach_check(&ctx, "r", state, 64), LS_ESTOP);
    json_decref(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_many_cells),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
