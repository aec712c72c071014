/* Tokenizers at their edges: vocabularies, patterns and fields that no tool writes, learning,
 * loading and exporting without memory, broken text, and a stop in the midst.
 * Tier: memory. */
#include "reader_edges.h"

#include <signal.h>

#include "data/tokenizer.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/unicode.h"
#include "failing_allocator.h"
#include "failing_json.h"

/* ---- tokenizer.json ---- */

#define MODEL(text) "{\"model\":{" text "}}"
#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3}"
#define BPE "\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]"
#define UNIGRAM "\"vocab\":[[\"a\",-1],[\"b\",-2],[\"<unk>\",-3]]"
#define A_LONG_WORD                                                                                  \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
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
    {MODEL("\"vocab\":[[\"a\",-1],[\"aa\",-1.5],[\"<unk>\",-3]],\"unk_id\":2"), A_LONG_WORD, NULL},
    {MODEL(
         "\"type\":\"WordPiece\",\"vocab\":{\"a\":0,\"##\":1,\"##b\":2,\"?\":3},\"unk_token\":\"?\","
         "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":9"),
     "ab", NULL},
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
    /* fields of another type, or that nobody knows */
    {ADDED(",\"special\":7"), "a", "special"},
    {ADDED(",\"normalized\":7"), "a", "normalized"},
    {ADDED(",\"lstrip\":7"), "a", "lstrip"},
    {ADDED(",\"rstrip\":7"), "a", "rstrip"},
    {ADDED(",\"single_word\":7"), "a", "single_word"},
    {WITH("\"added_tokens\":[{\"content\":\"x\"}]"), "a", "id"},
    {WITH("\"added_tokens\":[{\"id\":1,\"content\":7}]"), "a", "content"},
    {MODEL(BPE ",\"fuse_unk\":7"), "a", "fuse_unk"},
    {MODEL(BPE ",\"byte_fallback\":7"), "a", "byte_fallback"},
    {MODEL(BPE ",\"ignore_merges\":7"), "a", "ignore_merges"},
    {MODEL(BPE ",\"continuing_subword_prefix\":\"x\""), "a", "continuing_subword_prefix"},
    {MODEL(UNIGRAM ",\"byte_fallback\":7"), "a", "byte_fallback"},
    {MODEL(UNIGRAM ",\"other\":7"), "a", "other"},
    {MODEL("\"type\":\"WordPiece\",\"unk_token\":\"<unk>\"," VOCAB), "a",
     "continuing_subword_prefix"},
    {MODEL(
         "\"type\":\"WordPiece\",\"unk_token\":\"<unk>\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":0," VOCAB),
     "a", "max_input_chars_per_word"},
    {WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":7}"), "a", "clean_text"},
    {WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"handle_chinese_chars\":7}"), "a",
     "handle_chinese_chars"},
    {WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":7}"), "a", "lowercase"},
    {WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"strip_accents\":7}"), "a",
     "strip_accents"},
    {WITH("\"normalizer\":{\"type\":\"Strip\",\"strip_left\":7}"), "a", "strip_left"},
    {WITH("\"normalizer\":{\"type\":\"Strip\",\"strip_right\":7}"), "a", "strip_right"},
    {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":7}"), "a",
     "add_prefix_space"},
    {WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":7}"), "a", "use_regex"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"split\":7}"), "a",
     "split"},
    {WITH(
         "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":7}"),
     "a", "add_prefix_space"},
    {WITH("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\",\"other\":7}"), "a", "other"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Whitespace\",\"other\":7}"), "a", "other"},
    {WITH("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\",\"other\":7}"), "a", "other"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Punctuation\",\"other\":7}"), "a", "other"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":7}"), "a",
     "individual_digits"},
    {WITH("\"pre_tokenizer\":{\"type\":\"Split\",\"invert\":7}"), "a", "invert"},
    {WITH("\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":7}"), "a",
     "add_prefix_space"},
    {WITH("\"decoder\":{\"type\":\"WordPiece\",\"cleanup\":7}"), "a", "cleanup"},
    {WITH("\"decoder\":{\"type\":\"WordPiece\",\"other\":7}"), "a", "other"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}"), "a",
     "start"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":0,\"stop\":-1}"), "a",
     "stop"},
    {WITH("\"decoder\":{\"type\":\"Strip\",\"start\":0,\"stop\":0}"), "a", "content"},
    {WITH(
         "\"post_processor\":{\"type\":\"BertProcessing\",\"cls\":[\"a\",\"b\"],\"sep\":[\"a\",0]}"),
     "a", ""},
    {WITH("\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"a\"]}"),
     "a", ""},
    {WITH(
         "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}}],\"special_tokens\":{\"a\":{\"ids\":[\"x\"]}}}"),
     "a", ""},
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
            assert_int_equal(ls_tokenizer_export(&ctx, tokenizer, in_folder(".")), LS_OK);
            assert_int_equal(unlink(in_folder("tokenizer.json")), 0);
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
    fail_each_json(export_one, &(bool){true});
    ls_ctx ctx = ls_ctx_default();
    ls_tokenizer *tokenizer;
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(ls_tokenizer_new_byte(&ctx, &tokenizer), LS_OK);
    expect("a long folder", ls_tokenizer_export(&ctx, tokenizer, name), &ctx, "nnn");
    expect("no folder", ls_tokenizer_export(&ctx, tokenizer, in_folder("no")), &ctx, "no");
    ls_tokenizer_free(&ctx, tokenizer);
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

