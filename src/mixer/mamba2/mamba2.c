/* The block of Mamba-2 (arXiv 2405.21060): a short convolution, a state space with one decay per
 * head that depends on the input, and a gated norm. See mamba2.md. */
#include <math.h>

#include "mixer/mamba_layer.h"
#include "mixer/mixer.h"
#include "tensor/op/activate/activate.h"
#include "tensor/op/begin_with/begin_with.h"
#include "tensor/op/plus_scaled/plus_scaled.h"
#include "tensor/op/pointwise/pointwise.h"
#include "tensor/op/residual_norm/residual_norm.h"
#include "tensor/op/ssd_scan/ssd_scan.h"

typedef struct mamba2_options {
    int64_t d_state, d_conv, headdim, ngroups, d_ssm;
    double expand, A_min, A_max, dt_min, dt_max, dt_floor, conv_init, epsilon;
    ls_reals dt_limit;
    int norm;
    bool norm_before_gate, D_has_hdim, init_states, conv_bias, bias;
} mamba2_options;

enum { NORM_GROUPS, NORM_WHOLE, NORM_NONE };

#define FIELD(name) mamba2_options, name
static const ls_option options[] = {
    LS_INT("d_state", FIELD(d_state), "128", 1, 512, "State size of each channel."),
    LS_INT("d_conv", FIELD(d_conv), "4", 1, 64, "Taps of the short convolution."),
    LS_REAL("expand", FIELD(expand), "2", 1e-3, 64,
            "Channels inside the block, in multiples of the width; rounded down."),
    LS_INT("headdim", FIELD(headdim), "0", 0, 65536, "Head dimension."),
    LS_INT("ngroups", FIELD(ngroups), "1", 1, 65536,
           "Groups of heads, each with its own input and output maps B and C."),
    LS_INT("d_ssm", FIELD(d_ssm), "0", 0, 1 << 24,
           "Channels of the state space; the others are a gated layer beside it; 0: all."),
    LS_REAL("A_min", FIELD(A_min), "1", 1e-30, 1e30, "Smallest initial -A."),
    LS_REAL("A_max", FIELD(A_max), "16", 1e-30, 1e30, "Largest initial -A."),
    LS_REAL("dt_min", FIELD(dt_min), "0.001", 1e-30, 1e6, "Smallest initial step size."),
    LS_REAL("dt_max", FIELD(dt_max), "0.1", 1e-30, 1e6, "Largest initial step size."),
    LS_REAL("dt_floor", FIELD(dt_floor), "0.0001", 1e-30, 1e6, "Floor of the initial step sizes."),
    LS_REALS("dt_limit", FIELD(dt_limit), "", 0, INFINITY,
             "Range that step sizes are clamped to: two numbers, the second may be inf; empty: "
             "any step."),
    LS_REAL("conv_init", FIELD(conv_init), "0", 0, 1e6,
            "Bound of the uniform initial taps; 0: 1/sqrt(d_conv)."),
    LS_CHOICE("norm", FIELD(norm), "groups", "groups|whole|none",
              "RMSNorm of the gated output: over each group's channels (state-spaces/mamba, "
              "llama.cpp), over all of them (transformers), or none."),
    LS_BOOL("norm_before_gate", FIELD(norm_before_gate), "false",
            "Whether the gate comes after the norm.", .needs = "norm!=none"),
    LS_REAL("eps", FIELD(epsilon), "1e-5", 0, 1, "Added to the mean square in that norm.",
            .needs = "norm!=none"),
    LS_BOOL("D_has_hdim", FIELD(D_has_hdim), "false",
            "Whether the skip D has a number for each channel; false: one for each head."),
    LS_BOOL("init_states", FIELD(init_states), "false",
            "Whether the initial state of a sequence is learned; false: it is 0."),
    LS_BOOL("conv_bias", FIELD(conv_bias), "true", "A bias on the short convolution."),
    LS_BOOL("bias", FIELD(bias), "false", "Biases on the input and output projections."),
};

/* E channels inside, S of them in the state space: H heads of P; G groups with N states; W taps. */
typedef struct shape {
    int64_t E, S, H, P, G, N, W;
} shape;

