/* Tier: threads, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/stats.h"
#include "data_fixture.h"

#include "data/encode_team.h"
#include "failing_allocator.h"

static const int32_t ids_a[] = {1, 2, 3, 4, 5}, ids_b[] = {255}, ids_c[] = {9, 8, 7};

static ls_status write_small(ls_ctx *ctx, const char *path) {
    ls_tokenizer *tokenizer = NULL;
    ls_token_writer *writer = NULL;
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_new_byte(ctx, &tokenizer));
    LS_TRY_GOTO(ls_token_writer_new(ctx, path, tokenizer, 77, &writer));
    LS_TRY_GOTO(ls_token_writer_add(ctx, writer, ids_a, 5, 10));
    LS_TRY_GOTO(ls_token_writer_add(ctx, writer, ids_b, 1, 20));
    LS_TRY_GOTO(ls_token_writer_add(ctx, writer, NULL, 0, 0));
    LS_TRY_GOTO(ls_token_writer_add(ctx, writer, ids_c, 3, 30));
    LS_TRY_GOTO(ls_token_writer_finish(ctx, writer));
fail:
    ls_token_writer_free(ctx, writer);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static void test_write_and_read(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file;
    assert_int_equal(write_small(&ctx, fixture_path("small.tokens")), LS_OK);
    assert_int_equal(ls_token_file_open(&ctx, fixture_path("small.tokens"), &file), LS_OK);
    assert_int_equal(ls_token_file_documents(file), 3);
    assert_int_equal(ls_token_file_tokens(file), 9);
    assert_int_equal(ls_token_file_text_bytes(file), 60);
    assert_int_equal(ls_token_file_vocabulary(file), 256);
    assert_true(ls_token_file_key(file) == 77);
    int32_t all[9];
    ls_token_file_read(file, 0, 9, all);
    assert_memory_equal(all, ids_a, sizeof ids_a);
    assert_memory_equal(all + 5, ids_b, sizeof ids_b);
    assert_memory_equal(all + 6, ids_c, sizeof ids_c);
    ls_token_span span = ls_token_file_document(file, 2);
    assert_int_equal(span.begin, 6);
    assert_int_equal(span.count, 3);
    assert_int_equal(span.text_bytes, 30);
    static const int64_t holder[9] = {0, 0, 0, 0, 0, 1, 2, 2, 2};
    for (int64_t i = 0; i < 9; i++) assert_int_equal(ls_token_file_document_at(file, i), holder[i]);
    assert_int_equal(ls_token_file_next_long(file, 0, 3), 0);
    assert_int_equal(ls_token_file_next_long(file, 1, 3), 2);
    assert_int_equal(ls_token_file_next_long(file, 3, 3), -1);
    ls_token_stats stats;
    assert_int_equal(ls_token_stats_take(&ctx, file, &stats), LS_OK);
    assert_int_equal(stats.shortest, 1);
    assert_int_equal(stats.median, 3);
    assert_int_equal(stats.longest, 5);
    assert_int_equal(stats.over_1k, 0);
    json_t *json = ls_token_stats_json(&stats);
    char *text = json_dumps(json, 0);
    assert_non_null(strstr(text, "{\"documents\": 3, \"text_bytes\": 60, \"tokens\": 9,"));
    free(text);
    json_decref(json);
    ls_token_file_close(&ctx, file);
    /* a signal is heard while a file, which may be large, is checked */
    const volatile int stop = 1;
    ctx.stop = &stop;
    assert_int_equal(ls_token_file_open(&ctx, fixture_path("small.tokens"), &file), LS_ESTOP);
    assert_non_null(strstr(ctx.error.message, "checking a token file"));
}

