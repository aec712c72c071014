/* Documents for training, validation and test: lists of paths, mixtures, near duplicates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "data/overlap.h"
#include "data/paths.h"
#include "data_fixture.h"
#include "failing_allocator.h"

/* ---- paths ---- */

static void test_paths(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_data_paths paths;
    assert_int_equal(ls_data_paths_read(&ctx, "data.train", "a,b c", &paths), LS_OK);
    assert_int_equal(paths.count, 2);
    assert_false(paths.mixed);
    assert_string_equal(paths.at[1].path, "b c");
    assert_int_equal(ls_data_paths_read(&ctx, "data.train", "0.7*a*,3e-1*b", &paths), LS_OK);
    assert_true(paths.mixed);
    assert_string_equal(paths.at[0].path, "a*");
    assert_int_equal(paths.at[0].weight, 700000);
    assert_int_equal(paths.at[1].weight, 300000);
    assert_int_equal(ls_data_paths_read(&ctx, "data.train", "x*a", &paths), LS_OK);
    assert_string_equal(paths.at[0].path, "x*a"); /* no number: part of the name */
    static const char *const wrong[] = {"",     ",",     "a,",     "a,,b",    "0.5*",    "0*a",
                                        "-1*a", "1e9*a", "1e-9*a", "0.5*a,b", "a,0.5*b", "0.5*a,"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ctx.error = (ls_error){0};
        assert_int_equal(ls_data_paths_read(&ctx, "data.train", wrong[i], &paths), LS_EUSE);
        assert_non_null(strstr(ctx.error.message, "data.train"));
    }
    char many[2 * LS_DATA_PARTS_MAX + 2];
    for (size_t i = 0; i < sizeof many - 1; i++) many[i] = i % 2 == 0 ? 'a' : ',';
    many[sizeof many - 1] = '\0';
    ctx.error = (ls_error){0};
    assert_int_equal(ls_data_paths_read(&ctx, "data.train", many, &paths), LS_EUSE);
}

/* ---- mixtures ---- */

/* A file whose every token tells which file it is; `documents` of `length` tokens. */
static ls_token_file *make_file(ls_ctx *ctx, int32_t token, int64_t documents, size_t length) {
    int32_t ids[512];
    char name[32];
    ls_tokenizer *tokenizer;
    ls_token_writer *writer;
    ls_token_file *file;
    for (size_t i = 0; i < length; i++) ids[i] = token;
    snprintf(name, sizeof name, "mix%d.tokens", (int)token);
    assert_int_equal(ls_tokenizer_new_byte(ctx, &tokenizer), LS_OK);
    assert_int_equal(ls_token_writer_new(ctx, fixture_path(name), tokenizer, 0, &writer), LS_OK);
    for (int64_t d = 0; d < documents; d++)
        assert_int_equal(ls_token_writer_add(ctx, writer, ids, length, 1), LS_OK);
    assert_int_equal(ls_token_writer_finish(ctx, writer), LS_OK);
    ls_token_writer_free(ctx, writer);
    ls_tokenizer_free(ctx, tokenizer);
    assert_int_equal(ls_token_file_open(ctx, fixture_path(name), &file), LS_OK);
    return file;
}

enum { BATCH = 10, LENGTH = 8 };

/* Any stretch of rows has the files in their shares; rows are pure functions of their numbers. */
static void test_mixture(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *files[] = {make_file(&ctx, 1, 3, 100), make_file(&ctx, 2, 1, 300),
                              make_file(&ctx, 3, 9, 40)};
    static const int64_t weights[] = {500000, 300000, 200000};
    const ls_loader_settings settings = {LS_LOADER_SHUFFLED, true, BATCH, LENGTH, 5};
    ls_loader *loader;
    assert_int_equal(ls_loader_new_mixed(&ctx, files, weights, 3, settings, &loader), LS_OK);
    int32_t x[BATCH * LENGTH], y[BATCH * LENGTH], z[LENGTH], w[LENGTH];
    int64_t count[4] = {0};
    for (int64_t step = 0; step < 100; step++) {
        ls_loader_rows(loader, step, 0, BATCH, x, y, NULL);
        for (int64_t b = 0; b < BATCH; b++) {
            const int32_t of = x[b * LENGTH];
            assert_in_range(of, 1, 3);
            count[of]++;
            ls_loader_rows(loader, step, b, 1, z, w, NULL);
            assert_memory_equal(z, x + b * LENGTH, sizeof z);
            assert_memory_equal(w, y + b * LENGTH, sizeof w);
            const int64_t rows = step * BATCH + b + 1;
            for (int i = 1; i <= 3; i++) { /* within two windows of the share at every moment */
                const int64_t off = 10 * count[i] - rows * weights[i - 1] / 100000;
                assert_true(off > -20 && off < 20);
            }
        }
    }
    assert_int_equal(count[1], 500);
    assert_int_equal(count[2], 300);
    assert_int_equal(count[3], 200);
    const uint64_t identity = ls_loader_identity(loader);
    ls_loader_free(&ctx, loader);
    static const int64_t others[] = {500000, 200000, 300000};
    assert_int_equal(ls_loader_new_mixed(&ctx, files, others, 3, settings, &loader), LS_OK);
    assert_true(identity != ls_loader_identity(loader));
    ls_loader_free(&ctx, loader);
    for (int i = 0; i < 3; i++) ls_token_file_close(&ctx, files[i]);
}

