#include "tensor/op/state_space/ssm_system_cpu.h"

#include "base/memory.h"

/* Gradients of complex numbers are d/d re + i d/d im: for w = f(z), dz += dw conj(f'(z)). */

ls_ssm ls_ssm_of(const ls_run *run, const ls_node *node) {
    const ls_tensor *A = node->in[LS_SSM_A_REAL];
    ls_ssm ssm = {
        .D = node->in[LS_SSM_DT]->dim[0],
        .S = A->dim[0],
        .h = A->dim[1],
        .steps = ls_count(node->in[LS_SSM_DT]) / node->in[LS_SSM_DT]->dim[0],
        .rank = ls_ssm_rank(node),
        .about = *(const ls_state_space_attributes *)node->attributes,
        .type = A->type,
    };
    for (int i = 0; i < LS_SSM_PARAMETERS; i++) {
        if (node->in[i] == NULL) continue;
        ssm.value[i] = ls_data(node->in[i]);
        if (run != NULL) ssm.gradient[i] = ls_param_gradient(run, node->in[i]);
    }
    return ssm;
}

static double real_at(const ls_ssm *s, int which, int64_t i) {
    return s->type == LS_F64 ? ((const double *)s->value[which])[i]
                             : (double)((const float *)s->value[which])[i];
}

static void add_real(const ls_ssm *s, int which, int64_t i, double value) {
    if (s->type == LS_F64)
        ((double *)s->gradient[which])[i] += value;
    else
        ((float *)s->gradient[which])[i] += (float)value;
}

/* Whether numbers are pairs of re and im. */
static bool paired(const ls_ssm *s) {
    return s->value[LS_SSM_A_IMAG] != NULL;
}

/* Of B, C or P; a B that is not there is 1. */
static double complex pair_at(const ls_ssm *s, int which, int64_t i) {
    if (s->value[which] == NULL) return 1;
    if (!paired(s)) return real_at(s, which, i);
    return ls_complex(real_at(s, which, 2 * i), real_at(s, which, 2 * i + 1));
}

static void add_pair(const ls_ssm *s, int which, int64_t i, double complex value) {
    if (s->value[which] == NULL) return;
    add_real(s, which, paired(s) ? 2 * i : i, creal(value));
    if (paired(s)) add_real(s, which, 2 * i + 1, cimag(value));
}

/* Where the values of mode n of a channel stand in [S,h] and in C. */
static int64_t shared_at(const ls_ssm *s, int64_t channel, int64_t n) {
    return channel % s->S * s->h + n;
}
static int64_t own_at(const ls_ssm *s, int64_t channel, int64_t n) {
    return (s->about.side * s->D + channel) * s->h + n;
}

static double side_of_pole(const ls_ssm *s) {
    return s->about.upper ? 1 : -1;
}

/* What is kept as x, and its slope there. */
static double kept_as(ls_kept kept, double x, double *slope) {
    switch (kept) {
    case LS_KEPT_EXP:
        return *slope = exp(x);
    case LS_KEPT_RELU:
        *slope = x > 0;
        return fmax(x, 0) + 1e-4;
    case LS_KEPT_SOFTPLUS:
        *slope = 1 / (1 + exp(-x));
        return x > 30 ? x : log1p(exp(x));
    case LS_KEPT_SIGMOID: {
        const double size = 1 / (1 + exp(-x));
        *slope = size * (1 - size);
        return size;
    }
    default:
        *slope = 1;
        return x;
    }
}

/* *slopes: of the real part by A_real and of the imaginary one by A_imag. */
static double complex pole_with(const ls_ssm *s, int64_t channel, int64_t n,
                                double complex *slopes) {
    int64_t i = shared_at(s, channel, n);
    double along, around = 0, imag = 0;
    double real = kept_as(s->about.real, real_at(s, LS_SSM_A_REAL, i), &along);
    if (paired(s)) imag = kept_as(s->about.imag, real_at(s, LS_SSM_A_IMAG, i), &around);
    *slopes = ls_complex(-along, side_of_pole(s) * around);
    return ls_complex(-real, side_of_pole(s) * imag);
}

static double complex pole(const ls_ssm *s, int64_t channel, int64_t n) {
    double complex slopes;
    return pole_with(s, channel, n, &slopes);
}

static int64_t step_at(const ls_ssm *s, int64_t channel, int64_t n) {
    return channel * s->steps + n % s->steps;
}

