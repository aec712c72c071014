/* Memformer: public code over three segments with all gradients; what slots are; streams cut
 * anywhere; replayed segments. */
#include "memory_fixture.h"
#include "model/layers.h"
#include "model/model.h"
#include "model/slots.h"

/* ---- the public model: an encoder that reads and writes slots, a decoder that reads it ---- */

enum { B = 2, D = 12, HEADS = 2, SLOTS = 5, TOKENS = 29, SEGMENTS = 3, SOURCE = 17, TARGET = 11 };

static const ls_model_settings public_model = {.width = D,
                                               .memory = SLOTS,
                                               .memory_kind = LS_MEMORY_SLOTS,
                                               .memory_update = LS_UPDATE_GRU,
                                               .memory_heads = HEADS,
                                               .memory_temperature = 1,
                                               .epsilon = 1e-5,
                                               .init = 0.02,
                                               .bias = true};

static ls_tensor *heads_of(ls_program *p, ls_tensor *x) {
    return x == NULL ? NULL : ls_reshape(p, x, LS_DIMS(B, x->dim[1], HEADS, D / HEADS));
}

/* Self-attention with T5's bias. The public code has the buckets' sides exchanged: its encoder,
 * which sees both ways, knows only distances back, its decoder has buckets for both. */
static ls_tensor *attend(ls_program *p, ls_tensor *x, bool causal) {
    ls_tensor *kv[2] = {NULL, NULL};
    ls_scope(p, "self");
    ls_tensor *q = ls_project(p, &public_model, "q", x, D, true);
    ls_tensor *joint = ls_project(p, &public_model, "kv", x, 2 * D, true);
    if (joint != NULL) ls_split(p, joint, 2, (const int64_t[]){D, D}, kv);
    ls_segment seen = ls_segment_all(heads_of(p, q), heads_of(p, kv[0]), heads_of(p, kv[1]));
    if (causal) seen.lo = 0;
    seen.table =
        ls_t5_table(p, causal ? "decoder" : "encoder", 32, 128, HEADS, !causal, &seen.table_zero);
    ls_tensor *y = ls_attention(p, 1, &seen,
                                (ls_attention_options){.scale = 1 / sqrt((double)D / HEADS)}, NULL);
    if (y != NULL) y = ls_reshape(p, y, LS_DIMS(B, y->dim[1], D));
    y = ls_project(p, &public_model, "out", y, D, true);
    ls_scope_end(p);
    return y;
}

static ls_tensor *layers(ls_program *p, const char *name, int count, ls_tensor *tokens,
                         ls_tensor *context) {
    const ls_model_settings *about = &public_model;
    ls_scope(p, "%s", name);
    ls_tensor *table = ls_param(p, "embed", LS_DIMS(TOKENS, D), ls_init_normal(1)), *delta = NULL;
    ls_tensor *x = ls_embed(p, tokens, table);
    for (int i = 0; i < count; i++) {
        ls_scope(p, "%d", i);
        delta = attend(p, ls_layer_norm(p, about, "norm1", x, delta, &x), count == 1);
        delta =
            ls_slots_read(p, about, ls_layer_norm(p, about, "read.norm", x, delta, &x), context);
        delta = ls_feed_forward(p, about, ls_layer_norm(p, about, "norm2", x, delta, &x));
        ls_scope_end(p);
    }
    x = ls_layer_norm(p, about, "norm", x, delta, NULL);
    ls_scope_end(p);
    return x;
}

static void keep_with_seed(ls_program *p, const char *name, int segment, ls_tensor *tensor) {
    char full[32];
    if (tensor == NULL) return;
    snprintf(full, sizeof full, "%s%d", name, segment);
    ls_keep(p, full, tensor);
    snprintf(full, sizeof full, "cot.%s%d", name, segment);
    ls_tensor *seed = ls_input(p, full, LS_F64, tensor->rank, tensor->dim, false);
    if (ls_program_about(p)->grad) ls_seed_gradient(p, tensor, seed);
}

