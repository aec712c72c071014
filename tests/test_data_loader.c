#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "data/loader.h"
#include "data_fixture.h"
#include "failing_allocator.h"

/* Token i of the whole file is i % 251, so that a window tells where it came from. */
enum { TOKENS_MAX = 4096 };

static ls_token_file *make_file(ls_ctx *ctx, const int64_t *lengths, size_t documents) {
    static int number;
    int32_t ids[TOKENS_MAX];
    ls_tokenizer *tokenizer;
    ls_token_writer *writer;
    ls_token_file *file;
    char name[32];
    int64_t at = 0;
    snprintf(name, sizeof name, "loader%d.tokens", number++);
    assert_int_equal(ls_tokenizer_new_byte(ctx, &tokenizer), LS_OK);
    assert_int_equal(ls_token_writer_new(ctx, fixture_path(name), tokenizer, 0, &writer), LS_OK);
    for (size_t d = 0; d < documents; d++) {
        for (int64_t i = 0; i < lengths[d]; i++) ids[i] = (int32_t)((at + i) % 251);
        assert_int_equal(ls_token_writer_add(ctx, writer, ids, (size_t)lengths[d], 1), LS_OK);
        at += lengths[d];
    }
    assert_int_equal(ls_token_writer_finish(ctx, writer), LS_OK);
    ls_token_writer_free(ctx, writer);
    ls_tokenizer_free(ctx, tokenizer);
    assert_int_equal(ls_token_file_open(ctx, fixture_path(name), &file), LS_OK);
    return file;
}

static void test_permutation(void **state) {
    (void)state;
    static const uint64_t counts[] = {1, 2, 3, 5, 16, 17, 100, 1000, 4096, 5000};
    static bool seen[5000];
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        ls_random key = {42, 7, (uint32_t)c};
        uint64_t fixed = 0;
        memset(seen, 0, sizeof seen);
        for (uint64_t i = 0; i < counts[c]; i++) {
            uint64_t to = ls_random_permute(key, i, counts[c]);
            assert_true(to < counts[c] && !seen[to]);
            seen[to] = true;
            fixed += to == i;
        }
        if (counts[c] >= 100) assert_true(fixed < 10);
    }
    /* far beyond any memory */
    ls_random key = {42, 7, 0};
    uint64_t huge = ((uint64_t)1 << 60) + 12345, before = huge;
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t to = ls_random_permute(key, huge - 1 - i, huge);
        assert_true(to < huge && to != before);
        before = to;
    }
}

/* Every scored target follows its input in the same document. */
static void check_row(int64_t T, const int32_t *x, const int32_t *y, int64_t *scored) {
    for (int64_t t = 0; t < T; t++) {
        if (y[t] < 0) {
            assert_int_equal(y[t], -1);
            continue;
        }
        assert_int_equal(y[t], (x[t] + 1) % 251);
        if (t + 1 < T && y[t + 1] >= 0) assert_int_equal(x[t + 1], y[t]);
        if (scored != NULL) scored[y[t]]++;
    }
}

static ls_loader *make_loader(ls_ctx *ctx, const ls_token_file *file, ls_loader_kind kind,
                              bool borders, int64_t batch, int64_t length) {
    ls_loader *loader;
    ls_loader_settings settings = {kind, borders, batch, length, 5};
    assert_int_equal(ls_loader_new(ctx, file, settings, &loader), LS_OK);
    return loader;
}

/* With borders each target of each document is scored exactly once per epoch. */
static void test_shuffled_borders(void **state) {
    (void)state;
    static const int64_t lengths[] = {50, 1,   9,  33, 17,
                                      2,  100, 16, 18}; /* 246 tokens: all differ */
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file = make_file(&ctx, lengths, 9);
    for (int64_t T = 1; T <= 40; T++) {
        ls_loader *loader = make_loader(&ctx, file, LS_LOADER_SHUFFLED, true, 1, T);
        int64_t steps = ls_loader_epoch_steps(loader);
        int32_t x[40], y[40];
        bool fresh;
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t scored[251] = {0};
            for (int64_t s = 0; s < steps; s++) {
                ls_loader_rows(loader, epoch * steps + s, 0, 1, x, y, &fresh);
                check_row(T, x, y, scored);
                assert_true(fresh);
            }
            int64_t at = 0;
            for (size_t d = 0; d < 9; at += lengths[d++])
                for (int64_t i = 0; i < lengths[d]; i++)
                    assert_int_equal(scored[at + i], i == 0 ? 0 : 1);
        }
        ls_loader_free(&ctx, loader);
    }
    ls_token_file_close(&ctx, file);
}

