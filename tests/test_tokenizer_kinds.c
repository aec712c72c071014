/* What the vectors do not show: other components, refusals, bytes that are not UTF-8, saving,
 * GGUF's vocabularies, a corpus there and back, and allocations that fail.
 * Tier: unsanitized */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <time.h>

#include "base/json.h"
#include "base/random.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "data/tokenizer/sentencepiece.h"
#include "data/tokenizer/unicode.h"
#include "data_fixture.h"
#include "failing_allocator.h"

#define ROOT LS_TEST_SOURCE "/tests/golden/tokenizers"

static ls_tokenizer *load(ls_ctx *ctx, const char *source) {
    ls_tokenizer *tokenizer;
    if (ls_tokenizer_load(ctx, source, &tokenizer) != LS_OK) fail_msg("%s", ctx->error.message);
    return tokenizer;
}

/* A word-level vocabulary that shows how a text was cut: WordPiece whose only pieces are `pieces`,
 * each with its number as its id; anything else is 0. */
static ls_status cutter(ls_ctx *ctx, const char *normalizer, const char *pretokenizer,
                        const char *const *pieces, ls_tokenizer **out) {
    ls_text json = {0};
    ls_text_printf(ctx, &json,
                   "{\"normalizer\": %s, \"pre_tokenizer\": %s, \"model\": {\"type\": "
                   "\"WordPiece\", \"unk_token\": \"?\", \"continuing_subword_prefix\": \"##\", "
                   "\"max_input_chars_per_word\": 100, \"vocab\": {\"?\": 0",
                   normalizer, pretokenizer);
    for (int i = 0; pieces[i] != NULL; i++)
        ls_text_printf(ctx, &json, ", \"%s\": %d", pieces[i], i + 1);
    ls_text_printf(ctx, &json, "}}, \"decoder\": null, \"post_processor\": null}");
    ls_status status = ls_tokenizer_new_json(ctx, json.bytes, json.length, NULL, "cutter", out);
    ls_text_clear(ctx, &json);
    return status;
}

/* Whether the text is cut into exactly these pieces. */
static void expect_cut(const char *normalizer, const char *pretokenizer, const char *text,
                       const char *const *pieces) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    ls_ids ids = {0};
    size_t count = 0;
    if (cutter(&ctx, normalizer, pretokenizer, pieces, &tokenizer) != LS_OK)
        fail_msg("%s", ctx.error.message);
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, text, strlen(text), 0, &ids), LS_OK);
    while (pieces[count] != NULL) count++;
    bool good = ids.count == count;
    for (size_t i = 0; i < count && good; i++) good = ids.at[i] == (int32_t)i + 1;
    if (!good) {
        fprintf(stderr, "%s on [%s]:", pretokenizer, text);
        for (size_t i = 0; i < ids.count; i++)
            fprintf(stderr, " %s", ids.at[i] == 0 ? "(other)" : pieces[ids.at[i] - 1]);
        fail_msg("%s", "\nthe text is cut in another way");
    }
    ls_ids_clear(&ctx, &ids);
    ls_tokenizer_free(&ctx, tokenizer);
}
#define PIECES(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SPLIT(pattern, behavior, invert)                                                           \
    "{\"type\": \"Split\", \"pattern\": " pattern ", \"behavior\": \"" behavior                    \
    "\", \"invert\": " invert "}"
#define DASH "{\"String\": \"-\"}"