static void record_public(ls_program *p, const void *unused) {
    (void)unused;
    ls_tensor *none = ls_constant(p, LS_F64, LS_DIMS(B, SLOTS, D), NULL);
    ls_tensor *memory = ls_begin_with(p, none, ls_slots_start(p, &public_model));
    for (int i = 0; i < SEGMENTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "src%d", i);
        ls_tensor *source = ls_input(p, name, LS_I32, LS_DIMS(B, SOURCE), false);
        snprintf(name, sizeof name, "tgt%d", i);
        ls_tensor *target = ls_input(p, name, LS_I32, LS_DIMS(B, TARGET), false);
        ls_apart(p, SOURCE);
        memory = ls_slots_seen(p, &public_model, memory);
        ls_tensor *encoded = layers(p, "encoder", 2, source, memory);
        memory = ls_slots_write(p, &public_model, memory, encoded);
        ls_tensor *decoded = layers(p, "decoder", 1, target, encoded);
        ls_tensor *logits = ls_project(p, &public_model, "logits", decoded, TOKENS, true);
        ls_apart_end(p);
        keep_with_seed(p, "enc", i, encoded);
        keep_with_seed(p, "mem", i, memory);
        keep_with_seed(p, "dec_logits", i, logits);
    }
}

/* Parts of our names and of the public ones. */
static const struct {
    const char *ours, *official;
    int64_t from; /* rows of the official tensor before ours */
} names[] = {
    {"memory.start", "memory_slots", 0},
    {"memory.q.", "mem_updater.to_q.", 0},
    {"memory.k.", "mem_updater.to_kv.", 0},
    {"memory.v.", "mem_updater.to_kv.", D},
    {"memory.out.", "mem_updater.to_out.", 0},
    {"memory.gru.input.weight", "gru.weight_ih", 0},
    {"memory.gru.input.bias", "gru.bias_ih", 0},
    {"memory.gru.slot.weight", "gru.weight_hh", 0},
    {"memory.gru.slot.bias", "gru.bias_hh", 0},
    {"memory.norm.", "mem_ff.fn.norm.", 0},
    {"memory.ffn.up.", "mem_ff.fn.fn.net.0.", 0},
    {"memory.ffn.down.", "mem_ff.fn.fn.net.2.", 0},
    {"logits.", "decoder.net.to_logits.", 0},
    {"position.encoder", "encoder.layer_blocks.rel_pos_emb.relative_attention_bias.weight", 0},
    {"position.decoder", "decoder.net.layer_blocks.rel_pos_emb.relative_attention_bias.weight", 0},
    {"embed", "token_emb.weight", 0},
    {"norm.", "norm.", 0},
    {"norm1.", "0.fn.norm.", 0},
    {"self.q.", "0.fn.fn.to_q.", 0},
    {"self.kv.", "0.fn.fn.to_kv.", 0},
    {"self.out.", "0.fn.fn.to_out.", 0},
    {"read.norm.", "1.fn.norm.", 0},
    {"read.q.", "1.fn.fn.to_q.", 0},
    {"read.kv.", "1.fn.fn.to_kv.", 0},
    {"read.out.", "1.fn.fn.to_out.", 0},
    {"norm2.", "2.fn.norm.", 0},
    {"ffn.up.", "2.fn.fn.net.0.", 0},
    {"ffn.down.", "2.fn.fn.net.2.", 0},
};

/* Writes the public name and gives the rows before ours in that tensor. */
static int64_t official_name(const char *ours, char *out, size_t size) {
    char prefix[64] = "", stack[8];
    int layer, used = 0;
    if (sscanf(ours, "%7[a-z].%d.%n", stack, &layer, &used) == 2 && used > 0)
        snprintf(prefix, sizeof prefix, "%s%s.layer_blocks.layers.%d.", stack,
                 stack[0] == 'd' ? ".net" : "", layer);
    else if (strncmp(ours, "encoder.", 8) == 0 || strncmp(ours, "decoder.", 8) == 0)
        used = 8,
        snprintf(prefix, sizeof prefix, "%s", ours[0] == 'd' ? "decoder.net." : "encoder.");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t length = strlen(names[i].ours);
        if (strncmp(ours + used, names[i].ours, length) != 0) continue;
        snprintf(out, size, "%s%s%s", prefix, names[i].official, ours + used + length);
        return names[i].from;
    }
    fail_msg("no public name for %s", ours);
    return 0;
}

/* The file's values of a parameter or its gradient, free() them; and the largest of the tensor they
 * are part of. */
