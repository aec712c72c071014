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

/* Seeds that agree have been asked no more for that: 0 of 6 is up to 39.0 %. */
static void test_shares(void **state) {
    (void)state;
    double low, high;
    ls_shares_interval(0, 0, 2, 3, &low, &high);
    near(low, 0, 1e-12);
    near(high, 0.3903, 1e-4);
    ls_shares_interval(0.8, NAN, 1, 10, &low, &high); /* one seed: Wilson's */
    near(low, 0.4902, 1e-4);
    near(high, 0.9433, 1e-4);
    ls_shares_interval(0.5, 0.1, 3, 100, &low, &high); /* seeds that differ: Student's t */
    near(low, 0.5 - 0.2484138, 1e-6);
    near(high, 0.5 + 0.2484138, 1e-6);
    ls_shares_interval(0.9, 0.1, 3, NAN, &low, &high);
    near(low, 0.9 - 0.2484138, 1e-6);
    near(high, 1, 0);
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
    json_object_set_new(row, "exact", json_real(1));
    json_object_set_new(row, "exact_sd", json_real(0));
    json_object_set_new(row, "windows", json_integer(2));
    near(ls_band_of(row, "exact").low, 0.6097, 1e-4); /* 6 of 6 */
    near(ls_band_of(row, "exact").high, 1, 0);
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

/* Intervals of no width that older files have; those of scores that are no shares stay. */
static void test_mend(void **state) {
    (void)state;
    static const char *const forms[] = {"likelihood", "generate"};
    for (int i = 0; i < 3; i++) {
        json_t *suite = json_pack(
            "{s:s, s:f, s:i, s:f, s:f, s:[{s:f, s:i, s:f, s:f}], s:[{s:f, s:i, s:n}]}", "form",
            forms[i > 0], "score", 0.5, "n", 6, "low", 0.25, "high", 0.25, "cells", "score", 0.0,
            "n", 6, "low", 0.0, "high", 0.0, "curve", "score", 0.0, "n", 6, "low");
        if (i == 2) json_object_set_new(suite, "shares", json_true());
        ls_suite_mend(suite);
        const json_t *cell = json_array_get(json_object_get(suite, "cells"), 0);
        const json_t *bare = json_array_get(json_object_get(suite, "curve"), 0);
        near(ls_member_real(cell, "high"), i == 1 ? 0 : 0.3903, 1e-4);
        near(ls_member_real(suite, "low"), i == 1 ? 0.25 : 0.1876, 1e-4);
        assert_true(json_is_null(json_object_get(bare, "low"))); /* none was asked for */
        json_object_set_new(suite, "seeds", json_integer(2));
        ls_suite_mend(suite);
        near(ls_member_real(cell, "high"), i == 1 ? 0 : 0.2425, 1e-4); /* 0 of 12 */
        json_decref(suite);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factor), cmocka_unit_test(test_mean),   cmocka_unit_test(test_share),
        cmocka_unit_test(test_row),    cmocka_unit_test(test_chance), cmocka_unit_test(test_shares),
        cmocka_unit_test(test_mend),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
