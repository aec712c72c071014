/* What is said to be written survives a loss of power: a file is synced, whole, before it takes its
 * name, and the folder that has the new name after it. fsync and rename are this test's own: they
 * note what they are called on and do what they are for. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "data/token_file.h"
#include "data/tokenizer.h"
#include "model/gguf_write.h"
#include "model/safetensors.h"
#include "train_fixture.h"

int fsync(int fd);
int fdatasync(int fd);
int rename(const char *from, const char *to);

enum { EVENTS_MAX = 4096, BYTES = 300 };
typedef struct event {
    char path[BYTES], to[BYTES]; /* to: of a rename; else empty */
    int64_t size;                /* of the file when it was synced */
} event;
static event events[EVENTS_MAX];
static int count;

static void note_sync(int fd) {
    char link[64];
    struct stat about;
    if (count == EVENTS_MAX || fstat(fd, &about) != 0) return;
    event *e = &events[count++];
    *e = (event){.size = (int64_t)about.st_size};
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, e->path, BYTES - 1);
    e->path[length < 0 ? 0 : length] = '\0';
}

int fsync(int fd) {
    note_sync(fd);
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd) {
    note_sync(fd);
    return (int)syscall(SYS_fdatasync, fd);
}

int rename(const char *from, const char *to) {
    if (count < EVENTS_MAX) {
        event *e = &events[count++];
        *e = (event){0};
        snprintf(e->path, BYTES, "%s", from);
        snprintf(e->to, BYTES, "%s", to);
    }
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static int64_t size_of(const char *path) {
    struct stat about;
    if (stat(path, &about) != 0) fail_msg("%s is not there", path);
    return (int64_t)about.st_size;
}

/* The last event before `end` that is a sync of `path`; -1: none. */
static int synced(const char *path, int begin, int end) {
    for (int i = end - 1; i >= begin; i--)
        if (events[i].to[0] == '\0' && strcmp(events[i].path, path) == 0) return i;
    return -1;
}

static int renamed_to(const char *path) {
    for (int i = count - 1; i >= 0; i--)
        if (strcmp(events[i].to, path) == 0) return i;
    fail_msg("%s did not get its name by a rename", path);
    return -1;
}

static void folder_of(const char *path, char out[BYTES]) {
    snprintf(out, BYTES, "%s", path);
    *strrchr(out, '/') = '\0';
}

/* A file that was written beside and renamed: synced with all its bytes, renamed, and its folder
 * synced. */
static void expect_file(const char *path) {
    char folder[BYTES];
    const int at = renamed_to(path), before = synced(events[at].path, 0, at);
    folder_of(path, folder);
    if (before < 0) fail_msg("%s took its name unsynced", path);
    assert_int_equal(events[before].size, size_of(path));
    if (synced(folder, at, count) < 0) fail_msg("%s was not synced after %s", folder, path);
}

static void test_single_files(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    char folder[] = "/tmp/longshot-durable-XXXXXX", path[BYTES];
    assert_non_null(mkdtemp(folder));
    count = 0;
    snprintf(path, sizeof path, "%s/plain", folder);
    assert_int_equal(ls_file_write(&ctx, path, "some bytes", 10), LS_OK);
    expect_file(path);
    snprintf(path, sizeof path, "%s/value.json", folder);
    json_t *value = json_pack("{s:i}", "a", 1);
    assert_int_equal(ls_json_write(&ctx, path, value), LS_OK);
    json_decref(value);
    expect_file(path);
    snprintf(path, sizeof path, "%s/corpus.tokens", folder);
    ls_tokenizer *tokenizer;
    ls_token_writer *writer;
    int32_t ids[100] = {0};
    assert_int_equal(ls_tokenizer_new_byte(&ctx, &tokenizer), LS_OK);
    assert_int_equal(ls_token_writer_new(&ctx, path, tokenizer, 0, &writer), LS_OK);
    assert_int_equal(ls_token_writer_add(&ctx, writer, ids, 100, 100), LS_OK);
    assert_int_equal(ls_token_writer_finish(&ctx, writer), LS_OK);
    ls_token_writer_free(&ctx, writer);
    ls_tokenizer_free(&ctx, tokenizer);
    expect_file(path);
    snprintf(path, sizeof path, "%s/losses.safetensors", folder);
    const float numbers[3] = {1, 2, 3};
    const ls_safetensor_source source = {"a", LS_STORED_F32, 1, (const int64_t[]){3}, numbers};
    assert_int_equal(ls_safetensors_write(&ctx, path, &source, 1, NULL, 0), LS_OK);
    expect_file(path);
    assert_int_equal(ls_folder_remove(&ctx, folder), LS_OK);
}

/* A checkpoint is a folder: every file in it and the folder itself are synced before it has its
 * name, and the metrics up to it as well. */
static void test_checkpoints(void **state) {
    (void)state;
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "manifest.json"};
    fixture f;
    count = 0;
    fixture_open(&f, NULL, "steps=8", "checkpoint_every=4", NULL);
    fixture_expect(&f, LS_OK);
    for (int step = 4; step <= 8; step += 4) {
        char path[BYTES], parent[BYTES];
        snprintf(parent, sizeof parent, "%s/checkpoints", f.folder);
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d", f.folder, step);
        const int at = renamed_to(path);
        const char *unfinished = events[at].path;
        int all = 0;
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            char inner[2 * BYTES], final[2 * BYTES];
            snprintf(inner, sizeof inner, "%s/%s", unfinished, files[i]);
            snprintf(final, sizeof final, "%s/%s", path, files[i]);
            int here = synced(inner, 0, at);
            for (int j = 0; j < at && here < 0; j++) /* or synced beside, and renamed to it */
                if (strcmp(events[j].to, inner) == 0) here = synced(events[j].path, 0, j);
            if (here < 0) fail_msg("%s was not synced", inner);
            assert_int_equal(events[here].size, size_of(final));
            all = here > all ? here : all;
        }
        const int whole = synced(unfinished, 0, at);
        if (whole < all) fail_msg("%s was not synced with all its files", unfinished);
        if (synced(parent, at, count) < 0) fail_msg("%s was not synced after its rename", parent);
        static const char *const logs[] = {"metrics.jsonl", "metrics.csv"};
        for (int i = 0; i < 2; i++) {
            char log[BYTES];
            snprintf(log, sizeof log, "%s/%s", f.folder, logs[i]);
            const int before = synced(log, 0, at);
            if (before < 0) fail_msg("%s was not synced before step %d", log, step);
            if (step == 8) assert_int_equal(events[before].size, size_of(log));
        }
    }
    char config[BYTES];
    snprintf(config, sizeof config, "%s/config.yaml", f.folder);
    expect_file(config);
    fixture_close(&f, true);
}