static void test_splits(void **state) {
    (void)state;
    static const char text[] = "the-final-of--all";
    expect_cut("null", SPLIT(DASH, "Removed", "false"), text, PIECES("the", "final", "of", "all"));
    expect_cut("null", SPLIT(DASH, "MergedWithPrevious", "false"), text,
               PIECES("the-", "final-", "of-", "-", "all"));
    expect_cut("null", SPLIT(DASH, "MergedWithNext", "false"), text,
               PIECES("the", "-final", "-of", "-", "-all"));
    expect_cut("null", SPLIT(DASH, "Contiguous", "false"), "a--b", PIECES("a", "--", "b"));
    expect_cut("null", SPLIT("{\"Regex\": \"[a-z]+\"}", "Removed", "true"), "ab1cd..e",
               PIECES("ab", "cd", "e"));
    expect_cut("null", SPLIT("{\"Regex\": \"\\\\d\"}", "Isolated", "false"), "ab12c",
               PIECES("ab", "1", "2", "c"));
    expect_cut("null", "{\"type\": \"Digits\", \"individual_digits\": false}", "ab12c",
               PIECES("ab", "12", "c"));
    expect_cut("null", "{\"type\": \"Punctuation\", \"behavior\": \"Contiguous\"}", "a?!b",
               PIECES("a", "?!", "b"));
    expect_cut("null", "{\"type\": \"Whitespace\"}", "it's 3\xc3\xa9\xcc\x81 --x",
               PIECES("it", "'", "s", "3\xc3\xa9\xcc\x81", "--", "x"));
    expect_cut("null", "{\"type\": \"WhitespaceSplit\"}",
               " a\xe3\x80\x80"
               "b\n c ",
               PIECES("a", "b", "c"));
    expect_cut("null",
               "{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"first\"}",
               "a b  c", PIECES("_a", "_b", "_", "_c"));
    /* classes in classes, as Oniguruma has them: BLOOM's pattern */
    expect_cut("null", SPLIT("{\"Regex\": \" ?[^(\\\\s|[.,!?])]+\"}", "Isolated", "false"),
               "ab cd,(x|y)", PIECES("ab", " cd", ",(", "x", "|", "y", ")"));
    /* behind one a hyphen is itself */
    expect_cut("null", SPLIT("{\"Regex\": \"[[a]-z]\"}", "Isolated", "false"), "mn-zb",
               PIECES("mn", "-", "z", "b"));
}

static void test_normalizers(void **state) {
    (void)state;
    static const char words[] = "{\"type\": \"WhitespaceSplit\"}";
    expect_cut("{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
               "\"StripAccents\"}, {\"type\": \"Lowercase\"}]}",
               words, "CAF\xc3\x89 \xc4\xb0", PIECES("cafe", "i"));
    expect_cut("{\"type\": \"NFKC\"}", words, "\xef\xac\x81 \xc2\xbd",
               PIECES("fi", "1\xe2\x81\x84"
                            "2"));
    expect_cut("{\"type\": \"NFKD\"}", words, "\xc3\xa9", PIECES("e\xcc\x81"));
    expect_cut("{\"type\": \"NFC\"}", words, "e\xcc\x81", PIECES("\xc3\xa9"));
    expect_cut("{\"type\": \"Strip\", \"strip_left\": true, \"strip_right\": false}", "null", " a ",
               PIECES("a "));
    expect_cut("{\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \"_\"}",
               "null", "a   b c", PIECES("a_b c"));
    expect_cut("{\"type\": \"Nmt\"}", words,
               "a\tb\x01"
               "c\xe2\x80\x8b"
               "d",
               PIECES("a", "bc", "d"));
}

static void refused(const char *json, const char *word) {
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_new_json(&ctx, json, strlen(json), NULL, "t", &tokenizer),
                     LS_EINPUT);
    assert_null(tokenizer);
    if (strstr(ctx.error.message, word) == NULL)
        fail_msg("`%s` does not name %s", ctx.error.message, word);
}

#define MODEL "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}"
#define PART(part) "{" part ", " MODEL "}"

static void test_refusals(void **state) {
    (void)state;
    refused("[]", "object");
    refused("{}", "model");
    refused("{\"extra\": 1, " MODEL "}", "extra");
    refused("{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}", "WordLevel");
    refused(PART("\"normalizer\": {\"type\": \"Unidecode\"}"), "Unidecode");
    refused(PART("\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}"), "UnicodeScripts");
    refused(PART("\"decoder\": {\"type\": \"CTC\"}"), "CTC");
    refused(PART("\"post_processor\": {\"type\": \"Other\"}"), "Other");
    refused(PART("\"pre_tokenizer\": {\"type\": \"Digits\", \"hexadecimal\": true}"),
            "hexadecimal");
    refused(PART("\"pre_tokenizer\": " SPLIT(DASH, "Sideways", "false")), "Sideways");
    refused(PART("\"pre_tokenizer\": " SPLIT("{\"Regex\": \"\\\\h+\"}", "Isolated", "false")),
            "\\h");
    refused(PART("\"pre_tokenizer\": " SPLIT("{\"Regex\": \"[a-z&&[^b]]\"}", "Isolated", "false")),
            "&&");
    refused(PART("\"pre_tokenizer\": " SPLIT("{\"Regex\": \"(a\"}", "Isolated", "false")),
            "pattern");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a b\"]}}",
            "merge number 0");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
            "one id");
    refused("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999}, \"merges\": []}}", "id");
    refused("{\"model\": {\"type\": \"BPE\", \"dropout\": 0.1, \"vocab\": {\"a\": 0}, \"merges\": "
            "[]}}",
            "dropout");
    refused(PART("\"post_processor\": {\"type\": \"BertProcessing\", \"sep\": [\"s\", 7], \"cls\": "
                 "[\"c\", 0]}"),
            "7");
    refused("{\"model\": {\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"a\", -1]]}}",
            "unk_id");
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_new_sentencepiece(&ctx, "\x0a\xff\x01", 3, NULL, "m", &tokenizer),
                     LS_EINPUT);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_tokenizer_new_sentencepiece(&ctx, "", 0, NULL, "m", &tokenizer), LS_EINPUT);
}

