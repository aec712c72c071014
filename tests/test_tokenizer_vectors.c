/* Ids and texts of the official libraries (tests/golden/tokenizers) against ours, string by string:
 * ids without and with special tokens, decoded text, decoding of arbitrary ids. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "data/tokenizer.h"
#include "data_fixture.h"
#include "gguf_fixture.h"

#define ROOT LS_TEST_SOURCE "/tests/golden/tokenizers"

typedef struct golden_set {
    const char *folder; /* of vectors.json */
    const ls_tokenizer *tokenizer;
    bool sentencepiece; /* the ids are SentencePiece's where the two differ */
    bool bare;          /* no file beside the model says what is put around a text */
    int wrong, compared;
} golden_set;

static void print_ids(const char *name, const int32_t *ids, size_t count) {
    fprintf(stderr, "  %s:", name);
    for (size_t i = 0; i < count; i++) fprintf(stderr, " %ld", (long)ids[i]);
    fprintf(stderr, "\n");
}

static void take_ids(ls_ctx *ctx, const json_t *list, ls_ids *out) {
    const json_t *number;
    size_t index;
    out->count = 0;
    json_array_foreach(list, index, number) {
        int32_t id = (int32_t)json_integer_value(number);
        assert_int_equal(ls_ids_append(ctx, out, &id, 1), LS_OK);
    }
}

static void compare_ids(ls_ctx *ctx, golden_set *set, size_t number, const json_t *text,
                        const json_t *expected, unsigned flags) {
    ls_ids ids = {0}, wanted = {0};
    take_ids(ctx, expected, &wanted);
    assert_int_equal(ls_tokenizer_encode(ctx, set->tokenizer, json_string_value(text),
                                         json_string_length(text), flags, &ids),
                     LS_OK);
    set->compared++;
    if (ids.count != wanted.count ||
        (ids.count > 0 && memcmp(ids.at, wanted.at, ids.count * sizeof *ids.at) != 0)) {
        set->wrong++;
        fprintf(stderr, "%s, string %zu, flags %u\n", set->folder, number, flags);
        print_ids("expected", wanted.at, wanted.count);
        print_ids("came out", ids.at, ids.count);
    }
    ls_ids_clear(ctx, &ids);
    ls_ids_clear(ctx, &wanted);
}

static void compare_text(ls_ctx *ctx, golden_set *set, size_t number, const json_t *ids_json,
                         const json_t *expected, unsigned flags) {
    ls_ids ids = {0};
    ls_text out = {0};
    take_ids(ctx, ids_json, &ids);
    assert_int_equal(ls_tokenizer_decode_text(ctx, set->tokenizer, ids.at, ids.count, flags, &out),
                     LS_OK);
    set->compared++;
    if (out.length != json_string_length(expected) ||
        memcmp(out.bytes, json_string_value(expected), out.length) != 0) {
        set->wrong++;
        fprintf(stderr, "%s, string %zu, flags %u: expected text\n  [%s]\n  [%s]\n", set->folder,
                number, flags, json_string_value(expected), out.bytes);
    }
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &out);
}

static json_t *read_json(const char *path) {
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0};
    json_t *json;
    assert_int_equal(ls_file_read(&ctx, path, 1 << 24, &text), LS_OK);
    assert_int_equal(ls_json_parse_line(&ctx, text.bytes, text.length, path, 1, &json), LS_OK);
    ls_text_clear(&ctx, &text);
    return json;
}

static const json_t *either(const json_t *object, const char *key, const json_t *otherwise) {
    const json_t *value = json_object_get(object, key);
    return value == NULL ? otherwise : value;
}

