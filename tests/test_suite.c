/* Suites from inside: Python's text rules, its shuffle, the stemmer, and likelihoods of forked and
 * batched sequences against those of whole ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "failing_allocator.h"
#include "suite/lib/heads.h"
#include "suite/lib/python_random.h"
#include "suite/lib/scorer.h"

enum { VOCABULARY = 29 };

typedef struct world {
    ls_ctx ctx;
    ls_model_config config;
    ls_model *model;
    ls_tokenizer *tokenizer;
} world;

static void expect(world *w, ls_status status, const char *what) {
    if (status != LS_OK) fail_msg("%s: %s", what, w->ctx.error.message);
}
/* cmocka's own compares floats */
static void near(double ours, double wanted, double most) {
    if (!(fabs(ours - wanted) <= most)) fail_msg("%.17g is not %.17g", ours, wanted);
}
#define OK(w, expression) expect((w), (expression), #expression)

static void world_open(world *w, const char *words) {
    char all[512];
    *w = (world){.ctx = ls_ctx_default()};
    w->ctx.threads = 1;
    snprintf(all, sizeof all, "model.layers=2 model.width=16 model.vocabulary=29 %s", words);
    OK(w, ls_model_config_read_words(&w->ctx, all, &w->config));
    OK(w, ls_model_new(&w->ctx, &w->config, LS_F64, 3, false, &w->model));
    OK(w, ls_tokenizer_new_byte(&w->ctx, &w->tokenizer));
}

static void world_close(world *w) {
    ls_tokenizer_free(&w->ctx, w->tokenizer);
    ls_model_free(w->model);
    ls_model_config_clear(&w->ctx, &w->config);
}

static ls_tokens tokens_of(ls_pool *pool, int which, int64_t count) {
    int32_t *at = ls_pool_take(pool, (size_t)count, sizeof *at);
    for (int64_t i = 0; i < count; i++)
        at[i] = (int32_t)((7 * i * i + 11 * which + i) % VOCABULARY);
    return (ls_tokens){at, count};
}

/* Two contexts, three questions of four candidates; the second context is bare. */
static void make_group(world *w, ls_suite_group *group) {
    *group = (ls_suite_group){.pool = {.ctx = &w->ctx}};
    OK(w, ls_group_room(group, 2, 3));
    group->contexts[0] = tokens_of(&group->pool, 1, 83);
    group->contexts[1] = tokens_of(&group->pool, 2, 40);
    for (int i = 0; i < 3; i++) {
        ls_suite_item *item = &group->items[i];
        item->bare = 1;
        item->question = tokens_of(&group->pool, 10 + i, 3 * i); /* the first is empty */
        item->candidate_count = 4;
        item->candidates = ls_pool_take(&group->pool, 4, sizeof *item->candidates);
        for (int c = 0; c < 4; c++)
            item->candidates[c] = tokens_of(&group->pool, 20 + 4 * i + c, c == 3 ? 90 : c + 1 + i);
        for (int c = 0; c < 4; c++) /* of the second and third item all begin alike */
            memcpy((int32_t *)item->candidates[c].at, item->candidates[0].at,
                   (size_t)i * sizeof *item->candidates[c].at);
    }
}

/* The same by one pass over everything. */
static double whole(world *w, ls_tokens context, ls_tokens question, ls_tokens candidate) {
    int32_t all[512];
    double loss[512], sum = 0;
    const ls_tokens parts[] = {context, question, candidate};
    int64_t count = 0;
    ls_stream *stream;
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < parts[p].count; i++) all[count++] = parts[p].at[i];
    OK(w, ls_stream_new(w->model, 1, count, 512, &stream));
    OK(w, ls_stream_loss(stream, all, all + 1, count - 1, count, loss));
    for (int64_t i = count - 1 - candidate.count; i < count - 1; i++) sum -= loss[i];
    ls_stream_free(stream);
    return sum;
}

static const char *const models[] = {"mixer.heads=2 model.position=rope", "model.mixer=mamba",
                                     "model.mixer=retnet mixer.heads=2",
                                     "model.layers=mamba,attention mixer.heads=2"};

