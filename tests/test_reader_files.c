/* Readers of whole files against tables: manifests of checkpoints, vocabularies and numbers of GGUF
 * files, the configuration beside a SentencePiece model; and what the writer of GGUF refuses.
 * Tier: memory. */
#include "base/json.h"
#include "data/tokenizer.h"
#include "model/gguf_write.h"
#include "train_fixture.h"

#include "failing_json.h"

static void expect_sentence(const char *about, ls_status status, const ls_ctx *ctx,
                            const char *sentence) {
    const bool said = ctx->error.code == status && sentence != NULL &&
                      strstr(ctx->error.message, sentence) != NULL;
    if (sentence == NULL ? status != LS_OK : status == LS_OK || !said)
        fail_msg("%s: %s, \"%s\" in place of \"%s\"", about, ls_status_name(status),
                 ctx->error.message, sentence == NULL ? "" : sentence);
}

/* ---- manifests: forged, with a seal that fits ---- */

static void write_manifest(ls_ctx *ctx, const char *path, json_t *manifest) {
    char seal[17];
    json_object_del(manifest, "seal");
    char *text = ls_json_dump(manifest, JSON_COMPACT);
    snprintf(seal, sizeof seal, "%016llx", (unsigned long long)ls_hash(text, strlen(text)));
    free(text);
    json_object_set_new(manifest, "seal", json_string(seal));
    assert_int_equal(ls_json_write(ctx, path, manifest), LS_OK);
}

static void test_manifests(void **state) {
    (void)state;
    static const struct {
        const char *key, *value, *sentence; /* the key's value, as JSON */
    } rows[] = {
        {"version", "2", "is of version 2"},
        {"version", "\"1\"", "`version` must be a whole number"},
        {"step", "5", "that of another step"},
        {"step", "-1", "`step` must be 0 to"},
        {"config", "7", "`config`"},
        {"files", "[]", "the manifest lacks model.safetensors"},
        {"files", "[{\"name\": 3}]", "`name`"},
        {"files", "[{\"name\": \"model.safetensors\", \"bytes\": -1, \"xxh3\": \"\"}]", "`bytes`"},
        {"files", "[{\"name\": \"model.safetensors\", \"bytes\": 1}]", "`xxh3`"},
        {"files", "[{\"name\": \"/etc/passwd\", \"bytes\": 1, \"xxh3\": \"\"}]", "a strange file"},
        {"files", "[{\"name\": \"model.safetensors\", \"bytes\": 1, \"xxh3\": \"\"}]", "not 1"},
        {"files", "[{\"name\": \"memory.bin\", \"bytes\": 1, \"xxh3\": \"\"}]", "memory.bin"},
    };
    fixture f;
    ls_train_result result;
    char folder[200], path[256], other[256];
    fixture_open(&f, NULL, "steps=4", "checkpoint_every=4", NULL);
    assert_int_equal(fixture_run(&f, &result), LS_OK);
    fixture_path(&f, "checkpoints", folder, sizeof folder);
    snprintf(path, sizeof path, "%s/step-00000004/manifest.json", folder);
    json_t *good = NULL;
    assert_int_equal(ls_json_read(&f.ctx, path, 1 << 20, &good), LS_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_t *forged = json_deep_copy(good);
        json_object_set_new(forged, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        write_manifest(&f.ctx, path, forged);
        json_decref(forged);
        f.ctx.error = (ls_error){0};
        expect_sentence(rows[i].value, ls_checkpoint_verify(&f.ctx, folder, 4), &f.ctx,
                        rows[i].sentence);
    }
    json_t *twice = json_deep_copy(good), *list = json_object_get(twice, "files");
    json_array_append(list, json_array_get(list, 0));
    write_manifest(&f.ctx, path, twice);
    json_decref(twice);
    f.ctx.error = (ls_error){0};
    expect_sentence("twice", ls_checkpoint_verify(&f.ctx, folder, 4), &f.ctx, "a strange file");
    /* without a seal, and with another's */
    json_object_del(good, "seal");
    assert_int_equal(ls_json_write(&f.ctx, path, good), LS_OK);
    f.ctx.error = (ls_error){0};
    expect_sentence("no seal", ls_checkpoint_verify(&f.ctx, folder, 4), &f.ctx, "`seal`");
    json_object_set_new(good, "seal", json_string("0000000000000000"));
    assert_int_equal(ls_json_write(&f.ctx, path, good), LS_OK);
    f.ctx.error = (ls_error){0};
    expect_sentence("a seal", ls_checkpoint_verify(&f.ctx, folder, 4), &f.ctx, "is damaged");
    write_manifest(&f.ctx, path, good);
    json_decref(good);
    /* names beside it that are no checkpoints are left alone */
    static const char *const strange[] = {
        "notes", "step-", "step-9x", "step-99999999999999999999", "other.tmp", "step-00000009.tmp"};
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, strange[i]);
        assert_int_equal(ls_folder_make(&f.ctx, other), LS_OK);
    }
    int64_t step;
    assert_int_equal(ls_checkpoint_find(&f.ctx, folder, other, sizeof other, &step), LS_OK);
    assert_int_equal(step, 4);
    assert_int_equal(ls_checkpoint_sweep(&f.ctx, folder), LS_OK);
    for (size_t i = 0; i < sizeof strange / sizeof strange[0]; i++) {
        snprintf(other, sizeof other, "%s/%s", folder, strange[i]);
        assert_int_equal(ls_path_exists(other), i + 1 < sizeof strange / sizeof strange[0]);
    }
    bool edited = true;
    assert_int_equal(ls_checkpoint_edited(&f.ctx, f.folder, "nowhere", &edited), LS_OK);
    assert_false(edited); /* there is no manifest that could say so */
    fixture_close(&f, true);
}

