/* A small language model made of operations, data that are a pure function of the batch's number,
 * and run folders: what the tests of training share. */
#ifndef LS_TESTS_TRAIN_FIXTURE_H
#define LS_TESTS_TRAIN_FIXTURE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "tensor/ops.h"
#include "train/checkpoint.h"
#include "train/train.h"

enum { VOCABULARY = 17, WIDTH = 24 };

static int fixture_threads = 1;
static double fixture_dropout; /* of the embedded tokens */
static int64_t fixture_redraw; /* steps after which a parameter is drawn anew; 0: there is none */

typedef struct fixture {
    ls_ctx ctx;
    char folder[64];
    ls_train_settings settings;
    ls_parameters *store;
    ls_program *program;
    ls_train_job job;
} fixture;

/* Every token follows from the one before it, so there is something to learn. */
static inline void fixture_rows(const void *user, int64_t batch, int64_t row, int64_t rows,
                                int32_t *inputs, int32_t *targets, bool *fresh) {
    const fixture *f = user;
    int64_t T = f->settings.length;
    ls_random key = {.seed = 9, .stream = ls_stream_of("fixture")};
    for (int64_t b = 0; b < rows; b++) {
        int64_t number = batch * f->settings.batch + row + b;
        int32_t token = (int32_t)ls_random_below(key, (uint64_t)number, VOCABULARY);
        for (int64_t t = 0; t < T; t++) {
            inputs[b * T + t] = token;
            token = (token * 5 + 3) % VOCABULARY;
            targets[b * T + t] = t == 0 ? -1 : token;
        }
        fresh[b] = true;
    }
}

static inline void fixture_model(fixture *f) {
    ls_dtype type = ls_train_dtype(&f->settings);
    int64_t B = f->settings.batch / f->settings.accumulate, T = f->settings.length;
    ls_program_options options = {.type = type,
                                  .batch = B,
                                  .length = T,
                                  .grad = true,
                                  .train = true,
                                  .runs = f->settings.accumulate};
    ls_init fixed = {.kind = LS_INIT_NORMAL, .a = 0.3, .full = true, .fixed = true};
    ls_init normal = {.kind = LS_INIT_NORMAL, .a = 0.3};
    ls_init zero = {.kind = LS_INIT_ZERO, .no_decay = true, .full = true};
    assert_int_equal(ls_parameters_new(&f->ctx, type, &f->store), LS_OK);
    /* recorded twice: the first time declares the parameters, the second time finds them sealed */
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(ls_program_new(&f->ctx, &options, f->store, &f->program), LS_OK);
        ls_program *p = f->program;
        ls_tensor *tokens = ls_input(p, "tokens", LS_I32, LS_DIMS(B, T), false);
        ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, T), false);
        ls_tensor *weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, T), false);
        ls_tensor *table = ls_param(p, "embed.weight", LS_DIMS(VOCABULARY, WIDTH), normal);
        ls_tensor *up = ls_param(p, "up.weight", LS_DIMS(WIDTH, WIDTH), normal);
        ls_tensor *bias = ls_param(p, "up.bias", LS_DIMS(WIDTH), zero);
        ls_tensor *head = ls_param(p, "head.weight", LS_DIMS(VOCABULARY, WIDTH), normal);
        ls_tensor *x = ls_dropout(p, ls_embed(p, tokens, table), fixture_dropout);
        ls_tensor *y = ls_activate(p, LS_ACT_SILU, false, ls_linear(p, x, up, bias));
        ls_tensor *loss =
            ls_linear_cross_entropy(p, ls_plus(p, x, y), head, NULL, targets, weights, 0, 0);
        ls_keep(p, "loss", loss);
        if (fixture_redraw > 0)
            ls_redraw(p, ls_param(p, "drawn", LS_DIMS(WIDTH), fixed), fixture_redraw);
        if (pass == 0) {
            if (ls_failed(p)) fail_msg("%s", f->ctx.error.message);
            ls_program_free(p);
            assert_int_equal(ls_parameters_seal(f->store, 5, true), LS_OK);
        }
    }
    ls_status status = ls_program_finish(f->program);
    if (status != LS_OK) fail_msg("%s", f->ctx.error.message);
    f->job.program = f->program;
    f->job.store = f->store;
}

