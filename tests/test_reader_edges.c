/* Readers at their edges: paths that cannot be opened, GGUF files that contradict themselves,
 * vocabularies and patterns that no tool writes, and what the writers refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/gguf.h"
#include "base/settings.h"
#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "failing_allocator.h"
#include "model/safetensors.h"
#include "train/guard.h"

static char folder[] = "/tmp/longshot-edges-XXXXXX";

static const char *in_folder(const char *name) {
    static char path[4][512];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* NULL: it must be accepted. */
static void expect(const char *about, ls_status status, ls_ctx *ctx, const char *sentence) {
    if (sentence == NULL ? status != LS_OK
                         : status == LS_OK || strstr(ctx->error.message, sentence) == NULL)
        fail_msg("%s: %s, \"%s\" in place of \"%s\"", about, ls_status_name(status),
                 ctx->error.message, sentence == NULL ? "" : sentence);
    ctx->error = (ls_error){0};
}

/* ---- paths ---- */

static void test_paths(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char name[5000], joined[8];
    ls_text text = {0};
    ls_map map;
    FILE *file;
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(symlink("loop", in_folder("loop")), 0);
    assert_int_equal(ls_file_write(&ctx, in_folder("plain"), "0123", 4), LS_OK);
    assert_int_equal(ls_file_write(&ctx, in_folder("empty"), "", 0), LS_OK);
    expect("a file as a folder", ls_file_read(&ctx, in_folder("plain/x"), 9, &text), &ctx, "plain");
    expect("a loop", ls_file_read(&ctx, in_folder("loop"), 9, &text), &ctx, "loop");
    expect("a long name", ls_file_read(&ctx, name + 4600, 9, &text), &ctx, "too long");
    expect("a large file", ls_file_read(&ctx, in_folder("plain"), 3, &text), &ctx, "at most 3");
    expect("a device", ls_file_read(&ctx, "/dev/null", 9, &text), &ctx, "not a plain file");
    expect("a device to write", ls_file_create(&ctx, "/dev/null", false, &file), &ctx, "/dev/null");
    expect("a long folder", ls_folder_make(&ctx, name), &ctx, "");
    expect("a file as folder", ls_folder_make(&ctx, in_folder("plain")), &ctx, "not a folder");
    expect("what stays", ls_folder_remove(&ctx, "/proc/version"), &ctx, "removing");
    expect("a folder without sync", ls_folder_sync(&ctx, "/proc"), &ctx, NULL);
    expect("a long join", ls_path_join(&ctx, joined, sizeof joined, "/tmp", "name"), &ctx, "");
    expect("an empty file", ls_map_open(&ctx, in_folder("empty"), &map), &ctx, NULL);
    assert_int_equal(map.length, 0);
    assert_non_null(map.bytes); /* whoever adds to it may */
    ls_map_close(&map);
    assert_null(map.bytes);
    ls_text_clear(&ctx, &text);
}

/* ---- settings ---- */

static void test_settings(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    char word[600];
    expect("no key", ls_settings_put_word(&ctx, &settings, "=1"), &ctx, "=1");
    expect("no value", ls_settings_put_word(&ctx, &settings, "key"), &ctx, "key");
    memset(word, 'k', sizeof word);
    snprintf(word + sizeof word - 3, 3, "=1");
    expect("a long key", ls_settings_put_word(&ctx, &settings, word), &ctx, "");
    expect("a key", ls_settings_put(&ctx, &settings, "train.steps", "1"), &ctx, NULL);
    expect("again", ls_settings_put(&ctx, &settings, "train.steps", "1"), &ctx, NULL);
    assert_false(ls_settings_is_used(&settings, "train.steps"));
    assert_false(ls_settings_is_used(&settings, "train.length"));
    ls_settings_clear(&ctx, &settings);
}

/* ---- GGUF by hand ---- */

typedef struct forge {
    uint8_t bytes[1024];
    size_t length;
} forge;