static void forks_give_what_whole_sequences_give(void **state) {
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        world w;
        ls_suite_group group;
        world_open(&w, models[m]);
        make_group(&w, &group);
        ls_item_score shared[3] = {0}, alone[3] = {0};
        ls_scorer one = {.model = w.model, .share = true, .chunk = 32}, two = one;
        two.share = false;
        OK(&w, ls_score_group(&one, w.tokenizer, &group, shared));
        OK(&w, ls_score_group(&two, w.tokenizer, &group, alone));
        assert_true(one.tokens < two.tokens);
        for (int i = 0; i < 3; i++)
            for (int c = 0; c < 4; c++) {
                const ls_suite_item *item = &group.items[i];
                assert_true(shared[i].with[c].logprob == alone[i].with[c].logprob);
                assert_true(shared[i].without[c].logprob == alone[i].without[c].logprob);
                near(shared[i].with[c].logprob,
                     whole(&w, group.contexts[0], item->question, item->candidates[c]), 1e-9);
                near(shared[i].without[c].logprob,
                     whole(&w, group.contexts[1], item->question, item->candidates[c]), 1e-9);
            }
        ls_scorer_clear(&one);
        ls_scorer_clear(&two);
        ls_pool_clear(&group.pool);
        world_close(&w);
    }
}

static void batches_give_what_whole_sequences_give(void **state) {
    (void)state;
    enum { COUNT = 5 };
    world w;
    ls_suite_group groups[COUNT];
    ls_likelihood scores[COUNT];
    world_open(&w, models[0]);
    for (int g = 0; g < COUNT; g++) {
        groups[g] = (ls_suite_group){.pool = {.ctx = &w.ctx}};
        OK(&w, ls_group_room(&groups[g], 1, 1));
        groups[g].contexts[0] = tokens_of(&groups[g].pool, g, 1 + 13 * g);
        groups[g].items[0].candidates = ls_pool_take(&groups[g].pool, 1, sizeof(ls_tokens));
        groups[g].items[0].candidates[0] = tokens_of(&groups[g].pool, 40 + g, 6 - g);
    }
    ls_scorer scorer = {.model = w.model, .chunk = 16};
    OK(&w, ls_score_batch(&scorer, groups, COUNT, scores));
    for (int g = 0; g < COUNT; g++) {
        near(scores[g].logprob,
             whole(&w, groups[g].contexts[0], (ls_tokens){0}, groups[g].items[0].candidates[0]),
             1e-9);
        ls_pool_clear(&groups[g].pool);
    }
    ls_scorer_clear(&scorer);
    world_close(&w);
}

/* The context is all of the question. */
static void a_context_may_be_the_question(void **state) {
    (void)state;
    world w;
    ls_suite_group group;
    ls_item_score scores[1] = {0};
    world_open(&w, models[0]);
    group = (ls_suite_group){.pool = {.ctx = &w.ctx}};
    OK(&w, ls_group_room(&group, 1, 1));
    group.contexts[0] = tokens_of(&group.pool, 1, 20);
    group.items[0].bare = -1;
    group.items[0].candidates = ls_pool_take(&group.pool, 1, sizeof(ls_tokens));
    group.items[0].candidates[0] = tokens_of(&group.pool, 3, 4);
    group.items[0].candidate_count = 1;
    ls_scorer scorer = {.model = w.model, .share = true, .chunk = 32};
    OK(&w, ls_score_group(&scorer, w.tokenizer, &group, scores));
    near(scores[0].with[0].logprob,
         whole(&w, group.contexts[0], (ls_tokens){0}, group.items[0].candidates[0]), 1e-9);
    ls_scorer_clear(&scorer);
    ls_pool_clear(&group.pool);
    world_close(&w);
}

static void a_stop_ends_scoring(void **state) {
    (void)state;
    world w;
    ls_suite_group group;
    ls_item_score scores[3] = {0};
    volatile sig_atomic_t stop = 1;
    world_open(&w, models[0]);
    make_group(&w, &group);
    ls_scorer scorer = {.model = w.model, .share = true, .stop = &stop};
    assert_int_equal(ls_score_group(&scorer, w.tokenizer, &group, scores), LS_ESTOP);
    ls_scorer_clear(&scorer);
    ls_pool_clear(&group.pool);
    world_close(&w);
}

/* Values of CPython 3.11: random.Random(42).shuffle(list(range(10))). */
static void the_shuffle_is_pythons(void **state) {
    (void)state;
    static const size_t wanted[] = {7, 3, 2, 8, 5, 6, 9, 4, 0, 1};
    size_t order[10];
    ls_python_random random;
    ls_python_seed(&random, 42);
    ls_python_shuffle(&random, order, 10);
    assert_memory_equal(order, wanted, sizeof wanted);
}

static void check_text(ls_ctx *ctx, ls_points points, const char *wanted) {
    ls_text text = {0};
    ls_points_append(ctx, points, &text);
    assert_string_equal(text.bytes == NULL ? "" : text.bytes, wanted);
    ls_text_clear(ctx, &text);
}

