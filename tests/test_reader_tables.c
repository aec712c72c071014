/* Readers against tables: each row is one thing that a file says, and the sentence that refuses it,
 * or what is made of it.
 * Tier: memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compare/stored_rows.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "model/family.h"
#include "model/safetensors.h"

#include "failing_allocator.h"

static char folder[] = "/tmp/longshot-tables-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_sentence(const char *about, ls_status status, const ls_ctx *ctx,
                            const char *sentence) {
    if (sentence == NULL ? status != LS_OK
                         : status != LS_EINPUT || strstr(ctx->error.message, sentence) == NULL)
        fail_msg("%s: %s, \"%s\" in place of \"%s\"", about, ls_status_name(status),
                 ctx->error.message, sentence == NULL ? "" : sentence);
}

/* ---- config.json ---- */

#define LLAMA(more)                                                                                \
    "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "                  \
    "\"num_attention_heads\": 2, \"intermediate_size\": 32, \"vocab_size\": 8" more "}"
#define MAMBA(more)                                                                                \
    "{\"model_type\": \"mamba\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "                  \
    "\"vocab_size\": 8" more "}"
#define GEMMA2(more)                                                                               \
    "{\"model_type\": \"gemma2\", \"hidden_size\": 16, \"num_hidden_layers\": 1, "                 \
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 8, "                    \
    "\"intermediate_size\": 32, \"vocab_size\": 8" more "}"

static const struct {
    const char *text, *sentence;
} configs[] = {
    {LLAMA(""), NULL},
    {LLAMA(", \"n_embd\": 16"), NULL},
    {LLAMA(", \"n_embd\": 17"), "contradict each other"},
    {LLAMA(", \"n_embd\": null"), NULL},
    {LLAMA(", \"head_dim\": 0"), "`head_dim` must be 1 to 65536"},
    {LLAMA(", \"num_key_value_heads\": \"two\""), "must be a whole number"},
    {LLAMA(", \"rms_norm_eps\": \"small\""), "`rms_norm_eps`"},
    {LLAMA(", \"rms_norm_eps\": 5"), "`rms_norm_eps`"},
    {LLAMA(", \"mlp_bias\": 3"), "`mlp_bias` must be true or false"},
    {LLAMA(", \"hidden_act\": 3"), "must be a text"},
    {LLAMA(", \"hidden_act\": \"tanhexp\""), "the activation `tanhexp` is not known"},
    {LLAMA(", \"hidden_act\": \"relu2\""), "in gated form"},
    {LLAMA(", \"unheard_of\": 3"), "unheard_of"},
    {"{\"model_type\": \"llama\"}", "is missing"},
    {"{\"model_type\": \"nobody\"}", "nobody"},
    {"{\"model_type\": 3}", "model_type"},
    {"[]", ""},
    {MAMBA(""), NULL},
    {MAMBA(", \"time_step_rank\": \"auto\""), NULL},
    {MAMBA(", \"time_step_rank\": \"some\""), "time_step_rank"},
    {MAMBA(", \"hidden_act\": \"gelu\""), "Mamba has silu"},
    {MAMBA(", \"intermediate_size\": 33"), "is not expand times hidden_size"},
    {GEMMA2(""), NULL},
    {GEMMA2(", \"attn_logit_softcapping\": null"), NULL},
    {GEMMA2(", \"attn_logit_softcapping\": -1"), "attn_logit_softcapping"},
    {GEMMA2(", \"query_pre_attn_scalar\": 0"), "query_pre_attn_scalar"},
};

static void test_configs(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        const ls_status status =
            ls_family_parse(&ctx, configs[i].text, strlen(configs[i].text), "config.json", &family);
        expect_sentence(configs[i].text, status, &ctx, configs[i].sentence);
        ls_family_close(&ctx, &family);
    }
}

/* ---- stored numbers ---- */