static void put(forge *f, const void *bytes, size_t length) {
    assert_true(f->length + length <= sizeof f->bytes);
    memcpy(f->bytes + f->length, bytes, length);
    f->length += length;
}
static void put_u32(forge *f, uint32_t value) {
    put(f, &value, 4);
}
static void put_u64(forge *f, uint64_t value) {
    put(f, &value, 8);
}
static void put_text(forge *f, const char *text) {
    put_u64(f, strlen(text));
    put(f, text, strlen(text));
}
static void start(forge *f, uint32_t version, uint64_t tensors, uint64_t keys) {
    f->length = 0;
    put(f, "GGUF", 4);
    put_u32(f, version);
    put_u64(f, tensors);
    put_u64(f, keys);
}
static void put_tensor(forge *f, const char *name, uint64_t offset) {
    put_text(f, name);
    put_u32(f, 1);
    put_u64(f, 4);
    put_u32(f, LS_GGML_F32);
    put_u64(f, offset);
}
static void finish(forge *f, size_t data) {
    while (f->length % 32 != 0) put(f, "", 1);
    for (size_t i = 0; i < data; i++) put(f, "", 1);
}

static void view(const forge *f, const char *about, const char *sentence) {
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    expect(about, ls_gguf_view(&ctx, f->bytes, f->length, "forged", &file), &ctx, sentence);
    ls_gguf_close(&ctx, &file);
}

static void test_gguf_files(void **state) {
    (void)state;
    static const struct {
        const char *names[2];
        uint64_t offset[2];
        size_t data;
        const char *sentence;
    } tensors[] = {{{"a", "b"}, {0, 32}, 64, NULL},
                   {{"b", "a"}, {32, 0}, 64, NULL},
                   {{"a", "a"}, {0, 32}, 64, "twice"},
                   {{"a", "b"}, {0, 0}, 64, "share bytes"},
                   {{"a", "b"}, {0, 64}, 64, "leaves"},
                   {{"a", "b"}, {0, 8}, 64, "not aligned"},
                   {{"a", "\x7f"}, {0, 32}, 64, "characters"},
                   {{"a", "b"}, {0, 0}, 0, "leaves"}};
    forge f;
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        start(&f, 2 + i % 2, 2, 0);
        for (int k = 0; k < 2; k++) put_tensor(&f, tensors[i].names[k], tensors[i].offset[k]);
        finish(&f, tensors[i].data);
        view(&f, "tensors", tensors[i].sentence);
    }
    start(&f, 3, 0, 1);
    put_text(&f, "general.alignment");
    put_u32(&f, LS_GGUF_TEXT);
    put_text(&f, "32");
    view(&f, "alignment of text", "no number");
    start(&f, 3, 0, 1);
    put_text(&f, "general.alignment");
    put_u32(&f, LS_GGUF_ARRAY);
    put_u32(&f, LS_GGUF_U32);
    put_u64(&f, 1);
    put_u32(&f, 32);
    view(&f, "a list of alignments", "no number");
    start(&f, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&f, "key");
        put_u32(&f, LS_GGUF_U32);
        put_u32(&f, 1);
    }
    view(&f, "a key twice", "twice");
    start(&f, 1, 0, 0);
    view(&f, "version 1", "version 1");
    start(&f, 3, 0, 0);
    f.bytes[0] = 'X';
    view(&f, "another magic", "no GGUF");
    f.length = 2;
    view(&f, "two bytes", "no GGUF");
    assert_false(ls_gguf_is_file(folder));
    assert_int_equal(mkdir(in_folder("folder.gguf"), 0700), 0);
    assert_false(ls_gguf_is_file(in_folder("folder.gguf")));
}

/* ---- safetensors: what is not written ---- */

