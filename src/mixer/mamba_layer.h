/* What the blocks of Mamba and Mamba-2 share: projections, the short convolution, and initial
 * values. */
#ifndef LS_MIXER_MAMBA_LAYER_H
#define LS_MIXER_MAMBA_LAYER_H

#include "mixer/mixer.h"

/* Uniform within 1/sqrt(inputs), as the published models have it, over `shrink`. */
ls_init ls_mamba_uniform(int64_t inputs, double shrink);
/* f32 in every program, and without weight decay. */
ls_init ls_mamba_full(ls_init init);
/* The bias whose softplus is a step size, log-uniform in [min, max] and not below `floor`. */
ls_init ls_mamba_dt_bias(double min, double max, double floor);

/* NAME.weight x [+ NAME.bias]. */
ls_tensor *ls_mamba_project(ls_program *p, const char *name, ls_tensor *x, int64_t out,
                            ls_init init, bool biased);
/* silu(conv(x)) with `taps` taps in every channel, the last taps - 1 rows of x being the state. */
ls_tensor *ls_mamba_convolve(ls_program *p, ls_tensor *x, int64_t taps, ls_init init, bool biased);

#endif
