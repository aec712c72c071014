/* S4 (arXiv 2111.00396): in every channel a state space that is diagonal but for a low rank, from
 * HiPPO. See s4.md. */
#include "mixer/ssm_layer.h"

static const ls_option options[] = {
    LS_SSM_D_STATE,
    LS_SSM_COPIES,
    LS_CHOICE("init", LS_SSM_FIELD(measure), "legs", "legs|legt|fout|hippo",
              "Initial state space: HiPPO-LegS, HiPPO-LegT, HiPPO-FouT (Fourier), or LegS for "
              "half of the copies and FouT for the rest."),
    LS_INT("rank", LS_SSM_FIELD(rank), "0", 0, LS_STATE_SPACE_RANK_MAX,
           "Rank of the correction to the diagonal; 0: what init needs, 2 for legt and else 1."),
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
    LS_INT("tilde", LS_SSM_FIELD(tilde), "0", 0, 1e6,
           "Length n for which C is kept as C (1 - A^n), as public weights have it; 0: C itself."),
};

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    return ls_ssm_forward(p, mixer, x, true);
}

static double flops(const ls_mixer *mixer, int64_t T) {
    return ls_ssm_flops(mixer, T, true);
}

const ls_mixer_type ls_mixer_s4 = {
    .name = "s4",
    .summary = "HiPPO state space, diagonal plus a low rank, in every channel; constant state",
    .paper = "arXiv 2111.00396",
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