static double step_with(const ls_ssm *s, int64_t channel, int64_t n, double *slope) {
    const ls_kept kept = s->about.step == LS_STEP_EXP ? LS_KEPT_EXP : LS_KEPT_SOFTPLUS;
    double step = kept_as(kept, real_at(s, LS_SSM_DT, step_at(s, channel, n)), slope);
    *slope *= s->about.rate;
    return step * s->about.rate;
}

static double step_size(const ls_ssm *s, int64_t channel, int64_t n) {
    double slope;
    return step_with(s, channel, n, &slope);
}

/* Whether a mode is slow enough for the samples of a rate of 1, and is read at all. */
static bool in_band(const ls_ssm *s, int64_t channel, int64_t n) {
    if (s->about.band == 0) return true;
    const double turn = 8 * atan(1), step = step_size(s, channel, n) / s->about.rate;
    return step * fabs(cimag(pole(s, channel, n))) / turn < s->about.band * 0.5;
}

/* ---- linear systems ---- */

/* Solves matrix x = right in place by elimination with pivots. */
static void solve(int64_t N, double *matrix, double *right) {
    for (int64_t column = 0; column < N; column++) {
        int64_t pivot = column;
        for (int64_t i = column + 1; i < N; i++)
            if (fabs(matrix[i * N + column]) > fabs(matrix[pivot * N + column])) pivot = i;
        for (int64_t j = 0; j < N; j++) {
            double kept = matrix[column * N + j];
            matrix[column * N + j] = matrix[pivot * N + j];
            matrix[pivot * N + j] = kept;
        }
        double kept = right[column];
        right[column] = right[pivot];
        right[pivot] = kept;
        for (int64_t i = column + 1; i < N; i++) {
            double factor = matrix[i * N + column] / matrix[column * N + column];
            for (int64_t j = column; j < N; j++)
                matrix[i * N + j] -= factor * matrix[column * N + j];
            right[i] -= factor * right[column];
        }
    }
    for (int64_t i = N - 1; i >= 0; i--) {
        for (int64_t j = i + 1; j < N; j++) right[i] -= matrix[i * N + j] * right[j];
        right[i] /= matrix[i * N + i];
    }
}

static void transpose_in_place(int64_t N, double *matrix) {
    for (int64_t i = 0; i < N; i++)
        for (int64_t j = 0; j < i; j++) {
            double kept = matrix[i * N + j];
            matrix[i * N + j] = matrix[j * N + i];
            matrix[j * N + i] = kept;
        }
}

/* ---- the bilinear step ----
 *
 * With k = 2/step of the mode and R = 1/(k - L): a = (k + L) R, and by the Woodbury identity, M
 * being the matrix [rank,rank] of 1 + 2 Re sum P_i* R P_j, b = 2 R (B - sum P_j rho_j), M rho = 2
 * Re sum(P_j* R B), g_j = R P_j, and q_j = sum_i (M^-1)_ji 2 k P_i* R. */

enum { MOST = LS_STATE_SPACE_RANK_MAX };

typedef struct ranks {
    int64_t count;
    double matrix[MOST][MOST], rho[MOST];
} ranks;

static double complex rank_at(const ls_ssm *s, int64_t channel, int64_t j, int64_t n) {
    return pair_at(s, LS_SSM_P, j * s->S * s->h + shared_at(s, channel, n));
}

/* right <- M^-1 right, or with M transposed over. */
static void solve_ranks(const ranks *sums, bool transposed, double *right) {
    const int64_t count = sums->count;
    double left[MOST * MOST];
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < count; j++)
            left[i * count + j] = transposed ? sums->matrix[j][i] : sums->matrix[i][j];
    solve(count, left, right);
}

/* out = value M^-1. */
static void inverse_times(const ranks *sums, double value, double out[MOST][MOST]) {
    for (int64_t i = 0; i < sums->count; i++) {
        double column[MOST] = {0};
        column[i] = value;
        solve_ranks(sums, false, column);
        for (int64_t j = 0; j < sums->count; j++) out[j][i] = column[j];
    }
}

static ranks ranks_of(const ls_ssm *s, int64_t channel) {
    ranks sums = {.count = s->rank};
    double k = 0;
    for (int64_t j = 0; j < s->rank; j++) sums.matrix[j][j] = 1;
    for (int64_t n = 0; s->rank > 0 && n < s->h; n++) {
        if (n < s->steps) k = 2 / step_size(s, channel, n);
        double complex R = 1 / (k - pole(s, channel, n));
        for (int64_t j = 0; j < s->rank; j++) {
            double complex P = rank_at(s, channel, j, n);
            for (int64_t i = 0; i < s->rank; i++)
                sums.matrix[j][i] += 2 * creal(rank_at(s, channel, i, n) * conj(P) * R);
            sums.rho[j] += 2 * creal(conj(P) * R * pair_at(s, LS_SSM_B, shared_at(s, channel, n)));
        }
    }
    solve_ranks(&sums, false, sums.rho);
    return sums;
}