static void compare_set(golden_set *set) {
    ls_ctx ctx = ls_ctx_default();
    char path[600];
    snprintf(path, sizeof path, "%s/%s/vectors.json", ROOT, set->folder);
    json_t *vectors = read_json(path), *strings = read_json(ROOT "/strings.json");
    const json_t *list = json_object_get(vectors, "strings"), *vector;
    size_t index;
    assert_int_equal(json_array_size(list), json_array_size(strings));
    json_array_foreach(list, index, vector) {
        const json_t *text = json_array_get(strings, index), *ids = json_object_get(vector, "ids");
        const json_t *special = either(vector, "special", ids);
        if (set->sentencepiece && json_object_get(vector, "spm_ids") != NULL) {
            compare_ids(&ctx, set, index, text, json_object_get(vector, "spm_ids"), 0);
            continue;
        }
        unsigned parse = set->sentencepiece ? 0 : LS_ENCODE_SPECIAL;
        compare_ids(&ctx, set, index, text, ids, parse);
        if (!set->bare) compare_ids(&ctx, set, index, text, special, parse | LS_ENCODE_TEMPLATE);
        const json_t *decoded = either(vector, "decoded", text);
        if (set->sentencepiece && json_object_get(vector, "special") != NULL) continue;
        compare_text(&ctx, set, index, ids, decoded, LS_DECODE_UTF8);
        if (!set->sentencepiece)
            compare_text(&ctx, set, index, special, either(vector, "decoded_skip", decoded),
                         LS_DECODE_UTF8 | LS_DECODE_SKIP_SPECIAL);
    }
    list = set->sentencepiece ? NULL : json_object_get(vectors, "decode_only");
    json_array_foreach(list, index, vector) {
        const json_t *ids = json_object_get(vector, "ids");
        const json_t *decoded = json_object_get(vector, "decoded");
        compare_text(&ctx, set, 1000 + index, ids, decoded, LS_DECODE_UTF8);
        compare_text(&ctx, set, 1000 + index, ids, either(vector, "decoded_skip", decoded),
                     LS_DECODE_UTF8 | LS_DECODE_SKIP_SPECIAL);
    }
    json_decref(vectors);
    json_decref(strings);
    print_message("%s: %d of %d differ\n", set->folder, set->wrong, set->compared);
    assert_true(set->compared > 90);
    assert_int_equal(set->wrong, 0);
}

static void compare_files(const char *source, const char *folder, bool sentencepiece, bool bare) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_load(&ctx, source, &tokenizer) != LS_OK) fail_msg("%s", ctx.error.message);
    golden_set set = {folder, tokenizer, sentencepiece, bare, 0, 0};
    compare_set(&set);
    ls_tokenizer_free(&ctx, tokenizer);
}

#define FILES(name, folder, file, sentencepiece, bare)                                             \
    static void name(void **state) {                                                               \
        (void)state;                                                                               \
        compare_files(ROOT "/" folder file, folder, sentencepiece, bare);                          \
    }
FILES(test_bert, "bert", "", false, false)
FILES(test_gemma, "gemma", "", false, false)
FILES(test_gpt2, "gpt2", "/tokenizer.json", false, false)
FILES(test_llama2, "llama2", "", false, false)
FILES(test_llama2_model, "llama2", "/tokenizer.model", true, false)
FILES(test_llama3, "llama3", "", false, false)
FILES(test_neox, "neox", "", false, false)
FILES(test_qwen2, "qwen2", "", false, false)
FILES(test_roberta, "roberta", "", false, false)
FILES(test_t5, "t5", "", false, false)
FILES(test_t5_model, "t5", "/spiece.model", true, true)
FILES(test_unigram, "unigram-nmt_nfkc", "", true, false)

/* ---- GPT-2's real vocabulary ---- */

#define GPT2 ROOT "/gpt2-real"

/* The letter that stands for a byte, as UTF-8: the byte itself where it is printable, else the next
 * one from 256 on. */
