/* safetensors: what is written is read back, and broken files are refused with a reason.
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
#include "model/safetensors.h"

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/longshot-safetensors-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

/* A file from a header text and a number of data bytes. */
static ls_status judge(ls_ctx *ctx, const char *header, size_t data) {
    uint8_t bytes[8192] = {0};
    size_t length = strlen(header);
    assert_true(8 + length + data <= sizeof bytes);
    bytes[0] = (uint8_t)length;
    bytes[1] = (uint8_t)(length >> 8);
    memcpy(bytes + 8, header, length);
    ls_safetensors file;
    *ctx = ls_ctx_default();
    uint8_t *exact = malloc(8 + length + data); /* so that a sanitizer sees reads past the end */
    memcpy(exact, bytes, 8 + length + data);
    ls_status status = ls_safetensors_view(ctx, exact, 8 + length + data, "case", &file);
    if (status == LS_OK) ls_safetensors_close(ctx, &file);
    free(exact);
    return status;
}

#define T(name, dtype, shape, from, to)                                                            \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to   \
    "]}"

static void accepts_legal_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
    } cases[] = {
        {"{}", 0},
        {"{}     ", 0},
        {"{\"__metadata__\":{}}", 0},
        {"{\"__metadata__\":{\"a\":\"b\",\"c\":\"\\u00e9\\ud83d\\ude00\"}}", 0},
        {"{" T("scalar", "F32", "", "0", "4") "}", 4},
        {"{" T("empty", "F32", "0,7", "0", "0") "," T("x", "U8", "3", "0", "3") "}", 3},
        {"{" T("b", "BOOL", "2", "8", "10") " ,\n" T("a", "F64", "1", "0", "8") "}", 10},
        {"{" T("e", "F32", "0", "4", "4") "," T("x", "F32", "1", "0", "4") "}", 4},
        {"{\"x\" : {\"data_offsets\" : [ 0 , 2 ] , \"shape\":[1], \"dtype\":\"BF16\"}}\n", 2},
        {"{" T("huge", "F32", "0,9000000000000000000,9000000000000000000", "0", "0") "}", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx;
        ls_status status = judge(&ctx, cases[i].header, cases[i].data);
        if (status != LS_OK) fail_msg("%s: %s", cases[i].header, ctx.error.message);
    }
}

static void refuses_broken_headers(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *reason;
    } cases[] = {
        {"", 0, "begin"},
        {" {}", 0, "begin"},
        {"[]", 0, "begin"},
        {"{} x", 0, "follows"},
        {"{", 0, "expected '\"'"},
        {"{" T("a", "F32", "1", "0", "4"), 4, "expected '}'"},
        {"{" T("a", "F32", "1", "0", "4") ",}", 4, "expected '\"'"},
        {"{" T("a", "F99", "1", "0", "4") "}", 4, "F99"},
        {"{" T("a", "F32", "2", "0", "4") "}", 4, "disagree"},
        {"{" T("a", "F32", "1", "0", "8") "}", 4, "leave"},
        {"{" T("a", "F32", "1", "4", "0") "}", 4, "leave"},
        {"{" T("a", "F32", "-1", "0", "4") "}", 4, "sign"},
        {"{" T("a", "F32", "1.0", "0", "4") "}", 4, "expected ']'"},
        {"{" T("a", "F32", "1e0", "0", "4") "}", 4, "expected ']'"},
        {"{" T("a", "F32", "01", "0", "4") "}", 4, "leading zero"},
        {"{" T("a", "F32", "\"1\"", "0", "4") "}", 4, "whole number"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1,1,1", "0", "4") "}", 4, "too many"},
        {"{" T("a", "F32", "4611686018427387904,4", "0", "0") "}", 0, "too large"},
        {"{" T("a", "F64", "2305843009213693952", "0", "0") "}", 0, "too large"},
        {"{" T("a", "F32", "99999999999999999999", "0", "0") "}", 0, "too large"},
        {"{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "8", "12") "}", 12, "hole"},
        {"{" T("a", "F32", "1", "4", "8") "}", 8, "hole"},
        {"{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "1", "4", "8") "}", 8, "overlap"},
        {"{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "0", "4") "}", 4, "overlap"},
        {"{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "0", "4") "}", 8, "overlap"},
        {"{" T("a", "F32", "1", "0", "4") "}", 5, "follow the last"},
        {"{}", 1, "follow the last"},
        {"{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "1", "2") "}", 2, "twice"},
        {"{" T("a", "U8", "1", "0", "1") "," T("\\u0061", "U8", "1", "1", "2") "}", 2, "twice"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "twice"},
        {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "twice"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "texts only"},
        {"{\"__metadata__\":[]}", 0, "expected '{'"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "twice"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "lacks"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "lacks"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
         "no other key"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "expected '\"'"},
        {"{\"a\":{}}", 0, "expected '\"'"},
        {"{\"a\":null}", 0, "expected '{'"},
        {"{" T("a\\q", "U8", "1", "0", "1") "}", 1, "escape"},
        {"{" T("a\\u0000", "U8", "1", "0", "1") "}", 1, "escape"},
        {"{" T("a\\ud800", "U8", "1", "0", "1") "}", 1, "escape"},
        {"{" T("a\n", "U8", "1", "0", "1") "}", 1, "control"},
        {"{" T("a\xff", "U8", "1", "0", "1") "}", 1, "UTF-8"},
        {"{" T("a\xc0\x80", "U8", "1", "0", "1") "}", 1, "UTF-8"},
        {"{\"a", 0, "does not end"},
        {"{\"a\\", 0, "does not end"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx;
        ls_status status = judge(&ctx, cases[i].header, cases[i].data);
        if (status != LS_EINPUT || strstr(ctx.error.message, cases[i].reason) == NULL)
            fail_msg("%s gave %s: %s", cases[i].header, ls_status_name(status), ctx.error.message);
    }
}

