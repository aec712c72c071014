/* Chat templates against what transformers renders (tests/golden/chat.json), and what is refused.
 * LONGSHOT_CHATS names another such file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "serve/template.h"

static void check_file(const char *path) {
    ls_ctx ctx = ls_ctx_default();
    json_t *all, *one;
    size_t i;
    if (ls_json_read(&ctx, path, 1 << 24, &all) != LS_OK) fail_msg("%s", ctx.error.message);
    const json_t *templates = json_object_get(all, "templates");
    assert_true(json_array_size(json_object_get(all, "cases")) > 10);
    json_array_foreach(json_object_get(all, "cases"), i, one) {
        const char *name = json_string_value(json_object_get(one, "template"));
        const char *source = json_string_value(json_object_get(templates, name));
        const json_t *expected = json_object_get(one, "text");
        ls_template *chat;
        ls_text text = {0};
        ls_status status = ls_template_new(&ctx, source, strlen(source), "<s>", "</s>", &chat);
        if (status != LS_OK) fail_msg("%s: %s", name, ctx.error.message);
        status =
            ls_template_render(&ctx, chat, json_object_get(one, "messages"),
                               json_is_true(json_object_get(one, "add_generation_prompt")), &text);
        if (json_is_null(expected)) {
            assert_int_equal(status, LS_EUSE);
            ctx.error = (ls_error){0};
        } else {
            if (status != LS_OK) fail_msg("%s, case %zu: %s", name, i, ctx.error.message);
            if (text.length != json_string_length(expected) ||
                (text.length > 0 &&
                 memcmp(text.bytes, json_string_value(expected), text.length) != 0))
                fail_msg("%s, case %zu:\n%s\nis not\n%s", name, i, text.bytes,
                         json_string_value(expected));
        }
        ls_text_clear(&ctx, &text);
        ls_template_free(&ctx, chat);
    }
    json_decref(all);
}

static void test_as_transformers(void **unused) {
    (void)unused;
    check_file(LS_TEST_SOURCE "/tests/golden/chat.json");
    if (getenv("LONGSHOT_CHATS") != NULL) check_file(getenv("LONGSHOT_CHATS"));
}

/* What is not understood is refused when the template is read, and a loop that never ends ends. */
static void test_refused(void **unused) {
    (void)unused;
    static const char *const bad[] = {
        "{% macro f() %}{% endmacro %}",
        "{{ strftime_now('%Y') }}",
        "{{ x | sort }}",
        "{{ x is divisibleby 3 }}",
        "{% if x %}",
        "{% for x %}{% endfor %}",
        "{{ 'open }}",
        "{{ 1.5 }}",
        "{{ x",
        "{% endif %}",
        "{{ (1 }}",
        "{% set = 1 %}",
        "{%+ if x %}{% endif %}",
        "{% import 'x' as y %}",
        "{{ x.foo(1) }}",
        "{{ }}",
        "{{ '\xff' }}",
        "{{ 'a' b }}",
        "{% else %}",
        "{{ 99999999999999999999 }}",
        "{{ 9223372036854775808 }}",
        "{{ a. }}",
        "{{ a | }}",
        "{{ 1 not 2 }}",
        "{% for 1 in x %}{% endfor %}",
        "{% elif x %}",
        "{% if x %}{% else %}{% elif x %}{% endif %}",
        "{{ namespace(1) }}",
        "{{ range(1, 2) }}",
        "{{ sum(1) }}",
        "{{ x is not odd }}",
        /* an argument of the test to Jinja, which no test here has */
        "{{ x is defined in [true] }}",
        "{{ x is defined if y else z }}",
        "{{ x is string 'a' }}",
        "{{ x is string(1) }}",
        "{{ x is defined is true }}",
        "{% if x if y else z %}{% endif %}",
        "{{ [1 }}",
        "{{ {'a' 1} }}",
        "{{ x[1:2:3:4] }}",
        "{{ not not not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not not not "
        "not not not not not not not not not not not not not not not not not not not not not x }}",
        "{{",
        "{%",
        "{{ x }",
        "{# x",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_template *chat;
        if (ls_template_new(&ctx, bad[i], strlen(bad[i]), "", "", &chat) != LS_EINPUT)
            fail_msg("%s is not refused", bad[i]);
        assert_true(strstr(ctx.error.message, "not understood") != NULL);
        assert_null(chat);
    }
}

