/* See ssm_system.h. A warp has one channel, its lanes the modes. Gradients of complex numbers are
 * d/d re + i d/d im: for w = f(z), dz += dw conj(f'(z)). */
#include "tensor/cuda/lib/ssm_system.h"

enum { WARP = 32, WARPS = 4 };

/* One channel. */
struct channel_of {
    const ls_cuda_ssm &s;
    int64_t d;
    int h, lane;
    ls_cuda_complex *system, *dsystem; /* [parts][h] */

    __device__ __forceinline__ channel_of(const ls_cuda_ssm &ssm, int64_t channel)
        : s(ssm), d(channel), h(ssm.modes.h), lane(threadIdx.x) {
        const int64_t at = d * LS_CUDA_MODES_PARTS * h;
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
    __device__ __forceinline__ ls_cuda_complex P(int n) const {
        return s.modes.ranked ? pair(LS_SSM_P, shared_at(n)) : make_double2(0, 0);
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
     * With k = 2/step of the mode and R = 1/(k - L): a = (k + L) R, and by the Woodbury identity
     * r = 1 + 2 Re sum |P|^2 R, b = 2 R (B - P rho), rho = 2 Re sum(P* R B) / r, g = R P,
     * q = (2 k / r) P* R. */

    __device__ __forceinline__ ls_cuda_complex resolvent(double k, int n) const {
        return ls_cuda_inverse(make_double2(k, 0) - pole(n));
    }

    __device__ void ranks(double *r, double *rho) const {
        double sum = 0, along = 0;
        for (int n = lane; s.modes.ranked && n < h; n += WARP) {
            const ls_cuda_complex p = P(n), R = resolvent(2 / step(n), n);
            sum += 2 * (p * ls_cuda_conj(p) * R).x;
            along += 2 * (ls_cuda_conj(p) * R * B(n)).x;
        }
        *r = 1 + ls_cuda_warp_sum(sum);
        *rho = ls_cuda_warp_sum(along) / *r;
    }

    __device__ void bilinear() const {
        double r, rho;
        ranks(&r, &rho);
        for (int n = lane; n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex p = P(n), R = resolvent(k, n);
            system[LS_CUDA_MODES_A * h + n] = (make_double2(k, 0) + pole(n)) * R;
            system[LS_CUDA_MODES_B * h + n] = 2.0 * (R * (B(n) - rho * p));
            system[LS_CUDA_MODES_G * h + n] = R * p;
            system[LS_CUDA_MODES_Q * h + n] = 4 * k / r * (ls_cuda_conj(p) * R);
        }
    }

    __device__ void zero_order() const {
        const ls_cuda_complex none = make_double2(0, 0);
        for (int n = lane; n < h; n += WARP) {
            const double size = step(n);
            const ls_cuda_held held = ls_cuda_held_zoh(size * pole(n));
            system[LS_CUDA_MODES_A * h + n] = held.a;
            system[LS_CUDA_MODES_B * h + n] = size * (held.w * B(n));
            system[LS_CUDA_MODES_G * h + n] = system[LS_CUDA_MODES_Q * h + n] = none;
        }
    }

    /* ---- gradients: of a pole instead of a's, of B instead of b's, of P instead of g's ---- */

    /* Keeps one mode's; A_real and A_imag are what is behind a pole. */
    __device__ __forceinline__ void keep(int n, ls_cuda_complex dpole, ls_cuda_complex dB,
                                         ls_cuda_complex dP) const {
        ls_cuda_complex slopes;
        pole_with(n, &slopes);
        dsystem[LS_CUDA_MODES_A * h + n] = make_double2(dpole.x * slopes.x, dpole.y * slopes.y);
        dsystem[LS_CUDA_MODES_B * h + n] = dB;
        dsystem[LS_CUDA_MODES_G * h + n] = dP;
    }

    /* Returns this lane's part of the gradient of the step size that all modes have. */
    __device__ double bilinear_gradient() const {
        double r, rho, drho = 0, dinverse = 0, dstep = 0; /* inverse: the 1 / r of q */
        ranks(&r, &rho);
        for (int n = lane; s.modes.ranked && n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex p = P(n), R = resolvent(k, n);
            const ls_cuda_complex dq = 2.0 * dsystem[LS_CUDA_MODES_Q * h + n];
            drho -= 2 * (dsystem[LS_CUDA_MODES_B * h + n] * ls_cuda_conj(R * p)).x;
            dinverse += 2 * k * (dq * p * ls_cuda_conj(R)).x;
        }
        drho = ls_cuda_warp_sum(drho);
        dinverse = ls_cuda_warp_sum(dinverse);
        const double dbeta = drho / r, dr = -dbeta * rho - dinverse / (r * r);
        for (int n = lane; n < h; n += WARP) {
            const double k = 2 / step(n);
            const ls_cuda_complex L = pole(n), R = resolvent(k, n), in = B(n), p = P(n);
            const ls_cuda_complex da = dsystem[LS_CUDA_MODES_A * h + n];
            const ls_cuda_complex db = dsystem[LS_CUDA_MODES_B * h + n];
            const ls_cuda_complex dg = dsystem[LS_CUDA_MODES_G * h + n];
            const ls_cuda_complex dq = 2.0 * dsystem[LS_CUDA_MODES_Q * h + n];
            const ls_cuda_complex dinner = 2.0 * (db * ls_cuda_conj(R)); /* of B - P rho */
            ls_cuda_complex dR =
                da * ls_cuda_conj(make_double2(k, 0) + L) + 2.0 * (db * ls_cuda_conj(in - rho * p));
            ls_cuda_complex dP = make_double2(0, 0);
            double dk = 0;
            if (s.modes.ranked) {
                const double scale = 2 * k / r;
                dk = 2 / r * (dq * p * ls_cuda_conj(R)).x;
                dR = dR + dg * ls_cuda_conj(p) + scale * (dq * p) +
                     2 * dbeta * (p * ls_cuda_conj(in)) + 2 * dr * (p * ls_cuda_conj(p));
                dP = -rho * dinner + 2 * dbeta * (R * in) + dg * ls_cuda_conj(R) +
                     scale * (ls_cuda_conj(dq) * R) + 4 * dr * R.x * p;
            }
            const ls_cuda_complex through = dR * ls_cuda_conj(R * R);
            const ls_cuda_complex direct = da * ls_cuda_conj(R);
            /* by a step, k = 2 / step has the slope -k k / 2 */
            dstep += give_step(n, -0.5 * k * k * (dk + direct.x - through.x));
            keep(n, through + direct, dinner + 2 * dbeta * (p * ls_cuda_conj(R)), dP);
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
            keep(n, size * dz, size * (db * ls_cuda_conj(held.w)), make_double2(0, 0));
        }
        return dstep;
    }
};

static __global__ void __launch_bounds__(WARP *WARPS) discretise_kernel(const ls_cuda_ssm s) {
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= s.modes.channels) return;
    const channel_of c(s, d);
    for (int n = c.lane; n < c.h; n += WARP)
        c.system[LS_CUDA_MODES_C * c.h + n] =
            c.in_band(n) ? 2.0 * c.pair(LS_SSM_C, c.own_at(n)) : make_double2(0, 0);
    if (s.about.hold == LS_HOLD_ZOH)
        c.zero_order();
    else
        c.bilinear();
}

void ls_cuda_ssm_discretise(const ls_run *run, const ls_cuda_ssm *ssm) {
    discretise_kernel<<<ls_cuda_blocks(ssm->modes.channels, WARPS), dim3(WARP, WARPS), 0,
                        ls_cuda_of(run)->stream>>>(*ssm);
    ls_cuda_launched(run, "state space made discrete");
    if (ssm->about.tilde > 0) ls_cuda_ssm_from_tilde(run, ssm);
}

/* C and the step sizes are a channel's own; the rest stays in dsystems. */
static __global__ void __launch_bounds__(WARP *WARPS) gradient_kernel(const ls_cuda_ssm s) {
    const int64_t d = (int64_t)blockIdx.x * WARPS + threadIdx.y;
    if (d >= s.modes.channels) return;
    const channel_of c(s, d);
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
    ls_cuda_complex dA = make_double2(0, 0), dB = dA, dP = dA;
#pragma unroll 4
    for (int64_t d = copy; d < s.modes.channels; d += s.S) {
        const ls_cuda_complex *from = s.dsystems + d * LS_CUDA_MODES_PARTS * h + n;
        dA = dA + from[LS_CUDA_MODES_A * h];
        dB = dB + from[LS_CUDA_MODES_B * h];
        dP = dP + from[LS_CUDA_MODES_G * h];
    }
    s.gradient[LS_SSM_A_REAL][i] += (float)dA.x;
    if (s.value[LS_SSM_A_IMAG] != NULL) {
        s.gradient[LS_SSM_A_IMAG][i] += (float)dA.y;
        add(s.gradient[LS_SSM_B], 2 * i, dB.x);
        add(s.gradient[LS_SSM_B], 2 * i + 1, dB.y);
    } else {
        add(s.gradient[LS_SSM_B], i, dB.x);
    }
    if (!s.modes.ranked) return;
    s.gradient[LS_SSM_P][2 * i] += (float)dP.x;
    s.gradient[LS_SSM_P][2 * i + 1] += (float)dP.y;
}

void ls_cuda_ssm_gradient(const ls_run *run, const ls_cuda_ssm *ssm) {
    cudaStream_t stream = ls_cuda_of(run)->stream;
    if (ssm->about.tilde > 0) ls_cuda_ssm_tilde_gradient(run, ssm);
    gradient_kernel<<<ls_cuda_blocks(ssm->modes.channels, WARPS), dim3(WARP, WARPS), 0, stream>>>(
        *ssm);
    shared_kernel<<<ls_cuda_blocks(ssm->S * ssm->modes.h, WARP), WARP, 0, stream>>>(*ssm);
    ls_cuda_launched(run, "gradients of a state space");
}