static void test_stored_types(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    static const union {
        double f64[3];
        float f32[3];
        uint16_t half[3];
        int64_t i64[3];
        int32_t i32[3];
        int16_t i16[3];
        int8_t i8[3];
    } one[] = {{.f64 = {1, -2, 3}},
               {.f32 = {1, -2, 3}},
               {.half = {0x3F80, 0xC000, 0x4040}},
               {.half = {0x3C00, 0xC000, 0x4200}},
               {.i64 = {1, -2, 3}},
               {.i32 = {1, -2, 3}},
               {.i16 = {1, -2, 3}},
               {.i8 = {1, -2, 3}},
               {.i64 = {1, 2, 3}},
               {.i32 = {1, 2, 3}},
               {.i16 = {1, 2, 3}},
               {.i8 = {1, 2, 3}},
               {.i8 = {1, 0, 1}}};
    static const ls_stored_type types[] = {
        LS_STORED_F64, LS_STORED_F32, LS_STORED_BF16, LS_STORED_F16, LS_STORED_I64,
        LS_STORED_I32, LS_STORED_I16, LS_STORED_I8,   LS_STORED_U64, LS_STORED_U32,
        LS_STORED_U16, LS_STORED_U8,  LS_STORED_BOOL};
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const double second = t < 8 ? -2 : t < 12 ? 2 : 0, third = t == 12 ? 1 : 3;
        const ls_safetensor_source source = {"a", types[t], 1, (const int64_t[]){3}, &one[t]};
        const char *path = in_folder("types.safetensors");
        ls_safetensors file;
        assert_int_equal(ls_safetensors_write(&ctx, path, &source, 1, NULL, 0), LS_OK);
        assert_int_equal(ls_safetensors_open(&ctx, path, &file), LS_OK);
        const ls_safetensor *tensor = ls_safetensors_find(&file, "a");
        double f64[3], *values;
        float f32[3];
        ls_bf16 bf16[3];
        int32_t i32[3];
        ls_safetensor_read(tensor, 0, 3, LS_F64, f64);
        ls_safetensor_read(tensor, 0, 3, LS_F32, f32);
        ls_safetensor_read(tensor, 0, 3, LS_BF16, bf16);
        const double wanted[] = {1, second, third};
        for (int i = 0; i < 3; i++) {
            assert_float_equal(f64[i], wanted[i], 0);
            assert_float_equal(f32[i], wanted[i], 0);
            assert_float_equal(ls_bf16_to_f32(bf16[i]), wanted[i], 0);
        }
        const ls_status status = ls_safetensor_i32(&ctx, tensor, 0, 3, i32);
        expect_sentence(ls_safetensor_type_name(tensor), status, &ctx,
                        t < 4 ? "not whole numbers" : NULL);
        for (int i = 0; t >= 4 && i < 3; i++) assert_int_equal(i32[i], (int)wanted[i]);
        ctx.error = (ls_error){0};
        assert_int_equal(ls_safetensor_values(&ctx, tensor, &values), LS_OK);
        assert_float_equal(values[1], second, 0);
        ls_free(&ctx, values);
        ls_safetensors_close(&ctx, &file);
    }
    static const int64_t large[] = {1, INT64_C(1) << 40};
    const ls_safetensor_source source = {"a", LS_STORED_I64, 1, (const int64_t[]){2}, large};
    ls_safetensors file;
    int32_t out[2];
    assert_int_equal(ls_safetensors_write(&ctx, in_folder("l"), &source, 1, NULL, 0), LS_OK);
    assert_int_equal(ls_safetensors_open(&ctx, in_folder("l"), &file), LS_OK);
    expect_sentence("large", ls_safetensor_i32(&ctx, &file.items[0], 0, 2, out), &ctx,
                    "element 1 does not fit 32 bits");
    ls_safetensors_close(&ctx, &file);
    static const double numbers[] = {1.5, -2};
    uint16_t halves[2];
    double wide[2];
    float narrow[2];
    ls_stored_round(numbers, 2, LS_STORED_F16, halves);
    assert_int_equal(halves[0], 0x3E00);
    ls_stored_round(numbers, 2, LS_STORED_BF16, halves);
    assert_int_equal(halves[1], 0xC000);
    ls_stored_round(numbers, 2, LS_STORED_F64, wide);
    ls_stored_round(numbers, 2, LS_STORED_F32, narrow);
    assert_true(wide[0] == 1.5 && narrow[1] == -2);
}

static ls_status read_rows(ls_ctx *ctx, void *user) {
    const ls_safetensor *tensor = user;
    for (int transposed = 0; transposed < 2; transposed++) {
        /* [2,3,1], in the file perhaps as [3,2,1] */
        static const double wanted[2][6] = {{1, 2, 3, 4, 5, 6}, {1, 3, 5, 2, 4, 6}};
        double *rows;
        LS_TRY(ls_stored_rows(ctx, tensor, (ls_rows_shape){2, 3, 1, transposed}, &rows));
        for (int i = 0; i < 6; i++) assert_float_equal(rows[i], wanted[transposed][i], 0);
        ls_free(ctx, rows);
    }
    return LS_OK;
}

static void test_stored_rows(void **state) {
    (void)state;
    static const float values[] = {1, 2, 3, 4, 5, 6};
    ls_safetensor tensor = {.name = "x",
                            .type = LS_STORED_F32,
                            .rank = 3,
                            .dim = {2, 3, 1},
                            .count = 6,
                            .bytes = sizeof values,
                            .data = (const uint8_t *)values};
    fail_each_allocation(read_rows, &tensor);
}

/* ---- UTF-8 and categories ---- */

