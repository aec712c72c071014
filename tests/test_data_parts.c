/* A text in parts, from a source archive that a client standing in for Python's puts there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "data/get.h"
#include "data_fixture.h"

static const char text[] = "all of a text";
static const ls_get_part parts[] = {{"train", 7}, {"validation", 2}, {"test", 4}, {NULL, 0}};

static ls_get_source published(void) {
    return (ls_get_source){.name = "small",
                           .kind = LS_GET_PYTHON,
                           .packages = {"a-package"},
                           .version = "1.2",
                           .builder = "a_builder",
                           .sha256 = "abc",
                           .under = "a_package-1.2/data/small.gz",
                           .licence = "free",
                           .about = "a text",
                           .parts = parts,
                           .hash = ls_hash(text, sizeof text - 1)};
}

/* A python3 that is asked as pip is: for that package with that hash, with a builder that stands
 * in. */
static int stand_in(void **state) {
    static const char script[] =
        "#!/bin/sh\n"
        "[ \"$1 $2 $3\" = '-m pip download' ] || exit 7\n"
        "case $* in *--no-build-isolation*--require-hashes*) ;; *) exit 8;; esac\n"
        "[ \"$(cat wanted.txt)\" = 'a-package==1.2 --hash=sha256:abc' ] || exit 9\n"
        "[ -f \"$PYTHONPATH/a_builder/__init__.py\" ] || exit 10\n"
        "case $PYTHONPATH in /*) ;; *) exit 11;; esac\n"
        "grep -q \"'a-package', '1.2'\" \"$PYTHONPATH/a_builder/build.py\" || exit 12\n"
        "mkdir -p a_package-1.2/data\n"
        "printf 'all of a text' | gzip >a_package-1.2/data/small.gz\n"
        "tar -czf a_package-1.2.tar.gz a_package-1.2\n"
        "rm -r a_package-1.2\n";
    if (fixture_make(state) != 0) return 1;
    char path[4096];
    const char *program = fixture_file("python3", script, sizeof script - 1);
    snprintf(path, sizeof path, "%s:%s", fixture_folder, getenv("PATH"));
    return chmod(program, 0755) != 0 || setenv("PATH", path, 1) != 0;
}

static ls_status get(const ls_get_source *source, const char *name, ls_ctx *ctx, ls_text *said) {
    char out[4096];
    snprintf(out, sizeof out, "%s/%s", fixture_folder, name);
    return ls_get_from(ctx, source, out, said);
}

static void expect_part(const char *name, const char *wanted) {
    ls_ctx ctx = ls_ctx_default();
    ls_text got = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s/small/%s", fixture_folder, name);
    assert_int_equal(ls_file_read(&ctx, path, 100, &got), LS_OK);
    assert_string_equal(got.bytes, wanted);
    ls_text_clear(&ctx, &got);
}

static void test_parts(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    const ls_get_source source = published();
    ls_text said = {0};
    const ls_status status = get(&source, "small", &ctx, &said);
    if (status != LS_OK) print_message("%s\n", ctx.error.message);
    assert_int_equal(status, LS_OK);
    expect_part("train.txt", "all of ");
    expect_part("validation.txt", "a ");
    expect_part("test.txt", "text");
    assert_non_null(strstr(said.bytes, "train 7 bytes, validation 2 bytes, test 4 bytes, of "
                                       "a_package-1.2.tar.gz (free)\nuse it with data.train=/"));
    assert_non_null(strstr(said.bytes, "/small/test.txt\n"));
    ls_text_clear(&ctx, &said);
}

/* Another text than the published one is not left there, whatever its length. */
static void expect_refused(const ls_get_source *source, const char *words) {
    ls_ctx ctx = ls_ctx_default();
    ls_text said = {0};
    char path[4096];
    assert_int_equal(get(source, "other", &ctx, &said), LS_EINPUT);
    if (strstr(ctx.error.message, words) == NULL) print_message("%s\n", ctx.error.message);
    assert_non_null(strstr(ctx.error.message, words));
    snprintf(path, sizeof path, "%s/other", fixture_folder);
    assert_false(ls_path_exists(path));
    snprintf(path, sizeof path, "%s/other.part", fixture_folder);
    assert_false(ls_path_exists(path));
    ls_text_clear(&ctx, &said);
}

static void test_other_text(void **state) {
    (void)state;
    static const ls_get_part longer[] = {{"train", 8}, {"test", 6}, {NULL, 0}};
    ls_get_source source = published();
    source.hash++;
    expect_refused(&source, "is not the published text of 13 bytes: it has 13 others");
    source = published();
    source.parts = longer;
    expect_refused(&source, "is not the published text of 14 bytes: it has 13");
    source = published();
    source.under = "a_package-1.2/data/none";
    expect_refused(&source, "a_package-1.2/data/none");
    source = published();
    source.version = "1.3";
    expect_refused(&source, "pip does not get the package a-package: it says nothing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_other_text),
    };
    return cmocka_run_group_tests(tests, stand_in, fixture_remove);
}
