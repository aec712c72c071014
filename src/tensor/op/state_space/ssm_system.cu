/* See ssm_system.h. A warp has one channel, its lanes the modes. Gradients of complex numbers are
 * d/d re + i d/d im: for w = f(z), dz += dw conj(f'(z)). */
#include "tensor/op/state_space/ssm_system.cuh"

enum { WARP = 32, WARPS = 4 };
static_assert((int)LS_CUDA_MODES_RANK_MAX == (int)LS_STATE_SPACE_RANK_MAX, "ranks of a walk");

/* What all modes of a channel have in common: see `bilinear`. */
template <int R> struct channel_ranks { double matrix[R][R], rho[R]; };

/* Solves matrix x = right, or with the matrix transposed over, of `count` unknowns in place by
 * elimination with pivots. Every lane does the same. */
template <int R>
static __device__ void solve(int count, const double (&matrix)[R][R], bool transposed,
                             double (&right)[R]) {
    double left[R][R];
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) left[i][j] = transposed ? matrix[j][i] : matrix[i][j];
    for (int column = 0; column < count; column++) {
        int pivot = column;
        for (int i = column + 1; i < count; i++)
            if (fabs(left[i][column]) > fabs(left[pivot][column])) pivot = i;
        for (int j = 0; j < count; j++) {
            const double kept = left[column][j];
            left[column][j] = left[pivot][j];
            left[pivot][j] = kept;
        }
        const double kept = right[column];
        right[column] = right[pivot];
        right[pivot] = kept;
        for (int i = column + 1; i < count; i++) {
            const double factor = left[i][column] / left[column][column];
            for (int j = column; j < count; j++) left[i][j] -= factor * left[column][j];
            right[i] -= factor * right[column];
        }
    }
    for (int i = count - 1; i >= 0; i--) {
        for (int j = i + 1; j < count; j++) right[i] -= left[i][j] * right[j];
        right[i] /= left[i][i];
    }
}