/* B - sum P rho */
static double complex inner_of(const ls_ssm *s, int64_t channel, int64_t n, const ranks *sums) {
    double complex inner = pair_at(s, LS_SSM_B, shared_at(s, channel, n));
    for (int64_t j = 0; j < s->rank; j++) inner -= rank_at(s, channel, j, n) * sums->rho[j];
    return inner;
}

static void bilinear(const ls_ssm *s, int64_t channel, double complex *system) {
    const int64_t h = s->h;
    double k = 0, scale[MOST][MOST];
    const ranks sums = ranks_of(s, channel);
    for (int64_t n = 0; n < h; n++) {
        if (n < s->steps) {
            k = 2 / step_size(s, channel, n);
            inverse_times(&sums, 2 * k, scale);
        }
        double complex L = pole(s, channel, n), R = 1 / (k - L);
        system[LS_SYSTEM_A * h + n] = (k + L) * R;
        system[LS_SYSTEM_B * h + n] = 2 * R * inner_of(s, channel, n, &sums);
        for (int64_t j = 0; j < s->rank; j++) {
            double complex q = 0;
            for (int64_t i = 0; i < s->rank; i++)
                q += scale[j][i] * conj(rank_at(s, channel, i, n)) * R;
            system[ls_system_g(j) * h + n] = R * rank_at(s, channel, j, n);
            system[ls_system_q(j) * h + n] = q;
        }
    }
}

/* The gradients of what all modes have in common: of 2 Re sum(P_j* R B) and of M. */
typedef struct dranks {
    double beta[MOST], matrix[MOST][MOST];
} dranks;

/* Takes the gradient of M^-1 to that of -M. A single number is divided once, by its square. */
static void through_inverse(const ranks *sums, double d[MOST][MOST]) {
    if (sums->count == 1) {
        d[0][0] /= sums->matrix[0][0] * sums->matrix[0][0];
        return;
    }
    for (int64_t i = 0; i < sums->count; i++) {
        double column[MOST];
        for (int64_t j = 0; j < sums->count; j++) column[j] = d[j][i];
        solve_ranks(sums, true, column);
        for (int64_t j = 0; j < sums->count; j++) d[j][i] = column[j];
    }
    for (int64_t j = 0; j < sums->count; j++) solve_ranks(sums, false, d[j]);
}

static dranks common_gradient(const ls_ssm *s, int64_t channel, const ranks *sums,
                              const double complex *d) {
    dranks out = {0};
    double k = 0, dinverse[MOST][MOST] = {{0}}; /* of the M^-1 of q */
    for (int64_t n = 0; s->rank > 0 && n < s->h; n++) {
        if (n < s->steps) k = 2 / step_size(s, channel, n);
        double complex R = 1 / (k - pole(s, channel, n));
        for (int64_t j = 0; j < s->rank; j++) {
            double complex db = d[LS_SYSTEM_B * s->h + n], dq = d[ls_system_q(j) * s->h + n];
            out.beta[j] -= creal(2 * db * conj(R) * conj(rank_at(s, channel, j, n))); /* of rho */
            for (int64_t i = 0; i < s->rank; i++)
                dinverse[j][i] += 2 * k * creal(dq * rank_at(s, channel, i, n) * conj(R));
        }
    }
    solve_ranks(sums, true, out.beta);
    through_inverse(sums, dinverse);
    for (int64_t j = 0; j < s->rank; j++)
        for (int64_t i = 0; i < s->rank; i++)
            out.matrix[j][i] = -out.beta[j] * sums->rho[i] - dinverse[j][i];
    return out;
}

/* One mode on the way back. */
typedef struct mode_back {
    double complex R, B, dinner;
    double (*scale)[MOST], (*unit)[MOST]; /* 2 k M^-1 and 2 M^-1 */
    double complex dR;                    /* these two are added to */
    double *dk;
} mode_back;