enum { VALUES = 2000 };

static ls_status write_plain(ls_ctx *ctx, const char *path, const float *values) {
    return ls_file_write(ctx, path, values, VALUES * sizeof *values);
}

static ls_status write_tensors(ls_ctx *ctx, const char *path, const float *values) {
    const ls_safetensor_source source = {"a", LS_STORED_F32, 1, (const int64_t[]){VALUES}, values};
    return ls_safetensors_write(ctx, path, &source, 1, NULL, 0);
}

static ls_status write_gguf(ls_ctx *ctx, const char *path, const float *values) {
    const int64_t dim[] = {VALUES};
    ls_gguf_writer *w;
    LS_TRY(ls_gguf_writer_new(ctx, path, &w));
    ls_gguf_put_u32(w, "general.alignment", LS_GGUF_ALIGNMENT);
    ls_gguf_declare(w, "a", LS_GGML_F32, 1, dim);
    ls_gguf_append(w, values, VALUES);
    return ls_gguf_finish(w);
}

typedef ls_status (*write_one)(ls_ctx *ctx, const char *path, const float *values);

static void expect_whole(ls_ctx *ctx, const char *path, const char *const alone[2]) {
    ls_text read = {0}, each[2] = {{0}, {0}};
    assert_int_equal(ls_file_read(ctx, path, 1 << 20, &read), LS_OK);
    bool same = false;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(ls_file_read(ctx, alone[k], 1 << 20, &each[k]), LS_OK);
        same = same || (each[k].length == read.length &&
                        memcmp(each[k].bytes, read.bytes, read.length) == 0);
        ls_text_clear(ctx, &each[k]);
        unlink(alone[k]);
    }
    assert_true(same);
    ls_text_clear(ctx, &read);
}

