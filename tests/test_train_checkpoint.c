/* Checkpoints: whole or not at all, and never taken for good when a byte of them is not. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "train_fixture.h"

#include "failing_allocator.h"
#include "failing_json.h"
#include "reader_paths.h"

static char said[4096];

static void listen(void *user, const char *line) {
    (void)user;
    strncat(said, line, sizeof said - strlen(said) - 1);
}

/* An optimiser over the fixture's store, filled with numbers that tell step and place. */
typedef struct box {
    fixture f;
    ls_optimizer *optimizer;
    char checkpoints[128];
} box;

static void box_open(box *b, const char *dtype) {
    fixture_open(&b->f, NULL, dtype, NULL);
    ls_optimizer_settings settings = ls_optimizer_settings_default();
    assert_int_equal(ls_optimizer_new(&b->f.ctx, b->f.store, &settings, &b->optimizer), LS_OK);
    fixture_path(&b->f, "checkpoints", b->checkpoints, sizeof b->checkpoints);
    b->f.ctx.log = listen;
    said[0] = '\0';
}

static void box_close(box *b) {
    ls_optimizer_free(&b->f.ctx, b->optimizer);
    fixture_close(&b->f, true);
}

static void box_fill(box *b, double base) {
    ls_parameters *store = b->f.store;
    for (size_t p = 0; p < store->count; p++)
        for (int64_t i = 0; i < store->items[p].count; i++) {
            int64_t at = store->items[p].offset + i;
            void *buffers[] = {store->master, b->optimizer->mean, b->optimizer->square};
            for (int k = 0; k < 3; k++) {
                double value = base + k + 1e-3 * (double)at;
                if (store->master_type == LS_F64)
                    ((double *)buffers[k])[at] = value;
                else
                    ((float *)buffers[k])[at] = (float)value;
            }
        }
    ls_parameters_round(store);
}

static ls_status put_text(void *user, FILE *file, const char *path) {
    (void)path;
    return fprintf(file, "memory of %lld", (long long)*(const int64_t *)user) > 0 ? LS_OK : LS_EIO;
}

static void box_save(box *b, int64_t step, int64_t keep) {
    ls_checkpoint checkpoint = {.step = step, .config_hash = 0xabcdef0123456789u};
    checkpoint.state = json_pack("{s:I}", "step", (json_int_t)step);
    checkpoint.put_memory = put_text;
    checkpoint.user = &step;
    box_fill(b, (double)step);
    ls_status status =
        ls_checkpoint_save(&b->f.ctx, b->checkpoints, &checkpoint, b->optimizer, keep);
    if (status != LS_OK) fail_msg("%s", b->f.ctx.error.message);
    ls_checkpoint_clear(&checkpoint);
}

/* Loads, and demands what box_save stored at `step`. */
static void box_expect(box *b, int64_t step) {
    ls_checkpoint read;
    bool found;
    box_fill(b, -1);
    b->f.ctx.error = (ls_error){0};
    ls_status status = ls_checkpoint_load(&b->f.ctx, b->checkpoints, b->optimizer, &read, &found);
    if (status != LS_OK) fail_msg("%s", b->f.ctx.error.message);
    assert_true(found);
    assert_int_equal(read.step, step);
    assert_true(read.config_hash == 0xabcdef0123456789u);
    char memory[64];
    snprintf(memory, sizeof memory, "memory of %lld", (long long)step);
    assert_int_equal(read.memory.length, strlen(memory));
    assert_memory_equal(read.memory.bytes, memory, read.memory.length);
    size_t bytes = (size_t)b->f.store->total * ls_dtype_size(b->f.store->master_type);
    char *kept[3];
    void *buffers[] = {b->f.store->master, b->optimizer->mean, b->optimizer->square};
    for (int k = 0; k < 3; k++) kept[k] = memcpy(malloc(bytes), buffers[k], bytes);
    box_fill(b, (double)step);
    for (int k = 0; k < 3; k++) {
        assert_memory_equal(kept[k], buffers[k], bytes);
        free(kept[k]);
    }
    ls_checkpoint_clear(&read);
}

static void file_path(const box *b, int64_t step, const char *name, char out[256]) {
    snprintf(out, 256, "%s/step-%08lld/%s", b->checkpoints, (long long)step, name);
}