/* Every window of a file is seen once before any is seen twice, whatever is between them. */
static void test_mixture_epochs(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *files[] = {make_file(&ctx, 1, 20, LENGTH + 1), make_file(&ctx, 2, 1, 300)};
    static const int64_t weights[] = {1, 3};
    const ls_loader_settings settings = {LS_LOADER_SHUFFLED, true, 4, LENGTH, 5};
    ls_loader *loader;
    assert_int_equal(ls_loader_new_mixed(&ctx, files, weights, 2, settings, &loader), LS_OK);
    int64_t scored = 0;
    int32_t x[4 * LENGTH], y[4 * LENGTH];
    for (int64_t step = 0; step < 20; step++) {
        ls_loader_rows(loader, step, 0, 4, x, y, NULL);
        for (int i = 0; i < 4 * LENGTH; i++) scored += y[i] == 1;
    }
    assert_int_equal(scored, 20 * LENGTH); /* one row in four: 20 steps are its epoch */
    assert_int_equal(ls_loader_epoch_steps(loader), 20);
    ls_loader_free(&ctx, loader);
    for (int i = 0; i < 2; i++) ls_token_file_close(&ctx, files[i]);
}

/* Rows of a stream stay with their file. */
static void test_mixture_stream(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *files[] = {make_file(&ctx, 1, 3, 100), make_file(&ctx, 2, 1, 300)};
    static const int64_t weights[] = {7, 3};
    ls_loader_settings settings = {LS_LOADER_STREAM, false, BATCH, LENGTH, 5};
    ls_loader *loader;
    assert_int_equal(ls_loader_new_mixed(&ctx, files, weights, 2, settings, &loader), LS_OK);
    assert_true(ls_loader_resets(loader)); /* their epochs end at different steps */
    int32_t x[BATCH * LENGTH], y[BATCH * LENGTH];
    for (int64_t step = 0; step < 40; step++) {
        ls_loader_rows(loader, step, 0, BATCH, x, y, NULL);
        for (int64_t b = 0; b < BATCH; b++) assert_int_equal(x[b * LENGTH], b < 7 ? 1 : 2);
    }
    ls_loader_free(&ctx, loader);
    settings.batch = 3; /* no row for three tenths */
    assert_int_equal(ls_loader_new_mixed(&ctx, files, weights, 2, settings, &loader), LS_EUSE);
    for (int i = 0; i < 2; i++) ls_token_file_close(&ctx, files[i]);
}

/* ---- near duplicates ---- */

static void make_text(const char *name, int seed, int lines) {
    static char text[200000];
    size_t at = 0;
    unsigned number = (unsigned)seed * 7919u;
    for (int i = 0; i < lines; i++) {
        number = number * 1664525u + 1013904223u;
        at += (size_t)snprintf(text + at, sizeof text - at, "line %u of text %d, word %x\n",
                               number >> 8, seed, number);
    }
    fixture_file(name, text, at);
}

static void find(ls_ctx *ctx, int64_t most, ls_overlap *out) {
    ls_data_settings settings;
    assert_int_equal(ls_options_default(ctx, &ls_data_options, &settings), LS_OK);
    snprintf(settings.train, sizeof settings.train, "%s", fixture_path("train"));
    snprintf(settings.test, sizeof settings.test, "%s", fixture_path("test"));
    assert_int_equal(ls_overlap_find(ctx, &settings, most, out), LS_OK);
}

