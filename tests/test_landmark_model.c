/* Models that put landmarks into their text by themselves: any cut gives the losses of one pass,
 * forks and saved places go on alike, nobody predicts a landmark, and memory does not grow with the
 * text. Tier: unsanitized. */
#include <math.h>
#include <unistd.h>

#include "base/random.h"
#include "model/marks.h"
#include "stream_model.h"

#define LANDMARK                                                                                   \
    "mixer.heads=2 model.position=rope model.length=40 extend=landmark extend.block=5 "            \
    "extend.top_k=2 extend.local=12 "

static int32_t token_at(int64_t i) {
    return (int32_t)ls_random_below((ls_random){5, 1, 0}, (uint64_t)i, VOCABULARY);
}

static void counts(void **state) {
    (void)state;
    for (int64_t every = 1; every < 5; every++)
        for (int64_t T = 1, marks = 0; T < 30; T++) {
            if (T > 1 && (T - 1) % every == 0) marks++;
            assert_int_equal(ls_marks_rows(every, T, false), T + marks);
            for (int due = 0; due < 2; due++)
                assert_int_equal(ls_marks_tokens(every, ls_marks_rows(every, T, due), due), T);
        }
    assert_int_equal(ls_marks_rows(0, 7, false), 7);
    assert_int_equal(ls_marks_tokens(0, 7, false), 7);
}

/* Losses [batch, T] of one pass, or with a cut of a stream. */
static void losses(world *w, int64_t batch, int64_t T, const int64_t *cut, double *out) {
    int32_t tokens[2 * 64], targets[2 * 64];
    for (int64_t i = 0; i < batch * T; i++) {
        tokens[i] = token_at(i + 7 * (i / T));
        targets[i] = token_at(i + 1 + 7 * (i / T));
    }
    if (cut == NULL) {
        ls_program *p;
        const ls_program_options options = {.batch = batch, .length = T};
        OK(w, ls_model_program(w->model, LS_MODEL_LOSS, options, &p));
        OK(w, ls_model_put_tokens(w->model, p, "tokens", tokens));
        OK(w, ls_model_put_tokens(w->model, p, "targets", targets));
        OK(w, ls_program_run(p, NULL, 0, 0));
        OK(w, ls_model_read(p, "loss", out));
        ls_program_free(p);
        return;
    }
    ls_stream *stream;
    OK(w, ls_stream_new(w->model, batch, T, 16, &stream));
    for (int64_t at = 0, i = 0; at < T; i++) {
        const int64_t n = ls_min(cut[i % 4], T - at);
        assert_int_equal(ls_stream_position(stream), at);
        OK(w, ls_stream_loss(stream, tokens + at, targets + at, n, T, out + at));
        at += n;
    }
    ls_stream_free(stream);
}

static void any_cut(void **state) {
    (void)state;
    enum { B = 2, T = 61 };
    static const char *const words[] = {
        LANDMARK,
        LANDMARK "extend.offload=false",
        "mixer.heads=2 model.position=rope model.length=40 extend=landmark extend.block=5 "
        "extend.top_k=0 extend.local=12",
        "model.layers=mamba,attention mixer.heads=2 model.position=rope extend=landmark "
        "extend.block=9 extend.top_k=1 model.length=40",
    };
    static const int64_t cuts[][4] = {{1, 1, 1, 1}, {5, 5, 5, 5}, {1, 7, 2, 16}, {64, 1, 1, 1}};
    for (int i = 0; i < 4; i++) {
        world w;
        double want[B * T], got[B * T];
        world_open(&w, words[i], LS_F64, 2);
        losses(&w, B, T, NULL, want);
        for (int c = 0; c < 4; c++) {
            losses(&w, B, T, cuts[c], got);
            for (int t = 0; t < B * T; t++)
                if (!(fabs(got[t] - want[t]) < 1e-11))
                    fail_msg("%s, cut %d: %g at %d", words[i], c, got[t] - want[t], t);
        }
        world_close(&w);
    }
}

