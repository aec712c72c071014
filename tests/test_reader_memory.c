/* Readers that run out of memory or are stopped in the midst of their work: tokenizers over a long text,
 * with each allocation failing in turn, and signals. */
#include "reader_edges.h"

#include "base/random.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "failing_allocator.h"

enum { TEXT_BYTES = 6000 };

/* Words that seldom come again, so that no cache has them, and what tokenizers treat apart. */
static void make_text(char text[TEXT_BYTES]) {
    static const char *const pieces[] = {" ",
                                         "\n\n",
                                         "\xC3\xA9t\xC3\xA9",
                                         "\xF0\x9F\x98\x80",
                                         "<s>",
                                         "[CLS]",
                                         "</s>",
                                         "123",
                                         " it's",
                                         "\t",
                                         "\xE4\xB8\x96",
                                         "\xE2\x96\x81",
                                         "  ",
                                         "...",
                                         "A",
                                         "\x01",
                                         "\xFF",
                                         "<|endoftext|>"};
    enum { PIECES = sizeof pieces / sizeof pieces[0] };
    const ls_random random = {.seed = 3, .stream = ls_stream_of("text")};
    size_t used = 0;
    for (uint64_t i = 0; used + 16 < TEXT_BYTES; i++) {
        const uint64_t drawn = ls_random_below(random, i, 64);
        if (drawn < PIECES) {
            used += (size_t)snprintf(text + used, 16, "%s", pieces[drawn]);
            continue;
        }
        text[used++] = ' ';
        for (uint64_t letter = 0; letter < 2 + drawn % 7; letter++)
            text[used++] = (char)('a' + ls_random_below(random, 1000 + i * 8 + letter, 26));
    }
    text[used] = '\0';
}

typedef struct work {
    const ls_tokenizer *tokenizer;
    const char *text;
    ls_ids wanted;
    unsigned flags;
} work;

static ls_status encode(ls_ctx *ctx, void *user) {
    const work *w = user;
    ls_ids ids = {0};
    const ls_status status =
        ls_tokenizer_encode(ctx, w->tokenizer, w->text, strlen(w->text), w->flags, &ids);
    if (status == LS_OK) {
        assert_int_equal(ids.count, w->wanted.count);
        assert_memory_equal(ids.at, w->wanted.at, ids.count * sizeof *ids.at);
    }
    ls_ids_clear(ctx, &ids);
    return status;
}

static ls_status decode(ls_ctx *ctx, void *user) {
    const work *w = user;
    ls_text text = {0};
    const ls_status status =
        ls_tokenizer_decode_text(ctx, w->tokenizer, w->wanted.at, w->wanted.count, w->flags, &text);
    if (status == LS_OK) assert_true(text.length > 0);
    ls_text_clear(ctx, &text);
    return status;
}

static void test_tokenizers(void **state) {
    (void)state;
    static const char *const names[] = {
        "bert",  "gemma", "gpt2",    "llama2",           "llama3",         "neox",
        "qwen2", "t5",    "roberta", "unigram-nmt_nfkc", "t5/spiece.model"};
    char text[TEXT_BYTES], path[256];
    make_text(text);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (unsigned flags = 0; flags < 4; flags++) {
            ls_ctx ctx = ls_ctx_default();
            ls_tokenizer *tokenizer;
            snprintf(path, sizeof path, LS_TEST_SOURCE "/tests/golden/tokenizers/%s", names[i]);
            expect(names[i], ls_tokenizer_load(&ctx, path, &tokenizer), &ctx, NULL);
            work w = {.tokenizer = tokenizer, .text = text, .flags = flags};
            expect(names[i],
                   ls_tokenizer_encode(&ctx, tokenizer, text, strlen(text), flags, &w.wanted), &ctx,
                   NULL);
            assert_true(w.wanted.count > 100);
            fail_each_allocation(encode, &w);
            fail_each_allocation(decode, &w);
            ls_ids_clear(&ctx, &w.wanted);
            ls_tokenizer_free(&ctx, tokenizer);
        }
}

/* ---- a tokenizer that is learnt ---- */

static ls_status learn(ls_ctx *ctx, void *text) {
    ls_tokenizer *tokenizer = NULL;
    ls_bpe_trainer *trainer;
    LS_TRY(ls_bpe_trainer_new(ctx, &trainer));
    ls_ids ids = {0};
    ls_status status = ls_bpe_trainer_add(ctx, trainer, text, strlen(text));
    if (status == LS_OK) status = ls_bpe_trainer_finish(ctx, trainer, 400, &tokenizer);
    if (status == LS_OK)
        status = ls_tokenizer_encode(ctx, tokenizer, text, strlen(text), LS_ENCODE_SPECIAL, &ids);
    ls_ids_clear(ctx, &ids);
    ls_bpe_trainer_free(ctx, trainer);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static void test_learning(void **state) {
    (void)state;
    const volatile int stop = 1;
    char text[TEXT_BYTES];
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_bpe_trainer *trainer;
    make_text(text);
    text[1500] = '\0';
    fail_each_allocation(learn, text);
    expect("a trainer", ls_bpe_trainer_new(&ctx, &trainer), &ctx, NULL);
    expect("a text", ls_bpe_trainer_add(&ctx, trainer, text, strlen(text)), &ctx, NULL);
    ctx.stop = &stop;
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 400, &tokenizer), LS_ESTOP);
    assert_non_null(strstr(ctx.error.message, "learning a tokenizer"));
    ls_bpe_trainer_free(&ctx, trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenizers),
        cmocka_unit_test(test_learning),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