/* Byte-level BPE gives any bytes back; the others read U+FFFD. */
static void test_any_bytes(void **state) {
    (void)state;
    static const char *const byte_level[] = {ROOT "/gpt2/tokenizer.json", ROOT "/llama3",
                                             ROOT "/roberta"};
    static const char *const others[] = {ROOT "/llama2", ROOT "/llama2/tokenizer.model",
                                         ROOT "/gemma"};
    ls_ctx ctx = ls_ctx_default();
    uint8_t bytes[300];
    for (int k = 0; k < 3; k++) {
        ls_tokenizer *lossless = load(&ctx, byte_level[k]), *other = load(&ctx, others[k]);
        for (uint32_t trial = 0; trial < 300; trial++) {
            ls_ids ids = {0}, again = {0};
            ls_text out = {0}, joined = {0};
            size_t length = trial % sizeof bytes;
            for (size_t i = 0; i < length; i++)
                bytes[i] = (uint8_t)ls_random_word((ls_random){5, 1, trial}, i);
            const char *text = (const char *)bytes;
            assert_int_equal(ls_tokenizer_encode(&ctx, lossless, text, length, 0, &ids), LS_OK);
            assert_int_equal(ls_tokenizer_decode_text(&ctx, lossless, ids.at, ids.count, 0, &out),
                             LS_OK);
            assert_int_equal(ls_tokenizer_decode(&ctx, lossless, ids.at, ids.count, &joined),
                             LS_OK);
            assert_int_equal(out.length, length);
            assert_memory_equal(out.bytes, bytes, length);
            assert_int_equal(joined.length, length);
            assert_memory_equal(joined.bytes, bytes, length);
            /* what the others make of it is text, which they give back */
            ids.count = out.length = 0;
            assert_int_equal(ls_tokenizer_encode(&ctx, other, text, length, 0, &ids), LS_OK);
            assert_int_equal(ls_tokenizer_decode_text(&ctx, other, ids.at, ids.count, 0, &out),
                             LS_OK);
            assert_int_equal(ls_tokenizer_encode(&ctx, other, out.bytes, out.length, 0, &again),
                             LS_OK);
            assert_int_equal(again.count, ids.count);
            if (ids.count > 0) assert_memory_equal(again.at, ids.at, ids.count * sizeof *ids.at);
            ls_ids_clear(&ctx, &ids);
            ls_ids_clear(&ctx, &again);
            ls_text_clear(&ctx, &out);
            ls_text_clear(&ctx, &joined);
        }
        ls_tokenizer_free(&ctx, lossless);
        ls_tokenizer_free(&ctx, other);
    }
}

static void same_ids(ls_ctx *ctx, const ls_tokenizer *a, const ls_tokenizer *b, unsigned flags) {
    json_t *strings, *text;
    size_t index;
    ls_text file = {0};
    assert_int_equal(ls_file_read(ctx, ROOT "/strings.json", 1 << 20, &file), LS_OK);
    assert_int_equal(ls_json_parse_line(ctx, file.bytes, file.length, "strings", 1, &strings),
                     LS_OK);
    json_array_foreach(strings, index, text) {
        ls_ids left = {0}, right = {0};
        assert_int_equal(ls_tokenizer_encode(ctx, a, json_string_value(text),
                                             json_string_length(text), flags, &left),
                         LS_OK);
        assert_int_equal(ls_tokenizer_encode(ctx, b, json_string_value(text),
                                             json_string_length(text), flags, &right),
                         LS_OK);
        if (left.count != right.count) fail_msg("string %zu has other ids", index);
        if (left.count > 0) assert_memory_equal(left.at, right.at, left.count * sizeof *left.at);
        ls_ids_clear(ctx, &left);
        ls_ids_clear(ctx, &right);
    }
    json_decref(strings);
    ls_text_clear(ctx, &file);
}

