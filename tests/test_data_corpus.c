#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <zstd.h>

#include "data/corpus.h"
#include "data_fixture.h"
#include "failing_allocator.h"

/* Opens, reads everything and returns the status; documents and bytes through the pointers. */
static ls_status read_all(ls_ctx *ctx, const char *path, ls_corpus_format format,
                          int64_t *documents, int64_t *bytes) {
    ls_corpus *corpus;
    ls_document document;
    *documents = *bytes = 0;
    LS_TRY(ls_corpus_open(ctx, path, format, "text", &corpus));
    ls_status status;
    for (;;) {
        status = ls_corpus_next(ctx, corpus, &document);
        if (status != LS_OK || document.text == NULL) break;
        assert_int_equal(document.index, *documents);
        (*documents)++;
        *bytes += (int64_t)document.length;
    }
    ls_corpus_free(ctx, corpus);
    return status;
}

static void expect(const char *path, ls_corpus_format format, int64_t documents, int64_t bytes) {
    ls_ctx ctx = ls_ctx_default();
    int64_t got_documents, got_bytes;
    ls_status status = read_all(&ctx, path, format, &got_documents, &got_bytes);
    if (status != LS_OK) print_message("%s\n", ctx.error.message);
    assert_int_equal(status, LS_OK);
    assert_int_equal(got_documents, documents);
    assert_int_equal(got_bytes, bytes);
}

static void expect_bad(const char *path, ls_corpus_format format, const char *word) {
    ls_ctx ctx = ls_ctx_default();
    int64_t documents, bytes;
    assert_int_equal(read_all(&ctx, path, format, &documents, &bytes), LS_EINPUT);
    if (strstr(ctx.error.message, word) == NULL) print_message("%s\n", ctx.error.message);
    assert_non_null(strstr(ctx.error.message, word));
}

static const char *compressed(const char *name, const char *text, size_t length) {
    static char packed[1 << 20];
    size_t bytes = ZSTD_compress(packed, sizeof packed, text, length, 3);
    assert_false(ZSTD_isError(bytes));
    return fixture_file(name, packed, bytes);
}

static void test_text(void **state) {
    (void)state;
    expect(fixture_text("one.txt", "hello\nworld\n"), LS_CORPUS_AUTO, 1, 12);
    expect(compressed("one.txt.zst", "hello\nworld\n", 12), LS_CORPUS_AUTO, 1, 12);
    expect(fixture_text("none.txt", ""), LS_CORPUS_AUTO, 0, 0);
    expect_bad(fixture_path("missing.txt"), LS_CORPUS_AUTO, "missing.txt");
    expect_bad("/dev/null", LS_CORPUS_AUTO, "neither a plain file nor a folder");
    expect_bad(fixture_path("one.txt"), LS_CORPUS_FOLDER, "not a folder");
    expect_bad(fixture_folder, LS_CORPUS_TEXT, "is a folder");
    expect_bad(fixture_text("fake.txt.zst", "plain"), LS_CORPUS_AUTO, "no zstd data");
}

static void test_zstd(void **state) {
    (void)state;
    /* two frames after each other are one text */
    char packed[1000];
    size_t first = ZSTD_compress(packed, sizeof packed, "abc", 3, 3);
    size_t second = ZSTD_compress(packed + first, sizeof packed - first, "defg", 4, 3);
    expect(fixture_file("two.zst", packed, first + second), LS_CORPUS_AUTO, 1, 7);
    expect_bad(fixture_file("cut.zst", packed, first - 2), LS_CORPUS_AUTO, "middle of zstd data");
    packed[first + 5] ^= 0x55;
    expect_bad(fixture_file("broken.zst", packed, first + second), LS_CORPUS_AUTO, "zstd");
    /* a bomb */
    size_t length = (size_t)1 << 27;
    char *blanks = malloc(length);
    assert_non_null(blanks);
    memset(blanks, ' ', length);
    const char *path = compressed("bomb.zst", blanks, length);
    free(blanks);
    expect_bad(path, LS_CORPUS_AUTO, "expands more than");
}

