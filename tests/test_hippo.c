/* Initial spectra of state spaces against those of published code. */
#include "golden_file.h"
#include "mixer/hippo.h"

static double *tensor_of(const golden *g, const char *format, int N, int64_t modes) {
    char name[64];
    int64_t dim[5];
    size_t count;
    snprintf(name, sizeof name, format, N);
    double *values = golden_tensor(g, name, dim, &count);
    assert_non_null(values);
    assert_int_equal(count, 2 * modes);
    return values;
}

static void close_to(double got, double want, double size) {
    if (!(fabs(got - want) <= 1e-11 * size)) fail_msg("%.17g, not %.17g", got, want);
}

/* Eigenvectors have no phase of their own: sizes are compared. */
static void test_hippo(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "s4-hippo.safetensors");
    static const int sizes[] = {4, 8, 64};
    for (int i = 0; i < 3; i++) {
        int N = sizes[i];
        double sum = 0;
        double *W = tensor_of(&g, "out.legs%d.nplr_W", N, N / 2);
        double *B = tensor_of(&g, "out.legs%d.nplr_B_noclip", N, N / 2);
        double *P = tensor_of(&g, "out.legs%d.nplr_P", N, N / 2);
        for (int n = 0; n < N / 2; n++) {
            double input = ls_spectrum_input(LS_SPECTRUM_LEGS, N, n);
            close_to(W[2 * n], -0.5, 1);
            close_to(ls_spectrum_frequency(LS_SPECTRUM_LEGS, N, n), -W[2 * n + 1], -W[1]);
            close_to(input, hypot(B[2 * n], B[2 * n + 1]), N);
            close_to(input * sqrt(0.5), hypot(P[2 * n], P[2 * n + 1]), N);
            sum += 2 * input * input;
        }
        close_to(sum, N * N, N * N);
        free(W), free(B), free(P);
    }
    static const char *const names[] = {"out.diag_legs.A", "out.diag_inv.A", "out.diag_lin.A"};
    for (int kind = LS_SPECTRUM_LEGS; kind <= LS_SPECTRUM_LIN; kind++) {
        double *A = tensor_of(&g, names[kind], 0, 8);
        for (int n = 0; n < 8; n++)
            close_to(ls_spectrum_frequency((ls_spectrum)kind, 16, n), fabs(A[2 * n + 1]), 100);
        free(A);
    }
    golden_close(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hippo)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