static shape shape_of(const ls_mixer *mixer) {
    const mamba2_options *o = mixer->options;
    shape s = {.E = (int64_t)(o->expand * (double)mixer->width),
               .G = o->ngroups,
               .N = o->d_state,
               .W = o->d_conv};
    s.S = o->d_ssm > 0 ? o->d_ssm : s.E;
    s.P = o->headdim > 0 ? o->headdim : ls_min(64, ls_max(s.S, 1));
    s.H = s.S / s.P;
    return s;
}

/* Rows of the input projection: [z0 | x0 | z | x | B | C | dt]. */
static int64_t projected(const shape *s) {
    return 2 * s->E + 2 * s->G * s->N + s->H;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const mamba2_options *o = mixer->options;
    const shape s = shape_of(mixer);
    if (s.S < 1 || s.S > s.E)
        return LS_FAIL(ctx, LS_EUSE,
                       "mamba2: %lld channels of the state space do not fit the %lld that "
                       "expand=%g makes of a width of %lld",
                       (long long)s.S, (long long)s.E, o->expand, (long long)mixer->width);
    if (s.S % s.P != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "mamba2: heads of headdim=%lld do not divide %lld channels (set another "
                       "headdim or expand)",
                       (long long)s.P, (long long)s.S);
    if (s.H % s.G != 0)
        return LS_FAIL(ctx, LS_EUSE, "mamba2: ngroups=%lld does not divide %lld heads",
                       (long long)s.G, (long long)s.H);
    if (o->dt_min > o->dt_max || o->A_min > o->A_max)
        return LS_FAIL(ctx, LS_EUSE, "mamba2: %s is above %s",
                       o->A_min > o->A_max ? "A_min" : "dt_min",
                       o->A_min > o->A_max ? "A_max" : "dt_max");
    if (o->dt_limit.count != 0 && (o->dt_limit.count != 2 || o->dt_limit.at[0] > o->dt_limit.at[1]))
        return LS_FAIL(
            ctx, LS_EUSE,
            "mamba2: dt_limit takes two numbers, the smaller one first, as in 0.001,0.1");
    if (o->norm == NORM_NONE && o->norm_before_gate)
        return LS_FAIL(ctx, LS_EUSE,
                       "mamba2: norm_before_gate belongs to a norm, and norm is none");
    return LS_OK;
}

/* A_log: the logarithm of a number uniform in [a, b]. */
static void fill_A_log(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = log(init->a + values[i] * (init->b - init->a));
}

/* ---- the block ---- */

static ls_tensor *scan_rows(ls_program *p, const mamba2_options *o, const shape *s, ls_tensor *xBC,
                            ls_tensor *dt) {
    if (xBC == NULL || dt == NULL) return NULL;
    const int64_t B = xBC->dim[0], T = xBC->dim[1], maps = s->G * s->N;
    const ls_init A_log = {
        .kind = LS_INIT_CUSTOM, .a = o->A_min, .b = o->A_max, .fill = fill_A_log};
    const ls_init zeros = {.kind = LS_INIT_CONSTANT};
    ls_tensor *part[3], *after;
    ls_split(p, xBC, 3, (const int64_t[]){s->S, maps, maps}, part);
    ls_ssd_operands ssd = {
        .x = ls_reshape(p, part[0], LS_DIMS(B, T, s->H, s->P)),
        .dt = dt,
        .B = ls_reshape(p, part[1], LS_DIMS(B, T, s->G, s->N)),
        .C = ls_reshape(p, part[2], LS_DIMS(B, T, s->G, s->N)),
        .A_log = ls_param(p, "A_log", LS_DIMS(s->H), ls_mamba_full(A_log)),
        .D = ls_param(p, "D", LS_DIMS(o->D_has_hdim ? s->S : s->H), ls_init_gain()),
        .bias = ls_param(p, "dt.bias", LS_DIMS(s->H),
                         ls_mamba_dt_bias(o->dt_min, o->dt_max, o->dt_floor)),
        .before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(B, s->H, s->P, s->N)),
        .dt_min = o->dt_limit.count == 2 ? o->dt_limit.at[0] : 0,
        .dt_max = o->dt_limit.count == 2 ? o->dt_limit.at[1] : INFINITY,
    };
    if (o->init_states)
        ssd.before = ls_begin_with(
            p, ssd.before,
            ls_param(p, "init_states", LS_DIMS(s->H, s->P, s->N), ls_mamba_full(zeros)));
    ls_tensor *y = ls_ssd_scan(p, &ssd, &after);
    ls_state_write(p, "state", after);
    return ls_reshape(p, y, LS_DIMS(B, T, s->S));
}

