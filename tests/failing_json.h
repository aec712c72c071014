/* jansson's own allocations, which fail one at a time: for readers and writers of JSON. Includes a
 * constructor: one file of a program includes it. Include after cmocka.h. */
#ifndef LS_TESTS_FAILING_JSON_H
#define LS_TESTS_FAILING_JSON_H

#include <stdlib.h>

#include "base/json.h"

static int64_t json_taken, json_fail_at = -1;

/* jansson itself loses what it has made of a value when memory ends, as in json_pack: leaks of JSON
 * count in the runs in which no allocation of it fails. NULL: no LeakSanitizer. */
__attribute__((weak)) void __lsan_ignore_object(void *pointer);

static void *take_for_json(size_t bytes) {
    void *pointer = json_taken++ == json_fail_at ? NULL : malloc(bytes);
    if (pointer != NULL && json_fail_at >= 0 && __lsan_ignore_object != NULL)
        __lsan_ignore_object(pointer);
    return pointer;
}

/* before the program's own constructor, which watches what was there */
__attribute__((constructor(101))) static void watch_json(void) {
    json_set_alloc_funcs(take_for_json, free);
}

/* As fail_each_allocation: each run must say LS_ENOMEM, or succeed without that allocation. What a
 * body made is then the same as ever: it looks itself. */
static inline void fail_each_json(ls_status (*body)(ls_ctx *ctx, void *user), void *user) {
    for (int64_t k = 0;; k++) {
        ls_ctx ctx = ls_ctx_default();
        json_taken = 0;
        json_fail_at = k;
        const ls_status status = body(&ctx, user);
        json_fail_at = -1;
        ls_json_starved(); /* whatever comes next was not made of what failed here */
        if (json_taken <= k) {
            assert_int_equal(status, LS_OK);
            return;
        }
        if (status != LS_ENOMEM && status != LS_OK)
            fail_msg("without allocation %lld of JSON: %s, %s", (long long)k,
                     ls_status_name(status), ctx.error.message);
    }
}

#endif
