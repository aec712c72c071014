/* Tasks of the Long Range Arena that are images or files: what a Pathfinder image must satisfy, and
 * what the readers make of good files and of hostile ones. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing_allocator.h"

#include "base/file.h"
#include "base/memory.h"
#include "eval/task.h"
#include "task/lib/snakes.h"
#include "train/train.h"

/* ---- images ---- */

static double distance(ls_snakes_point a, ls_snakes_point b) {
    return hypot(a.row - b.row, a.column - b.column);
}

static int pixel(const ls_snakes *s, const ls_snakes_kind *kind, int row, int column) {
    if (row < 0 || column < 0 || row >= kind->side || column >= kind->side) return 0;
    return s->pixels[row * kind->side + column];
}

/* The least of the pixels that a dot on a place would cover; dots lie a quarter of a pixel off. */
static int dimmest(const ls_snakes *s, const ls_snakes_kind *kind, ls_snakes_point p) {
    int least = 255;
    for (int r = -4; r <= 4; r++)
        for (int c = -4; c <= 4; c++)
            if (hypot(r + 0.25, c + 0.25) < kind->dot - 0.4)
                least = (int)ls_min(least, pixel(s, kind, p.row + r, p.column + c));
    return least;
}

static int brightest(const ls_snakes *s, const ls_snakes_kind *kind, ls_snakes_point p) {
    int most = 0;
    for (int r = -1; r < 2; r++)
        for (int c = -1; c < 2; c++)
            most = (int)ls_max(most, pixel(s, kind, p.row + r, p.column + c));
    return most;
}

static ls_snakes_point end_of(const ls_snakes_snake *snake, int end) {
    return snake->dashes[end == 0 ? 0 : snake->count - 1].start;
}

/* All dashes are in the image and drawn, and follow each other. */
static void check_snake(const ls_snakes *s, const ls_snakes_kind *kind,
                        const ls_snakes_snake *snake, int dashes) {
    assert_int_equal(snake->count, dashes);
    for (int i = 0; i < dashes; i++) {
        const ls_snakes_dash *dash = &snake->dashes[i];
        const ls_snakes_point middle = {
            (int)lrint(dash->start.row + 0.5 * kind->dash * sin(dash->angle)),
            (int)lrint(dash->start.column + 0.5 * kind->dash * cos(dash->angle))};
        assert_in_range(dash->start.row, 0, kind->side - 1);
        assert_in_range(dash->start.column, 0, kind->side - 1);
        assert_true(brightest(s, kind, middle) > 60);
        if (i == 0) continue;
        /* a dash and two margins at most, at least a dash to the side, but for whole pixels */
        const double step = distance(dash->start, snake->dashes[i - 1].start);
        assert_true(step > kind->dash - 1);
        assert_true(step < kind->dash + 2 * s->margin + (i == 1 ? kind->dash : 0) + 3);
    }
}

static void check_image(const ls_snakes_kind *kind, int dashes, const ls_snakes *s) {
    const int shorter = (int)ls_max(1, dashes / 3);
    int most = 0, lit = 0;
    assert_in_range(s->margin, kind->margin_low, kind->margin);
    for (int t = 0; t < 2; t++) check_snake(s, kind, &s->targets[t], dashes);
    assert_in_range(s->distractor_count, 0, kind->distractor_dashes / shorter);
    for (int i = 0; i < s->distractor_count; i++) check_snake(s, kind, &s->distractors[i], shorter);
    for (int i = 0; i < kind->side * kind->side; i++) {
        most = (int)ls_max(most, s->pixels[i]);
        lit += s->pixels[i] > 60;
    }
    assert_int_equal(most, 255);
    assert_true(lit > kind->side && lit < kind->side * kind->side / 2);
    /* the targets begin at their distance */
    const double apart = distance(end_of(&s->targets[0], 0), end_of(&s->targets[1], 0));
    assert_true(fabs(apart - kind->seed_distance) < 1);
}

/* Dots are where they should be: a wide bright spot on the two chosen ends. */
static void check_dots(const ls_snakes_kind *kind, const ls_snakes *s) {
    for (int end = 0; end < 2; end++)
        assert_true(dimmest(s, kind, end_of(&s->targets[s->dotted[end]], end)) > 80);
    assert_int_equal(ls_snakes_connected(s), s->dotted[0] == s->dotted[1]);
}