/* End to end, windows of an epoch do not overlap, cover all but the ends, and no target begins a
 * document. Over the epochs every target is seen. */
static void test_shuffled_end_to_end(void **state) {
    (void)state;
    static const int64_t lengths[] = {50, 1, 9, 33, 17, 2, 100, 16, 18};
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file = make_file(&ctx, lengths, 9);
    for (int64_t T = 1; T <= 40; T += 3) {
        ls_loader *loader = make_loader(&ctx, file, LS_LOADER_SHUFFLED, false, 1, T);
        int64_t steps = ls_loader_epoch_steps(loader), ever[251] = {0};
        int32_t x[40], y[40];
        for (int64_t epoch = 0; epoch < 300; epoch++) {
            int64_t scored[251] = {0}, total = 0;
            for (int64_t s = 0; s < steps; s++) {
                ls_loader_rows(loader, epoch * steps + s, 0, 1, x, y, NULL);
                check_row(T, x, y, scored);
            }
            for (int64_t i = 0; i < 246; i++) {
                assert_in_range(scored[i], 0, 1);
                total += scored[i];
                ever[i] += scored[i];
            }
            assert_true(total >= 246 - 9 - 2 * T);
        }
        int64_t at = 0;
        for (size_t d = 0; d < 9; at += lengths[d++])
            for (int64_t i = 0; i < lengths[d]; i++) assert_int_equal(ever[at + i] > 0, i > 0);
        ls_loader_free(&ctx, loader);
    }
    ls_token_file_close(&ctx, file);
}

/* In which order the documents come that `epoch` is made of; each is one window. */
static void read_order(ls_ctx *ctx, const ls_token_file *file, bool borders, uint64_t seed,
                       int64_t epoch, int64_t *order) {
    enum { T = 4, WINDOWS = 48 };
    ls_loader *loader;
    const ls_loader_settings settings = {
        .kind = LS_LOADER_SHUFFLED, .borders = borders, .batch = 1, .length = T, .seed = seed};
    assert_int_equal(ls_loader_new(ctx, file, settings, &loader), LS_OK);
    const int64_t windows = ls_loader_epoch_steps(loader);
    assert_in_range(windows, WINDOWS, WINDOWS + WINDOWS / 2);
    for (int64_t s = 0; s < WINDOWS; s++) {
        int32_t x[T], y[T];
        ls_loader_rows(loader, epoch * windows + s, 0, 1, x, y, NULL);
        order[s] = x[0] / (T + 1);
    }
    ls_loader_free(ctx, loader);
}

/* Every epoch and every seed has an order of its own. */
static void test_orders_differ(void **state) {
    (void)state;
    enum { WINDOWS = 48, ORDERS = 6 };
    ls_ctx ctx = ls_ctx_default();
    int64_t lengths[WINDOWS], order[ORDERS][WINDOWS];
    for (int i = 0; i < WINDOWS; i++) lengths[i] = 5;
    ls_token_file *file = make_file(&ctx, lengths, WINDOWS);
    for (int borders = 0; borders < 2; borders++) {
        for (int i = 0; i < ORDERS; i++)
            read_order(&ctx, file, borders == 1, i < 4 ? 7 : 4 + (uint64_t)i, i < 4 ? i : 0,
                       order[i]);
        for (int i = 0; i < ORDERS; i++)
            for (int j = 0; j < i; j++) {
                int same = 0;
                for (int s = 0; s < WINDOWS; s++) same += order[i][s] == order[j][s];
                /* one is to be expected */
                if (same > 12) fail_msg("%d of %d windows stand alike", same, WINDOWS);
            }
    }
    ls_token_file_close(&ctx, file);
}