static double *values_of(const ls_safetensors *g, const char *kind, const ls_parameter *parameter,
                         double *largest) {
    char name[160], full[192];
    const ls_safetensor *about;
    const int64_t from = official_name(parameter->name, name, sizeof name);
    snprintf(full, sizeof full, "%s%s", kind, name);
    double *all = stored(g, full, &about);
    const int64_t row = about->count / about->dim[0];
    assert_true(from * row + parameter->count <= about->count);
    *largest = 0;
    for (int64_t i = 0; i < about->count; i++) *largest = fmax(*largest, fabs(all[i]));
    memmove(all, all + from * row, (size_t)parameter->count * sizeof *all);
    return all;
}

static void put_tokens(const ls_safetensors *g, const bench *b, const char *name, int64_t each) {
    char full[32];
    snprintf(full, sizeof full, "in.%s", name);
    double *tokens = stored(g, full, NULL);
    for (int i = 0; i < SEGMENTS; i++) {
        snprintf(full, sizeof full, "%s%d", name, i);
        ls_tensor *input = ls_program_find(b->program, full);
        for (int64_t j = 0; j < B * each; j++)
            put(input, j, tokens[j / each * SEGMENTS * each + i * each + j % each]);
    }
    free(tokens);
}

static void test_public_code(void **unused) {
    (void)unused;
    static const char *const kinds[] = {"enc", "mem", "dec_logits"};
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors g;
    double largest;
    expect(&ctx,
           ls_safetensors_open(&ctx, LS_TEST_SOURCE "/tests/golden/memformer.safetensors", &g));
    for (int replay = 0; replay < 2; replay++) {
        bench b = {.ctx = &ctx};
        ls_program_options options = {.type = LS_F64, .batch = B, .length = SEGMENTS * SOURCE};
        expect(&ctx, ls_parameters_new(&ctx, LS_F64, &b.store));
        expect(&ctx, ls_program_new(&ctx, &options, b.store, &b.program));
        record_public(b.program, NULL);
        ls_program_free(b.program);
        expect(&ctx, ls_parameters_seal(b.store, 1, true));
        options.grad = true;
        options.recompute = replay == 1;
        expect(&ctx, ls_program_new(&ctx, &options, b.store, &b.program));
        record_public(b.program, NULL);
        expect(&ctx, ls_program_finish(b.program));
        ls_program_poison(b.program);
        for (size_t i = 0; i < b.store->count; i++) {
            double *values = values_of(&g, "w.", &b.store->items[i], &largest);
            memcpy(ls_parameter_master(b.store, &b.store->items[i]), values,
                   (size_t)b.store->items[i].count * sizeof *values);
            free(values);
        }
        put_tokens(&g, &b, "src", SOURCE);
        put_tokens(&g, &b, "tgt", TARGET);
        for (int i = 0; i < 3 * SEGMENTS; i++) {
            char name[32];
            snprintf(name, sizeof name, "cot.%s%d", kinds[i / SEGMENTS], i % SEGMENTS);
            double *cot = stored(&g, name, NULL);
            put_all(&b, name, cot);
            free(cot);
        }
        ls_parameters_clear_gradient(b.store);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        for (int i = 0; i < 3 * SEGMENTS; i++) {
            char name[32];
            const ls_safetensor *about;
            snprintf(name, sizeof name, "out.%s%d", kinds[i / SEGMENTS], i % SEGMENTS);
            double *want = stored(&g, name, &about);
            double *got = read_all(ls_program_find(b.program, name + strlen("out.")));
            near(name, got, want, about->count, 1e-11);
            free(want), free(got);
        }
        for (size_t i = 0; i < b.store->count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            const double *got = ls_parameter_gradient(b.store, parameter);
            double *want = values_of(&g, "grad.w.", parameter, &largest);
            for (int64_t j = 0; j < parameter->count; j++)
                if (!(fabs(got[j] - want[j]) <= 1e-10 * largest))
                    fail_msg("the gradient of %s is %.12g, not %.12g", parameter->name, got[j],
                             want[j]);
            free(want);
        }
        bench_free(&b);
    }
    ls_safetensors_close(&ctx, &g);
}

/* ---- slots alone ---- */

enum { FEW = 3, WIDE = 8, LONG = 6 };

typedef struct alone {
    ls_model_settings about;
    int times; /* segments one after the other, all with the same rows */
} alone;

