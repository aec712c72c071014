/* The Recurrent Memory Transformer: public code's numbers, and what memory and segments mean. */
#include "golden_file.h"
#include "model/model.h"

static ls_model *make(const char *words, ls_model_config *config) {
    char all[512], *rest = NULL;
    ls_settings settings = {0};
    if (model_ctx.threads == 0) model_ctx = ls_ctx_default();
    snprintf(all, sizeof all,
             "model.layers=2 model.width=16 mixer.heads=2 model.vocabulary=29 mixer.bias=true "
             "model.activation=gelu_tanh model.position=learned position.length=32 %s",
             words);
    for (char *word = strtok_r(all, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        OK(ls_settings_put_word(&model_ctx, &settings, word));
    OK(ls_model_config_read(&model_ctx, &settings, config));
    OK(ls_settings_finish(&model_ctx, &settings, NULL));
    ls_settings_clear(&model_ctx, &settings);
    ls_model *made;
    OK(ls_model_new(&model_ctx, config, LS_F64, 3, true, &made));
    return made;
}

/* The public name of a weight; the products' weights are stored as [in,out] there. */
static bool official_name(const char *ours, char out[128]) {
    static const char *const layer[][2] = {{"norm1.", "ln_1."},
                                           {"norm2.", "ln_2."},
                                           {"mixer.qkv.", "attn.c_attn."},
                                           {"mixer.out.", "attn.c_proj."},
                                           {"ffn.up.", "mlp.c_fc."},
                                           {"ffn.down.", "mlp.c_proj."}};
    int number, used = 0;
    if (strcmp(ours, "memory.start") == 0) return snprintf(out, 128, "memory"), false;
    if (strcmp(ours, "embed.weight") == 0)
        return snprintf(out, 128, "model.transformer.wte.weight"), false;
    if (strcmp(ours, "position.embedding") == 0)
        return snprintf(out, 128, "model.transformer.wpe.weight"), false;
    if (strncmp(ours, "norm.", 5) == 0)
        return snprintf(out, 128, "model.transformer.ln_f.%s", ours + 5), false;
    assert_int_equal(sscanf(ours, "layers.%d.%n", &number, &used), 1);
    for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
        size_t length = strlen(layer[i][0]);
        if (strncmp(ours + used, layer[i][0], length) != 0) continue;
        snprintf(out, 128, "model.transformer.h.%d.%s%s", number, layer[i][1],
                 ours + used + length);
        return i >= 2 && strcmp(ours + used + length, "weight") == 0;
    }
    fail_msg("no public name for %s", ours);
    return false;
}

static double *stored(const golden *g, const char *kind, const ls_parameter *parameter) {
    char name[128], full[192];
    int64_t dim[5];
    size_t count;
    bool turned = official_name(parameter->name, name);
    snprintf(full, sizeof full, "%sw.memory_cell.%s", kind, name);
    double *values = golden_tensor(g, full, dim, &count);
    if (values == NULL) fail_msg("the file has no %s", full);
    assert_int_equal(count, parameter->count);
    if (!turned) return values;
    double *rows = malloc(count * sizeof *rows);
    for (int64_t i = 0; i < dim[0]; i++)
        for (int64_t o = 0; o < dim[1]; o++) rows[o * dim[0] + i] = values[i * dim[1] + o];
    free(values);
    return rows;
}

static void close_to(const char *what, const double *got, const double *want, size_t count,
                     double tolerance) {
    double largest = 0, wrong = 0;
    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, fabs(want[i]));
        wrong = fmax(wrong, fabs(got[i] - want[i]));
    }
    if (!(wrong <= tolerance * largest)) fail_msg("%s is off by %g of %g", what, wrong, largest);
}

