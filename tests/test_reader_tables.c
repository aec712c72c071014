/* Readers against tables: each row is one thing that a file says, and the sentence that refuses it,
 * or what is made of it. */
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

#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "model/family.h"
#include "model/gguf_write.h"
#include "model/safetensors.h"

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

/* ---- GGUF: keys of a model ---- */

/* A value: its kind, a colon, and what it is. */
static void put_value(ls_gguf_writer *w, const char *key, const char *value) {
    enum { MOST = 8 };
    const char *text = value + 2;
    float reals[MOST];
    int32_t numbers[MOST];
    bool flags[MOST];
    ls_gguf_text words[MOST];
    size_t count = 0;
    for (const char *at = text; *at != '\0' && count < MOST; count++) {
        const size_t length = strcspn(at, ",");
        reals[count] = strtof(at, NULL);
        numbers[count] = (int32_t)strtol(at, NULL, 10);
        flags[count] = at[0] == '1';
        words[count] = (ls_gguf_text){at, length};
        at += length + (at[length] == ',');
    }
    switch (value[0]) {
    case 's':
        ls_gguf_put_text(w, key, text);
        break;
    case 'u':
        ls_gguf_put_u32(w, key, (uint32_t)strtoul(text, NULL, 10));
        break;
    case 'f':
        ls_gguf_put_f32(w, key, strtof(text, NULL));
        break;
    case 'b':
        ls_gguf_put_bool(w, key, text[0] == '1');
        break;
    case 'S':
        ls_gguf_put_texts(w, key, words, count);
        break;
    case 'F':
        ls_gguf_put_f32s(w, key, reals, count);
        break;
    case 'I':
        ls_gguf_put_i32s(w, key, numbers, count);
        break;
    case 'B':
        ls_gguf_put_bools(w, key, flags, count);
        break;
    default:
        fail_msg("%s", value);
    }
}

static const char *const usual[][2] = {
    {"general.architecture", "s:llama"},
    {"llama.context_length", "u:64"},
    {"llama.embedding_length", "u:16"},
    {"llama.block_count", "u:1"},
    {"llama.feed_forward_length", "u:32"},
    {"llama.attention.head_count", "u:2"},
    {"llama.attention.layer_norm_rms_epsilon", "f:1e-5"},
};
enum { USUAL = sizeof usual / sizeof usual[0] };

typedef struct row {
    const char *key,
        *value;           /* in place of the usual one, or beside them; value NULL: it is missing */
    const char *sentence; /* NULL: it is taken */
    const char *key2, *value2;
    const char *tensor; /* one more, NAME:VALUES */
} row;

