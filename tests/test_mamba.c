/* Mamba's block against its definition, row by row in f64. The conformance suite tries cuts, types
 * and gradients. */
#include "mixer_case.h"

enum { D = 12, ROWS = 9 };

extern const ls_mixer_type ls_mixer_mamba;

typedef struct variant {
    const char *words;
    int64_t E, N, R, W; /* channels; states; width of the step's projection; taps */
    double epsilon;     /* of the norms inside; 0: there are none */
} variant;

static const variant variants[] = {
    {"d_state=4", 24, 4, 1, 4, 0},
    {"d_state=3 expand=1 dt_rank=5 d_conv=2 bias=true", 12, 3, 5, 2, 0},
    {"d_state=5 dt_rank=2 d_conv=1 conv_bias=false", 24, 5, 2, 1, 0},
    {"d_state=4 dt_rank=3 inner_norm=true inner_epsilon=0.1", 24, 4, 3, 4, 0.1},
};

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* 0 where there is no such parameter: biases. */
static double at(const ls_parameters *store, const char *name, int64_t i) {
    const ls_parameter *parameter = ls_parameters_find(store, name);
    return parameter == NULL ? 0 : ((const double *)ls_parameter_master(store, parameter))[i];
}

/* Element `row` of weight [.., width] times x, plus the bias. */
static double project(const ls_parameters *store, const char *name, int64_t row, const double *x,
                      int64_t width) {
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    double sum = at(store, bias, row);
    for (int64_t i = 0; i < width; i++) sum += at(store, weight, row * width + i) * x[i];
    return sum;
}

/* Falcon-Mamba's norms, without weights. */
static void norm(double *x, int64_t width, double epsilon) {
    double sum = 0;
    for (int64_t i = 0; i < width; i++) sum += x[i] * x[i];
    for (int64_t i = 0; i < width; i++) x[i] /= sqrt(sum / (double)width + epsilon);
}

static double *defined(const variant *v, const ls_parameters *store, const double *x) {
    enum { MOST = 24, STATES = 5 };
    double state[MOST][STATES] = {{0}}, into[ROWS][MOST], *out = malloc(sizeof(double) * ROWS * D);
    for (int64_t t = 0; t < ROWS; t++) {
        double u[MOST], selected[16], y[MOST];
        for (int64_t e = 0; e < v->E; e++) into[t][e] = project(store, "in", e, x + t * D, D);
        for (int64_t e = 0; e < v->E; e++) {
            double sum = at(store, "conv.bias", e);
            for (int64_t k = 0; k < v->W && k <= t; k++) /* the last tap is this row's */
                sum += at(store, "conv.weight", e * v->W + v->W - 1 - k) * into[t - k][e];
            u[e] = silu(sum);
        }
        for (int64_t r = 0; r < v->R + 2 * v->N; r++)
            selected[r] = project(store, "select", r, u, v->E);
        if (v->epsilon > 0) { /* of the step before its projection, of B and of C */
            norm(selected, v->R, v->epsilon);
            norm(selected + v->R, v->N, v->epsilon);
            norm(selected + v->R + v->N, v->N, v->epsilon);
        }
        for (int64_t e = 0; e < v->E; e++) {
            double step = at(store, "dt.bias", e);
            for (int64_t r = 0; r < v->R; r++)
                step += at(store, "dt.weight", e * v->R + r) * selected[r];
            step = log1p(exp(step));
            y[e] = at(store, "D", e) * u[e];
            for (int64_t n = 0; n < v->N; n++) {
                const double A = -exp(at(store, "A_log", e * v->N + n));
                state[e][n] = exp(step * A) * state[e][n] + step * selected[v->R + n] * u[e];
                y[e] += selected[v->R + v->N + n] * state[e][n];
            }
            y[e] *= silu(project(store, "in", v->E + e, x + t * D, D));
        }
        for (int64_t d = 0; d < D; d++) out[t * D + d] = project(store, "out", d, y, v->E);
    }
    return out;
}

static void test_definition(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    double *x = normal_numbers(ROWS * D, 4);
    for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++) {
        const variant *v = &variants[i];
        mixer_case c = {0};
        expect(&ctx, mixer_choose(&ctx, &ls_mixer_mamba, v->words, D, true, &c.mixer));
        bench b =
            mixer_bench(&ctx, &c, (ls_program_options){.type = LS_F64, .batch = 1, .length = ROWS});
        put_values(&b, "x", x);
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        double *got = read_all(ls_program_find(b.program, "y")), *want = defined(v, b.store, x);
        mixer_same(v->words, got, want, ROWS * D, 1e-12);
        free(got), free(want);
        bench_free(&b);
        mixer_release(&c.mixer);
    }
    free(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_definition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
