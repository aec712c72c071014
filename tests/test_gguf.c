/* GGUF: every type is unpacked as its public code does, what is written is read back, and broken
 * files are refused with a reason.
 * Tier: memory. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_allocator.h"
#include "model/blocks.h"
#include "model/family.h"
#include "model/gguf_write.h"

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/longshot-gguf-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

/* ---- types ---- */

static void unpacks_every_type(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    ls_safetensors expected;
    assert_int_equal(ls_gguf_open(&ctx, LS_TEST_SOURCE "/tests/golden/gguf-types.gguf", &file),
                     LS_OK);
    assert_int_equal(
        ls_safetensors_open(&ctx, LS_TEST_SOURCE "/tests/golden/gguf-types.safetensors", &expected),
        LS_OK);
    assert_int_equal(file.tensor_count, 13);
    for (size_t i = 0; i < file.tensor_count; i++) {
        const ls_safetensor tensor = ls_blocks_tensor(&file.tensors[i]);
        const ls_safetensor *golden = ls_safetensors_find(&expected, tensor.name);
        float ours[256], theirs[256];
        double wide[256];
        assert_non_null(golden);
        assert_int_equal(tensor.count, 256);
        assert_string_equal(ls_safetensor_type_name(&tensor), tensor.name);
        ls_safetensor_f32(golden, 0, 256, theirs);
        ls_safetensor_f32(&tensor, 0, 256, ours);
        assert_memory_equal(ours, theirs, sizeof ours);
        ls_safetensor_f64(&tensor, 0, 256, wide);
        for (int k = 0; k < 256; k++) assert_true(wide[k] == (double)theirs[k]);
        /* any piece of it too */
        for (int64_t first = 0; first < 256; first += 37)
            for (int64_t count = 1; first + count <= 256; count += 31) {
                ls_safetensor_f32(&tensor, first, count, ours);
                assert_memory_equal(ours, theirs + first, (size_t)count * sizeof *ours);
            }
    }
    ls_safetensors_close(&ctx, &expected);
    ls_gguf_close(&ctx, &file);
}

/* What gguf-py packed, packed again from the same values. */
static void packs_as_public_code(void **state) {
    (void)state;
    static const uint32_t types[] = {LS_GGML_F32, LS_GGML_F16, LS_GGML_BF16, LS_GGML_Q8_0};
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    assert_int_equal(ls_gguf_open(&ctx, LS_TEST_SOURCE "/tests/golden/gguf-types.gguf", &file),
                     LS_OK);
    const ls_safetensor plain = ls_blocks_tensor(ls_gguf_find_tensor(&file, "F32"));
    float values[256];
    ls_safetensor_f32(&plain, 0, 256, values);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const ls_gguf_type *type = ls_gguf_type_of(types[i]);
        const ls_safetensor golden = ls_blocks_tensor(ls_gguf_find_tensor(&file, type->name));
        uint8_t packed[1024], wanted[1024];
        assert_true(golden.bytes <= sizeof wanted);
        ls_safetensor_bytes(&golden, 0, golden.bytes, wanted);
        assert_int_equal(ls_blocks_pack(types[i], values, 256 / type->values, packed),
                         golden.bytes);
        assert_memory_equal(packed, wanted, golden.bytes);
    }
    ls_gguf_close(&ctx, &file);
}

/* Every half comes back, and what lies between goes to the nearer one. */
static void rounds_halves(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const float value = ls_f16_value((uint16_t)bits);
        if (!isnan(value)) assert_int_equal(ls_f16_bits(value), bits);
        if (bits % 0x8000 >= 0x7bff) continue;
        const float next = ls_f16_value((uint16_t)(bits + 1)), middle = (value + next) / 2;
        assert_int_equal(ls_f16_bits(middle), bits + bits % 2); /* to the even one */
        assert_int_equal(ls_f16_bits(nextafterf(middle, value)), bits);
        assert_int_equal(ls_f16_bits(nextafterf(middle, next)), bits + 1);
    }
    assert_int_equal(ls_f16_bits(65519), 0x7bff);
    assert_int_equal(ls_f16_bits(65520), 0x7c00);
    assert_int_equal(ls_f16_bits(-INFINITY), 0xfc00);
    assert_true(isnan(ls_f16_value(ls_f16_bits(NAN))));
}

/* ---- writing ---- */

enum { ROWS = 5, WIDTH = 96 };

static float value_at(int64_t i) {
    return sinf((float)i) * 3;
}

