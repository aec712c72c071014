/* Rows of a mixture: each task has its share of them, the corpus the rest. */
#include "train_fixture.h"

#include "train/mixture.h"

enum { LENGTH = 64, ROWS = 4096, OF_CORPUS = 200 };

static void corpus_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                        int32_t *targets, bool *fresh) {
    (void)user, (void)batch, (void)row;
    for (int64_t i = 0; i < rows * LENGTH; i++) inputs[i] = targets[i] = OF_CORPUS;
    for (int64_t i = 0; i < rows; i++) fresh[i] = false;
}

static void test_shares(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_settings settings = {0};
    ls_mixture mixture = {0};
    ls_tokenizer *tokenizer;
    ls_train_source out;
    const ls_train_source corpus = {.rows = corpus_rows, .vocabulary = 256};
    const ls_train_settings train = {.batch = ROWS, .length = LENGTH, .seed = 3};
    assert_int_equal(ls_mixture_read(&ctx, &settings, "copy:0.1,reverse:0.3", &mixture), LS_OK);
    assert_int_equal(ls_tokenizer_new_byte(&ctx, &tokenizer), LS_OK);
    assert_int_equal(ls_mixture_open(&ctx, &mixture, &corpus, tokenizer, &train, &out), LS_OK);
    int32_t *inputs = calloc((size_t)2 * ROWS * LENGTH, sizeof *inputs);
    int32_t *targets = inputs + ROWS * LENGTH, sample[2][LENGTH];
    bool *fresh = calloc(ROWS, sizeof *fresh);
    assert_true(inputs != NULL && fresh != NULL);
    out.rows(out.user, 0, 0, ROWS, inputs, targets, fresh);
    int64_t rows[3] = {0};
    for (int64_t i = 0; i < ROWS; i++) {
        int whose = 2; /* the corpus */
        for (int task = 0; task < 2; task++) {
            ls_task_training_sample(&mixture.tasks[task], 3, i, LENGTH, sample[0], sample[1]);
            if (memcmp(sample[0], inputs + i * LENGTH, sizeof sample[0]) == 0 &&
                memcmp(sample[1], targets + i * LENGTH, sizeof sample[1]) == 0)
                whose = task;
        }
        assert_true((whose == 2) == (inputs[i * LENGTH] == OF_CORPUS) && fresh[i] == (whose < 2));
        rows[whose]++;
    }
    const double wanted[] = {0.1, 0.3, 0.6};
    for (int i = 0; i < 3; i++) {
        const double deviation = sqrt(wanted[i] * (1 - wanted[i]) / ROWS);
        if (fabs((double)rows[i] / ROWS - wanted[i]) > 4 * deviation)
            fail_msg("part %d has %lld of %d rows", i, (long long)rows[i], ROWS);
    }
    free(inputs);
    free(fresh);
    ls_mixture_clear(&ctx, &mixture);
    ls_tokenizer_free(&ctx, tokenizer);
    ls_settings_clear(&ctx, &settings);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shares)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