static void test_safetensors_writer(void **state) {
    (void)state;
    static char name[LS_SAFETENSORS_NAME_MAX + 2];
    static const float one = 1;
    static const int64_t shape[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    memset(name, 'n', sizeof name - 1);
    const ls_safetensor_source wrong[] = {{name, LS_STORED_F32, 1, shape, &one},
                                          {"a", LS_STORED_F32, -1, shape, &one},
                                          {"a", LS_STORED_F32, 12, shape, &one},
                                          {"__metadata__", LS_STORED_F32, 1, shape, &one},
                                          {"\xc3\x28", LS_STORED_F32, 1, shape, &one},
                                          {"\xed\xa0\x80", LS_STORED_F32, 1, shape, &one},
                                          {"\xf4\x90\x80\x80", LS_STORED_F32, 1, shape, &one}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        expect("a source", ls_safetensors_write(&ctx, in_folder("w"), &wrong[i], 1, NULL, 0), &ctx,
               "");
}

static void view_header(const char *header, const char *sentence) {
    ls_ctx ctx = ls_ctx_default();
    ls_safetensors file;
    uint8_t bytes[4096];
    const uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    expect(header, ls_safetensors_view(&ctx, bytes, 8 + length, "forged", &file), &ctx, sentence);
    if (sentence == NULL) assert_null(ls_safetensors_metadata(&file, "no such key"));
    ls_safetensors_close(&ctx, &file);
}

static void test_safetensors_headers(void **state) {
    (void)state;
    char many[4000] = "{\"__metadata__\":{";
    for (int i = 0; i < 40; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), "%s\"k%d\":\"v\"", i ? "," : "",
                 i);
    strcat(many, "}}");
    view_header(many, NULL); /* more than the first room for them */
    view_header("{}", NULL);
    view_header("{\"__metadata__\":{\"k\":\"\\ud83d\\ude00\"}}", NULL);
    view_header("{\"__metadata__\":{\"k\":\"\\udc00\"}}", "");
    view_header("{\"__metadata__\":{\"k\":\"\\ud83d\\u0041\"}}", "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}",
                "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[1", "");
    view_header("{\"a\":{\"dtype\":\"U8\",\"shape\":[0]", "");
    view_header("{ ", "");
}

/* ---- tokenizer.json ---- */

#define MODEL(text) "{\"model\":{" text "}}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3}"
#define BPE "\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]"
#define UNIGRAM "\"vocab\":[[\"a\",-1],[\"b\",-2],[\"<unk>\",-3]]"
#define WITH(part) "{" part ",\"model\":{" BPE "}}"
#define ADDED(more) WITH("\"added_tokens\":[{\"id\":9,\"content\":\"<x>\"" more "}]")
#define SPLIT(regex)                                                                                      \
    WITH(                                                                                                 \
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"" regex \
        "\"}}")

static const struct {
    const char *json, *text, *sentence; /* of reading it, or of the text */
} tokenizers[] = {
    {MODEL(VOCAB ",\"merges\":[\"a b\"]"), "ab", NULL}, /* no type: BPE */
    {MODEL(
         VOCAB
         ",\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9"),
     "ab", NULL},
    {MODEL(UNIGRAM ",\"unk_id\":2"), "azb", NULL},
    {MODEL(UNIGRAM ",\"unk_id\":null"), "ab", NULL},
    {MODEL(UNIGRAM), "azb", "without unk_id"},
    {MODEL(UNIGRAM ",\"unk_id\":3"), "a", "unk_id"},
    {MODEL(UNIGRAM ",\"unk_id\":-1"), "a", "unk_id"},
    {MODEL(UNIGRAM ",\"unk_id\":\"2\""), "a", "unk_id"},
    {MODEL("\"type\":\"Unigram\",\"vocab\":[]"), "a", "vocab"},
    {MODEL("\"type\":\"BPE\",\"vocab\":{},\"merges\":[]"), "a", "vocab"},
    {MODEL("\"type\":\"BPE\",\"vocab\":[],\"merges\":[]"), "a", "vocab"},
    {MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]"), "a", "needs an id"},
    {MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":99999},\"merges\":[]"), "a", "needs an id"},
    {MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]"), "a", "one id"},
    {MODEL("\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":0},\"merges\":7"), "a", "merges"},
    {MODEL(
         "\"type\":\"WordPiece\",\"vocab\":{\"a\":0},\"unk_token\":\"no\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9"),
     "a", "unk_token"},
    {MODEL("\"type\":\"Other\""), "a", "Other"},
    {"{\"model\":7}", "a", "model"},
    {MODEL(BPE ",\"unk_token\":\"<unk>\",\"fuse_unk\":true"), "zzazz", NULL},
    {MODEL(BPE ",\"unk_token\":\"<unk>\",\"fuse_unk\":false"), "zzazz", NULL},
    {MODEL(BPE ",\"fuse_unk\":true"), "zza", NULL},
    {MODEL(
         "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"<0x7A>\":1,\"a<0x7A>\":2,\"<0x7A>a\":3},\"byte_fallback\":true,\"merges\":[[\"a\",\"<0x7A>\"],[\"<0x7A>\",\"a\"]]"),
     "azza", NULL},
    {ADDED(""), "a<x>b", NULL},
    {ADDED(",\"lstrip\":true,\"rstrip\":true"), " a <x>  b<x>", NULL},
    {ADDED(",\"lstrip\":true,\"rstrip\":true"), "<x> <x> \xe2\x80\x83<x>\xe2\x80\x83", NULL},
    {ADDED(",\"single_word\":true"), "a<x>b <x> <x>", NULL},
    {ADDED(",\"normalized\":true"), "a<x>b", NULL},
    {WITH("\"added_tokens\":[{\"id\":9,\"content\":\"\"}]"), "a", NULL},
    {WITH("\"added_tokens\":7"), "a", "must be a list"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\"}"), "a b", NULL},
    {WITH(
         "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}"),
     "a b", NULL},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\"}"), "a", "replacement"},
    {WITH(
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"\"},\"behavior\":\"Removed\"}"),
     "ab", NULL},
    {WITH(
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Other\"}"),
     "ab", "behavior"},
    {SPLIT("[[a]b]"), "ab", NULL},
    {SPLIT("[]a]"), "a]b", NULL},
    {SPLIT("[a&b]"), "ab", NULL},
    {SPLIT("[a&&b]"), "ab", "&&"},
    {SPLIT("[[:alpha:]]"), "ab", "brackets"},
    {SPLIT("[a[^b]]"), "ab", "brackets"},
    {SPLIT("[[[[[[[[[a]]]]]]]]]"), "ab", "brackets"},
    {SPLIT("(*ACCEPT)a"), "ab", "(*"},
    {SPLIT("(?<name>a)"), "ab", "group"},
    {SPLIT("\\\\x{6A}|\\\\x4A"), "ab", NULL},
    {SPLIT("(?=a)"), "aab", NULL},
    {SPLIT("(a+)+$"), "ab", NULL},
    {SPLIT("(?<=\\\\Ka)"), "aab", "not understood"},
    {WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"\"}"),
     "ab", NULL},
    {WITH("\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"b\"}"), "", NULL},
    {WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"====\"}"), "ab",
     NULL},
    {WITH("\"post_processor\":{\"type\":\"Other\"}"), "ab", "Other"},
    {WITH("\"decoder\":{\"type\":\"ByteFallback\"}"), "ab", NULL},
};