/* One channel, of a rank of R at most. */
template <int R> struct channel_of {
    const ls_cuda_ssm &s;
    int64_t d;
    int h, lane;
    ls_cuda_complex *system, *dsystem; /* [parts][h] */

    __device__ __forceinline__ channel_of(const ls_cuda_ssm &ssm, int64_t channel)
        : s(ssm), d(channel), h(ssm.modes.h), lane(threadIdx.x) {
        const int64_t at = d * ls_cuda_modes_each(s.modes);
        system = s.modes.systems + at;
        dsystem = s.dsystems == NULL ? NULL : s.dsystems + at;
    }
    /* Where mode n stands in [S,h], and in C. */
    __device__ __forceinline__ int64_t shared_at(int n) const { return d % s.S * h + n; }
    __device__ __forceinline__ int64_t own_at(int n) const {
        return (s.about.side * s.modes.channels + d) * h + n;
    }
    /* Whether numbers are pairs of re and im. */
    __device__ __forceinline__ bool paired() const { return s.value[LS_SSM_A_IMAG] != NULL; }
    /* Of B, C or P; a B that is not there is 1. */
    __device__ __forceinline__ ls_cuda_complex pair(int which, int64_t i) const {
        if (s.value[which] == NULL) return make_double2(1, 0);
        if (!paired()) return make_double2(s.value[which][i], 0);
        return make_double2(s.value[which][2 * i], s.value[which][2 * i + 1]);
    }
    __device__ __forceinline__ ls_cuda_complex B(int n) const {
        return pair(LS_SSM_B, shared_at(n));
    }
    /* Known when this is compiled where it is 1 at most; without a rank P is 0. */
    __device__ __forceinline__ int rank() const { return R == 1 ? 1 : s.modes.rank; }
    __device__ __forceinline__ ls_cuda_complex P(int j, int n) const {
        if (s.modes.rank == 0) return make_double2(0, 0);
        return pair(LS_SSM_P, j * s.S * h + shared_at(n));
    }
    __device__ __forceinline__ double side_of_pole() const { return s.about.upper ? 1 : -1; }
    /* What is kept as x, and its slope there. */
    static __device__ __forceinline__ double kept_as(ls_kept kept, double x, double *slope) {
        if (kept == LS_KEPT_EXP) return *slope = exp(x);
        if (kept == LS_KEPT_SOFTPLUS) {
            *slope = 1 / (1 + exp(-x));
            return x > 30 ? x : log1p(exp(x));
        }
        if (kept == LS_KEPT_RELU) {
            *slope = x > 0;
            return fmax(x, 0.0) + 1e-4;
        }
        if (kept == LS_KEPT_SIGMOID) {
            const double size = 1 / (1 + exp(-x));
            *slope = size * (1 - size);
            return size;
        }
        *slope = 1;
        return x;
    }
    /* *slopes: of the real part by A_real and of the imaginary one by A_imag. */
    __device__ __forceinline__ ls_cuda_complex pole_with(int n, ls_cuda_complex *slopes) const {
        const int64_t i = shared_at(n);
        double along, around = 0, imag = 0;
        const double real = kept_as(s.about.real, s.value[LS_SSM_A_REAL][i], &along);
        if (paired()) imag = kept_as(s.about.imag, s.value[LS_SSM_A_IMAG][i], &around);
        *slopes = make_double2(-along, side_of_pole() * around);
        return make_double2(-real, side_of_pole() * imag);
    }
    __device__ __forceinline__ ls_cuda_complex pole(int n) const {
        ls_cuda_complex slopes;
        return pole_with(n, &slopes);
    }
    __device__ __forceinline__ int64_t step_at(int n) const {
        return s.steps == 1 ? d : d * s.steps + n;
    }
    __device__ __forceinline__ double step_with(int n, double *slope) const {
        const ls_kept kept = s.about.step == LS_STEP_EXP ? LS_KEPT_EXP : LS_KEPT_SOFTPLUS;
        const double size = kept_as(kept, s.value[LS_SSM_DT][step_at(n)], slope);
        *slope *= s.about.rate;
        return size * s.about.rate;
    }
    __device__ __forceinline__ double step(int n) const {
        double slope;
        return step_with(n, &slope);
    }
    /* Adds the gradient of mode n's step size where it is the mode's own; else returns it. */
    __device__ __forceinline__ double give_step(int n, double dstep) const {
        double slope;
        if (s.steps == 1) return dstep;
        step_with(n, &slope);
        s.gradient[LS_SSM_DT][step_at(n)] += (float)(dstep * slope);
        return 0;
    }
    /* Whether a mode is slow enough for the samples of a rate of 1, and is read at all. */
    __device__ __forceinline__ bool in_band(int n) const {
        const double turn = 6.28318530717958647692;
        if (s.about.band == 0) return true;
        return step(n) / s.about.rate * fabs(pole(n).y) / turn < s.about.band * 0.5;
    }

    /* ---- the bilinear step ----
     *
     * With k = 2/step of the mode and Z = 1/(k - L): a = (k + L) Z, and by the Woodbury identity,
     * M being the matrix [rank,rank] of 1 + 2 Re sum P_i* Z P_j, b = 2 Z (B - sum P_j rho_j),
     * M rho = 2 Re sum(P_j* Z B), g_j = Z P_j, and q_j = sum_i (M^-1)_ji 2 k P_i* Z. */

    __device__ __forceinline__ ls_cuda_complex resolvent(double k, int n) const {
        return ls_cuda_inverse(make_double2(k, 0) - pole(n));
    }

    __device__ channel_ranks<R> ranks() const {
        channel_ranks<R> out = {};
        for (int n = lane; s.modes.rank > 0 && n < h; n += WARP) {
            const ls_cuda_complex Z = resolvent(2 / step(n), n), in = B(n);
            for (int j = 0; j < rank(); j++) {
                const ls_cuda_complex p = P(j, n);
                for (int i = 0; i < rank(); i++)
                    out.matrix[j][i] += 2 * (P(i, n) * ls_cuda_conj(p) * Z).x;
                out.rho[j] += 2 * (ls_cuda_conj(p) * Z * in).x;
            }
        }
        for (int j = 0; j < rank(); j++) {
            for (int i = 0; i < rank(); i++)
                out.matrix[j][i] = (i == j) + ls_cuda_warp_sum(out.matrix[j][i]);
            out.rho[j] = ls_cuda_warp_sum(out.rho[j]);
        }
        solve<R>(rank(), out.matrix, false, out.rho);
        return out;
    }

    /* to = value M^-1. */
    __device__ void inverse_times(const channel_ranks<R> &all, double value,
                                  double (&to)[R][R]) const {
        for (int i = 0; i < rank(); i++) {
            double column[R];
            for (int j = 0; j < rank(); j++) column[j] = i == j ? value : 0;
            solve<R>(rank(), all.matrix, false, column);
            for (int j = 0; j < rank(); j++) to[j][i] = column[j];
        }
    }

    /* B - sum P rho */
    __device__ __forceinline__ ls_cuda_complex inner(int n, const channel_ranks<R> &all) const {
        ls_cuda_complex in = B(n);
        for (int j = 0; j < rank(); j++) in = in - all.rho[j] * P(j, n);
        return in;
    }

    __device__ void bilinear() const {
        const channel_ranks<R> all = ranks();
        for (int n = lane; n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex Z = resolvent(k, n);
            system[LS_CUDA_MODES_A * h + n] = (make_double2(k, 0) + pole(n)) * Z;
            system[LS_CUDA_MODES_B * h + n] = 2.0 * (Z * inner(n, all));
            if (s.modes.rank == 0) continue;
            double scale[R][R];
            inverse_times(all, 4 * k, scale);
            for (int j = 0; j < rank(); j++) {
                ls_cuda_complex q = make_double2(0, 0);
                for (int i = 0; i < rank(); i++) q = q + scale[j][i] * (ls_cuda_conj(P(i, n)) * Z);
                system[ls_cuda_modes_g(j) * h + n] = Z * P(j, n);
                system[ls_cuda_modes_q(j) * h + n] = q;
            }
        }
    }

    __device__ void zero_order() const {
        for (int n = lane; n < h; n += WARP) {
            const double size = step(n);
            const ls_cuda_held held = ls_cuda_held_zoh(size * pole(n));
            system[LS_CUDA_MODES_A * h + n] = held.a;
            system[LS_CUDA_MODES_B * h + n] = size * (held.w * B(n));
        }
    }

    /* ---- gradients: of a pole instead of a's, of B instead of b's, of P's rows instead of all g's
     * ---- */

    /* Keeps one mode's; A_real and A_imag are what is behind a pole. */
    __device__ __forceinline__ void keep(int n, ls_cuda_complex dpole, ls_cuda_complex dB) const {
        ls_cuda_complex slopes;
        pole_with(n, &slopes);
        dsystem[LS_CUDA_MODES_A * h + n] = make_double2(dpole.x * slopes.x, dpole.y * slopes.y);
        dsystem[LS_CUDA_MODES_B * h + n] = dB;
    }

    /* Gradients of 2 Re sum(P_j* Z B) and of M. */
    struct common {
        double beta[R], matrix[R][R];
    };

    /* Of the M^-1 of q, to that of -M. A single number is divided once, by its square. */
    __device__ void through_inverse(const channel_ranks<R> &all, double (&to)[R][R]) const {
        if (rank() == 1) {
            to[0][0] /= all.matrix[0][0] * all.matrix[0][0];
            return;
        }
        for (int i = 0; i < rank(); i++) {
            double column[R];
            for (int j = 0; j < rank(); j++) column[j] = to[j][i];
            solve<R>(rank(), all.matrix, true, column);
            for (int j = 0; j < rank(); j++) to[j][i] = column[j];
        }
        for (int j = 0; j < rank(); j++) solve<R>(rank(), all.matrix, false, to[j]);
    }

    __device__ common common_gradient(const channel_ranks<R> &all) const {
        common out = {};
        double dinverse[R][R] = {};
        for (int n = lane; s.modes.rank > 0 && n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex Z = resolvent(k, n), db = dsystem[LS_CUDA_MODES_B * h + n];
            for (int j = 0; j < rank(); j++) {
                const ls_cuda_complex dq = 2.0 * dsystem[ls_cuda_modes_q(j) * h + n];
                out.beta[j] -= 2 * (db * ls_cuda_conj(Z * P(j, n))).x; /* of rho */
                for (int i = 0; i < rank(); i++)
                    dinverse[j][i] += 2 * k * (dq * P(i, n) * ls_cuda_conj(Z)).x;
            }
        }
        for (int j = 0; j < rank(); j++) {
            out.beta[j] = ls_cuda_warp_sum(out.beta[j]);
            for (int i = 0; i < rank(); i++) dinverse[j][i] = ls_cuda_warp_sum(dinverse[j][i]);
        }
        solve<R>(rank(), all.matrix, true, out.beta);
        through_inverse(all, dinverse);
        for (int j = 0; j < rank(); j++)
            for (int i = 0; i < rank(); i++)
                out.matrix[j][i] = -out.beta[j] * all.rho[i] - dinverse[j][i];
        return out;
    }

    /* What rank j has to do with mode n: adds to dZ and dk, keeps the gradient of P. */
    __device__ __forceinline__ void rank_back(int n, int j, ls_cuda_complex Z,
                                              const channel_ranks<R> &all, const common &d,
                                              const double (&scale)[R][R],
                                              const double (&unit)[R][R], ls_cuda_complex dinner,
                                              ls_cuda_complex *dZ, double *dk) const {
        const ls_cuda_complex in = B(n), p = P(j, n);
        const ls_cuda_complex dg = dsystem[ls_cuda_modes_g(j) * h + n];
        const ls_cuda_complex dq = 2.0 * dsystem[ls_cuda_modes_q(j) * h + n];
        *dk += unit[j][j] * (dq * p * ls_cuda_conj(Z)).x;
        *dZ = *dZ + dg * ls_cuda_conj(p) + scale[j][j] * (dq * p) +
              2 * d.beta[j] * (p * ls_cuda_conj(in)) + 2 * d.matrix[j][j] * (p * ls_cuda_conj(p));
        ls_cuda_complex dP = -all.rho[j] * dinner + 2 * d.beta[j] * (Z * in) +
                             dg * ls_cuda_conj(Z) + scale[j][j] * (ls_cuda_conj(dq) * Z) +
                             4 * d.matrix[j][j] * Z.x * p;
        for (int i = 0; i < rank(); i++) {
            if (i == j) continue;
            const ls_cuda_complex other = P(i, n);
            const ls_cuda_complex their_dq = 2.0 * dsystem[ls_cuda_modes_q(i) * h + n];
            *dk += unit[j][i] * (dq * other * ls_cuda_conj(Z)).x;
            *dZ = *dZ + scale[j][i] * (dq * other) + 2 * d.matrix[j][i] * (p * ls_cuda_conj(other));
            dP = dP + scale[i][j] * (ls_cuda_conj(their_dq) * Z) +
                 2.0 * ((d.matrix[j][i] * Z + d.matrix[i][j] * ls_cuda_conj(Z)) * other);
        }
        dsystem[ls_cuda_modes_g(j) * h + n] = dP;
    }

    /* Returns this lane's part of the gradient of the step size that all modes have. */
    __device__ double bilinear_gradient() const {
        const channel_ranks<R> all = ranks();
        const common d = common_gradient(all);
        double dstep = 0, unit[R][R];
        inverse_times(all, 2, unit);
        for (int n = lane; n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex L = pole(n), Z = resolvent(k, n);
            const ls_cuda_complex da = dsystem[LS_CUDA_MODES_A * h + n];
            const ls_cuda_complex db = dsystem[LS_CUDA_MODES_B * h + n];
            const ls_cuda_complex dinner = 2.0 * (db * ls_cuda_conj(Z)); /* of B - sum P rho */
            ls_cuda_complex dB = dinner;
            ls_cuda_complex dZ = da * ls_cuda_conj(make_double2(k, 0) + L) +
                                 2.0 * (db * ls_cuda_conj(inner(n, all)));
            double dk = 0, scale[R][R];
            inverse_times(all, 2 * k, scale);
            for (int j = 0; s.modes.rank > 0 && j < rank(); j++) {
                dB = dB + 2 * d.beta[j] * (P(j, n) * ls_cuda_conj(Z));
                rank_back(n, j, Z, all, d, scale, unit, dinner, &dZ, &dk);
            }
            const ls_cuda_complex through = dZ * ls_cuda_conj(Z * Z);
            const ls_cuda_complex direct = da * ls_cuda_conj(Z);
            /* by a step, k = 2 / step has the slope -k k / 2 */
            dstep += give_step(n, -0.5 * k * k * (dk + direct.x - through.x));
            keep(n, through + direct, dB);
        }
        return dstep;
    }

    __device__ double zero_order_gradient() const {
        double dstep = 0;
        for (int n = lane; n < h; n += WARP) {
            const ls_cuda_complex L = pole(n), db = dsystem[LS_CUDA_MODES_B * h + n];
            const double size = step(n);
            const ls_cuda_held held = ls_cuda_held_zoh(size * L);
            const ls_cuda_complex dgain = db * ls_cuda_conj(B(n)); /* of step w */
            const ls_cuda_complex dz =
                dsystem[LS_CUDA_MODES_A * h + n] * ls_cuda_conj(held.a_slope) +
                size * (dgain * ls_cuda_conj(held.w_slope));
            dstep += give_step(n, (dgain * ls_cuda_conj(held.w) + dz * ls_cuda_conj(L)).x);
            keep(n, size * dz, size * (db * ls_cuda_conj(held.w)));
        }
        return dstep;
    }
};