static void comes_back_the_same(void **state) {
    (void)state;
    static const char *const types[] = {"dtype=f32", "dtype=f64", "dtype=bf16"};
    for (int i = 0; i < 3; i++) {
        box b;
        box_open(&b, types[i]);
        ls_checkpoint read;
        bool found = true;
        assert_int_equal(ls_checkpoint_load(&b.f.ctx, b.checkpoints, b.optimizer, &read, &found),
                         LS_OK);
        assert_false(found);
        box_save(&b, 100, 2);
        box_expect(&b, 100);
        char path[256];
        int64_t step;
        assert_int_equal(ls_checkpoint_find(&b.f.ctx, b.checkpoints, path, sizeof path, &step),
                         LS_OK);
        assert_int_equal(step, 100);
        assert_true(ls_path_is_folder(path));
        box_close(&b);
    }
}

static void keeps_the_newest(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    char **names;
    size_t count;
    for (int64_t step = 1; step <= 5; step++) box_save(&b, step * 10, 3);
    assert_int_equal(ls_folder_list(&b.f.ctx, b.checkpoints, &names, &count), LS_OK);
    assert_int_equal(count, 3);
    assert_string_equal(names[0], "step-00000030");
    ls_names_free(&b.f.ctx, names, count);
    box_save(&b, 123456789012, 1); /* never fewer than two */
    assert_int_equal(ls_folder_list(&b.f.ctx, b.checkpoints, &names, &count), LS_OK);
    assert_int_equal(count, 2);
    ls_names_free(&b.f.ctx, names, count);
    box_expect(&b, 123456789012);
    box_save(&b, 123456789012, 2); /* in place of itself */
    box_expect(&b, 123456789012);
    /* what a save at an older step finds ahead of it is no reason to remove the good ones behind */
    box_save(&b, 60, 2);
    assert_int_equal(ls_folder_list(&b.f.ctx, b.checkpoints, &names, &count), LS_OK);
    assert_int_equal(count, 3);
    ls_names_free(&b.f.ctx, names, count);
    box_close(&b);
}

static void flip(const char *path, long at) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 4, file);
    fclose(file);
}

static void rejects_every_damage(void **state) {
    (void)state;
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "memory.bin", "manifest.json"};
    box b;
    box_open(&b, "dtype=f32");
    for (int i = 0; i < 5; i++)
        for (int damage = 0; damage < 4; damage++) {
            char path[256];
            struct stat about;
            assert_int_equal(ls_folder_remove(&b.f.ctx, b.checkpoints), LS_OK);
            box_save(&b, 1, 2);
            box_save(&b, 2, 2);
            file_path(&b, 2, names[i], path);
            assert_int_equal(stat(path, &about), 0);
            if (damage == 0) assert_int_equal(truncate(path, about.st_size - 2), 0);
            if (damage == 1) assert_int_equal(truncate(path, 0), 0);
            if (damage == 2) assert_int_equal(unlink(path), 0);
            if (damage == 3) flip(path, about.st_size / 2);
            said[0] = '\0';
            box_expect(&b, 1);
            assert_non_null(strstr(said, "step 2 rejected"));
            /* who asks for weights alone needs them and the manifest, no more */
            int64_t step;
            assert_int_equal(ls_checkpoint_find(&b.f.ctx, b.checkpoints, path, sizeof path, &step),
                             LS_OK);
            assert_int_equal(step, i == 0 || i == 4 ? 1 : 2);
        }
    box_close(&b);
}

static void says_when_none_is_whole(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    char path[256];
    box_save(&b, 1, 2);
    file_path(&b, 1, "model.safetensors", path);
    flip(path, 100);
    ls_checkpoint read;
    bool found;
    assert_int_equal(ls_checkpoint_load(&b.f.ctx, b.checkpoints, b.optimizer, &read, &found),
                     LS_EINPUT);
    assert_non_null(strstr(b.f.ctx.error.message, "checksum"));
    box_close(&b);
}

static void sweeps_what_was_left(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    char path[256];
    box_save(&b, 1, 2);
    snprintf(path, sizeof path, "%s/step-00000002.tmp", b.checkpoints);
    assert_int_equal(mkdir(path, 0777), 0);
    strcat(path, "/model.safetensors");
    assert_int_equal(ls_file_write(&b.f.ctx, path, "half", 4), LS_OK);
    box_expect(&b, 1);
    assert_int_equal(ls_checkpoint_sweep(&b.f.ctx, b.checkpoints), LS_OK);
    snprintf(path, sizeof path, "%s/step-00000002.tmp", b.checkpoints);
    assert_false(ls_path_exists(path));
    box_expect(&b, 1);
    box_close(&b);
}