static const row rows[] = {
    {"general.name", "s:plain", NULL, NULL, NULL, NULL},
    {"general.architecture", NULL, "`general.architecture` is missing", NULL, NULL, NULL},
    {"general.architecture", "u:3", "`general.architecture` is missing", NULL, NULL, NULL},
    {"general.architecture", "s:", "`general.architecture` is missing", NULL, NULL, NULL},
    {"general.architecture", "s:nobody", "the architecture `nobody` is not known", NULL, NULL,
     NULL},
    {"general.architecture",
     "s:0123456789012345678901234567890123456789012345678901234567890123456789",
     "`general.architecture` is missing", NULL, NULL, NULL},
    {"general.type", "s:model", NULL, NULL, NULL, NULL},
    {"general.type", "s:adapter", "this is no model", NULL, NULL, NULL},
    {"general.type", "s:modes", "this is no model", NULL, NULL, NULL},
    {"general.type", "u:1", "this is no model", NULL, NULL, NULL},
    {"foreign.key", "u:1", "the key `foreign.key` is not understood", NULL, NULL, NULL},
    {"llamas.key", "u:1", "the key `llamas.key` is not understood", NULL, NULL, NULL},
    {"llama.unheard_of", "u:1", "unheard_of", NULL, NULL, NULL},
    {"llama.unheard_of", "u:0", NULL, NULL, NULL, NULL},
    {"llama.unheard_of", "s:word", "unheard_of", NULL, NULL, NULL},
    {"llama.block_count", "I:1,1", NULL, NULL, NULL, NULL},
    {"llama.block_count", "I:1,2", "has no value that is understood", NULL, NULL, NULL},
    {"llama.block_count", "S:a,bc", "has no value that is understood", NULL, NULL, NULL},
    {"llama.block_count", "s:one", "num_hidden_layers", NULL, NULL, NULL},
    {"llama.block_count", "b:1", "num_hidden_layers", NULL, NULL, NULL},
    {"llama.rope.freq_base", "f:inf", "has no value that is understood", NULL, NULL, NULL},
    {"llama.attention.head_count", "u:3", "3 heads do not divide a width of 16", NULL, NULL, NULL},
    {"llama.attention.value_length", "u:4", "not as wide as those of keys", NULL, NULL, NULL},
    {"llama.attention.value_length", "s:a", "must be a number", NULL, NULL, NULL},
    {"llama.attention.value_length", "I:8,8", "must be a number", NULL, NULL, NULL},
    {"llama.rope.dimension_count", "u:9", "more of a head is rotated than there is", NULL, NULL,
     NULL},
    {"llama.attention.sliding_window_pattern", "s:a", "must be a number or a list of flags", NULL,
     NULL, NULL},
    {"llama.attention.sliding_window_pattern", "I:1,0", "must be a number or a list of flags", NULL,
     NULL, NULL},
    {"llama.rope.scaling.type", "u:1", "must be a short text", NULL, NULL, NULL},
    {"llama.rope.scaling.type", "s:0123456789012345678901234567890123456789",
     "must be a short text", NULL, NULL, NULL},
    {"llama.rope.scaling.type", "s:curved", "the rope scaling `curved` is not known", NULL, NULL,
     NULL},
    {"llama.rope.scaling.type", "s:longrope", "longrope needs the tensors", NULL, NULL, NULL},
    {"llama.rope.scaling.type", "s:none", NULL, "llama.rope.scaling.factor", "f:2", NULL},
    {"llama.rope.scaling.type", "s:linear", NULL, "llama.rope.scaling.factor", "f:2", NULL},
    {"llama.rope.scaling.type", "s:linear", "goes with yarn", "llama.rope.scaling.attn_factor",
     "f:2", NULL},
    {"llama.rope.scaling.type", "s:yarn", NULL, "llama.rope.scaling.factor", "f:2", NULL},
    {"llama.rope.scaling.type", "s:yarn", NULL, "llama.rope.scaling.factor", "f:0", NULL},
    {"llama.rope.scaling.original_context_length", "f:1e30", NULL, "llama.rope.scaling.factor",
     "f:2", NULL},
    {"general.name", "s:a", "rope_freqs.weight has factors that are not positive", NULL, NULL,
     "rope_freqs.weight:1,-1,1,1"},
    {"llama.rope.scaling.factor", "f:2", "rope_freqs and another scaling", NULL, NULL,
     "rope_freqs.weight:1,1,1,1"},
    {"general.name", "s:a", NULL, NULL, NULL, "rope_freqs.weight:1,1,8,8"},
    {"general.name", "s:a", "rope_factors_short.weight must be a list of F32", NULL, NULL,
     "rope_factors_long.weight:1,1,1,1"},
    {"split.count", "u:2", "is one of 2 parts", NULL, NULL, NULL},
    {"split.count", "u:5000", "is one of 5000 parts", NULL, NULL, NULL},
    {"split.count", "u:1", NULL, NULL, NULL, NULL},
    {"split.count", "s:two", NULL, NULL, NULL, NULL},
    {"tokenizer.ggml.eot_token_id", "s:x", NULL, NULL, NULL, NULL},
    {"tokenizer.ggml.eot_token_id", "u:4000000000", NULL, NULL, NULL, NULL},
    {"token_embd", NULL, "there is no token_embd.weight of two axes", NULL, NULL, NULL},
};

static void write_row(ls_ctx *ctx, const char *path, const row *r) {
    ls_gguf_writer *w;
    float zeros[8 * 16] = {0};
    assert_int_equal(ls_gguf_writer_new(ctx, path, &w), LS_OK);
    for (size_t i = 0; i < USUAL; i++)
        if (strcmp(usual[i][0], r->key) != 0) put_value(w, usual[i][0], usual[i][1]);
    if (r->value != NULL) put_value(w, r->key, r->value);
    if (r->key2 != NULL) put_value(w, r->key2, r->value2);
    const bool flat = strcmp(r->key, "token_embd") == 0;
    ls_gguf_declare(w, "token_embd.weight", LS_GGML_F32, flat ? 1 : 2,
                    flat ? (const int64_t[]){128} : (const int64_t[]){8, 16});
    char name[64] = "";
    float values[4] = {0};
    if (r->tensor != NULL) {
        const size_t length = strcspn(r->tensor, ":");
        snprintf(name, sizeof name, "%.*s", (int)length, r->tensor);
        sscanf(r->tensor + length, ":%f,%f,%f,%f", values, values + 1, values + 2, values + 3);
        ls_gguf_declare(w, name, LS_GGML_F32, 1, (const int64_t[]){4});
    }
    ls_gguf_append(w, zeros, 8 * 16);
    if (r->tensor != NULL) ls_gguf_append(w, values, 4);
    const ls_status status = ls_gguf_finish(w);
    if (status != LS_OK) fail_msg("%s: %s", r->key, ctx->error.message);
}

static void test_gguf_keys(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_family family;
        const char *path = in_folder("model.gguf");
        write_row(&ctx, path, &rows[i]);
        const ls_status status = ls_family_open(&ctx, path, &family);
        expect_sentence(rows[i].key, status, &ctx, rows[i].sentence);
        ls_family_close(&ctx, &family);
    }
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
        cmocka_unit_test(test_gguf_keys), cmocka_unit_test(test_configs),
        cmocka_unit_test(test_stored_types), cmocka_unit_test(test_characters),
        cmocka_unit_test(test_exported_tokenizers)};
    return cmocka_run_group_tests(tests, begin, end);
}
