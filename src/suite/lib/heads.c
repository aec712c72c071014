#include "suite/lib/heads.h"

#include <complex.h>
#include <math.h>
#include <stdlib.h>

double ls_head_stripe(const double *A, int64_t T, int64_t offset) {
    double sum = 0;
    for (int64_t q = offset; q < T; q++) sum += A[q * T + q - offset];
    return sum / (double)(T - offset);
}

bool ls_head_mask(ls_head_kind kind, const int64_t *tokens, int64_t q, int64_t k) {
    switch (kind) {
    case LS_HEAD_PREVIOUS:
        return k == q - 1;
    case LS_HEAD_DUPLICATE:
        return k < q && tokens[k] == tokens[q];
    default:
        return k >= 1 && k <= q && tokens[k - 1] == tokens[q];
    }
}

static bool counts(ls_head_match how, int64_t q, int64_t k) {
    return !(how.without_first && k == 0) && !(how.without_current && k == q);
}

double ls_head_share(const double *A, int64_t T, ls_head_kind kind, const int64_t *tokens,
                     ls_head_match how) {
    double on = 0, all = 0;
    for (int64_t q = 0; q < T; q++)
        for (int64_t k = 0; k < T; k++) {
            if (!counts(how, q, k)) continue;
            all += A[q * T + k];
            if (ls_head_mask(kind, tokens, q, k)) on += A[q * T + k];
        }
    return on / all;
}

double ls_head_likeness(const double *A, int64_t T, ls_head_kind kind, const int64_t *tokens,
                        ls_head_match how) {
    double sum = 0;
    for (int64_t q = 0; q < T; q++)
        for (int64_t k = 0; k < T; k++)
            if (counts(how, q, k))
                sum += fabs(A[q * T + k] - (double)ls_head_mask(kind, tokens, q, k));
    return 1 - rint(sum / (double)T * 1000) / 1000;
}

double ls_head_importance(const double *A, int64_t T, int64_t key) {
    double sum = 0;
    for (int64_t q = 0; q < T; q++) sum += A[q * T + key];
    return sum / (double)(T - key);
}

double ls_head_prefix(const double *A, int64_t T, int64_t period, bool per_pair) {
    double sum = 0;
    int64_t queries = 0, pairs = 0;
    for (int64_t q = 1 + period; q < T; q++, queries++)
        for (int64_t k = q - period + 1; k >= 2; k -= period, pairs++) sum += A[q * T + k];
    return sum / (double)(per_pair ? pairs : queries);
}

double ls_head_first_token(const double *A, int64_t T) {
    double sum = 0;
    for (int64_t q = 1; q < T; q++) sum += A[q * T];
    return sum / (double)(T - 1);
}

double ls_head_entropy(const double *A, int64_t T, bool relative) {
    double all = 0;
    for (int64_t q = 1; q < T; q++) {
        double sum = 0;
        for (int64_t k = 0; k <= q; k++) {
            const double p = A[q * T + k];
            if (p > 0) sum -= p * log(p);
        }
        all += relative ? sum / log((double)(q + 1)) : sum;
    }
    return all / (double)(T - 1);
}

double ls_head_distance(const double *A, int64_t T) {
    double sum = 0;
    for (int64_t q = 1; q < T; q++)
        for (int64_t k = 0; k <= q; k++) sum += A[q * T + k] * (double)(q - k);
    return sum / (double)(T - 1);
}

double ls_head_copying(const double *logits, int64_t n) {
    double total = 0;
    for (int64_t a = 0; a < n; a++) {
        const double *row = logits + a * n;
        double mean = 0, raised = 0;
        for (int64_t s = 0; s < n; s++) mean += row[s] / (double)n;
        for (int64_t s = 0; s < n; s++) raised += fmax(0, row[s] - mean);
        if (raised > 0) total += fmax(0, row[a] - mean) / raised;
    }
    return 2 * total / (double)n - 1;
}

/* ---- eigenvalues ---- */

/* A similar matrix without entries below the first diagonal under the main one, by elimination with
 * pivots. */
