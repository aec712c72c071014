/* Streams at places of their own that are fed together: each has the bits that it has alone,
 * whatever goes on beside it, for mixers that keep different things.
 * Tier: threads. */
#include "stream_model.h"

#include <math.h>

#include "model/stream_internal.h"
#include "tensor/engine/program_internal.h"

enum { CAPACITY = 64, CHUNK = 8, STREAMS = 18, STEPS = 4 };

static const char *const cases[] = {
    "mixer.heads=2 model.position=rope",
    "mixer.heads=2 mixer.window=6 model.position=xpos",
    "mixer.heads=2 model.position=learned position.length=64",
    "mixer.heads=2 model.position=alibi",
    "mixer.heads=2 mixer.kv_heads=1 model.position=rope",
    ("mixer.heads=2 model.position=rope model.length=32 extend=landmark extend.block=5 "
     "extend.top_k=1"),
    "model.mixer=mamba",
    "model.mixer=mamba2 mixer.headdim=8",
    "model.mixer=retnet mixer.heads=2",
    "model.mixer=retnet mixer.heads=2 model.norm=batch",
    "model.mixer=transformer_xl mixer.heads=2 mixer.segment=8 mixer.memory=12",
    ("model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 mixer.compressed=6 "
     "mixer.rate=4"),
    "model.mixer=hyena",
    "model.mixer=h3",
    "model.mixer=mega",
    "model.layers=mamba,attention mixer.heads=2 model.position=rope",
    "mixer.heads=2 model.position=learned position.length=32 model.segment=6 model.memory=2",
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* A stream by its number: at a place of its own. */
static ls_stream *stream_of(world *w, const ls_stream *root, int number) {
    int32_t tokens[CAPACITY];
    double logits[VOCABULARY];
    ls_stream *stream;
    const int64_t count = 1 + 5 * number % 23;
    OK(w, ls_stream_fork(root, &stream));
    for (int64_t i = 0; i < count; i++) tokens[i] = token_of(number, i);
    OK(w, ls_stream_logits(stream, tokens, count, count, logits));
    return stream;
}

/* Then pieces of several tokens, as the ends of prompts are. */
enum { PIECES = 3 };
static const int64_t lengths[PIECES] = {4, 2, 3};

typedef double answers[STREAMS][STEPS + PIECES][VOCABULARY];

static void step_alone(world *w, const ls_stream *root, answers out) {
    for (int i = 0; i < STREAMS; i++) {
        ls_stream *stream = stream_of(w, root, i);
        for (int step = 0; step < STEPS; step++) {
            int32_t token = token_of(i, 100 + step);
            OK(w, ls_stream_logits(stream, &token, 1, 1, out[i][step]));
        }
        for (int piece = 0; piece < PIECES; piece++) {
            int32_t tokens[LS_TOGETHER_LENGTH];
            for (int64_t t = 0; t < lengths[piece]; t++) tokens[t] = token_of(i, 200 + piece + t);
            OK(w, ls_stream_logits(stream, tokens, lengths[piece], lengths[piece],
                                   out[i][STEPS + piece]));
        }
        ls_stream_free(stream);
    }
}

/* Streams come and go: number i takes part in steps i / 2 to i / 2 + STEPS - 1. */
static void step_together(world *w, const ls_stream *root, answers out) {
    ls_stream *streams[STREAMS];
    for (int i = 0; i < STREAMS; i++) streams[i] = stream_of(w, root, i);
    for (int round = 0; round < STREAMS / 2 + STEPS; round++) {
        ls_stream *now[STREAMS];
        int32_t tokens[STREAMS];
        double logits[STREAMS][VOCABULARY];
        int which[STREAMS];
        int64_t count = 0;
        for (int i = 0; i < STREAMS; i++) {
            const int step = round - i / 2;
            if (step < 0 || step >= STEPS) continue;
            now[count] = streams[i];
            which[count] = i;
            tokens[count++] = token_of(i, 100 + step);
        }
        OK(w, ls_streams_feed(now, count, tokens, 1, logits[0]));
        for (int64_t j = 0; j < count; j++)
            memcpy(out[which[j]][round - which[j] / 2], logits[j], sizeof logits[j]);
    }
    for (int piece = 0; piece < PIECES; piece++) {
        int32_t tokens[STREAMS * LS_TOGETHER_LENGTH];
        double logits[STREAMS][VOCABULARY];
        for (int i = 0; i < STREAMS; i++)
            for (int64_t t = 0; t < lengths[piece]; t++)
                tokens[i * lengths[piece] + t] = token_of(i, 200 + piece + t);
        OK(w, ls_streams_feed(streams, STREAMS, tokens, lengths[piece], logits[0]));
        for (int i = 0; i < STREAMS; i++)
            memcpy(out[i][STEPS + piece], logits[i], sizeof logits[i]);
    }
    for (int i = 0; i < STREAMS; i++) ls_stream_free(streams[i]);
}

static void check(const char *words, ls_dtype type, int threads) {
    static answers alone, together;
    world w;
    ls_stream *root;
    world_open(&w, words, type, threads);
    OK(&w, ls_stream_new(w.model, 1, CAPACITY, CHUNK, &root));
    step_alone(&w, root, alone);
    memset(together, 0, sizeof together);
    step_together(&w, root, together);
    /* else nothing is shared, and the test would be of nothing */
    if (root->unit == 1 && root->cache->apart) fail_msg("%s: streams go one by one", words);
    for (int i = 0; i < STREAMS; i++)
        for (int step = 0; step < STEPS + PIECES; step++)
            if (!same_logits(&w, type, alone[i][step], together[i][step]))
                fail_msg("%s, type %d, %d threads: stream %d differs at step %d", words, (int)type,
                         threads, i, step);
    assert_true(memcmp(alone[0][0], alone[1][0], sizeof alone[0][0]) != 0);
    ls_stream_free(root);
    world_close(&w);
}

static void test_same_bits(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        check(cases[i], LS_F32, 1);
        check(cases[i], LS_BF16, 1);
    }
    check(cases[0], LS_F64, 1);
    /* groups on threads of their own; then products that threads share */
    check("model.width=128 mixer.heads=2 model.position=rope", LS_F32, 2);
    check("model.mixer=mamba", LS_BF16, 3);
    check("model.width=512 mixer.heads=2 model.position=rope", LS_F32, 2);
}