static ls_status write_example(ls_ctx *ctx, const char *path, int64_t piece) {
    static const uint32_t types[] = {LS_GGML_F32, LS_GGML_F16, LS_GGML_BF16, LS_GGML_Q8_0};
    static const char *const names[] = {"plain", "half", "brain", "blocks"};
    static const ls_gguf_text words[] = {{"one", 3}, {"", 0}, {"two", 3}};
    static const float scores[] = {0.5F, -1, 3};
    static const int32_t numbers[] = {-7, 8};
    static const bool flags[] = {true, false};
    ls_gguf_writer *w;
    ls_status status = ls_gguf_writer_new(ctx, path, &w);
    if (status != LS_OK) return status;
    ls_gguf_put_text(w, "general.architecture", "example");
    ls_gguf_put_u32(w, "example.count", 4000000000U);
    ls_gguf_put_f32(w, "example.real", 0.1F);
    ls_gguf_put_bool(w, "example.flag", true);
    ls_gguf_put_texts(w, "example.words", words, 3);
    ls_gguf_put_f32s(w, "example.scores", scores, 3);
    ls_gguf_put_i32s(w, "example.numbers", numbers, 2);
    ls_gguf_put_bytes(w, "example.bytes", (const uint8_t *)"abc", 3);
    ls_gguf_put_bools(w, "example.flags", flags, 2);
    for (int i = 0; i < 4; i++)
        ls_gguf_declare(w, names[i], types[i], 2, (const int64_t[]){ROWS, WIDTH});
    ls_gguf_declare(w, "vector", LS_GGML_F32, 1, (const int64_t[]){3});
    float values[ROWS * WIDTH];
    for (int64_t i = 0; i < ROWS * WIDTH; i++) values[i] = value_at(i);
    for (int i = 0; i < 4; i++)
        for (int64_t at = 0; at < ROWS * WIDTH; at += piece)
            ls_gguf_append(w, values + at, ls_min(piece, ROWS * WIDTH - at));
    ls_gguf_append(w, values, 3);
    return ls_gguf_finish(w);
}

static void check_keys(const ls_gguf *file) {
    int64_t whole = 0;
    double real = 0;
    bool flag = false;
    ls_gguf_text text;
    assert_true(ls_gguf_integer(ls_gguf_find(file, "example.count"), &whole));
    assert_int_equal(whole, 4000000000LL);
    assert_true(ls_gguf_real(ls_gguf_find(file, "example.real"), &real));
    assert_true(real == (double)0.1F);
    assert_true(ls_gguf_boolean(ls_gguf_find(file, "example.flag"), &flag) && flag);
    assert_true(ls_gguf_string(ls_gguf_find(file, "general.architecture"), &text));
    assert_memory_equal(text.at, "example", 7);
    ls_gguf_walk walk = ls_gguf_walk_of(ls_gguf_find(file, "example.words"));
    size_t count = 0, bytes = 0;
    for (; ls_gguf_next(&walk); count++) {
        assert_true(ls_gguf_string(&walk.element, &text));
        bytes += text.length;
    }
    assert_int_equal(count, 3);
    assert_int_equal(bytes, 6);
    walk = ls_gguf_walk_of(ls_gguf_find(file, "example.numbers"));
    assert_true(ls_gguf_next(&walk) && ls_gguf_integer(&walk.element, &whole));
    assert_int_equal(whole, -7);
    assert_null(ls_gguf_find(file, "example"));
    assert_false(ls_gguf_boolean(ls_gguf_find(file, "example.real"), &flag));
    assert_false(ls_gguf_integer(ls_gguf_find(file, "example.real"), &whole));
}

static void round_trips(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text first = {0}, again = {0};
    ls_gguf file;
    assert_int_equal(write_example(&ctx, in_folder("a.gguf"), ROWS * WIDTH), LS_OK);
    assert_int_equal(ls_gguf_open(&ctx, in_folder("a.gguf"), &file), LS_OK);
    check_keys(&file);
    for (size_t i = 0; i < file.tensor_count; i++) {
        const ls_safetensor tensor = ls_blocks_tensor(&file.tensors[i]);
        const bool vector = strcmp(tensor.name, "vector") == 0;
        const double most = tensor.block != 0              ? 3.0 / 127 / 1.9
                            : tensor.type == LS_STORED_F32 ? 0
                                                           : 1e-2;
        assert_int_equal(tensor.rank, vector ? 1 : 2);
        assert_int_equal(tensor.dim[0], vector ? 3 : ROWS);
        for (int64_t k = 0; k < tensor.count; k++) {
            float value;
            ls_safetensor_f32(&tensor, k, 1, &value);
            assert_true(fabs((double)value - (double)value_at(k)) <= most);
        }
    }
    ls_gguf_close(&ctx, &file);
    /* in whatever pieces the values come */
    assert_int_equal(ls_file_read(&ctx, in_folder("a.gguf"), 1 << 20, &first), LS_OK);
    for (int64_t piece = 1; piece < 100; piece += 7) {
        assert_int_equal(write_example(&ctx, in_folder("b.gguf"), piece), LS_OK);
        assert_int_equal(ls_file_read(&ctx, in_folder("b.gguf"), 1 << 20, &again), LS_OK);
        assert_int_equal(first.length, again.length);
        assert_memory_equal(first.bytes, again.bytes, first.length);
        ls_text_clear(&ctx, &again);
    }
    ls_text_clear(&ctx, &first);
}