/* Rows asked for alone, in any order and by a new loader are the rows of the whole batch. */
static void test_pure(void **state) {
    (void)state;
    static const int64_t lengths[] = {300, 20, 700, 5, 1200};
    enum { B = 6, T = 31, STEPS = 50 };
    static int32_t x[STEPS][B * T], y[STEPS][B * T], x1[T], y1[T];
    static bool fresh[STEPS][B];
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file = make_file(&ctx, lengths, 5);
    for (int mode = 0; mode < 4; mode++) {
        ls_loader *loader = make_loader(&ctx, file, (ls_loader_kind)(mode / 2), mode % 2, B, T);
        uint64_t identity = ls_loader_identity(loader);
        int64_t allocations = ctx.allocations;
        for (int64_t s = 0; s < STEPS; s++) ls_loader_rows(loader, s, 0, B, x[s], y[s], fresh[s]);
        assert_int_equal(ctx.allocations, allocations);
        ls_loader_free(&ctx, loader);
        loader = make_loader(&ctx, file, (ls_loader_kind)(mode / 2), mode % 2, B, T);
        assert_true(identity == ls_loader_identity(loader));
        for (int64_t s = STEPS - 1; s >= 0; s--)
            for (int64_t b = 0; b < B; b++) {
                bool fresh1;
                ls_loader_rows(loader, s, b, 1, x1, y1, &fresh1);
                assert_memory_equal(x1, x[s] + b * T, sizeof x1);
                assert_memory_equal(y1, y[s] + b * T, sizeof y1);
                assert_int_equal(fresh1, fresh[s][b]);
            }
        ls_loader_free(&ctx, loader);
    }
    ls_token_file_close(&ctx, file);
}

/* A row goes on where it stopped unless it is fresh; with borders it is fresh at each document. */
static void test_stream(void **state) {
    (void)state;
    static const int64_t lengths[] = {300, 20, 700, 5, 1200, 1, 60};
    static const int64_t batches[] = {1, 3, 7};
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file = make_file(&ctx, lengths, 7);
    for (int mode = 0; mode < 6; mode++) {
        enum { T = 16 };
        int64_t B = batches[mode / 2];
        bool borders = mode % 2;
        ls_loader *loader = make_loader(&ctx, file, LS_LOADER_STREAM, borders, B, T);
        int64_t steps = ls_loader_epoch_steps(loader);
        for (int64_t b = 0; b < B; b++) {
            int32_t x[T], y[T], last = 0;
            bool fresh;
            for (int64_t s = 0; s < 2 * steps; s++) {
                ls_loader_rows(loader, s, b, 1, x, y, &fresh);
                check_row(T, x, y, NULL);
                if (s % steps == 0) assert_true(fresh);
                if (!borders) assert_int_equal(fresh, s % steps == 0);
                if (!fresh) assert_int_equal(x[0], last);
                int64_t end = T - 1;
                while (borders && end > 0 && y[end] < 0) end--;
                last = y[end] >= 0 ? y[end] : (x[end] + 1) % 251;
            }
        }
        ls_loader_free(&ctx, loader);
    }
    ls_token_file_close(&ctx, file);
}

/* Corpora shorter than a window, more rows than tokens. */
static void test_tiny(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{2, 1, 1}, {3, 2, 1}, {10, 1, 1}, {1, 2, 1}, {33, 32, 31}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < 5; i++) {
        ls_token_file *file = make_file(&ctx, shapes[i], 3);
        for (int mode = 0; mode < 4; mode++)
            for (int64_t T = 1; T < 70; T += 4) {
                int32_t x[70 * 20], y[70 * 20];
                ls_loader *loader =
                    make_loader(&ctx, file, (ls_loader_kind)(mode / 2), mode % 2, 20, T);
                for (int64_t s = 0; s < 10; s++) {
                    ls_loader_rows(loader, s, 0, 20, x, y, NULL);
                    for (int64_t b = 0; b < 20; b++) check_row(T, x + b * T, y + b * T, NULL);
                }
                ls_loader_free(&ctx, loader);
            }
        ls_token_file_close(&ctx, file);
    }
    static const int64_t ones[] = {1, 1};
    ls_token_file *file = make_file(&ctx, ones, 2);
    ls_loader *loader;
    ls_loader_settings settings = {LS_LOADER_SHUFFLED, false, 1, 1, 0};
    assert_int_equal(ls_loader_new(&ctx, file, settings, &loader), LS_EINPUT);
    settings.length = 0;
    ctx.error = (ls_error){0};
    assert_int_equal(ls_loader_new(&ctx, file, settings, &loader), LS_EUSE);
    ls_token_file_close(&ctx, file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_shuffled_borders),
        cmocka_unit_test(test_shuffled_end_to_end),
        cmocka_unit_test(test_orders_differ),
        cmocka_unit_test(test_pure),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_tiny),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