/* What rank j has to do with mode n: into R, k and the gradient of P. */
static void rank_back(const ls_ssm *s, int64_t channel, int64_t n, int64_t j, const ranks *sums,
                      const dranks *dsums, const double complex *d, mode_back *m) {
    const double complex R = m->R, P = rank_at(s, channel, j, n);
    const double complex dg = d[ls_system_g(j) * s->h + n], dq = d[ls_system_q(j) * s->h + n];
    const double dbeta = dsums->beta[j];
    *m->dk += m->unit[j][j] * creal(dq * P * conj(R));
    m->dR += dg * conj(P) + m->scale[j][j] * dq * P + 2 * dbeta * P * conj(m->B) +
             2 * dsums->matrix[j][j] * P * conj(P);
    double complex dP = -m->dinner * sums->rho[j] + 2 * dbeta * R * m->B + dg * conj(R) +
                        m->scale[j][j] * conj(dq) * R + 4 * dsums->matrix[j][j] * creal(R) * P;
    for (int64_t i = 0; i < s->rank; i++) {
        if (i == j) continue;
        const double complex other = rank_at(s, channel, i, n);
        *m->dk += m->unit[j][i] * creal(dq * other * conj(R));
        m->dR += m->scale[j][i] * dq * other + 2 * dsums->matrix[j][i] * P * conj(other);
        dP += m->scale[i][j] * conj(d[ls_system_q(i) * s->h + n]) * R +
              2 * (dsums->matrix[j][i] * R + dsums->matrix[i][j] * conj(R)) * other;
    }
    add_pair(s, LS_SSM_P, j * s->S * s->h + shared_at(s, channel, n), dP);
}

/* Into dpole [h], dstep [steps] and the gradients of B and P. */
static void bilinear_gradient(const ls_ssm *s, int64_t channel, const double complex *d,
                              double complex *dpole, double *dstep) {
    const int64_t h = s->h;
    const ranks sums = ranks_of(s, channel);
    const dranks dsums = common_gradient(s, channel, &sums, d);
    double k = 0, scale[MOST][MOST], unit[MOST][MOST];
    inverse_times(&sums, 2, unit);
    for (int64_t n = 0; n < h; n++) {
        if (n < s->steps) {
            k = 2 / step_size(s, channel, n);
            inverse_times(&sums, 2 * k, scale);
        }
        double complex L = pole(s, channel, n), R = 1 / (k - L);
        double complex da = d[LS_SYSTEM_A * h + n], db = d[LS_SYSTEM_B * h + n];
        mode_back m = {.R = R,
                       .B = pair_at(s, LS_SSM_B, shared_at(s, channel, n)),
                       .dinner = 2 * db * conj(R),
                       .scale = scale,
                       .unit = unit,
                       .dR = da * conj(k + L) + 2 * db * conj(inner_of(s, channel, n, &sums)),
                       .dk = &dstep[n % s->steps]};
        double complex dB = m.dinner;
        for (int64_t j = 0; j < s->rank; j++) {
            dB += 2 * dsums.beta[j] * rank_at(s, channel, j, n) * conj(R);
            rank_back(s, channel, n, j, &sums, &dsums, d, &m);
        }
        add_pair(s, LS_SSM_B, shared_at(s, channel, n), dB);
        double complex through = m.dR * conj(R * R);
        dpole[n] = through + da * conj(R);
        dstep[n % s->steps] += creal(da * conj(R)) - creal(through);
    }
    for (int64_t n = 0; n < s->steps; n++) {
        const double step = step_size(s, channel, n);
        dstep[n] *= -2 / (step * step);
    }
}

/* ---- zero-order hold, without a rank ---- */

static void zero_order(const ls_ssm *s, int64_t channel, double complex *system) {
    double step = 0;
    for (int64_t n = 0; n < s->h; n++) {
        if (n < s->steps) step = step_size(s, channel, n);
        const ls_held held = ls_held_zoh(step * pole(s, channel, n));
        system[LS_SYSTEM_A * s->h + n] = held.a;
        system[LS_SYSTEM_B * s->h + n] =
            step * held.w * pair_at(s, LS_SSM_B, shared_at(s, channel, n));
    }
}

static void zero_order_gradient(const ls_ssm *s, int64_t channel, const double complex *d,
                                double complex *dpole, double *dstep) {
    double step = 0;
    for (int64_t n = 0; n < s->h; n++) {
        const int64_t i = shared_at(s, channel, n);
        if (n < s->steps) step = step_size(s, channel, n);
        double complex L = pole(s, channel, n), db = d[LS_SYSTEM_B * s->h + n];
        const ls_held held = ls_held_zoh(step * L);
        double complex dgain = db * conj(pair_at(s, LS_SSM_B, i)); /* of step w */
        double complex dz =
            d[LS_SYSTEM_A * s->h + n] * conj(held.a_slope) + step * dgain * conj(held.w_slope);
        add_pair(s, LS_SSM_B, i, step * db * conj(held.w));
        dpole[n] = step * dz;
        dstep[n % s->steps] += creal(dgain * conj(held.w) + dz * conj(L));
    }
}

