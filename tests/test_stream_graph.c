/* Steps of a stream that a device keeps and does again: the same outputs as chunk by chunk, also
 * where streams take turns, go back, or drop rows of a window; and with nodes that it computes in
 * one step (engine/join.c). Where there is no device, one made of the processor's kernels stands in
 * and counts what is kept. */
#include "stream_model.h"

#include <math.h>

#include "tensor/engine/device.h"
#include "tensor/engine/program_internal.h"

enum { TOKENS = 40, CAPACITY = 64, CHUNK = 8 };

static int32_t token_at(int64_t i) {
    return (int32_t)((i * 11 + i / 7) % VOCABULARY);
}

/* ---- a device ---- */

typedef struct kept_node {
    const ls_node *node;
    ls_run run;
} kept_node;
enum { NODES_MAX = 256, OPS_MAX = 64 };
typedef struct kept_graph {
    size_t count;
    kept_node at[NODES_MAX];
} kept_graph;

typedef struct fake {
    ls_device device; /* first */
    int64_t start;
    kept_graph *keeping; /* NULL: kernels are done at once */
    int kept, replayed, forgotten, called, chained;
    bool chains; /* it has kernels for several nodes, which call those of each */
    size_t ops;
    ls_kernel kernel[OPS_MAX];
} fake;

static const ls_kernel *own_kernel(const char *op) {
    return ls__kernel_find("base", op);
}

static bool is_chain(const char *op) {
    return strchr(op, '+') != NULL && strncmp(op, "linear", 6) != 0;
}

static void do_node(const ls_run *run, const ls_node *node) {
    ls_run here = *run;
    if (is_chain(node->op->name)) {
        for (int i = 0; i < node->part_count; i++) do_node(run, &node->parts[i]);
        return;
    }
    here.device = NULL;
    own_kernel(node->op->name)->by_type[LS_F32](&here, node);
}

static bool is_append(const ls_node *node) {
    return strcmp(node->op->name, "cache_append") == 0;
}

static void called(const ls_run *run, const ls_node *node) {
    fake *f = (fake *)run->device;
    if (run->steady != NULL) *run->steady = true;
    f->called++;
    f->chained += is_chain(node->op->name);
    if (f->keeping == NULL) {
        do_node(run, node);
        return;
    }
    assert_true(f->keeping->count < NODES_MAX);
    f->keeping->at[f->keeping->count++] = (kept_node){node, *run};
    if (is_append(node)) ls__append_begin(run, node);
    for (int i = 0; i < node->part_count; i++)
        if (is_append(&node->parts[i])) ls__append_begin(run, &node->parts[i]);
}

/* As a kernel that knows the position alone: the extent has gone on already. */
static void append_again(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *cache = node->out[0];
    const int64_t row = run->start - ls_cache_extent(run, cache).first;
    const size_t bytes = (size_t)(ls_count(x) / x->dim[1]) * ls_dtype_size(x->type);
    assert_int_equal(x->dim[0], 1);
    assert_true(row >= 0 && row + x->dim[1] <= cache->dim[1]);
    for (int64_t t = 0; t < x->dim[1]; t++)
        memcpy((char *)ls_data(cache) + (size_t)(row + t) * bytes,
               (const char *)ls_data(x) + (size_t)(t * x->stride[1]) * ls_dtype_size(x->type),
               bytes);
}