/* ---- numbers of every kind in GGUF ---- */

static void test_gguf_numbers(void **state) {
    (void)state;
    static const union {
        uint8_t bytes[8];
        uint64_t u64;
        int64_t i64;
        double f64;
        float f32;
    } minus = {.i64 = -2}, five = {.u64 = 5}, huge = {.u64 = UINT64_MAX}, half = {.f64 = 0.5},
      quarter = {.f32 = 0.25F};
    const struct {
        ls_gguf_kind kind;
        const uint8_t *bytes;
        size_t length;
        bool whole, real;
        double value;
    } rows[] = {
        {LS_GGUF_U8, five.bytes, 1, true, true, 5},
        {LS_GGUF_I8, minus.bytes, 1, true, true, -2},
        {LS_GGUF_U16, five.bytes, 2, true, true, 5},
        {LS_GGUF_I16, minus.bytes, 2, true, true, -2},
        {LS_GGUF_U32, five.bytes, 4, true, true, 5},
        {LS_GGUF_I32, minus.bytes, 4, true, true, -2},
        {LS_GGUF_U64, five.bytes, 8, true, true, 5},
        {LS_GGUF_U64, huge.bytes, 8, false, false, 0},
        {LS_GGUF_I64, minus.bytes, 8, true, true, -2},
        {LS_GGUF_F32, quarter.bytes, 4, false, true, 0.25},
        {LS_GGUF_F64, half.bytes, 8, false, true, 0.5},
        {LS_GGUF_BOOL, five.bytes, 1, false, false, 0}, /* neither true nor false */
        {LS_GGUF_TEXT, five.bytes, 8, false, false, 0}, /* longer than what is there */
        {LS_GGUF_TEXT, five.bytes, 4, false, false, 0},
        /* cut short */
        {LS_GGUF_U64, five.bytes, 4, false, false, 0},
        {LS_GGUF_F32, quarter.bytes, 2, false, false, 0},
        {LS_GGUF_F64, half.bytes, 4, false, false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint64_t count = 0; count < 2; count++) {
            const ls_gguf_key key = {.name = "n",
                                     .kind = count == 0 ? LS_GGUF_ARRAY : rows[i].kind,
                                     .element = rows[i].kind,
                                     .count = count,
                                     .value = {rows[i].bytes, rows[i].length}};
            int64_t whole = 0;
            double real = 0;
            bool flag;
            ls_gguf_text text;
            assert_int_equal(ls_gguf_integer(&key, &whole), rows[i].whole && count > 0);
            assert_int_equal(ls_gguf_real(&key, &real), rows[i].real && count > 0);
            assert_false(ls_gguf_boolean(&key, &flag));
            assert_false(ls_gguf_string(&key, &text));
            if (count > 0 && rows[i].whole) assert_int_equal(whole, (int64_t)rows[i].value);
            if (count > 0 && rows[i].real) assert_float_equal(real, rows[i].value, 0);
        }
    ls_gguf_walk none = ls_gguf_walk_of(NULL);
    assert_false(ls_gguf_next(&none));
    /* of a list that is cut, the values that are there */
    for (int text = 0; text < 2; text++) {
        const ls_gguf_key list = {.name = "n",
                                  .kind = LS_GGUF_ARRAY,
                                  .element = text ? LS_GGUF_TEXT : LS_GGUF_U32,
                                  .count = 2,
                                  .value = {five.bytes, 8}};
        ls_gguf_walk walk = ls_gguf_walk_of(&list);
        assert_int_equal(ls_gguf_next(&walk), !text);
        assert_int_equal(ls_gguf_next(&walk), !text);
        assert_false(ls_gguf_next(&walk));
        const ls_gguf_key cut = {list.name, list.kind, list.element, 2, {five.bytes, 4}};
        walk = ls_gguf_walk_of(&cut);
        assert_int_equal(ls_gguf_next(&walk), !text);
        assert_false(ls_gguf_next(&walk));
    }
}

/* ---- what the writer of GGUF refuses ---- */

static void test_gguf_writer(void **state) {
    (void)state;
    static const struct {
        const char *key, *tensor;
        uint32_t type;
        int rank;
        int64_t dim[5];
        const char *sentence;
    } rows[] = {
        {"", "a", LS_GGML_F32, 1, {4}, "cannot be the name of a key"},
        {"@", "a", LS_GGML_F32, 1, {4}, "cannot be the name of a key"}, /* @: of 600 letters */
        {"one", "a", LS_GGML_F32, 1, {4}, "would stand twice"},
        {"wone", "a", LS_GGML_F32, 1, {4}, NULL},
        {"onew", "", LS_GGML_F32, 1, {4}, "cannot be written"},
        {"k", "@", LS_GGML_F32, 1, {4}, "cannot be written"},
        {"k", "a", LS_GGML_F32, 0, {4}, "cannot be written"},
        {"k", "a", LS_GGML_F32, 5, {1, 1, 1, 1, 4}, "cannot be written"},
        {"k", "a", LS_GGML_F32, 1, {0}, "cannot be written"},
        {"k", "a", LS_GGML_Q8_0, 1, {4}, "cannot be written"},
        {"k", "a", LS_GGML_Q4_0, 1, {32}, "cannot be written"},
        {"k", "a", LS_GGML_F32, 2, {0, 4}, "impossible shape"},
        {"k", "a", LS_GGML_F32, 2, {INT64_MAX, 4}, "impossible shape"},
        {"k", "a", LS_GGML_F32, 1, {INT64_MAX}, "impossible shape"},
        {"k", "a", LS_GGML_F32, 1, {3}, "more values than"},
        {"k", "a", LS_GGML_F32, 1, {5}, "the values of a are missing"},
    };
    char long_name[601], folder[] = "/tmp/longshot-writer-XXXXXX", path[128];
    memset(long_name, 'a', 600);
    long_name[600] = '\0';
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const float values[4] = {1, 2, 3, 4};
        ls_gguf_writer *w;
        ctx.error = (ls_error){0};
        assert_int_equal(ls_gguf_writer_new(&ctx, path, &w), LS_OK);
        ls_gguf_put_u32(w, "one", 1);
        ls_gguf_put_u32(w, rows[i].key[0] == '@' ? long_name : rows[i].key, 1);
        ls_gguf_declare(w, rows[i].tensor[0] == '@' ? long_name : rows[i].tensor, rows[i].type,
                        rows[i].rank, rows[i].dim);
        ls_gguf_append(w, values, 4);
        expect_sentence(rows[i].key, ls_gguf_finish(w), &ctx, rows[i].sentence);
        assert_int_equal(ls_path_exists(path), rows[i].sentence == NULL);
        unlink(path);
    }
    assert_int_equal(ls_folder_remove(&ctx, folder), LS_OK);
}

