/* Perplexity at given lengths against a plain computation: whole pieces through a program that does
 * not stream, losses averaged by hand. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "eval/perplexity.h"

enum { DOCUMENTS = 4, VOCABULARY = 256 };
static const int64_t sizes[DOCUMENTS] = {40, 129, 20, 70};

typedef struct world {
    ls_ctx ctx;
    ls_model_config config;
    ls_model *model;
    ls_token_file *file;
    ls_tokenizer *tokenizer;
    char path[64];
} world;

static int set_up(void **state) {
    world *w = calloc(1, sizeof *w);
    *state = w;
    w->ctx = ls_ctx_default();
    ls_ctx *ctx = &w->ctx;
    ls_settings settings = {0};
    static const char *const words[] = {
        "model.layers=2", "model.width=16",       "mixer.heads=2",      "model.length=16",
        "model.init=0.5", "model.vocabulary=256", "model.position=rope"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        assert_int_equal(ls_settings_put_word(ctx, &settings, words[i]), LS_OK);
    assert_int_equal(ls_model_config_read(ctx, &settings, &w->config), LS_OK);
    ls_settings_clear(ctx, &settings);
    assert_int_equal(ls_model_new(ctx, &w->config, LS_F64, 3, false, &w->model), LS_OK);
    assert_int_equal(ls_tokenizer_new_byte(ctx, &w->tokenizer), LS_OK);
    snprintf(w->path, sizeof w->path, "/tmp/longshot-perplexity-%ld.tokens", (long)getpid());
    ls_token_writer *writer;
    assert_int_equal(ls_token_writer_new(ctx, w->path, w->tokenizer, 1, &writer), LS_OK);
    for (int d = 0; d < DOCUMENTS; d++) {
        int32_t ids[256];
        for (int64_t i = 0; i < sizes[d]; i++)
            ids[i] =
                (int32_t)(ls_random_word((ls_random){.seed = 5, .step = (uint32_t)d}, (uint64_t)i) %
                          VOCABULARY);
        assert_int_equal(ls_token_writer_add(ctx, writer, ids, (size_t)sizes[d], (size_t)sizes[d]),
                         LS_OK);
    }
    assert_int_equal(ls_token_writer_finish(ctx, writer), LS_OK);
    ls_token_writer_free(ctx, writer);
    assert_int_equal(ls_token_file_open(ctx, w->path, &w->file), LS_OK);
    return 0;
}

static int tear_down(void **state) {
    world *w = *state;
    ls_token_file_close(&w->ctx, w->file);
    ls_tokenizer_free(&w->ctx, w->tokenizer);
    ls_model_free(w->model);
    ls_model_config_clear(&w->ctx, &w->config);
    unlink(w->path);
    free(w);
    return 0;
}

/* The sum of losses of one piece, whole and from nothing. */
static double piece_loss(world *w, int64_t begin, int64_t length) {
    int32_t inputs[256], targets[256];
    ls_program *program;
    ls_token_file_read(w->file, begin, length, inputs);
    ls_token_file_read(w->file, begin + 1, length, targets);
    const ls_program_options options = {.batch = 1, .length = length};
    assert_int_equal(ls_model_program(w->model, LS_MODEL_LOSS, options, &program), LS_OK);
    assert_int_equal(ls_model_put_tokens(w->model, program, "tokens", inputs), LS_OK);
    assert_int_equal(ls_model_put_tokens(w->model, program, "targets", targets), LS_OK);
    assert_int_equal(ls_program_run(program, NULL, 0, 0), LS_OK);
    const double *loss = ls_data(ls_program_find(program, "loss"));
    double sum = 0;
    for (int64_t i = 0; i < length; i++) sum += loss[i];
    ls_program_free(program);
    return sum;
}

/* Documents 0, 1 and 3 have room for 32 targets; 32, 128 and 64 tokens of them are scored. */
static void equals_plain_computation(void **state) {
    world *w = *state;
    const int64_t lengths[] = {32, 8, 12};
    ls_perplexity rows[3];
    const ls_perplexity_settings settings = {
        .lengths = lengths, .count = 3, .batch = 3, .chunk = 5};
    assert_int_equal(ls_perplexity_measure(w->model, w->file, &settings, rows), LS_OK);
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        int64_t tokens = 0;
        for (int d = 0; d < DOCUMENTS; d++) {
            int64_t stretch = (sizes[d] - 1) / 32 * 32, begin = 0;
            for (int e = 0; e < d; e++) begin += sizes[e];
            for (int64_t at = 0; at + lengths[i] <= stretch; at += lengths[i]) {
                sum += piece_loss(w, begin + at, lengths[i]);
                tokens += lengths[i];
            }
        }
        assert_int_equal(rows[i].tokens, tokens);
        assert_true(fabs(rows[i].loss - sum / (double)tokens) < 1e-12);
        assert_true(fabs(rows[i].perplexity - exp(rows[i].loss)) < 1e-9);
    }
    assert_int_equal(rows[0].tokens, 224);
    assert_int_equal(rows[1].tokens, 224); /* 8 divides 32: the same tokens */
}

static void takes_each_document_its_share(void **state) {
    world *w = *state;
    ls_stretches all = ls_perplexity_stretches(w->file, 16, 0);
    assert_int_equal(all.documents, 4);
    assert_int_equal(all.tokens, 32 + 128 + 16 + 64);
    assert_int_equal(all.longest, 129);
    ls_stretches few = ls_perplexity_stretches(w->file, 16, 96);
    assert_int_equal(few.documents, 4);
    assert_int_equal(few.tokens, 32 + 32 + 16 + 32);
}

static void refuses(void **state) {
    world *w = *state;
    ls_perplexity row;
    ls_perplexity_settings settings = {
        .lengths = &(int64_t){129}, .count = 1, .batch = 1, .chunk = 8};
    assert_int_equal(ls_perplexity_measure(w->model, w->file, &settings, &row), LS_EINPUT);
    assert_non_null(strstr(w->ctx.error.message, "the longest has 129"));
    w->ctx.error = (ls_error){0};
    settings.lengths = &(int64_t){0};
    assert_int_equal(ls_perplexity_measure(w->model, w->file, &settings, &row), LS_EUSE);
    w->ctx.error = (ls_error){0};
    const volatile sig_atomic_t stop = 1;
    settings.lengths = &(int64_t){16};
    settings.stop = &stop;
    assert_int_equal(ls_perplexity_measure(w->model, w->file, &settings, &row), LS_ESTOP);
    w->ctx.error = (ls_error){0};
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(equals_plain_computation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(takes_each_document_its_share, set_up, tear_down),
        cmocka_unit_test_setup_teardown(refuses, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
