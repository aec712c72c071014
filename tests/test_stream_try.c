/* Continuations of a stream that it does not keep: each has the bits that it has alone, and the
 * stream goes on as if nothing had been tried, for mixers that keep different things. */
#include "stream_model.h"

#include <math.h>

#include "model/stream_internal.h"

enum { CAPACITY = 96, CHUNK = 16, BEFORE = 37, COUNT = 18, LONGEST = 13, AFTER = 11 };

static const char *const cases[] = {
    "mixer.heads=2 model.position=rope",
    "mixer.heads=2 mixer.window=6 model.position=xpos",
    "mixer.heads=2 model.position=learned position.length=96",
    "mixer.heads=2 model.position=alibi",
    "mixer.heads=2 model.position=t5",
    "mixer.heads=2 mixer.kv_heads=1 model.position=rope",
    "mixer.heads=2 model.position=rope model.length=16 extend=sinks extend.window=12",
    "mixer.heads=2 model.position=xpos model.length=16 extend=bca",
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
    "model.mixer=s4",
    "model.mixer=s5",
    "model.mixer=s4d",
    "model.mixer=performer mixer.heads=2 model.position=rope",
    "model.mixer=longformer mixer.heads=2 mixer.window=8 model.position=rope",
    "mixer.heads=2 model.position=rope model.length=16 extend=self_extend",
    "mixer.heads=2 model.position=rope model.length=16 extend=dca",
    "model.layers=mamba,attention mixer.heads=2 model.position=rope",
    "mixer.heads=2 model.position=learned position.length=32 model.segment=6 model.memory=2",
};
enum { CASES = sizeof cases / sizeof cases[0] };

static const int64_t lengths[] = {1, 3, 5, 8, LONGEST};
enum { LENGTHS = sizeof lengths / sizeof lengths[0] };

typedef double answers[COUNT * LONGEST][VOCABULARY];

static ls_stream *stream_at(world *w) {
    int32_t tokens[BEFORE];
    double logits[VOCABULARY];
    ls_stream *stream;
    for (int64_t i = 0; i < BEFORE; i++) tokens[i] = token_of(0, i);
    OK(w, ls_stream_new(w->model, 1, CAPACITY, CHUNK, &stream));
    OK(w, ls_stream_logits(stream, tokens, BEFORE, BEFORE, logits));
    return stream;
}

/* What it says when it goes on for good. */
static void go_on(world *w, ls_stream *stream, double *logits) {
    int32_t tokens[AFTER];
    for (int64_t i = 0; i < AFTER; i++) tokens[i] = token_of(50, i);
    OK(w, ls_stream_logits(stream, tokens, AFTER, AFTER, logits));
}

static void fill(int64_t count, int64_t length, int32_t *tokens) {
    for (int64_t c = 0; c < count; c++)
        for (int64_t i = 0; i < length; i++) tokens[c * length + i] = token_of(c + 1, 100 + i);
}

static void check_length(world *w, const char *words, ls_dtype type, int64_t length) {
    static answers alone, tried;
    double on[VOCABULARY], on_after[VOCABULARY];
    int32_t tokens[COUNT * LONGEST], every[LONGEST];
    ls_stream_mark *mark;
    ls_stream *stream = stream_at(w);
    const int64_t count = length == 3 ? 2 : COUNT; /* also groups of another size */
    if (length > ls_stream_room(stream)) length = ls_stream_room(stream);
    for (int64_t i = 0; i < length; i++) every[i] = (int32_t)i;
    fill(count, length, tokens);
    OK(w, ls_stream_mark_new(stream, &mark));
    go_on(w, stream, on);
    for (int64_t c = 0; c < count; c++) {
        OK(w, ls_stream_back(stream, mark));
        OK(w, ls_stream_logits_at(stream, tokens + c * length, length, length, every, length,
                                  alone[c * length]));
    }
    memset(tried, 0, sizeof tried);
    OK(w, ls_stream_try(stream, mark, tokens, count, length, tried[0])); /* goes back by itself */
    assert_int_equal(ls_stream_position(stream), BEFORE);
    for (int64_t i = 0; i < count * length; i++)
        if (!same_logits(w, type, alone[i], tried[i]))
            fail_msg("%s, type %d: token %lld of continuation %lld differs (length %lld)", words,
                     (int)type, (long long)(i % length), (long long)(i / length),
                     (long long)length);
    go_on(w, stream, on_after);
    if (memcmp(on, on_after, sizeof on) != 0) fail_msg("%s: something was kept", words);
    /* else nothing is shared, and the test would be of nothing */
    if (stream->unit == 1 && stream->marks == 0 && stream->cache->forks_apart)
        fail_msg("%s: continuations go one by one", words);
    ls_stream_mark_free(&w->ctx, mark);
    ls_stream_free(stream);
}

static void check(const char *words, ls_dtype type, int threads) {
    world w;
    world_open(&w, words, type, threads);
    for (int i = 0; i < LENGTHS; i++) check_length(&w, words, type, lengths[i]);
    world_close(&w);
}

static void test_same_bits(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        check(cases[i], LS_F32, 1);
        check(cases[i], LS_BF16, 1);
    }
    check(cases[0], LS_F64, 1);
    check("model.width=128 mixer.heads=2 model.position=rope", LS_F32, 2);
    check("model.mixer=mamba", LS_BF16, 3);
}

/* The text itself is what it sees: another past gives other answers. */
static void test_past_counts(void **unused) {
    (void)unused;
    world w;
    static answers one, other;
    int32_t tokens[2 * 8], more = 3;
    double logits[VOCABULARY];
    ls_stream_mark *mark;
    world_open(&w, cases[0], LS_F32, 1);
    ls_stream *stream = stream_at(&w);
    fill(2, 8, tokens);
    OK(&w, ls_stream_mark_new(stream, &mark));
    OK(&w, ls_stream_try(stream, mark, tokens, 2, 8, one[0]));
    assert_true(memcmp(one[0], one[8], sizeof one[0]) != 0);
    OK(&w, ls_stream_logits(stream, &more, 1, 1, logits));
    ls_stream_mark_free(&w.ctx, mark);
    OK(&w, ls_stream_mark_new(stream, &mark));
    OK(&w, ls_stream_try(stream, mark, tokens, 2, 8, other[0]));
    assert_true(memcmp(one[7], other[7], sizeof one[7]) != 0);
    ls_stream_mark_free(&w.ctx, mark);
    ls_stream_free(stream);
    world_close(&w);
}

static void test_refusals(void **unused) {
    (void)unused;
    world w;
    double logits[2 * CHUNK * VOCABULARY];
    int32_t tokens[2 * (CHUNK + 1)] = {0}, wrong[2 * 2] = {1, 2, VOCABULARY, 3};
    ls_stream_mark *mark;
    world_open(&w, cases[0], LS_F32, 1);
    ls_stream *stream = stream_at(&w);
    OK(&w, ls_stream_mark_new(stream, &mark));
    refused(&w, ls_stream_try(stream, mark, wrong, 2, 2, logits), LS_EINPUT);
    refused(&w, ls_stream_try(stream, mark, tokens, 2, CHUNK + 1, logits), LS_EBUG);
    refused(&w, ls_stream_try(stream, mark, tokens, 2, 0, logits), LS_EBUG);
    OK(&w, ls_stream_try(stream, mark, tokens, 0, 2, logits));
    OK(&w, ls_stream_try(stream, mark, tokens, 2, 2, logits));
    assert_int_equal(ls_stream_position(stream), BEFORE);
    ls_stream_mark_free(&w.ctx, mark);
    ls_stream_free(stream);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_past_counts),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
