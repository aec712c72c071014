/* Losses of single tokens, and the relative effective context length that is made of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "eval/recl.h"
#include "eval_fixture.h"
#include "model/safetensors.h"

static const int64_t sizes[] = {40, 2, 100, 21, 1, 65};
enum { DOCUMENTS = 6 };

/* Every protocol that scores a token once gives its loss under its own place in the file. */
static void test_losses(void **unused) {
    (void)unused;
    world w = {0};
    ls_eval_settings settings;
    ls_eval_results results;
    world_model(&w,
                "model.layers=2 model.width=16 mixer.heads=2 model.length=8 model.init=0.5 "
                "model.position=sinusoidal",
                LS_F64);
    world_documents(&w, sizes, DOCUMENTS, false);
    world_expect(&w, ls_options_default(&w.ctx, &ls_eval_options, &settings));
    snprintf(settings.protocol, sizeof settings.protocol, "nonoverlap,slide");
    snprintf(settings.losses, sizeof settings.losses, "/tmp/longshot-losses-%ld", (long)getpid());
    settings.lengths = (ls_ints){.count = 1, .at = {8}};
    settings.stride = 3;
    settings.tokens = 0;
    settings.documents = LS_EVAL_DOCUMENTS_ALL;
    world_expect(&w, ls_eval_run(w.model, w.tokenizer, w.file, &settings, NULL, &results));
    assert_int_equal(results.count, 2);
    for (size_t i = 0; i < 2; i++) {
        const ls_eval_row *row = &results.rows[i];
        int64_t at = 0, begin = 0;
        for (int d = 0; d < DOCUMENTS; begin += sizes[d++])
            for (int64_t t = 1; t < sizes[d]; t++, at++) {
                /* the first window scores all it has, later ones their last three */
                int64_t predicted = t - 1, from = predicted / 8 * 8, skipped;
                if (i == 1) from = predicted < 8 ? 0 : (predicted - 8) / 3 * 3 + 3;
                skipped = predicted - from;
                assert_int_equal(row->scored_at[at], begin + t);
                double want = plain_losses(&w, begin + from, skipped + 1)[skipped];
                assert_true(fabs(row->losses[at] - want) < 1e-11);
            }
        assert_int_equal(at, row->tokens);
    }
    /* and in a file */
    ls_safetensors file;
    world_expect(&w, ls_eval_losses_write(&w.ctx, &results, settings.losses));
    world_expect(&w, ls_safetensors_open(&w.ctx, settings.losses, &file));
    unlink(settings.losses);
    assert_int_equal(file.count, 4);
    const ls_safetensor *stored = ls_safetensors_find(&file, "slide-8");
    assert_non_null(stored);
    uint8_t *bytes = malloc(stored->bytes);
    assert_non_null(bytes);
    ls_safetensor_bytes(stored, 0, stored->bytes, bytes);
    assert_memory_equal(bytes, results.rows[1].losses, stored->bytes);
    free(bytes);
    assert_non_null(ls_safetensors_find(&file, "slide-8.at"));
    ls_safetensors_close(&w.ctx, &file);
    ls_eval_results_clear(&w.ctx, &results);
    world_clear(&w);
}

enum { MODELS = 3, CONTEXTS = 4, TOKENS = 200, STEPS = CONTEXTS - 1 };

/* Losses of a group: token t is hard where t % 10 is 0. The first model gains 0.1 on all tokens
 * from each of two longer contexts; the second one is worse than the first throughout and gains as
 * much, all in vain; the third gains on hard tokens alone, from every context. */
static void fill(double *loss) {
    for (int64_t i = 0; i < MODELS; i++)
        for (int64_t c = 0; c < CONTEXTS; c++)
            for (int64_t t = 0; t < TOKENS; t++) {
                const double hard = t % 10 == 0 ? 3 : 0, steps = (double)(c < 2 ? c : 2);
                double *at = loss + (i * CONTEXTS + c) * TOKENS + t;
                *at = 2 + hard - 0.1 * steps;
                if (i == 1) *at += 0.5;
                if (i == 2) *at = 2 + hard - (hard > 0 ? 0.05 * (double)c : 0);
            }
}