/* What Jinja renders and this does not: refused when it is read or rendered, never left out. */
static void test_beyond(void **unused) {
    (void)unused;
    static const char *const beyond[] = {
        "{{ 'xxaxx'.strip('x') }}",
        "{{ 'ab'.replace('', '-') }}",
        "{{ 'ab' * 2 }}",
        ("{{ '\xc3\xa4"
         "b'[1:] }}"),
        "{{ '\xc3\xa4' | upper }}",
        "{{ 'abc'[::-1] }}",
        "{{ [1, 2, 3, 4][::2] | length }}",
        "{{ [1] < [2] }}",
        "{{ 4 / 2 }}",
        "{{ 2 ** 3 }}",
        "{{ [1, 2] }}",
        "{{ (1, 2) | length }}",
        "{{ {'a': [1, 2]} | tojson(indent=2) }}",
        "{{ nothing() }}",
        "{% for k, v in nothing | items %}x{% endfor %}.",
        "{% for i in range(1, 4) %}{{ i }}{% endfor %}",
        "{% for i in [1] %}{% continue %}{% endfor %}",
        "{% set x %}a{% endset %}{{ x }}",
        "{{ messages[0].half }}",
        "{{ messages[0].half + 1 }}",
        "{{ 'a' | strip }}",
        "{{ 'a'.length() }}",
        "{{ 'a'.upper(1) }}",
        "{{ 'a'.startswith() }}",
        "{{ 'a'.split(',', 'b') }}",
        "{{ {1: 'a'} | length }}",
        "{{ 'abc'['a':] }}",
        "{{ 'abc'[:nothing] }}",
        "{{ [1, 2][::none] | length }}",
        "{{ messages[0].items }}",
        "{% for a, in ['xy'] %}{{ a }}{% endfor %}",
        "{% set a. = 1 %}{{ a }}",
    };
    json_t *messages = json_pack("[{s:s, s:f}]", "role", "user", "half", 0.5);
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_template *chat = NULL;
        ls_text text = {0};
        if (ls_template_new(&ctx, beyond[i], strlen(beyond[i]), "", "", &chat) == LS_OK &&
            ls_template_render(&ctx, chat, messages, true, &text) == LS_OK)
            fail_msg("%s is rendered as \"%s\"", beyond[i], text.bytes);
        assert_true(ctx.error.message[0] != '\0');
        ls_text_clear(&ctx, &text);
        ls_template_free(&ctx, chat);
    }
    json_decref(messages);
}

/* Eight million times a. */
#define LONG_TEXT                                                                                  \
    "{% set n = namespace(x='aaaaaaaa') %}{% for a in range(20) %}{% set n.x = n.x ~ n.x %}"       \
    "{% endfor %}{% set x = n.x %}"

