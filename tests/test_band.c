/* Bands over few seeds, shares of answers and what counts as chance, against values of tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "report/page.h"

static void near(double got, double wanted, double tolerance) {
    if (!(fabs(got - wanted) <= tolerance)) fail_msg("%.9g, where %.9g belongs", got, wanted);
}

/* Quantiles as printed in tables of Student's t. */
static void test_factor(void **state) {
    (void)state;
    static const struct {
        double n, t;
    } known[] = {{2, 12.7062}, {3, 4.3027},  {4, 3.1824},  {5, 2.7764},
                 {10, 2.2622}, {11, 2.2281}, {12, 2.2010}, {16, 2.1314},
                 {21, 2.0860}, {31, 2.0423}, {61, 2.0003}, {121, 1.9799}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        near(ls_t_factor(known[i].n), known[i].t, 2e-4);
    assert_true(isnan(ls_t_factor(1)) && isnan(ls_t_factor(0)) && isnan(ls_t_factor(NAN)));
    near(ls_t_factor(1e9), 1.959963985, 1e-6);
}

/* 1, 2 and 3: mean 2, deviation 1, so 2 -+ 4.3027 / sqrt(3). */
static void test_mean(void **state) {
    (void)state;
    double low, high;
    ls_mean_interval(2, 1, 3, &low, &high);
    near(low, 2 - 2.484138, 1e-5);
    near(high, 2 + 2.484138, 1e-5);
    ls_mean_interval(2, NAN, 1, &low, &high);
    assert_true(isnan(low) && isnan(high));
}

/* 8 of 10: Wilson's interval is 0.4902 to 0.9433. */
static void test_share(void **state) {
    (void)state;
    double low, high;
    ls_share_interval(0.8, 10, &low, &high);
    near(low, 0.4902, 1e-4);
    near(high, 0.9433, 1e-4);
}

static void test_row(void **state) {
    (void)state;
    json_t *row = json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "n", 3, "loss", 2.0, "loss_sd", 1.0,
                            "ppl", exp(2.0), "accuracy", 0.9, "accuracy_sd", 0.1);
    near(ls_band_of(row, "loss").high, 4.484138, 1e-5);
    near(ls_band_of(row, "ppl").low, exp(2 - 2.484138), 1e-5);
    near(ls_band_of(row, "accuracy").low, 0.9 - 0.2484138, 1e-6);
    near(ls_band_of(row, "accuracy").high, 1, 0); /* a share */
    assert_true(isnan(ls_band_of(row, "excess").low));
    json_object_set_new(row, "n", json_integer(1));
    assert_true(isnan(ls_band_of(row, "loss").low)); /* one seed has none */
    json_decref(row);
}

/* 20 of 100 where chance is 12.5 %: from 13.3 % on, so more than chance; 19 of 100 may be it. */
static void test_chance(void **state) {
    (void)state;
    json_t *row =
        json_pack("{s:i, s:i, s:f, s:f}", "n", 2, "windows", 50, "accuracy", 0.20, "chance", 0.125);
    assert_false(ls_at_chance(row));
    json_object_set_new(row, "accuracy", json_real(0.19));
    json_object_set_new(row, "chance", json_real(0.13));
    assert_true(ls_at_chance(row));
    json_object_set_new(row, "chance", json_null());
    assert_false(ls_at_chance(row)); /* not known */
    json_decref(row);
    json_t *suite =
        json_pack("{s:i, s:i, s:f, s:f}", "seeds", 1, "n", 90, "score", 14.0 / 90, "chance", 0.1);
    assert_true(ls_suite_at_chance(suite));
    json_object_set_new(suite, "score", json_real(28.0 / 90));
    assert_false(ls_suite_at_chance(suite));
    json_decref(suite);
    assert_false(ls_suite_at_chance(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor), cmocka_unit_test(test_mean),   cmocka_unit_test(test_share),
        cmocka_unit_test(test_row),    cmocka_unit_test(test_chance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
