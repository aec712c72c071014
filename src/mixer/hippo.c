/* Spectra of HiPPO's matrices.
 *
 * HiPPO-LegS in closed form. Its matrix is A = S - P P^T with S = -1/2 + K, K skew-symmetric,
 * P_n = sqrt(n + 1/2), B = sqrt(2) P. With z the distance from -1/2, B^T (z - A - 1/2)^-1 B is 1 -
 * G where G(z) = prod_n (z - n - 1/2) / (z + n + 1/2), because A + A^T = -1 - B B^T. Eigenvalues i
 * w of K are where G(i w) = -1, that is, for even N, sum_{n < N} atan(w / (n + 1/2)) = pi/2 + pi k,
 * k = 0 .. N/2 - 1, and the input of that mode is |v^H B|^2 = 2 / sum_n (n + 1/2) / ((n + 1/2)^2 +
 * w^2), the residue of B^T (z - K)^-1 B = 2 (1 - G) / (1 + G).
 *
 * HiPPO-FouT is A = K - B B^T, K turning cosine and sine of every frequency pi k into each other:
 * mode k reads half of the sum of two squares, sqrt(2) and 0, and that of the constant 1 and 0.
 *
 * HiPPO-LegT is A = K - P P^T with two columns P, sqrt(n + 1/2) for odd n and for even n, and B
 * their sum over sqrt(2). The inverse of K is a ring: with K v = i w v and v_n = i^n x_n
 *   x_n / w = b_n x_{n-1} + b_{n+1} x_{n+1},   b_n = 1 / sqrt(4 n^2 - 1)
 * where x_{N-1} is the neighbour of x_0, with b = -1 / sqrt(2 N - 1) if 4 divides N and + else. How
 * many eigenvalues of this real symmetric matrix lie below a value is known from its pivots. Inputs
 * are telescoping sums: v^H P is sqrt(2) w times i x_0 and b x_{N-1}. */
#include "mixer/hippo.h"

#include <math.h>
#include <stdbool.h>

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

/* ---- LegT ---- */

enum { STATES_MAX = LS_SPECTRUM_LEGT_MAX };

static double link(int64_t n) {
    return 1 / sqrt((double)(4 * n * n - 1));
}

static double last_link(int64_t N) {
    return (N % 4 == 0 ? -1 : 1) / sqrt((double)(2 * N - 1));
}

/* Eigenvalues of the ring below `value`. Each pivot joins the next place to place 0. */
static int64_t ring_below(int64_t N, double value) {
    double pivot = -value, to_first = N == 2 ? link(1) + last_link(N) : link(1), first = -value;
    int64_t below = 0;
    for (int64_t n = 1; n < N; n++) {
        if (pivot == 0) pivot = 1e-300;
        below += pivot < 0;
        first -= to_first * to_first / pivot;
        to_first *= -link(n + 1) / pivot;
        pivot = -value - link(n + 1) * link(n + 1) / pivot;
        if (n == N - 2) to_first += last_link(N);
    }
    return below + (first < 0);
}

static double legt_frequency(int64_t N, int64_t n) {
    double low = 0, high = 2;
    for (;;) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) return 1 / middle;
        if (ring_below(N, middle) > N / 2 + n)
            high = middle;
        else
            low = middle;
    }
}

/* A line of places 1 .. count with `value` taken from each: x becomes what it makes into x. By
 * elimination, in which neighbours change places where the second is larger. */
static void solve_line(int64_t count, double value, double *x) {
    double pivot[STATES_MAX], next[STATES_MAX], second[STATES_MAX];
    double here = -value, right = link(2), most = 1e-300;
    for (int64_t i = 0; i + 1 < count; i++) {
        const double below = link(i + 2), over = i + 2 < count ? link(i + 3) : 0;
        const bool exchange = fabs(below) > fabs(here);
        pivot[i] = exchange ? below : here;
        next[i] = exchange ? -value : right;
        second[i] = exchange ? over : 0;
        const double factor = exchange ? here / below : below / here, kept = x[i];
        if (exchange) x[i] = x[i + 1], x[i + 1] = kept;
        x[i + 1] -= factor * x[i];
        here = (exchange ? right : -value) - factor * next[i];
        right = exchange ? -factor * over : over;
    }
    pivot[count - 1] = fabs(here) > most ? here : most;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (i + 1 < count) x[i] -= next[i] * x[i + 1];
        if (i + 2 < count) x[i] -= second[i] * x[i + 2];
        x[i] /= pivot[i];
    }
}

/* P^H v of the odd and the even column, but for sqrt(2): places 0 and N - 1 of the eigenvector of
 * the ring, from the line that is left without place 0. */
static void legt_ends(int64_t N, int64_t n, double *odd, double *even) {
    const double w = legt_frequency(N, n);
    double x[STATES_MAX] = {0}, sum = 1;
    x[0] = -link(1);
    x[N - 2] -= last_link(N);
    solve_line(N - 1, 1 / w, x);
    for (int64_t i = 0; i < N - 1; i++) sum += x[i] * x[i];
    *odd = w / sqrt(sum);
    *even = w * last_link(N) * x[N - 2] / sqrt(sum);
}

/* The phase of a mode is such that its input is positive. */
static double complex legt_rank(int64_t N, int64_t n, int64_t row) {
    double odd, even;
    legt_ends(N, n, &odd, &even);
    const double complex transposed = (even - I * odd) / hypot(odd, even);
    return sqrt(2) * transposed * (row == 0 ? I * odd : even);
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
    case LS_SPECTRUM_LEGT:
        return legt_frequency(N, n);
    default:
        return legs_frequency(N, n);
    }
}

double ls_spectrum_decay(ls_spectrum kind, int64_t n) {
    if (kind == LS_SPECTRUM_FOUT || kind == LS_SPECTRUM_LEGT) return 0;
    return kind == LS_SPECTRUM_REAL ? (double)(n + 1) : 0.5;
}

double ls_spectrum_input(ls_spectrum kind, int64_t N, int64_t n) {
    if (kind == LS_SPECTRUM_FOUT && n == N / 2 - 1) return sqrt(0.5);
    if (kind == LS_SPECTRUM_LEGT) {
        double odd, even;
        legt_ends(N, n, &odd, &even);
        return hypot(odd, even);
    }
    if (kind != LS_SPECTRUM_LEGS) return 1;
    double w = legs_frequency(N, n), sum = 0;
    for (int64_t i = 0; i < N; i++) {
        double half = (double)i + 0.5;
        sum += half / (half * half + w * w);
    }
    return sqrt(2 / sum);
}

int64_t ls_spectrum_ranks(ls_spectrum kind) {
    return kind == LS_SPECTRUM_LEGT ? 2 : 1;
}

double complex ls_spectrum_rank(ls_spectrum kind, int64_t N, int64_t n, int64_t row) {
    if (row >= ls_spectrum_ranks(kind)) return 0;
    if (kind == LS_SPECTRUM_LEGT) return legt_rank(N, n, row);
    if (kind != LS_SPECTRUM_LEGS && kind != LS_SPECTRUM_FOUT) return 0;
    return ls_spectrum_input(kind, N, n) * (kind == LS_SPECTRUM_LEGS ? sqrt(0.5) : 1);
}