static void test_known_group(void **unused) {
    (void)unused;
    ls_ctx ctx = ls_ctx_default();
    const int64_t context[CONTEXTS] = {16, 32, 64, 128};
    double *loss = malloc(MODELS * CONTEXTS * TOKENS * sizeof *loss), gain[MODELS * STEPS];
    int64_t index[MODELS];
    fill(loss);
    ls_recl_group group = {MODELS, CONTEXTS, TOKENS, context, loss};
    assert_int_equal(ls_recl(&ctx, &group, 1, 0.01, index, gain), LS_OK);
    assert_int_equal(index[0], 2);
    assert_int_equal(index[1], 0);
    assert_true(fabs(gain[0] - (1 - exp(-0.1))) < 1e-13);
    assert_true(fabs(gain[STEPS]) < 1e-15);
    /* 0.05 on one token in ten: half a percent, too little; on the hard ones alone it is enough,
     * until the first model's gains have overtaken it */
    assert_int_equal(index[2], 0);
    assert_true(fabs(gain[2 * STEPS] - (1 - exp(-0.005))) < 1e-13);
    assert_int_equal(ls_recl(&ctx, &group, 0.1, 0.01, index, gain), LS_OK);
    assert_int_equal(index[2], 1);
    assert_true(fabs(gain[2 * STEPS] - (1 - exp(-0.05))) < 1e-13);
    assert_true(fabs(gain[2 * STEPS + 1]) < 1e-13);

    /* alone it is its own measure */
    group = (ls_recl_group){1, CONTEXTS, TOKENS, context, loss + 2 * CONTEXTS * TOKENS};
    assert_int_equal(ls_recl(&ctx, &group, 0.1, 0.01, index, NULL), LS_OK);
    assert_int_equal(index[0], 3);
    free(loss);
}

/* What counts is the best of the group, whichever it is: with two models in either order, and each
 * the better one on other tokens, neither gains from a context that the other needs not. */
static void test_best_of_group(void **unused) {
    (void)unused;
    enum { FEW = 8 };
    ls_ctx ctx = ls_ctx_default();
    const int64_t context[2] = {16, 32};
    for (int good = 0; good < 2; good++) {
        double loss[2][2][FEW], gain[2];
        int64_t index[2];
        for (int t = 0; t < FEW; t++) {
            loss[good][0][t] = loss[good][1][t] = 1; /* never gains: it needs no more */
            loss[1 - good][0][t] = 4;
            loss[1 - good][1][t] = t % 2 == 0 ? 1.5 : 0.5; /* half of what it gains is of use */
        }
        const ls_recl_group group = {2, 2, FEW, context, &loss[0][0][0]};
        assert_int_equal(ls_recl(&ctx, &group, 1, 0.01, index, gain), LS_OK);
        assert_true(fabs(gain[good]) < 1e-15);
        assert_true(fabs(gain[1 - good] - (1 - exp(-0.25))) < 1e-13);
        assert_int_equal(index[good], 0);
        assert_int_equal(index[1 - good], 1);
    }
}

/* It ends at the first step that gains too little: what later steps gain does not count. */
static void test_stops_once(void **unused) {
    (void)unused;
    enum { FEW = 10 };
    ls_ctx ctx = ls_ctx_default();
    const int64_t context[5] = {16, 32, 64, 128, 256};
    const double level[2][5] = {{3, 2.9, 2.899, 2.5, 2}, {3, 2.999, 2.5, 2.4, 2.3}};
    const double gained[2][4] = {{0.1, 0.001, 0.399, 0.5}, {0.001, 0.499, 0.1, 0.1}};
    for (int i = 0; i < 2; i++) {
        double loss[5 * FEW], gain[4];
        int64_t index;
        for (int c = 0; c < 5; c++)
            for (int t = 0; t < FEW; t++) loss[c * FEW + t] = level[i][c];
        const ls_recl_group group = {1, 5, FEW, context, loss};
        assert_int_equal(ls_recl(&ctx, &group, 1, 0.01, &index, gain), LS_OK);
        assert_int_equal(index, i == 0 ? 1 : 0);
        for (int c = 0; c < 4; c++) assert_true(fabs(gain[c] - (1 - exp(-gained[i][c]))) < 1e-13);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_known_group),
        cmocka_unit_test(test_best_of_group),
        cmocka_unit_test(test_stops_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