/* Saved into a folder, as a run does, a tokenizer of any kind is loaded as the same. */
static void test_saving(void **state) {
    (void)state;
    static const char *const sources[] = {ROOT "/bert", ROOT "/llama2",
                                          ROOT "/llama2/tokenizer.model", ROOT "/t5/spiece.model"};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < 4; i++) {
        char run[40], inner[60];
        snprintf(run, sizeof run, "run-%zu", i);
        snprintf(inner, sizeof inner, "%s/tokenizer", run);
        ls_tokenizer *tokenizer = load(&ctx, sources[i]);
        assert_int_equal(ls_folder_make(&ctx, fixture_path(inner)), LS_OK);
        assert_int_equal(ls_tokenizer_save(&ctx, tokenizer, fixture_path(inner)), LS_OK);
        ls_tokenizer *again = load(&ctx, fixture_path(run));
        assert_true(ls_tokenizer_hash(tokenizer) == ls_tokenizer_hash(again));
        assert_string_equal(ls_tokenizer_kind(tokenizer), ls_tokenizer_kind(again));
        assert_int_equal(ls_tokenizer_end(tokenizer), ls_tokenizer_end(again));
        same_ids(&ctx, tokenizer, again, LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE);
        ls_tokenizer_free(&ctx, tokenizer);
        ls_tokenizer_free(&ctx, again);
    }
}

/* The vocabulary and merges of a tokenizer.json as GGUF holds them. */
typedef struct arrays {
    json_t *json;
    ls_gguf_text tokens[1000], merges[1000];
    char pool[100000];
    int32_t types[1000];
    ls_gguf_vocabulary vocabulary;
} arrays;

static void arrays_read(ls_ctx *ctx, const char *path, arrays *out) {
    const char *key;
    json_t *value;
    size_t index, used = 0;
    *out = (arrays){.vocabulary = ls_gguf_vocabulary_empty};
    assert_int_equal(ls_json_read(ctx, path, 1 << 20, &out->json), LS_OK);
    json_t *model = json_object_get(out->json, "model");
    json_object_foreach(json_object_get(model, "vocab"), key, value) {
        size_t id = (size_t)json_integer_value(value);
        assert_true(id < 1000);
        out->tokens[id] = (ls_gguf_text){key, strlen(key)};
        out->types[id] = 1;
        if (id >= out->vocabulary.token_count) out->vocabulary.token_count = id + 1;
    }
    json_array_foreach(json_object_get(out->json, "added_tokens"), index, value)
        out->types[json_integer_value(json_object_get(value, "id"))] = 3;
    json_array_foreach(json_object_get(model, "merges"), index, value) {
        int length = snprintf(out->pool + used, sizeof out->pool - used, "%s %s",
                              json_string_value(json_array_get(value, 0)),
                              json_string_value(json_array_get(value, 1)));
        out->merges[index] = (ls_gguf_text){out->pool + used, (size_t)length};
        used += (size_t)length;
        out->vocabulary.merge_count++;
    }
    out->vocabulary.tokens = out->tokens;
    out->vocabulary.merges = out->merges;
    out->vocabulary.types = out->types;
    out->vocabulary.model = "gpt2";
}

static void test_gguf(void **state) {
    (void)state;
    static const char *const names[][2] = {
        {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"gpt2", "gpt-2"}};
    static arrays a;
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    for (int i = 0; i < 3; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s/tokenizer.json", ROOT, names[i][0]);
        arrays_read(&ctx, path, &a);
        a.vocabulary.pre = names[i][1];
        a.vocabulary.bos = a.vocabulary.eos = 0;
        if (ls_tokenizer_new_gguf(&ctx, &a.vocabulary, "g", &tokenizer) != LS_OK)
            fail_msg("%s", ctx.error.message);
        ls_tokenizer *original = load(&ctx, path);
        same_ids(&ctx, tokenizer, original, LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE);
        assert_int_equal(ls_tokenizer_end(tokenizer), 0);
        ls_tokenizer_free(&ctx, tokenizer);
        a.vocabulary.bos = 5000;
        assert_int_equal(ls_tokenizer_new_gguf(&ctx, &a.vocabulary, "g", &tokenizer), LS_EINPUT);
        a.vocabulary.bos = 0;
        a.vocabulary.model = "plamo";
        ctx.error = (ls_error){0};
        assert_int_equal(ls_tokenizer_new_gguf(&ctx, &a.vocabulary, "g", &tokenizer), LS_EINPUT);
        assert_non_null(strstr(ctx.error.message, "plamo"));
        ctx.error = (ls_error){0};
        json_decref(a.json);
        ls_tokenizer_free(&ctx, original);
    }
}

