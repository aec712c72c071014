/* The first failure is the cause: its sentence is kept, and its code is that of all that follow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_first_failure)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