/* Two processes write one file again and again: neither fails, one of both stands there, whole.
 * What a killed one left is cleared, what another holds is not. */
static void two_writers(write_one write) {
    enum { TIMES = 200 };
    static float values[2][VALUES];
    ls_ctx ctx = ls_ctx_default();
    char folder[] = "/tmp/longshot-durable-XXXXXX", path[BYTES], left[BYTES], held[BYTES];
    char first[BYTES], second[BYTES];
    const char *const alone[2] = {first, second};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(first, sizeof first, "%s/first", folder);
    snprintf(second, sizeof second, "%s/second", folder);
    snprintf(left, sizeof left, "%s/file.4711-0.tmp", folder);
    snprintf(held, sizeof held, "%s/file.4712-0.tmp", folder);
    assert_true(close(open(left, O_CREAT | O_WRONLY, 0666)) == 0);
    const int lock = open(held, O_CREAT | O_WRONLY, 0666);
    assert_int_equal(flock(lock, LOCK_EX), 0);
    pid_t child[2];
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < VALUES; i++) values[k][i] = (float)(k + 1);
        assert_int_equal(write(&ctx, alone[k], values[k]), LS_OK);
        child[k] = fork();
        if (child[k] != 0) continue;
        for (int i = 0; i < TIMES; i++)
            if (write(&ctx, path, values[k]) != LS_OK) _exit(1);
        _exit(0);
    }
    for (int k = 0; k < 2; k++) {
        int status;
        assert_int_equal(waitpid(child[k], &status, 0), child[k]);
        assert_int_equal(status, 0);
    }
    expect_whole(&ctx, path, alone);
    char **names;
    size_t files;
    assert_int_equal(ls_folder_list(&ctx, folder, &names, &files), LS_OK);
    assert_int_equal(files, 2);
    assert_string_equal(names[0], "file");
    assert_string_equal(names[1], "file.4712-0.tmp");
    ls_names_free(&ctx, names, files);
    close(lock);
    assert_int_equal(ls_folder_remove(&ctx, folder), LS_OK);
}

static void test_two_writers(void **state) {
    (void)state;
    two_writers(write_plain);
    two_writers(write_tensors);
    two_writers(write_gguf);
}

/* What is somebody's stays what it is, and nothing is left beside it: a socket, a device where one
 * may be made, a link to a device, and one such as /dev/stdout. */
static void test_no_plain_file(void **state) {
    (void)state;
    ls_status (*const writers[])(ls_ctx *, const char *,
                                 const float *) = {write_plain, write_tensors, write_gguf};
    float values[VALUES] = {0};
    char folder[] = "/tmp/longshot-socket-XXXXXX", path[BYTES];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/it", folder);
    static const struct {
        mode_t kind;
        const char *target;
    } things[] = {
        {S_IFSOCK, NULL}, {S_IFCHR, NULL}, {S_IFLNK, "/dev/null"}, {S_IFLNK, "/proc/self/status"}};
    enum { THINGS = sizeof things / sizeof things[0] };
    for (size_t i = 0; i < 3 * THINGS; i++) {
        const mode_t kind = things[i % THINGS].kind;
        const char *target = things[i % THINGS].target;
        ls_ctx ctx = ls_ctx_default();
        struct stat about;
        char **names;
        size_t files;
        const int made = target != NULL
                             ? symlink(target, path)
                             : mknod(path, kind | 0600, kind == S_IFCHR ? makedev(1, 3) : 0);
        if (made != 0 && kind == S_IFCHR) continue;
        assert_int_equal(made, 0);
        assert_int_equal(writers[i / THINGS](&ctx, path, values), LS_EIO);
        assert_non_null(strstr(ctx.error.message, "is not replaced"));
        assert_int_equal(lstat(path, &about), 0);
        assert_int_equal(about.st_mode & S_IFMT, kind);
        assert_int_equal(ls_folder_list(&ctx, folder, &names, &files), LS_OK);
        assert_int_equal(files, 1);
        ls_names_free(&ctx, names, files);
        assert_int_equal(unlink(path), 0);
    }
    ls_ctx ctx = ls_ctx_default();
    assert_int_equal(ls_folder_remove(&ctx, folder), LS_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_single_files), cmocka_unit_test(test_no_plain_file),
        cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_two_writers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