/* Carried slots "x", the segment's rows "rows" -> what is carried on, and as it is read, "y". */
static void record_alone(ls_program *p, const void *given) {
    const alone *what = given;
    const int64_t batch = ls_program_about(p)->batch;
    ls_tensor *carried = ls_input(p, "x", ls_type(p), LS_DIMS(batch, FEW, WIDE), true);
    ls_tensor *rows = ls_input(p, "rows", ls_type(p), LS_DIMS(batch, LONG, WIDE), true);
    for (int i = 0; i < what->times; i++)
        carried = ls_slots_write(p, &what->about, ls_slots_seen(p, &what->about, carried), rows);
    ls_keep(p, "y", ls_slots_seen(p, &what->about, carried));
}

static alone slots_alone(ls_memory_update update, bool bias, double temperature, int times) {
    return (alone){.about = {.width = WIDE,
                             .memory = FEW,
                             .memory_kind = LS_MEMORY_SLOTS,
                             .memory_update = (int)update,
                             .memory_heads = 2,
                             .memory_temperature = temperature,
                             .epsilon = 1e-5,
                             .init = 0.02,
                             .bias = bias},
                   .times = times};
}

static bench bench_alone(ls_ctx *ctx, const alone *what, bool grad) {
    subject recorded = {"slots", record_alone, what};
    bench b =
        bench_new(ctx, &recorded,
                  (ls_program_options){.type = LS_F64, .batch = 1, .length = LONG, .grad = grad});
    double *x = numbers(FEW * WIDE, 3), *rows = numbers(LONG * WIDE, 4);
    put_all(&b, "x", x);
    put_all(&b, "rows", rows);
    free(x), free(rows);
    return b;
}

static double *master(const bench *b, const char *name) {
    const ls_parameter *parameter = ls_parameters_find(b->store, name);
    if (parameter == NULL) fail_msg("there is no %s", name);
    return ls_parameter_master(b->store, parameter);
}

