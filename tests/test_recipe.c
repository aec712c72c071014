/* Recipes: what is read, and what is refused in which words.
 * Tier: memory. */
#include "base/settings.h"
#include "harness.h"

/* "key=value;key=value;" or the error. */
static void read_back(const char *text, ls_text *out) {
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    if (ls_settings_parse(&ctx, &settings, text, strlen(text), "r.yaml") == LS_OK) {
        ls_text_append(&ctx, out, "", 0);
        for (size_t i = 0; i < settings.count; i++)
            ls_text_printf(&ctx, out, "%s=%s;", settings.items[i].key, settings.items[i].value);
    } else {
        assert_int_equal(ctx.error.code, LS_EINPUT);
        ls_text_printf(&ctx, out, "%s", ctx.error.message);
    }
    ls_settings_clear(&ctx, &settings);
}

static void test_read(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *means;
    } cases[] = {
        {"", ""},
        {"# nothing\n\n   # here\n", ""},
        {"a: 1\nb: two words # and a comment\n", "a=1;b=two words;"},
        {"a:1: 2", "a:1=2;"},
        {"---\na: 1\r\nb: 2\r\n", "a=1;b=2;"},
        {"\xef\xbb\xbf"
         "a: \xc3\xa9",
         "a=\xc3\xa9;"},
        {"a:\n  b: 1\n  c:\n    d: 2\n\n  e: 3\nf: 4", "a.b=1;a.c.d=2;a.e=3;f=4;"},
        {"a:\nb:\n", "a=;b=;"},
        {"  a: 1\n  b: 2", "a=1;b=2;"},
        {"a: [1, x y , 'p, q', \"\\u00e9\\x41\\\\\"]", "a=1,x y,p, q,\xc3\xa9"
                                                       "A\\;"},
        {"a: []\nb: {}\nc: [1, 2,]\n", "a=;b=;c=1,2;"},
        {"a: [1, # one\n\n  2\n]\nb: 3", "a=1,2;b=3;"},
        {"a: {b: 1, c: {d: [2, 3], e: }, 'f': \"g\"}", "a.b=1;a.c.d=2,3;a.c.e=;a.f=g;"},
        {"a:\n- 1\n- 'two'\nb:\n  - x # y\n  -\n", "a=1,two;b=x,;"},
        {"a: 'it''s' # quote", "a=it's;"},
        {"a: \"tab\\tnew\\nline\\/\"", "a=tab\tnew\nline/;"},
        {"a.b: c#d\n\"e f\": -1\n", "a.b=c#d;e f=-1;"},
        {"a: x:y http://z\nb: a-b?c\n", "a=x:y http://z;b=a-b?c;"},
        {"a: '# no comment'", "a=# no comment;"},
        {"a: >-\n  one\n  two # all text\n\n  three\nb: 1", "a=one two # all text\nthree;b=1;"},
        {"a:\n  b: >\n    one\n\n\n    two\n\n  c: 2", "a.b=one\n\ntwo\n;a.c=2;"},
        {"a: |\n   one\n     two\n\n   three\n", "a=one\n  two\n\nthree\n;"},
        {"a: |\n  one\n  ", "a=one\n;"}, /* blanks at the end of the text are no line of it */
        {"a: >\n  one\n   ", "a=one\n;"},
        {"a: |-\nb: |-\n  x\r\n  y", "a=;b=x\ny;"},
        {"a: |\n\n  \n \n  one\n\n  two\n\n\nb: 1", "a=\n\n\none\n\ntwo\n;b=1;"},
        {"a: >\n\n\n  one\n  two\n", "a=\n\none two\n;"},
        {"a:\n  b: |-\r\n\r\n    x\r\n  c: |\n\n   \nd: >\n\n", "a.b=\nx;a.c=;d=;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_text got = {0};
        read_back(cases[i].text, &got);
        assert_string_equal(got.bytes, cases[i].means);
        ls_text_clear(&ctx, &got);
    }
}

static void test_refused(void **unused) {
    (void)unused;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"abc", "r.yaml, line 1: `abc` is not a key"},
        {"a: 1\na: 2", "line 2: a is given twice"},
        {"a:\n  b: 1\na.b: 2", "line 3: a.b is given twice"},
        {"a: 1\n  b: 2", "line 2: this line is indented deeper"},
        {"a:\n    b: 1\n  c: 2", "line 3: this line is indented deeper"},
        {"  a: 1\nb: 2", "line 2: this line is indented less"},
        {"a:\n\tb: 1", "line 2: indent with spaces"},
        {"- a", "line 1: a list stands below a key"},
        {"a: 1\n---\nb: 2", "line 2: a recipe is one document"},
        {"a: 1\n...\n", "line 2: a recipe is one document"},
        {"a: &x 1", "quote the text"},
        {"a: *x", "quote the text"},
        {"a: !!int 1", "quote the text"},
        {"a: [|]", "quote the text"},
        {"a: >2\n  text", "behind > or | only a - may stand"},
        {"a: >\n  text\n    deeper", "line 3: the lines of a text below >"},
        {"a: |\n   \n  text\n", "line 3: an empty line above this one has more blanks"},
        {"a: >\n  text\n c: 1", "line 3: this line is indented deeper"},
        {"%YAML 1.2\n", "quote the text"},
        {"? a\n: b", "quote the text"},
        {"a: b: c", "there is more behind the value of a"},
        {"a: 'b' c", "there is more behind the value of a"},
        {"a: 'b", "a ' is not closed"},
        {"a: 'b\nc'", "line 1: a ' is not closed"},
        {"a: \"b", "a \" is not closed"},
        {"a: \"\\q\"", "a \\ stands before"},
        {"a: \"\\x0\"", "needs 2 hexadecimal digits"},
        {"a: \"\\x00\"", "stands for no character"},
        {"a: \"\\ud800\"", "stands for no character"},
        {"a: [1, 2", "a `[` is not closed"},
        {"a: [", "the text ends inside brackets"},
        {"a: {b: 1", "a `{` is not closed"},
        {"a: {b}", "`b` is not a key"},
        {"a: [[1], 2]", "quote the text"},
        {"a:\n  - [1]\n", "quote the text"},
        {"a:\n  - b: 1\n", "a must be plain text or a list of it"},
        {"'': 1", "a key has 1 to"},
        {"a: \x01", "not plain UTF-8"},
        {"a: 1\nb: \xff", "line 2: this is not plain UTF-8"},
        {"a: 1\rb: 2", "not plain UTF-8"},
        {"a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: 1",
         "nested deeper than 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_text got = {0};
        read_back(cases[i].text, &got);
        if (strstr(got.bytes, cases[i].says) == NULL)
            fail_msg("%s\n is read as\n%s\nnot\n%s", cases[i].text, got.bytes, cases[i].says);
        ls_text_clear(&ctx, &got);
    }
}

/* Long ones: a limit, not a wait. */
static void test_many(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    ls_text text = {0}, got = {0};
    for (int i = 0; i < 5000; i++) ls_text_printf(&ctx, &text, "k%d: 1\n", i);
    read_back(text.bytes, &got);
    assert_non_null(strstr(got.bytes, "line 4097: a recipe has at most 4096 settings"));
    ls_text_clear(&ctx, &text);
    ls_text_clear(&ctx, &got);
    for (int i = 0; i < 300; i++) ls_text_append(&ctx, &text, "k", 1);
    ls_text_append(&ctx, &text, ": 1", 3);
    read_back(text.bytes, &got);
    assert_non_null(strstr(got.bytes, "a key has 1 to 199 bytes"));
    ls_text_clear(&ctx, &text);
    ls_text_clear(&ctx, &got);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
