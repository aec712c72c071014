/* JSON where memory is short: what is written is whole, or not written. Jansson's parser is not
 * tried: 2.14 itself frees what it does not own there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

static int64_t fail_at = -1, taken;

static void *take_or_fail(size_t bytes) {
    return taken++ == fail_at ? NULL : malloc(bytes);
}

/* Before base/json.c begins to watch what Jansson allocates. */
__attribute__((constructor(101))) static void watch(void) {
    json_set_alloc_funcs(take_or_fail, free);
}

static json_t *make(void) {
    json_t *json = json_pack("{s:b, s:i, s:f}", "first", 1, "second", 2, "third", 0.5);
    json_t *list = json_array();
    for (int i = 0; i < 40; i++) json_array_append_new(list, json_string("a text of some length"));
    json_object_set_new(json, "list", list);
    return json;
}

static void test_dump(void **state) {
    (void)state;
    static const size_t flags[] = {JSON_COMPACT, JSON_INDENT(1) | JSON_REAL_PRECISION(17),
                                   JSON_COMPACT | JSON_SORT_KEYS};
    for (size_t f = 0; f < sizeof flags / sizeof flags[0]; f++) {
        json_t *whole = make();
        char *expected = ls_json_dump(whole, flags[f]);
        assert_non_null(expected);
        json_decref(whole);
        int64_t refused = 0;
        for (int64_t k = 0;; k++) {
            taken = 0;
            fail_at = k;
            json_t *json = make();
            char *text = ls_json_dump(json, flags[f]);
            const bool failed = taken > k;
            fail_at = -1;
            json_decref(json);
            if (text != NULL) assert_string_equal(text, expected);
            refused += text == NULL;
            if (!failed) assert_non_null(text);
            free(text);
            if (!failed) break;
        }
        assert_true(refused > 40);
        free(expected);
    }
}

static void test_write(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char path[] = "/tmp/longshot-json-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "before", 6), 6);
    close(fd);
    json_t *json = make();
    taken = 0;
    fail_at = 0;
    assert_int_equal(ls_json_write(&ctx, path, json), LS_ENOMEM);
    fail_at = -1;
    json_decref(json);
    ls_text text = {0};
    assert_int_equal(ls_file_read(&ctx, path, 100, &text), LS_OK);
    assert_int_equal(text.length, 6); /* what was there stays */
    ls_text_clear(&ctx, &text);
    remove(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_dump), cmocka_unit_test(test_write)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
