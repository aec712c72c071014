#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random.h"
#include "data/tokenizer/bpe.h"
#include "data_fixture.h"
#include "failing_allocator.h"

static const char sample[] =
    "The whole of science is nothing more than a refinement of everyday thinking. The whole, the "
    "whole, and nothing but the whole! It's 1905 or 2023; we've seen 100 things, they'll see more."
    "\r\n\r\n  indented\tand tabbed   spaces    \n\n\nna\xc3\xafve caf\xc3\xa9 "
    "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e \xf0\x9f\x98\x80\xf0\x9f\x8e\x89 ---------- ========== "
    "nothing nothing nothing thinking thinking science science refinement";

static ls_status train_small(ls_ctx *ctx, int64_t vocabulary, ls_tokenizer **out) {
    ls_bpe_trainer *trainer;
    *out = NULL;
    LS_TRY(ls_bpe_trainer_new(ctx, &trainer));
    ls_status status = ls_bpe_trainer_add(ctx, trainer, sample, sizeof sample - 1);
    if (status == LS_OK) status = ls_bpe_trainer_finish(ctx, trainer, vocabulary, out);
    ls_bpe_trainer_free(ctx, trainer);
    return status;
}

/* Encodes, decodes whole and in two pieces, and compares. */
static void round_trip(ls_ctx *ctx, const ls_tokenizer *tokenizer, const void *text,
                       size_t length) {
    ls_ids ids = {0};
    ls_text whole = {0}, pieces = {0};
    assert_int_equal(ls_tokenizer_encode(ctx, tokenizer, text, length, false, &ids), LS_OK);
    assert_int_equal(ls_tokenizer_decode(ctx, tokenizer, ids.at, ids.count, &whole), LS_OK);
    size_t cut = ids.count / 3;
    assert_int_equal(ls_tokenizer_decode(ctx, tokenizer, ids.at, cut, &pieces), LS_OK);
    const int32_t *rest = ids.count == 0 ? NULL : ids.at + cut;
    assert_int_equal(ls_tokenizer_decode(ctx, tokenizer, rest, ids.count - cut, &pieces), LS_OK);
    assert_int_equal(whole.length, length);
    assert_int_equal(pieces.length, length);
    assert_memory_equal(whole.bytes, length > 0 ? text : "", length);
    assert_memory_equal(pieces.bytes, length > 0 ? text : "", length);
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &whole);
    ls_text_clear(ctx, &pieces);
}

static void properties(ls_ctx *ctx, const ls_tokenizer *tokenizer) {
    static const char *const texts[] = {"",
                                        " ",
                                        "a",
                                        "\r\n",
                                        "\n\n\n  x",
                                        "it's we've I'LL",
                                        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f",
                                        "\xff\xfe\x80 bad \xc0\xaf\xed\xa0\x80 bytes",
                                        "<|endoftext|>",
                                        "\xe1\xa0\x8e x",
                                        sample};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        round_trip(ctx, tokenizer, texts[i], strlen(texts[i]));
    static uint8_t bytes[5000];
    for (uint32_t trial = 0; trial < 200; trial++) {
        ls_random key = {11, 1, trial};
        size_t length = (size_t)ls_random_below(key, 1u << 20, sizeof bytes);
        for (size_t i = 0; i < length; i++) {
            uint32_t word = ls_random_word(key, i);
            /* raw bytes, then letters and spaces, then long runs */
            if (trial % 3 == 0)
                bytes[i] = (uint8_t)word;
            else if (trial % 3 == 1)
                bytes[i] = (uint8_t)("the whole\n 12"[word % 13]);
            else
                bytes[i] =
                    word % 500 == 0 || i == 0 ? (uint8_t) "=- \nxe"[word / 500 % 6] : bytes[i - 1];
        }
        round_trip(ctx, tokenizer, bytes, length);
    }
}

