#include "mixer/hippo_matrix.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* ---- matrices ---- */

static double legs_entry(int64_t n, int64_t k) {
    if (n < k) return 0;
    return n == k ? -(double)(n + 1) : -sqrt((double)((2 * n + 1) * (2 * k + 1)));
}

static double legt_entry(int64_t n, int64_t k) {
    const double size = sqrt((double)((2 * n + 1) * (2 * k + 1))) / 2;
    return n < k && (k - n) % 2 == 1 ? size : -size;
}

/* The constant, an empty place, then cosine and sine of each frequency. */
static double fout_input(int64_t n) {
    if (n % 2 == 1) return 0;
    return n == 0 ? 1 : sqrt(2);
}

static double fout_entry(int64_t n, int64_t k) {
    double turn = 0;
    if (n / 2 == k / 2) turn = (double)(n - k) * pi * (double)(n / 2);
    return turn - fout_input(n) * fout_input(k);
}

static double entry(ls_measure measure, int64_t n, int64_t k) {
    if (measure == LS_MEASURE_LEGT) return legt_entry(n, k);
    return measure == LS_MEASURE_FOUT ? fout_entry(n, k) : legs_entry(n, k);
}

static double input(ls_measure measure, int64_t n) {
    if (measure == LS_MEASURE_FOUT) return fout_input(n);
    return sqrt((double)(2 * n + 1)) * (measure == LS_MEASURE_LEGT ? 0.5 : 1);
}

void ls_hippo_matrix(ls_measure measure, int64_t N, double *A, double *B) {
    for (int64_t n = 0; n < N; n++) {
        for (int64_t k = 0; k < N; k++) A[n * N + k] = entry(measure, n, k);
        B[n] = input(measure, n);
    }
}

int ls_measure_rank(ls_measure measure) {
    return measure == LS_MEASURE_LEGT ? 2 : 1;
}

void ls_hippo_rank(ls_measure measure, int64_t N, double *P) {
    for (int64_t n = 0; n < N; n++) {
        const double half = sqrt((double)n + 0.5);
        if (measure == LS_MEASURE_LEGT) {
            P[n] = n % 2 == 1 ? half : 0;
            P[N + n] = n % 2 == 1 ? 0 : half;
        } else {
            P[n] = measure == LS_MEASURE_FOUT ? fout_input(n) : half;
        }
    }
}

/* ---- eigenvectors: Jacobi's rotations of the Hermitian -i K ---- */

/* H [N,N], whose eigenvectors so far are the rows of V. */
typedef struct rotated {
    int64_t N;
    double complex *H, *V;
} rotated;

/* x <- c x - s z y,  y <- s x + c z y */
static void turn_rows(int64_t N, double complex *x, double complex *y, double c, double s,
                      double complex z) {
    for (int64_t i = 0; i < N; i++) {
        const double complex here = x[i], other = z * y[i];
        x[i] = c * here - s * other;
        y[i] = s * here + c * other;
    }
}

/* The rotation in the plane of p and q that makes H_pq 0. */
static void rotate(const rotated *r, int64_t p, int64_t q) {
    const int64_t N = r->N;
    double complex *H = r->H;
    const double size = cabs(H[p * N + q]), a = creal(H[p * N + p]), b = creal(H[q * N + q]);
    const double complex phase = H[p * N + q] / size;
    const double half = (b - a) / (2 * size);
    const double tangent = copysign(1, half) / (fabs(half) + hypot(half, 1));
    const double c = 1 / hypot(tangent, 1), s = tangent * c;
    turn_rows(N, H + p * N, H + q * N, c, s, phase);
    for (int64_t i = 0; i < N; i++) {
        H[i * N + p] = conj(H[p * N + i]);
        H[i * N + q] = conj(H[q * N + i]);
    }
    H[p * N + p] = a - tangent * size;
    H[q * N + q] = b + tangent * size;
    H[p * N + q] = H[q * N + p] = 0;
    turn_rows(N, r->V + p * N, r->V + q * N, c, s, conj(phase));
}

static void diagonalise(const rotated *r) {
    enum { SWEEPS_MAX = 60 }; /* about ten are needed: convergence is quadratic */
    const int64_t N = r->N;
    double largest = 0;
    bool changed = true;
    for (int64_t i = 0; i < N * N; i++) largest = fmax(largest, cabs(r->H[i]));
    for (int sweep = 0; changed && sweep < SWEEPS_MAX; sweep++) {
        changed = false;
        for (int64_t p = 0; p < N; p++)
            for (int64_t q = p + 1; q < N; q++)
                if (cabs(r->H[p * N + q]) > 1e-18 * largest) rotate(r, p, q), changed = true;
    }
}

/* v = (u + i u') / sqrt(2) with real u and u' that span what x and y do: the eigenvectors of a pair
 * of zeros are not fixed, and only so are v and its conjugate a pair. */