/* What cannot be is said, and leaves the old file and nothing else. */
static void refuses_to_write(void **state) {
    (void)state;
    static const int64_t narrow[] = {2, 33}, small[] = {1, 32};
    const float huge[32] = {1e9F};
    ls_ctx ctx = ls_ctx_default();
    ls_gguf_writer *w;
    assert_int_equal(write_example(&ctx, in_folder("kept.gguf"), 50), LS_OK);
    for (int i = 0; i < 6; i++) {
        ctx.error = (ls_error){0};
        assert_int_equal(ls_gguf_writer_new(&ctx, in_folder("kept.gguf"), &w), LS_OK);
        ls_gguf_put_u32(w, "a.key", 1);
        if (i == 0) ls_gguf_put_u32(w, "a.key", 1);
        if (i == 1) ls_gguf_declare(w, "t", LS_GGML_Q8_0, 2, narrow);
        if (i == 2) ls_gguf_declare(w, "t", LS_GGML_Q4_0, 2, small);
        if (i >= 3) ls_gguf_declare(w, "t", LS_GGML_F16, 2, small);
        if (i == 3) ls_gguf_declare(w, "t", LS_GGML_F16, 2, small);
        if (i == 4) assert_int_equal(ls_gguf_append(w, huge, 32), LS_EUSE);
        assert_int_not_equal(ls_gguf_finish(w), LS_OK); /* of the last the values are missing */
        assert_true(ctx.error.message[0] != '\0');
    }
    assert_false(ls_path_exists(in_folder("kept.gguf.tmp")));
    ls_gguf file;
    assert_int_equal(ls_gguf_open(&ctx, in_folder("kept.gguf"), &file), LS_OK);
    ls_gguf_close(&ctx, &file);
    assert_int_not_equal(write_example(&ctx, "/nowhere/at/all.gguf", 50), LS_OK);
    ls_gguf_abandon(NULL);
}

/* ---- broken files ---- */

typedef struct bytes {
    uint8_t at[1024];
    size_t length;
} bytes;

static void put(bytes *b, uint64_t value, int count) {
    for (int i = 0; i < count; i++) b->at[b->length++] = (uint8_t)(value >> 8 * i);
}

static void put_name(bytes *b, const char *name) {
    put(b, strlen(name), 8);
    memcpy(b->at + b->length, name, strlen(name));
    b->length += strlen(name);
}

/* One key and one tensor [2, 32] of Q8_0; each field can be another. */
typedef struct fields {
    const char *key, *name;
    uint64_t version, tensors, keys, kind, rank, width, rows, type, offset, alignment, data;
} fields;
static const fields sound = {.key = "general.alignment",
                             .name = "t",
                             .version = 3,
                             .tensors = 1,
                             .keys = 1,
                             .kind = LS_GGUF_U32,
                             .rank = 2,
                             .width = 32,
                             .rows = 2,
                             .type = LS_GGML_Q8_0,
                             .alignment = 64,
                             .data = 68};

static ls_status judge(ls_ctx *ctx, const fields *f) {
    bytes b = {0};
    memcpy(b.at, "GGUF", 4);
    b.length = 4;
    put(&b, f->version, 4);
    put(&b, f->tensors, 8);
    put(&b, f->keys, 8);
    put_name(&b, f->key);
    put(&b, f->kind, 4);
    put(&b, f->alignment, 4);
    put_name(&b, f->name);
    put(&b, f->rank, 4);
    put(&b, f->width, 8);
    put(&b, f->rows, 8);
    put(&b, f->type, 4);
    put(&b, f->offset, 8);
    while (b.length % 64 != 0) put(&b, 0, 1);
    b.length += f->data;
    uint8_t *exact = malloc(b.length); /* so that a sanitizer sees reads past the end */
    memcpy(exact, b.at, b.length);
    ls_gguf file;
    *ctx = ls_ctx_default();
    const ls_status status = ls_gguf_view(ctx, exact, b.length, "case", &file);
    if (status == LS_OK) ls_gguf_close(ctx, &file);
    free(exact);
    return status;
}