static void test_byte(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_load(&ctx, "byte", &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 256);
    assert_int_equal(ls_tokenizer_end(tokenizer), -1);
    properties(&ctx, tokenizer);
    ls_text out = {0};
    assert_int_equal(ls_tokenizer_decode(&ctx, tokenizer, &(int32_t){256}, 1, &out), LS_EINPUT);
    ls_text_clear(&ctx, &out);
    assert_int_equal(ls_tokenizer_save(&ctx, tokenizer, fixture_folder), LS_OK);
    ls_tokenizer_free(&ctx, tokenizer);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_tokenizer_load(&ctx, fixture_folder, &tokenizer), LS_OK);
    assert_string_equal(ls_tokenizer_kind(tokenizer), "byte");
    ls_tokenizer_free(&ctx, tokenizer);
}

static void test_trained(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer, *again;
    assert_int_equal(train_small(&ctx, 300, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 300);
    assert_int_equal(ls_tokenizer_end(tokenizer), 299);
    properties(&ctx, tokenizer);
    assert_int_equal(train_small(&ctx, 300, &again), LS_OK);
    assert_true(ls_tokenizer_hash(tokenizer) == ls_tokenizer_hash(again));
    ls_tokenizer_free(&ctx, again);
    /* saved and loaded it is the same */
    assert_int_equal(ls_folder_make(&ctx, fixture_path("small")), LS_OK);
    assert_int_equal(ls_tokenizer_save(&ctx, tokenizer, fixture_path("small")), LS_OK);
    assert_int_equal(ls_tokenizer_load(&ctx, fixture_path("small"), &again), LS_OK);
    assert_true(ls_tokenizer_hash(tokenizer) == ls_tokenizer_hash(again));
    ls_tokenizer_free(&ctx, again);
    char both[1300];
    snprintf(both, sizeof both, "%s,%s", fixture_path("small/vocab.json"),
             fixture_path("small/merges.txt"));
    assert_int_equal(ls_tokenizer_load(&ctx, both, &again), LS_OK);
    ls_tokenizer_free(&ctx, again);
    /* the end of a document is an id only where the caller wants it */
    ls_ids ids = {0};
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, "a<|endoftext|>b", 15, true, &ids),
                     LS_OK);
    assert_int_equal(ids.count, 3);
    assert_int_equal(ids.at[1], 299);
    ids.count = 0;
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, "a<|endoftext|>b", 15, false, &ids),
                     LS_OK);
    for (size_t i = 0; i < ids.count; i++) assert_int_not_equal(ids.at[i], 299);
    ls_ids_clear(&ctx, &ids);
    ls_tokenizer_free(&ctx, tokenizer);
    /* a text that runs out of pairs gives a smaller vocabulary */
    assert_int_equal(train_small(&ctx, 100000, &tokenizer), LS_OK);
    assert_in_range(ls_tokenizer_vocabulary(tokenizer), 300, 2000);
    properties(&ctx, tokenizer);
    ls_tokenizer_free(&ctx, tokenizer);
    assert_int_equal(train_small(&ctx, 256, &tokenizer), LS_EUSE);
}

/* The first merges of a text small enough to follow by hand. */
static void test_merge_order(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_bpe_trainer *trainer;
    ls_tokenizer *tokenizer;
    static const char text[] = "abab abab cdcd";
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, text, sizeof text - 1), LS_OK);
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 1000, &tokenizer), LS_OK);
    ls_bpe_trainer_free(&ctx, trainer);
    /* ab x4; then (ab, ab) x2 before (c, d) x2? both two: c and d have the smaller ids */
    static const char *const expected[] = {"ab", "cd", "abab"};
    for (int32_t i = 0; i < 3; i++) {
        ls_text out = {0};
        assert_int_equal(ls_tokenizer_decode(&ctx, tokenizer, &(int32_t){256 + i}, 1, &out), LS_OK);
        assert_string_equal(out.bytes, expected[i]);
        ls_text_clear(&ctx, &out);
    }
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 260);
    ls_tokenizer_free(&ctx, tokenizer);
}