static void test_characters(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t used;
    } points[] = {{"a", 1},
                  {"\xC3\xA9", 2},
                  {"\xE2\x96\x81", 3},
                  {"\xED\x9F\xBF", 3},
                  {"\xED\xA0\x80", 0}, /* a surrogate */
                  {"\xF0\x9F\x98\x80", 4},
                  {"\xF0\x8F\xBF\xBF", 0}, /* longer than needed */
                  {"\xF4\x8F\xBF\xBF", 4},
                  {"\xF4\x90\x80\x80", 0}, /* beyond U+10FFFF */
                  {"\xF5\x80\x80\x80", 0},
                  {"\xC0\xAF", 0},
                  {"\xE0\x9F\xBF", 0},
                  {"\x80", 0},
                  {"\xE2\x96", 0}};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        int32_t point;
        const char *bytes = points[i].bytes;
        assert_int_equal(ls__utf8_take((const uint8_t *)bytes, strlen(bytes), &point),
                         points[i].used);
    }
    static const struct {
        int32_t point;
        bool word;
    } words[] = {{'a', true},      {'Z', true},      {'5', true},     {'_', true},
                 {'-', false},     {0x200C, true},   {0x200D, true},  {0x24B6, true},
                 {0x24E9, true},   {0x24EA, false},  {0x1F130, true}, {0x1F14A, false},
                 {0x1F150, true},  {0x1F169, true},  {0x1F170, true}, {0x1F189, true},
                 {0x1F18A, false}, {0xE9, true},     {0x300, true},   {0x203F, true},
                 {0x2022, false},  {0x1F600, false}, {0x2160, true}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (ls__is_word(words[i].point) != words[i].word) fail_msg("U+%04X", words[i].point);
    assert_int_equal(ls__grapheme((const uint8_t *)"", 0), 0);
    assert_int_equal(ls__grapheme((const uint8_t *)"\xFF", 1), 1);
    assert_int_equal(ls__grapheme((const uint8_t *)"e\xCC\x81x", 4), 3);
    assert_int_equal(ls__grapheme((const uint8_t *)"a\xFF", 2), 1);
}

/* ---- our own tokenizers as a tokenizer.json ---- */

static void expect_same_tokenizer(ls_ctx *ctx, const ls_tokenizer *one, const char *where) {
    static const char text[] = "the whole of the whole, 123 and \xC3\xA9t\xC3\xA9\n\n it's";
    ls_tokenizer *other;
    ls_ids a = {0}, b = {0};
    const ls_status status = ls_tokenizer_load(ctx, where, &other);
    if (status != LS_OK) fail_msg("%s", ctx->error.message);
    assert_int_equal(ls_tokenizer_encode(ctx, one, text, sizeof text - 1, false, &a), LS_OK);
    assert_int_equal(ls_tokenizer_encode(ctx, other, text, sizeof text - 1, false, &b), LS_OK);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.at, b.at, a.count * sizeof *a.at);
    ls_ids_clear(ctx, &a);
    ls_ids_clear(ctx, &b);
    ls_tokenizer_free(ctx, other);
}

static void test_exported_tokenizers(void **state) {
    (void)state;
    static const char sample[] =
        "the whole of the whole and the rest of the whole, it's 123 123 été";
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer[2];
    ls_bpe_trainer *trainer;
    assert_int_equal(ls_tokenizer_new_byte(&ctx, &tokenizer[0]), LS_OK);
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, sample, sizeof sample - 1), LS_OK);
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 280, &tokenizer[1]), LS_OK);
    ls_bpe_trainer_free(&ctx, trainer);
    for (int i = 0; i < 2; i++) {
        char out[256], again[256];
        snprintf(out, sizeof out, "%s/exported-%d", folder, i);
        snprintf(again, sizeof again, "%s/again-%d", folder, i);
        assert_int_equal(ls_folder_make(&ctx, out), LS_OK);
        assert_int_equal(ls_folder_make(&ctx, again), LS_OK);
        assert_int_equal(ls_tokenizer_export(&ctx, tokenizer[i], out), LS_OK);
        expect_same_tokenizer(&ctx, tokenizer[i], out);
        ls_tokenizer *read; /* one that keeps its files gives these */
        ls_text json = {0};
        assert_int_equal(ls_tokenizer_load(&ctx, out, &read), LS_OK);
        assert_int_equal(ls_tokenizer_json(&ctx, read, &json), LS_OK);
        assert_true(json.length > 0);
        assert_int_equal(ls_tokenizer_export(&ctx, read, again), LS_OK);
        expect_same_tokenizer(&ctx, tokenizer[i], again);
        ls_text_clear(&ctx, &json);
        ls_tokenizer_free(&ctx, read);
        ls_tokenizer_free(&ctx, tokenizer[i]);
    }
}

static int begin(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int end(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    return ls_folder_remove(&ctx, folder) != LS_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_configs), cmocka_unit_test(test_stored_types),
        cmocka_unit_test(test_stored_rows), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_exported_tokenizers)};
    return cmocka_run_group_tests(tests, begin, end);
}