static void refuses(fields f, const char *words) {
    ls_ctx ctx;
    assert_int_equal(judge(&ctx, &f), LS_EINPUT);
    if (strstr(ctx.error.message, words) == NULL) fail_msg("%s", ctx.error.message);
}

#define REFUSES(words, ...)                                                                        \
    do {                                                                                           \
        fields f = sound;                                                                          \
        __VA_ARGS__;                                                                               \
        refuses(f, words);                                                                         \
    } while (0)

static void refuses_broken_files(void **state) {
    (void)state;
    ls_ctx ctx;
    assert_int_equal(judge(&ctx, &sound), LS_OK);
    REFUSES("version", f.version = 4);
    REFUSES("other order", f.version = 3 << 24);
    REFUSES("more tensors", f.tensors = UINT64_MAX);
    REFUSES("more tensors", f.tensors = 900);
    REFUSES("more keys", f.keys = UINT64_MAX / 2);
    REFUSES("no power of two", f.alignment = 48);
    REFUSES("no power of two", f.alignment = 0);
    REFUSES("no power of two", f.alignment = 1U << 31);
    REFUSES("unknown kind", f.kind = 13);
    REFUSES("longer than the file", f.kind = LS_GGUF_TEXT);
    REFUSES("lists", f.kind = LS_GGUF_ARRAY; f.alignment = LS_GGUF_ARRAY);
    REFUSES("no name has", f.name = "a\x1b[31m");
    REFUSES("empty", f.name = "");
    REFUSES("axes", f.rank = 5);
    REFUSES("axes", f.rank = UINT32_MAX);
    REFUSES("impossible shape", f.width = 0);
    REFUSES("impossible shape", f.width = UINT64_MAX);
    REFUSES("impossible shape", f.width = 1ULL << 40; f.rows = 1ULL << 40);
    REFUSES("whole blocks", f.width = 33);
    REFUSES("whole blocks", f.width = 32; f.rows = INT64_MAX / 32);
    REFUSES("number 4,", f.type = 4);
    REFUSES("number 4294967295,", f.type = UINT32_MAX);
    REFUSES("not aligned", f.offset = 32);
    REFUSES("leaves the file", f.offset = 64);
    REFUSES("leaves the file", f.offset = UINT64_MAX - 63);
    REFUSES("leaves the file", f.rows = 3);
    REFUSES("leaves the file", f.data = 67);
}

static ls_status open_and_close(ls_ctx *ctx, void *user) {
    const ls_text *text = user;
    ls_gguf file;
    ls_status status = ls_gguf_view(ctx, text->bytes, text->length, "all", &file);
    if (status == LS_OK) ls_gguf_close(ctx, &file);
    return status;
}

static ls_status write_one(ls_ctx *ctx, void *user) {
    return write_example(ctx, user, 50);
}

/* Every beginning of a file is refused, and no allocation that fails does harm. */
static void refuses_cut_files(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    ls_gguf file;
    assert_int_equal(write_example(&ctx, in_folder("cut.gguf"), 50), LS_OK);
    assert_int_equal(ls_file_read(&ctx, in_folder("cut.gguf"), 1 << 20, &text), LS_OK);
    /* the last 20 bytes only fill the row of the alignment */
    for (size_t length = 0; length + 20 < text.length; length += length < 1000 ? 1 : 97) {
        uint8_t *exact = malloc(length + 1);
        memcpy(exact, text.bytes, length);
        assert_int_equal(ls_gguf_view(&ctx, exact, length, "cut", &file), LS_EINPUT);
        free(exact);
    }
    fail_each_allocation(open_and_close, &text);
    fail_each_allocation(write_one, (void *)in_folder("starved.gguf"));
    ls_text_clear(&ctx, &text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unpacks_every_type), cmocka_unit_test(packs_as_public_code),
        cmocka_unit_test(rounds_halves),      cmocka_unit_test(round_trips),
        cmocka_unit_test(refuses_to_write),   cmocka_unit_test(refuses_broken_files),
        cmocka_unit_test(refuses_cut_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