static double dot(const double *a, const double *b, int count) {
    double sum = 0;
    for (int i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* y = weight x + bias of one row. */
static void product(const bench *b, const char *name, const double *x, double y[WIDE]) {
    char full[32];
    snprintf(full, sizeof full, "memory.%s.weight", name);
    const double *weight = master(b, full);
    snprintf(full, sizeof full, "memory.%s.bias", name);
    const double *bias = master(b, full);
    for (int i = 0; i < WIDE; i++) y[i] = dot(weight + i * WIDE, x, WIDE) + bias[i];
}

static void unit(double x[WIDE]) {
    const double length = sqrt(dot(x, x, WIDE));
    for (int i = 0; i < WIDE; i++) x[i] /= length;
}

/* One slot after a segment, as the paper defines it. */
static void define(const bench *b, const double *carried, const double *rows, int slot,
                   double temperature, double out[WIDE]) {
    enum { HALF = WIDE / 2 };
    double own[WIDE], q[WIDE], k[LONG + 1][WIDE], v[LONG + 1][WIDE];
    memcpy(own, carried + slot * WIDE, sizeof own);
    unit(own);
    product(b, "q", own, q);
    product(b, "k", own, k[0]);
    memcpy(v[0], own, sizeof own);
    for (int j = 0; j < LONG; j++) {
        product(b, "k", rows + j * WIDE, k[j + 1]);
        product(b, "v", rows + j * WIDE, v[j + 1]);
    }
    for (int h = 0; h < WIDE; h += HALF) {
        double weight[LONG + 1], sum = 0;
        for (int j = 0; j <= LONG; j++)
            sum += weight[j] = exp(dot(q + h, k[j] + h, HALF) / (sqrt(HALF) * temperature));
        for (int i = h; i < h + HALF; i++) {
            out[i] = master(b, "memory.start")[slot * WIDE + i];
            for (int j = 0; j <= LONG; j++) out[i] += weight[j] / sum * v[j][i];
        }
    }
    unit(out);
}

static void test_definition(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    const alone what = slots_alone(LS_UPDATE_NORM, true, 0.4, 1);
    bench b = bench_alone(&ctx, &what, false);
    double *x = numbers(FEW * WIDE, 3), *rows = numbers(LONG * WIDE, 4), want[WIDE];
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *got = read_all(ls_program_find(b.program, "y"));
    for (int slot = 0; slot < FEW; slot++) {
        define(&b, x, rows, slot, 0.4, want);
        near("slot", got + slot * WIDE, want, WIDE, 1e-13);
        assert_true(fabs(dot(got + slot * WIDE, got + slot * WIDE, WIDE) - 1) < 1e-14);
    }
    /* a slot knows nothing of another's content */
    for (int i = 0; i < WIDE; i++) put(ls_program_find(b.program, "x"), WIDE + i, i * i - 3.0);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *other = read_all(ls_program_find(b.program, "y"));
    for (int slot = 0; slot < FEW; slot++) {
        int differs = memcmp(got + slot * WIDE, other + slot * WIDE, WIDE * sizeof *got) != 0;
        assert_int_equal(differs, slot == 1);
    }
    free(x), free(rows), free(got), free(other);
    bench_free(&b);
}

static void test_gradients(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    for (int update = LS_UPDATE_NORM; update <= LS_UPDATE_GRU; update++) {
        const alone what = slots_alone((ls_memory_update)update, true, 0.7, 2);
        bench b = bench_alone(&ctx, &what, true);
        double *cot = numbers(FEW * WIDE, 5);
        put_all(&b, "cot", cot);
        ls_parameters_clear_gradient(b.store);
        expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
        const size_t bytes = (size_t)b.store->total * sizeof(double);
        double *gradient = malloc(bytes);
        memcpy(gradient, b.store->gradient, bytes);
        for (size_t i = 0; i < b.store->count; i++) {
            const ls_parameter *parameter = &b.store->items[i];
            check_differences(&b, "slots", parameter->name, ls_parameter_master(b.store, parameter),
                              gradient + parameter->offset, parameter->count, 7);
        }
        free(gradient);
        free(cot);
        bench_free(&b);
    }
}

/* Where slots attend to themselves alone they go to their biases; without biases they stay. */
static void test_forgetting(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    for (int biased = 0; biased < 2; biased++) {
        const alone what = slots_alone(LS_UPDATE_NORM, false, 1e-3, 1000);
        bench b = bench_alone(&ctx, &what, false);
        double *want = numbers(FEW * WIDE, 3), *start = master(&b, "memory.start");
        if (biased)
            memcpy(want, start, FEW * WIDE * sizeof *want);
        else
            memset(start, 0, FEW * WIDE * sizeof *want);
        for (int i = 0; i < WIDE * WIDE; i++) /* a slot's own score is high, those of zeros are 0 */
            master(&b, "memory.q.weight")[i] = master(&b, "memory.k.weight")[i] =
                i % WIDE == i / WIDE ? 8 : 0;
        for (int64_t i = 0; i < LONG * WIDE; i++) put(ls_program_find(b.program, "rows"), i, 0);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(b.program, "y"));
        for (int slot = 0; slot < FEW; slot++) {
            unit(want + slot * WIDE);
            near(biased ? "forgotten" : "kept", got + slot * WIDE, want + slot * WIDE, WIDE, 1e-12);
        }
        free(want), free(got);
        bench_free(&b);
    }
}

/* ---- whole models ---- */

static const char *const variants[] = {
    "",
    "model.memory_temperature=0.3 model.norm_place=post",
    "model.memory_update=plain model.memory_heads=1",
    "model.memory_update=gru",
    "model.memory_encoder=1 model.layers=3 model.position=t5",
};

static ls_model *make(ls_ctx *ctx, const char *words, ls_model_config *config) {
    char all[512], *rest = NULL;
    ls_settings settings = {0};
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 model.segment=6 "
             "model.memory=3 model.memory_kind=slots model.memory_heads=2 %s",
             words);
    for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        expect(ctx, ls_settings_put_word(ctx, &settings, word));
    expect(ctx, ls_model_config_read(ctx, &settings, config));
    ls_settings_clear(ctx, &settings);
    ls_model *made;
    expect(ctx, ls_model_new(ctx, config, LS_F64, 3, true, &made));
    fill_parameters(made->store); /* large ones, so that nothing hides */
    return made;
}

/* However a stream is fed, its losses are the same; segments know of one another through memory
 * alone, and nothing looks ahead. */
