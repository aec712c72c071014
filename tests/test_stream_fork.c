/* Forks of a stream, and streams saved and loaded: what goes on from there is the same to the bit
 * as what never was forked, for mixers that keep different things. */
#include "stream_model.h"

#include "failing_allocator.h"

enum { BATCH = 2, CAPACITY = 64, CHUNK = 8, BEFORE = 21, AFTER = 19 };

static const char *const cases[] = {
    "mixer.heads=2 model.position=rope",
    "mixer.heads=2 mixer.window=6 model.position=xpos",
    "model.mixer=mamba",
    "model.mixer=mamba2 mixer.headdim=8",
    "model.mixer=retnet mixer.heads=2",
    "model.mixer=retnet mixer.heads=2 model.norm=batch",
    "model.mixer=transformer_xl mixer.heads=2 mixer.segment=8 mixer.memory=12",
    "model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 mixer.compressed=6 "
    "mixer.rate=4",
    "model.mixer=hyena",
    "model.mixer=h3",
    "model.mixer=mega",
    "model.layers=mamba,attention mixer.heads=2 model.position=rope",
    "mixer.heads=2 model.position=learned position.length=32 model.segment=6 model.memory=2",
    "mixer.heads=2 model.position=learned position.length=64 model.segment=16 model.memory=2 "
    "model.memory_kind=slots model.memory_heads=2 model.memory_read_heads=2",
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* Tokens [BATCH, count] of a text by its number. */
static void fill(int which, int64_t count, int32_t *out) {
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t i = 0; i < count; i++)
            out[b * count + i] =
                (int32_t)((7 * i + i * i / 3 + 11 * b + 5 * which * (i + 1)) % VOCABULARY);
}

/* The first part of text 0, in two cuts. */
static void feed_before(world *w, ls_stream *stream) {
    int32_t first[BATCH * BEFORE], second[BATCH * 3];
    double logits[BATCH * VOCABULARY];
    fill(0, BEFORE, first);
    fill(4, 3, second);
    OK(w, ls_stream_logits(stream, first, BEFORE, BEFORE, logits));
    OK(w, ls_stream_logits(stream, second, 3, 3, logits));
}

static void feed_after(world *w, ls_stream *stream, int which, double *loss) {
    int32_t tokens[BATCH * AFTER], targets[BATCH * AFTER];
    fill(which, AFTER, tokens);
    fill(which + 1, AFTER, targets);
    OK(w, ls_stream_loss(stream, tokens, targets, AFTER, AFTER, loss));
}

static ls_stream *make_stream(world *w) {
    ls_stream *stream;
    OK(w, ls_stream_new(w->model, BATCH, CAPACITY, CHUNK, &stream));
    return stream;
}

static void same(const double *a, const double *b, const char *what) {
    if (memcmp(a, b, sizeof(double) * BATCH * AFTER) != 0) fail_msg("%s differs", what);
}

static void test_forks(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        world w;
        double alone[2][BATCH * AFTER], got[BATCH * AFTER];
        world_open(&w, cases[i], LS_F32, 1);
        ls_stream *stream = make_stream(&w), *fork, *second;
        for (int which = 0; which < 2; which++) {
            ls_stream_reset(stream);
            feed_before(&w, stream);
            feed_after(&w, stream, 1 + which, alone[which]);
        }
        assert_true(memcmp(alone[0], alone[1], sizeof alone[0]) != 0);
        ls_stream_reset(stream);
        feed_before(&w, stream);
        OK(&w, ls_stream_fork(stream, &fork));
        OK(&w, ls_stream_fork(fork, &second));
        assert_int_equal(ls_stream_position(fork), BEFORE + 3);
        feed_after(&w, stream, 1, got);
        same(got, alone[0], cases[i]);
        feed_after(&w, fork, 2, got);
        same(got, alone[1], cases[i]);
        ls_stream_free(stream); /* the programs stay with the others */
        ls_stream_free(fork);
        feed_after(&w, second, 1, got);
        same(got, alone[0], cases[i]);
        ls_stream_free(second);
        world_close(&w);
    }
}

/* Going back, also to a mark before the last one. */
static void test_marks(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        world w;
        double alone[2][BATCH * AFTER], got[BATCH * AFTER], logits[BATCH * VOCABULARY];
        int32_t more[BATCH * 3];
        ls_stream_mark *mark, *later;
        world_open(&w, cases[i], LS_F32, 1);
        ls_stream *stream = make_stream(&w);
        fill(6, 3, more);
        for (int which = 0; which < 2; which++) {
            ls_stream_reset(stream);
            feed_before(&w, stream);
            if (which == 1) OK(&w, ls_stream_logits(stream, more, 3, 3, logits));
            feed_after(&w, stream, 1 + which, alone[which]);
        }
        ls_stream_reset(stream);
        feed_before(&w, stream);
        OK(&w, ls_stream_mark_new(stream, &mark));
        for (int again = 0; again < 2; again++) {
            feed_after(&w, stream, 3, got);
            OK(&w, ls_stream_back(stream, mark));
            assert_int_equal(ls_stream_position(stream), BEFORE + 3);
            OK(&w, ls_stream_logits(stream, more, 3, 3, logits));
            OK(&w, ls_stream_mark_new(stream, &later));
            feed_after(&w, stream, 1, got);
            OK(&w, ls_stream_back(stream, later));
            feed_after(&w, stream, 2, got);
            same(got, alone[1], cases[i]);
            OK(&w, ls_stream_back(stream, mark));
            feed_after(&w, stream, 1, got);
            same(got, alone[0], cases[i]);
            OK(&w, ls_stream_back(stream, mark));
            ls_stream_mark_free(&w.ctx, later);
        }
        ls_stream_mark_free(&w.ctx, mark);
        ls_stream_free(stream);
        world_close(&w);
    }
}