/* Settings "key=value" follow, ended by NULL; a fresh folder where `folder` is NULL. */
static inline void fixture_open(fixture *f, const char *folder, ...) {
    *f = (fixture){.ctx = ls_ctx_default()};
    f->ctx.threads = fixture_threads; /* before anything is recorded: plans depend on it */
    if (folder == NULL) {
        /* where fsync costs nothing */
        snprintf(f->folder, sizeof f->folder, "%s/longshot-train-XXXXXX",
                 access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        assert_non_null(mkdtemp(f->folder));
    } else {
        snprintf(f->folder, sizeof f->folder, "%s", folder);
    }
    assert_int_equal(ls_options_default(&f->ctx, &ls_train_options, &f->settings), LS_OK);
    static const char *const small[][2] = {
        {"steps", "12"}, {"batch", "4"},     {"length", "8"},          {"warmup", "3"},
        {"lr", "0.02"},  {"log_every", "1"}, {"checkpoint_every", "4"}};
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++)
        ls_options_set(&f->ctx, &ls_train_options, "train.", small[i][0], small[i][1],
                       &f->settings);
    va_list list;
    va_start(list, folder);
    for (const char *word; (word = va_arg(list, const char *)) != NULL;) {
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)strcspn(word, "="), word);
        ls_status status = ls_options_set(&f->ctx, &ls_train_options, "train.", key,
                                          word + strlen(key) + 1, &f->settings);
        if (status != LS_OK) fail_msg("%s", f->ctx.error.message);
    }
    va_end(list);
    f->job = (ls_train_job){
        .folder = f->folder,
        .config = "train:\n  lr: 0.02\n",
        .settings = &f->settings,
        .source = {.user = f, .rows = fixture_rows, .identity = 77, .vocabulary = VOCABULARY},
        .user = f};
    fixture_model(f);
}

static inline void fixture_close(fixture *f, bool remove) {
    ls_program_free(f->program);
    ls_parameters_free(f->store);
    f->ctx.error = (ls_error){0};
    if (remove) assert_int_equal(ls_folder_remove(&f->ctx, f->folder), LS_OK);
}

static inline ls_status fixture_run(fixture *f, ls_train_result *result) {
    f->ctx.error = (ls_error){0};
    return ls_train_run(&f->ctx, &f->job, result);
}

static inline void fixture_expect(fixture *f, ls_status wanted) {
    ls_train_result result;
    ls_status status = fixture_run(f, &result);
    if (status != wanted)
        fail_msg("%s in place of %s: %s", ls_status_name(status), ls_status_name(wanted),
                 f->ctx.error.message);
}

static inline void fixture_path(const fixture *f, const char *name, char *out, size_t bytes) {
    snprintf(out, bytes, "%s/%s", f->folder, name);
}

static inline void fixture_read(fixture *f, const char *name, ls_text *out) {
    char path[512];
    fixture_path(f, name, path, sizeof path);
    f->ctx.error = (ls_error){0};
    ls_status status = ls_file_read(&f->ctx, path, (size_t)1 << 30, out);
    if (status != LS_OK) fail_msg("%s", f->ctx.error.message);
}

static inline void expect_same_file(fixture *a, fixture *b, const char *name) {
    ls_text x = {0}, y = {0};
    fixture_read(a, name, &x);
    fixture_read(b, name, &y);
    assert_int_equal(x.length, y.length);
    assert_memory_equal(x.bytes, y.bytes, x.length);
    ls_text_clear(&a->ctx, &x);
    ls_text_clear(&b->ctx, &y);
}

static inline void expect_same_checkpoint(fixture *a, fixture *b, int64_t step) {
    char name[128];
    snprintf(name, sizeof name, "checkpoints/step-%08lld/model.safetensors", (long long)step);
    expect_same_file(a, b, name);
    snprintf(name, sizeof name, "checkpoints/step-%08lld/optimizer.safetensors", (long long)step);
    expect_same_file(a, b, name);
}

#endif
