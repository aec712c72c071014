/* How a pole of a linear system becomes discrete. In double: what is a rounding here would turn
 * phases over long times. */
#ifndef LS_TENSOR_CPU_HOLD_H
#define LS_TENSOR_CPU_HOLD_H

#include <complex.h>
#include <math.h>
#include <string.h>

#include "tensor/op/state_space/state_space.h"

/* re + i im; CMPLX is not there with every compiler. */
static inline double complex ls_complex(double re, double im) {
    double parts[2] = {re, im};
    double complex z;
    memcpy(&z, parts, sizeof z);
    return z;
}

/* x' = L x + u becomes x <- a x + step w u; both are functions of z = step L,
 * as are their slopes. */
typedef struct ls_held {
    double complex a, w, a_slope, w_slope;
} ls_held;

/* w = (e^z - 1) / z without the loss of digits near 0. */
static inline ls_held ls_held_zoh(double complex z) {
    const double x = creal(z), y = cimag(z), half = sin(y / 2), grown = exp(x);
    const double complex a = ls_complex(grown * cos(y), grown * sin(y));
    ls_held h = {.a = a, .a_slope = a};
    if (cabs(z) < 1e-3) {
        h.w = 1 + z * (1.0 / 2 + z * (1.0 / 6 + z * (1.0 / 24 + z / 120)));
        h.w_slope = 1.0 / 2 + z * (1.0 / 3 + z * (1.0 / 8 + z * (1.0 / 30 + z / 144)));
    } else {
        h.w = ls_complex(expm1(x) * cos(y) - 2 * half * half, grown * sin(y)) / z;
        h.w_slope = (a - h.w) / z;
    }
    return h;
}

static inline ls_held ls_held_bilinear(double complex z) {
    const double complex w = 1 / (1 - z / 2);
    return (ls_held){.a = (1 + z / 2) * w, .w = w, .a_slope = w * w, .w_slope = w * w / 2};
}

static inline ls_held ls_hold_at(ls_hold hold, double complex z) {
    return hold == LS_HOLD_ZOH ? ls_held_zoh(z) : ls_held_bilinear(z);
}

#endif