/* ---- vocabularies of GGUF files ---- */

static const ls_gguf_text tokens[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4},  {"a", 1},
                                      {"b", 1},     {"ab", 2},  {"[PAD6]", 6}};
static const ls_gguf_text with_nul[] = {{"<unk>", 5}, {"a\0b", 3}},
                          bytes[] = {{"<unk>", 5}, {"\xFF", 1}};
static const ls_gguf_text words[] = {{"[UNK]", 5},
                                     {"[CLS]", 5},
                                     {"[SEP]", 5},
                                     {"\xE2\x96\x81"
                                      "a",
                                      4},
                                     {"b", 1},
                                     {"[c", 2},
                                     {"[PAD6]", 6}};
static const ls_gguf_text merges[] = {{"a b", 3}}, bad_merges[] = {{"\xFF\xFE", 2}};
static const int32_t types[] = {2, 3, 3, 1, 1, 1, 5}, plain[] = {1, 1, 4, 1, 1, 1, 1},
                     strange_types[] = {1, 1, 1, 9, 1, 1, 1};
static const float scores[] = {0, 0, 0, -1, -2, -3, 0};
enum { TOKENS = sizeof tokens / sizeof tokens[0] };
static void expect_vocabulary(const ls_gguf_vocabulary *v, const char *about,
                              const char *sentence) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    const ls_status status = ls_tokenizer_new_gguf(&ctx, v, "file", &tokenizer);
    expect_sentence(about, status, &ctx, sentence);
    ls_tokenizer_free(&ctx, tokenizer);
}