static ls_status run_tokenizer(ls_ctx *ctx, void *user) {
    const size_t i = *(size_t *)user;
    ls_tokenizer *tokenizer = NULL;
    ls_ids ids = {0};
    ls_text text = {0};
    ls_status status;
    LS_TRY_GOTO(ls_tokenizer_new_json(ctx, tokenizers[i].json, strlen(tokenizers[i].json), NULL,
                                      "edge", &tokenizer));
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, tokenizer, tokenizers[i].text, strlen(tokenizers[i].text),
                                    LS_ENCODE_SPECIAL, &ids));
    LS_TRY_GOTO(
        ls_tokenizer_decode_text(ctx, tokenizer, ids.at, ids.count, LS_DECODE_SKIP_SPECIAL, &text));
fail:
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &text);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static void test_tokenizers(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof tokenizers / sizeof tokenizers[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        expect(tokenizers[i].json, run_tokenizer(&ctx, &i), &ctx, tokenizers[i].sentence);
        if (tokenizers[i].sentence == NULL) fail_each_allocation(run_tokenizer, &i);
    }
}

/* ---- vocab.json and merges.txt, and both kinds as tokenizer.json ---- */

/* The 256 bytes, the last of them replaced where `last` is not NULL; then what is more. */
static void put_vocabulary(ls_ctx *ctx, const char *last, const char *more, ls_text *out) {
    ls_text_append(ctx, out, "{", 1);
    for (int byte = 0; byte < 256; byte++) {
        uint8_t letter[5] = {0};
        letter[ls__utf8_put(ls__byte_letter((uint8_t)byte), letter)] = '\0';
        const bool quoted = letter[0] == '"' || letter[0] == '\\';
        if (byte == 255 && last != NULL)
            ls_text_printf(ctx, out, "%s", last);
        else
            ls_text_printf(ctx, out, "\"%s%s\":%d%s", quoted ? "\\" : "", (const char *)letter,
                           byte, byte < 255 ? "," : "");
    }
    ls_text_printf(ctx, out, "%s}", more);
}