static void test_overlap(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_overlap overlap;
    assert_int_equal(ls_folder_make(&ctx, fixture_path("train")), LS_OK);
    assert_int_equal(ls_folder_make(&ctx, fixture_path("test")), LS_OK);
    make_text("train/a", 1, 900);
    make_text("train/b", 2, 900);
    make_text("test/fresh", 3, 300);
    make_text("test/copied", 2, 300); /* the first third of b */
    fixture_text("test/tiny", "short");
    find(&ctx, 0, &overlap);
    assert_int_equal(overlap.count, 1);
    assert_int_equal(overlap.judged, 2);
    assert_string_equal(overlap.at[0].name, "copied");
    assert_string_equal(overlap.at[0].twin, "b");
    assert_int_equal(overlap.at[0].shared, overlap.at[0].shingles);
    assert_int_equal(overlap.one_in, 8);
    ls_overlap_clear(&ctx, &overlap);
    /* with little memory fewer shingles are looked at, and the finding is the same */
    find(&ctx, 256, &overlap);
    assert_true(overlap.one_in > 8);
    assert_int_equal(overlap.count, 1);
    assert_true(overlap.at[0].shingles > 16 && overlap.at[0].shingles < 256);
    assert_int_equal(overlap.at[0].shared, overlap.at[0].shingles);
    ls_overlap_clear(&ctx, &overlap);
}

/* Documents of each side of a folder in which every text stands twice; [LS_SPLIT_NONE]: left
 * out. */
static void count_sides(ls_ctx *ctx, const ls_data_settings *settings,
                        int64_t sides[LS_SPLIT_NONE + 1]) {
    ls_data_corpora corpora;
    ls_document document;
    memset(sides, 0, (LS_SPLIT_NONE + 1) * sizeof *sides);
    assert_int_equal(ls_data_corpora_open(ctx, settings, &corpora), LS_OK);
    for (;;) {
        assert_int_equal(ls_corpus_next(ctx, corpora.train[0], &document), LS_OK);
        if (document.text == NULL) break;
        sides[ls_token_side_of(&document)]++;
    }
    ls_data_corpora_free(ctx, &corpora);
}

/* data.duplicates=remove: what training has is held out no more, and training stays as it is. */
static void test_duplicates_removed(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_data_settings settings;
    ls_overlap overlap;
    int64_t kept[LS_SPLIT_NONE + 1], removed[LS_SPLIT_NONE + 1];
    assert_int_equal(ls_folder_make(&ctx, fixture_path("twice")), LS_OK);
    for (int i = 0; i < 20; i++) {
        char name[32];
        snprintf(name, sizeof name, "twice/%d", i);
        make_text(name, 10 + i % 14, 100); /* six of the texts stand there twice */
    }
    assert_int_equal(ls_options_default(&ctx, &ls_data_options, &settings), LS_OK);
    snprintf(settings.corpus, sizeof settings.corpus, "%s", fixture_path("twice"));
    settings.test_share = 0.3;
    settings.validation_share = 0.1;
    count_sides(&ctx, &settings, kept);
    assert_int_equal(ls_overlap_find(&ctx, &settings, 0, &overlap), LS_OK);
    const int64_t named = (int64_t)overlap.count;
    ls_overlap_clear(&ctx, &overlap);
    assert_true(named > 0 && kept[LS_SPLIT_NONE] == 0);
    assert_int_equal(kept[LS_SPLIT_TEST] + kept[LS_SPLIT_VALIDATION], 8);
    settings.duplicates = 1;
    count_sides(&ctx, &settings, removed);
    assert_int_equal(removed[LS_SPLIT_NONE], named);
    assert_int_equal(removed[LS_SPLIT_TRAIN], kept[LS_SPLIT_TRAIN]);
    assert_int_equal(removed[LS_SPLIT_TEST] + removed[LS_SPLIT_VALIDATION], 8 - named);
    assert_int_equal(ls_overlap_find(&ctx, &settings, 0, &overlap), LS_OK);
    assert_int_equal(overlap.count, 0);
    ls_overlap_clear(&ctx, &overlap);
}

static ls_status overlap_once(ls_ctx *ctx, void *user) {
    ls_overlap overlap;
    ls_status status = ls_overlap_find(ctx, user, 512, &overlap);
    ls_overlap_clear(ctx, &overlap);
    return status;
}

static void test_overlap_memory(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_data_settings settings;
    assert_int_equal(ls_options_default(&ctx, &ls_data_options, &settings), LS_OK);
    snprintf(settings.train, sizeof settings.train, "%s", fixture_path("train"));
    snprintf(settings.test, sizeof settings.test, "%s", fixture_path("test"));
    fail_each_allocation(overlap_once, &settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths),
        cmocka_unit_test(test_mixture),
        cmocka_unit_test(test_mixture_epochs),
        cmocka_unit_test(test_mixture_stream),
        cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_overlap_memory),
        cmocka_unit_test(test_duplicates_removed),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
