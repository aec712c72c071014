/* Questions about documents, row by row: what a file in the form of SQuAD or HotpotQA holds, and the
 * sentence that refuses it.
 * Tier: memory. */
#include "reader_edges.h"

#include <stdlib.h>

#include "failing_allocator.h"
#include "failing_json.h"
#include "suite/lib/questions.h"

#define QA(question, answer)                                                                       \
    "{\"question\": \"" question "\", \"answers\": [{\"text\": \"" answer "\"}]}"
#define PARAGRAPH(context, qas) "{\"context\": \"" context "\", \"qas\": [" qas "]}"
#define SQUAD(articles) "{\"data\": [" articles "]}"
#define ARTICLE(paragraphs) "{\"paragraphs\": [" paragraphs "]}"
#define HOTPOT(context) "{\"question\": \"q\", \"answer\": \"a\", \"context\": [" context "]}"

static const char squad[] =
    SQUAD(ARTICLE(PARAGRAPH("d", QA("q1", "a1")) ", " PARAGRAPH("b", "")) ", " ARTICLE(
        PARAGRAPH("a", QA("q2", "a2")) ", " PARAGRAPH("c", "") ", " PARAGRAPH("a", "")));

static ls_status open_text(ls_ctx *ctx, const char *text, json_t *notes, ls_questions *out) {
    ls_suite suite = {.ctx = ctx, .notes = notes};
    const ls_ctx plain = ls_ctx_default();
    ls_ctx writer = plain;
    expect(text, ls_file_write(&writer, in_folder("q.json"), text, strlen(text)), &writer, NULL);
    return ls_questions_open(&suite, in_folder("q.json"), out);
}

static void test_forms(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
        size_t questions, documents;
    } rows[] = {
        {squad, NULL, 2, 4},
        {SQUAD(ARTICLE(PARAGRAPH("a", QA("q", "x") ", " QA("r", "y")))), NULL, 2, 1},
        {SQUAD(ARTICLE(PARAGRAPH("a", QA("q", "x") ", {\"is_impossible\": true}"))), NULL, 1, 1},
        {SQUAD(ARTICLE(PARAGRAPH(
             "a", "{\"question\": \"q\", \"answers\": [{\"text\": 3}, {\"text\": \"x\"}]}"))),
         NULL, 1, 1},
        {SQUAD(""), "has no questions", 0, 0},
        {SQUAD("{\"paragraphs\": 3}"), "has no questions", 0, 0},
        {SQUAD(ARTICLE("{\"qas\": []}")), "a paragraph of article 1 has no text `context`", 0, 0},
        {SQUAD(ARTICLE(PARAGRAPH("a", "{\"answers\": []}"))), "question 1 has no text `question`",
         0, 0},
        {SQUAD(ARTICLE(PARAGRAPH("a", QA("q", "x") ", {\"question\": 3}"))),
         "question 2 has no text `question`", 0, 0},
        {SQUAD(ARTICLE(PARAGRAPH("a", "{\"question\": \"q\", \"answers\": []}"))),
         "question 1 has no `answers` with a `text`", 0, 0},
        {SQUAD(ARTICLE(PARAGRAPH("a", "{\"question\": \"q\", \"answers\": [{\"text\": 3}]}"))),
         "question 1 has no `answers` with a `text`", 0, 0},
        {"[" HOTPOT("[\"t\", [\"one. \", \"two.\"]], [\"u\", []]") "]", NULL, 1, 2},
        {"[" HOTPOT("[\"t\", [\"x\"]]") ", " HOTPOT("[\"t\", [\"x\"]]") "]", NULL, 2, 1},
        {"[]", "has no questions", 0, 0},
        {"[" HOTPOT("") "]", "item 1 has no `question`, `answer` and `context`", 0, 0},
        {"[" HOTPOT("[\"t\", [\"x\"]]") ", 3]", "item 2 has no `question`, `answer`", 0, 0},
        {"[{\"answer\": \"a\", \"context\": [[\"t\", []]]}]", "item 1 has no `question`", 0, 0},
        {"[{\"question\": \"q\", \"answer\": 3, \"context\": [[\"t\", []]]}]",
         "item 1 has no `question`", 0, 0},
        {"[" HOTPOT("[\"t\", \"x\"]") "]", "item 1 has no `context` of [title", 0, 0},
        {"[" HOTPOT("[3, [\"x\"]]") "]", "item 1 has no `context` of [title", 0, 0},
        {"[" HOTPOT("[\"t\", [\"x\", 3]]") "]", "item 1 has no `context` of [title", 0, 0},
        {"{\"data\": 3}", "is neither SQuAD (`data`) nor HotpotQA", 0, 0},
        {"{}", "is neither SQuAD (`data`) nor HotpotQA", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_questions questions;
        json_t *notes = json_object();
        const ls_status status = open_text(&ctx, rows[i].text, notes, &questions);
        expect(rows[i].text, status, &ctx, rows[i].sentence);
        if (status == LS_OK) {
            assert_int_equal(questions.count, rows[i].questions);
            assert_int_equal(questions.document_count, rows[i].documents);
            for (size_t d = 1; d < questions.document_count; d++)
                assert_true(strcmp(questions.documents[d - 1], questions.documents[d]) < 0);
            assert_true(json_array_size(questions.at[0].answers) == 1);
        } else {
            assert_int_equal(status, LS_EINPUT);
        }
        assert_int_equal(json_string_length(json_object_get(notes, "q.json")), 16);
        json_decref(notes);
        ls_questions_close(&ctx, &questions);
    }
}