static void images_are_what_they_say(void **state) {
    (void)state;
    static const struct {
        int side, dashes, images;
    } cases[] = {{32, 14, 60}, {32, 6, 20}, {64, 9, 3}, {128, 14, 4}};
    static ls_snakes s;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const ls_snakes_kind *kind = ls_snakes_kind_of(cases[c].side);
        int without_dot = 0;
        assert_non_null(kind);
        for (int i = 0; i < cases[c].images; i++) {
            const ls_random key = {.seed = 11, .step = (uint32_t)i};
            ls_snakes_draw(kind, cases[c].dashes, false, key, &s);
            check_image(kind, cases[c].dashes, &s);
            check_dots(kind, &s);
            /* most of the other ends have a dash alone, which is thinner than a dot */
            for (int end = 0; end < 2; end++)
                without_dot += dimmest(&s, kind, end_of(&s.targets[1 - s.dotted[end]], end)) <= 80;
        }
        if (without_dot <= cases[c].images)
            fail_msg("%d: %d of %d ends look dotless", kind->side, without_dot,
                     2 * cases[c].images);
    }
    assert_null(ls_snakes_kind_of(33));
}

/* With equal contrast nothing is drawn brighter than a dot; at 32 pixels a side distractors are. */
static void contrast_can_be_equal(void **state) {
    (void)state;
    static ls_snakes as_published, equal;
    const ls_snakes_kind *kind = ls_snakes_kind_of(32);
    ls_random key = {.seed = 3};
    for (ls_snakes_draw(kind, 14, false, key, &as_published); as_published.distractor_count == 0;
         ls_snakes_draw(kind, 14, false, key, &as_published))
        key.step++; /* one image in four has none */
    ls_snakes_draw(kind, 14, true, key, &equal);
    const ls_snakes_point dot = end_of(&equal.targets[equal.dotted[0]], 0);
    assert_true(dimmest(&equal, kind, dot) > 160);
    assert_true(dimmest(&as_published, kind, dot) < dimmest(&equal, kind, dot));
    const ls_snakes_point distractor = equal.distractors[0].dashes[1].start;
    assert_true(brightest(&as_published, kind, distractor) >
                brightest(&equal, kind, distractor) + 40);
    assert_memory_equal(equal.targets, as_published.targets, sizeof equal.targets);
    assert_memory_not_equal(equal.pixels, as_published.pixels, 1024);
}