static void test_writer_refuses(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_token_writer *writer;
    assert_int_equal(ls_tokenizer_new_byte(&ctx, &tokenizer), LS_OK);
    assert_int_equal(ls_folder_make(&ctx, fixture_path("kept")), LS_OK);
    assert_int_equal(
        ls_token_writer_new(&ctx, fixture_path("kept/x.tokens"), tokenizer, 0, &writer), LS_OK);
    assert_int_equal(ls_token_writer_add(&ctx, writer, &(int32_t){256}, 1, 1), LS_EINPUT);
    ls_token_writer_free(&ctx, writer);
    /* nothing is left of an unfinished file */
    char **names;
    size_t count;
    ctx.error = (ls_error){0};
    assert_int_equal(ls_folder_list(&ctx, fixture_path("kept"), &names, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_names_free(&ctx, names, count);
    assert_int_equal(
        ls_token_writer_new(&ctx, fixture_path("no/such/x.tokens"), tokenizer, 0, &writer), LS_EIO);
    ls_tokenizer_free(&ctx, tokenizer);
}

/* Every flipped bit and every cut is noticed. */
static void test_damage(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file;
    ls_text bytes = {0};
    assert_int_equal(write_small(&ctx, fixture_path("damage.tokens")), LS_OK);
    assert_int_equal(ls_file_read(&ctx, fixture_path("damage.tokens"), 1 << 20, &bytes), LS_OK);
    for (size_t bit = 0; bit < 8 * bytes.length; bit++) {
        bytes.bytes[bit / 8] = (char)(bytes.bytes[bit / 8] ^ (1 << bit % 8));
        ctx.error = (ls_error){0};
        assert_int_equal(ls_token_file_view(&ctx, bytes.bytes, bytes.length, "it", &file),
                         LS_EINPUT);
        assert_null(file);
        bytes.bytes[bit / 8] = (char)(bytes.bytes[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t length = 0; length < bytes.length; length++) {
        ctx.error = (ls_error){0};
        assert_int_equal(ls_token_file_view(&ctx, bytes.bytes, length, "it", &file), LS_EINPUT);
    }
    assert_int_equal(ls_token_file_view(&ctx, bytes.bytes, bytes.length, "it", &file), LS_OK);
    ls_token_file_close(&ctx, file);
    ls_text_clear(&ctx, &bytes);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_token_file_open(&ctx, fixture_text("empty.tokens", ""), &file), LS_EINPUT);
}

static void put_u64(char *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (char)(value >> (8 * i));
}

/* Counts that lie, under checksums that are right. */
static void test_lies(void **state) {
    (void)state;
    static const struct {
        size_t at;
        uint64_t value;
    } lies[] = {{16, 0},
                {16, 5},
                {16, 1u << 30},
                {40, 0},
                {40, 2},
                {40, 4},
                {48, 10},
                {48, UINT64_MAX},
                {40, UINT64_MAX},
                {48, UINT64_MAX / 2},
                {40, UINT64_MAX / 16},
                {56, 59},
                {128 + 24, 1},
                {128 + 32, 9},
                {128 + 48, 8}};
    ls_ctx ctx = ls_ctx_default();
    ls_token_file *file;
    ls_text good = {0}, bad = {0};
    assert_int_equal(write_small(&ctx, fixture_path("lies.tokens")), LS_OK);
    assert_int_equal(ls_file_read(&ctx, fixture_path("lies.tokens"), 1 << 20, &good), LS_OK);
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        bad.length = 0;
        ls_text_append(&ctx, &bad, good.bytes, good.length);
        put_u64(bad.bytes + lies[i].at, lies[i].value);
        put_u64(bad.bytes + 64, ls_hash(bad.bytes + 128, bad.length - 128));
        put_u64(bad.bytes + 120, ls_hash(bad.bytes, 120));
        ctx.error = (ls_error){0};
        if (ls_token_file_view(&ctx, bad.bytes, bad.length, "it", &file) != LS_EINPUT)
            fail_msg("lie %zu was believed", i);
    }
    ls_text_clear(&ctx, &good);
    ls_text_clear(&ctx, &bad);
}

static void default_settings(ls_data_settings *settings, const char *corpus) {
    ls_ctx ctx = ls_ctx_default();
    assert_int_equal(ls_options_default(&ctx, &ls_data_options, settings), LS_OK);
    assert_int_equal(ls_options_set(&ctx, &ls_data_options, "data.", "corpus", corpus, settings),
                     LS_OK);
}

static void make_corpus(void) {
    ls_ctx ctx = ls_ctx_default();
    assert_int_equal(ls_folder_make(&ctx, fixture_path("texts")), LS_OK);
    for (int i = 0; i < 12; i++) {
        char name[64], text[2000] = "";
        for (int j = 0; j <= i * 3; j++) strcat(text, "the cat sat on the mat and the hat. ");
        snprintf(name, sizeof name, "texts/%02d.txt", i);
        fixture_text(name, text);
    }
}

static void test_data_open(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_data_settings settings;
    ls_dataset data;
    make_corpus();
    default_settings(&settings, fixture_path("texts"));
    assert_int_equal(ls_data_open(&ctx, &settings, fixture_path("cache"), NULL, &data), LS_OK);
    int64_t all = ls_token_file_documents(data.train) + ls_token_file_documents(data.test);
    assert_int_equal(all, 12);
    assert_in_range(ls_token_file_documents(data.test), 1, 6);
    assert_int_equal(ls_token_file_tokens(data.train), ls_token_file_text_bytes(data.train));
    uint64_t hash = ls_token_file_hash(data.train);
    ls_loader *loader;
    assert_int_equal(ls_data_loader(&ctx, &data, &settings, 2, 16, 1, &loader), LS_OK);
    ls_loader_free(&ctx, loader);
    ls_data_close(&ctx, &data);
    /* a damaged cache is made again and gives the same file */
    char **names;
    size_t count;
    assert_int_equal(ls_folder_list(&ctx, fixture_path("cache"), &names, &count), LS_OK);
    assert_int_equal(count, 2);
    for (size_t i = 0; i < count; i++) {
        char name[300];
        snprintf(name, sizeof name, "cache/%s", names[i]);
        fixture_text(name, "rubbish");
    }
    ls_names_free(&ctx, names, count);
    assert_int_equal(ls_data_open(&ctx, &settings, fixture_path("cache"), NULL, &data), LS_OK);
    assert_true(hash == ls_token_file_hash(data.train));
    ls_data_close(&ctx, &data);
    /* a learnt tokenizer is kept and found again */
    strcpy(settings.tokenizer, "train");
    settings.vocabulary = 280;
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(ls_data_open(&ctx, &settings, fixture_path("cache"), NULL, &data), LS_OK);
        assert_in_range(ls_tokenizer_vocabulary(data.tokenizer), 257, 280);
        assert_true(ls_token_file_tokenizer(data.train) == ls_tokenizer_hash(data.tokenizer));
        int32_t last;
        ls_token_span span = ls_token_file_document(data.train, 0);
        ls_token_file_read(data.train, span.begin + span.count - 1, 1, &last);
        assert_int_equal(last, ls_tokenizer_end(data.tokenizer));
        assert_true(ls_token_file_tokens(data.train) < ls_token_file_text_bytes(data.train));
        ls_data_close(&ctx, &data);
    }
    default_settings(&settings, fixture_path("nowhere"));
    assert_int_equal(ls_data_open(&ctx, &settings, fixture_path("cache"), NULL, &data), LS_EINPUT);
}

/* A tokenizer beyond 65,536 ids takes four bytes per token. */
static void test_wide(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text vocab = {0};
    ls_tokenizer *small, *wide;
    ls_bpe_trainer *trainer;
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 257, &small), LS_OK);
    ls_bpe_trainer_free(&ctx, trainer);
    assert_int_equal(ls_tokenizer_save(&ctx, small, fixture_folder), LS_OK);
    ls_tokenizer_free(&ctx, small);
    assert_int_equal(ls_file_read(&ctx, fixture_path("vocab.json"), 1 << 20, &vocab), LS_OK);
    vocab.length = (size_t)(strrchr(vocab.bytes, '}') - vocab.bytes);
    for (int id = 257; id < 70000; id++) ls_text_printf(&ctx, &vocab, ", \"<%d>\": %d", id, id);
    ls_text_append(&ctx, &vocab, "}", 1);
    assert_int_equal(ls_tokenizer_new_bpe(&ctx, vocab.bytes, vocab.length, "", 0, "wide", &wide),
                     LS_OK);
    ls_text_clear(&ctx, &vocab);
    ls_token_writer *writer;
    ls_token_file *file;
    static const int32_t ids[] = {69999, 0, 65536};
    int32_t back[3];
    assert_int_equal(ls_token_writer_new(&ctx, fixture_path("wide.tokens"), wide, 0, &writer),
                     LS_OK);
    assert_int_equal(ls_token_writer_add(&ctx, writer, ids, 3, 3), LS_OK);
    assert_int_equal(ls_token_writer_finish(&ctx, writer), LS_OK);
    ls_token_writer_free(&ctx, writer);
    assert_int_equal(ls_token_file_open(&ctx, fixture_path("wide.tokens"), &file), LS_OK);
    ls_token_file_read(file, 0, 3, back);
    assert_memory_equal(back, ids, sizeof ids);
    ls_token_file_close(&ctx, file);
    ls_tokenizer_free(&ctx, wide);
}

