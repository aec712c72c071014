/* The first failure is the cause: its sentence is kept, and its code is that of all that follow.
 * Want of memory says how much was wanted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/memory.h"
#include "failing_allocator.h"

static void test_first_failure(void **state) {
    (void)state;
    failing_allocator memory = {.fail_at = 0};
    ls_ctx ctx = failing_ctx(&memory);
    assert_null(ls_new(&ctx, 3, sizeof(double)));
    assert_int_equal(LS_FAIL(&ctx, LS_EUSE, "the file %s holds nothing", "a"), LS_ENOMEM);
    assert_int_equal(LS_FAIL(&ctx, LS_EIO, "renaming %s", "b"), LS_ENOMEM);
    assert_int_equal(ctx.error.code, LS_ENOMEM);
    assert_string_equal(ctx.error.message, "no memory for a buffer of 24 bytes");
    ctx.error = (ls_error){0}; /* it was no failure */
    assert_int_equal(LS_FAIL(&ctx, LS_EUSE, "the file %s holds nothing", "a"), LS_EUSE);
    assert_string_equal(ctx.error.message, "the file a holds nothing");
}

/* A megabyte is 10^6 bytes, here as in every table. */
static void test_wanted_memory(void **state) {
    (void)state;
    static const struct {
        size_t bytes;
        const char *says;
    } cases[] = {{999999, "of 999999 bytes"},
                 {1000000, "of 1.0 MB (this machine has "},
                 {3 << 20, "of 3.1 MB (this machine has "},
                 {(size_t)5 << 30, "of 5.4 GB (this machine has "}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        failing_allocator memory = {.fail_at = 0};
        ls_ctx ctx = failing_ctx(&memory);
        assert_null(ls_new(&ctx, cases[i].bytes, 1));
        if (strstr(ctx.error.message, cases[i].says) == NULL)
            fail_msg("%s, not %s", ctx.error.message, cases[i].says);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_failure),
        cmocka_unit_test(test_wanted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