/* `bert` marks word starts; the same ids as the file it was made of. */
/* ---- vocabularies that are refused, and allocations that fail ---- */

typedef struct small_vocabulary {
    ls_gguf_text tokens[270];
    int32_t types[270];
    float scores[270];
    char bytes[256][8];
    ls_gguf_vocabulary v;
} small_vocabulary;

static void small_token(small_vocabulary *s, const char *text, int32_t type, float score) {
    const size_t i = s->v.token_count++;
    s->tokens[i] = (ls_gguf_text){text, strlen(text)};
    s->types[i] = type;
    s->scores[i] = score;
}

/* <unk>, <s>, </s>, every byte, a few words. */
static void small_open(small_vocabulary *s, const char *model) {
    *s = (small_vocabulary){.v = ls_gguf_vocabulary_empty};
    s->v.model = model;
    s->v.tokens = s->tokens;
    s->v.types = s->types;
    s->v.scores = s->scores;
    small_token(s, "<unk>", 2, 0);
    small_token(s, "<s>", 3, 0);
    small_token(s, "</s>", 3, 0);
    for (int i = 0; i < 256; i++) {
        snprintf(s->bytes[i], sizeof s->bytes[i], "<0x%02X>", i);
        small_token(s, s->bytes[i], 6, 0);
    }
    small_token(s, "a", 1, -1);
    small_token(s, "b", 1, -2);
    small_token(s, "ab", 1, -1.5F);
    small_token(s, "\xe2\x96\x81", 1, -3);
    small_token(s, "<user>", 4, 0);
    s->v.unk = 0;
    s->v.bos = 1;
    s->v.eos = 2;
}

static ls_status small_use(ls_ctx *ctx, void *user) {
    const small_vocabulary *s = user;
    ls_tokenizer *tokenizer = NULL;
    ls_ids ids = {0};
    ls_text text = {0};
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_new_gguf(ctx, &s->v, "g", &tokenizer));
    LS_TRY_GOTO(
        ls_tokenizer_encode(ctx, tokenizer, "ab \xff<user>\xc3\xa9", 11, LS_ENCODE_SPECIAL, &ids));
    LS_TRY_GOTO(ls_tokenizer_decode(ctx, tokenizer, ids.at, ids.count, &text));
fail:
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &text);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

/* User-defined pieces of spaces, which GGUF writes as they are: the longest first, before any
 * merge. */
static void test_gguf_spaces(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    small_vocabulary s;
    ls_tokenizer *tokenizer = NULL;
    ls_ids ids = {0};
    ls_text text = {0};
    small_open(&s, "llama");
    s.v.add_space_prefix = 0;
    const int32_t a = 259, word = 264, two = 265, three = 266, one = 262, b = 260;
    small_token(&s, LS_METASPACE "a", 1, -0.5F);
    small_token(&s, "  ", 4, -1000);
    small_token(&s, "   ", 4, -1000);
    const int32_t expected[] = {a, two, a, word, one, b, three, b, three, two, a};
    const char *written = "a  a a b   b     a";
    assert_int_equal(ls_tokenizer_new_gguf(&ctx, &s.v, "g", &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, written, strlen(written), 0, &ids),
                     LS_OK);
    assert_int_equal(ids.count, sizeof expected / sizeof expected[0]);
    assert_memory_equal(ids.at, expected, sizeof expected);
    assert_int_equal(ls_tokenizer_decode(&ctx, tokenizer, ids.at, ids.count, &text), LS_OK);
    assert_int_equal(text.length, strlen(written));
    assert_memory_equal(text.bytes, written, text.length);
    ls_ids_clear(&ctx, &ids);
    ls_text_clear(&ctx, &text);
    ls_tokenizer_free(&ctx, tokenizer);
}