/* ---- documents on several threads ---- */

typedef struct gathered {
    ls_ids ids;
    size_t documents, bytes, refused; /* refused: the number of the document that is not taken */
} gathered;

static ls_status gather(ls_ctx *ctx, void *user, const int32_t *ids, size_t count, size_t bytes) {
    gathered *g = user;
    g->bytes += bytes;
    if (++g->documents == g->refused) return LS_FAIL(ctx, LS_EIO, "full");
    return ls_ids_append(ctx, &g->ids, ids, count);
}

/* Short documents, empty ones, and one that is larger than what waits for any team here. */
static ls_status encode_documents(int threads, const ls_tokenizer *tokenizer, gathered *out) {
    enum { DOCUMENTS = 1500, LARGE = 1 << 20 };
    ls_ctx ctx = ls_ctx_default();
    ls_encode_team *team;
    char *text = malloc(LARGE);
    ctx.threads = threads;
    for (int i = 0; i < LARGE; i++) text[i] = "the shade of a tree\n"[i * 7 % 20];
    assert_int_equal(ls_encode_team_new(&ctx, tokenizer, gather, out, &team), LS_OK);
    ls_status status = LS_OK;
    for (int i = 0; i < DOCUMENTS && status == LS_OK; i++)
        status = ls_encode_team_add(&ctx, team, text + i,
                                    i == 700 ? LARGE - 700 : (size_t)(i * 37 % 900));
    if (status == LS_OK) status = ls_encode_team_finish(&ctx, team);
    ls_encode_team_free(&ctx, team);
    free(text);
    return status;
}