/* A limit on the size of files stands in for a full disk: writes fail in the same way. */
static void full_disk_leaves_the_last_good_one(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t limit = 0; limit < 12000; limit += 1500) {
        ls_checkpoint checkpoint = {.step = 2};
        checkpoint.state = json_object();
        small = (struct rlimit){limit, before.rlim_max};
        b.f.ctx.error = (ls_error){0};
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        ls_status status = ls_checkpoint_save(&b.f.ctx, b.checkpoints, &checkpoint, b.optimizer, 2);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        json_decref(checkpoint.state);
        if (limit == 0) assert_int_equal(status, LS_EIO);
        if (status == LS_OK) break;
        assert_int_equal(status, LS_EIO);
        assert_non_null(strstr(b.f.ctx.error.message, "step-00000002"));
        char path[256];
        snprintf(path, sizeof path, "%s/step-00000002.tmp", b.checkpoints);
        assert_false(ls_path_exists(path));
        box_expect(&b, 1);
    }
    box_close(&b);
}

static void refuses_weights_that_are_not_finite(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    ((float *)b.f.store->master)[3] = NAN;
    ls_checkpoint checkpoint = {.step = 2, .state = json_object()};
    assert_int_equal(ls_checkpoint_save(&b.f.ctx, b.checkpoints, &checkpoint, b.optimizer, 2),
                     LS_EINPUT);
    json_decref(checkpoint.state);
    box_expect(&b, 1);
    box_close(&b);
}

static void refuses_another_model(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    ls_parameter *parameter = ls_parameters_find(b.f.store, "up.weight");
    parameter->dim[0] /= 2;
    parameter->dim[1] *= 2;
    ls_checkpoint read;
    bool found;
    assert_int_equal(ls_checkpoint_load(&b.f.ctx, b.checkpoints, b.optimizer, &read, &found),
                     LS_EINPUT);
    assert_non_null(strstr(b.f.ctx.error.message, "up.weight"));
    box_close(&b);
}

static ls_status save_and_load(ls_ctx *ctx, void *user) {
    box *b = user;
    ls_checkpoint checkpoint = {.step = 2, .state = json_object()}, read;
    bool found;
    ls_status status = ls_checkpoint_save(ctx, b->checkpoints, &checkpoint, b->optimizer, 2);
    json_decref(checkpoint.state);
    if (status == LS_OK)
        status = ls_checkpoint_load(ctx, b->checkpoints, b->optimizer, &read, &found);
    if (status == LS_OK) {
        assert_int_equal(read.step, 2); /* not an older one, as if this were damaged */
        ls_checkpoint_clear(&read);
    }
    return status;
}

static void survives_every_allocation_failure(void **state) {
    (void)state;
    box b;
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    fail_each_allocation(save_and_load, &b);
    fail_each_json(save_and_load, &b);
    box_close(&b);
}

/* Names beside ours: none is taken for a checkpoint, swept away, pruned, or in the way. */
static void leaves_other_names_alone(void **state) {
    (void)state;
    static const char *const others[] = {"step-1",
                                         "step-99999999999999999999",
                                         "step-9223372036854775808",
                                         "step-",
                                         "x",
                                         "step-000000001",
                                         "other.tmp"};
    box b;
    char path[300];
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", b.checkpoints, others[i]);
        assert_int_equal(mkdir(path, 0777), 0);
    }
    assert_int_equal(ls_checkpoint_sweep(&b.f.ctx, b.checkpoints), LS_OK);
    box_expect(&b, 1);
    for (int64_t step = 2; step <= 4; step++) box_save(&b, step, 2);
    box_expect(&b, 4);
    assert_string_equal(said, "");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", b.checkpoints, others[i]);
        assert_true(ls_path_is_folder(path));
    }
    box_close(&b);
}