static void test_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    assert_int_equal(ls_folder_make(&ctx, fixture_path("tree/b/c")), LS_OK);
    assert_int_equal(ls_folder_make(&ctx, fixture_path("bare/sub")), LS_OK);
    fixture_text("tree/z.txt", "zz");
    fixture_text("tree/a.md", "a");
    fixture_text("tree/empty.txt", "");
    fixture_text("tree/.hidden", "hidden");
    fixture_file("tree/picture.png", "\x89PNG\0\0\0", 7);
    fixture_text("tree/b/c/deep.txt", "deep");
    compressed("tree/b/packed.txt.zst", "packed", 6);
    fixture_text("tree/lines.jsonl", "{\"text\": \"l1\"}\n{\"text\": \"\"}\n{\"text\": \"l3\"}");
    assert_int_equal(symlink("..", fixture_path("tree/b/circle")), 0);
    assert_int_equal(symlink("nowhere", fixture_path("tree/b/dangling")), 0);
    expect(fixture_path("tree"), LS_CORPUS_AUTO, 6, 2 + 1 + 4 + 6 + 2 + 2);
    expect(fixture_path("tree"), LS_CORPUS_JSONL, 2, 4);
    expect_bad(fixture_path("bare"), LS_CORPUS_AUTO, "holds no text file");
    expect_bad(fixture_path("bare"), LS_CORPUS_JSONL, "holds no .jsonl file");
    /* in the order of paths, with names that do not tell where the folder is */
    static const char *const names[] = {"a.md",          "b/c/deep.txt",  "b/packed.txt.zst",
                                        "lines.jsonl:1", "lines.jsonl:3", "z.txt"};
    ls_corpus *corpus;
    ls_document document;
    assert_int_equal(ls_corpus_open(&ctx, fixture_path("tree"), LS_CORPUS_FOLDER, "text", &corpus),
                     LS_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < 6; i++) {
            assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
            assert_string_equal(document.name, names[i]);
        }
        ls_corpus_rewind(&ctx, corpus);
    }
    uint64_t key = ls_corpus_key(corpus);
    ls_corpus_free(&ctx, corpus);
    fixture_text("tree/z.txt", "zzz");
    assert_int_equal(ls_corpus_open(&ctx, fixture_path("tree"), LS_CORPUS_FOLDER, "text", &corpus),
                     LS_OK);
    assert_false(key == ls_corpus_key(corpus));
    ls_corpus_free(&ctx, corpus);
}

static void test_jsonl(void **state) {
    (void)state;
    expect(fixture_text("a.jsonl", "{\"text\": \"one\"}\r\n\n  \n{\"text\": \"two\", \"n\": 1}"),
           LS_CORPUS_AUTO, 2, 6);
    static const char nul[] = "{\"text\": \"a\\u0000b\"}\n";
    expect(fixture_text("nul.jsonl", nul), LS_CORPUS_AUTO, 1, 3);
    expect(compressed("a.jsonl.zst", nul, sizeof nul - 1), LS_CORPUS_AUTO, 1, 3);
    expect_bad(fixture_text("b.jsonl", "{\"text\": \"one\"}\n{\"text\": 2}\n"), LS_CORPUS_AUTO,
               "line 2: no text under the key `text`");
    expect_bad(fixture_text("c.jsonl", "{\"text\": \"one\"}\n\n{\"text\": \"tw\n"), LS_CORPUS_AUTO,
               "line 3");
    expect_bad(fixture_text("d.jsonl", "[\"text\"]\n"), LS_CORPUS_AUTO, "line 1");
    expect_bad(fixture_text("e.jsonl", "{\"text\":\"a\",\"text\":\"b\"}\n"), LS_CORPUS_AUTO,
               "line 1");
    char deep[300];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = '\0';
    expect_bad(fixture_text("f.jsonl", deep), LS_CORPUS_AUTO, "deeper");
    /* a line longer than any buffer */
    size_t length = 300000;
    char *line = malloc(length + 20);
    assert_non_null(line);
    size_t at = (size_t)sprintf(line, "{\"text\": \"");
    memset(line + at, 'x', length);
    strcpy(line + at + length, "\"}\n");
    expect(fixture_text("long.jsonl", line), LS_CORPUS_AUTO, 1, (int64_t)length);
    free(line);
}