static void small_refused(small_vocabulary *s, const char *word) {
    ls_ctx ctx = ls_ctx_default();
    ls_status status = small_use(&ctx, s);
    if (status != LS_EINPUT || strstr(ctx.error.message, word) == NULL)
        fail_msg("%d, `%s` does not name %s", (int)status, ctx.error.message, word);
}

static void test_gguf_refusals(void **state) {
    (void)state;
    static small_vocabulary s;
    static const char *const models[] = {"llama", "t5"};
    for (int i = 0; i < 2; i++) {
        small_open(&s, models[i]);
        fail_each_allocation(small_use, &s);
    }
    small_open(&s, NULL);
    small_refused(&s, "no vocabulary");
    small_open(&s, "llama");
    s.v.token_count = 0;
    small_refused(&s, "no vocabulary");
    small_open(&s, "llama");
    s.v.token_count = (size_t)LS_VOCABULARY_MAX + 1;
    small_refused(&s, "no vocabulary");
    small_open(&s, "llama");
    s.v.merge_count = (size_t)LS_VOCABULARY_MAX + 1;
    small_refused(&s, "no vocabulary");
    small_open(&s, "llama");
    s.v.pad = (int64_t)s.v.token_count;
    small_refused(&s, "special token");
    static const int32_t types[] = {0, 7};
    for (int i = 0; i < 2; i++) {
        small_open(&s, "llama");
        s.types[5] = types[i];
        small_refused(&s, "type");
    }
    small_open(&s, "llama");
    s.tokens[5] = (ls_gguf_text){"a\0b", 3};
    small_refused(&s, "NUL");
    small_open(&s, "llama");
    s.tokens[5] = (ls_gguf_text){"\xff", 1};
    small_refused(&s, "UTF-8");
    static const char *const bytes[] = {"<0x0G>", "<0xG0>", "<1x00>", "<0x00?", "<0x:0>", "<0x0>"};
    for (int i = 0; i < 6; i++) { /* what is to be a byte, and a byte that is not there */
        small_open(&s, "llama");
        s.tokens[9] = (ls_gguf_text){bytes[i], strlen(bytes[i])};
        small_refused(&s, "byte");
    }
    small_open(&s, "llama");
    s.types[9] = 1;
    small_refused(&s, "byte");
    small_open(&s, "nothing-of-this-name");
    small_refused(&s, "nothing-of-this-name");
}

