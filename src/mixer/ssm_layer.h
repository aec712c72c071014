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
    bool untied, upper, plain, dt_own_rate, c_own_rate;
} ls_ssm_options;

/* The options that both have. */
#define LS_SSM_FIELD(name) ls_ssm_options, name
#define LS_SSM_D_STATE                                                                             \
    LS_INT("d_state", LS_SSM_FIELD(d_state), "64", 2, 1024,                                        \
           "State size of each channel, in conjugate pairs.")
#define LS_SSM_COPIES                                                                              \
    LS_INT("copies", LS_SSM_FIELD(copies), "0", 0, 1e6,                                            \
           "Independent A and B, shared by the channels in turn; 0: one per channel.")
#define LS_SSM_DT_MIN                                                                              \
    LS_REAL("dt_min", LS_SSM_FIELD(dt_min), "0.001", 1e-12, 1e6, "Smallest initial step size.")
#define LS_SSM_DT_MAX                                                                              \
    LS_REAL("dt_max", LS_SSM_FIELD(dt_max), "0.1", 1e-12, 1e6, "Largest initial step size.")
#define LS_SSM_STEP                                                                                \
    LS_CHOICE("dt", LS_SSM_FIELD(step), "softplus", "exp|softplus",                                \
              "Function that makes step sizes positive.")
#define LS_SSM_UNTIED                                                                              \
    LS_BOOL("dt_untied", LS_SSM_FIELD(untied), "false",                                            \
            "Whether every mode has a step size of its own; false: every channel has.")
#define LS_SSM_DT_RATE                                                                             \
    LS_BOOL("dt_own_rate", LS_SSM_FIELD(dt_own_rate), "true",                                      \
            "Whether step sizes have the rate train.state_lr, as A and B have.")
#define LS_SSM_C_RATE                                                                              \
    LS_BOOL("c_own_rate", LS_SSM_FIELD(c_own_rate), "false",                                       \
            "Whether C has the rate train.state_lr; it decays in any case.")
#define LS_SSM_ACTIVATION                                                                          \
    LS_CHOICE("activation", LS_SSM_FIELD(activation), "gelu",                                      \
              "none|gelu|relu|silu|tanh|sigmoid|glu",                                              \
              "Activation before the output projection; glu: a gate of twice as many kernels.")
#define LS_SSM_CHANNELS                                                                            \
    LS_INT("channels", LS_SSM_FIELD(channels), "1", 1, 64,                                         \
           "Kernels of every channel of the input, which the output projection reads side "        \
           "by side.")
#define LS_SSM_OUTPUT                                                                              \
    LS_CHOICE("output", LS_SSM_FIELD(output), "glu", "none|linear|glu",                            \
              "Output projection: none, linear, or with a gate.")
#define LS_SSM_L_MAX                                                                               \
    LS_INT("l_max", LS_SSM_FIELD(l_max), "0", 0, 1e6,                                              \
           "Lags at which kernels end, at a rate of 1; 0: with the text.")
#define LS_SSM_INIT(usual)                                                                         \
    LS_CHOICE("init", LS_SSM_FIELD(init), usual, "legs|inv|lin|quad|real|diag",                    \
              "Initial poles: of HiPPO-LegS, one of its two approximations, frequencies that "     \
              "grow with the square, none at all, or inv for half of the copies and lin for "      \
              "the others.")
#define LS_SSM_RATE                                                                                \
    LS_REAL("rate", LS_SSM_FIELD(rate), "1", 1e-6, 1e6,                                            \
            "Factor on all step sizes, for inputs sampled at another rate.")
#define LS_SSM_BANDLIMIT                                                                           \
    LS_REAL("bandlimit", LS_SSM_FIELD(bandlimit), "0", 0, 1e6,                                     \
            "Frequency limit: modes that turn by half of this or more in a step are not "          \
            "read; 0: all are.")
#define LS_SSM_REAL                                                                                \
    LS_CHOICE("real_transform", LS_SSM_FIELD(real), "exp", "none|exp|relu|softplus|sigmoid",       \
              "Function from the trained value to the decay of a mode.")
#define LS_SSM_IMAG                                                                                \
    LS_CHOICE("imag_transform", LS_SSM_FIELD(imag), "none", "none|exp|relu|softplus",              \
              "Function from the trained value to the frequency of a mode.")

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
