/* The block of Mamba (arXiv 2312.00752): a gated short convolution and a state space whose step
 * size, input and output maps depend on the input. See mamba.md. */
#include <math.h>

#include "mixer/mamba_layer.h"
#include "mixer/mixer.h"

typedef struct mamba_options {
    int64_t d_state, d_conv, dt_rank;
    double expand, dt_min, dt_max, dt_floor, dt_scale;
    int dt_init;
    bool complex, conv_bias, bias, inner_norm;
    double inner_epsilon;
} mamba_options;

enum { DT_RANDOM, DT_CONSTANT };

#define FIELD(name) mamba_options, name
static const ls_option options[] = {
    LS_INT("d_state", FIELD(d_state), "16", 1, 1024, "State size of each channel."),
    LS_BOOL("complex", FIELD(complex), "false",
            "Whether the state is d_state/2 complex numbers, which stand for themselves and "
            "their conjugates."),
    LS_INT("d_conv", FIELD(d_conv), "4", 1, 64, "Taps of the short convolution."),
    LS_REAL("expand", FIELD(expand), "2", 1e-3, 64,
            "Channels inside the block, in multiples of the width; rounded down."),
    LS_INT("dt_rank", FIELD(dt_rank), "0", 0, 65536,
           "Rank of the projection to step sizes; 0: width/16, rounded up."),
    LS_REAL("dt_min", FIELD(dt_min), "0.001", 1e-30, 1e6, "Smallest initial step size."),
    LS_REAL("dt_max", FIELD(dt_max), "0.1", 1e-30, 1e6, "Largest initial step size."),
    LS_REAL("dt_floor", FIELD(dt_floor), "0.0001", 1e-30, 1e6, "Floor of the initial step sizes."),
    LS_CHOICE("dt_init", FIELD(dt_init), "random", "random|constant",
              "Initial weights of the step projection: uniform, or all at the bound."),
    LS_REAL("dt_scale", FIELD(dt_scale), "1", 0, 1e6,
            "Bound of those weights, in multiples of 1/sqrt(dt_rank)."),
    LS_BOOL("conv_bias", FIELD(conv_bias), "true", "A bias on the short convolution."),
    LS_BOOL("bias", FIELD(bias), "false", "Biases on the input and output projections."),
    LS_BOOL("inner_norm", FIELD(inner_norm), "false",
            "RMS norms, without weights, of what step sizes come from and of the input and output "
            "maps (Falcon-Mamba)."),
    LS_REAL("inner_epsilon", FIELD(inner_epsilon), "1e-6", 1e-12, 1, "Added in those norms.",
            .needs = "inner_norm=true"),
};

/* E channels inside, N numbers in the states of each, which are P states; W taps, R numbers from
 * which step sizes come. */
typedef struct shape {
    int64_t E, N, P, W, R;
} shape;

static shape shape_of(const ls_mixer *mixer) {
    const mamba_options *o = mixer->options;
    return (shape){.E = (int64_t)(o->expand * (double)mixer->width),
                   .N = o->d_state,
                   .P = o->complex ? o->d_state / 2 : o->d_state,
                   .W = o->d_conv,
                   .R = o->dt_rank > 0 ? o->dt_rank : ls_ceil_div(mixer->width, 16)};
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const mamba_options *o = mixer->options;
    if (o->dt_min > o->dt_max)
        return LS_FAIL(ctx, LS_EUSE, "mamba: dt_min is %g, above dt_max, which is %g", o->dt_min,
                       o->dt_max);
    if (o->complex && o->d_state % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "mamba: complex states come in pairs, and d_state=%lld is odd: make it even",
                       (long long)o->d_state);
    if (shape_of(mixer).E < 1)
        return LS_FAIL(ctx, LS_EUSE, "mamba: expand=%g leaves no channel of a width of %lld",
                       o->expand, (long long)mixer->width);
    return LS_OK;
}

/* ---- initial weights ---- */

/* A_log[e,n] = log(n + 1); a is N. */
static void fill_A_log(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = log((double)(i % (int64_t)init->a) + 1);
}

/* A_im[e,n] = n; a is P. */
static void fill_A_im(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = (double)(i % (int64_t)init->a);
}

static ls_init dt_weights(const mamba_options *o, int64_t R) {
    ls_init init = ls_mamba_uniform(R, 1);
    init.a *= o->dt_scale;
    if (o->dt_init == DT_CONSTANT) init.kind = LS_INIT_CONSTANT;
    return init;
}

