/* Included before every test program: with LONGSHOT_TEST_DEVICE=cuda the same tests run there. The
 * device's memory is then shared with the processor, so that tests may look at it as they do at
 * their own; one device serves all contexts of the process. */
#ifndef LS_TESTS_DEVICE_H
#define LS_TESTS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"

/* of tensor/device.h, which a test may want to include in its own way */
ls_status ls_device_open(ls_ctx *ctx, const char *name, int number);

static inline ls_ctx test_ctx_default(void) {
    static struct ls_device *device;
    ls_ctx ctx = ls_ctx_default();
    const char *name = getenv("LONGSHOT_TEST_DEVICE");
    if (name != NULL && device == NULL) {
        setenv("LONGSHOT_CUDA_SHARED", "1", 1);
        if (ls_device_open(&ctx, name, 0) != LS_OK) {
            fprintf(stderr, "%s\n", ctx.error.message);
            exit(1);
        }
        device = ctx.device;
    }
    ctx.device = device;
    return ctx;
}
#define ls_ctx_default test_ctx_default

/* Ends a test that lacks something here. ctest shows its program as skipped, unless another of its
 * tests fails: main returns test_code of what cmocka says. */
static bool test_skipped;
#define test_skip(why)                                                                             \
    do {                                                                                           \
        print_message("skipped: %s\n", why);                                                       \
        test_skipped = true;                                                                       \
        skip();                                                                                    \
    } while (0)
static inline int test_code(int failures) {
    return failures == 0 && test_skipped ? 77 : failures;
}

/* With LONGSHOT_TEST_BRIEF every kernel still runs, at sizes of a few tiles, but nothing twice: for
 * tools under which every launch is slow. */
static inline bool test_is_brief(void) {
    return getenv("LONGSHOT_TEST_BRIEF") != NULL;
}

/* How far apart the elements are that numerical differences try, for about `usual` of `count`. */
static inline int64_t test_difference_stride(int64_t count, int64_t usual) {
    const int64_t stride = count / (test_is_brief() || usual < 1 ? 1 : usual);
    return stride > 0 ? stride : 1;
}

const char *ls_kernel_isa(const char *wish); /* of tensor/kernel.h */

/* The instruction sets that this processor has, one after the other, NULL after the last; one where
 * the tests run on a device, which has no use for them. */
static inline const char *test_isa(int index) {
    static const char *const names[] = {"base", "avx2", "avx512"};
    if (getenv("LONGSHOT_TEST_DEVICE") != NULL) return index == 0 ? names[0] : NULL;
    for (int i = 0; i < 3; i++)
        if (ls_kernel_isa(names[i]) != NULL && index-- == 0) return names[i];
    return NULL;
}

#endif
