/* What a new mixer gets wrong is told with its name: no result, another shape, operands that do not
 * go together. */
#include "harness.h"
#include "mixer/mixer.h"

enum { WIDTH = 8 };

static ls_tensor *nothing(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    (void)p, (void)mixer, (void)x;
    return NULL;
}

static ls_tensor *narrow(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    (void)mixer;
    return ls_linear(p, x, ls_param(p, "w", LS_DIMS(WIDTH / 2, WIDTH), ls_init_normal(1)), NULL);
}

static ls_tensor *unfit(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    (void)mixer;
    return ls_linear(p, x, ls_param(p, "w", LS_DIMS(WIDTH, WIDTH + 1), ls_init_normal(1)), NULL);
}

static ls_tensor *sound(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    (void)mixer;
    return ls_linear(p, x, ls_param(p, "w", LS_DIMS(WIDTH, WIDTH), ls_init_normal(1)), NULL);
}

static void expect_message(ls_tensor *(*forward)(ls_program *, const ls_mixer *, ls_tensor *),
                           const char *wanted) {
    ls_ctx ctx = ls_ctx_default();
    ls_parameters *store;
    ls_program *p;
    const ls_mixer_type type = {.name = "newcomer", .traits = LS_MIXER_CAUSAL, .forward = forward};
    const ls_mixer mixer = {.type = &type, .width = WIDTH, .causal = true};
    const ls_program_options options = {.type = LS_F32, .batch = 2, .length = 3};
    expect(&ctx, ls_parameters_new(&ctx, LS_F32, &store));
    expect(&ctx, ls_program_new(&ctx, &options, store, &p));
    const ls_tensor *y =
        ls_mixer_record(p, &mixer, ls_input(p, "x", LS_F32, LS_DIMS(2, 3, WIDTH), false));
    assert_int_equal(ls_failed(p), wanted != NULL);
    assert_int_equal(y == NULL, wanted != NULL);
    if (wanted != NULL && (strstr(ctx.error.message, wanted) == NULL ||
                           strstr(ctx.error.message, "newcomer") == NULL))
        fail_msg("`%s` does not name the mixer and `%s`", ctx.error.message, wanted);
    ls_program_free(p);
    ls_parameters_free(store);
}

static void test_named(void **state) {
    (void)state;
    expect_message(nothing, "returned nothing");
    expect_message(narrow, "another shape");
    expect_message(unfit, "linear");
    expect_message(sound, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