/* ---- the block ---- */

/* A starts as -(n + 1), or where complex as -1/2 + n i: the paper's S4D-Real and S4D-Lin. */
static ls_tensor *decay(ls_program *p, const mamba_options *o, const shape *s, ls_tensor **A_im) {
    ls_init A_log = {.kind = LS_INIT_CUSTOM, .a = (double)s->P, .fill = fill_A_log}, turn = A_log;
    *A_im = NULL;
    if (o->complex) {
        A_log = (ls_init){.kind = LS_INIT_CONSTANT, .a = log(0.5)};
        turn.fill = fill_A_im;
        *A_im = ls_param(p, "A_im", LS_DIMS(s->E, s->P), ls_mamba_full(turn));
    }
    return ls_param(p, "A_log", LS_DIMS(s->E, s->P), ls_mamba_full(A_log));
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const mamba_options *o = mixer->options;
    const shape s = shape_of(mixer);
    if (x == NULL) return NULL;
    ls_tensor *xz[2], *parts[3], *after;
    ls_split(p, ls_mamba_project(p, "in", x, 2 * s.E, ls_mamba_uniform(mixer->width, 1), o->bias),
             2, (const int64_t[]){s.E, s.E}, xz);
    ls_tensor *u = ls_mamba_convolve(p, xz[0], s.W, ls_mamba_uniform(s.W, 1), o->conv_bias);
    ls_split(p, ls_mamba_project(p, "select", u, s.R + 2 * s.N, ls_mamba_uniform(s.E, 1), false), 3,
             (const int64_t[]){s.R, s.N, s.N}, parts);
    for (int i = 0; o->inner_norm && i < 3; i++)
        parts[i] =
            ls_residual_norm(p, LS_NORM_RMS, o->inner_epsilon, parts[i], NULL, NULL, NULL, NULL);
    ls_scan scan = {
        .u = u,
        .delta = ls_mamba_project(p, "dt", parts[0], s.E, dt_weights(o, s.R), false),
        .B = parts[1],
        .C = parts[2],
        .D = ls_param(p, "D", LS_DIMS(s.E), ls_init_gain()),
        .z = xz[1],
        .bias = ls_param(p, "dt.bias", LS_DIMS(s.E),
                         ls_mamba_dt_bias(o->dt_min, o->dt_max, o->dt_floor)),
        .before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(x->dim[0], s.E, s.N)),
    };
    scan.A_log = decay(p, o, &s, &scan.A_im);
    ls_tensor *y = ls_selective_scan(p, &scan, &after);
    ls_state_write(p, "state", after);
    double shrink = sqrt((double)ls_max(mixer->branches, 1));
    return ls_mamba_project(p, "out", y, mixer->width, ls_mamba_uniform(s.E, shrink), o->bias);
}

/* Rows of the convolution, and the states, which are never narrower than f32. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)T;
    shape s = shape_of(mixer);
    return s.E * (s.W - 1) * size + s.E * s.N * ls_max(size, 4);
}

/* Projections, taps and the recurrence. */
static double flops(const ls_mixer *mixer, int64_t T) {
    shape s = shape_of(mixer);
    int64_t products = 3 * mixer->width + 2 * s.R + 2 * s.N;
    int64_t recurrence = s.P == s.N ? 7 * s.N : 21 * s.P;
    return (double)T * (double)s.E * (double)(2 * products + 2 * s.W + recurrence);
}

static const ls_alias aliases[] = {
    {"in_proj.weight", "in.weight", 0},
    {"in_proj.bias", "in.bias", 0},
    {"conv1d.weight", "conv.weight", LS_ALIAS_DEPTHWISE},
    {"conv1d.bias", "conv.bias", 0},
    {"x_proj.weight", "select.weight", 0},
    {"dt_proj.weight", "dt.weight", 0},
    {"dt_proj.bias", "dt.bias", 0},
    {"out_proj.weight", "out.weight", 0},
    {"out_proj.bias", "out.bias", 0},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.conv_state", NULL},
    {"out.ssm_state", NULL},
    {0},
};

const ls_mixer_type ls_mixer_mamba = {
    .name = "mamba",
    .summary = "selective state space with a short convolution and a gate; constant state",
    .paper = "arXiv 2312.00752",
    .options = LS_OPTIONS(options, mamba_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
};
