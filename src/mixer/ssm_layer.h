/* The layer of S4 and S4D: kernel, skip, GELU, output product with a gate. The two differ in their
 * state space alone. */
#ifndef LS_MIXER_SSM_LAYER_H
#define LS_MIXER_SSM_LAYER_H

#include "mixer/hippo.h"
#include "mixer/mixer.h"

typedef struct ls_ssm_options {
    int64_t d_state, copies, rank, tilde, l_max, channels;
    double dt_min, dt_max, rate, bandlimit;
    int step, hold, init, measure, activation, output, real, imag, input;
    bool untied, upper, plain;
} ls_ssm_options;

/* The options that both have. */
#define LS_SSM_FIELD(name) offsetof(ls_ssm_options, name)
#define LS_SSM_D_STATE                                                                             \
    "d_state", LS_OPTION_INT, LS_SSM_FIELD(d_state), "64", 2, 1024, NULL,                          \
        "states of each channel, in conjugate pairs"
#define LS_SSM_COPIES                                                                              \
    "copies", LS_OPTION_INT, LS_SSM_FIELD(copies), "0", 0, 1e6, NULL,                              \
        "independent A and B, shared by the channels in turn; 0: one per channel"
#define LS_SSM_DT_MIN                                                                              \
    "dt_min", LS_OPTION_REAL, LS_SSM_FIELD(dt_min), "0.001", 1e-12, 1e6, NULL,                     \
        "smallest step size at the start"
#define LS_SSM_DT_MAX                                                                              \
    "dt_max", LS_OPTION_REAL, LS_SSM_FIELD(dt_max), "0.1", 1e-12, 1e6, NULL,                       \
        "largest step size at the start"
#define LS_SSM_STEP                                                                                \
    "dt", LS_OPTION_CHOICE, LS_SSM_FIELD(step), "softplus", 0, 0, "exp|softplus",                  \
        "function that makes step sizes positive"
#define LS_SSM_UNTIED                                                                              \
    "dt_untied", LS_OPTION_BOOL, LS_SSM_FIELD(untied), "false", 0, 0, NULL,                        \
        "every mode has a step size of its own; else every channel has"
#define LS_SSM_ACTIVATION                                                                          \
    "activation", LS_OPTION_CHOICE, LS_SSM_FIELD(activation), "gelu", 0, 0,                        \
        "none|gelu|relu|silu|tanh|sigmoid|glu",                                                    \
        "function before the output product; glu: a gate of twice as many kernels"
#define LS_SSM_CHANNELS                                                                            \
    "channels", LS_OPTION_INT, LS_SSM_FIELD(channels), "1", 1, 64, NULL,                           \
        "kernels of every channel of the input, which the output product reads side by side"
#define LS_SSM_OUTPUT                                                                              \
    "output", LS_OPTION_CHOICE, LS_SSM_FIELD(output), "glu", 0, 0, "none|linear|glu",              \
        "output product: none at all, plain, or with a gate"
#define LS_SSM_L_MAX                                                                               \
    "l_max", LS_OPTION_INT, LS_SSM_FIELD(l_max), "0", 0, 1e6, NULL,                                \
        "lags at which kernels end, at a rate of 1; 0: with the text"
#define LS_SSM_INIT(usual)                                                                         \
    "init", LS_OPTION_CHOICE, LS_SSM_FIELD(init), usual, 0, 0, "legs|inv|lin|quad|real|diag",      \
        "poles at the start: of HiPPO-LegS, one of its two approximations, frequencies that grow " \
        "with the square, none at all, or inv for half of the copies and lin for the others"
#define LS_SSM_RATE                                                                                \
    "rate", LS_OPTION_REAL, LS_SSM_FIELD(rate), "1", 1e-6, 1e6, NULL,                              \
        "factor on all step sizes, for inputs sampled at another rate"
#define LS_SSM_BANDLIMIT                                                                           \
    "bandlimit", LS_OPTION_REAL, LS_SSM_FIELD(bandlimit), "0", 0, 1e6, NULL,                       \
        "modes that turn by half of this or more in a step are not read; 0: all are"
#define LS_SSM_REAL                                                                                \
    "real_transform", LS_OPTION_CHOICE, LS_SSM_FIELD(real), "exp", 0, 0,                           \
        "none|exp|relu|softplus|sigmoid",                                                          \
        "function that makes the decay of a mode from what is trained"
#define LS_SSM_IMAG                                                                                \
    "imag_transform", LS_OPTION_CHOICE, LS_SSM_FIELD(imag), "none", 0, 0,                          \
        "none|exp|relu|softplus", "the same of its frequency"

/* LS_OK, or why options that concern copies, poles or steps do not go with so many channels. */
ls_status ls_ssm_check_space(ls_ctx *ctx, const char *name, const ls_ssm_options *o,
                             int64_t channels);
/* Initial values, kept from weight decay and in the master's type: what is kept of the real and the
 * imaginary parts [copies,h], the pairs [copies,h,2] of inputs, step sizes log-uniform through the
 * inverse of `step`. */
ls_init ls_ssm_decays(ls_spectrum spectrum, int64_t modes, ls_kept kept);
ls_init ls_ssm_frequencies(ls_spectrum spectrum, int64_t modes, ls_kept kept);
ls_init ls_ssm_inputs(ls_spectrum spectrum, int64_t modes);
ls_init ls_ssm_steps(double least, double most, ls_step step);

/* Lags of a kernel, where there is a limit to them; else 0. */
int64_t ls_ssm_lags(const ls_ssm_options *o);
/* y = the space's kernel over x [B,T,D], plus skip x: in a stream the recurrence itself, or, where
 * lags end before the stream does, the sums over inputs that are kept. */
ls_tensor *ls_ssm_mix(ls_program *p, const ls_state_space *space, int64_t lags, ls_tensor *x,
                      ls_tensor *skip);
/* Bytes that it keeps for x of D channels. */
int64_t ls_ssm_mix_bytes(const ls_ssm_options *o, int64_t D, int64_t T, int64_t size);

ls_status ls_ssm_check(ls_ctx *ctx, const ls_mixer *mixer);
ls_tensor *ls_ssm_forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x, bool ranked);
int64_t ls_ssm_state_bytes(const ls_mixer *mixer, int64_t T, int64_t size);
double ls_ssm_flops(const ls_mixer *mixer, int64_t T, bool ranked);
/* Names of the public code, and its order of the output's rows: values before gates. */
extern const ls_alias ls_ssm_aliases[];
extern const ls_buffer ls_ssm_buffers[];
/* Options that may differ between training and test. */
extern const char *const ls_ssm_at_test[];
int64_t ls_ssm_row(const ls_mixer *mixer, int layout, int64_t row);

#endif