static void refuses_broken_lengths(void **state) {
    (void)state;
    static const struct {
        uint8_t bytes[10];
        size_t length;
    } cases[] = {
        {{0}, 0},
        {{2, 0, 0}, 3},
        {{0}, 8},
        {{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10},
        {{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'}, 10},
        {{2, 0, 0, 0, 0, 0, 0, 128, '{', '}'}, 10},
        {{0, 225, 245, 5, 0, 0, 0, 0, '{', '}'}, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_safetensors file;
        assert_int_equal(ls_safetensors_view(&ctx, cases[i].bytes, cases[i].length, "case", &file),
                         LS_EINPUT);
        assert_true(ctx.error.message[0] != '\0');
    }
    char name[600] = {0};
    memset(name, 'n', 513);
    char header[800];
    snprintf(header, sizeof header, "{" T("%s", "U8", "1", "0", "1") "}", name);
    ls_ctx ctx;
    assert_int_equal(judge(&ctx, header, 1), LS_EINPUT);
    name[512] = '\0';
    snprintf(header, sizeof header, "{" T("%s", "U8", "1", "0", "1") "}", name);
    assert_int_equal(judge(&ctx, header, 1), LS_OK);
}

static const double f64s[] = {0.1, -2, 1e300};
static const float f32s[] = {0.5f, -1.25f, 3e38f, 7};
static const uint16_t bf16s[] = {0x3f80, 0xc000};                        /* 1, -2 */
static const uint16_t f16s[] = {0x3c00, 0xc000, 0x0001, 0x7c00, 0x8000}; /* 1, -2, 2^-24, inf, -0 */
static const int64_t i64s[] = {-5, 123456789012};
static const int32_t i32s[] = {-7};
static const uint8_t u8s[] = {0, 255};
static const uint8_t bools[] = {1, 0, 2};

static const ls_safetensor_source sources[] = {
    {"bools", LS_STORED_BOOL, 1, (const int64_t[]){3}, bools},
    {"a \"quoted\"\n\\name", LS_STORED_F32, 2, (const int64_t[]){2, 2}, f32s},
    {"halves", LS_STORED_F16, 1, (const int64_t[]){5}, f16s},
    {"z", LS_STORED_F64, 1, (const int64_t[]){3}, f64s},
    {"b", LS_STORED_BF16, 1, (const int64_t[]){2}, bf16s},
    {"scalar", LS_STORED_I32, 0, NULL, i32s},
    {"long", LS_STORED_I64, 1, (const int64_t[]){2}, i64s},
    {"empty", LS_STORED_F32, 2, (const int64_t[]){0, 4}, NULL},
    {"bytes", LS_STORED_U8, 1, (const int64_t[]){2}, u8s},
};
enum { SOURCES = sizeof sources / sizeof sources[0] };
static const ls_stored_text texts[] = {{"format", "pt"}, {"a", "line\n\"two\""}};

static void reads_back_what_it_wrote(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    const char *path = in_folder("all.safetensors");
    assert_int_equal(ls_safetensors_write(&ctx, path, sources, SOURCES, texts, 2), LS_OK);
    ls_safetensors file;
    assert_int_equal(ls_safetensors_open(&ctx, path, &file), LS_OK);
    assert_int_equal(file.count, SOURCES);
    for (int i = 0; i < SOURCES; i++) {
        const ls_safetensor *t = ls_safetensors_find(&file, sources[i].name);
        assert_non_null(t);
        assert_int_equal(t->type, sources[i].type);
        assert_int_equal(t->rank, sources[i].rank);
        for (int d = 0; d < t->rank; d++) assert_int_equal(t->dim[d], sources[i].dim[d]);
        char bytes[256];
        assert_true(t->bytes <= sizeof bytes);
        ls_safetensor_bytes(t, 0, t->bytes, bytes);
        if (t->bytes > 0) assert_memory_equal(bytes, sources[i].data, t->bytes);
        assert_int_equal(t->at % ls_stored_size(t->type), 0);
    }
    assert_string_equal(ls_safetensors_metadata(&file, "format"), "pt");
    assert_string_equal(ls_safetensors_metadata(&file, "a"), "line\n\"two\"");
    assert_null(ls_safetensors_metadata(&file, "b"));
    assert_null(ls_safetensors_find(&file, "nothing"));

    double d[5];
    float f[5];
    ls_safetensor_f64(ls_safetensors_find(&file, "halves"), 0, 5, d);
    assert_true(d[0] == 1 && d[1] == -2 && d[2] == 0x1p-24 && isinf(d[3]) && signbit(d[4]));
    ls_safetensor_f32(ls_safetensors_find(&file, "b"), 0, 2, f);
    assert_true(f[0] == 1 && f[1] == -2);
    ls_safetensor_f64(ls_safetensors_find(&file, "long"), 1, 1, d);
    assert_true(d[0] == 123456789012.0);
    ls_safetensor_f64(ls_safetensors_find(&file, "bools"), 0, 3, d);
    assert_true(d[0] == 1 && d[1] == 0 && d[2] == 1);
    int32_t n[2];
    assert_int_equal(ls_safetensor_i32(&ctx, ls_safetensors_find(&file, "scalar"), 0, 1, n), LS_OK);
    assert_int_equal(n[0], -7);
    assert_int_equal(ls_safetensor_i32(&ctx, ls_safetensors_find(&file, "long"), 0, 2, n),
                     LS_EINPUT);
    ctx.error.code = LS_OK;
    assert_int_equal(ls_safetensor_i32(&ctx, ls_safetensors_find(&file, "z"), 0, 1, n), LS_EINPUT);
    ls_safetensors_close(&ctx, &file);
}

static void order_does_not_matter(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_safetensor_source reversed[SOURCES];
    for (int i = 0; i < SOURCES; i++) reversed[i] = sources[SOURCES - 1 - i];
    ls_text one = {0}, two = {0};
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("1"), sources, SOURCES, texts, 2), LS_OK);
    assert_int_equal(ls_file_read(&ctx, in_folder("1"), 1 << 20, &one), LS_OK);
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("2"), reversed, SOURCES, texts, 2),
                     LS_OK);
    assert_int_equal(ls_file_read(&ctx, in_folder("2"), 1 << 20, &two), LS_OK);
    assert_int_equal(one.length, two.length);
    assert_memory_equal(one.bytes, two.bytes, one.length);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | (uint8_t)one.bytes[i];
    assert_int_equal((header + 8) % 64, 0);

    /* every truncation and every flipped byte: refused or read, never more than that */
    for (size_t cut = 0; cut < one.length; cut++) {
        ls_safetensors file;
        uint8_t *part = malloc(cut + 1);
        memcpy(part, one.bytes, cut);
        ls_ctx again = ls_ctx_default();
        assert_int_equal(ls_safetensors_view(&again, part, cut, "cut", &file), LS_EINPUT);
        free(part);
        two.bytes[cut] = (char)(two.bytes[cut] ^ 1);
        if (ls_safetensors_view(&again, two.bytes, two.length, "flip", &file) == LS_OK)
            ls_safetensors_close(&again, &file);
        two.bytes[cut] = one.bytes[cut];
    }
    ls_text_clear(&ctx, &one);
    ls_text_clear(&ctx, &two);
}