static void test_gguf_bert(void **state) {
    (void)state;
    static arrays a;
    static char spelled[1000][80];
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    arrays_read(&ctx, ROOT "/bert/tokenizer.json", &a);
    for (size_t i = 0; i < a.vocabulary.token_count; i++) {
        const char *token = a.tokens[i].at;
        bool name = *token == '[' && token[strlen(token) - 1] == ']' && token[1] != '\0';
        bool inner = strncmp(token, "##", 2) == 0 && token[2] != '\0';
        int length = snprintf(spelled[i], sizeof spelled[i], "%s%s",
                              name || inner ? "" : "\xe2\x96\x81", token + (inner ? 2 : 0));
        a.tokens[i] = (ls_gguf_text){spelled[i], (size_t)length};
    }
    a.vocabulary.model = "bert";
    a.vocabulary.unk = 1;
    a.vocabulary.cls = 2;
    a.vocabulary.sep = 3;
    if (ls_tokenizer_new_gguf(&ctx, &a.vocabulary, "g", &tokenizer) != LS_OK)
        fail_msg("%s", ctx.error.message);
    ls_tokenizer *original = load(&ctx, ROOT "/bert");
    same_ids(&ctx, tokenizer, original, LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_tokenizer_free(&ctx, original);
    /* vocab.txt is the same list */
    ls_text lines = {0};
    for (size_t i = 0; i < a.vocabulary.token_count; i++) {
        const char *token = NULL;
        json_t *value;
        const char *key;
        json_object_foreach(json_object_get(json_object_get(a.json, "model"), "vocab"), key,
                            value) if (json_integer_value(value) == (json_int_t)i) token = key;
        ls_text_printf(&ctx, &lines, "%s\n", token);
    }
    assert_int_equal(ls_folder_make(&ctx, fixture_path("lines")), LS_OK);
    fixture_file("lines/vocab.txt", lines.bytes, lines.length);
    tokenizer = load(&ctx, fixture_path("lines"));
    original = load(&ctx, ROOT "/bert");
    same_ids(&ctx, tokenizer, original, LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_tokenizer_free(&ctx, original);
    ls_text_clear(&ctx, &lines);
    json_decref(a.json);
}

/* `llama` and `t5` are SentencePiece models taken apart: put together again they give the same ids,
 * and what the model's control pieces are called is now recognised in a text. */
static void compare_parts(const char *source, const char *model, bool bos, bool eos) {
    ls_ctx ctx = ls_ctx_default();
    ls_text file = {0}, map = {0};
    ls_sentencepiece sp = {0};
    ls_tokenizer *tokenizer, *original = load(&ctx, source);
    assert_int_equal(ls_file_read(&ctx, source, 1 << 20, &file), LS_OK);
    assert_int_equal(
        ls__sentencepiece_parse(&ctx, (const uint8_t *)file.bytes, file.length, "m", &sp), LS_OK);
    ls_gguf_vocabulary v = ls_gguf_vocabulary_empty;
    static ls_gguf_text tokens[1000];
    static int32_t types[1000];
    for (int32_t id = 0; id < sp.names.count; id++) {
        ls_bytes name = ls__vocabulary_at(&sp.names, id);
        tokens[id] = (ls_gguf_text){name.at, name.length};
        types[id] = sp.types[id];
    }
    uint32_t units = (uint32_t)(sp.map.unit_count * sizeof *sp.map.units);
    if (units > 0) {
        ls_text_append(&ctx, &map, &units, 4);
        ls_text_append(&ctx, &map, sp.map.units, units);
        ls_text_append(&ctx, &map, sp.map.strings, sp.map.string_bytes);
    }
    ls_special_ids special = ls_tokenizer_special(original);
    v.model = model;
    v.tokens = tokens;
    v.types = types;
    v.token_count = (size_t)sp.names.count;
    v.scores = sp.scores;
    v.bos = special.bos;
    v.eos = special.eos;
    v.unk = special.unk;
    v.charsmap = (const uint8_t *)map.bytes;
    v.charsmap_length = map.length;
    v.add_space_prefix = sp.dummy_prefix;
    v.remove_extra_whitespaces = sp.remove_extra;
    if (ls_tokenizer_new_gguf(&ctx, &v, "g", &tokenizer) != LS_OK)
        fail_msg("%s", ctx.error.message);
    same_ids(&ctx, tokenizer, original, 0);
    ls_ids ids = {0};
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, "</s>", 4,
                                         LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE, &ids),
                     LS_OK);
    assert_int_equal(ids.count, 1 + bos + eos);
    assert_int_equal(ids.at[bos], special.eos);
    ls_ids_clear(&ctx, &ids);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_tokenizer_free(&ctx, original);
    ls__vocabulary_clear(&ctx, &sp.names);
    ls__charsmap_clear(&ctx, &sp.map);
    ls_free(&ctx, sp.scores);
    ls_free(&ctx, sp.types);
    ls_free(&ctx, sp.unk_surface);
    ls_text_clear(&ctx, &file);
    ls_text_clear(&ctx, &map);
}

static void test_gguf_sentencepiece(void **state) {
    (void)state;
    compare_parts(ROOT "/llama2/tokenizer.model", "llama", true, false);
    compare_parts(ROOT "/t5/spiece.model", "t5", false, true);
}

/* The default corpus where it is installed, else the project's own pages, 10 MB of it. */
static void read_corpus(ls_ctx *ctx, size_t most, ls_text *out) {
    ls_corpus *corpus;
    ls_document document;
    if (ls_corpus_open(ctx, "default", LS_CORPUS_AUTO, "text", &corpus) == LS_OK) {
        while (out->length < most && ls_corpus_next(ctx, corpus, &document) == LS_OK &&
               document.text != NULL)
            ls_text_append(ctx, out, document.text, document.length);
        ls_corpus_free(ctx, corpus);
    }
    ctx->error = (ls_error){0};
    while (out->length < 200000)
        assert_int_equal(ls_file_read(ctx, LS_TEST_SOURCE "/README.md", 1 << 20, out), LS_OK);
    if (out->length > most) out->length = most;
    ls_text once = {0};
    ls_text_append(ctx, &once, out->bytes, out->length);
    while (out->length < most) ls_text_append(ctx, out, once.bytes, once.length);
    out->length = ls__utf8_valid((const uint8_t *)out->bytes, most); /* no half character */
    ls_text_clear(ctx, &once);
    assert_int_equal(ls_text_status(out), LS_OK);
}