static ls_status read_task(ls_ctx *ctx, const char *words, ls_task *out) {
    ls_settings settings = {0};
    ls_status status = ls_settings_put_words(ctx, &settings, words);
    if (status == LS_OK) status = ls_task_read(ctx, &settings, ls_training_facts, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

static void half_of_the_images_are_connected(void **state) {
    (void)state;
    enum { IMAGES = 250 };
    ls_ctx ctx = ls_ctx_default();
    ls_task task;
    int32_t inputs[1024], target;
    double connected = 0;
    assert_int_equal(read_task(&ctx, "task=pathfinder", &task), LS_OK);
    for (int64_t i = 0; i < IMAGES; i++) {
        ls_task_sample(&task, LS_TASK_TRAIN, 1, i, 1024, inputs, &target);
        for (int t = 0; t < 1024; t++) assert_in_range(inputs[t], 0, 255);
        connected += target;
    }
    assert_true(fabs(connected - IMAGES / 2.0) < 5 * sqrt(IMAGES / 4.0));
    assert_int_equal(ls_task_check(&ctx, &task, 16384), LS_OK);
    assert_int_equal(ls_task_check(&ctx, &task, 1023), LS_EUSE);
    ls_task_clear(&ctx, &task);
}

/* Two passes over few images, whose batches do not end where a pass does: those of the second pass
 * come from memory, and are what they would be if they were drawn again. */
static void images_are_drawn_once(void **state) {
    (void)state;
    enum { IMAGES = 10, BATCH = 4, BATCHES = 5, PIXELS = 1024 };
    static int32_t drawn[BATCH * PIXELS], kept[BATCH * PIXELS];
    int32_t class_drawn[BATCH], class_kept[BATCH];
    bool fresh[BATCH];
    ls_ctx ctx = ls_ctx_default();
    ls_task task;
    ls_train_source plain, keeping;
    assert_int_equal(read_task(&ctx, "task=pathfinder task.samples=10", &task), LS_OK);
    const ls_task_batches each_time = {
        .task = &task, .batch = BATCH, .length = PIXELS, .seed = 3, .threads = 2};
    ls_task_batches once = each_time;
    const size_t bytes = ls_task_kept_bytes(&each_time);
    assert_int_equal(bytes, IMAGES * (PIXELS + 2));
    once.kept = ls_new(&ctx, bytes, 1);
    assert_non_null(once.kept);
    assert_int_equal(ls_train_source_of_task(&ctx, &each_time, 256, &plain), LS_OK);
    assert_int_equal(ls_train_source_of_task(&ctx, &once, 256, &keeping), LS_OK);
    assert_int_equal(plain.identity, keeping.identity);
    for (int64_t i = 0; i < BATCHES; i++) {
        plain.rows(plain.user, i, 0, BATCH, drawn, class_drawn, fresh);
        keeping.rows(keeping.user, i, 0, BATCH, kept, class_kept, fresh);
        assert_memory_equal(kept, drawn, sizeof drawn);
        assert_memory_equal(class_kept, class_drawn, sizeof class_drawn);
    }
    memset(once.kept + IMAGES, 7, IMAGES * PIXELS);
    keeping.rows(keeping.user, BATCHES, 0, BATCH, kept, class_kept, fresh);
    for (int t = 0; t < BATCH * PIXELS; t++) assert_int_equal(kept[t], 7);
    /* tests, images without end, and more than memory has */
    ls_task_batches other = each_time;
    other.held_out = true;
    assert_int_equal(ls_task_kept_bytes(&other), 0);
    task.settings.samples = 0;
    assert_int_equal(ls_task_kept_bytes(&each_time), 0);
    task.settings.samples = 2000000;
    assert_int_equal(ls_task_kept_bytes(&each_time), 0);
    ls_free(&ctx, once.kept);
    ls_task_clear(&ctx, &task);
}

/* ---- files ---- */

typedef struct folder {
    ls_ctx ctx;
    char path[64];
} folder;

static void folder_make(folder *f) {
    f->ctx = ls_ctx_default();
    snprintf(f->path, sizeof f->path, "/tmp/longshot-lra-XXXXXX");
    assert_non_null(mkdtemp(f->path));
}

static void folder_clear(folder *f) {
    assert_int_equal(ls_folder_remove(&f->ctx, f->path), LS_OK);
}

static void put_bytes(folder *f, const char *name, const void *bytes, size_t count) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", f->path, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert_int_equal(ls_folder_make(&f->ctx, path), LS_OK);
    *slash = '/';
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void put_text(folder *f, const char *name, const char *text) {
    put_bytes(f, name, text, strlen(text));
}

static ls_status open_files(folder *f, const char *words, ls_task_set set, ls_task *out) {
    char all[256];
    snprintf(all, sizeof all, "%s task.path=%s", words, f->path);
    assert_int_equal(read_task(&f->ctx, all, out), LS_OK);
    return ls_task_open(&f->ctx, out, set, NULL);
}

static ls_task open_well(folder *f, const char *words, ls_task_set set) {
    ls_task task;
    if (open_files(f, words, set, &task) != LS_OK) fail_msg("%s: %s", words, f->ctx.error.message);
    return task;
}

static void refuses(folder *f, const char *words, ls_status code, const char *says) {
    ls_task task;
    assert_int_equal(open_files(f, words, LS_TASK_TRAIN, &task), code);
    if (strstr(f->ctx.error.message, says) == NULL)
        fail_msg("`%s` does not say `%s`", f->ctx.error.message, says);
    f->ctx.error = (ls_error){0};
    ls_task_clear(&f->ctx, &task);
}

/* The words of a sample, padding left out. */
static void as_text(const int32_t *tokens, int64_t length, char *out) {
    int64_t t = 0;
    for (; t < length && tokens[t] >= 0; t++) out[t] = (char)tokens[t];
    out[t] = '\0';
    for (; t < length; t++) assert_int_equal(tokens[t], -1);
}

/* Each of the samples of a set once; how many have the label that their first byte says. */
static int64_t check_labels(const ls_task *task, ls_task_set set, int64_t samples) {
    int32_t inputs[2 * 8], target;
    char seen[256] = {0}, text[16];
    int64_t different = 0;
    assert_int_equal(ls_task_stored(task, set), samples);
    for (int64_t i = 0; i < samples; i++) {
        ls_task_sample(task, set, 5, i, 8, inputs, &target);
        as_text(inputs, 8, text);
        assert_int_equal(target, text[0] == '+');
        different += !seen[(uint8_t)text[1]];
        seen[(uint8_t)text[1]] = 1;
    }
    return different;
}

static void texts_are_read_from_folders(void **state) {
    (void)state;
    folder f;
    char name[64], text[64];
    folder_make(&f);
    for (int i = 0; i < 20; i++) {
        const char *label = i % 2 ? "pos" : "neg", *part = i < 10 ? "train" : "test";
        snprintf(name, sizeof name, "%s/%s/%d_7.txt", part, label, i);
        snprintf(text, sizeof text, "%c%c and much more", i % 2 ? '+' : '-', 'a' + i);
        put_text(&f, name, text);
    }
    put_text(&f, "train/pos/notes.md", "not read");
    put_text(&f, "train/unsup/0_0.txt", "nor this");
    ls_task task = open_well(&f, "task=text task.holdout=0.2", LS_TASK_TRAIN);
    assert_int_equal(check_labels(&task, LS_TASK_TRAIN, 8), 8);
    assert_int_equal(check_labels(&task, LS_TASK_TEST, 10), 10);
    assert_int_equal(ls_task_vocabulary(&task), 256);
    /* training goes round among all of them */
    int32_t inputs[8], target, seen[2] = {0};
    for (int64_t place = 0; place < 16; place++) {
        ls_task_training_sample(&task, 1, place, 8, inputs, &target);
        seen[place / 8] |= 1 << (inputs[1] - 'a');
    }
    assert_int_equal(__builtin_popcount((unsigned)seen[0]), 8);
    assert_int_equal(seen[0], seen[1]);
    ls_task_clear(&f.ctx, &task);
    ls_task held = open_well(&f, "task=text task.holdout=0.2 task.split=validation", LS_TASK_TEST);
    assert_int_equal(check_labels(&held, LS_TASK_TEST, 2), 2);
    for (int64_t i = 0; i < 2; i++) {
        ls_task_sample(&held, LS_TASK_TEST, 1, i, 8, inputs, &target);
        assert_false(seen[0] & 1 << (inputs[1] - 'a')); /* never trained on */
    }
    ls_task_clear(&f.ctx, &held);
    put_text(&f, "test/neg/empty.txt", "");
    refuses(&f, "task=text", LS_EINPUT, "empty.txt is empty");
    folder_clear(&f);
}

static void texts_are_read_from_tables(void **state) {
    (void)state;
    folder f;
    folder_make(&f);
    put_text(&f, "imdb.train.tsv", "1\t+a\tb\r\n0\t-b\n\n1.0\t+c");
    put_text(&f, "imdb.test.tsv", "0\t-d\n");
    put_text(&f, "readme.tsv", "of no part");
    ls_task task = open_well(&f, "task=text task.holdout=0", LS_TASK_TRAIN);
    assert_int_equal(check_labels(&task, LS_TASK_TRAIN, 3), 3);
    int32_t inputs[2], target;
    ls_task_sample(&task, LS_TASK_TRAIN, 1, 0, 2, inputs, &target); /* cut off */
    assert_true(inputs[0] == '+' && inputs[1] == 'a');
    ls_task_clear(&f.ctx, &task);
    put_text(&f, "imdb.train.tsv", "1\tgood\n2\tbad\n");
    refuses(&f, "task=text", LS_EINPUT, "imdb.train.tsv, line 2: the label must be 0 or 1");
    put_text(&f, "imdb.train.tsv", "1\tgood\nbad\n");
    refuses(&f, "task=text", LS_EINPUT, "line 2: there must be 2 fields");
    put_text(&f, "imdb.train.tsv", "1\t\n");
    refuses(&f, "task=text", LS_EINPUT, "line 1: the text is empty");
    put_text(&f, "imdb.train.tsv", "");
    refuses(&f, "task=text", LS_EINPUT, "finds no samples of the training set");
    put_text(&f, "imdb.train.tsv", "1\tgood\n");
    put_text(&f, "more-train.tsv", "1\tgood\n");
    refuses(&f, "task=text", LS_EINPUT, "another table of the folder has the training set");
    folder_clear(&f);
    ls_task task2;
    assert_int_equal(open_files(&f, "task=text", LS_TASK_TRAIN, &task2), LS_EINPUT);
    assert_non_null(strstr(f.ctx.error.message, "is not a folder"));
    ls_task_clear(&f.ctx, &task2);
    f.ctx.error = (ls_error){0};
    assert_int_equal(read_task(&f.ctx, "task=text", &task2), LS_OK);
    assert_int_equal(ls_task_open(&f.ctx, &task2, LS_TASK_TRAIN, NULL), LS_EUSE);
    assert_non_null(strstr(f.ctx.error.message, "task.path=FOLDER"));
    ls_task_clear(&f.ctx, &task2);
}

static void documents_are_pairs(void **state) {
    (void)state;
    folder f;
    folder_make(&f);
    put_text(&f, "new_aan_pairs.train.tsv",
             "1.0\tP1\tP2\tfirst\tsecond\n0.0\tP3\tP4\tone\ta longer one\n");
    put_text(&f, "new_aan_pairs.eval.tsv", "0\tP5\tP6\tx\ty\n");
    ls_task task = open_well(&f, "task=documents", LS_TASK_TRAIN);
    int32_t inputs[2 * 8], target;
    char text[16];
    assert_int_equal(ls_task_inputs(&task, 8), 16);
    assert_int_equal(ls_task_targets(&task, 8), 1);
    assert_int_equal(ls_task_stored(&task, LS_TASK_TRAIN), 2); /* another file is for validation */
    ls_task_sample(&task, LS_TASK_TRAIN, 1, 1, 8, inputs, &target);
    assert_int_equal(target, 0);
    as_text(inputs, 8, text);
    assert_string_equal(text, "one");
    as_text(inputs + 8, 8, text);
    assert_string_equal(text, "a longer");
    ls_task_clear(&f.ctx, &task);
    put_text(&f, "new_aan_pairs.train.tsv", "1\tP1\tP2\tfirst\n");
    refuses(&f, "task=documents", LS_EINPUT, "line 1: there must be 5 fields");
    put_text(&f, "new_aan_pairs.train.tsv", "1\tP1\tP2\tfirst\t\n");
    refuses(&f, "task=documents", LS_EINPUT, "a text is empty");
    put_bytes(&f, "new_aan_pairs.train.tsv", "\0\t\t\t\t\xff", 6);
    refuses(&f, "task=documents", LS_EINPUT, "the label must be");
    folder_clear(&f);
}

static void lists_are_read(void **state) {
    (void)state;
    folder f;
    static const int32_t wanted[] = {11, 4, 10, 0, 9, 14, 13, 7, 14, 14};
    folder_make(&f);
    put_text(&f, "basic_train.tsv",
             "Source\tTarget\r\n( ( ( ( [MAX 4 ) ( ( ( [MIN 0 ) 9 ) ] ) ) ( ( [SM 7 ) ] ) ) ] )\t7"
             "\r\n");
    ls_task task = open_well(&f, "task=listops_file", LS_TASK_TRAIN);
    int32_t inputs[16], target;
    ls_task_sample(&task, LS_TASK_TRAIN, 1, 0, 16, inputs, &target);
    assert_memory_equal(inputs, wanted, sizeof wanted);
    assert_int_equal(inputs[10], -1);
    assert_int_equal(target, 7);
    assert_int_equal(ls_task_vocabulary(&task), 15);
    ls_task_clear(&f.ctx, &task);
    put_text(&f, "basic_train.tsv", "Source\tTarget\n[MAX 4 12 ]\t7\n");
    refuses(&f, "task=listops_file", LS_EINPUT, "line 2: the list has a word");
    put_text(&f, "basic_train.tsv", "[MAX 4 1 ]\t10\n");
    refuses(&f, "task=listops_file", LS_EINPUT, "line 1: the value must be 0 to 9");
    put_text(&f, "basic_train.tsv", " ( ) \t1\n");
    refuses(&f, "task=listops_file", LS_EINPUT, "the list is empty");
    folder_clear(&f);
}

static void images_are_grey(void **state) {
    (void)state;
    enum { IMAGE = 3073 };
    folder f;
    folder_make(&f);
    uint8_t *file = calloc(3, IMAGE);
    for (int i = 0; i < 3; i++) file[i * IMAGE] = (uint8_t)(3 * i);
    /* colours and the tones that TensorFlow makes of them for LRA: weights in whole numbers, cut
     * off, would give one less each */
    static const uint8_t colours[][4] = {{206, 120, 131, 147}, {249, 45, 229, 127},
                                         {223, 78, 4, 113},    {1, 1, 1, 1},
                                         {102, 108, 141, 110}, {254, 254, 254, 254}};
    enum { COLOURS = sizeof colours / sizeof colours[0] };
    for (int i = 0; i < COLOURS; i++)
        for (int c = 0; c < 3; c++) file[IMAGE + 1 + 1024 * c + i] = colours[i][c];
    memset(file + 2 * IMAGE + 1, 255, IMAGE - 1);
    put_bytes(&f, "data_batch_1.bin", file, 3 * IMAGE);
    put_bytes(&f, "data_batch_2.bin", file, IMAGE);
    put_bytes(&f, "test_batch.bin", file + IMAGE, IMAGE);
    ls_task task = open_well(&f, "task=cifar", LS_TASK_TRAIN);
    int32_t inputs[1024], target;
    assert_int_equal(ls_task_stored(&task, LS_TASK_TRAIN), 4);
    assert_int_equal(ls_task_stored(&task, LS_TASK_TEST), 1);
    ls_task_sample(&task, LS_TASK_TEST, 1, 0, 1024, inputs, &target);
    assert_int_equal(target, 3);
    for (int i = 0; i < COLOURS; i++) assert_int_equal(inputs[i], colours[i][3]);
    assert_int_equal(inputs[COLOURS], 0);
    ls_task_sample(&task, LS_TASK_TRAIN, 1, 2, 1024, inputs, &target);
    assert_int_equal(target, 6);
    assert_int_equal(inputs[1023], 255);
    assert_int_equal(ls_task_check(&f.ctx, &task, 1000), LS_EUSE);
    f.ctx.error = (ls_error){0};
    ls_task_clear(&f.ctx, &task);
    put_bytes(&f, "data_batch_2.bin", file, IMAGE - 1);
    refuses(&f, "task=cifar", LS_EINPUT, "data_batch_2.bin has 3072 bytes");
    put_bytes(&f, "data_batch_2.bin", file, 0);
    refuses(&f, "task=cifar", LS_EINPUT, "data_batch_2.bin has 0 bytes");
    file[0] = 10;
    put_bytes(&f, "data_batch_2.bin", file, IMAGE);
    refuses(&f, "task=cifar", LS_EINPUT, "image 0 has class 10 of 10");
    free(file);
    folder_clear(&f);
}

static void every_reader_is_sound(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    int found = 0;
    for (size_t i = 0; i < ls_task_count; i++) {
        const ls_task_type *type = ls_task_types[i];
        char words[128];
        ls_task task, again;
        if (type->load == NULL) continue;
        found++;
        snprintf(words, sizeof words, "task=%s task.path=some/where task.holdout=0.25", type->name);
        assert_int_equal(read_task(&ctx, words, &task), LS_OK);
        assert_true(type->summary[0] != '\0' && type->paper[0] != '\0' && type->classes > 1);
        assert_int_equal(ls_task_check(&ctx, &task, type->length), LS_OK);
        assert_int_equal(ls_task_check(&ctx, &task, 1), LS_EUSE);
        assert_non_null(strstr(ctx.error.message, type->name));
        ctx.error = (ls_error){0};
        ls_text printed = {0};
        ls_settings settings = {0};
        ls_task_print(&ctx, &task, &printed);
        assert_int_equal(
            ls_settings_parse(&ctx, &settings, printed.bytes, printed.length, "printed"), LS_OK);
        assert_int_equal(ls_task_read(&ctx, &settings, ls_training_facts, &again), LS_OK);
        assert_memory_equal(task.options, again.options, sizeof(ls_records_settings));
        ls_settings_clear(&ctx, &settings);
        ls_text_clear(&ctx, &printed);
        ls_task_clear(&ctx, &again);
        ls_task_clear(&ctx, &task);
    }
    assert_int_equal(found, 4);
}

static ls_status open_and_clear(ls_ctx *ctx, void *user) {
    char words[128];
    ls_task task = {0};
    snprintf(words, sizeof words, "task=text task.holdout=0.5 task.path=%s", (const char *)user);
    ls_status status = read_task(ctx, words, &task);
    if (status == LS_OK) status = ls_task_open(ctx, &task, LS_TASK_TRAIN, NULL);
    ls_task_clear(ctx, &task);
    return status;
}

static void no_memory_is_said(void **state) {
    (void)state;
    folder f;
    folder_make(&f);
    put_text(&f, "train/neg/1.txt", "no");
    put_text(&f, "train/pos/1.txt", "yes");
    fail_each_allocation(open_and_clear, f.path);
    assert_int_equal(ls_folder_remove(&f.ctx, f.path), LS_OK);
    put_text(&f, "train.tsv", "1\tyes\n0\tno\n");
    fail_each_allocation(open_and_clear, f.path);
    folder_clear(&f);
}

/* ---- pairs in training and in tests ---- */

static void pairs_are_batched_and_evaluated(void **state) {
    (void)state;
    enum { LENGTH = 6, ROWS = 2 };
    folder f;
    folder_make(&f);
    put_text(&f, "train.tsv", "1\ta\tb\tabc\tdefghij\n0\ta\tb\tklm\tn\n");
    put_text(&f, "test.tsv", "1\ta\tb\tabc\tabc\n0\ta\tb\tabc\txyz\n1\ta\tb\tq\tq\n");
    ls_task task = open_well(&f, "task=documents task.holdout=0", LS_TASK_TRAIN);
    const ls_task_batches from = {
        .task = &task, .batch = ROWS, .length = LENGTH, .seed = 7, .threads = 2};
    ls_train_source source;
    int32_t rows[ROWS * 2 * LENGTH], classes[ROWS], inputs[2 * LENGTH], target;
    bool fresh[ROWS];
    assert_int_equal(ls_train_source_of_task(&f.ctx, &from, 256, &source), LS_OK);
    source.rows(source.user, 3, 0, ROWS, rows, classes, fresh);
    for (int64_t i = 0; i < ROWS; i++) {
        ls_task_training_sample(&task, 7, 3 * ROWS + i, LENGTH, inputs, &target);
        assert_memory_equal(rows + i * 2 * LENGTH, inputs, sizeof inputs);
        assert_int_equal(classes[i], target);
    }
    /* all that there are, one by one, against all at once */
    static const char words[] =
        "model.vocabulary=256 model.head=match model.classes=2 model.width=16 model.layers=1 "
        "mixer.heads=2 model.causal=false model.init=1 model.length=6 model.position=rope";
    ls_model_config config;
    ls_model *model;
    ls_eval_settings how;
    ls_eval_results results;
    if (ls_model_config_read_words(&f.ctx, words, &config) != LS_OK)
        fail_msg("%s", f.ctx.error.message);
    assert_int_equal(ls_model_new(&f.ctx, &config, LS_F64, 2, false, &model), LS_OK);
    assert_int_equal(ls_options_default(&f.ctx, &ls_eval_options, &how), LS_OK);
    double loss[2];
    for (int i = 0; i < 2; i++) {
        how.batch = i == 0 ? 0 : 1;
        assert_int_equal(ls_eval_task(model, &task, 7, &how, NULL, &results), LS_OK);
        assert_int_equal(results.count, 1); /* the trained length alone */
        assert_int_equal(results.rows[0].length, LENGTH);
        assert_int_equal(results.rows[0].tokens, 3);
        assert_int_equal(results.rows[0].windows, 3);
        loss[i] = results.rows[0].loss;
        ls_eval_results_clear(&f.ctx, &results);
    }
    assert_true(fabs(loss[0] - loss[1]) < 1e-12);
    ls_model_free(model);
    ls_model_config_clear(&f.ctx, &config);
    ls_task_clear(&f.ctx, &task);
    folder_clear(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_what_they_say),
        cmocka_unit_test(contrast_can_be_equal),
        cmocka_unit_test(half_of_the_images_are_connected),
        cmocka_unit_test(images_are_drawn_once),
        cmocka_unit_test(texts_are_read_from_folders),
        cmocka_unit_test(texts_are_read_from_tables),
        cmocka_unit_test(documents_are_pairs),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(images_are_grey),
        cmocka_unit_test(every_reader_is_sound),
        cmocka_unit_test(no_memory_is_said),
        cmocka_unit_test(pairs_are_batched_and_evaluated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