static void test_bpe_files(void **state) {
    (void)state;
    static char large[2000];
    snprintf(large, sizeof large, "\"%01200d\":255", 0);
    const struct {
        const char *last, *more, *merges, *sentence;
    } rows[] = {{NULL, "", "", NULL},
                {NULL, "", "#version: 0.2\n\r\n", NULL},
                {NULL, ",\"ab\":256", "a b\r\n", NULL},
                {NULL, ",\"ab\":256", "a b", NULL},
                {NULL, ",\"ab\":256", "a b\na b", "twice"},
                {NULL, ",\"ab\":256", "a c", ""},
                {NULL, ",\"ab\":256", "ab", ""},
                {NULL, ",\"ab\":256", "\x01 b", ""},
                {NULL, ",\"ab\":256", "a \x01", ""},
                {NULL, ",\"\\u0001 \\\"\":256", "", NULL}, /* itself: not of the byte alphabet */
                {NULL, ",\" \":256", "", NULL},
                {NULL, ",\"ab\":-1", "", "an id of its own"},
                {NULL, ",\"ab\":257", "", "an id of its own"},
                {NULL, ",\"ab\":7", "", "an id of its own"},
                {NULL, ",\"ab\":\"7\"", "", "an id of its own"},
                {"\"\":255", "", "", "an id of its own"},
                {"\"ab\":255", "", "", "no token for the byte"},
                {large, "", "", "an id of its own"}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_text vocabulary = {0};
        ls_tokenizer *tokenizer = NULL;
        put_vocabulary(&ctx, rows[i].last, rows[i].more, &vocabulary);
        const ls_status status =
            ls_tokenizer_new_bpe(&ctx, vocabulary.bytes, vocabulary.length, rows[i].merges,
                                 strlen(rows[i].merges), "edge", &tokenizer);
        expect(rows[i].more, status, &ctx, rows[i].sentence);
        if (status == LS_OK) { /* what is written reads as the same */
            ls_tokenizer *again;
            assert_int_equal(ls_tokenizer_save(&ctx, tokenizer, folder), LS_OK);
            assert_int_equal(ls_tokenizer_load(&ctx, folder, &again), LS_OK);
            assert_int_equal(ls_tokenizer_hash(again), ls_tokenizer_hash(tokenizer));
            ls_tokenizer_free(&ctx, again);
        }
        ls_tokenizer_free(&ctx, tokenizer);
        ls_text_clear(&ctx, &vocabulary);
    }
    expect("few tokens", ls_tokenizer_new_bpe(&ctx, "{}", 2, "", 0, "edge", &(ls_tokenizer *){0}),
           &ctx, "must map 256");
}