static void test_public_code(void **unused) {
    (void)unused;
    golden g;
    ls_model_config config;
    golden_open(&g, "rmt-gpt2-left.safetensors");
    ls_model *made = make("model.segment=14 model.memory=3", &config);
    ls_parameters *store = made->store;
    for (size_t i = 0; i < store->count; i++) {
        double *values = stored(&g, "", &store->items[i]);
        memcpy(ls_parameter_master(store, &store->items[i]), values,
               (size_t)store->items[i].count * sizeof *values);
        free(values);
    }
    int64_t dim[5];
    size_t count, tokens_count;
    double *tokens = golden_tensor(&g, "in.tokens", dim, &tokens_count);
    const int64_t B = dim[0], T = dim[1];
    for (int replay = 0; replay < 2; replay++) {
        ls_program *p;
        ls_program_options options = {
            .type = LS_F64, .batch = B, .length = T, .grad = true, .recompute = replay == 1};
        OK(ls_program_new(&model_ctx, &options, store, &p));
        ls_tensor *ids = ls_input(p, "tokens", LS_I32, LS_DIMS(B, T), false), *embedding;
        ls_tensor *rows = ls_model_rows(p, &config, ids, NULL, &embedding);
        ls_tensor *y = ls_linear(p, rows, embedding, NULL);
        ls_keep(p, "y", y);
        ls_seed_gradient(p, y, ls_input(p, "cot", LS_F64, LS_DIMS(B, T, 29), false));
        OK(ls_program_finish(p));
        ls_program_poison(p);
        for (size_t i = 0; i < tokens_count; i++) ((int32_t *)ls_data(ids))[i] = (int32_t)tokens[i];
        double *cot = golden_tensor(&g, "cot", dim, &count);
        ls_tensor_put(p, ls_program_find(p, "cot"), cot);
        ls_parameters_clear_gradient(store);
        OK(ls_program_run(p, NULL, 0, 0));
        double *want = golden_tensor(&g, "out.y", dim, &count);
        close_to("y", ls_data(y), want, count, 1e-11);
        for (size_t i = 0; i < store->count; i++) {
            double *gradient = stored(&g, "grad.", &store->items[i]);
            close_to(store->items[i].name, ls_parameter_gradient(store, &store->items[i]), gradient,
                     (size_t)store->items[i].count, 1e-10);
            free(gradient);
        }
        free(cot);
        free(want);
        ls_program_free(p);
    }
    free(tokens);
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
    golden_close(&g);
}

static void losses(ls_model *made, const int32_t *tokens, int64_t count, double *out) {
    ls_stream *stream;
    OK(ls_stream_new(made, 1, count, count, &stream));
    OK(ls_stream_loss(stream, tokens, tokens + 1, count, count, out));
    ls_stream_free(stream);
}

/* Without memory segments know nothing of one another; with it they do. */
static void test_segments(void **unused) {
    (void)unused;
    enum { EACH = 6, COUNT = 15 };
    int32_t tokens[COUNT + 1];
    double whole[COUNT], alone[COUNT];
    for (int i = 0; i <= COUNT; i++) tokens[i] = (i * 7 + i * i / 3) % 29;
    for (int memory = 0; memory < 2; memory++) {
        ls_model_config config;
        ls_model *made =
            make(memory == 0 ? "model.segment=6" : "model.segment=6 model.memory=2", &config);
        double *weights = made->store->master; /* larger ones, so that nothing hides */
        for (int64_t i = 0; i < made->store->total; i++) weights[i] *= 5;
        losses(made, tokens, COUNT, whole);
        for (int first = 0; first < COUNT; first += EACH)
            losses(made, tokens + first, ls_min(EACH, COUNT - first), alone + first);
        double apart = 0;
        for (int i = 0; i < COUNT; i++) apart = fmax(apart, fabs(whole[i] - alone[i]));
        if (memory == 0) assert_true(apart < 1e-13);
        if (memory == 1) assert_true(apart > 1e-3);
        ls_model_free(made);
        ls_model_config_clear(&model_ctx, &config);
    }
}

/* Replayed segments: what a longer horizon adds is its memories and the rows at its ends. */
static void test_replay_memory(void **unused) {
    (void)unused;
    size_t bytes[2][2];
    ls_model_config config;
    ls_model *made = make("model.segment=16 model.memory=2", &config);
    for (int replay = 0; replay < 2; replay++)
        for (int horizon = 0; horizon < 2; horizon++) {
            ls_program *program;
            ls_program_options options = {
                .batch = 2, .length = horizon == 0 ? 64 : 256, .recompute = replay == 1};
            OK(ls_model_program(made, LS_MODEL_TRAIN, options, &program));
            bytes[replay][horizon] = ls_program_bytes(program);
            ls_program_free(program);
        }
    size_t kept = bytes[0][1] - bytes[0][0], replayed = bytes[1][1] - bytes[1][0];
    print_message("12 more segments: %zu bytes kept, %zu replayed\n", kept, replayed);
    assert_true(kept > 8 * replayed);
    ls_model_free(made);
    ls_model_config_clear(&model_ctx, &config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_public_code),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_replay_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
