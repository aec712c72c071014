/* The installed interface: engines, options of any size, tokenizers, catalogues, the allocator. */
#include "api_fixture.h"

static void test_version(void **unused) {
    (void)unused;
    assert_true(strchr(longshot_version(), '.') != NULL);
    assert_true(strlen(longshot_code_sentence(LONGSHOT_ENOMEM)) > 0);
    assert_true(strlen(longshot_code_hint(LONGSHOT_EINPUT)) > 0);
    assert_string_equal(longshot_code_sentence(-99), "");
    assert_string_equal(longshot_code_hint(7), "");
    assert_true(strlen(longshot_error(NULL)) > 0);
    longshot_engine_close(NULL);
    longshot_model_close(NULL);
    longshot_stream_close(NULL);
    longshot_tokenizer_close(NULL);
}

static void engine_refused(const longshot_engine_options *options, const char *word) {
    longshot_engine *engine;
    int code = longshot_engine_open(options, &engine);
    assert_non_null(engine);
    fixture_refused(engine, code, LONGSHOT_EUSE, word);
    longshot_engine_close(engine);
}

static void *take_none(void *user, size_t bytes) {
    (void)user, (void)bytes;
    return NULL;
}

static void give_none(void *user, void *pointer) {
    (void)user, (void)pointer;
}

static void test_engines(void **unused) {
    (void)unused;
    longshot_engine_options wrong = {.size = sizeof wrong, .device = "abacus"};
    engine_refused(&wrong, "abacus");
    wrong = (longshot_engine_options){.size = sizeof wrong, .threads = -1};
    engine_refused(&wrong, "threads=-1");
    wrong = (longshot_engine_options){.size = sizeof wrong, .isa = "mmx"};
    engine_refused(&wrong, "mmx");
    wrong = (longshot_engine_options){.size = sizeof wrong, .take = take_none};
    engine_refused(&wrong, "both");
    longshot_engine *engine;
    wrong.give = give_none;
    assert_int_equal(longshot_engine_open(&wrong, &engine), LONGSHOT_ENOMEM);
    assert_null(engine);
    OK(engine, longshot_engine_open(NULL, &engine));
    longshot_engine_close(engine);
}

/* A struct of an older program, of this one, and of a later one. */
static void test_sizes(void **unused) {
    (void)unused;
    longshot_engine *engine;
    struct {
        longshot_engine_options known;
        int64_t later[2];
    } options = {.known = {.size = sizeof options, .threads = 2}};
    OK(engine, longshot_engine_open(&options.known, &engine));
    longshot_engine_close(engine);
    options.later[1] = 1;
    engine_refused(&options.known, "later version");
    options.known.size = sizeof options.known; /* what lies behind is not read */
    OK(engine, longshot_engine_open(&options.known, &engine));
    longshot_engine_close(engine);
    options.known = (longshot_engine_options){.size = sizeof(size_t), .device = "abacus"};
    OK(engine, longshot_engine_open(&options.known, &engine)); /* older than the device */
    static const size_t wrong[] = {0, 4, 7, sizeof options.known - 1, (size_t)1 << 40};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options.known.size = wrong[i];
        engine_refused(&options.known, "sizeof");
    }
    longshot_train_result result = {.size = 3};
    fixture_refused(engine, longshot_train(engine, NULL, &result), LONGSHOT_EUSE,
                    "longshot_train_result");
    longshot_engine_close(engine);
}

static void test_catalogue(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    char *json;
    OK(engine, longshot_catalogue(engine, "mixers", &json));
    assert_non_null(strstr(json, "\"retnet\""));
    longshot_text_free(engine, json);
    fixture_refused(engine, longshot_catalogue(engine, "clouds", &json), LONGSHOT_EUSE, "clouds");
    assert_null(json);
    OK(engine, longshot_catalogue(engine, "positions", &json));
    assert_string_equal(longshot_error(engine), "");
    longshot_text_free(engine, json);
    longshot_engine_close(engine);
}

static void test_tokenizers(void **unused) {
    (void)unused;
    static const char text[] = "caf\xc3\xa9 \xff";
    enum { LENGTH = sizeof text - 1 };
    longshot_engine *engine = fixture_engine();
    longshot_tokenizer *tokenizer;
    int32_t tokens[LENGTH];
    char back[LENGTH];
    size_t count;
    OK(engine, longshot_tokenizer_open(engine, "byte", &tokenizer));
    assert_int_equal(longshot_tokenizer_vocabulary(tokenizer), 256);
    assert_int_equal(longshot_tokenizer_end(tokenizer), -1);
    fixture_refused(engine, longshot_encode(tokenizer, text, LENGTH, 0, NULL, 0, &count),
                    LONGSHOT_EUSE, "fit");
    assert_int_equal(count, LENGTH);
    OK(engine, longshot_encode(tokenizer, text, LENGTH, 0, tokens, LENGTH, &count));
    OK(engine, longshot_decode(tokenizer, tokens, LENGTH, back, LENGTH, &count));
    assert_memory_equal(text, back, LENGTH);
    fixture_refused(engine, longshot_encode(tokenizer, text, LENGTH, 8, tokens, LENGTH, &count),
                    LONGSHOT_EUSE, "flags");
    tokens[0] = 256;
    assert_int_equal(longshot_decode(tokenizer, tokens, 1, back, LENGTH, &count), LONGSHOT_EINPUT);
    OK(engine, longshot_encode(tokenizer, "", 0, 0, NULL, 0, &count));
    assert_int_equal(count, 0);
    longshot_tokenizer_close(tokenizer);
    assert_true(longshot_tokenizer_open(engine, "no/such/file", &tokenizer) != LONGSHOT_OK);
    assert_null(tokenizer);
    longshot_engine_close(engine);
}

static void test_sampling(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    const float logits[] = {0, 3, 1, 2.5F};
    longshot_sampling how = {.size = sizeof how};
    int32_t token, again;
    OK(engine, longshot_sample(engine, logits, 4, NULL, 0, &token));
    assert_int_equal(token, 1);
    int seen[4] = {0};
    how.temperature = 2;
    how.top_k = 2;
    for (uint64_t i = 0; i < 64; i++) {
        OK(engine, longshot_sample(engine, logits, 4, &how, i, &token));
        OK(engine, longshot_sample(engine, logits, 4, &how, i, &again));
        assert_int_equal(token, again);
        seen[token]++;
    }
    assert_true(seen[1] > 0 && seen[3] > 0 && seen[0] + seen[2] == 0);
    how.top_p = 1.5;
    fixture_refused(engine, longshot_sample(engine, logits, 4, &how, 0, &token), LONGSHOT_EUSE,
                    "top_p");
    fixture_refused(engine, longshot_sample(engine, logits, 0, NULL, 0, &token), LONGSHOT_EUSE,
                    "logits");
    how = (longshot_sampling){.size = sizeof how, .temperature = (double)NAN};
    fixture_refused(engine, longshot_sample(engine, logits, 4, &how, 0, &token), LONGSHOT_EUSE,
                    "temperature");
    longshot_engine_close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version),    cmocka_unit_test(test_engines),
        cmocka_unit_test(test_sizes),      cmocka_unit_test(test_catalogue),
        cmocka_unit_test(test_tokenizers), cmocka_unit_test(test_sampling),
    };
    return cmocka_run_group_tests(tests, fixture_open, fixture_close);
}