static void test_refusals(void **unused) {
    (void)unused;
    world w;
    ls_stream *root, *other, *pair[2];
    double logits[2 * VOCABULARY];
    int32_t tokens[CAPACITY] = {0}, wrong[2] = {1, VOCABULARY};
    world_open(&w, cases[0], LS_F32, 1);
    OK(&w, ls_stream_new(w.model, 1, CAPACITY, CHUNK, &root));
    OK(&w, ls_stream_new(w.model, 1, CAPACITY, CHUNK, &other));
    pair[0] = root, pair[1] = other;
    refused(&w, ls_streams_feed(pair, 2, tokens, 1, logits), LS_EBUG); /* no forks */
    ls_stream_free(other);
    OK(&w, ls_stream_fork(root, &pair[1]));
    refused(&w, ls_streams_feed(pair, 2, wrong, 1, logits), LS_EINPUT);
    assert_int_equal(ls_stream_position(root), 0);
    OK(&w, ls_stream_logits(root, tokens, CAPACITY, CAPACITY, logits));
    refused(&w, ls_streams_feed(pair, 2, tokens, 1, logits), LS_EUSE); /* full */
    assert_int_equal(ls_stream_position(pair[1]), 0);
    OK(&w, ls_streams_feed(pair, 0, tokens, 1, logits));
    ls_stream_free(root);
    ls_stream_free(pair[1]);
    world_close(&w);
}

/* Nodes of a step that threads share, of all that compute. */
static int shared_nodes(const char *words, int64_t team_work, int *all) {
    const ls_program_options options = {
        .batch = 1, .length = 1, .streaming = true, .capacity = CAPACITY, .chunk_max = CHUNK};
    world w;
    ls_program *program;
    int shared = 0;
    world_open(&w, words, LS_F32, 2);
    w.ctx.team_work = team_work;
    OK(&w, ls_model_program(w.model, LS_MODEL_LOGITS, options, &program));
    *all = 0;
    for (size_t i = 0; i < program->nodes.count; i++) {
        const ls_node *node = program->nodes.at[i];
        *all += node->call != NULL;
        shared += node->call != NULL && !node->small;
    }
    ls_program_free(program);
    world_close(&w);
    return shared;
}

/* Threads are not woken for work that one of them does sooner; large products they share. */
static void test_small_work(void **unused) {
    (void)unused;
    int all;
    if (getenv("LONGSHOT_TEST_DEVICE") != NULL) test_skip("threads are the processor's");
    assert_int_equal(shared_nodes("model.width=128 mixer.heads=2", LS_TEAM_WORK, &all), 0);
    assert_true(all > 10);
    const int shared = shared_nodes("model.width=512 mixer.heads=2", LS_TEAM_WORK, &all);
    assert_in_range(shared, 6, all / 2);
    assert_int_equal(shared_nodes("model.width=128 mixer.heads=2", 0, &all), all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_small_work),
    };
    return test_code(cmocka_run_group_tests(tests, NULL, NULL));
}