/* Encoding as the definition says it: the lowest merge, leftmost first, until none is left. */
static size_t encode_plainly(const ls_tokenizer *tokenizer, const char *word, size_t length,
                             int32_t *ids) {
    const ls_bpe *t = (const ls_bpe *)tokenizer;
    for (size_t i = 0; i < length; i++) ids[i] = t->byte_id[(uint8_t)word[i]];
    for (;;) {
        int32_t best = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < length; i++) {
            const ls_merge *merge = ls__merges_find(&t->merges, ids[i], ids[i + 1]);
            int32_t rank = merge == NULL ? -1 : merge->rank;
            if (rank >= 0 && (best < 0 || rank < best)) {
                best = rank;
                at = i;
            }
        }
        if (best < 0) return length;
        ids[at] = t->merges.list[best].result;
        length--;
        for (size_t i = at + 1; i < length; i++) ids[i] = ids[i + 1];
    }
}

/* Short words scan, long ones keep a heap; both must do as the definition says. */
static void test_against_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_bpe_trainer *trainer;
    ls_tokenizer *tokenizer;
    ls_encoder *encoder;
    char word[400];
    int32_t expected[400];
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    for (uint32_t trial = 0; trial < 50; trial++) {
        for (size_t i = 0; i < sizeof word; i++)
            word[i] = (char)('a' + ls_random_word((ls_random){3, 1, trial}, i) % 3);
        assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, word, sizeof word), LS_OK);
    }
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 600, &tokenizer), LS_OK);
    ls_bpe_trainer_free(&ctx, trainer);
    assert_int_equal(ls_encoder_new(&ctx, tokenizer, &encoder), LS_OK);
    for (uint32_t trial = 0; trial < 400; trial++) {
        ls_random key = {4, 2, trial};
        size_t length = 1 + (size_t)ls_random_below(key, 1000, sizeof word);
        if (trial % 2 == 0) length = 1 + length % 80;
        uint32_t letters = 1 + trial % 3;
        for (size_t i = 0; i < length; i++)
            word[i] = (char)('a' + ls_random_word(key, i) % letters);
        ls_ids ids = {0};
        assert_int_equal(ls_encoder_encode(&ctx, encoder, word, length, false, &ids), LS_OK);
        size_t count = encode_plainly(tokenizer, word, length, expected);
        assert_int_equal(ids.count, count);
        assert_memory_equal(ids.at, expected, count * sizeof *expected);
        ls_ids_clear(&ctx, &ids);
    }
    ls_encoder_free(&ctx, encoder);
    ls_tokenizer_free(&ctx, tokenizer);
}

/* Words of the sample, as symbols, for training as the definition says it. */
enum { PLAIN_WORDS = 200, PLAIN_LENGTH = 32, PLAIN_IDS = 310 };
typedef struct plain_words {
    const ls_bpe *tokenizer;
    int32_t symbols[PLAIN_WORDS][PLAIN_LENGTH];
    int length[PLAIN_WORDS], count;
} plain_words;

static ls_status keep_word(ls_ctx *ctx, void *user, const uint8_t *word, size_t length) {
    plain_words *words = user;
    (void)ctx;
    assert_true(words->count < PLAIN_WORDS && length <= PLAIN_LENGTH);
    for (size_t i = 0; i < length; i++)
        words->symbols[words->count][i] = words->tokenizer->byte_id[word[i]];
    words->length[words->count++] = (int)length;
    return LS_OK;
}

/* The trainer keeps its counts up to date as it goes; here all pairs are counted anew for each
 * merge. */
static void test_training_against_definition(void **state) {
    (void)state;
    static plain_words words;
    static int counts[PLAIN_IDS][PLAIN_IDS];
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_matcher matcher;
    assert_int_equal(train_small(&ctx, PLAIN_IDS, &tokenizer), LS_OK);
    const ls_bpe *t = words.tokenizer = (const ls_bpe *)tokenizer;
    assert_int_equal(ls__matcher_init(&ctx, &matcher), LS_OK);
    assert_int_equal(ls__bpe_words(&ctx, t->pattern, &matcher, (const uint8_t *)sample,
                                   sizeof sample - 1, keep_word, &words),
                     LS_OK);
    ls__matcher_clear(&matcher);
    assert_in_range(t->merges.count, 40, 60);
    for (int32_t rank = 0; rank < t->merges.count; rank++) {
        int32_t left = 0, right = 0;
        memset(counts, 0, sizeof counts);
        for (int w = 0; w < words.count; w++)
            for (int i = 0; i + 1 < words.length[w]; i++)
                counts[words.symbols[w][i]][words.symbols[w][i + 1]]++;
        for (int32_t a = 0; a < PLAIN_IDS; a++)
            for (int32_t b = 0; b < PLAIN_IDS; b++)
                if (counts[a][b] > counts[left][right]) {
                    left = a;
                    right = b;
                }
        assert_int_equal(t->merges.list[rank].left, left);
        assert_int_equal(t->merges.list[rank].right, right);
        for (int w = 0; w < words.count; w++) {
            int32_t *s = words.symbols[w];
            int kept = 0;
            for (int i = 0; i < words.length[w]; i++) {
                bool here = i + 1 < words.length[w] && s[i] == left && s[i + 1] == right;
                s[kept++] = here ? t->merges.list[rank].result : s[i];
                i += here;
            }
            words.length[w] = kept;
        }
    }
    ls_tokenizer_free(&ctx, tokenizer);
}

