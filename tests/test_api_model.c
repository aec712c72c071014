/* The installed interface on a model: opening, logits and losses, streams, generation, failing
 * memory, two threads. The model is trained through the interface.
 * Tier: threads. */
#include "api_fixture.h"

enum { COUNT = 40, BATCH = 2, VOCABULARY = 256 };

static char run_folder[96];

static int train_once(void **state) {
    const char *const attention[] = {"mixer.heads=2", "train.steps=40", NULL};
    if (fixture_open(state) != 0) return 1;
    fixture_path(run_folder, sizeof run_folder, "run");
    longshot_engine *engine = fixture_engine();
    OK(engine, fixture_train(engine, "run", attention, NULL, NULL, NULL));
    longshot_engine_close(engine);
    return 0;
}

static longshot_model *open_model(longshot_engine *engine, const char *word) {
    const char *const words[] = {word, NULL};
    const longshot_model_options options = {.size = sizeof options, .settings = words};
    longshot_model *model;
    OK(engine, longshot_model_open(engine, run_folder, &options, &model));
    return model;
}

static void fill(int32_t *tokens, int64_t count) {
    for (int64_t i = 0; i < count; i++) tokens[i] = (int32_t)("what follows is much "[i % 21]);
}

static void test_facts(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_model *model = open_model(engine, "dtype=f64");
    char *yaml;
    assert_ptr_equal(longshot_model_engine(model), engine);
    assert_int_equal(longshot_model_vocabulary(model), VOCABULARY);
    assert_int_equal(longshot_model_trained_length(model), 16);
    assert_int_equal(longshot_model_classes(model), 0);
    assert_int_equal(longshot_model_step(model), 40);
    assert_true(longshot_model_parameters(model) > 2 * VOCABULARY);
    assert_int_equal(longshot_tokenizer_vocabulary(longshot_model_tokenizer(model)), VOCABULARY);
    longshot_tokenizer_close(longshot_model_tokenizer(model)); /* it is the model's: left alone */
    OK(engine, longshot_model_config(model, &yaml));
    assert_non_null(strstr(yaml, "width: 16"));
    longshot_text_free(engine, yaml);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

static void refuse_open(longshot_engine *engine, const char *path, const char *setting, int code,
                        const char *word) {
    const char *const words[] = {setting, NULL};
    const longshot_model_options options = {.size = sizeof options, .settings = words};
    longshot_model *model;
    fixture_refused(engine, longshot_model_open(engine, path, &options, &model), code, word);
    assert_null(model);
}

static void test_refusals(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    refuse_open(engine, "no/such/folder", NULL, LONGSHOT_EINPUT, "no/such/folder");
    refuse_open(engine, run_folder, "dtype=f8", LONGSHOT_EUSE, "f8");
    refuse_open(engine, run_folder, "exten=yarn", LONGSHOT_EUSE, "extend");
    refuse_open(engine, run_folder, "dtype", LONGSHOT_EUSE, "dtype");
    longshot_model *model = open_model(engine, NULL);
    int32_t tokens[4] = {0, 1, VOCABULARY, 2};
    float logits[4 * VOCABULARY];
    longshot_stream *stream;
    fixture_refused(engine, longshot_model_logits(model, tokens, 1, 4, logits), LONGSHOT_EINPUT,
                    "256");
    fixture_refused(engine, longshot_model_loss(model, tokens, 1, 1, logits), LONGSHOT_EUSE, "2");
    fixture_refused(engine, longshot_model_logits(model, tokens, 0, 4, logits), LONGSHOT_EUSE, "0");
    fixture_refused(engine, longshot_model_logits(model, tokens, INT64_MAX, 4, logits),
                    LONGSHOT_EUSE, "batch");
    longshot_stream_options options = {.size = sizeof options, .capacity = -1};
    fixture_refused(engine, longshot_stream_open(model, &options, &stream), LONGSHOT_EUSE,
                    "stream");
    options = (longshot_stream_options){.size = sizeof options, .source = 4};
    fixture_refused(engine, longshot_stream_open(model, &options, &stream), LONGSHOT_EUSE,
                    "encoder");
    options = (longshot_stream_options){.size = sizeof options, .capacity = 3};
    OK(engine, longshot_stream_open(model, &options, &stream));
    fixture_refused(engine, longshot_stream_read(stream, tokens), LONGSHOT_EUSE, "source");
    fixture_refused(engine, longshot_stream_feed(stream, tokens, 4, NULL), LONGSHOT_EUSE, "of 3");
    fixture_refused(engine, longshot_stream_feed(stream, tokens, 0, NULL), LONGSHOT_EUSE, "of 3");
    assert_int_equal(longshot_stream_position(stream), 0);
    longshot_stream_close(stream);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

static double loss_of(const float *logits, int32_t target) {
    double sum = 0;
    for (int v = 0; v < VOCABULARY; v++) sum += exp((double)logits[v]);
    return log(sum) - (double)logits[target];
}

/* Losses are those of the logits; whole sequences are streams; rows of a batch do not meet. */
static void test_numbers(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_model *model = open_model(engine, "dtype=f64");
    int32_t tokens[BATCH * COUNT];
    static float logits[BATCH * COUNT * VOCABULARY], alone[COUNT * VOCABULARY], last[VOCABULARY];
    float loss[BATCH * (COUNT - 1)];
    fill(tokens, BATCH * COUNT);
    for (int twice = 0; twice < 2; twice++) { /* the second on what the first left */
        OK(engine, longshot_model_logits(model, tokens, BATCH, COUNT, logits));
        OK(engine, longshot_model_loss(model, tokens, BATCH, COUNT, loss));
    }
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t + 1 < COUNT; t++) {
            const float *row = logits + (b * COUNT + t) * VOCABULARY;
            const double wanted = loss_of(row, tokens[b * COUNT + t + 1]);
            assert_true(fabs((double)loss[b * (COUNT - 1) + t] - wanted) < 1e-5 * (1 + wanted));
        }
    assert_true(loss[0] > 0 && loss[COUNT - 2] < 6);
    const longshot_stream_options options = {.size = sizeof options, .capacity = COUNT, .chunk = 7};
    longshot_stream *stream;
    OK(engine, longshot_stream_open(model, &options, &stream));
    assert_true(longshot_stream_bytes(stream) > 0);
    OK(engine, longshot_stream_logits(stream, tokens + COUNT, 5, alone));
    OK(engine, longshot_stream_feed(stream, tokens + COUNT + 5, 4, last));
    OK(engine,
       longshot_stream_logits(stream, tokens + COUNT + 9, COUNT - 9, alone + 9 * VOCABULARY));
    assert_int_equal(longshot_stream_position(stream), COUNT);
    const float *second = logits + COUNT * VOCABULARY;
    for (int i = 0; i < COUNT * VOCABULARY; i++)
        if (i / VOCABULARY < 5 || i / VOCABULARY >= 9)
            assert_true(fabsf(alone[i] - second[i]) < 1e-5F);
    for (int i = 0; i < VOCABULARY; i++)
        assert_true(fabsf(last[i] - second[8 * VOCABULARY + i]) < 1e-5F);
    longshot_stream_close(stream);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

static void test_streams(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_model *model = open_model(engine, NULL);
    const longshot_stream_options options = {
        .size = sizeof options, .batch = BATCH, .capacity = 2 * COUNT};
    int32_t tokens[BATCH * COUNT], targets[BATCH * COUNT];
    float first[BATCH * COUNT], second[BATCH * COUNT];
    longshot_stream *stream, *fork;
    size_t length, again;
    fill(tokens, BATCH * COUNT);
    memcpy(targets, tokens, sizeof targets);
    targets[0] = -1;
    OK(engine, longshot_stream_open(model, &options, &stream));
    assert_int_equal(longshot_stream_batch(stream), BATCH);
    OK(engine, longshot_stream_feed(stream, tokens, COUNT, NULL));
    OK(engine, longshot_stream_fork(stream, &fork));
    fixture_refused(engine, longshot_stream_save(stream, NULL, 0, &length), LONGSHOT_EUSE, "fit");
    char *saved = malloc(length);
    OK(engine, longshot_stream_save(stream, saved, length, &again));
    assert_int_equal(length, again);
    OK(engine, longshot_stream_loss(stream, tokens, targets, COUNT, first));
    assert_true(first[0] == 0 && first[1] > 0);
    longshot_stream_close(stream);
    OK(engine, longshot_stream_loss(fork, tokens, targets, COUNT, second));
    assert_memory_equal(first, second, sizeof first);
    OK(engine, longshot_stream_load(fork, saved, length));
    assert_int_equal(longshot_stream_position(fork), COUNT);
    memset(second, 0, sizeof second);
    OK(engine, longshot_stream_loss(fork, tokens, targets, COUNT, second));
    assert_memory_equal(first, second, sizeof first);
    fixture_refused(engine, longshot_stream_load(fork, saved, length - 1), LONGSHOT_EINPUT, "");
    fixture_refused(engine, longshot_stream_load(fork, saved, 0), LONGSHOT_EINPUT, "saved");
    longshot_stream_reset(fork);
    assert_int_equal(longshot_stream_position(fork), 0);
    free(saved);
    longshot_stream_close(fork);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

typedef struct heard {
    longshot_engine *engine;
    char text[64];
    size_t length;
    int64_t tokens, stop_at;
    bool by_engine;
} heard;

static int hear(void *user, int32_t token, const char *bytes, size_t length) {
    heard *h = user;
    assert_true(token >= 0 && token < VOCABULARY && length == 1);
    h->text[h->length++] = *bytes;
    if (++h->tokens != h->stop_at) return 0;
    if (!h->by_engine) return 1;
    longshot_stop(h->engine);
    return 0;
}

/* The parts of a generation, put together by the caller, give what longshot_generate gives. */
static void test_own_generation(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_model *model = open_model(engine, NULL);
    longshot_stream *stream;
    const longshot_stream_options options = {.size = sizeof options, .capacity = 64};
    const longshot_sampling how = {.size = sizeof how, .temperature = 1, .seed = 7};
    heard whole = {0};
    int32_t ids[64], token;
    float logits[VOCABULARY];
    size_t count;
    OK(engine, longshot_generate(model, "document", 20, &how, hear, &whole));
    OK(engine, longshot_prompt(model, "document", ids, 64, &count));
    assert_int_equal(count, 8);
    OK(engine, longshot_stream_open(model, &options, &stream));
    OK(engine, longshot_stream_feed(stream, ids, (int64_t)count, logits));
    for (uint64_t i = 0; i < 20; i++) {
        OK(engine, longshot_sample(engine, logits, VOCABULARY, &how, i, &token));
        assert_int_equal(longshot_model_ends(model, token), 0);
        assert_int_equal(token, (unsigned char)whole.text[i]);
        OK(engine, longshot_stream_feed(stream, &token, 1, logits));
    }
    fixture_refused(engine, longshot_prompt(model, "document", ids, 3, &count), LONGSHOT_EUSE,
                    "fit");
    assert_int_equal(count, 8);
    OK(engine, longshot_prompt(model, "", ids, 64, &count)); /* a line, or a document, begins */
    assert_int_equal(count, 1);
    assert_int_equal(longshot_model_encoder(model), 0);
    assert_int_equal(longshot_model_start(model), -1);
    longshot_stream_close(stream);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

static void test_generation(void **unused) {
    (void)unused;
    longshot_engine *engine = fixture_engine();
    longshot_model *model = open_model(engine, NULL);
    longshot_sampling how = {.size = sizeof how, .temperature = 1, .seed = 7};
    heard first = {0}, second = {0}, third = {.stop_at = 3},
          fourth = {.engine = engine, .stop_at = 4, .by_engine = true};
    OK(engine, longshot_generate(model, "document", 20, &how, hear, &first));
    OK(engine, longshot_generate(model, "document", 20, &how, hear, &second));
    assert_int_equal(first.tokens, 20);
    assert_memory_equal(first.text, second.text, 20);
    how.seed = 8;
    second = (heard){0};
    OK(engine, longshot_generate(model, "document", 20, &how, hear, &second));
    assert_true(memcmp(first.text, second.text, 20) != 0);
    /* one of two tokens, as a coin falls: none of sixteen seeds takes the likelier one 20 times */
    heard likeliest = {0};
    how.temperature = 0;
    OK(engine, longshot_generate(model, "document", 20, &how, hear, &likeliest));
    how.temperature = 1e6;
    how.top_k = 2;
    for (how.seed = 1; how.seed <= 16; how.seed++) {
        second = (heard){0};
        OK(engine, longshot_generate(model, "document", 20, &how, hear, &second));
        assert_true(memcmp(likeliest.text, second.text, 20) != 0);
    }
    how = (longshot_sampling){.size = sizeof how, .temperature = 1, .seed = 8};
    fixture_refused(engine, longshot_generate(model, "document", 20, &how, hear, &third),
                    LONGSHOT_ESTOP, "stopped");
    assert_int_equal(third.tokens, 3);
    fixture_refused(engine, longshot_generate(model, "document", 20, &how, hear, &fourth),
                    LONGSHOT_ESTOP, "stopped");
    assert_int_equal(fourth.tokens, 4);
    second = (heard){0}; /* the stop was obeyed and is over */
    OK(engine, longshot_generate(model, "", 20, NULL, hear, &second));
    fixture_refused(engine, longshot_generate(model, "d", 0, NULL, hear, &second), LONGSHOT_EUSE,
                    "tokens");
    longshot_model_close(model);
    longshot_engine_close(engine);
}

/* ---- public checkpoints ---- */

#define GOLDEN LS_TEST_SOURCE "/tests/golden/checkpoints/"

/* The values of a tensor of a safetensors file; its header has the place. */
static void read_tensor(const char *path, const char *name, void *out, size_t bytes) {
    static char head[1 << 16];
    char quoted[64];
    uint64_t length;
    size_t from, to;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(&length, 1, 8, file), 8);
    assert_true(length < sizeof head && fread(head, 1, (size_t)length, file) == length);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *at = strstr(head, quoted);
    assert_non_null(at);
    assert_int_equal(sscanf(strstr(at, "\"data_offsets\":[") + 16, "%zu,%zu", &from, &to), 2);
    assert_int_equal(to - from, bytes);
    assert_int_equal(fseek(file, (long)(8 + length + from), SEEK_SET), 0);
    assert_int_equal(fread(out, 1, bytes, file), bytes);
    fclose(file);
}

static longshot_model *open_public(longshot_engine *engine, const char *path) {
    const char *const words[] = {"dtype=f64", NULL};
    const longshot_model_options options = {.size = sizeof options, .settings = words};
    longshot_model *model;
    OK(engine, longshot_model_open(engine, path, &options, &model));
    return model;
}

/* A GGUF file, whole and in parts. */
static void test_gguf(void **unused) {
    (void)unused;
    enum { T = 9, V = 48 };
    static const char *const paths[] = {GOLDEN "gguf-llama/model.gguf",
                                        GOLDEN "gguf-llama/split/model-00001-of-00003.gguf"};
    int64_t ids[T];
    double wanted[T * V];
    int32_t tokens[T];
    float logits[T * V];
    read_tensor(GOLDEN "gguf-llama/expected.safetensors", "a.input_ids", ids, sizeof ids);
    read_tensor(GOLDEN "gguf-llama/expected.safetensors", "a.logits64", wanted, sizeof wanted);
    for (int i = 0; i < T; i++) tokens[i] = (int32_t)ids[i];
    for (int k = 0; k < 2; k++) {
        longshot_engine *engine = fixture_engine();
        longshot_model *model = open_public(engine, paths[k]);
        heard none = {0};
        assert_int_equal(longshot_model_vocabulary(model), V);
        assert_int_equal(longshot_model_trained_length(model), 64);
        assert_null(longshot_model_tokenizer(model));
        OK(engine, longshot_model_logits(model, tokens, 1, T, logits));
        for (int i = 0; i < T * V; i++) assert_true(fabs((double)logits[i] - wanted[i]) < 1e-5);
        fixture_refused(engine, longshot_generate(model, "text", 4, NULL, hear, &none),
                        LONGSHOT_EUSE, "tokenizer");
        longshot_model_close(model);
        longshot_engine_close(engine);
    }
}

static int count_tokens(void *user, int32_t token, const char *bytes, size_t length) {
    (void)token;
    (void)bytes;
    (void)length;
    ++*(int64_t *)user;
    return 0;
}

/* Encoders open; what has no next token is refused with a sentence, and one with a decoder
 * answers. */
static void test_encoders(void **unused) {
    (void)unused;
    enum { T = 12, V = 270 };
    longshot_engine *engine = fixture_engine();
    longshot_model *masked = open_public(engine, GOLDEN "longformer-mlm");
    int32_t tokens[T];
    static float logits[T * V];
    int64_t answer = 0;
    for (int i = 0; i < T; i++) tokens[i] = 4 + i;
    assert_int_equal(longshot_model_vocabulary(masked), 53);
    fixture_refused(engine, longshot_model_logits(masked, tokens, 1, T, logits), LONGSHOT_EUSE,
                    "both sides");
    longshot_model_close(masked);
    longshot_model *model = open_public(engine, GOLDEN "t5");
    assert_int_equal(longshot_model_vocabulary(model), V);
    fixture_refused(engine, longshot_model_logits(model, tokens, 1, T, logits), LONGSHOT_EUSE,
                    "encoder");
    OK(engine, longshot_generate(model, "a text", 5, NULL, count_tokens, &answer));
    assert_in_range(answer, 1, 5);
    longshot_model_close(model);
    longshot_engine_close(engine);
}

/* ---- memory ---- */

typedef struct counter {
    int64_t fail_at, taken, live;
} counter;

static void *count_take(void *user, size_t bytes) {
    counter *c = user;
    if (c->taken++ == c->fail_at) return NULL;
    void *pointer = aligned_alloc(64, (bytes + 64) & ~(size_t)63);
    c->live += pointer != NULL;
    return pointer;
}

static void count_give(void *user, void *pointer) {
    counter *c = user;
    assert_non_null(pointer);
    c->live--;
    free(pointer);
}

static int open_and_score(counter *c) {
    const longshot_engine_options options = {.size = sizeof options,
                                             .threads = 1,
                                             .take = count_take,
                                             .give = count_give,
                                             .allocator_user = c};
    longshot_engine *engine;
    longshot_model *model = NULL;
    int32_t tokens[COUNT];
    float loss[COUNT];
    fill(tokens, COUNT);
    int code = longshot_engine_open(&options, &engine);
    if (code == LONGSHOT_OK) code = longshot_model_open(engine, run_folder, NULL, &model);
    if (code == LONGSHOT_OK) code = longshot_model_loss(model, tokens, 1, COUNT, loss);
    if (code != LONGSHOT_OK) assert_true(strlen(longshot_error(engine)) > 0);
    longshot_model_close(model);
    longshot_engine_close(engine);
    return code;
}

static void test_memory_fails(void **unused) {
    (void)unused;
    counter all = {.fail_at = -1};
    assert_int_equal(open_and_score(&all), LONGSHOT_OK);
    assert_int_equal(all.live, 0);
    assert_true(all.taken > 100);
    for (int64_t k = 0; k < all.taken; k++) {
        counter c = {.fail_at = k};
        const int code = open_and_score(&c);
        if (code != LONGSHOT_ENOMEM) fail_msg("allocation %lld: %d", (long long)k, code);
        if (c.live != 0)
            fail_msg("allocation %lld: %lld are left", (long long)k, (long long)c.live);
    }
}

/* ---- threads ---- */

typedef struct worker {
    float loss[COUNT - 1];
    int code;
} worker;

static void *work(void *user) {
    worker *w = user;
    const longshot_engine_options options = {.size = sizeof options, .threads = 2};
    longshot_engine *engine;
    longshot_model *model = NULL;
    int32_t tokens[COUNT];
    fill(tokens, COUNT);
    w->code = longshot_engine_open(&options, &engine);
    if (w->code == LONGSHOT_OK) w->code = longshot_model_open(engine, run_folder, NULL, &model);
    for (int i = 0; i < 20 && w->code == LONGSHOT_OK; i++)
        w->code = longshot_model_loss(model, tokens, 1, COUNT, w->loss);
    longshot_model_close(model);
    longshot_engine_close(engine);
    return NULL;
}

static void test_threads(void **unused) {
    (void)unused;
    worker alone, both[2];
    pthread_t threads[2];
    work(&alone);
    assert_int_equal(alone.code, LONGSHOT_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &both[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(both[i].code, LONGSHOT_OK);
        assert_memory_equal(both[i].loss, alone.loss, sizeof alone.loss);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_facts),      cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_numbers),    cmocka_unit_test(test_streams),
        cmocka_unit_test(test_generation), cmocka_unit_test(test_memory_fails),
        cmocka_unit_test(test_threads),    cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_encoders),   cmocka_unit_test(test_own_generation),
    };
    return cmocka_run_group_tests(tests, train_once, fixture_close);
}