template <int R>
static __global__ void __launch_bounds__(WARP *WARPS) discretise_kernel(const ls_cuda_ssm s) {
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= s.modes.channels) return;
    const channel_of<R> c(s, d);
    for (int n = c.lane; n < c.h; n += WARP)
        c.system[LS_CUDA_MODES_C * c.h + n] =
            c.in_band(n) ? 2.0 * c.pair(LS_SSM_C, c.own_at(n)) : make_double2(0, 0);
    if (s.about.hold == LS_HOLD_ZOH)
        c.zero_order();
    else
        c.bilinear();
}

void ls_cuda_ssm_discretise(const ls_run *run, const ls_cuda_ssm *ssm) {
    const unsigned blocks = ls_cuda_blocks(ssm->modes.channels, WARPS);
    const dim3 threads(WARP, WARPS);
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (ssm->modes.rank <= 1)
        discretise_kernel<1><<<blocks, threads, 0, stream>>>(*ssm);
    else
        discretise_kernel<LS_CUDA_MODES_RANK_MAX><<<blocks, threads, 0, stream>>>(*ssm);
    ls_cuda_launched(run, "state space made discrete");
    if (ssm->about.tilde > 0) ls_cuda_ssm_from_tilde(run, ssm);
}

/* C and the step sizes are a channel's own; the rest stays in dsystems. */
template <int R>
static __global__ void __launch_bounds__(WARP *WARPS) gradient_kernel(const ls_cuda_ssm s) {
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= s.modes.channels) return;
    const channel_of<R> c(s, d);
    for (int n = c.lane; n < c.h; n += WARP) {
        if (!c.in_band(n)) continue;
        const ls_cuda_complex dC = 2.0 * c.dsystem[LS_CUDA_MODES_C * c.h + n];
        float *to = s.gradient[LS_SSM_C] + (c.paired() ? 2 : 1) * c.own_at(n);
        to[0] += (float)dC.x;
        if (c.paired()) to[1] += (float)dC.y;
    }
    double slope,
        dstep = s.about.hold == LS_HOLD_ZOH ? c.zero_order_gradient() : c.bilinear_gradient();
    dstep = ls_cuda_warp_sum(dstep);
    c.step_with(0, &slope);
    if (c.lane == 0 && s.steps == 1) s.gradient[LS_SSM_DT][d] += (float)(dstep * slope);
}