static void test_saved(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        world w;
        double alone[BATCH * AFTER], got[BATCH * AFTER];
        ls_text saved = {0}, again = {0};
        world_open(&w, cases[i], LS_F32, 1);
        ls_stream *stream = make_stream(&w), *other = make_stream(&w);
        feed_before(&w, stream);
        OK(&w, ls_stream_save(stream, &saved));
        feed_after(&w, stream, 1, alone);
        feed_after(&w, other, 3, got); /* it had been elsewhere */
        OK(&w, ls_stream_load(other, saved.bytes, saved.length));
        assert_int_equal(ls_stream_position(other), BEFORE + 3);
        OK(&w, ls_stream_save(other, &again));
        assert_int_equal(again.length, saved.length);
        assert_memory_equal(again.bytes, saved.bytes, saved.length);
        feed_after(&w, other, 1, got);
        same(got, alone, cases[i]);
        ls_text_clear(&w.ctx, &saved);
        ls_text_clear(&w.ctx, &again);
        ls_stream_free(stream);
        ls_stream_free(other);
        world_close(&w);
    }
}

static void refuses(world *w, ls_stream *stream, const char *bytes, size_t length) {
    w->ctx.error = (ls_error){0};
    assert_int_equal(ls_stream_load(stream, bytes, length), LS_EINPUT);
    assert_true(strlen(w->ctx.error.message) > 0);
}

/* Bytes that are no stream of this model change nothing. */
static void test_damaged(void **unused) {
    (void)unused;
    enum { UNIT = 8, WAITING = 24, TAIL = 32, STATE = TAIL + 4 * BATCH * 6, POSITION = STATE + 24 };
    world w, other;
    double alone[BATCH * AFTER], got[BATCH * AFTER];
    ls_text saved = {0};
    world_open(&w, "mixer.heads=2 model.position=none model.segment=9 model.memory=2", LS_F32, 1);
    world_open(&other, "mixer.heads=2 model.position=none model.segment=7 model.memory=2", LS_F32,
               1);
    ls_stream *stream = make_stream(&w), *stranger = make_stream(&other);
    feed_before(&w, stream); /* 24 tokens: 6 wait */
    OK(&w, ls_stream_save(stream, &saved));
    refuses(&other, stranger, saved.bytes, saved.length);
    for (size_t cut = 0; cut < saved.length; cut += cut < 200 ? 1 : 97)
        refuses(&w, stream, saved.bytes, cut);
    static const struct {
        size_t at;
        int64_t value;
    } wrong[] = {{0, 1},         {UNIT, 8},      {UNIT + 8, 1},      {WAITING, 9}, {WAITING, -1},
                 {WAITING, 5},   {TAIL, 29},     {TAIL + 4, -1},     {STATE, 0},   {STATE + 16, 3},
                 {POSITION, 19}, {POSITION, -9}, {POSITION, 1 << 20}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char kept[8];
        memcpy(kept, saved.bytes + wrong[i].at, 8);
        memcpy(saved.bytes + wrong[i].at, &wrong[i].value, 8);
        refuses(&w, stream, saved.bytes, saved.length);
        memcpy(saved.bytes + wrong[i].at, kept, 8);
    }
    feed_after(&w, stream, 1, alone);
    OK(&w, ls_stream_load(stream, saved.bytes, saved.length));
    feed_after(&w, stream, 1, got);
    same(got, alone, "after what was refused");
    ls_text_clear(&w.ctx, &saved);
    ls_stream_free(stream);
    ls_stream_free(stranger);
    world_close(&w);
    world_close(&other);
}

/* A stream for fewer tokens than a segment has: full is full. */
static void test_full(void **unused) {
    (void)unused;
    world w;
    int32_t tokens[BATCH * 5] = {0};
    double logits[BATCH * VOCABULARY];
    world_open(&w, "mixer.heads=2 model.position=none model.segment=9 model.memory=2", LS_F32, 1);
    ls_stream *stream;
    OK(&w, ls_stream_new(w.model, BATCH, 4, CHUNK, &stream));
    OK(&w, ls_stream_logits(stream, tokens, 4, 4, logits));
    assert_int_equal(ls_stream_logits(stream, tokens, 1, 1, logits), LS_EUSE);
    ls_stream_free(stream);
    world_close(&w);
}

static ls_status fork_once(ls_ctx *ctx, void *user) {
    ls_model_config config;
    ls_model *model = NULL;
    ls_stream *stream = NULL, *fork = NULL;
    ls_text saved = {0};
    ctx->threads = 1;
    ls_status status = read_words(ctx, user, &config);
    if (status == LS_OK) status = ls_model_new(ctx, &config, LS_F32, 3, false, &model);
    if (status == LS_OK) status = ls_stream_new(model, BATCH, CAPACITY, CHUNK, &stream);
    if (status == LS_OK) status = ls_stream_fork(stream, &fork);
    if (status == LS_OK) status = ls_stream_save(fork, &saved);
    if (status == LS_OK) status = ls_stream_load(stream, saved.bytes, saved.length);
    ls_text_clear(ctx, &saved);
    ls_stream_free(fork);
    ls_stream_free(stream);
    ls_model_free(model);
    ls_model_config_clear(ctx, &config);
    return status;
}

static void test_memory_fails(void **unused) {
    (void)unused;
    static char words[] = "model.layers=1 mixer.heads=2 model.position=rope";
    fail_each_allocation(fork_once, words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forks), cmocka_unit_test(test_marks),
        cmocka_unit_test(test_saved), cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_full),  cmocka_unit_test(test_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