static void make_documents(const char *folder, int count) {
    ls_ctx ctx = ls_ctx_default();
    static char text[300000];
    assert_int_equal(ls_folder_make(&ctx, fixture_path(folder)), LS_OK);
    memset(text, 'x', sizeof text);
    for (int i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/d%03d.txt", folder, i);
        fixture_file(name, text, i % 10 == 0 ? 200000 : i % 10 < 5 ? 5000 : 500);
    }
}

static void test_split(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    ls_document document;
    make_documents("split", 60);
    assert_int_equal(ls_corpus_open(&ctx, fixture_path("split"), LS_CORPUS_AUTO, "text", &corpus),
                     LS_OK);
    bool chosen[60];
    for (int pass = 0; pass < 2; pass++) {
        int test = 0, long_test = 0;
        assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.1, 0}), LS_OK);
        for (;;) {
            assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
            if (document.text == NULL) break;
            test += document.test;
            long_test += document.test && document.length > 65536;
            if (pass == 0)
                chosen[document.index] = document.test;
            else
                assert_int_equal(chosen[document.index], document.test);
        }
        assert_int_equal(test, 1 + 2 + 3); /* 6 of 200 kB, 24 of 5 kB, 30 of 500 bytes */
        assert_int_equal(long_test, 1);
    }
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.7, 0}), LS_EUSE);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0, 0}), LS_OK);
    assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
    assert_false(document.test);
    ls_corpus_free(&ctx, corpus);
    /* two documents of different classes: one is kept for the test all the same */
    assert_int_equal(ls_folder_make(&ctx, fixture_path("pair")), LS_OK);
    fixture_text("pair/a", "short");
    static char text[100000];
    memset(text, 'y', sizeof text);
    fixture_file("pair/b", text, sizeof text);
    assert_int_equal(ls_corpus_open(&ctx, fixture_path("pair"), LS_CORPUS_AUTO, "text", &corpus),
                     LS_OK);
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.5, 0}), LS_OK);
    int test = 0;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
        test += document.test;
    }
    assert_int_equal(test, 1);
    ls_corpus_free(&ctx, corpus);
}

/* Validation documents are others than those of the test, which do not depend on them. */
static void test_validation(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    ls_document document;
    bool alone[60] = {false};
    make_documents("held", 60);
    assert_int_equal(ls_corpus_open(&ctx, fixture_path("held"), LS_CORPUS_AUTO, "text", &corpus),
                     LS_OK);
    for (int pass = 0; pass < 2; pass++) {
        int test = 0, validation = 0, long_validation = 0;
        assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.1, pass * 0.1}), LS_OK);
        for (;;) {
            assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
            if (document.text == NULL) break;
            assert_false(document.test && document.validation);
            test += document.test;
            validation += document.validation;
            long_validation += document.validation && document.length > 65536;
            if (pass == 0) alone[document.index] = document.test;
            assert_int_equal(alone[document.index], document.test);
        }
        assert_int_equal(test, 1 + 2 + 3);
        assert_int_equal(validation, pass * test);
        assert_int_equal(long_validation, pass);
    }
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0, 0.6}), LS_EUSE);
    ls_corpus_free(&ctx, corpus);
}

/* A lone document has three parts, in order, which join to the whole. */
static void test_cut_thrice(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    ls_document document;
    char text[1000], joined[1001] = "";
    for (int i = 0; i < 100; i++) memcpy(text + 10 * i, "012345678\n", 10);
    const char *path = fixture_file("thrice.txt", text, sizeof text);
    assert_int_equal(ls_corpus_open(&ctx, path, LS_CORPUS_AUTO, "text", &corpus), LS_OK);
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.2, 0.25}), LS_OK);
    static const size_t lengths[] = {610, 200, 190};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
        assert_int_equal(document.validation, i == 1);
        assert_int_equal(document.test, i == 2);
        assert_int_equal(document.length, lengths[i]);
        strncat(joined, document.text, document.length);
    }
    assert_memory_equal(joined, text, sizeof text);
    assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
    assert_null(document.text);
    ls_corpus_free(&ctx, corpus);
}

