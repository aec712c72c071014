/* H3 with options other than the defaults (which the conformance suite tries), against its two
 * recurrences written out; and the published kernels and states. */
#include <complex.h>

#include "mixer_runs.h"

extern const ls_mixer_type ls_mixer_h3;

static const char *const variants[] = {
    "d_state=8",
    "d_state=6 hold=zoh init=inv",
    "d_state=4 head_dim=4 dt_min=0.01",
    "d_state=8 head_dim=12 init=legs",
};
enum { VARIANTS = sizeof variants / sizeof variants[0], D = 12 };

static void test_variants(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < VARIANTS; i++) {
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_h3, variants[i], D, true, &mixer));
        obeys(&ctx, &mixer, variants[i]);
        mixer_release(&mixer);
    }
}

/* ---- the definition ---- */

typedef struct definition {
    const char *words;
    int N, W; /* states; width of a head */
    bool zoh;
} definition;
static const definition definitions[] = {
    {"d_state=8", 8, 1, false},
    {"d_state=6 hold=zoh", 6, 1, true},
    {"d_state=4 head_dim=4", 4, 4, false},
};

/* The register of one channel moves by one place; returns k'. */
static double shifted(const bench *b, int N, int d, double k, double *place) {
    double sum = weight_at(b, "shift.D", d) * k;
    for (int m = N - 1; m >= 0; m--) {
        place[m] = (m > 0 ? place[m - 1] : 0) + weight_at(b, "shift.B", d * N + m) * k;
        sum += weight_at(b, "shift.C", d * N + m) * place[m];
    }
    return sum;
}

/* One step of the diagonal of head h, whose modes are x [N/2]. */
static double remembered(const bench *b, const definition *c, int h, double u, double complex *x) {
    double sum = weight_at(b, "diagonal.D", h) * u, dt = exp(weight_at(b, "diagonal.log_dt", h));
    for (int n = 0; n < c->N / 2; n++) {
        int i = h * c->N / 2 + n;
        double complex A =
            -exp(weight_at(b, "diagonal.A_real", i)) + I * weight_at(b, "diagonal.A_imag", i);
        double complex B =
            weight_at(b, "diagonal.B", 2 * i) + I * weight_at(b, "diagonal.B", 2 * i + 1);
        double complex C =
            weight_at(b, "diagonal.C", 2 * i) + I * weight_at(b, "diagonal.C", 2 * i + 1);
        double complex step = c->zoh ? cexp(dt * A) : (1 + dt * A / 2) / (1 - dt * A / 2);
        double complex gain = c->zoh ? (cexp(dt * A) - 1) / A : dt / (1 - dt * A / 2);
        x[n] = step * x[n] + gain * B * u;
        sum += 2 * creal(C * x[n]);
    }
    return sum;
}

static void test_definition(void **state) {
    (void)state;
    enum { ROWS = 23, MOST = 8 };
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4);
    for (size_t i = 0; i < sizeof definitions / sizeof definitions[0]; i++) {
        const definition *c = &definitions[i];
        const int H = D / c->W;
        double place[D][MOST] = {{0}}, want[ROWS * D];
        double complex modes[D * MOST][MOST] = {{0}}; /* of (h, i, j) */
        ls_mixer mixer;
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_h3, c->words, D, true, &mixer));
        bench b = mixer_weights(&ctx, &mixer, ROWS);
        for (int t = 0; t < ROWS; t++) {
            double q[D], k[D], v[D], mixed[D] = {0};
            for (int d = 0; d < D; d++) {
                q[d] = projected(&b, "in", d, x + t * D, D);
                k[d] = projected(&b, "in", D + d, x + t * D, D);
                v[d] = projected(&b, "in", 2 * D + d, x + t * D, D);
                k[d] = shifted(&b, c->N, d, k[d], place[d]);
            }
            for (int h = 0; h < H; h++)
                for (int r = 0; r < c->W; r++)
                    for (int s = 0; s < c->W; s++) /* columns of a head end up H apart */
                        mixed[s * H + h] += q[h * c->W + r] *
                                            remembered(&b, c, h, k[h * c->W + r] * v[h * c->W + s],
                                                       modes[(h * c->W + r) * c->W + s]);
            for (int d = 0; d < D; d++) want[t * D + d] = projected(&b, "out", d, mixed, D);
        }
        double *got = mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 0, NULL, NULL}, x);
        same_rows(c->words, got, want, ROWS, D, 1e-12);
        free(got);
        bench_free(&b);
        mixer_release(&mixer);
    }
    free(x);
}

/* ---- published kernels and states ---- */

static ls_safetensors golden;

static void put_stored(ls_parameters *store, const char *ours, int64_t first, const char *theirs) {
    int64_t count;
    double *values = stored(&golden, theirs, &count);
    double *to = ls_parameter_master(store, ls_parameters_find(store, ours));
    memcpy(to + first, values, (size_t)count * sizeof *values);
    free(values);
}