static void make_hessenberg(double *M, int64_t n) {
    for (int64_t m = 1; m < n - 1; m++) {
        int64_t pivot = m;
        for (int64_t i = m; i < n; i++)
            if (fabs(M[i * n + m - 1]) > fabs(M[pivot * n + m - 1])) pivot = i;
        if (M[pivot * n + m - 1] == 0) continue;
        for (int64_t j = 0; pivot != m && j < n; j++) {
            const double kept = M[pivot * n + j];
            M[pivot * n + j] = M[m * n + j];
            M[m * n + j] = kept;
        }
        for (int64_t i = 0; pivot != m && i < n; i++) {
            const double kept = M[i * n + pivot];
            M[i * n + pivot] = M[i * n + m];
            M[i * n + m] = kept;
        }
        for (int64_t i = m + 1; i < n; i++) {
            const double factor = M[i * n + m - 1] / M[m * n + m - 1];
            for (int64_t j = 0; j < n; j++) M[i * n + j] -= factor * M[m * n + j];
            for (int64_t k = 0; k < n; k++) M[k * n + m] += factor * M[k * n + i];
        }
    }
}

/* The eigenvalue of the last two rows that is nearer to the last entry. */
static double complex shift_of(const double complex *H, int64_t n, int64_t end) {
    const double complex a = H[(end - 1) * n + end - 1], b = H[(end - 1) * n + end];
    const double complex c = H[end * n + end - 1], d = H[end * n + end];
    const double complex half = (a + d) / 2, root = csqrt(half * half - (a * d - b * c));
    return cabs(half + root - d) < cabs(half - root - d) ? half + root : half - root;
}

/* One step of the QR iteration on rows first..end, by rotations. */
static void turn(double complex *H, int64_t n, int64_t first, int64_t end, double complex shift) {
    double complex cosines[LS_HEAD_WIDTH_MAX], sines[LS_HEAD_WIDTH_MAX];
    for (int64_t i = first; i <= end; i++) H[i * n + i] -= shift;
    for (int64_t k = first; k < end; k++) {
        const double complex a = H[k * n + k], b = H[(k + 1) * n + k];
        const double length = hypot(cabs(a), cabs(b));
        cosines[k] = length == 0 ? 1 : a / length;
        sines[k] = length == 0 ? 0 : b / length;
        for (int64_t j = k; j <= end; j++) {
            const double complex x = H[k * n + j], y = H[(k + 1) * n + j];
            H[k * n + j] = conj(cosines[k]) * x + conj(sines[k]) * y;
            H[(k + 1) * n + j] = cosines[k] * y - sines[k] * x;
        }
    }
    for (int64_t k = first; k < end; k++)
        for (int64_t i = first; i <= k + 1; i++) {
            const double complex x = H[i * n + k], y = H[i * n + k + 1];
            H[i * n + k] = x * cosines[k] + y * sines[k];
            H[i * n + k + 1] = y * conj(cosines[k]) - x * conj(sines[k]);
        }
    for (int64_t i = first; i <= end; i++) H[i * n + i] += shift;
}

double ls_head_positive(double *matrix, int64_t n) {
    enum { STEPS_MOST = 200 };
    if (n < 1 || n > LS_HEAD_WIDTH_MAX) return NAN;
    double complex *H = calloc((size_t)(n * n), sizeof *H);
    double real = 0, size = 0;
    int64_t end = n - 1;
    if (H == NULL) return NAN;
    make_hessenberg(matrix, n);
    for (int64_t i = 0; i < n * n; i++) H[i] = matrix[i];
    for (int64_t i = 2; i < n; i++)
        for (int64_t j = 0; j < i - 1; j++) H[i * n + j] = 0; /* rounding that elimination left */
    for (int steps = 0; end >= 0 && steps < STEPS_MOST; steps++) {
        int64_t first = end;
        for (; first > 0; first--) {
            const double around = cabs(H[first * n + first]) + cabs(H[(first - 1) * n + first - 1]);
            if (cabs(H[first * n + first - 1]) <= 1e-16 * around) break;
        }
        if (first == end) {
            real += creal(H[end * n + end]);
            size += cabs(H[end * n + end]);
            end--;
            steps = 0;
        } else {
            turn(H, n, first, end, shift_of(H, n, end));
        }
    }
    free(H);
    return end >= 0 ? NAN : real / size;
}