/* The title goes before its sentences, which follow one another. */
static void test_hotpot_documents(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_questions questions;
    json_t *notes = json_object();
    expect("hotpot",
           open_text(&ctx, "[" HOTPOT("[\"u\", []], [\"t\", [\"one. \", \"two.\"]]") "]", notes,
                     &questions),
           &ctx, NULL);
    assert_string_equal(questions.documents[0], "t\none. two.");
    assert_string_equal(questions.documents[1], "u\n");
    assert_int_equal(questions.at[0].gold[0], 1);
    assert_int_equal(questions.at[0].gold[1], 0);
    assert_false(questions.squad);
    ls_questions_close(&ctx, &questions);
    json_decref(notes);
}

static bool has(const ls_words *words, const char *text) {
    size_t times = 0;
    for (size_t i = 0; i < words->count; i++) times += strcmp(words->at[i], text) == 0;
    assert_true(times < 2);
    return times == 1;
}

/* The one with the answer is always there, those of its article before others, each once. */
static void test_draws(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_questions questions;
    json_t *notes = json_object();
    expect("squad", open_text(&ctx, squad, notes, &questions), &ctx, NULL);
    assert_true(questions.squad);
    for (uint64_t seed = 0; seed < 20; seed++)
        for (size_t count = 0; count < 8; count++) {
            ls_pool pool = {.ctx = &ctx};
            const ls_words words = ls_questions_draw(&questions, &questions.at[0],
                                                     (ls_random){.seed = seed}, count, &pool);
            assert_int_equal(words.count, count < 4 ? count : 4);
            assert_int_equal(has(&words, "d"), count > 0);
            assert_int_equal(has(&words, "b"), count > 1);
            assert_int_equal(has(&words, "a") + has(&words, "c"),
                             words.count < 2 ? 0 : (int)words.count - 2);
            ls_pool_clear(&pool);
        }
    ls_questions_close(&ctx, &questions);
    json_decref(notes);
}

static ls_status open_and_draw(ls_ctx *ctx, void *text) {
    ls_questions questions;
    json_t *notes = json_object();
    ls_status status = open_text(ctx, text, notes, &questions);
    if (status == LS_OK) {
        ls_pool pool = {.ctx = ctx};
        (void)ls_questions_draw(&questions, &questions.at[0], (ls_random){.seed = 1}, 2, &pool);
        status = ls_pool_status(&pool);
        ls_pool_clear(&pool);
    }
    ls_questions_close(ctx, &questions);
    json_decref(notes);
    return status;
}

/* A document longer than the pieces that memory is taken in. */
static void test_memory(void **state) {
    (void)state;
    enum { LETTERS = 300000 };
    char text[sizeof squad], *pairs = malloc(LETTERS + 200);
    assert_non_null(pairs);
    memcpy(text, squad, sizeof squad);
    fail_each_allocation(open_and_draw, text);
    snprintf(pairs, LETTERS + 200, "[" HOTPOT("[\"t\", [\"one. \", \"%0*d\"]]") "]", LETTERS, 0);
    fail_each_allocation(open_and_draw, pairs);
    fail_each_json(open_and_draw, text);
    snprintf(pairs, LETTERS + 200, "[" HOTPOT("[\"t\", [\"one. \", \"two.\"]]") "]");
    fail_each_json(open_and_draw, pairs);
    free(pairs);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_hotpot_documents),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