/* A usual vocabulary of a kind, changed. */
#define EXPECT(sentence, kind, ...)                                                                \
    do {                                                                                           \
        ls_gguf_vocabulary v = ls_gguf_vocabulary_empty;                                           \
        v.model = kind, v.tokens = tokens, v.token_count = TOKENS;                                 \
        v.unk = 0, v.bos = 1, v.eos = 2;                                                           \
        __VA_ARGS__;                                                                               \
        expect_vocabulary(&v, #__VA_ARGS__, sentence);                                             \
    } while (0)

static void test_vocabularies(void **state) {
    (void)state;
    EXPECT(NULL, "gpt2", v.merges = merges, v.merge_count = 1);
    EXPECT(NULL, "gpt2", v.pre = "mpt", v.types = plain);
    EXPECT(NULL, "gpt2", v.pre = "unheard", v.types = types, v.add_eos = 1);
    EXPECT(NULL, "gpt2", v.architecture = "falcon", v.add_bos = 1);
    EXPECT("merge number 0 is not text", "gpt2", v.merges = bad_merges, v.merge_count = 1);
    EXPECT(NULL, "llama", v.types = types, v.scores = scores);
    EXPECT(NULL, "llama", v.types = types, v.pad = 6, v.add_bos = 0, v.add_eos = 1);
    EXPECT(NULL, "llama", v.types = plain, v.unk = -1, v.scores = scores);
    EXPECT(NULL, "llama", v.types = plain, v.eos = -1, v.bos = -1, v.scores = scores);
    EXPECT(NULL, "t5", v.types = types, v.scores = scores, v.add_eos = 0);
    EXPECT(NULL, "t5", v.types = types, v.scores = scores, v.add_space_prefix = 0);
    EXPECT(NULL, "bert", v.tokens = words);
    EXPECT(NULL, "bert", v.tokens = words, v.cls = 3, v.sep = 4, v.add_bos = 0, v.add_eos = 0);
    EXPECT("has no unknown token", "bert", v.unk = -1);
    EXPECT("the vocabulary's model `rwkv` is not understood", "rwkv", v.pad = -1);
    EXPECT("has no vocabulary", NULL, v.pad = -1);
    EXPECT("has no vocabulary", "gpt2", v.token_count = 0);
    EXPECT("the special token 7 is not in the vocabulary", "gpt2", v.eos = 7);
    EXPECT("token number 3 has the unknown type 9", "gpt2", v.types = strange_types);
    EXPECT("has a NUL in it", "gpt2", v.tokens = with_nul, v.token_count = 2, v.eos = 1);
    EXPECT("is not UTF-8", "gpt2", v.tokens = bytes, v.token_count = 2, v.eos = 1);
}

static ls_status read_vocabulary(ls_ctx *ctx, void *user) {
    ls_tokenizer *tokenizer;
    const ls_status status = ls_tokenizer_new_gguf(ctx, user, "file", &tokenizer);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

/* A vocabulary becomes a tokenizer.json on the way. */
static void test_vocabularies_without_memory(void **state) {
    (void)state;
    static const struct {
        const char *model;
        const ls_gguf_text *tokens, *merges;
    } rows[] = {{"gpt2", tokens, merges}, {"llama", tokens, NULL}, {"bert", words, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_gguf_vocabulary v = ls_gguf_vocabulary_empty;
        v.model = rows[i].model, v.tokens = rows[i].tokens, v.token_count = TOKENS;
        v.merges = rows[i].merges, v.merge_count = rows[i].merges != NULL;
        v.types = types, v.scores = scores, v.unk = 0, v.bos = 1, v.eos = 2;
        fail_each_json(read_vocabulary, &v);
    }
}

/* ---- what stands beside a SentencePiece model ---- */

static void test_sentencepiece_configs(void **state) {
    (void)state;
    static const struct {
        const char *config, *sentence;
        int64_t more; /* ids beyond the model's pieces */
    } rows[] = {
        {"{}", NULL, 0},
        {"{\"tokenizer_class\": \"LlamaTokenizer\"}", NULL, 0},
        {"{\"tokenizer_class\": \"GemmaTokenizer\", \"add_eos_token\": true}", NULL, 0},
        {"{\"tokenizer_class\": \"T5Tokenizer\"}", NULL, 0},
        {"{\"tokenizer_class\": \"Other\", \"add_bos_token\": true}", NULL, 0},
        {"{\"added_tokens_decoder\": {\"N\": {\"content\": \"<new>\", \"special\": true}}}", NULL,
         1},
        {"{\"added_tokens_decoder\": {\"N\": {\"content\": \"<new>\", \"lstrip\": true}}}", NULL,
         1},
        {"{\"added_tokens_decoder\": {\"N\": {\"content\": \"<new>\", \"rstrip\": true}}}", NULL,
         1},
        {"{\"added_tokens_decoder\": {\"N\": {\"content\": \"<new>\", \"single_word\": true}}}",
         NULL, 1},
        {"{\"added_tokens_decoder\": {\"M\": {\"content\": \"<new>\"}}}", NULL,
         2}, /* a hole before */
        {"{\"added_tokens_decoder\": {\"1\": {\"content\": \"<s>\", \"special\": true}}}", NULL, 0},
        {"{\"added_tokens_decoder\": {\"2\": {\"content\": \"<new>\"}}}", "has no content or place",
         0},
        {"{\"added_tokens_decoder\": {\"x\": {\"content\": \"<new>\"}}}", "has no content or place",
         0},
        {"{\"added_tokens_decoder\": {\"9000000\": {\"content\": \"<new>\"}}}",
         "has no content or place", 0},
        {"{\"added_tokens_decoder\": {\"N\": {\"content\": \"\"}}}", "has no content or place", 0},
        {"{\"added_tokens_decoder\": {\"N\": {\"special\": true}}}", "has no content or place", 0},
        {"{\"added_tokens_decoder\": {\"N\": 3}}", "has no content or place", 0},
        {"[", "tokenizer_config.json", 0},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_text seed = {0};
    assert_int_equal(ls_file_read(&ctx,
                                  LS_TEST_SOURCE "/tests/fuzz/seeds/fuzz_sentencepiece/llama2",
                                  1 << 20, &seed),
                     LS_OK);
    const size_t skipped = 1 + (size_t)(uint8_t)seed.bytes[0];
    int64_t pieces = 0;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char config[256];
        const char *number = strpbrk(rows[i].config, "NM");
        if (number == NULL)
            snprintf(config, sizeof config, "%s", rows[i].config);
        else
            snprintf(config, sizeof config, "%.*s%lld%s", (int)(number - rows[i].config),
                     rows[i].config, (long long)pieces + (*number == 'M'), number + 1);
        ls_tokenizer *tokenizer;
        ctx.error = (ls_error){0};
        const ls_status status = ls_tokenizer_new_sentencepiece(
            &ctx, seed.bytes + skipped, seed.length - skipped, config, "file", &tokenizer);
        expect_sentence(config, status, &ctx, rows[i].sentence);
        if (status != LS_OK) continue;
        if (i == 0) pieces = ls_tokenizer_vocabulary(tokenizer);
        assert_int_equal(ls_tokenizer_vocabulary(tokenizer), pieces + rows[i].more);
        ls_ids ids = {0};
        ls_text out = {0};
        /* bytes that are no character beside it too */
        static const char text[] = "a <new>\xF0\x9F\x98\x80 b <new>\xFF\xFF<new>\x80<new> ";
        assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, text, sizeof text - 1,
                                             LS_ENCODE_TEMPLATE | LS_ENCODE_SPECIAL, &ids),
                         LS_OK);
        const int32_t outside[] = {-1, (int32_t)(pieces + 5), (int32_t)pieces, 3 + 0xF0, 3 + 'a'};
        assert_int_equal(ls_ids_append(&ctx, &ids, outside, 5), LS_OK);
        for (unsigned flags = 0; flags < 4; flags++)
            assert_int_equal(
                ls_tokenizer_decode_text(&ctx, tokenizer, ids.at, ids.count, flags, &out), LS_OK);
        assert_true(out.length > 0);
        assert_int_equal(strstr(out.bytes, "<new>") != NULL, true);
        ls_ids_clear(&ctx, &ids);
        ls_text_clear(&ctx, &out);
        ls_tokenizer_free(&ctx, tokenizer);
    }
    ls_text_clear(&ctx, &seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_manifests),

                                       cmocka_unit_test(test_gguf_numbers),
                                       cmocka_unit_test(test_gguf_writer),
                                       cmocka_unit_test(test_vocabularies),
                                       cmocka_unit_test(test_vocabularies_without_memory),
                                       cmocka_unit_test(test_sentencepiece_configs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
