/* Checkpoints that are cut or written to while they are read: an error, not SIGBUS, and no weights
 * that nobody wrote. Signals while weights are checked, and while a file is read. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/gguf.h"
#include "data_fixture.h"
#include "model/weights.h"
#include "train/trained.h"

#define CHECKPOINTS LS_TEST_SOURCE "/tests/golden/checkpoints/"

static void copy_file(const char *from, const char *to) {
    ls_ctx ctx = ls_ctx_default();
    ls_whole whole;
    assert_int_equal(ls_whole_read(&ctx, from, false, &whole), LS_OK);
    assert_int_equal(ls_file_write(&ctx, to, whole.bytes, whole.length), LS_OK);
    ls_whole_free(&whole);
}

static void copy_folder(const char *from, const char *to) {
    ls_ctx ctx = ls_ctx_default();
    char **names, a[1024], b[1024];
    size_t count;
    assert_int_equal(ls_folder_remove(&ctx, to), LS_OK);
    assert_int_equal(ls_folder_make(&ctx, to), LS_OK);
    assert_int_equal(ls_folder_list(&ctx, from, &names, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ls_path_join(&ctx, a, sizeof a, from, names[i]), LS_OK);
        assert_int_equal(ls_path_join(&ctx, b, sizeof b, to, names[i]), LS_OK);
        if (!ls_path_is_folder(a)) copy_file(a, b);
    }
    ls_names_free(&ctx, names, count);
}

/* An older time, which any change replaces. */
static void age(const char *path) {
    const struct timespec old[2] = {{1000000000, 0}, {1000000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
}

typedef enum { STAYS, IS_CUT, IS_OVERWRITTEN } change;

static void alter(const char *path, change how) {
    struct stat about;
    FILE *file;
    assert_int_equal(stat(path, &about), 0);
    if (how == IS_CUT) assert_int_equal(truncate(path, about.st_size / 2), 0);
    if (how != IS_OVERWRITTEN) return;
    assert_non_null(file = fopen(path, "r+b"));
    assert_int_equal(fseek(file, -64, SEEK_END), 0);
    assert_int_equal(fwrite("changed", 1, 7, file), 7);
    assert_int_equal(fclose(file), 0);
}

/* One layout each: transposed matrices, rows as they are in two files, blocks, parts side by
 * side. */
static const struct {
    const char *folder, *file;
} cases[] = {{"gpt2", "model.safetensors"},
             {"llama-llama3-sharded", "model-00002-of-00003.safetensors"},
             {"gguf-llama", "model.gguf"},
             {"gguf-mamba", "model.gguf"},
             {"t5", "model.safetensors"}};

static void checkpoints_that_change(void **state) {
    (void)state;
    const ls_dtype type = LS_F32;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (change how = STAYS; how <= IS_OVERWRITTEN; how++) {
            char from[1024], file[1024];
            ls_ctx ctx = ls_ctx_default();
            ls_trained trained;
            const char *to = fixture_path("checkpoint");
            snprintf(from, sizeof from, CHECKPOINTS "%s", cases[i].folder);
            copy_folder(from, to);
            snprintf(file, sizeof file, "%s/%s", to, cases[i].file);
            age(file);
            assert_int_equal(ls_trained_describe(&ctx, to, NULL, &trained), LS_OK);
            assert_int_equal(ls_model_hold(&ctx, &trained.config, type, &trained.model), LS_OK);
            alter(file, how);
            const ls_status status = ls_trained_load(&trained, trained.model, NULL);
            if (status != (how == STAYS ? LS_OK : LS_EINPUT) ||
                (how != STAYS &&
                 (strstr(ctx.error.message, "was changed while it was read") == NULL ||
                  strstr(ctx.error.message, cases[i].file) == NULL)))
                fail_msg("%s, change %d: %d, %s", cases[i].folder, (int)how, (int)status,
                         ctx.error.message);
            ls_trained_clear(&trained);
        }
}

/* Of a system's file that says a length it does not have, and of one that is cut. */
static void sources(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_source *source;
    ls_whole whole;
    size_t length;
    char bytes[8];
    const char *path = fixture_text("source", "12345678");
    age(path);
    assert_int_equal(ls_source_open(&ctx, path, &source, &length), LS_OK);
    assert_int_equal(length, 8);
    ls_source_read(source, 2, 4, bytes);
    assert_memory_equal(bytes, "3456", 4);
    assert_int_equal(ls_source_check(&ctx, source), LS_OK);
    assert_int_equal(truncate(path, 4), 0);
    memset(bytes, 'x', sizeof bytes);
    ls_source_read(source, 2, 4, bytes);
    assert_memory_equal(bytes, "34\0\0", 4);
    age(path);
    assert_int_equal(ls_source_check(&ctx, source), LS_EINPUT);
    ls_source_close(&ctx, source);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_whole_read(&ctx, path, false, &whole), LS_OK);
    assert_memory_equal(whole.bytes, "1234", whole.length);
    ls_whole_free(&whole);
    struct stat about;
    const char *system_file = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (stat(system_file, &about) != 0 || about.st_size < 1024)
        test_skip("no file of the system says more bytes than it has");
    assert_int_equal(ls_whole_read(&ctx, system_file, false, &whole), LS_EINPUT);
    assert_non_null(strstr(ctx.error.message, "was cut while it was read"));
}

/* Who reads a number at the end of a file stops there, also where the file fills its last page: the
 * second of two may lie before the first. */
static void ends(void **state) {
    (void)state;
    enum { PAGES = 16, PAGE = 4096 };
    static char nines[PAGES * PAGE];
    ls_whole whole[2];
    ls_ctx ctx = ls_ctx_default();
    memset(nines, '9', sizeof nines);
    const char *path = fixture_file("nines", nines, sizeof nines);
    for (int i = 0; i < 2; i++)
        assert_int_equal(ls_whole_read(&ctx, path, false, &whole[i]), LS_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(whole[i].length, sizeof nines);
        assert_int_equal(whole[i].bytes[whole[i].length], 0);
    }
    for (int i = 0; i < 2; i++) ls_whole_free(&whole[i]);
}

static void put(ls_text *text, const void *bytes, size_t length) {
    ls_ctx ctx = ls_ctx_default();
    ls_text_append(&ctx, text, bytes, length);
}

static void put_number(ls_text *text, uint64_t value, size_t bytes) {
    put(text, &value, bytes);
}

/* A GGUF file of two keys, the first with a text of so many bytes. */
static ls_text described_by(size_t bytes) {
    ls_ctx ctx = ls_ctx_default();
    ls_text out = {0};
    put(&out, "GGUF", 4);
    put_number(&out, 3, 4);
    put_number(&out, 0, 8);
    put_number(&out, 2, 8);
    for (int key = 0; key < 2; key++) {
        put_number(&out, 1, 8);
        put(&out, key == 0 ? "a" : "b", 1);
        put_number(&out, LS_GGUF_TEXT, 4);
        put_number(&out, key == 0 ? bytes : 3, 8);
        for (size_t i = 0; key == 0 && i < bytes; i++) ls_text_append(&ctx, &out, "x", 1);
        if (key == 1) put(&out, "end", 3);
    }
    return out;
}

/* What describes a GGUF file is read as far as it goes, and no further than the file. */
static void long_descriptions(void **state) {
    (void)state;
    static const size_t sizes[] = {1000, (1 << 20) - 66, (1 << 20) - 50, 5 << 20};
    ls_ctx ctx = ls_ctx_default();
    ls_gguf file;
    ls_gguf_text text;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ls_text bytes = described_by(sizes[i]);
        const char *path = fixture_file("long.gguf", bytes.bytes, bytes.length);
        assert_int_equal(ls_gguf_open(&ctx, path, &file), LS_OK);
        assert_int_equal(ctx.error.code, LS_OK);
        assert_true(ls_gguf_string(ls_gguf_find(&file, "a"), &text));
        assert_int_equal(text.length, sizes[i]);
        assert_true(ls_gguf_string(ls_gguf_find(&file, "b"), &text));
        assert_memory_equal(text.at, "end", 3);
        ls_gguf_close(&ctx, &file);
        path = fixture_file("long.gguf", bytes.bytes, bytes.length - 1);
        assert_int_equal(ls_gguf_open(&ctx, path, &file), LS_EINPUT);
        assert_non_null(strstr(ctx.error.message, "a text is longer than the file"));
        ctx.error = (ls_error){0};
        ls_text_clear(&ctx, &bytes);
    }
}