/* ---- a stop is heeded ---- */

static void test_stops(void **state) {
    (void)state;
    static const char unigram[] = MODEL(UNIGRAM ",\"unk_id\":2"), bpe[] = MODEL(BPE);
    ls_ctx ctx = ls_ctx_default();
    volatile sig_atomic_t stop = 0;
    ls_tokenizer *tokenizer[3], *none;
    ls_bpe_trainer *trainer;
    ls_text text = {0};
    for (int i = 0; i < 20000; i++) ls_text_printf(&ctx, &text, "ab ba ");
    assert_int_equal(ls_bpe_trainer_new(&ctx, &trainer), LS_OK);
    assert_int_equal(ls_bpe_trainer_add(&ctx, trainer, text.bytes, text.length), LS_OK);
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 260, &tokenizer[0]), LS_OK);
    assert_int_equal(
        ls_tokenizer_new_json(&ctx, unigram, sizeof unigram - 1, NULL, "u", &tokenizer[1]), LS_OK);
    assert_int_equal(ls_tokenizer_new_json(&ctx, bpe, sizeof bpe - 1, NULL, "b", &tokenizer[2]),
                     LS_OK);
    ctx.stop = &stop;
    stop = 1;
    assert_int_equal(ls_bpe_trainer_finish(&ctx, trainer, 260, &none), LS_ESTOP);
    ctx.error = (ls_error){0};
    for (int i = 0; i < 3; i++) {
        ls_ids ids = {0};
        assert_int_equal(ls_tokenizer_encode(&ctx, tokenizer[i], text.bytes, text.length, 0, &ids),
                         LS_ESTOP);
        ctx.error = (ls_error){0};
        ls_ids_clear(&ctx, &ids);
        ls_tokenizer_free(&ctx, tokenizer[i]);
    }
    ls_bpe_trainer_free(&ctx, trainer);
    ls_text_clear(&ctx, &text);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_tokenizers),
                                       cmocka_unit_test(test_bpe_files),
                                       cmocka_unit_test(test_exports_without_memory),
                                       cmocka_unit_test(test_learning),
                                       cmocka_unit_test(test_loading),
                                       cmocka_unit_test(test_broken_text),
                                       cmocka_unit_test(test_stops)};
    return cmocka_run_group_tests(tests, begin, end);
}
