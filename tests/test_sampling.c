/* Drawing a token: temperature, top_k, top_p, and shares that are those of the softmax. */
#include "harness.h"
#include "model/model.h"

static void test_sampling(void **state) {
    (void)state;
    double logits[6] = {0.1, 3, -2, 2, 2.5, -40}, scratch[12];
    ls_sampling greedy = {.temperature = 0, .top_p = 1};
    assert_int_equal(ls_sample(&greedy, logits, 6, 0, scratch), 1);
    ls_sampling all = {.temperature = 1, .top_p = 1, .seed = 9};
    ls_sampling two = {.temperature = 1, .top_k = 2, .top_p = 1, .seed = 9};
    ls_sampling half = {.temperature = 1, .top_p = 0.5, .seed = 9};
    double total = 0, share[6];
    int count[6] = {0}, of_half[6] = {0}, of_two[6] = {0};
    for (int i = 0; i < 6; i++) total += share[i] = exp(logits[i]);
    enum { DRAWS = 20000 };
    for (uint64_t i = 0; i < DRAWS; i++) {
        int32_t token = ls_sample(&all, logits, 6, i, scratch);
        assert_int_equal(token, ls_sample(&all, logits, 6, i, scratch));
        count[token]++;
        int32_t few = ls_sample(&two, logits, 6, i, scratch);
        assert_true(few == 1 || few == 4);
        of_two[few]++;
        /* token 1 alone has a share of 0.47, with 4 it is past one half */
        int32_t likely = ls_sample(&half, logits, 6, i, scratch);
        assert_true(likely == 1 || likely == 4);
        of_half[likely]++;
    }
    for (int i = 0; i < 6; i++) { /* within five standard deviations */
        double p = share[i] / total;
        assert_true(fabs(count[i] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)) + 1);
    }
    /* what is left has the shares it had among itself */
    const double p = share[1] / (share[1] + share[4]), wide = 5 * sqrt(DRAWS * p * (1 - p));
    assert_true(fabs(of_two[1] - DRAWS * p) <= wide);
    assert_true(fabs(of_half[1] - DRAWS * p) <= wide);
}

/* softmax(logits / temperature) */
static void test_temperature(void **state) {
    (void)state;
    const double logits[3] = {1, 0, -1.5}, temperatures[] = {0.5, 1, 3};
    enum { DRAWS = 20000 };
    for (size_t i = 0; i < 3; i++) {
        const ls_sampling how = {.temperature = temperatures[i], .top_p = 1, .seed = 4};
        double total = 0, scratch[6];
        int count[3] = {0};
        for (int k = 0; k < 3; k++) total += exp(logits[k] / temperatures[i]);
        for (uint64_t draw = 0; draw < DRAWS; draw++)
            count[ls_sample(&how, logits, 3, draw, scratch)]++;
        for (int k = 0; k < 3; k++) {
            const double p = exp(logits[k] / temperatures[i]) / total;
            assert_true(fabs(count[k] - DRAWS * p) <= 5 * sqrt(DRAWS * p * (1 - p)));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sampling),
                                       cmocka_unit_test(test_temperature)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
