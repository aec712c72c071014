/* What opening a public checkpoint holds: one copy of its weights, and while it is read no more
 * than that and a few pages of the file. By the kernel's own count, which sees mapped files too.
 * Tier: unsanitized. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "data_fixture.h"
#include "train/trained.h"

enum { LAYERS = 4, WIDTH = 512, INNER = 1536, WORDS = 1024, HEADS = 8 };

typedef struct writer {
    FILE *header, *data;
    size_t bytes;
    int count;
} writer;

static void put_tensor(writer *w, const char *name, int rows, int columns) {
    const size_t values = (size_t)rows * (size_t)(columns == 0 ? 1 : columns);
    char shape[48];
    snprintf(shape, sizeof shape, columns == 0 ? "[%d]" : "[%d,%d]", rows, columns);
    fprintf(w->header, "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
            w->count++ == 0 ? "{" : ",", name, shape, w->bytes, w->bytes + 2 * values);
    w->bytes += 2 * values;
    for (size_t i = 0; i < values; i++) { /* 0.0078125 and 0.015625, by turns */
        const uint16_t value = i % 3 == 0 ? 0x3c80 : 0x3c00;
        fwrite(&value, sizeof value, 1, w->data);
    }
}

static void put_layers(writer *w) {
    static const struct {
        const char *name;
        int rows, columns;
    } parts[] = {{"self_attn.q_proj", WIDTH, WIDTH},    {"self_attn.k_proj", WIDTH, WIDTH},
                 {"self_attn.v_proj", WIDTH, WIDTH},    {"self_attn.o_proj", WIDTH, WIDTH},
                 {"mlp.gate_proj", INNER, WIDTH},       {"mlp.up_proj", INNER, WIDTH},
                 {"mlp.down_proj", WIDTH, INNER},       {"input_layernorm", WIDTH, 0},
                 {"post_attention_layernorm", WIDTH, 0}};
    char name[96];
    put_tensor(w, "model.embed_tokens.weight", WORDS, WIDTH);
    put_tensor(w, "model.norm.weight", WIDTH, 0);
    for (int l = 0; l < LAYERS; l++)
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            snprintf(name, sizeof name, "model.layers.%d.%s.weight", l, parts[i].name);
            put_tensor(w, name, parts[i].rows, parts[i].columns);
        }
}

/* A folder of llama's family; gives the bytes of its weights. */
static size_t write_checkpoint(ls_ctx *ctx, const char *folder) {
    char path[512], block[4096], *header = NULL;
    size_t length = 0, got;
    writer w = {.header = open_memstream(&header, &length), .data = tmpfile()};
    assert_non_null(w.header);
    assert_non_null(w.data);
    assert_int_equal(ls_folder_make(ctx, folder), LS_OK);
    put_layers(&w);
    fprintf(w.header, "}");
    fclose(w.header);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    const uint64_t size = length;
    fwrite(&size, sizeof size, 1, file);
    fwrite(header, 1, length, file);
    rewind(w.data);
    while ((got = fread(block, 1, sizeof block, w.data)) > 0) fwrite(block, 1, got, file);
    assert_int_equal(fclose(file), 0);
    fclose(w.data);
    free(header);
    snprintf(path, sizeof path, "%s/config.json", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"model_type\": \"llama\", \"vocab_size\": %d, \"hidden_size\": %d, "
            "\"num_hidden_layers\": %d, \"num_attention_heads\": %d, \"intermediate_size\": %d, "
            "\"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, "
            "\"tie_word_embeddings\": true}",
            WORDS, WIDTH, LAYERS, HEADS, INNER);
    assert_int_equal(fclose(file), 0);
    return w.bytes;
}

static size_t status_bytes(const char *key) {
    char line[256];
    size_t found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0) sscanf(line + strlen(key), ": %zu", &found);
    fclose(file);
    assert_true(found > 0);
    return found * 1024;
}

/* Opens it and gives what is held afterwards and was held at most, over what was held before. */
static void measure(const char *folder, ls_dtype type, size_t *held, size_t *peak) {
    ls_ctx ctx = ls_ctx_default();
    ls_trained trained;
    if (ctx.device != NULL) test_skip("the weights are not in this memory");
    FILE *reset = fopen("/proc/self/clear_refs", "w"); /* the peak begins here */
    if (reset == NULL || fputs("5", reset) == EOF || fclose(reset) != 0)
        test_skip("the system does not count a peak anew");
    const size_t before = status_bytes("VmRSS");
    if (ls_trained_open(&ctx, folder, NULL, &type, &trained) != LS_OK)
        fail_msg("%s", ctx.error.message);
    *held = status_bytes("VmRSS") - before;
    *peak = status_bytes("VmHWM") - before;
    ls_trained_clear(&trained);
}

static void test_one_copy(void **state) {
    (void)state;
    enum {
        SLACK = 6 << 20
    }; /* code and tables that are touched first, the largest tensor's pages */
    static const struct {
        ls_dtype type;
        size_t times; /* the weights' bytes in this type, in bytes of the file */
    } rows[] = {{LS_BF16, 1}, {LS_F32, 2}};
    ls_ctx ctx = ls_ctx_default();
    const size_t bytes = write_checkpoint(&ctx, fixture_path("llama"));
    for (size_t i = 0; i < 2; i++) {
        size_t held, peak;
        measure(fixture_path("llama"), rows[i].type, &held, &peak);
        print_message("%s: weights %zu, held %zu, at most %zu\n", ls_dtype_name(rows[i].type),
                      rows[i].times * bytes, held, peak);
        assert_true(bytes > 4 * (size_t)SLACK); /* a second copy would show */
        assert_true(held + SLACK >= rows[i].times * bytes);
        assert_true(held <= rows[i].times * bytes + SLACK);
        assert_true(peak <= rows[i].times * bytes + SLACK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_copy)};
    return test_code(cmocka_run_group_tests(tests, fixture_make, fixture_remove));
}