static void test_any_cut(void **unused) {
    (void)unused;
    enum { COUNT = 27 };
    ls_ctx ctx = ls_ctx_default();
    int32_t tokens[COUNT + 1];
    double want[COUNT], got[COUNT];
    for (int i = 0; i <= COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29;
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        ls_model_config config;
        ls_model *made = make(&ctx, variants[i], &config);
        for (int cut = 0; cut < 5; cut++) {
            static const int64_t chunks[] = {COUNT, 1, 4, 6, 13};
            ls_stream *stream;
            expect(&ctx, ls_stream_new(made, 1, COUNT, chunks[cut] < 6 ? 6 : chunks[cut], &stream));
            for (int64_t at = 0; at < COUNT; at += chunks[cut]) {
                int64_t count = ls_min(chunks[cut], COUNT - at);
                expect(&ctx, ls_stream_loss(stream, tokens + at, tokens + at + 1, count, count,
                                            (cut == 0 ? want : got) + at));
            }
            ls_stream_free(stream);
            if (cut > 0) near(variants[i], got, want, COUNT, 1e-13);
        }
        /* another token in the first segment is noticed in the fourth, and not before it */
        tokens[2] = (tokens[2] + 5) % 29;
        ls_stream *stream;
        expect(&ctx, ls_stream_new(made, 1, COUNT, COUNT, &stream));
        expect(&ctx, ls_stream_loss(stream, tokens, tokens + 1, COUNT, COUNT, got));
        ls_stream_free(stream);
        tokens[2] = (tokens[2] + 24) % 29;
        assert_memory_equal(got, want, sizeof *got);
        double change = 0;
        for (int t = 18; t < 24; t++) change = fmax(change, fabs(got[t] - want[t]));
        if (!(change > 1e-7)) fail_msg("%s: memory carries nothing", variants[i]);
        ls_model_free(made);
        ls_model_config_clear(&ctx, &config);
    }
}

/* Gradients of a program of `length` tokens, free() them; and the bytes that it takes. */
static double *gradients(ls_model *made, int64_t length, bool replay, size_t *bytes) {
    ls_ctx *ctx = made->ctx;
    ls_program *program;
    ls_program_options options = {.batch = 2, .length = length, .recompute = replay};
    expect(ctx, ls_model_program(made, LS_MODEL_TRAIN, options, &program));
    *bytes = ls_program_bytes(program);
    ls_program_poison(program);
    for (int64_t i = 0; i < 2 * length; i++) {
        put(ls_program_find(program, "tokens"), i, (double)(i * i % 29));
        put(ls_program_find(program, "targets"), i, (double)((i + 1) * (i + 1) % 29));
        put(ls_program_find(program, "weights"), i, 1);
    }
    ls_parameters_clear_gradient(made->store);
    expect(ctx, ls_program_run(program, NULL, 5, 2));
    ls_program_free(program);
    size_t size = (size_t)made->store->total * sizeof(double);
    double *copy = malloc(size);
    memcpy(copy, made->store->gradient, size);
    return copy;
}

static void test_replay(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        char words[128];
        ls_model_config config;
        size_t kept[2], replayed[2];
        snprintf(words, sizeof words, "%s model.dropout=0.2", variants[i]);
        ls_model *made = make(&ctx, words, &config);
        for (int horizon = 0; horizon < 2; horizon++) {
            const int64_t length = horizon == 0 ? 24 : 96;
            double *want = gradients(made, length, false, &kept[horizon]);
            double *got = gradients(made, length, true, &replayed[horizon]);
            assert_memory_equal(got, want, (size_t)made->store->total * sizeof *got);
            free(want), free(got);
        }
        print_message("%s: 12 more segments take %zu bytes kept, %zu replayed\n", variants[i],
                      kept[1] - kept[0], replayed[1] - replayed[0]);
        assert_true(kept[1] - kept[0] > 6 * (replayed[1] - replayed[0]));
        ls_model_free(made);
        ls_model_config_clear(&ctx, &config);
    }
}

static void test_refusals(void **unused) {
    (void)unused;
    static const char *const bad[] = {
        "model.memory=0",
        "model.memory_heads=3",
        "model.memory_encoder=2",
        "model.memory_kind=rows model.memory_encoder=1",
        "model.memory_encoder=1 model.layers=mamba,attention",
    };
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_settings settings = {0};
        ls_model_config config;
        char all[256], *rest = NULL;
        snprintf(all, sizeof all,
                 "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 model.segment=6 "
                 "model.memory=3 model.memory_kind=slots model.memory_heads=2 %s",
                 bad[i]);
        for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            expect(&ctx, ls_settings_put_word(&ctx, &settings, word));
        if (ls_model_config_read(&ctx, &settings, &config) != LS_EUSE)
            fail_msg("%s is not refused", bad[i]);
        ls_settings_clear(&ctx, &settings);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_code), cmocka_unit_test(test_definition),
        cmocka_unit_test(test_gradients),   cmocka_unit_test(test_forgetting),
        cmocka_unit_test(test_any_cut),     cmocka_unit_test(test_replay),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