/* A fork, a mark gone back to, and a saved place. */
static void places(void **state) {
    (void)state;
    enum { T = 70 };
    int32_t tokens[T];
    double want[VOCABULARY], got[VOCABULARY];
    world w;
    ls_stream *stream, *fork, *loaded;
    ls_stream_mark *mark;
    ls_text saved = {0};
    for (int t = 0; t < T; t++) tokens[t] = token_at(t);
    world_open(&w, LANDMARK, LS_F32, 1);
    OK(&w, ls_stream_new(w.model, 1, T, 16, &stream));
    OK(&w, ls_stream_new(w.model, 1, T, 16, &loaded));
    OK(&w, ls_stream_logits(stream, tokens, 50, 50, got)); /* a landmark is due */
    OK(&w, ls_stream_mark_new(stream, &mark));
    OK(&w, ls_stream_fork(stream, &fork));
    OK(&w, ls_stream_save(stream, &saved));
    OK(&w, ls_stream_logits(stream, tokens + 50, 20, 20, want));
    OK(&w, ls_stream_back(stream, mark));
    OK(&w, ls_stream_logits(stream, tokens + 50, 20, 20, got));
    assert_memory_equal(got, want, sizeof want);
    OK(&w, ls_stream_logits(fork, tokens + 50, 20, 20, got));
    assert_memory_equal(got, want, sizeof want);
    OK(&w, ls_stream_load(loaded, saved.bytes, saved.length));
    assert_int_equal(ls_stream_position(loaded), 50);
    OK(&w, ls_stream_logits(loaded, tokens + 50, 20, 20, got));
    assert_memory_equal(got, want, sizeof want);
    ls_text_clear(&w.ctx, &saved);
    ls_stream_mark_free(&w.ctx, mark);
    ls_stream_free(stream), ls_stream_free(fork), ls_stream_free(loaded);
    world_close(&w);
}

/* Gradients of the landmark's row against differences, in a text of several blocks. */
static void gradient(void **state) {
    (void)state;
    enum { T = 23 };
    ls_ctx ctx = ls_ctx_default();
    ls_model_config config;
    ls_model *model;
    ls_program *p;
    int32_t tokens[T], targets[T];
    double weights[T], value[2], loss[T];
    world w = {.ctx = ctx};
    OK(&w, read_words(&w.ctx, LANDMARK, &config));
    OK(&w, ls_model_new(&w.ctx, &config, LS_F64, 3, true, &model));
    for (int t = 0; t < T; t++) {
        tokens[t] = token_at(t), targets[t] = token_at(t + 1);
        weights[t] = 1;
    }
    OK(&w,
       ls_model_program(model, LS_MODEL_TRAIN, (ls_program_options){.batch = 1, .length = T}, &p));
    OK(&w, ls_model_put_tokens(model, p, "tokens", tokens));
    OK(&w, ls_model_put_tokens(model, p, "targets", targets));
    ls_tensor_put(p, ls_program_find(p, "weights"), weights);
    const ls_parameter *row = ls_parameters_find(model->store, "position.landmark");
    assert_non_null(row);
    double *master = ls_parameter_master(model->store, row);
    ls_parameters_clear_gradient(model->store);
    OK(&w, ls_program_run(p, NULL, 0, 0));
    const double slope =
        ((const double *)model->store->gradient)[master - (double *)model->store->master];
    for (int side = 0; side < 2; side++) {
        const double step = side == 0 ? -1e-5 : 1e-5;
        master[0] += step;
        OK(&w, ls_program_run(p, NULL, 0, 0));
        OK(&w, ls_model_read(p, "loss", loss));
        value[side] = 0;
        for (int t = 0; t < T; t++) value[side] += loss[t];
        master[0] -= step;
    }
    assert_true(fabs(slope) > 1e-6);
    assert_true(fabs((value[1] - value[0]) / 2e-5 - slope) < 1e-6 * (1 + fabs(slope)));
    ls_program_free(p);
    ls_model_free(model);
    ls_model_config_clear(&w.ctx, &config);
}

static long resident(void) {
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* What a long text leaves in memory beside a short one: a key for each block. Keys and values of
 * all of it, 2 layers of 128 in f32, would be 2 KB a token. */
static void flat_memory(void **state) {
    (void)state;
    enum { SHORT = 1024, LONG = 8192 };
    static int32_t tokens[LONG];
    static double loss[LONG];
    world w;
    ls_stream *stream;
    for (int t = 0; t < LONG; t++) tokens[t] = token_at(t);
    world_open(&w,
               "mixer.heads=4 model.width=128 model.position=rope model.length=128 "
               "extend=landmark extend.block=15 extend.top_k=2",
               LS_F32, 1);
    OK(&w, ls_stream_new(w.model, 1, LONG, 128, &stream));
    OK(&w, ls_stream_loss(stream, tokens, tokens, SHORT, SHORT, loss));
    const long before = resident();
    OK(&w, ls_stream_loss(stream, tokens + SHORT, tokens + SHORT, LONG - SHORT, LONG, loss));
    const long grown = resident() - before;
    /* beside a device what is far is pinned in the processor's memory, and so resident */
    if (w.ctx.device == NULL && before > 0 && grown > 2 << 20)
        fail_msg("%ld bytes more after %d tokens than after %d", grown, LONG, SHORT);
    assert_true(ls_stream_state_bytes(stream) < LONG / 15 * 2 * 128 * 4 * 2);
    ls_stream_free(stream);
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),   cmocka_unit_test(any_cut),     cmocka_unit_test(places),
        cmocka_unit_test(gradient), cmocka_unit_test(flat_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
