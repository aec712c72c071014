#ifndef LS_TENSOR_OP_SINE_NETWORK_H
#define LS_TENSOR_OP_SINE_NETWORK_H

#include "tensor/engine/program.h"

/* A function of time that a network of sines draws. For position n of a row it is given
 *   x = [n/(l-1), cos(f_k w), -sin(f_k w)],  w = 2 pi n / l, f_k from 1e-4 to bands - 1 in even
 * steps or row n of a table of its own (0 beyond the table's end), and goes through the layers x <-
 * sin(frequency (weight x + bias)). Rows are wide [rows,F], for positions from the chunk's start
 * on, or from 0 on (relative). It is computed in double in any type. */
enum { LS_SINES_MAX = 8 };
typedef struct ls_sines {
    int layers;
    ls_tensor *weight[LS_SINES_MAX], *bias[LS_SINES_MAX]; /* wide parameters [F,in] and [F] */
    ls_tensor *frequency;                                 /* wide parameter [F], of all layers */
    ls_tensor *table;                                     /* wide parameter [..,R,in], or NULL */
    int64_t bands;                                        /* without a table */
    double length;                                        /* l */
} ls_sines;
ls_tensor *ls_sine_network(ls_program *p, const ls_sines *sines, int64_t rows, bool relative);
/* One element of what it is given of position n, for tables. */
double ls_sine_feature(int64_t n, int64_t column, int64_t bands, double length);
/* y[t,c] = x[t,c] (exp(-|rate[c]| n/length) + floor), n being the position of t as above; x wide
 * [rows,C], rate wide [C], constant or a parameter. */
ls_tensor *ls_fade(ls_program *p, ls_tensor *x, ls_tensor *rate, double length, double floor,
                   bool relative);
/* y[t,c] = x[t,c] / sum_c |x[t,c]|, for x wide [rows,C]; a row of zeros stays one, and a row
 * whose sum is below the type's smallest normal number counts as zeros. */
ls_tensor *ls_unit_rows(ls_program *p, ls_tensor *x);

/* ---- for the kernels ---- */

/* sine_network:      in frequency, table, then weight and bias of every layer; out rows
 * sine_network_grad: the same, then drows; adds to the parameters' gradients
 * fade:              in x, rate; out y (its gradient by x is the same operation)
 * fade_rate_grad:    in x, rate, dy; adds to the rate's gradient
 * unit_rows:         in x; out y
 * unit_rows_grad:    in x, dy; out dx
 * table may be NULL. */
enum { LS_SINE_FREQUENCY, LS_SINE_TABLE, LS_SINE_LAYERS };

typedef struct ls_sine_attributes {
    int layers;
    int64_t bands;
    double length;
    bool relative;
} ls_sine_attributes;

typedef struct ls_fade_attributes {
    double length, floor;
    bool relative;
} ls_fade_attributes;

#endif