static void *fake_take(ls_device *device, size_t bytes) {
    (void)device;
    return aligned_alloc(256, (bytes + 256) / 256 * 256);
}
static void fake_give(ls_device *device, void *there) {
    (void)device;
    free(there);
}
static void fake_put(ls_device *device, void *there, const void *here, size_t bytes) {
    (void)device;
    memcpy(there, here, bytes);
}
static void fake_get(ls_device *device, void *here, const void *there, size_t bytes) {
    (void)device;
    memcpy(here, there, bytes);
}
static void fake_fill(ls_device *device, void *there, int byte, size_t bytes) {
    (void)device;
    memset(there, byte, bytes);
}
static size_t chain_workspace(const ls_node *node, int threads) {
    size_t most = 0;
    for (int i = 0; i < node->part_count; i++) {
        const ls_kernel *own = own_kernel(node->parts[i].op->name);
        const size_t bytes = own->workspace == NULL ? 0 : own->workspace(&node->parts[i], threads);
        if (bytes > most) most = bytes;
    }
    return most;
}
static const ls_kernel *fake_kernel(const ls_device *device, const char *op) {
    fake *f = (fake *)(uintptr_t)device;
    const bool chain = f->chains && is_chain(op);
    const ls_kernel *own = own_kernel(op);
    if (own == NULL && !chain) return NULL;
    for (size_t i = 0; i < f->ops; i++)
        if (strcmp(f->kernel[i].op, op) == 0) return &f->kernel[i];
    assert_true(f->ops < OPS_MAX);
    f->kernel[f->ops] = (ls_kernel){
        chain ? op : own->op, {called, called, called}, chain ? chain_workspace : own->workspace};
    return &f->kernel[f->ops++];
}
static void fake_begin(ls_device *device, const ls_run *run) {
    ((fake *)device)->start = run->start;
}
static void fake_capture(ls_device *device) {
    fake *f = (fake *)device;
    f->keeping = calloc(1, sizeof *f->keeping);
}
static void *fake_captured(ls_device *device) {
    fake *f = (fake *)device;
    void *graph = f->keeping;
    f->keeping = NULL;
    f->kept++;
    return graph;
}
static void fake_replay(ls_device *device, void *graph) {
    fake *f = (fake *)device;
    const kept_graph *all = graph;
    for (size_t i = 0; i < all->count; i++) {
        ls_run run = all->at[i].run;
        const ls_node *node = all->at[i].node;
        const int parts = node->part_count;
        run.start = f->start;
        for (int j = 0; j < (parts == 0 ? 1 : parts); j++) {
            const ls_node *one = parts == 0 ? node : &node->parts[j];
            if (is_append(one))
                append_again(&run, one);
            else
                do_node(&run, one);
        }
    }
    f->replayed++;
}
static void fake_forget(ls_device *device, void *graph) {
    ((fake *)device)->forgotten++;
    free(graph);
}
static ls_status fake_settle(ls_device *device, ls_ctx *ctx) {
    (void)device;
    (void)ctx;
    return LS_OK;
}

static fake fake_new(void) {
    return (fake){.device = {.name = "fake",
                             .take = fake_take,
                             .give = fake_give,
                             .put = fake_put,
                             .get = fake_get,
                             .fill = fake_fill,
                             .kernel = fake_kernel,
                             .begin = fake_begin,
                             .capture = fake_capture,
                             .captured = fake_captured,
                             .replay = fake_replay,
                             .forget = fake_forget,
                             .settle = fake_settle}};
}

/* ---- streams ---- */

static void open_on(world *w, const char *words, ls_dtype type, ls_device *device) {
    *w = (world){.ctx = ls_ctx_default()};
    w->ctx.threads = 1;
    w->ctx.isa = device == NULL ? w->ctx.isa : "base";
    if (device != NULL) w->ctx.device = device;
    OK(w, read_words(&w->ctx, words, &w->config));
    OK(w, ls_model_new(&w->ctx, &w->config, type, 3, false, &w->model));
}

static void step(world *w, ls_stream *stream, double *logits) {
    const int32_t token = token_at(ls_stream_position(stream));
    OK(w, ls_stream_logits(stream, &token, 1, 1, logits));
}

/* What a stream that reads chunks says behind every chunk. */
static void read_chunks(world *w, double *out) {
    ls_stream *stream;
    int32_t tokens[CHUNK];
    OK(w, ls_stream_new(w->model, 1, CAPACITY, CHUNK, &stream));
    for (int64_t done = 0; done < TOKENS; done += CHUNK) {
        for (int64_t i = 0; i < CHUNK; i++) tokens[i] = token_at(done + i);
        OK(w,
           ls_stream_logits(stream, tokens, CHUNK, CHUNK, out + (done + CHUNK - 1) * VOCABULARY));
    }
    ls_stream_free(stream);
}

