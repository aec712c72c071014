/* Border cases of every component of a tokenizer.json, as Hugging Face's library runs them
 * (tests/golden/tokenizers/edges.json): ids without and with the template, texts of ids with and
 * without special tokens; then the same with every allocation failing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "data/tokenizer.h"
#include "failing_allocator.h"

static json_t *entries;

static int read_entries(void **state) {
    (void)state;
    json_error_t error;
    entries = json_load_file(LS_TEST_SOURCE "/tests/golden/tokenizers/edges.json", JSON_ALLOW_NUL,
                             &error);
    if (entries == NULL) fprintf(stderr, "line %d: %s\n", error.line, error.text);
    return entries == NULL;
}

static int free_entries(void **state) {
    (void)state;
    json_decref(entries);
    return 0;
}

typedef struct comparison {
    const ls_tokenizer *tokenizer;
    const char *document; /* its tokenizer.json */
    size_t number;        /* of the entry */
    int wrong, compared;
} comparison;

static ls_status take_ids(ls_ctx *ctx, const json_t *list, ls_ids *out) {
    const json_t *number;
    size_t index;
    json_array_foreach(list, index, number) {
        int32_t id = (int32_t)json_integer_value(number);
        LS_TRY(ls_ids_append(ctx, out, &id, 1));
    }
    return LS_OK;
}

static void print_ids(const char *name, const ls_ids *ids) {
    fprintf(stderr, "  %s:", name);
    for (size_t i = 0; i < ids->count; i++) fprintf(stderr, " %ld", (long)ids->at[i]);
    fprintf(stderr, "\n");
}

static ls_status encode(ls_ctx *ctx, comparison *c, const json_t *text, const json_t *expected,
                        unsigned flags) {
    ls_ids ids = {0}, wanted = {0};
    ls_status status;
    LS_TRY_GOTO(take_ids(ctx, expected, &wanted));
    LS_TRY_GOTO(ls_tokenizer_encode(ctx, c->tokenizer, json_string_value(text),
                                    json_string_length(text), flags, &ids));
    c->compared++;
    if (ids.count != wanted.count ||
        (ids.count > 0 && memcmp(ids.at, wanted.at, ids.count * sizeof *ids.at) != 0)) {
        c->wrong++;
        fprintf(stderr, "entry %zu, [%s], flags %u\n", c->number, json_string_value(text), flags);
        print_ids("expected", &wanted);
        print_ids("came out", &ids);
    }
fail:
    ls_ids_clear(ctx, &ids);
    ls_ids_clear(ctx, &wanted);
    return status;
}

static ls_status decode(ls_ctx *ctx, comparison *c, const json_t *list, const json_t *expected,
                        unsigned flags) {
    ls_ids ids = {0};
    ls_text out = {0};
    ls_status status;
    LS_TRY_GOTO(take_ids(ctx, list, &ids));
    LS_TRY_GOTO(ls_tokenizer_decode_text(ctx, c->tokenizer, ids.at, ids.count,
                                         flags | LS_DECODE_UTF8, &out));
    c->compared++;
    if (out.length != json_string_length(expected) ||
        (out.length > 0 && memcmp(out.bytes, json_string_value(expected), out.length) != 0)) {
        c->wrong++;
        print_ids("ids", &ids);
        fprintf(stderr, "entry %zu, flags %u: expected\n  [%s]\n  [%s]\n", c->number, flags,
                json_string_value(expected), out.length == 0 ? "" : out.bytes);
    }
fail:
    ls_ids_clear(ctx, &ids);
    ls_text_clear(ctx, &out);
    return status;
}

