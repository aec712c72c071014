/* The loop against itself written down plainly: which rate, which batch and which random numbers
 * every step has. */
#include "train_fixture.h"

enum { STEPS = 10, WARMUP = 3 };
static const double peak = 0.02;

/* From nothing in equal steps up to the peak, which step 3 still has, then down in a straight line
 * that would reach 0 at step 10. */
static double rate_of(int64_t step) {
    if (step < WARMUP) return peak * (double)(step + 1) / WARMUP;
    return peak * (1 - (double)(step - WARMUP) / (STEPS - WARMUP));
}

static double rates[STEPS], losses[STEPS];

static void note(void *user, const ls_train_step *about) {
    (void)user;
    rates[about->step - 1] = about->rate;
    losses[about->step - 1] = about->loss;
}

/* One run of the program on `rows` rows from `row` of a batch; the sum of its losses. */
static double run_part(fixture *f, int64_t batch, int64_t row, int64_t rows, double each,
                       uint32_t draw) {
    enum { MOST = 256 };
    int32_t inputs[MOST], targets[MOST];
    float weights[MOST], loss[MOST];
    bool fresh[MOST];
    const int64_t tokens = rows * f->settings.length;
    fixture_rows(f, batch, row, rows, inputs, targets, fresh);
    for (int64_t i = 0; i < tokens; i++) weights[i] = targets[i] < 0 ? 0 : (float)each;
    ls_tensor_put(f->program, ls_program_find(f->program, "tokens"), inputs);
    ls_tensor_put(f->program, ls_program_find(f->program, "targets"), targets);
    ls_tensor_put(f->program, ls_program_find(f->program, "weights"), weights);
    assert_int_equal(ls_program_run(f->program, NULL, (uint64_t)f->settings.seed, draw), LS_OK);
    assert_int_equal(ls_tensor_get(f->program, ls_program_find(f->program, "loss"), loss), LS_OK);
    double sum = 0;
    for (int64_t i = 0; i < tokens; i++)
        if (targets[i] >= 0) sum += (double)loss[i];
    return sum;
}

static void compare(const char *accumulate, double dropout) {
    fixture loop, plain;
    ls_optimizer *optimizer;
    fixture_dropout = dropout;
    fixture_open(&loop, NULL, "steps=10", accumulate, "schedule=polynomial", NULL);
    loop.job.step = note;
    fixture_expect(&loop, LS_OK);
    fixture_open(&plain, NULL, "steps=10", accumulate, "schedule=polynomial", NULL);
    const ls_train_settings *s = &plain.settings;
    const int64_t parts = s->accumulate, rows = s->batch / parts;
    const double scored = (double)(s->batch * (s->length - 1));
    const ls_optimizer_settings how = ls_train_optimizer(s);
    assert_int_equal(ls_optimizer_new(&plain.ctx, plain.store, &how, &optimizer), LS_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        double norm, sum = 0;
        ls_parameters_clear_gradient(plain.store);
        for (int64_t part = 0; part < parts; part++) /* every run draws what no other run does */
            sum += run_part(&plain, step, part * rows, rows, 1 / scored,
                            (uint32_t)(step * parts + part));
        assert_int_equal(ls_optimizer_norm(&plain.ctx, optimizer, &norm), LS_OK);
        ls_optimizer_update(&plain.ctx, optimizer, rate_of(step), norm, step + 1);
        if (!(fabs(rates[step] - rate_of(step)) <= 1e-15))
            fail_msg("step %d has the rate %g, not %g", (int)step, rates[step], rate_of(step));
        assert_true(fabs(losses[step] - sum / scored) <= 1e-6);
    }
    assert_memory_equal(loop.store->master, plain.store->master,
                        (size_t)plain.store->total * sizeof(float));
    ls_optimizer_free(&plain.ctx, optimizer);
    fixture_close(&plain, true);
    fixture_close(&loop, true);
    fixture_dropout = 0;
}

static void every_step_is_the_plain_one(void **state) {
    (void)state;
    compare("accumulate=1", 0);
    compare("accumulate=2", 0);
    compare("accumulate=1", 0.3);
    compare("accumulate=2", 0.3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_step_is_the_plain_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