/* None of them takes long, much memory or the stack. */
static void test_bounded(void **unused) {
    (void)unused;
    static const char *const greedy[] = {
        "{% for a in range(4000) %}{% for b in range(4000) %}{{ b }}{% endfor %}{% endfor %}",
        ("{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}{% for a in range(100) %}"
         "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}"),
        "{{ 9223372036854775807 + 1 }}",
        "{{ 0 - 9223372036854775807 - 2 }}",
        "{{ 9223372036854775807 * 2 }}",
        "{{ range(9223372036854775807) }}",
        "{{ 1 % 0 }}",
        "{{ nothing.at.all }}",
        "{{ messages }}",
        /* long without a statement or an expression of their own */
        ("{% set l = range(1000000) %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}x"),
        "{% for a in range(4000) %}{% set l = range(1000000) %}{% endfor %}x",
        "{% for a in range(1000000) %}{% for b in messages %}xxxxxxxx xxxxxxxx xxxxxxxx xxxxxxxx "
        "xxxxxxxx xxxxxxxx xxxxxxxx xxxxxxxx{% endfor %}{% endfor %}",
        /* large by the way */
        LONG_TEXT "{{ (x | replace('a', x)) | length }}",
        LONG_TEXT "{{ x ~ x ~ x }}",
        LONG_TEXT "{{ x }}{{ x }}{{ x }}",
        LONG_TEXT "{% for a in range(99) %}{% set y = x.strip() %}{% endfor %}x",
        LONG_TEXT "{% for a in range(99) %}{% set y = x[1:] %}{% endfor %}x",
        LONG_TEXT "{% for a in range(99) %}{% set y = x | tojson %}{% endfor %}x",
        LONG_TEXT "{% set ns = namespace(l=[]) %}{% for a in range(9999) %}"
                  "{% set ns.l = ns.l + [x ~ a] %}{% endfor %}x",
        LONG_TEXT "{% for a in range(100000) %}{% set y = 'b' in x %}{% endfor %}x",
        /* deep: comparing, printing and freeing go down */
        "{% set ns = namespace(l=[]) %}{% for a in range(300000) %}"
        "{% set ns.l = [ns.l] %}{% endfor %}x",
        /* wide: each level has the one below twice */
        "{% set a = namespace(l=[1]) %}{% set b = namespace(l=[1]) %}{% for i in range(50) %}"
        "{% set a.l = [a.l, a.l] %}{% set b.l = [b.l, b.l] %}{% endfor %}{{ a.l == b.l }}",
        "{% set a = namespace(l=[1]) %}{% for i in range(40) %}{% set a.l = [a.l, a.l] %}"
        "{% endfor %}{{ (a.l | tojson) | length }}",
        /* around: within itself */
        "{% set a = namespace(x=0) %}{% set b = namespace(x=0) %}{% set a.x = [a] %}"
        "{% set b.x = [b] %}{{ a == b }}",
        "{% set a = namespace(x=0) %}{% set b = namespace(x=a) %}{% set a.x = b %}x",
    };
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "x");
    for (size_t i = 0; i < sizeof greedy / sizeof greedy[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_template *chat;
        ls_text text = {0};
        assert_int_equal(ls_template_new(&ctx, greedy[i], strlen(greedy[i]), "", "", &chat), LS_OK);
        if (ls_template_render(&ctx, chat, messages, true, &text) != LS_EUSE)
            fail_msg("%s is rendered", greedy[i]);
        assert_true(strlen(ctx.error.message) > 0);
        ls_text_clear(&ctx, &text);
        ls_template_free(&ctx, chat);
    }
    json_decref(messages);
}

/* Expressions that are long are no deeper on the stack than they may be. */
static void test_chains(void **unused) {
    (void)unused;
    static const struct {
        const char *first, *link;
    } chains[] = {{"x", ".a"},           {"x", "[1]"},      {"'x'", "|trim"}, {"1", "+1"},
                  {"true", " and true"}, {"'x'", " ~ 'x'"}, {"1", " < 1"}};
    enum { LINKS = 100000, ROOM = 16 * LINKS };
    char *source = malloc(ROOM);
    json_t *messages = json_array();
    assert_non_null(source);
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        ls_ctx ctx = ls_ctx_default();
        ls_template *chat = NULL;
        ls_text text = {0};
        size_t used = (size_t)snprintf(source, ROOM, "{{ %s", chains[i].first);
        for (int link = 0; link < LINKS; link++, used += strlen(chains[i].link))
            memcpy(source + used, chains[i].link, strlen(chains[i].link));
        used += (size_t)snprintf(source + used, ROOM - used, " }}");
        assert_int_equal(ls_template_new(&ctx, source, used, "", "", &chat), LS_OK);
        assert_int_equal(ls_template_render(&ctx, chat, messages, true, &text), LS_EUSE);
        ls_text_clear(&ctx, &text);
        ls_template_free(&ctx, chat);
    }
    json_decref(messages);
    free(source);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_transformers), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_beyond),          cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_chains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