static void test_corpus(void **state) {
    (void)state;
    static const struct {
        const char *source;
        enum { BYTES, NFC, LOSSY } back; /* what comes back */
    } kinds[] = {
        {"byte", BYTES},
        {ROOT "/gpt2/tokenizer.json", BYTES},
        {ROOT "/llama3", BYTES},
        {ROOT "/qwen2", NFC},
        {ROOT "/neox", NFC},
        {ROOT "/roberta", BYTES},
        {ROOT "/gemma", BYTES},
        {ROOT "/llama2", BYTES},
        {ROOT "/llama2/tokenizer.model", BYTES},
        {ROOT "/bert", LOSSY},
        {ROOT "/t5", LOSSY},
        {ROOT "/t5/spiece.model", LOSSY},
        {ROOT "/unigram-nmt_nfkc", LOSSY},
    };
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0}, composed = {0};
    read_corpus(&ctx, 10000000, &text);
    assert_int_equal(
        ls__normal_form(&ctx, true, false, (const uint8_t *)text.bytes, text.length, &composed),
        LS_OK);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        ls_tokenizer *tokenizer = load(&ctx, kinds[i].source);
        ls_encoder *encoder;
        ls_ids ids = {0};
        ls_text back = {0};
        assert_int_equal(ls_encoder_new(&ctx, tokenizer, &encoder), LS_OK);
        clock_t start = clock();
        assert_int_equal(ls_encoder_encode(&ctx, encoder, text.bytes, text.length, 0, &ids), LS_OK);
        double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        print_message("%s: %zu bytes, %zu ids, %.1f MB/s\n",
                      strrchr(kinds[i].source, '/') == NULL ? kinds[i].source
                                                            : kinds[i].source + sizeof ROOT,
                      text.length, ids.count, (double)text.length / 1e6 / seconds);
        assert_int_equal(ls_tokenizer_decode_text(&ctx, tokenizer, ids.at, ids.count, 0, &back),
                         LS_OK);
        if (kinds[i].back != LOSSY) {
            const ls_text *expected = kinds[i].back == NFC ? &composed : &text;
            assert_int_equal(back.length, expected->length);
            assert_true(memcmp(back.bytes, expected->bytes, back.length) == 0);
        }
        ls_ids_clear(&ctx, &ids);
        ls_text_clear(&ctx, &back);
        ls_encoder_free(&ctx, encoder);
        ls_tokenizer_free(&ctx, tokenizer);
    }
    ls_text_clear(&ctx, &text);
    ls_text_clear(&ctx, &composed);
}

static ls_status everything(ls_ctx *ctx, void *user) {
    const char *source = user;
    ls_tokenizer *tokenizer = NULL;
    ls_ids ids = {0};
    ls_text out = {0};
    static const char text[] = " Caf\xc3\xa9 na\xc3\xafve,  the the the \xe4\xb8\xad\xe6\x96\x87 "
                               "\xff 12345 supercalifragilisticexpialidocious <s> <mask>\n\n";
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_load(ctx, source, &tokenizer));
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, tokenizer, text, sizeof text - 1,
                                    LS_ENCODE_SPECIAL | LS_ENCODE_TEMPLATE, &ids));
    LS_TRY_GOTO(ls_tokenizer_decode_text(ctx, tokenizer, ids.at, ids.count, LS_DECODE_UTF8, &out));
    LS_TRY_GOTO(ls_tokenizer_decode(ctx, tokenizer, ids.at, ids.count, &out));
fail:
    ls_tokenizer_free(ctx, tokenizer);
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &out);
    return status;
}

static void test_allocation_failures(void **state) {
    (void)state;
    static const char *const sources[] = {
        ROOT "/bert",   ROOT "/llama3",          ROOT "/llama2/tokenizer.model",
        ROOT "/gemma",  ROOT "/t5/spiece.model", ROOT "/t5",
        ROOT "/roberta"};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        fail_each_allocation(everything, (void *)(uintptr_t)sources[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),        cmocka_unit_test(test_normalizers),
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_saving),        cmocka_unit_test(test_gguf),
        cmocka_unit_test(test_gguf_bert),     cmocka_unit_test(test_gguf_spaces),
        cmocka_unit_test(test_gguf_refusals), cmocka_unit_test(test_gguf_sentencepiece),
        cmocka_unit_test(test_corpus),        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