static ls_tensor *normed(ls_program *p, const mamba2_options *o, const shape *s, ls_tensor *y) {
    if (y == NULL) return NULL;
    const int64_t B = y->dim[0], T = y->dim[1], G = o->norm == NORM_GROUPS ? s->G : 1;
    ls_tensor *gain = ls_param(p, "norm.weight", LS_DIMS(s->S), ls_init_gain());
    if (G == 1) return ls_residual_norm(p, LS_NORM_RMS, o->epsilon, y, NULL, gain, NULL, NULL);
    y = ls_reshape(p, y, LS_DIMS(B, T, G, s->S / G));
    y = ls_residual_norm(p, LS_NORM_RMS, o->epsilon, y, NULL, NULL, NULL, NULL);
    return ls_plus_scaled(p, NULL, ls_reshape(p, y, LS_DIMS(B, T, s->S)), gain);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const mamba2_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t beside = s.E - s.S, conv = s.S + 2 * s.G * s.N;
    const double shrink = sqrt((double)ls_max(mixer->branches, 1));
    ls_tensor *in =
        ls_mamba_project(p, "in", x, projected(&s), ls_mamba_uniform(mixer->width, 1), o->bias);
    ls_tensor *part[5] = {0};
    const int64_t widths[] = {beside, beside, s.S, conv, s.H};
    const int first = beside > 0 ? 0 : 2;
    ls_split(p, in, 5 - first, widths + first, part + first);
    const ls_init taps = o->conv_init > 0 ? (ls_init){.kind = LS_INIT_UNIFORM, .a = o->conv_init}
                                          : ls_mamba_uniform(s.W, 1);
    ls_tensor *u = ls_mamba_convolve(p, part[3], s.W, taps, o->conv_bias);
    ls_tensor *y = scan_rows(p, o, &s, u, part[4]), *z = part[2];
    if (o->norm_before_gate) y = normed(p, o, &s, y);
    y = ls_gate(p, LS_ACT_SILU, z, y);
    if (o->norm != NORM_NONE && !o->norm_before_gate) y = normed(p, o, &s, y);
    y = ls_mamba_project(p, "out", y, mixer->width, ls_mamba_uniform(s.E, shrink), o->bias);
    if (beside == 0) return y;
    ls_tensor *aside = ls_gate(p, LS_ACT_SILU, part[0], part[1]);
    return ls_plus(
        p, y,
        ls_mamba_project(p, "aside", aside, mixer->width, ls_mamba_uniform(s.E, shrink), false));
}

/* Rows of the convolution, and the states, which are never narrower than f32. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)T;
    const shape s = shape_of(mixer);
    return (s.S + 2 * s.G * s.N) * (s.W - 1) * size + s.S * s.N * ls_max(size, 4);
}

/* Projections, taps and the recurrence. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const shape s = shape_of(mixer);
    const double products = 2 * (double)mixer->width * (double)(projected(&s) + s.E);
    const double taps = 2 * (double)(s.S + 2 * s.G * s.N) * (double)s.W;
    return (double)T * (products + taps + 4 * (double)s.S * (double)s.N);
}

static const ls_alias aliases[] = {
    {"in_proj.weight", "in.weight", 0},
    {"in_proj.bias", "in.bias", 0},
    {"conv1d.weight", "conv.weight", LS_ALIAS_DEPTHWISE},
    {"conv1d.bias", "conv.bias", 0},
    {"dt_bias", "dt.bias", 0},
    {"out_proj.weight", "aside.weight", LS_ALIAS_SIDE},
    {"out_proj.weight", "out.weight", LS_ALIAS_SIDE},
    {"out_proj.bias", "out.bias", 0},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.conv_state", NULL}, /* states, not outputs; cut= compares what follows from them */
    {"out.ssm_state", NULL},
    {0},
};

const ls_mixer_type ls_mixer_mamba2 = {
    .name = "mamba2",
    .summary = "state space with one input-dependent decay per head, in matrix products; "
               "constant state",
    .paper = "arXiv 2405.21060",
    .options = LS_OPTIONS(options, mamba2_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
};