static ls_status compare(ls_ctx *ctx, void *user) {
    comparison *c = user;
    const json_t *entry = json_array_get(entries, c->number), *one;
    ls_tokenizer *tokenizer = NULL;
    size_t index;
    ls_status status;
    LS_TRY_GOTO(
        ls_tokenizer_new_json(ctx, c->document, strlen(c->document), NULL, "an edge", &tokenizer));
    c->tokenizer = tokenizer;
    json_array_foreach(json_object_get(entry, "texts"), index, one) {
        LS_TRY_GOTO(encode(ctx, c, json_array_get(one, 0), json_array_get(one, 1), 1));
        LS_TRY_GOTO(encode(ctx, c, json_array_get(one, 0), json_array_get(one, 2), 1 | 2));
    }
    json_array_foreach(json_object_get(entry, "ids"), index, one) {
        LS_TRY_GOTO(decode(ctx, c, json_array_get(one, 0), json_array_get(one, 1), 0));
        LS_TRY_GOTO(
            decode(ctx, c, json_array_get(one, 0), json_array_get(one, 2), LS_DECODE_SKIP_SPECIAL));
    }
fail:
    ls_tokenizer_free(ctx, tokenizer);
    return status;
}

static char *document_of(size_t entry) {
    char *document = json_dumps(json_object_get(json_array_get(entries, entry), "tokenizer"), 0);
    assert_non_null(document);
    return document;
}

static void test_edges(void **state) {
    (void)state;
    comparison c = {0};
    for (; c.number < json_array_size(entries); c.number++) {
        ls_ctx ctx = ls_ctx_default();
        char *document = document_of(c.number);
        c.document = document;
        if (compare(&ctx, &c) != LS_OK) {
            fprintf(stderr, "entry %zu: %s\n", c.number, ctx.error.message);
            c.wrong++;
        }
        free(document);
    }
    print_message("%d of %d differ\n", c.wrong, c.compared);
    assert_true(c.compared > 1000);
    assert_int_equal(c.wrong, 0);
}

/* One entry in fifteen: the kinds follow each other in the file. */
static void test_allocation_failures(void **state) {
    (void)state;
    for (size_t i = 0; i < json_array_size(entries); i += 15) {
        char *document = document_of(i);
        comparison c = {.number = i, .document = document};
        fail_each_allocation(compare, &c);
        free(document);
        assert_int_equal(c.wrong, 0);
    }
}

#define BPE "\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}"
#define MODEL "\"model\": {" BPE ", \"merges\": []}"
#define MERGES(list) "{\"model\": {" BPE ", \"merges\": [" list "]}}"
#define PRE(step) "{\"pre_tokenizer\": " step ", " MODEL "}"
#define REGEX(text)                                                                                \
    PRE("{\"type\": \"Split\", \"pattern\": {\"Regex\": \"" text                                   \
        "\"}, \"behavior\": \"Isolated\", \"invert\": false}")
#define DECODER(step) "{\"decoder\": " step ", " MODEL "}"
#define NORMALIZER(step) "{\"normalizer\": " step ", " MODEL "}"
#define POST(step) "{\"post_processor\": " step ", " MODEL "}"
#define BYTES "{\"type\": \"ByteLevel\"}"
#define META "{\"type\": \"Metaspace\", \"replacement\": \"_\"}"