static void refuses_to_write_nonsense(void **state) {
    (void)state;
    ls_safetensor_source twice[] = {sources[0], sources[0]};
    ls_ctx ctx = ls_ctx_default();
    const char *path = in_folder("bad");
    assert_int_equal(ls_safetensors_write(&ctx, path, twice, 2, NULL, 0), LS_EUSE);
    assert_false(ls_path_exists(path));
    assert_false(ls_path_exists(in_folder("bad.tmp")));
    ctx.error.code = LS_OK;
    ls_safetensor_source wrong = {"w", LS_STORED_F32, 1, (const int64_t[]){-1}, NULL};
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("bad"), &wrong, 1, NULL, 0), LS_EUSE);
    ctx.error.code = LS_OK;
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("no/such/folder"), sources, 1, NULL, 0),
                     LS_EIO);
    /* a full disk is reported, by name */
    ctx.error.code = LS_OK;
    FILE *full = fopen("/dev/full", "wb");
    if (full != NULL) {
        setvbuf(full, NULL, _IONBF, 0);
        assert_int_equal(
            ls_safetensors_put(&ctx, full, "the-disk", sources, SOURCES, NULL, 0, NULL, NULL),
            LS_EIO);
        assert_non_null(strstr(ctx.error.message, "the-disk"));
        fclose(full);
    }
}

