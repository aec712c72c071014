/* What a stream keeps because it follows from the weights alone (engine/prepare.c): it is made
 * once, and made anew when they change. */
#include "stream_model.h"

#include "tensor/ops.h"
#include "train/optimizer.h"

enum { CAPACITY = 64, CHUNK = 16, FIRST = 9, PARTS = 3, STREAMS = 3, TRIED = 4 };

/* A model, and a weight of it that is read for what is kept and for nothing else. */
static const struct {
    const char *words, *weight;
} cases[] = {
    {"model.mixer=s4", "layers.0.mixer.A_imag"},
    {"model.mixer=s4 mixer.l_max=12", "layers.0.mixer.A_imag"},
    {"model.mixer=s4d", "layers.1.mixer.C"},
    {"model.mixer=h3", "layers.0.mixer.diagonal.C"},
    {"model.mixer=h3", "layers.0.mixer.shift.C"},
    {"model.mixer=transformer_xl mixer.heads=2 mixer.segment=8 mixer.memory=12",
     "layers.1.mixer.relative.weight"},
    {"model.mixer=compressive mixer.heads=2 mixer.segment=8 mixer.memory=8 mixer.compressed=6 "
     "mixer.rate=4",
     "layers.0.mixer.relative.weight"},
    {"mixer.heads=2 model.position=xl_relative", "layers.1.mixer.relative.weight"},
    {"mixer.heads=2 model.position=t5", "position.bias"},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static void scale(const ls_parameters *store, const ls_parameter *parameter) {
    for (int64_t i = 0; i < parameter->count; i++) {
        void *values = ls_parameter_master(store, parameter);
        ls_element_set(values, store->master_type, i,
                       -1.5 * ls_element(values, store->master_type, i));
    }
}

static void change_all(ls_parameters *store) {
    for (size_t i = 0; i < store->count; i++) scale(store, &store->items[i]);
    ls_parameters_round(store);
}

static ls_stream *new_stream(world *w) {
    ls_stream *stream;
    OK(w, ls_stream_new(w->model, 1, CAPACITY, CHUNK, &stream));
    return stream;
}

static void next(world *w, ls_stream *stream, int64_t count, double *logits) {
    int32_t tokens[FIRST];
    for (int64_t i = 0; i < count; i++) tokens[i] = token_of(1, ls_stream_position(stream) + i);
    OK(w, ls_stream_logits(stream, tokens, count, count, logits));
}

/* Logits [PARTS, VOCABULARY] of a text from its start, in programs of two lengths. */
static void read_text(world *w, ls_stream *stream, double *logits) {
    ls_stream_reset(stream);
    next(w, stream, FIRST, logits);
    for (int i = 1; i < PARTS; i++) next(w, stream, 1, logits + i * VOCABULARY);
}

/* A stream that has read is one that is new: with the weights of now. */
static void is_new(world *w, ls_stream *stream, const char *what) {
    double got[PARTS * VOCABULARY], want[PARTS * VOCABULARY];
    ls_stream *fresh = new_stream(w);
    read_text(w, stream, got);
    read_text(w, fresh, want);
    if (memcmp(got, want, sizeof got) != 0) fail_msg("%s: weights of before", what);
    ls_stream_free(fresh);
}

static void test_changed_weights(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++)
        for (int type = LS_F64; type <= LS_BF16; type++) {
            world w;
            double before[PARTS * VOCABULARY];
            world_open(&w, cases[i].words, (ls_dtype)type, 2);
            ls_stream *stream = new_stream(&w);
            read_text(&w, stream, before);
            change_all(w.model->store);
            is_new(&w, stream, cases[i].words);
            ls_parameters part; /* as a checkpoint is read */
            OK(&w, ls_parameters_part(w.model->store, LS_PART_BASE, &part));
            change_all(&part);
            is_new(&w, stream, cases[i].words);
            ls_free(&w.ctx, part.items);
            ls_stream_free(stream);
            world_close(&w);
        }
}

/* As validation does between the steps of a training. */
static void test_updated_weights(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        world w = {.ctx = ls_ctx_default()};
        w.ctx.threads = 1;
        OK(&w, read_words(&w.ctx, cases[i].words, &w.config));
        OK(&w, ls_model_new(&w.ctx, &w.config, LS_F32, 3, true, &w.model));
        ls_parameters *store = w.model->store;
        const ls_optimizer_settings settings = ls_optimizer_settings_default();
        ls_optimizer *optimizer;
        double logits[PARTS * VOCABULARY];
        OK(&w, ls_optimizer_new(&w.ctx, store, &settings, &optimizer));
        ls_stream *stream = new_stream(&w);
        read_text(&w, stream, logits);
        for (int64_t at = 0; at < store->total; at++)
            ((float *)store->gradient)[at] = (float)(at % 7 - 3);
        OK(&w, ls_optimizer_update(&w.ctx, optimizer, 0.05, 1, 1));
        is_new(&w, stream, cases[i].words);
        ls_stream_free(stream);
        ls_optimizer_free(&w.ctx, optimizer);
        world_close(&w);
    }
}

/* A weight that is changed and not told of is not read again: what follows from it was kept. A
 * device keeps nothing. */
