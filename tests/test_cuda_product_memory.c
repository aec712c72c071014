/* What the CUDA plug-in remembers between runs: needs no device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tensor/cuda/product_memory.cu"

static char folder[] = "/tmp/longshot-memory-XXXXXX";

static void put_file(const char *path, const void *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static void remembers(const char *key, const char *wanted) {
    ls_product_memory memory;
    char value[LS_PRODUCT_VALUE_BYTES];
    ls_product_memory_open(&memory);
    bool found = ls_product_memory_find(&memory, key, value, sizeof value);
    if (wanted == NULL)
        assert_false(found);
    else
        assert_true(found && strcmp(value, wanted) == 0);
    ls_product_memory_close(&memory);
}

static int set_up(void **state) {
    (void)state;
    return mkdtemp(folder) == NULL || setenv("XDG_CACHE_HOME", folder, 1) != 0;
}

static int take_down(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void test_kept(void **state) {
    (void)state;
    ls_product_memory memory, other;
    char value[LS_PRODUCT_VALUE_BYTES];
    remembers("k/1", NULL);
    ls_product_memory_open(&memory);
    ls_product_memory_open(&other);
    ls_product_memory_keep(&memory, "k/1", "abc", NULL);
    ls_product_memory_keep(&memory, "k/11", "def", NULL);
    /* the first process to find one is right for all */
    ls_product_memory_keep(&other, "k/1", "xyz", NULL);
    assert_true(ls_product_memory_find(&other, "k/1", value, sizeof value));
    assert_string_equal(value, "abc");
    ls_product_memory_close(&memory);
    ls_product_memory_close(&other);
    remembers("k/1", "abc");
    remembers("k/11", "def");
    remembers("k", NULL);
    remembers("/1", NULL);
}

static void test_replaced(void **state) {
    (void)state;
    ls_product_memory memory;
    ls_product_memory_open(&memory);
    ls_product_memory_keep(&memory, "r", "bad", NULL);
    ls_product_memory_keep(&memory, "r", "good", "bad");
    ls_product_memory_keep(&memory, "r", "late", "bad");
    ls_product_memory_close(&memory);
    remembers("r", "good");
}

static void test_rubbish(void **state) {
    (void)state;
    ls_product_memory memory;
    char path[128], value[8];
    snprintf(path, sizeof path, "%s/longshot/cuda-products.txt", folder);
    static const char rubbish[] =
        "\n \nk\nk \xff\xfe\nkey value that has blanks\nlong 123456789\nend";
    put_file(path, rubbish, sizeof rubbish - 1);
    ls_product_memory_open(&memory);
    assert_false(ls_product_memory_find(&memory, "long", value, sizeof value));
    assert_false(ls_product_memory_find(&memory, "end", value, sizeof value));
    ls_product_memory_keep(&memory, "end", "fine", NULL); /* the last line had no end */
    ls_product_memory_close(&memory);
    remembers("end", "fine");
    put_file(path, "a\0b c\n", 6);
    remembers("b", NULL);
}

/* In place of the file, or of its lock: there is nothing to know, and nobody waits for a writer. */
static void test_pipes(void **state) {
    (void)state;
    static const char *const names[] = {"cuda-products.txt", "cuda-products.txt.lock"};
    alarm(60);
    for (size_t i = 0; i < 2; i++) {
        ls_product_memory memory;
        char path[128];
        snprintf(path, sizeof path, "%s/longshot/%s", folder, names[i]);
        unlink(path);
        assert_int_equal(mkfifo(path, 0600), 0);
        ls_product_memory_open(&memory);
        ls_product_memory_keep(&memory, "piped", "v", NULL);
        ls_product_memory_close(&memory);
        remembers("piped", i == 0 ? "v" : NULL); /* a file takes the place of the first */
        unlink(path);
    }
    alarm(0);
}

static void test_no_folder(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/file", folder);
    put_file(path, "", 0);
    setenv("XDG_CACHE_HOME", path, 1); /* a file: nothing can be made below it */
    ls_product_memory memory;
    ls_product_memory_open(&memory);
    ls_product_memory_keep(&memory, "k", "v", NULL);
    ls_product_memory_close(&memory);
    remembers("k", NULL);
    setenv("XDG_CACHE_HOME", folder, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),      cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_rubbish),   cmocka_unit_test(test_pipes),
        cmocka_unit_test(test_no_folder),
    };
    return cmocka_run_group_tests(tests, set_up, take_down);
}