/* From some length of its folder on there is no room for a step, its .tmp, a file. */
static void refuses_paths_without_room(void **state) {
    (void)state;
    char far[LONGEST + 8];
    box b;
    box_open(&b, "dtype=f32");
    box_save(&b, 1, 2);
    for (size_t length = LONGEST - 64; length < LONGEST + 2; length++) {
        ls_checkpoint read = {0}, checkpoint = {.step = (int64_t)length,
                                                .state = json_object(),
                                                .put_memory = put_text,
                                                .user = &checkpoint.step};
        bool found = false;
        pad(far, b.checkpoints, length);
        b.f.ctx.error = (ls_error){0};
        const ls_status saved = ls_checkpoint_save(&b.f.ctx, far, &checkpoint, b.optimizer, 2);
        json_decref(checkpoint.state);
        if (saved != LS_OK) assert_non_null(strstr(b.f.ctx.error.message, "too long"));
        b.f.ctx.error = (ls_error){0};
        const ls_status loaded = ls_checkpoint_load(&b.f.ctx, far, b.optimizer, &read, &found);
        if (loaded == LS_OK) ls_checkpoint_clear(&read);
        if (loaded != LS_OK) assert_non_null(strstr(b.f.ctx.error.message, "too long"));
        if (saved == LS_OK) assert_int_equal(loaded, LS_OK);
        if (length == LONGEST - 64) assert_int_equal(saved, LS_OK);
        if (length >= LONGEST) assert_true(saved != LS_OK && loaded != LS_OK);
    }
    box_close(&b);
}

/* Checksums of a config.yaml: of all of it, or of all but train.steps, which may grow. */
static void knows_an_edited_config(void **state) {
    (void)state;
    static const char whole[] = "model:\n  width: 8\ntrain:\n  steps: 9\n  lr: 1\n",
                      grown[] = "model:\n  width: 8\ntrain:\n  steps: 99\n  lr: 1\n",
                      other[] = "model:\n  width: 9\ntrain:\n  steps: 9\n  lr: 1\n",
                      cut[] = "model:\n  width: 8\ntrain:\n  steps: 9";
    static const struct {
        const char *text;
        bool but_steps, edited;
    } configs[] = {{whole, true, false}, {grown, true, false},  {other, true, true},
                   {cut, true, true},    {whole, false, false}, {grown, false, true}};
    box b;
    char folder[200], path[256], config[256], text[300];
    bool edited;
    box_open(&b, "dtype=f32");
    snprintf(folder, sizeof folder, "%s/edited", b.f.folder);
    assert_int_equal(ls_folder_make(&b.f.ctx, folder), LS_OK);
    snprintf(path, sizeof path, "%s/manifest.json", folder);
    snprintf(config, sizeof config, "%s/config.yaml", folder);
    assert_int_equal(ls_checkpoint_edited(&b.f.ctx, folder, config, &edited), LS_OK);
    assert_false(edited); /* there is nothing to compare with */
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        const unsigned long long all = ls_hash(whole, sizeof whole - 1),
                                 rest = ls_checkpoint_rest_hash(whole, sizeof whole - 1);
        snprintf(text, sizeof text, "{\"config\":\"%016llx\",\"%s\":\"%016llx\"}", all,
                 configs[i].but_steps ? "config_but_steps" : "unknown", rest);
        assert_int_equal(ls_file_write(&b.f.ctx, path, text, strlen(text)), LS_OK);
        assert_int_equal(ls_file_write(&b.f.ctx, config, configs[i].text, strlen(configs[i].text)),
                         LS_OK);
        assert_int_equal(ls_checkpoint_edited(&b.f.ctx, folder, config, &edited), LS_OK);
        assert_int_equal(edited, configs[i].edited);
    }
    assert_int_equal(ls_file_write(&b.f.ctx, path, "{}", 2), LS_OK);
    assert_int_equal(ls_checkpoint_edited(&b.f.ctx, folder, config, &edited), LS_EINPUT);
    assert_non_null(strstr(b.f.ctx.error.message, "config"));
    box_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_back_the_same),
        cmocka_unit_test(keeps_the_newest),
        cmocka_unit_test(rejects_every_damage),
        cmocka_unit_test(says_when_none_is_whole),
        cmocka_unit_test(sweeps_what_was_left),
        cmocka_unit_test(full_disk_leaves_the_last_good_one),
        cmocka_unit_test(refuses_weights_that_are_not_finite),
        cmocka_unit_test(refuses_another_model),
        cmocka_unit_test(survives_every_allocation_failure),
        cmocka_unit_test(leaves_other_names_alone),
        cmocka_unit_test(refuses_paths_without_room),
        cmocka_unit_test(knows_an_edited_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