static void test_made_once(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES && ls_ctx_default().device == NULL; i++) {
        world w;
        double kept[VOCABULARY], want[VOCABULARY], made[VOCABULARY], text[PARTS * VOCABULARY];
        world_open(&w, cases[i].words, LS_F32, 1);
        ls_stream *stream = new_stream(&w), *twin;
        read_text(&w, stream, text);
        OK(&w, ls_stream_fork(stream, &twin));
        next(&w, twin, 1, want);
        const ls_parameter *weight = ls_parameters_find(w.model->store, cases[i].weight);
        if (weight == NULL) fail_msg("%s has no %s", cases[i].words, cases[i].weight);
        scale(w.model->store, weight);
        next(&w, stream, 1, kept);
        if (memcmp(kept, want, sizeof kept) != 0) fail_msg("%s: made anew", cases[i].words);
        ls_parameters_changed(w.model->store);
        read_text(&w, stream, text);
        next(&w, stream, 1, made);
        if (memcmp(made, want, sizeof made) == 0) fail_msg("%s: not made", cases[i].words);
        ls_stream_free(twin);
        ls_stream_free(stream);
        world_close(&w);
    }
}

static void open_forks(world *w, ls_stream **streams) {
    double logits[VOCABULARY];
    streams[0] = new_stream(w);
    next(w, streams[0], FIRST, logits);
    for (int s = 1; s < STREAMS; s++) OK(w, ls_stream_fork(streams[0], &streams[s]));
}

/* Logits of streams that step together twice, and of continuations that are tried. */
static void step(world *w, ls_stream **streams, double *logits) {
    const int32_t tokens[] = {3, 8, 5, 7, 1, 2, 11, 6};
    ls_stream_mark *mark;
    for (int i = 0; i < 2; i++, logits += STREAMS * VOCABULARY)
        OK(w, ls_streams_feed(streams, STREAMS, tokens + i, 1, logits));
    OK(w, ls_stream_mark_new(streams[0], &mark));
    OK(w, ls_stream_try(streams[0], mark, tokens, TRIED, 2, logits));
    ls_stream_mark_free(&w->ctx, mark);
}

static void close_forks(ls_stream **streams) {
    for (int s = 0; s < STREAMS; s++) ls_stream_free(streams[s]);
}

enum { STEPPED = (2 * STREAMS + 2 * TRIED) * VOCABULARY };

static void test_streams_together(void **unused) {
    (void)unused;
    for (size_t i = 0; i < CASES; i++) {
        world w;
        double before[STEPPED], got[STEPPED], want[STEPPED], text[PARTS * VOCABULARY];
        ls_stream *streams[STREAMS], *fresh[STREAMS];
        world_open(&w, cases[i].words, LS_F32, 2);
        open_forks(&w, streams);
        step(&w, streams, before);
        change_all(w.model->store);
        for (int s = 0; s < STREAMS; s++) {
            ls_stream_reset(streams[s]);
            next(&w, streams[s], FIRST, text);
        }
        open_forks(&w, fresh);
        step(&w, streams, got);
        step(&w, fresh, want);
        if (memcmp(got, want, sizeof got) != 0) fail_msg("%s: before's weights", cases[i].words);
        if (memcmp(got, before, sizeof got) == 0) fail_msg("%s: not changed", cases[i].words);
        close_forks(streams);
        close_forks(fresh);
        world_close(&w);
    }
}

/* An operation that may lie over its input takes no place that the next run reads. */
static void test_not_in_place(void **unused) {
    (void)unused;
    enum { T = 4, D = 6 };
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *p = NULL;
    ls_state *state;
    float first[T * D], again[T * D];
    const int32_t all[T] = {0, 0, 0, 0}, some[T] = {0, -1, 0, -1};
    const ls_program_options options = {.type = LS_F32,
                                        .batch = 1,
                                        .length = T,
                                        .streaming = true,
                                        .capacity = CAPACITY,
                                        .chunk_max = T};
    assert_int_equal(ls_parameters_new(&ctx, LS_F32, &store), LS_OK);
    for (int pass = 0; pass < 2; pass++) { /* the first declares */
        ls_program_free(p);
        assert_int_equal(ls_program_new(&ctx, &options, store, &p), LS_OK);
        ls_tensor *ids = ls_input(p, "ids", LS_I32, LS_DIMS(1, T), false);
        ls_tensor *x = ls_transpose(p, ls_param(p, "w", LS_DIMS(D, T), ls_init_normal(1)));
        x = ls_mask_rows(p, ls_reshape(p, x, LS_DIMS(1, T, D)), ls_valid_rows(p, ids));
        ls_keep(p, "y", ls_plus(p, x, x));
        if (pass == 0) assert_int_equal(ls_parameters_seal(store, 1, false), LS_OK);
    }
    assert_int_equal(ls_program_finish(p), LS_OK);
    assert_int_equal(ls_state_new(p, &state), LS_OK);
    const ls_tensor *ids = ls_program_find(p, "ids"), *y = ls_program_find(p, "y");
    for (int run = 0; run < 3; run++) {
        ls_tensor_put(p, ids, run == 1 ? some : all);
        assert_int_equal(ls_program_run(p, state, 0, 0), LS_OK);
        assert_int_equal(ls_tensor_get(p, y, run == 0 ? first : again), LS_OK);
        if (run == 1) assert_true(memcmp(first, again, sizeof first) != 0);
    }
    assert_memory_equal(first, again, sizeof first);
    ls_state_free(&ctx, state);
    ls_program_free(p);
    ls_parameters_free(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_changed_weights), cmocka_unit_test(test_updated_weights),
        cmocka_unit_test(test_made_once),       cmocka_unit_test(test_streams_together),
        cmocka_unit_test(test_not_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
