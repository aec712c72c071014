/* HiPPO-LegS in closed form. Its matrix is A = S - P P^T with S = -1/2 + K, K skew-symmetric,
 * P_n = sqrt(n + 1/2), B = sqrt(2) P. With z the distance from -1/2, B^T (z - A - 1/2)^-1 B is 1 -
 * G where G(z) = prod_n (z - n - 1/2) / (z + n + 1/2), because A + A^T = -1 - B B^T. Eigenvalues i
 * w of K are where G(i w) = -1, that is, for even N, sum_{n < N} atan(w / (n + 1/2)) = pi/2 + pi k,
 * k = 0 .. N/2 - 1, and the input of that mode is |v^H B|^2 = 2 / sum_n (n + 1/2) / ((n + 1/2)^2 +
 * w^2), the residue of B^T (z - K)^-1 B = 2 (1 - G) / (1 + G).
 *
 * HiPPO-FouT is A = K - B B^T, K turning cosine and sine of every frequency pi k into each other:
 * mode k reads half of the sum of two squares, sqrt(2) and 0, and that of the constant 1 and 0. */
#include "mixer/hippo.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

static double angle(int64_t N, double w) {
    double sum = 0;
    for (int64_t n = 0; n < N; n++) sum += atan(w / ((double)n + 0.5));
    return sum;
}

/* The angle rises with w, to N pi/2 at infinity: bisection ends at neighbouring doubles. */
static double legs_frequency(int64_t N, int64_t n) {
    double want = pi / 2 + pi * (double)(N / 2 - 1 - n), low = 0, high = 1;
    while (angle(N, high) < want) high *= 2;
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) return middle;
        if (angle(N, middle) < want)
            low = middle;
        else
            high = middle;
    }
}

double ls_spectrum_frequency(ls_spectrum kind, int64_t N, int64_t n) {
    switch (kind) {
    case LS_SPECTRUM_INV:
        return (double)N / pi * ((double)N / (double)(2 * n + 1) - 1);
    case LS_SPECTRUM_LIN:
        return pi * (double)n;
    case LS_SPECTRUM_QUAD:
        return (double)((2 * n + 1) * (2 * n + 1)) / pi;
    case LS_SPECTRUM_REAL:
        return 0;
    case LS_SPECTRUM_FOUT:
        return pi * (double)(N / 2 - 1 - n);
    default:
        return legs_frequency(N, n);
    }
}

double ls_spectrum_decay(ls_spectrum kind, int64_t n) {
    if (kind == LS_SPECTRUM_FOUT) return 0;
    return kind == LS_SPECTRUM_REAL ? (double)(n + 1) : 0.5;
}

double ls_spectrum_input(ls_spectrum kind, int64_t N, int64_t n) {
    if (kind == LS_SPECTRUM_FOUT && n == N / 2 - 1) return sqrt(0.5);
    if (kind != LS_SPECTRUM_LEGS) return 1;
    double w = legs_frequency(N, n), sum = 0;
    for (int64_t i = 0; i < N; i++) {
        double half = (double)i + 0.5;
        sum += half / (half * half + w * w);
    }
    return sqrt(2 / sum);
}

double ls_spectrum_rank(ls_spectrum kind, int64_t N, int64_t n) {
    if (kind != LS_SPECTRUM_LEGS && kind != LS_SPECTRUM_FOUT) return 0;
    return ls_spectrum_input(kind, N, n) * (kind == LS_SPECTRUM_LEGS ? sqrt(0.5) : 1);
}