/* ---- the recurrence, one step ---- */

static double rank_sum(const ls_ssm *s, const double complex *system, const double complex *x,
                       int64_t j) {
    double sigma = 0;
    for (int64_t n = 0; n < s->h; n++) sigma += 2 * creal(system[ls_system_q(j) * s->h + n] * x[n]);
    return sigma;
}

void ls_ssm_advance(const ls_ssm *s, const double complex *system, double u, double complex *x) {
    double sigma[MOST];
    for (int64_t j = 0; j < s->rank; j++) sigma[j] = rank_sum(s, system, x, j);
    for (int64_t n = 0; n < s->h; n++) {
        x[n] = system[LS_SYSTEM_A * s->h + n] * x[n] + system[LS_SYSTEM_B * s->h + n] * u;
        for (int64_t j = 0; j < s->rank; j++) x[n] -= system[ls_system_g(j) * s->h + n] * sigma[j];
    }
}

void ls_ssm_retreat(const ls_ssm *s, const double complex *system, const double complex *x,
                    double complex *l, double complex *d) {
    const int64_t h = s->h;
    double dsigma[MOST] = {0};
    for (int64_t j = 0; j < s->rank; j++) {
        const double sigma = rank_sum(s, system, x, j);
        for (int64_t n = 0; n < h; n++) {
            dsigma[j] -= creal(l[n] * conj(system[ls_system_g(j) * h + n]));
            d[ls_system_g(j) * h + n] -= l[n] * sigma;
        }
    }
    for (int64_t n = 0; n < h; n++) {
        d[LS_SYSTEM_A * h + n] += l[n] * conj(x[n]);
        l[n] *= conj(system[LS_SYSTEM_A * h + n]);
        for (int64_t j = 0; j < s->rank; j++) {
            l[n] += 2 * dsigma[j] * conj(system[ls_system_q(j) * h + n]);
            d[ls_system_q(j) * h + n] += 2 * dsigma[j] * conj(x[n]);
        }
    }
}

/* ---- C from C~ = C (1 - A^n) ----
 *
 * As real numbers: the state is [re x | im x], M the step, the output row [2 re c | -2 im c] =: c.
 * c (1 - M^n) = c~ is one linear system per channel. */

static void multiply(int64_t N, const double *a, const double *b, double *out) {
    for (int64_t i = 0; i < N; i++) {
        for (int64_t j = 0; j < N; j++) out[i * N + j] = 0;
        for (int64_t k = 0; k < N; k++)
            for (int64_t j = 0; j < N; j++) out[i * N + j] += a[i * N + k] * b[k * N + j];
    }
}

/* scratch: [0] the result 1 - M^n, [1] M and its squares, [2] room; each N x N. */
static void tilde_matrix(const ls_ssm *s, const double complex *system, double *scratch) {
    const int64_t h = s->h, N = 2 * h;
    double *power = scratch, *square = power + N * N, *room = square + N * N;
    for (int64_t j = 0; j < N; j++) { /* column j of M: what a unit state becomes */
        double complex *x = (double complex *)room;
        for (int64_t n = 0; n < h; n++) x[n] = 0;
        x[j % h] = j < h ? 1 : I;
        ls_ssm_advance(s, system, 0, x);
        for (int64_t n = 0; n < h; n++) {
            square[n * N + j] = creal(x[n]);
            square[(h + n) * N + j] = cimag(x[n]);
        }
    }
    for (int64_t i = 0; i < N * N; i++) power[i] = i / N == i % N;
    for (int64_t left = s->about.tilde; left > 0; left /= 2) {
        if (left % 2 == 1) {
            multiply(N, power, square, room);
            memcpy(power, room, (size_t)(N * N) * sizeof *power);
        }
        multiply(N, square, square, room);
        memcpy(square, room, (size_t)(N * N) * sizeof *square);
    }
    for (int64_t i = 0; i < N * N; i++) power[i] = (i / N == i % N) - power[i];
}