/* A signal is heard while weights are looked at, and while a checkpoint's file is. */
static void stops(void **state) {
    (void)state;
    const ls_dtype type = LS_F32;
    const volatile int stop = 1;
    const char *broken, *path = CHECKPOINTS "gguf-gpt2/model.gguf";
    ls_ctx ctx = ls_ctx_default();
    ls_trained trained;
    size_t length;
    uint64_t hash;
    assert_int_equal(ls_trained_open(&ctx, path, NULL, &type, &trained), LS_OK);
    assert_int_equal(ls_weights_find_broken(trained.model->store, &broken), LS_OK);
    assert_null(broken);
    ctx.stop = &stop;
    assert_int_equal(ls_weights_find_broken(trained.model->store, &broken), LS_ESTOP);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_file_hash(&ctx, path, true, &length, &hash), LS_ESTOP);
    ctx.error = (ls_error){0};
    assert_int_equal(ls_file_hash(&ctx, path, false, &length, &hash), LS_OK);
    ctx.stop = NULL;
    ls_trained_clear(&trained);
}

static volatile int signalled;

static void hear(int signal) {
    signalled = signal;
}

/* A file that is read whole takes long enough for a signal to come between its pieces. */
static void stops_within(void **state) {
    (void)state;
    const struct itimerval soon = {.it_value = {.tv_usec = 5000}};
    const char *path = fixture_text("large", "x");
    ls_ctx ctx = ls_ctx_default();
    ls_whole whole;
    assert_int_equal(truncate(path, 1 << 30), 0);
    ctx.stop = &signalled;
    assert_true(signal(SIGALRM, hear) != SIG_ERR);
    assert_int_equal(setitimer(ITIMER_REAL, &soon, NULL), 0);
    assert_int_equal(ls_whole_read(&ctx, path, true, &whole), LS_ESTOP);
    assert_null(whole.bytes);
    ctx.error = (ls_error){0};
    assert_int_equal(truncate(path, 3 << 20), 0);
    assert_int_equal(ls_whole_read(&ctx, path, false, &whole), LS_OK);
    assert_int_equal(whole.length, 3 << 20);
    ls_whole_free(&whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_that_change),
        cmocka_unit_test(long_descriptions),
        cmocka_unit_test(stops),
        cmocka_unit_test(stops_within),
        cmocka_unit_test(sources),
        cmocka_unit_test(ends),
    };
    return test_code(cmocka_run_group_tests(tests, fixture_make, fixture_remove));
}
