/* Every reader of files with one allocation failing, each in turn: the targets of tests/fuzz over
 * their seeds. Nothing crashes, and nothing is done with what could not be had. The program's own
 * allocations and those of jansson count. LONGSHOT_TEST_STARVE allocations of a seed are tried,
 * spread evenly. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

#define TARGET(name) int run_##name(const uint8_t *bytes, size_t length);
#include "starved_targets.h"
#undef TARGET

static int64_t taken, fail_at = -1;
static jmp_buf back;

static bool fails(void) {
    return taken++ == fail_at;
}

/* The program's: no other library here asks for memory this way. */
void *aligned_alloc(size_t alignment, size_t bytes) {
    void *out;
    return fails() || posix_memalign(&out, alignment, bytes) != 0 ? NULL : out;
}

static void *take_for_json(size_t bytes) {
    return fails() ? NULL : malloc(bytes);
}

/* before the program's own constructor, which watches what was there */
__attribute__((constructor(101))) static void watch_json(void) {
    json_set_alloc_funcs(take_for_json, free);
}

/* What a target calls where something is not as it must be: after a failed allocation an operation
 * may have failed that never does else. */
_Noreturn void starved_abort(void);
void starved_abort(void) {
    if (fail_at >= 0 && taken > fail_at) longjmp(back, 1);
    abort();
}

typedef int (*target)(const uint8_t *bytes, size_t length);

/* Runs a target; gives how many allocations it asked for. */
static int64_t run(target one, const ls_text *seed, int64_t at) {
    taken = 0;
    fail_at = at;
    if (setjmp(back) == 0) one((const uint8_t *)seed->bytes, seed->length);
    fail_at = -1;
    ls_json_starved(); /* whatever is written next was not made of what failed here */
    return taken;
}

static void starve(target one, const ls_text *seed, int64_t most) {
    run(one, seed, -1); /* makes what it needs once */
    const int64_t all = run(one, seed, -1), tries = all < most ? all : most;
    for (int64_t i = 0; i < tries; i++) run(one, seed, i * all / tries);
}

static void over_seeds(const char *name, target one) {
    const char *wish = getenv("LONGSHOT_TEST_STARVE");
    const int64_t most = wish == NULL ? 15 : strtoll(wish, NULL, 10);
    char folder[512], path[1024];
    ls_ctx ctx = ls_ctx_default();
    char **names;
    size_t count;
    snprintf(folder, sizeof folder, LS_TEST_SOURCE "/tests/fuzz/seeds/%s", name);
    assert_int_equal(ls_folder_list(&ctx, folder, &names, &count), LS_OK);
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        ls_text seed = {0};
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(ls_file_read(&ctx, path, 1 << 20, &seed), LS_OK);
        starve(one, &seed, most);
        ls_text_clear(&ctx, &seed);
    }
    ls_names_free(&ctx, names, count);
}

#define TARGET(name)                                                                               \
    static void test_##name(void **state) {                                                        \
        (void)state;                                                                               \
        over_seeds(#name, run_##name);                                                             \
    }
#include "starved_targets.h"
#undef TARGET

int main(int argc, char **argv) {
#define TARGET(name) cmocka_unit_test(test_##name),
    const struct CMUnitTest tests[] = {
#include "starved_targets.h"
    };
#undef TARGET
    if (argc > 1) cmocka_set_test_filter(argv[1]); /* as test_fuzz_family */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