/* To a gradient, where there is one. */
static __device__ __forceinline__ void add(float *gradient, int64_t i, double value) {
    if (gradient != NULL) gradient[i] += (float)value;
}

/* A thread has one mode of one copy; channels of the copy are added in their order. */
static __global__ void __launch_bounds__(WARP) shared_kernel(const ls_cuda_ssm s) {
    const int64_t i = (int64_t)blockIdx.x * WARP + threadIdx.x;
    const int h = s.modes.h;
    const int64_t copy = i / h, n = i % h;
    if (copy >= s.S) return;
    const int64_t each = ls_cuda_modes_each(s.modes);
    ls_cuda_complex dA = make_double2(0, 0), dB = dA;
#pragma unroll 4
    for (int64_t d = copy; d < s.modes.channels; d += s.S) {
        const ls_cuda_complex *from = s.dsystems + d * each + n;
        dA = dA + from[LS_CUDA_MODES_A * h];
        dB = dB + from[LS_CUDA_MODES_B * h];
    }
    s.gradient[LS_SSM_A_REAL][i] += (float)dA.x;
    if (s.value[LS_SSM_A_IMAG] != NULL) {
        s.gradient[LS_SSM_A_IMAG][i] += (float)dA.y;
        add(s.gradient[LS_SSM_B], 2 * i, dB.x);
        add(s.gradient[LS_SSM_B], 2 * i + 1, dB.y);
    } else {
        add(s.gradient[LS_SSM_B], i, dB.x);
    }
    for (int j = 0; j < s.modes.rank; j++) {
        ls_cuda_complex dP = make_double2(0, 0);
#pragma unroll 4
        for (int64_t d = copy; d < s.modes.channels; d += s.S)
            dP = dP + s.dsystems[d * each + ls_cuda_modes_g(j) * h + n];
        float *to = s.gradient[LS_SSM_P] + 2 * (j * s.S * h + i);
        to[0] += (float)dP.x;
        to[1] += (float)dP.y;
    }
}

void ls_cuda_ssm_gradient(const ls_run *run, const ls_cuda_ssm *ssm) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (ssm->about.tilde > 0) ls_cuda_ssm_tilde_gradient(run, ssm);
    const unsigned blocks = ls_cuda_blocks(ssm->modes.channels, WARPS);
    const dim3 threads(WARP, WARPS);
    if (ssm->modes.rank <= 1)
        gradient_kernel<1><<<blocks, threads, 0, stream>>>(*ssm);
    else
        gradient_kernel<LS_CUDA_MODES_RANK_MAX><<<blocks, threads, 0, stream>>>(*ssm);
    shared_kernel<<<ls_cuda_blocks(ssm->S * ssm->modes.h, WARP), WARP, 0, stream>>>(*ssm);
    ls_cuda_launched(run, "gradients of a state space");
}