static void texts_follow_pythons_rules(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_pool pool = {.ctx = &ctx};
    check_text(&ctx, ls_points_lower(&pool, ls_points_text(&pool, "ΟΔΟΣ ΣΟΦΟΣ. Σ")),
               "οδος σοφος. σ");
    check_text(&ctx, ls_points_lower(&pool, ls_points_text(&pool, "İ")), "i\xCC\x87");
    check_text(&ctx, ls_points_strip(ls_points_text(&pool, "\xC2\xA0 a\xE2\x80\x8B\xE3\x80\x80")),
               "a\xE2\x80\x8B");
    assert_int_equal(ls_points_split(&pool, ls_points_text(&pool, " a\x1F b\tc ")).count, 3);
    check_text(&ctx, ls_normalize_answer(&pool, ls_points_text(&pool, "The a_the, AN-other  the")),
               "athe another");
    assert_int_equal(ls_points_numbers(&pool, ls_points_text(&pool, "٣x12²")).count, 2);
    /* bytes that are not UTF-8 */
    assert_int_equal(ls_points_of(&pool, "\xFF\xC3", 2).count, 2);
    ls_pool_clear(&pool);
}

static void words_are_stemmed(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"caresses", "caress"},  {"ponies", "poni"},    {"dies", "die"},
        {"agreed", "agre"},      {"hopping", "hop"},    {"falling", "fall"},
        {"sunny", "sunni"},      {"dolores", "dolor"},  {"skies", "sky"},
        {"relational", "relat"}, {"geology", "geolog"}, {"enjoyed", "enjoy"},
        {"controll", "control"}, {"yyyyes", "yyyy"},    {"days", "day"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s", pairs[i][0]);
        word[ls_porter_stem(word, strlen(word), sizeof word)] = '\0';
        assert_string_equal(word, pairs[i][1]);
    }
}

/* Every allocation of a score may fail, and says so. */
static ls_status score_rouge(ls_ctx *ctx, void *user) {
    double *score = user;
    ls_pool pool = {.ctx = ctx};
    ls_points reference = ls_points_text(&pool, "a b. c d");
    const ls_answer answer = {.prediction = ls_points_text(&pool, "a c. d"),
                              .references = {&reference, 1}};
    *score = ls_metric_score(&pool, ls_metric_find("longbench", "rouge_score"), &answer);
    const ls_status status = ls_pool_status(&pool);
    ls_pool_clear(&pool);
    return status;
}

static void short_memory_is_told(void **state) {
    (void)state;
    double score = 0;
    fail_each_allocation(score_rouge, &score);
    assert_true(score > 0);
}

/* Heads that do one thing, and circuits whose eigenvalues are known. */
static void heads_are_told_apart(void **state) {
    (void)state;
    enum { T = 9, L = 4 };
    const int64_t tokens[T] = {9, 1, 2, 3, 4, 1, 2, 3, 4};
    double A[T * T] = {0}, same[T * T] = {0};
    for (int q = 0; q < T; q++) A[q * T + (q >= L ? q - L + 1 : 0)] = 1; /* induction */
    for (int q = 0; q < T; q++)
        for (int k = 0; k <= q; k++) same[q * T + k] = 1.0 / (q + 1);
    near(ls_head_stripe(A, T, L - 1), 1, 0);   /* from the first copy's last query on */
    near(ls_head_stripe(A, T, 1), 1.0 / 8, 0); /* the second query has no other */
    near(ls_head_prefix(A, T, L, false), 1, 0);
    near(ls_head_share(A, T, LS_HEAD_INDUCTION, tokens, (ls_head_match){true, false}), 0.8, 1e-15);
    near(ls_head_share(A, T, LS_HEAD_PREVIOUS, tokens, (ls_head_match){0}), 1.0 / T, 1e-15);
    near(ls_head_entropy(same, T, true), 1, 1e-15);
    near(ls_head_entropy(A, T, false), 0, 0);
    near(ls_head_first_token(A, T), 3.0 / 8, 1e-15);
    double turn[] = {0, -1, 1, 0}, mixed[] = {2, 1, 0, -1};
    double three[] = {1, 2, 3, 0, 4, 5, 0, -5, 4};
    near(ls_head_positive(turn, 2), 0, 1e-15);
    near(ls_head_positive(mixed, 2), 1.0 / 3, 1e-15);
    near(ls_head_positive(three, 3), 9 / (1 + 2 * sqrt(41)), 1e-14);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forks_give_what_whole_sequences_give),
        cmocka_unit_test(batches_give_what_whole_sequences_give),
        cmocka_unit_test(a_context_may_be_the_question),
        cmocka_unit_test(a_stop_ends_scoring),
        cmocka_unit_test(the_shuffle_is_pythons),
        cmocka_unit_test(texts_follow_pythons_rules),
        cmocka_unit_test(words_are_stemmed),
        cmocka_unit_test(short_memory_is_told),
        cmocka_unit_test(heads_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
