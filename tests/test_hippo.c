/* HiPPO's matrices in the modes of their normal parts, and spectra mode by mode against them.
 * What public code has for all of these is in tests/golden. */
#include "harness.h"
#include "mixer/hippo.h"
#include "mixer/hippo_matrix.h"

enum { N_MAX = 64, H_MAX = N_MAX / 2 };

static void close_to(double got, double want, double size) {
    if (!(fabs(got - want) <= 1e-12 * size)) fail_msg("%.17g, not %.17g", got, want);
}

/* Eigenvectors and their conjugates are orthonormal, and put together again they are K. */
static void check_modes(int64_t N, const double *K) {
    static double w[H_MAX];
    static double complex V[H_MAX * N_MAX];
    const int64_t h = N / 2;
    ls_ctx ctx = ls_ctx_default();
    double largest = 0;
    expect(&ctx, ls_skew_modes(&ctx, N, K, w, V));
    for (int64_t i = 0; i < N * N; i++) largest = fmax(largest, fabs(K[i]));
    for (int64_t n = 0; n < h; n++) {
        assert_true(w[n] <= 0 && (n == 0 || w[n - 1] <= w[n]));
        for (int64_t m = 0; m < h; m++) {
            double complex inner = 0, conjugate = 0;
            for (int64_t i = 0; i < N; i++) {
                inner += conj(V[n * N + i]) * V[m * N + i];
                conjugate += V[n * N + i] * V[m * N + i];
            }
            close_to(cabs(inner - (n == m)), 0, 1);
            close_to(cabs(conjugate), 0, 1);
        }
    }
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < N; j++) {
            double sum = 0;
            for (int64_t n = 0; n < h; n++)
                sum += 2 * creal(I * w[n] * V[n * N + i] * conj(V[n * N + j]));
            close_to(sum, K[i * N + j], (double)N * largest);
        }
}

static void test_measures(void **state) {
    (void)state;
    static double A[N_MAX * N_MAX], B[N_MAX], P[2 * N_MAX];
    static const int64_t sizes[] = {2, 6, N_MAX};
    static const double decays[] = {-0.5, 0, 0};
    for (int measure = LS_MEASURE_LEGS; measure <= LS_MEASURE_FOUT; measure++)
        for (int at = 0; at < 3; at++) {
            const int64_t N = sizes[at];
            ls_hippo_matrix((ls_measure)measure, N, A, B);
            ls_hippo_rank((ls_measure)measure, N, P);
            for (int64_t i = 0; i < N * N; i++)
                for (int j = 0; j < ls_measure_rank((ls_measure)measure); j++)
                    A[i] += P[j * N + i / N] * P[j * N + i % N];
            for (int64_t n = 0; n < N; n++) {
                close_to(A[n * (N + 1)], decays[measure], (double)N);
                A[n * (N + 1)] = 0;
                for (int64_t k = 0; k < n; k++) close_to(A[n * N + k], -A[k * N + n], (double)N);
            }
            check_modes(N, A);
        }
}

/* A pair of zeros that lies in no plane of two coordinates. */
static void test_zeros(void **state) {
    (void)state;
    enum { N = 6 };
    double x[4][N], K[N * N];
    for (int i = 0; i < 4 * N; i++) x[i / N][i % N] = sin(1 + 2.3 * i * i);
    for (int i = 0; i < N * N; i++) {
        const int n = i / N, k = i % N;
        K[i] = x[0][n] * x[1][k] - x[1][n] * x[0][k] + x[2][n] * x[3][k] - x[3][n] * x[2][k];
    }
    check_modes(N, K);
}

/* Spectra mode by mode, inputs being positive. */
static void test_spectra(void **state) {
    (void)state;
    static const int64_t sizes[] = {2, 10, N_MAX};
    static const ls_spectrum kinds[] = {LS_SPECTRUM_LEGS, LS_SPECTRUM_FOUT, LS_SPECTRUM_LEGT};
    static const ls_measure measures[] = {LS_MEASURE_LEGS, LS_MEASURE_FOUT, LS_MEASURE_LEGT};
    ls_ctx ctx = ls_ctx_default();
    for (int at = 0; at < 9; at++) {
        const int64_t N = sizes[at / 3];
        const ls_spectrum kind = kinds[at % 3];
        double sum = 0;
        ls_hippo_modes modes;
        expect(&ctx, ls_hippo_modes_find(&ctx, measures[at % 3], N, &modes));
        assert_int_equal(ls_spectrum_ranks(kind), ls_measure_rank(measures[at % 3]));
        for (int64_t n = 0; n < N / 2; n++) {
            const double in = ls_spectrum_input(kind, N, n);
            const double complex phase = modes.B[n] / cabs(modes.B[n]);
            close_to(ls_spectrum_frequency(kind, N, n), -modes.w[n], -modes.w[0]);
            close_to(ls_spectrum_decay(kind, n), -modes.decay, 1);
            close_to(in, cabs(modes.B[n]), (double)N);
            for (int64_t j = 0; j < 3; j++) {
                const double complex there =
                    j < ls_spectrum_ranks(kind) ? modes.P[j * modes.count + n] * conj(phase) : 0;
                close_to(cabs(ls_spectrum_rank(kind, N, n, j) - there), 0, (double)N);
            }
            sum += 2 * in * in;
        }
        const int64_t all[] = {4 * N * N, 4 * (N - 1), N * N};
        close_to(4 * sum, (double)all[at % 3], (double)all[at % 3]);
        ls_hippo_modes_clear(&ctx, &modes);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measures),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_spectra),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