static void output_from_tilde(const ls_ssm *s, double complex *system, double *scratch) {
    const int64_t h = s->h, N = 2 * h;
    double complex *c = system + LS_SYSTEM_C * h;
    double *row = scratch + 3 * N * N;
    tilde_matrix(s, system, scratch);
    transpose_in_place(N, scratch);
    for (int64_t n = 0; n < h; n++) row[n] = creal(c[n]), row[h + n] = -cimag(c[n]);
    solve(N, scratch, row);
    for (int64_t n = 0; n < h; n++) c[n] = ls_complex(row[n], -row[h + n]);
}

/* dc becomes dc~; what M^n has to do with it goes to a, g and q: its gradient is the outer product
 * of c and dc~, taken through every one of the n steps. */
static void tilde_gradient(const ls_ssm *s, const double complex *system, double complex *d,
                           double *scratch) {
    const int64_t h = s->h, N = 2 * h, steps = s->about.tilde;
    const double complex *c = system + LS_SYSTEM_C * h;
    double complex *dc = d + LS_SYSTEM_C * h, *l = (double complex *)(scratch + 3 * N * N);
    double complex *x = l + h; /* x_j = M^j dc~, j < steps */
    double *row = (double *)l;
    tilde_matrix(s, system, scratch);
    /* as rows: c = [2 re | -2 im], so d/dc is half of dc, and its imaginary part is transposed */
    for (int64_t n = 0; n < h; n++) row[n] = creal(dc[n]) / 2, row[h + n] = -cimag(dc[n]) / 2;
    solve(N, scratch, row);
    for (int64_t n = 0; n < h; n++) {
        x[n] = ls_complex(row[n], row[h + n]);
        dc[n] = ls_complex(2 * row[n], -2 * row[h + n]);
    }
    for (int64_t j = 1; j < steps; j++) {
        memcpy(x + j * h, x + (j - 1) * h, (size_t)h * sizeof *x);
        ls_ssm_advance(s, system, 0, x + j * h);
    }
    for (int64_t n = 0; n < h; n++) l[n] = 2 * conj(c[n]);
    for (int64_t j = steps - 1; j >= 0; j--) ls_ssm_retreat(s, system, x + j * h, l, d);
}

/* ---- together ---- */

/* Gradients of poles and of step sizes, in whole complex numbers. */
static int64_t own_scratch(const ls_ssm *s) {
    return 2 * s->h + ls_round_up(s->steps, 2);
}

int64_t ls_ssm_workspace(const ls_ssm *s, bool gradient) {
    const int64_t N = 2 * s->h, own = own_scratch(s);
    if (s->about.tilde == 0) return own;
    return own + 3 * N * N + N + (gradient ? s->about.tilde * N : 0);
}

void ls_ssm_discretise(const ls_ssm *s, int64_t channel, double complex *system, double *scratch) {
    for (int64_t n = 0; n < s->h; n++)
        system[LS_SYSTEM_C * s->h + n] =
            in_band(s, channel, n) ? pair_at(s, LS_SSM_C, own_at(s, channel, n)) : 0;
    if (s->about.hold == LS_HOLD_ZOH)
        zero_order(s, channel, system);
    else
        bilinear(s, channel, system);
    if (s->about.tilde > 0) output_from_tilde(s, system, scratch + own_scratch(s));
}

void ls_ssm_gradient(const ls_ssm *s, int64_t channel, const double complex *system,
                     double complex *d, double *scratch) {
    double complex *dpole = (double complex *)scratch;
    double *dstep = scratch + 2 * s->h;
    for (int64_t n = 0; n < s->steps; n++) dstep[n] = 0;
    if (s->about.tilde > 0) tilde_gradient(s, system, d, scratch + own_scratch(s));
    if (s->about.hold == LS_HOLD_ZOH)
        zero_order_gradient(s, channel, d, dpole, dstep);
    else
        bilinear_gradient(s, channel, d, dpole, dstep);
    for (int64_t n = 0; n < s->h; n++) {
        int64_t i = shared_at(s, channel, n);
        double complex slopes;
        pole_with(s, channel, n, &slopes);
        if (in_band(s, channel, n))
            add_pair(s, LS_SSM_C, own_at(s, channel, n), d[LS_SYSTEM_C * s->h + n]);
        add_real(s, LS_SSM_A_REAL, i, creal(dpole[n]) * creal(slopes));
        if (paired(s)) add_real(s, LS_SSM_A_IMAG, i, cimag(dpole[n]) * cimag(slopes));
    }
    for (int64_t n = 0; n < s->steps; n++) {
        double slope;
        step_with(s, channel, n, &slope);
        add_real(s, LS_SSM_DT, step_at(s, channel, n), dstep[n] * slope);
    }
}