static void letter_of(int code, char *out) {
    if (code < 128) {
        out[0] = (char)code;
        out[1] = '\0';
        return;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    out[2] = '\0';
}

static bool is_printable(int byte) {
    return (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
}

static void add_token(json_t *vocabulary, const char *token) {
    const size_t id = json_object_size(vocabulary);
    assert_int_equal(json_object_set_new(vocabulary, token, json_integer((json_int_t)id)), 0);
}

/* Writes encoder.json beside a copy of the merges: the printable bytes, the others, what the merges
 * make in their order, and the end of a text. */
static int make_gpt2(void **state) {
    ls_ctx ctx = ls_ctx_default();
    ls_text merges = {0};
    char token[600];
    int next = 256;
    if (fixture_make(state) != 0) return 1;
    json_t *vocabulary = json_object();
    for (int byte = 0; byte < 256; byte++) {
        if (!is_printable(byte)) continue;
        letter_of(byte, token);
        add_token(vocabulary, token);
    }
    for (int byte = 0; byte < 256; byte++) {
        if (is_printable(byte)) continue;
        letter_of(next++, token);
        add_token(vocabulary, token);
    }
    assert_int_equal(ls_file_read(&ctx, GPT2 "/vocab.bpe", 1 << 20, &merges), LS_OK);
    const char *line = strchr(merges.bytes, '\n') + 1; /* behind the version */
    for (const char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        assert_non_null(space);
        snprintf(token, sizeof token, "%.*s%.*s", (int)(space - line), line, (int)(end - space - 1),
                 space + 1);
        add_token(vocabulary, token);
    }
    add_token(vocabulary, "<|endoftext|>");
    fixture_file("vocab.bpe", merges.bytes, merges.length);
    assert_int_equal(json_dump_file(vocabulary, fixture_path("encoder.json"), 0), 0);
    json_decref(vocabulary);
    ls_text_clear(&ctx, &merges);
    return 0;
}

static void test_gpt2_real(void **state) {
    (void)state;
    compare_files(fixture_folder, "gpt2-real", false, false);
}

/* llama.cpp's vectors. */
static void test_gpt2_vectors(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_text in = {0}, out = {0};
    assert_int_equal(ls_tokenizer_load(&ctx, fixture_folder, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer), 50257);
    assert_int_equal(ls_tokenizer_end(tokenizer), 50256);
    assert_int_equal(ls_file_read(&ctx, GPT2 "/ggml-vocab-gpt-2.gguf.inp", 1 << 20, &in), LS_OK);
    assert_int_equal(ls_file_read(&ctx, GPT2 "/ggml-vocab-gpt-2.gguf.out", 1 << 20, &out), LS_OK);
    static const char border[] = "\n__ggml_vocab_test__\n";
    const char *expected = out.bytes;
    int compared = 0;
    for (const char *text = in.bytes; text != NULL; compared++) {
        const char *end = strstr(text, border);
        size_t length = end == NULL ? strlen(text) : (size_t)(end - text);
        ls_ids ids = {0};
        assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, text, length, false, &ids), LS_OK);
        for (size_t i = 0; i < ids.count; i++) {
            char *after;
            assert_int_equal(strtol(expected, &after, 10), ids.at[i]);
            expected = after;
        }
        while (*expected == ' ') expected++;
        assert_true(*expected == '\n' || *expected == '\0');
        expected += *expected == '\n';
        ls_ids_clear(&ctx, &ids);
        text = end == NULL ? NULL : end + sizeof border - 1;
    }
    assert_int_equal(compared, 47);
    assert_int_equal(*expected, 0);
    ls_text_clear(&ctx, &in);
    ls_text_clear(&ctx, &out);
    ls_tokenizer_free(&ctx, tokenizer);
}

/* The GPT-NeoX vocabulary is large: it is read where LONGSHOT_SHARED_DATA names a folder that has
 * it. */
static void test_neox_real(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char path[600];
    gguf_fixture file;
    ls_tokenizer *tokenizer;
    const char *folder = getenv("LONGSHOT_SHARED_DATA");
    if (folder == NULL) {
        test_skip("LONGSHOT_SHARED_DATA names no folder with GPT-NeoX's vocabulary");
    }
    snprintf(path, sizeof path, "%s/ggml-vocab-gpt-neox.gguf", folder);
    gguf_fixture_open(&ctx, path, &file);
    if (ls_tokenizer_new_gguf(&ctx, &file.vocabulary, path, &tokenizer) != LS_OK)
        fail_msg("%s", ctx.error.message);
    golden_set set = {"neox-real", tokenizer, false, false, 0, 0};
    compare_set(&set);
    ls_tokenizer_free(&ctx, tokenizer);
    gguf_fixture_close(&ctx, &file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bert),         cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gpt2),         cmocka_unit_test(test_llama2),
        cmocka_unit_test(test_llama2_model), cmocka_unit_test(test_llama3),
        cmocka_unit_test(test_neox),         cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_roberta),      cmocka_unit_test(test_t5),
        cmocka_unit_test(test_t5_model),     cmocka_unit_test(test_unigram),
        cmocka_unit_test(test_gpt2_real),    cmocka_unit_test(test_gpt2_vectors),
        cmocka_unit_test(test_neox_real),
    };
    return test_code(cmocka_run_group_tests(tests, make_gpt2, fixture_remove));
}