static void test_team(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_bpe_trainer *trainer;
    const char *text = "the shade of the tree, the trees of the shade";
    gathered one = {0}, refused = {.refused = 1200};
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, text, strlen(text)), LS_OK);
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 270, &tokenizer), LS_OK);
    ls_bpe_trainer_free(&ctx, trainer);
    assert_int_equal(encode_documents(1, tokenizer, &one), LS_OK);
    for (int threads = 2; threads <= 3; threads++) {
        gathered many = {0};
        assert_int_equal(encode_documents(threads, tokenizer, &many), LS_OK);
        assert_int_equal(many.documents, one.documents);
        assert_int_equal(many.bytes, one.bytes);
        assert_int_equal(many.ids.count, one.ids.count);
        assert_memory_equal(many.ids.at, one.ids.at, one.ids.count * sizeof *one.ids.at);
        ls_ids_clear(&ctx, &many.ids);
    }
    assert_int_equal(encode_documents(3, tokenizer, &refused), LS_EIO);
    assert_int_equal(refused.documents, 1200);
    ls_ids_clear(&ctx, &one.ids);
    ls_ids_clear(&ctx, &refused.ids);
    ls_tokenizer_free(&ctx, tokenizer);
}

static ls_status open_everything(ls_ctx *ctx, void *user) {
    ls_dataset data;
    ls_loader *loader = NULL;
    ls_ctx own = ls_ctx_default();
    assert_int_equal(ls_folder_remove(&own, fixture_path("cache")), LS_OK);
    ls_status status = ls_data_open(ctx, user, fixture_path("cache"), NULL, &data);
    if (status == LS_OK) status = ls_data_loader(ctx, &data, user, 2, 16, 1, &loader);
    ls_loader_free(ctx, loader);
    ls_data_close(ctx, &data);
    return status;
}

static void test_allocation_failures(void **state) {
    (void)state;
    ls_data_settings settings;
    make_corpus();
    default_settings(&settings, fixture_path("texts"));
    strcpy(settings.tokenizer, "train");
    settings.vocabulary = 260;
    fail_each_allocation(open_everything, &settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write_and_read), cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_lies),
        cmocka_unit_test(test_data_open),      cmocka_unit_test(test_wide),
        cmocka_unit_test(test_team),           cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