static void published(ls_parameters *store) {
    static const char *const same[][2] = {
        {"shift.B", "w.ssm_k_kernel.kernel.B"},
        {"shift.C", "w.ssm_k_kernel.kernel.C"},
        {"diagonal.A_real", "w.kernel.kernel.inv_A_real"},
        {"diagonal.A_imag", "w.kernel.kernel.A_imag"},
        {"diagonal.B", "w.kernel.kernel.B"},
        {"diagonal.C", "w.kernel.kernel.C"},
        {"diagonal.log_dt", "w.kernel.kernel.log_dt"},
    };
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        put_stored(store, same[i][0], 0, same[i][1]);
    if (ls_parameters_find(store, "in.weight") == NULL) return; /* kernels alone */
    put_stored(store, "shift.D", 0, "w.ssm_k_D");
    put_stored(store, "in.weight", D * D, "w.k_proj.weight");
    put_stored(store, "in.bias", D, "w.k_proj.bias");
    put_stored(store, "in.weight", 2 * D * D, "w.v_proj.weight");
    put_stored(store, "in.bias", 2 * D, "w.v_proj.bias");
}

enum { STATES = 16, ROWS = 47 };

static void record_kernels(ls_program *p, const void *about) {
    (void)about;
    ls_init full = {.kind = LS_INIT_NORMAL, .full = true};
    const ls_state_space space = {
        .A_real = ls_param(p, "diagonal.A_real", LS_DIMS(D, STATES / 2), full),
        .A_imag = ls_param(p, "diagonal.A_imag", LS_DIMS(D, STATES / 2), full),
        .B = ls_param(p, "diagonal.B", LS_DIMS(D, STATES / 2, 2), full),
        .C = ls_param(p, "diagonal.C", LS_DIMS(1, D, STATES / 2, 2), full),
        .dt = ls_param(p, "diagonal.log_dt", LS_DIMS(D), full),
        .hold = LS_HOLD_BILINEAR,
        .step = LS_STEP_EXP,
        .real = LS_KEPT_EXP,
        .upper = true,
    };
    ls_keep(p, "diagonal", ls_state_space_kernel(p, &space, ROWS));
    ls_keep(p, "shift",
            ls_shift_kernel(p, ls_param(p, "shift.B", LS_DIMS(D, STATES), full),
                            ls_param(p, "shift.C", LS_DIMS(1, D, STATES), full)));
}

static void test_published(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    expect(&ctx, ls_safetensors_open(&ctx, LS_TEST_SOURCE "/tests/golden/h3.safetensors", &golden));
    int64_t count;
    bench b = bench_new(&ctx, &(subject){"kernels", record_kernels, NULL},
                        (ls_program_options){.type = LS_F64, .batch = 1, .length = ROWS});
    published(b.store);
    expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
    double *diagonal = stored(&golden, "out.kernel", &count);
    double *shift = stored(&golden, "out.shift_kernel", &count);
    double *got = read_all(ls_program_find(b.program, "diagonal"));
    same_rows("kernel", got, diagonal, D, ROWS, 1e-12);
    for (int64_t i = 0; i < D * ROWS; i++) {
        const int64_t d = i / ROWS, s = i % ROWS;
        double ours = s < STATES ? get(ls_program_find(b.program, "shift"), s * D + d) : 0;
        assert_true(fabs(ours - shift[i]) <= 1e-12);
    }
    free(diagonal), free(shift), free(got);
    bench_free(&b);

    /* The first sequence in a stream. The state's file ends with the diagonal's; before it come the
     * keys that the register holds, with the extent of their cache. */
    ls_mixer mixer;
    ls_text saved = {0};
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_h3, "d_state=16", D, true, &mixer));
    double *x = stored(&golden, "in.x", &count);
    free(mixer_outputs(&ctx, (mixer_run){&mixer, LS_F64, ROWS, 1, published, &saved}, x));
    double modes[D * STATES], keys[(2 * STATES - 1) * D];
    int64_t about[4];
    const char *end = (const char *)saved.bytes + saved.length - sizeof modes;
    memcpy(modes, end, sizeof modes);
    memcpy(keys, end - sizeof about - sizeof keys, sizeof keys);
    memcpy(about, end - 2 * sizeof about - sizeof keys, sizeof about);
    double *want = stored(&golden, "out.state_diag", &count);
    same_rows("state of the diagonal", modes, want, D, STATES, 1e-12);
    free(want);
    want = stored(&golden, "out.state_shift", &count);
    double *B = stored(&golden, "w.ssm_k_kernel.kernel.B", &count);
    assert_int_equal(about[2] + about[3], ROWS);
    for (int64_t i = 0; i < D * STATES; i++) {
        const int64_t d = i / STATES, m = i % STATES;
        double sum = 0;
        for (int64_t j = 0; j <= m; j++)
            sum += B[d * STATES + m - j] * keys[(about[3] - 1 - j) * D + d];
        assert_true(fabs(sum - want[i]) <= 1e-12);
    }
    free(want), free(B), free(x);
    ls_text_clear(&ctx, &saved);
    mixer_release(&mixer);
    ls_safetensors_close(&ctx, &golden);
}

static void test_refusals(void **state) {
    (void)state;
    static const char *const wrong[] = {"d_state=5", "head_dim=5", "dt_min=0.2"};
    ls_ctx ctx = ls_ctx_default();
    ls_mixer mixer;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(mixer_choose(&ctx, &ls_mixer_h3, wrong[i], D, true, &mixer), LS_EUSE);
        mixer_release(&mixer);
    }
    expect(&ctx, mixer_choose(&ctx, &ls_mixer_h3, "", D, true, &mixer));
    mixer.causal = false;
    assert_int_equal(ls_mixer_h3.check(&ctx, &mixer), LS_EUSE);
    mixer_release(&mixer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variants),
        cmocka_unit_test(test_definition),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