/* A single document is cut at a line; its parts join to the whole. */
static void cut_alone(const char *path, const char *text, size_t head) {
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    ls_document document;
    assert_int_equal(ls_corpus_open(&ctx, path, LS_CORPUS_AUTO, "text", &corpus), LS_OK);
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.2, 0}), LS_OK);
    assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
    assert_int_equal(document.length, head);
    assert_false(document.test);
    assert_memory_equal(document.text, text, head);
    assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
    assert_true(document.test);
    assert_int_equal(document.length, strlen(text) - head);
    assert_memory_equal(document.text, text + head, document.length);
    assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
    assert_null(document.text);
    ls_corpus_free(&ctx, corpus);
}

static void test_cut(void **state) {
    (void)state;
    static const char lines[] = "0123456\n0123456\n0123456\n0123456\n0123456\n0123456\n0123456\n"
                                "0123456\n0123456\n0123456\n";
    cut_alone(fixture_text("lines.txt", lines), lines, 72);
    cut_alone(fixture_text("lone.jsonl", "{\"text\": \"0123456789\"}\n\n\n"), "0123456789", 8);
    cut_alone(fixture_text("letters.txt", "aaaaaaa\xc3\xa4\xc3\xa4"), "aaaaaaa\xc3\xa4\xc3\xa4", 9);
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    assert_int_equal(
        ls_corpus_open(&ctx, fixture_text("void.txt", ""), LS_CORPUS_AUTO, "text", &corpus), LS_OK);
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.2, 0}), LS_EINPUT);
    assert_non_null(strstr(ctx.error.message, "holds no text"));
    ls_corpus_free(&ctx, corpus);
}

static void test_default(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_corpus *corpus;
    ls_document document;
    if (ls_corpus_open(&ctx, "default", LS_CORPUS_AUTO, "text", &corpus) != LS_OK) {
        assert_int_equal(ctx.error.code, LS_EINPUT);
        assert_non_null(strstr(ctx.error.message, "script/bootstrap"));
        test_skip("perl-doc is not installed");
    }
    assert_int_equal(ls_corpus_split(&ctx, corpus, (ls_corpus_shares){0.1, 0}), LS_OK);
    int documents = 0, test = 0, long_test = 0;
    for (;;) {
        assert_int_equal(ls_corpus_next(&ctx, corpus, &document), LS_OK);
        if (document.text == NULL) break;
        documents++;
        test += document.test;
        long_test += document.test && document.length > 65536;
    }
    assert_in_range(documents, 150, 400);
    assert_in_range(test, documents / 20, documents / 5);
    assert_in_range(long_test, 2, 10);
    ls_corpus_free(&ctx, corpus);
}

static ls_status everything(ls_ctx *ctx, void *user) {
    ls_corpus *corpus;
    ls_document document;
    LS_TRY(ls_corpus_open(ctx, user, LS_CORPUS_AUTO, "text", &corpus));
    ls_status status = ls_corpus_split(ctx, corpus, (ls_corpus_shares){0.3, 0});
    while (status == LS_OK) {
        status = ls_corpus_next(ctx, corpus, &document);
        if (status == LS_OK && document.text == NULL) break;
    }
    ls_corpus_free(ctx, corpus);
    return status;
}

static void test_allocation_failures(void **state) {
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s", fixture_path("tree"));
    fail_each_allocation(everything, path);
    snprintf(path, sizeof path, "%s", fixture_path("lone.jsonl"));
    fail_each_allocation(everything, path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),       cmocka_unit_test(test_zstd),
        cmocka_unit_test(test_folder),     cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_split),      cmocka_unit_test(test_validation),
        cmocka_unit_test(test_cut_thrice), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_default),    cmocka_unit_test(test_allocation_failures),
    };
    return test_code(cmocka_run_group_tests(tests, fixture_make, fixture_remove));
}