/* What is not understood, and a word of the sentence that says so. */
static void test_refusals(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {REGEX("[^\\\\W]"), "\\W"},
        {REGEX("[\\\\D]"), "\\D"},
        {REGEX("[[:alpha:]]"), "alpha"},
        {REGEX("[[a]"), "pattern"},
        {REGEX("[a-[z]]"), "`-["},
        {REGEX("[a&&b]"), "`&&`"},
        {REGEX("[[[[[[[[[a]]]]]]]]]"), "brackets"},
        {REGEX("\\\\x4"), "number"},
        {REGEX("\\\\x80"), "number"},
        {REGEX("\\\\x{}"), "number"},
        {REGEX("\\\\x{41"), "number"},
        {REGEX("\\\\u004"), "number"},
        {REGEX("\\\\xzz"), "number"},
        {REGEX("a\\\\"), "pattern"},
        {REGEX("\\\\G"), "\\G"},
        {REGEX("\\\\\u00e9"), "pattern"},
        {PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", " BYTES "]}"), "twice"},
        {PRE("{\"type\": \"Sequence\", \"pretokenizers\": [" BYTES ", " META "]}"), "after"},
        {PRE("{\"type\": \"Metaspace\"}"), "replacement"},
        {PRE("{\"type\": \"Metaspace\", \"replacement\": \"\"}"), "replacement"},
        {PRE("{\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": \"x\"}"), "x"},
        {PRE("{\"type\": \"Punctuation\", \"behavior\": 3}"), "behavior"},
        {PRE("{\"type\": \"Split\", \"pattern\": {\"String\": \"a\"}}"), "behavior"},
        {DECODER("{\"type\": \"BPEDecoder\", \"suffix\": \"</w>\"}"), "BPEDecoder"},
        {DECODER("{\"type\": \"Metaspace\", \"replacement\": \"\"}"), "replacement"},
        {DECODER("{\"type\": \"Strip\", \"content\": \"\", \"start\": 0, \"stop\": 0}"), "content"},
        {DECODER("{\"type\": \"Strip\", \"content\": \"ab\", \"start\": 0, \"stop\": 0}"),
         "content"},
        {NORMALIZER("{\"type\": \"Precompiled\"}"), "precompiled_charsmap"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"{}\"}"), "charsmap"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAA\"}"),
         "character map"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AwAAAA==\"}"),
         "character map"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAAAAA==\"}"),
         "character map"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAAA=\"}"),
         "character map"},
        {NORMALIZER("{\"type\": \"Precompiled\", \"precompiled_charsmap\": \"BAAAAAAAAABh\"}"),
         "character map"},
        {POST("{\"type\": \"BertProcessing\", \"sep\": [\"a\", -1], \"cls\": [\"a\", 0]}"),
         "no id"},
        {POST("{\"type\": \"BertProcessing\", \"sep\": [\"a\", 99999999], \"cls\": [\"a\", 0]}"),
         "no id"},
        {POST("{\"type\": \"TemplateProcessing\", \"single\": [], \"special_tokens\": {}}"),
         "once"},
        {MERGES("\"ab\""), "merge"},
        {MERGES("[\"a\"]"), "merge"},
        {MERGES("[1, \"a\"]"), "merge"},
        {MERGES("[\"a\", 1]"), "merge"},
        {MERGES("[\"c\", \"a\"]"), "merge"},
        {MERGES("[\"a\", \"c\"]"), "merge"},
        {MERGES("[\"b\", \"a\"]"), "merge"},
        {"{\"model\": {" BPE ", \"unk_token\": \"\", \"merges\": []}}", "unk_token"},
        {"{\"model\": {" BPE ", \"end_of_word_suffix\": \"x\", \"merges\": []}}", "suffix"},
        {"{\"model\": {" BPE ", \"dropout\": 0.5, \"merges\": []}}", "dropout"},
        {"{\"model\": {" BPE ", \"merges\": 3}}", "merges"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": []}}", "vocab"},
        {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": -1, \"vocab\": [[\"a\", -1]]}}",
         "unk_id"},
        {"{\"model\": {\"type\": \"WordPiece\", \"unk_token\": \"x\", \"vocab\": {\"a\": 0}}}",
         "unk"},
        {"{\"pre_tokenizer\": " BYTES
         ", \"model\": {\"type\": \"WordPiece\", \"unk_token\": \"a\", "
         "\"vocab\": {\"a\": 0}}}",
         "ByteLevel"},
        {"{\"pre_tokenizer\": " BYTES
         ", \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": "
         "[[\"a\", -1]]}}",
         "ByteLevel"},
    };
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_tokenizer *tokenizer;
        ls_status status =
            ls_tokenizer_new_json(&ctx, cases[i][0], strlen(cases[i][0]), NULL, "t", &tokenizer);
        if (status == LS_EINPUT && strstr(ctx.error.message, cases[i][1]) != NULL) continue;
        fprintf(stderr, "%s\n  %d: `%s` does not name %s\n", cases[i][0], (int)status,
                ctx.error.message, cases[i][1]);
        if (status == LS_OK) ls_tokenizer_free(&ctx, tokenizer);
        wrong++;
    }
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_allocation_failures),
    };
    return cmocka_run_group_tests(tests, read_entries, free_entries);
}