static ls_status export_one(ls_ctx *ctx, void *user) {
    ls_tokenizer *tokenizer = NULL;
    ls_bpe_trainer *trainer = NULL;
    ls_status status;
    if (*(bool *)user) {
        LS_TRY_GOTO(ls_bpe_trainer_new(ctx, &trainer));
        LS_TRY_GOTO(ls_bpe_trainer_add(ctx, trainer, "the whole of the whole", 22));
        LS_TRY_GOTO(ls_bpe_trainer_finish(ctx, trainer, 260, &tokenizer));
    } else {
        LS_TRY_GOTO(ls_tokenizer_new_byte(ctx, &tokenizer));
    }
    LS_TRY_GOTO(ls_tokenizer_export(ctx, tokenizer, folder));
fail:
    ls_bpe_trainer_free(ctx, trainer);
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static void test_exports_without_memory(void **state) {
    (void)state;
    fail_each_allocation(export_one, &(bool){false});
    fail_each_allocation(export_one, &(bool){true});
}

/* ---- learning, loading, broken text ---- */

static void test_learning(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_bpe_trainer *trainer;
    ls_tokenizer *tokenizer;
    ls_text text = {0};
    for (int i = 0; i < 3000; i++) ls_text_printf(&ctx, &text, " word%d", i); /* many words */
    for (int i = 0; i < 900; i++) ls_text_append(&ctx, &text, "a", 1);        /* a long one */
    for (int i = 0; i < 3; i++) ls_text_printf(&ctx, &text, " xyz xyz yzx zxy abab baba");
    ls_bpe_trainer_free(&ctx, NULL);
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, text.bytes, text.length), LS_OK);
    expect("a small vocabulary", ls_bpe_trainer_finish(&ctx, trainer, 256, &tokenizer), &ctx,
           "257 to");
    expect("a large vocabulary", ls_bpe_trainer_finish(&ctx, trainer, INT64_MAX, &tokenizer), &ctx,
           "257 to");
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 4000, &tokenizer), LS_OK);
    ls_ids ids = {0};
    ls_text back = {0};
    assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer, text.bytes, text.length, 0, &ids), LS_OK);
    assert_int_equal(ls_tokenizer_decode(&ctx, tokenizer, ids.at, ids.count, &back), LS_OK);
    assert_int_equal(back.length, text.length);
    assert_memory_equal(back.bytes, text.bytes, text.length);
    ls_ids_clear(&ctx, &ids);
    ls_text_clear(&ctx, &back);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_bpe_trainer_free(&ctx, trainer);
    ls_text_clear(&ctx, &text);
}

static ls_status load_one(ls_ctx *ctx, void *path) {
    ls_tokenizer *tokenizer;
    LS_TRY(ls_tokenizer_load(ctx, path, &tokenizer));
    ls_tokenizer_free(ctx, tokenizer);
    return LS_OK;
}

static void test_loading(void **state) {
    (void)state;
    static const char lines[] = "[PAD]\r\n[UNK]\r\n\r\n[CLS]\n[SEP]\na\n##b";
    char name[5000], path[256];
    ls_ctx ctx = ls_ctx_default();
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    name[4500] = ',';
    assert_int_equal(ls_folder_make(&ctx, in_folder("lines/tokenizer")), LS_OK);
    snprintf(path, sizeof path, "%s", in_folder("lines/tokenizer/vocab.txt"));
    assert_int_equal(ls_file_write(&ctx, path, lines, sizeof lines - 1), LS_OK);
    expect("lines", load_one(&ctx, path), &ctx, NULL);
    fail_each_allocation(load_one, path);
    assert_int_equal(ls_file_write(&ctx, in_folder("lines/tokenizer/tokenizer_config.json"),
                                   "{\"do_lower_case\": false}", 24),
                     LS_OK);
    fail_each_allocation(load_one, path);
    snprintf(path, sizeof path, "%s", in_folder("lines"));
    expect("a folder within", load_one(&ctx, path), &ctx, NULL);
    assert_true(ls_tokenizer_is_in(in_folder("lines/tokenizer")));
    assert_false(ls_tokenizer_is_in(path));
    assert_false(ls_tokenizer_is_in(name));
    assert_int_equal(ls_file_write(&ctx, in_folder("lines/tokenizer/vocab.txt"), "a\nb\n", 4),
                     LS_OK);
    expect("no special tokens", load_one(&ctx, path), &ctx, "");
    assert_int_equal(
        ls_file_write(&ctx, in_folder("lines/tokenizer/tokenizer_config.json"), "{", 1), LS_OK);
    expect("half a config", load_one(&ctx, path), &ctx, "tokenizer_config.json");
    expect("a long pair", load_one(&ctx, name), &ctx, "nnn");
    expect("a missing pair", load_one(&ctx, (char[]){"/no/a.json,/no/b.txt"}), &ctx, "/no/a.json");
    expect("another ending", load_one(&ctx, (char[]){"x"}), &ctx, "neither");
    expect("a folder of nothing", load_one(&ctx, (char[]){"/proc"}), &ctx, "no tokenizer");
    assert_int_equal(ls_file_write(&ctx, in_folder("x.gguf"), "GGUF", 4), LS_OK);
    assert_false(ls_tokenizer_is_in(in_folder("x.gguf")));
    expect("half a GGUF file", load_one(&ctx, (void *)(uintptr_t)in_folder("x.gguf")), &ctx,
           "ends");
}