static void pair_zeros(int64_t N, const double complex *x, const double complex *y,
                       double complex *v) {
    for (int64_t i = 0; i < N; i++) v[i] = 0;
    for (int part = 0; part < 2; part++) {
        int64_t at = 0;
        double most = 0; /* of the projection that the first u leaves: its diagonal */
        for (int64_t i = 0; i < N; i++) {
            const double here = creal(x[i] * conj(x[i]) + y[i] * conj(y[i]) - 2 * v[i] * v[i]);
            if (here > most) most = here, at = i;
        }
        const double taken = creal(v[at]);
        for (int64_t i = 0; i < N; i++) {
            const double u =
                creal(x[i] * conj(x[at]) + y[i] * conj(y[at]) - 2 * creal(v[i]) * taken);
            v[i] += u / sqrt(2 * most) * (part == 0 ? 1 : I);
        }
    }
}

/* The half of all eigenvectors with the smallest eigenvalues, in order. */
static void take_half(const rotated *r, int64_t *order, double *w, double complex *V) {
    const int64_t N = r->N, half = N / 2;
    double largest = 0;
    for (int64_t i = 0; i < N; i++) {
        int64_t at = i;
        const double value = creal(r->H[i * N + i]);
        for (; at > 0 && creal(r->H[order[at - 1] * (N + 1)]) > value; at--)
            order[at] = order[at - 1];
        order[at] = i;
        largest = fmax(largest, fabs(value));
    }
    for (int64_t n = 0; n < half; n++) {
        const double complex *from = r->V + order[n] * N;
        w[n] = creal(r->H[order[n] * (N + 1)]);
        for (int64_t i = 0; i < N; i++) V[n * N + i] = from[i];
    }
    if (fabs(w[half - 1]) > 1e-12 * largest) return;
    w[half - 1] = 0;
    pair_zeros(N, r->V + order[half - 1] * N, r->V + order[half] * N, V + (half - 1) * N);
}

ls_status ls_skew_modes(ls_ctx *ctx, int64_t N, const double *K, double *w, double complex *V) {
    const size_t all = (size_t)(N * N);
    rotated r = {N, ls_new(ctx, all, sizeof *r.H), ls_new(ctx, all, sizeof *r.V)};
    int64_t *order = ls_new(ctx, (size_t)N, sizeof *order);
    const bool room = r.H != NULL && r.V != NULL && order != NULL;
    if (room) {
        for (int64_t i = 0; i < N * N; i++) r.H[i] = -I * K[i];
        for (int64_t i = 0; i < N; i++) r.V[i * (N + 1)] = 1;
        diagonalise(&r);
        take_half(&r, order, w, V);
    }
    ls_free(ctx, r.H);
    ls_free(ctx, r.V);
    ls_free(ctx, order);
    return room ? LS_OK : LS_ENOMEM;
}

/* ---- a measure in its modes ---- */

static double complex projected(int64_t N, const double complex *v, const double *x) {
    double complex sum = 0;
    for (int64_t i = 0; i < N; i++) sum += conj(v[i]) * x[i];
    return sum;
}

/* Matrices and vectors on the way to the modes. */
typedef struct work {
    double *A, *B, *P;
    double complex *V;
} work;

static ls_status find_modes(ls_ctx *ctx, ls_measure measure, int64_t N, const work *at,
                            ls_hippo_modes *out) {
    const int rank = ls_measure_rank(measure);
    double *A = at->A;
    ls_hippo_matrix(measure, N, A, at->B);
    ls_hippo_rank(measure, N, at->P);
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < N; k++)
            for (int j = 0; j < rank; j++) A[n * N + k] += at->P[j * N + n] * at->P[j * N + k];
    for (int64_t n = 0; n < N; n++) {
        out->decay += A[n * (N + 1)] / (double)N;
        A[n * (N + 1)] = 0;
    }
    LS_TRY(ls_skew_modes(ctx, N, A, out->w, at->V));
    for (int64_t n = 0; n < out->count; n++) {
        out->B[n] = projected(N, at->V + n * N, at->B);
        for (int j = 0; j < rank; j++)
            out->P[j * out->count + n] = projected(N, at->V + n * N, at->P + j * N);
    }
    return LS_OK;
}

ls_status ls_hippo_modes_find(ls_ctx *ctx, ls_measure measure, int64_t N, ls_hippo_modes *out) {
    const size_t all = (size_t)N, half = all / 2, rank = (size_t)ls_measure_rank(measure);
    *out = (ls_hippo_modes){.count = N / 2,
                            .w = ls_new(ctx, half, sizeof *out->w),
                            .B = ls_new(ctx, half, sizeof *out->B),
                            .P = ls_new(ctx, rank * half, sizeof *out->P)};
    const work at = {ls_new(ctx, all * all, sizeof *at.A), ls_new(ctx, all, sizeof *at.B),
                     ls_new(ctx, rank * all, sizeof *at.P), ls_new(ctx, half * all, sizeof *at.V)};
    ls_status status = LS_ENOMEM;
    if (out->w != NULL && out->B != NULL && out->P != NULL && at.A != NULL && at.B != NULL &&
        at.P != NULL && at.V != NULL)
        status = find_modes(ctx, measure, N, &at, out);
    ls_free(ctx, at.A);
    ls_free(ctx, at.B);
    ls_free(ctx, at.P);
    ls_free(ctx, at.V);
    return status;
}

void ls_hippo_modes_clear(ls_ctx *ctx, ls_hippo_modes *modes) {
    ls_free(ctx, modes->w);
    ls_free(ctx, modes->B);
    ls_free(ctx, modes->P);
    *modes = (ls_hippo_modes){0};
}
