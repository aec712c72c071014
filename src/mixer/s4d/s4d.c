/* S4D (arXiv 2206.11893): a diagonal state space in every channel, as a long convolution or as a
 * recurrence. See s4d.md. */
#include "mixer/ssm_layer.h"

static const ls_option options[] = {
    LS_SSM_D_STATE,
    LS_SSM_COPIES,
    LS_SSM_DT_MIN,
    LS_SSM_DT_MAX,
    LS_SSM_STEP,
    LS_SSM_UNTIED,
    LS_SSM_DT_RATE,
    LS_SSM_C_RATE,
    LS_SSM_CHANNELS,
    LS_SSM_ACTIVATION,
    LS_SSM_OUTPUT,
    LS_SSM_L_MAX,
    LS_SSM_RATE,
    LS_SSM_BANDLIMIT,
    LS_SSM_REAL,
    LS_SSM_IMAG,
    LS_SSM_INIT("legs"),
    LS_CHOICE("hold", LS_SSM_FIELD(hold), "zoh", "zoh|bilinear",
              "Discretisation: zero-order hold, or bilinear."),
    LS_CHOICE("input", LS_SSM_FIELD(input), "trained", "trained|one",
              "B of the modes: trained, or 1 for all."),
    LS_BOOL("upper", LS_SSM_FIELD(upper), "false",
            "Whether the pole with + i A_imag is kept of each conjugate pair."),
    LS_BOOL("real", LS_SSM_FIELD(plain), "false",
            "Whether there are d_state real modes instead of half as many pairs: exponential "
            "averages."),
};

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    return ls_ssm_forward(p, mixer, x, false);
}

static double flops(const ls_mixer *mixer, int64_t T) {
    return ls_ssm_flops(mixer, T, false);
}

const ls_mixer_type ls_mixer_s4d = {
    .name = "s4d",
    .summary = "diagonal state space in every channel: a long convolution with a constant state",
    .paper = "arXiv 2206.11893",
    .options = LS_OPTIONS(options, ls_ssm_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING,
    .check = ls_ssm_check,
    .forward = forward,
    .state_bytes = ls_ssm_state_bytes,
    .flops = flops,
    .aliases = ls_ssm_aliases,
    .buffers = ls_ssm_buffers,
    .row = ls_ssm_row,
    .at_test = ls_ssm_at_test,
};