/* What Python's bytes.decode("utf-8", "replace") makes of it. */
static void test_broken_text(void **state) {
    (void)state;
    static const struct {
        const char *bytes, *text; /* ? stands for U+FFFD */
    } rows[] = {{"\xe0\x80x", "??x"}, {"\xed\xa0\x80x", "???x"}, {"\xf0\x80x", "??x"},
                {"\xf4\x90x", "??x"}, {"\xf0\x9f\x98x", "?x"},   {"\xe2\x82", "?"},
                {"\xc3", "?"},        {"\xff\xfe", "??"},        {"\xf4\x8f\xbfx", "?x"},
                {"\xed\x9fx", "?x"},  {"\xf0\x90\x80", "?"}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_text out = {0}, wanted = {0};
        ls__utf8_append_valid(&ctx, (const uint8_t *)rows[i].bytes, strlen(rows[i].bytes), &out);
        for (const char *c = rows[i].text; *c != '\0'; c++)
            ls_text_append(&ctx, &wanted, *c == '?' ? "\xef\xbf\xbd" : c, *c == '?' ? 3 : 1);
        assert_string_equal(out.bytes, wanted.bytes);
        ls_text_clear(&ctx, &out);
        ls_text_clear(&ctx, &wanted);
    }
}

/* ---- the guard's state ---- */

static void test_guard(void **state) {
    (void)state;
    static const struct {
        const char *json, *sentence;
    } rows[] = {
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[1,2],\"norm\":[]}", NULL},
        {"{\"rejected\":2,\"in_a_row\":3,\"rate_factor\":1,\"loss\":[],\"norm\":[]}", "in_a_row"},
        {"{\"rejected\":-1,\"in_a_row\":0,\"rate_factor\":1,\"loss\":[],\"norm\":[]}", "rejected"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":2,\"loss\":[],\"norm\":[]}",
         "rate_factor"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[\"1\"],\"norm\":[]}",
         "numbers"},
        {"{\"rejected\":2,\"in_a_row\":1,\"rate_factor\":1,\"loss\":[],\"norm\":7}", "window"}};
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ls_guard guard = {.settings = {.window = 4, .rejections = 2}};
        json_t *json = json_loads(rows[i].json, 0, NULL);
        assert_non_null(json);
        assert_false(ls_guard_exhausted(&guard));
        expect(rows[i].json, ls_guard_load(&ctx, json, "state.json", &guard), &ctx,
               rows[i].sentence);
        json_decref(json);
    }
    for (int verdict = LS_GUARD_ACCEPTED; verdict <= LS_GUARD_NORM_SPIKE + 1; verdict++)
        assert_non_null(ls_guard_reason((ls_guard_verdict)verdict));
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_paths),
                                       cmocka_unit_test(test_settings),
                                       cmocka_unit_test(test_gguf_files),
                                       cmocka_unit_test(test_safetensors_writer),
                                       cmocka_unit_test(test_safetensors_headers),
                                       cmocka_unit_test(test_tokenizers),
                                       cmocka_unit_test(test_bpe_files),
                                       cmocka_unit_test(test_exports_without_memory),
                                       cmocka_unit_test(test_learning),
                                       cmocka_unit_test(test_loading),
                                       cmocka_unit_test(test_broken_text),
                                       cmocka_unit_test(test_guard)};
    return cmocka_run_group_tests(tests, begin, end);
}