static void compare_rows(const char *words, const double *got, const double *want, int64_t row,
                         double bar) {
    double error = 0, size = 0;
    for (int64_t i = row * VOCABULARY; i < (row + 1) * VOCABULARY; i++) {
        error += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    if (!(error <= bar * bar * size))
        fail_msg("%s: token %lld is off by %.3g", words, (long long)row, sqrt(error / size));
}

static const char *const models[] = {
    "mixer.heads=2 model.position=rope",
    "mixer.heads=4 mixer.kv_heads=2 model.width=64 model.position=alibi",
    "mixer.heads=4 mixer.kv_heads=1 model.width=32 model.position=rope",
    "mixer.heads=2 model.position=learned model.length=64",
    "mixer.heads=2 model.position=xpos",
    "mixer.heads=2 model.position=rope mixer.window=6",
    "model.mixer=mamba model.position=none",
    "model.mixer=retnet mixer.heads=2 model.position=none",
    "model.mixer=s5 model.position=none",
    "model.mixer=mega mixer.chunk=8 model.position=none",
};
enum { MODELS = sizeof models / sizeof models[0] };

/* One token at a time, with another stream in between, and back to a mark. */
static void read_tokens(world *w, double *out) {
    ls_stream *stream, *other;
    ls_stream_mark *mark;
    double aside[VOCABULARY];
    OK(w, ls_stream_new(w->model, 1, CAPACITY, CHUNK, &stream));
    for (int64_t i = 0; i < 12; i++) step(w, stream, out + i * VOCABULARY);
    OK(w, ls_stream_fork(stream, &other));
    for (int64_t i = 12; i < 20; i++) { /* both go on by turns */
        step(w, other, aside);
        step(w, stream, out + i * VOCABULARY);
        assert_memory_equal(aside, out + i * VOCABULARY, sizeof aside);
    }
    ls_stream_free(other);
    OK(w, ls_stream_mark_new(stream, &mark));
    for (int i = 0; i < 3; i++) step(w, stream, aside);
    OK(w, ls_stream_back(stream, mark));
    ls_stream_mark_free(&w->ctx, mark);
    for (int64_t i = 20; i < TOKENS; i++) step(w, stream, out + i * VOCABULARY);
    ls_stream_free(stream);
}

static void test_tokens(void **state) {
    (void)state;
    double *want = malloc(TOKENS * VOCABULARY * sizeof *want);
    double *got = malloc(TOKENS * VOCABULARY * sizeof *got);
    for (int m = 0; m < MODELS; m++)
        for (int type = LS_F32; type <= LS_BF16; type++) {
            world w;
            if (test_is_brief() && (m > 0 || type == LS_F32)) continue;
            open_on(&w, models[m], (ls_dtype)type, NULL);
            read_chunks(&w, want);
            read_tokens(&w, got);
            for (int64_t row = CHUNK - 1; row < TOKENS; row += CHUNK)
                compare_rows(models[m], got, want, row, type == LS_F32 ? 1e-4 : 0.05);
            world_close(&w);
        }
    free(want);
    free(got);
}

/* ---- what is kept ---- */

static bool on_device(void) {
    return getenv("LONGSHOT_TEST_DEVICE") != NULL;
}

/* Through kept steps the bits are those of kernels that are called one by one. */
static void test_kept_bits(void **state) {
    (void)state;
    double *want = malloc(TOKENS * VOCABULARY * sizeof *want);
    double *got = malloc(TOKENS * VOCABULARY * sizeof *got);
    for (int m = 0; m < MODELS && !on_device(); m++) {
        world w;
        fake f = fake_new();
        open_on(&w, models[m], LS_F32, NULL);
        w.ctx.isa = "base";
        read_tokens(&w, want);
        world_close(&w);
        open_on(&w, models[m], LS_F32, &f.device);
        read_tokens(&w, got);
        world_close(&w);
        assert_memory_equal(got, want, TOKENS * VOCABULARY * sizeof *want);
        assert_true(f.replayed > TOKENS / 2);
        assert_int_equal(f.kept, f.forgotten);
    }
    free(want);
    free(got);
}

static void test_when_kept(void **state) {
    (void)state;
    if (on_device()) test_skip("made for the processor");
    world w;
    fake f = fake_new();
    ls_stream *one, *other;
    double logits[VOCABULARY];
    open_on(&w, models[0], LS_F32, &f.device);
    OK(&w, ls_stream_new(w.model, 1, CAPACITY, CHUNK, &one));
    for (int i = 0; i < 10; i++) step(&w, one, logits);
    assert_int_equal(f.kept, 1); /* the second step */
    assert_int_equal(f.replayed, 9);
    OK(&w, ls_stream_fork(one, &other));
    for (int i = 0; i < 5; i++) step(&w, other, logits), step(&w, one, logits);
    assert_int_equal(f.forgotten, 1); /* another state: nothing is kept while they take turns */
    assert_int_equal(f.kept, 1);
    ls_stream_free(other);
    step(&w, one, logits); /* the one that ran last */
    assert_int_equal(f.kept, 2);
    ls_stream_reset(one);
    const int before = f.called;
    for (int i = 0; i < CAPACITY; i++) step(&w, one, logits);
    assert_int_equal(f.kept, 2); /* from its beginning to the end of its room */
    assert_int_equal(f.called, before);
    ls_stream_free(one);
    world_close(&w);
    assert_int_equal(f.forgotten, 2);
}

/* ---- chains ---- */

/* On a device that computes several nodes in one step, bits are those of the nodes by
 * themselves. */
static void test_chained_bits(void **state) {
    (void)state;
    if (on_device()) test_skip("made for the processor");
    double *want = malloc(TOKENS * VOCABULARY * sizeof *want);
    double *got = malloc(TOKENS * VOCABULARY * sizeof *got);
    for (int m = 0; m < MODELS; m++) {
        world w;
        fake apart = fake_new(), f = fake_new();
        f.chains = true;
        open_on(&w, models[m], LS_F32, &apart.device);
        read_tokens(&w, want);
        world_close(&w);
        open_on(&w, models[m], LS_F32, &f.device);
        read_tokens(&w, got);
        world_close(&w);
        assert_memory_equal(got, want, TOKENS * VOCABULARY * sizeof *want);
        assert_int_equal(f.replayed, apart.replayed);
        assert_true(f.chained > 0 && f.called < apart.called);
        assert_int_equal(apart.chained, 0);
        /* rope: in each layer two products behind norms, one with its activation, and attention
         * with four nodes before it: 3 chains in place of 10 nodes */
        if (m == 0) assert_int_equal((apart.called - f.called) * 3, f.chained * 7);
    }
    free(want);
    free(got);
}

typedef struct depth_case {
    const char *words;
    int64_t batch;
} depth_case;
static const depth_case deep[] = {
    {"mixer.heads=2 model.width=128 model.position=rope", 1},
    {"mixer.heads=4 mixer.kv_heads=1 model.width=256 model.position=rope", 2},
    {"mixer.heads=4 mixer.kv_heads=2 model.width=256 model.position=alibi", 3},
    {"mixer.heads=2 model.width=128 model.position=xpos", 1},
    {"mixer.heads=2 model.width=128 model.position=learned model.length=700 model.norm=layer", 8},
    {"mixer.heads=2 model.width=128 model.position=rope mixer.window=200", 1},
    {"mixer.heads=6 model.width=768 model.position=rope", 1},
    {"mixer.heads=2 model.width=128 model.position=rope", 12},
    {"mixer.heads=3 model.width=192 model.position=rope", 32},
    {"mixer.heads=2 model.width=64 model.position=rope", 33},
};
enum { DEEP = sizeof deep / sizeof deep[0], DEPTH = 640, STEPS = 6, BATCH_MAX = 33 };

/* The logits of each of the last tokens of a text, which come one by one, or of the last alone. */
static void read_deep(world *w, int64_t batch, bool whole, double *out) {
    ls_stream *stream;
    const int64_t row = batch * VOCABULARY;
    int32_t *tokens = malloc((size_t)(batch * DEPTH) * sizeof *tokens);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < DEPTH; i++) tokens[b * DEPTH + i] = token_of(b, i);
    OK(w, ls_stream_new(w->model, batch, DEPTH, 64, &stream));
    const int64_t read = whole ? DEPTH : DEPTH - STEPS;
    OK(w, ls_stream_logits(stream, tokens, read, DEPTH, out + (STEPS - 1) * row));
    for (int64_t i = 0; i < STEPS && !whole; i++)
        OK(w, ls_stream_logits(stream, tokens + read + i, 1, DEPTH, out + i * row));
    ls_stream_free(stream);
    free(tokens);
}