static ls_status write_and_open(ls_ctx *ctx, void *path) {
    ls_safetensors file;
    LS_TRY(ls_safetensors_write(ctx, path, sources, SOURCES, texts, 2));
    LS_TRY(ls_safetensors_open(ctx, path, &file));
    ls_safetensors_close(ctx, &file);
    return LS_OK;
}

static void survives_every_allocation_failure(void **state) {
    (void)state;
    char path[256];
    strcpy(path, in_folder("memory"));
    fail_each_allocation(write_and_open, path);
}

/* The seeds of the fuzz target are legal files and must stay so. */
static void seeds_are_legal(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    const char *seeds = LS_TEST_SOURCE "/tests/fuzz/seeds/fuzz_safetensors";
    char **names;
    size_t count;
    assert_int_equal(ls_folder_list(&ctx, seeds, &names, &count), LS_OK);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        char path[4096];
        ls_safetensors file;
        assert_int_equal(ls_path_join(&ctx, path, sizeof path, seeds, names[i]), LS_OK);
        assert_int_equal(ls_safetensors_open(&ctx, path, &file), LS_OK);
        ls_safetensors_close(&ctx, &file);
    }
    ls_names_free(&ctx, names, count);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) { /* writes the seeds anew */
        ls_ctx ctx = ls_ctx_default();
        char path[4096];
        snprintf(path, sizeof path, "%s/all", argv[2]);
        if (ls_safetensors_write(&ctx, path, sources, SOURCES, texts, 2) != LS_OK) return 1;
        snprintf(path, sizeof path, "%s/empty", argv[2]);
        if (ls_safetensors_write(&ctx, path, NULL, 0, NULL, 0) != LS_OK) return 1;
        snprintf(path, sizeof path, "%s/scalar", argv[2]);
        return ls_safetensors_write(&ctx, path, &sources[5], 1, NULL, 0) != LS_OK;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_legal_headers),
        cmocka_unit_test(refuses_broken_headers),
        cmocka_unit_test(refuses_broken_lengths),
        cmocka_unit_test(reads_back_what_it_wrote),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(refuses_to_write_nonsense),
        cmocka_unit_test(survives_every_allocation_failure),
        cmocka_unit_test(seeds_are_legal),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