static void expect_bad(const char *vocab, const char *merges, const char *word) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    assert_int_equal(
        ls_tokenizer_new_bpe(&ctx, vocab, strlen(vocab), merges, strlen(merges), "v", &tokenizer),
        LS_EINPUT);
    assert_null(tokenizer);
    assert_non_null(strstr(ctx.error.message, word));
}

static void test_bad_files(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    expect_bad("", "", "line");
    expect_bad("[1,2]", "", "256");
    expect_bad("{\"a\": 0}", "", "256");
    assert_int_equal(train_small(&ctx, 300, &tokenizer), LS_OK);
    assert_int_equal(ls_folder_make(&ctx, fixture_path("bad")), LS_OK);
    assert_int_equal(ls_tokenizer_save(&ctx, tokenizer, fixture_path("bad")), LS_OK);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_text vocab = {0};
    assert_int_equal(ls_file_read(&ctx, fixture_path("bad/vocab.json"), 1 << 20, &vocab), LS_OK);
    expect_bad(vocab.bytes, "zz qq\n", "line 1");
    expect_bad(vocab.bytes, "#version: 0.2\n- -\n- -\n", "twice");
    expect_bad(vocab.bytes, "nospace\n", "line 1");
    char *first = strstr(vocab.bytes, ": 0,");
    assert_non_null(first);
    first[2] = '7'; /* an id twice */
    expect_bad(vocab.bytes, "", "id");
    memcpy(first, ":-1,", 4);
    expect_bad(vocab.bytes, "", "id");
    ls_text_clear(&ctx, &vocab);
    assert_int_equal(ls_tokenizer_load(&ctx, "no/such/place", &tokenizer), LS_EINPUT);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_folder_make(&ctx, fixture_path("empty")), LS_OK);
    assert_int_equal(ls_tokenizer_load(&ctx, fixture_path("empty"), &tokenizer), LS_EINPUT);
}

static ls_status everything(ls_ctx *ctx, void *user) {
    ls_tokenizer *tokenizer = NULL, *loaded = NULL;
    ls_ids ids = {0};
    ls_text out = {0};
    char run[5000];
    ls_status status;
    (void)user;
    memset(run, '=', 300);
    memset(run + 300, ' ', sizeof run - 300);
    LS_TRY_GOTO(train_small(ctx, 300, &tokenizer));
    LS_TRY_GOTO(ls_tokenizer_save(ctx, tokenizer, fixture_folder));
    LS_TRY_GOTO(ls_tokenizer_load(ctx, fixture_folder, &loaded));
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, loaded, sample, sizeof sample - 1, true, &ids));
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, loaded, run, sizeof run, true, &ids));
    LS_TRY_GOTO(ls_tokenizer_decode(ctx, loaded, ids.at, ids.count, &out));
fail:
    ls_tokenizer_free(ctx, tokenizer);
    ls_tokenizer_free(ctx, loaded);
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &out);
    return status;
}

static void test_allocation_failures(void **state) {
    (void)state;
    fail_each_allocation(everything, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte),
        cmocka_unit_test(test_trained),
        cmocka_unit_test(test_merge_order),
        cmocka_unit_test(test_against_definition),
        cmocka_unit_test(test_training_against_definition),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