static double apart_by(const double *a, const double *b, int64_t count) {
    double error = 0, size = 0;
    for (int64_t i = 0; i < count; i++) {
        error += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(error / size);
}

/* A device's own kernels of chains, of parts of the keys and of few rows: beside chunks, which go
 * another way, and beside the nodes by themselves; the same bits each time. */
static void test_deep(void **state) {
    (void)state;
    const size_t most = (size_t)(STEPS * BATCH_MAX * VOCABULARY);
    double *got[4];
    for (int i = 0; i < 4; i++) got[i] = malloc(most * sizeof *got[i]);
    const char *before = getenv("LONGSHOT_CUDA_JOIN");
    char kept[256] = "";
    if (before != NULL) snprintf(kept, sizeof kept, "%s", before);
    for (int c = 0; c < DEEP; c++)
        for (int type = LS_F32; type <= LS_BF16; type++) {
            if (test_is_brief() && ((c > 1 && c != 8) || type == LS_F32)) continue;
            if (!on_device() && c > 3) continue; /* the processor has no such kernels */
            const int64_t row = deep[c].batch * VOCABULARY;
            for (int way = 0; way < 4; way++) { /* chunks, apart, chained twice */
                world w;
                setenv("LONGSHOT_CUDA_JOIN", way == 1 ? "0" : "1", 1);
                open_on(&w, deep[c].words, (ls_dtype)type, NULL);
                read_deep(&w, deep[c].batch, way == 0, got[way]);
                world_close(&w);
            }
            const int64_t last = (STEPS - 1) * row;
            const double chunks = apart_by(got[2] + last, got[0] + last, row);
            const double nodes = apart_by(got[2], got[1], STEPS * row);
            if (on_device())
                printf("  %s, batch %lld, %s: %.2g beside chunks, %.2g beside nodes\n",
                       deep[c].words, (long long)deep[c].batch, ls_dtype_name((ls_dtype)type),
                       chunks, nodes);
            assert_true(chunks <= (type == LS_F32 ? 1e-4 : 0.05));
            assert_true(nodes <= (type == LS_F32 ? 1e-5 : 0.02));
            assert_memory_equal(got[3], got[2], (size_t)(STEPS * row) * sizeof *got[2]);
        }
    if (before != NULL)
        setenv("LONGSHOT_CUDA_JOIN", kept, 1);
    else
        unsetenv("LONGSHOT_CUDA_JOIN");
    for (int i = 0; i < 4; i++) free(got[i]);
}

/* ---- tokens that a device chooses itself ---- */

enum { CHOSEN = 70, ROWS = 2, KNOWN = VOCABULARY / 2 };

/* As the caller would: the most likely of those that are known, each after the one before. */
static void test_choices(void **state) {
    (void)state;
    const ls_sampling most_likely = {0};
    for (int m = 0; m < MODELS; m++) {
        if (test_is_brief() && m > 0) continue;
        world w;
        ls_stream *here, *there;
        const char *words = strstr(models[m], "model.length") == NULL
                                ? models[m]
                                : "mixer.heads=2 model.position=learned model.length=90";
        int32_t now[ROWS] = {3, 11}, chosen[ROWS * CHOSEN], want[ROWS][CHOSEN];
        double logits[ROWS * VOCABULARY];
        open_on(&w, words, LS_BF16, NULL);
        OK(&w, ls_stream_new(w.model, ROWS, CHOSEN + 2, CHUNK, &here));
        OK(&w, ls_stream_new(w.model, ROWS, CHOSEN + 2, CHUNK, &there));
        for (int i = 0; i < CHOSEN; i++) {
            OK(&w, ls_stream_logits(here, now, 1, 1, logits));
            for (int b = 0; b < ROWS; b++)
                now[b] = want[b][i] =
                    ls_sample(&most_likely, logits + b * VOCABULARY, KNOWN, 0, NULL);
        }
        OK(&w, ls_stream_choose(there, (int32_t[ROWS]){3, 11}, 1, KNOWN, CHOSEN, chosen));
        for (int b = 0; b < ROWS; b++)
            assert_memory_equal(chosen + b * CHOSEN, want[b], sizeof want[b]);
        assert_int_equal(ls_stream_position(there), CHOSEN);
        ls_stream_free(here);
        ls_stream_free(there);
        world_close(&w);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),       cmocka_unit_test(test_choices),
        cmocka_unit_test(test_chained_bits), cmocka_unit_test(test_deep),
        cmocka_unit_test(test_kept_bits),    cmocka_unit_test(test_when_kept)};
    return test_code(cmocka_run_group_tests(tests, NULL, NULL));
}
