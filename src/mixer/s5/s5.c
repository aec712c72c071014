/* S5 (arXiv 2208.04933): one diagonal state space that all channels drive and read. See s5.md. */
#include <math.h>

#include "mixer/hippo.h"
#include "mixer/mixer.h"

typedef struct s5_options {
    int64_t d_state, blocks;
    double dt_min, dt_max, step_scale;
    int c_init, hold, activation;
    bool conj_sym, clip_eigs, b_decay, b_own_rate, dt_own_rate;
    double dropout;
} s5_options;

enum { C_TRUNC_STANDARD_NORMAL, C_LECUN_NORMAL, C_COMPLEX_NORMAL };
enum { ACT_NONE, ACT_GELU, ACT_HALF_GLU1, ACT_HALF_GLU2, ACT_FULL_GLU };

#define FIELD(name) s5_options, name
static const ls_option options[] = {
    LS_INT("d_state", FIELD(d_state), "64", 2, 65536,
           "State size of the layer, all channels together."),
    LS_INT("blocks", FIELD(blocks), "4", 1, 32768,
           "HiPPO matrices whose eigenvalues are the initial states', each d_state/blocks wide."),
    LS_CHOICE("c_init", FIELD(c_init), "lecun_normal",
              "trunc_standard_normal|lecun_normal|complex_normal",
              "Initial standard deviation of C: 1/sqrt(d_state), 1/sqrt(width d_state), "
              "sqrt(1/2)."),
    LS_CHOICE("hold", FIELD(hold), "zoh", "zoh|bilinear",
              "Discretisation: zero-order hold, or bilinear."),
    LS_REAL("dt_min", FIELD(dt_min), "0.001", 1e-12, 1e6, "Smallest initial step size."),
    LS_REAL("dt_max", FIELD(dt_max), "0.1", 1e-12, 1e6, "Largest initial step size."),
    LS_REAL("step_scale", FIELD(step_scale), "1", 1e-12, 1e12,
            "Factor on all step sizes, for inputs sampled at another rate."),
    LS_BOOL("conj_sym", FIELD(conj_sym), "true",
            "Whether states come in conjugate pairs, of which one is computed."),
    LS_BOOL("clip_eigs", FIELD(clip_eigs), "true",
            "Whether eigenvalues stay left of -0.0001, so that no state grows without bound."),
    LS_CHOICE("activation", FIELD(activation), "half_glu1",
              "none|gelu|half_glu1|half_glu2|full_glu",
              "Function after the state space: none; v = GELU; v or y itself with a gate from v; "
              "projections of v for both."),
    LS_REAL("dropout", FIELD(dropout), "0", 0, 0.95,
            "Share of v's channels dropped in training, each in all rows of a sequence.",
            .needs = "activation!=none"),
    LS_BOOL("b_decay", FIELD(b_decay), "false", "Whether weight decay acts on B."),
    LS_BOOL("b_own_rate", FIELD(b_own_rate), "false", "Whether B has the rate train.state_lr."),
    LS_BOOL("dt_own_rate", FIELD(dt_own_rate), "true",
            "Whether step sizes have the rate train.state_lr; false: train.lr, and they decay with "
            "train.decay=all."),
};

static int64_t modes_of(const s5_options *o) {
    return o->conj_sym ? o->d_state / 2 : o->d_state;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const s5_options *o = mixer->options;
    if (o->d_state % o->blocks != 0 || o->d_state / o->blocks % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "s5: d_state=%lld does not make %lld blocks of an even size: change d_state "
                       "or blocks",
                       (long long)o->d_state, (long long)o->blocks);
    if (o->dt_min > o->dt_max)
        return LS_FAIL(ctx, LS_EUSE, "s5: dt_min is %g, above dt_max, which is %g", o->dt_min,
                       o->dt_max);
    return LS_OK;
}

/* ---- initial values ---- */

/* Eigenvalues ascend; the later half are the conjugates of the earlier, backwards. a: size of a
 * block, b: how many of its modes are there. */
static void fill_frequency(const ls_init *init, double *values, int64_t count) {
    int64_t N = (int64_t)init->a, modes = (int64_t)init->b;
    for (int64_t i = 0; i < count; i++) {
        if (i >= modes)
            values[i] = values[i - modes];
        else if (i < N / 2)
            values[i] = -ls_spectrum_frequency(LS_SPECTRUM_LEGS, N, i);
        else
            values[i] = -values[N - 1 - i];
    }
}

/* V^H of a real matrix, V having conjugate columns: complex normal numbers in the first half of
 * each block (Box and Muller), their conjugates in the other. a: deviation, b: size of a block,
 * c: channels. */
static void fill_conjugates(const ls_init *init, double *values, int64_t count) {
    const double two_pi = 6.28318530717958648;
    int64_t N = (int64_t)init->b, D = (int64_t)init->c;
    for (int64_t p = 0; p < count / (2 * D); p++) {
        double *re = values + 2 * p * D, *im = re + D;
        const double *mirror = re + 2 * (N - 1 - 2 * (p % N)) * D;
        for (int64_t d = 0; d < D; d++) {
            double size = init->a * sqrt(-2 * log1p(-re[d])), angle = two_pi * im[d];
            bool later = p % N >= N / 2;
            re[d] = later ? mirror[d] : size * cos(angle);
            im[d] = later ? -mirror[D + d] : size * sin(angle);
        }
    }
}

/* Log-uniform in [a, b], as a logarithm. */
static void fill_log_step(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        values[i] = log(init->a) + values[i] * (log(init->b) - log(init->a));
}

static ls_init made_by(void (*fill)(const ls_init *, double *, int64_t), double a, double b) {
    return (ls_init){.kind = LS_INIT_CUSTOM,
                     .a = a,
                     .b = b,
                     .fill = fill,
                     .no_decay = true,
                     .never_decays = true,
                     .own_rate = true,
                     .full = true};
}

static ls_init step_init(const s5_options *o) {
    ls_init init = made_by(fill_log_step, o->dt_min, o->dt_max);
    init.own_rate = init.never_decays = o->dt_own_rate;
    return init;
}

static ls_init input_init(const s5_options *o, int64_t D) {
    ls_init init = {.kind = LS_INIT_NORMAL,
                    .a = 1 / sqrt(2 * (double)o->d_state),
                    .no_decay = !o->b_decay,
                    .never_decays = !o->b_decay,
                    .own_rate = o->b_own_rate,
                    .own_decay = o->b_own_rate};
    if (o->conj_sym) return init;
    init.kind = LS_INIT_CUSTOM;
    init.b = (double)(o->d_state / o->blocks);
    init.c = (double)D;
    init.fill = fill_conjugates;
    return init;
}

static ls_init output_init(const s5_options *o, int64_t D) {
    const double N = (double)o->d_state;
    if (o->c_init == C_COMPLEX_NORMAL) return ls_init_normal(sqrt(0.5));
    return ls_init_normal(1 / sqrt(o->c_init == C_LECUN_NORMAL ? (double)D * N : N));
}

/* ---- the layer ---- */

static ls_modes declare(ls_program *p, const ls_mixer *mixer) {
    const s5_options *o = mixer->options;
    const int64_t P = modes_of(o);
    const double block = (double)(o->d_state / o->blocks);
    const ls_init half = {.kind = LS_INIT_CONSTANT,
                          .a = -0.5,
                          .no_decay = true,
                          .never_decays = true,
                          .own_rate = true,
                          .full = true};
    return (ls_modes){
        .real = ls_param(p, "Lambda_re", LS_DIMS(P), half),
        .imag = ls_param(p, "Lambda_im", LS_DIMS(P),
                         made_by(fill_frequency, block, o->conj_sym ? block / 2 : block)),
        .log_step = ls_param(p, "log_step", LS_DIMS(P), step_init(o)),
        .valid = mixer->valid,
        .hold = (ls_hold)o->hold,
        .real_max = o->clip_eigs ? -1e-4 : INFINITY,
        .step_scale = o->step_scale,
        .factor = o->conj_sym ? 2 : 1,
    };
}

static ls_tensor *read_out(ls_program *p, const ls_mixer *mixer, const char *name, ls_tensor *x) {
    const s5_options *o = mixer->options;
    const int64_t D = mixer->width;
    return ls_linear(p, x, ls_param(p, name, LS_DIMS(D, 2 * modes_of(o)), output_init(o, D)), NULL);
}

static ls_tensor *state_space(ls_program *p, const ls_mixer *mixer, ls_tensor *u) {
    const s5_options *o = mixer->options;
    const int64_t D = mixer->width, P = modes_of(o);
    const ls_init normal = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_modes modes = declare(p, mixer);
    ls_tensor *skip = ls_param(p, "D", LS_DIMS(D), normal), *after, *y;
    modes.v = ls_linear(p, u, ls_param(p, "B.weight", LS_DIMS(2 * P, D), input_init(o, D)), NULL);
    if (mixer->causal) {
        modes.before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(u->dim[0], 2 * P));
        y = read_out(p, mixer, "C.weight", ls_diagonal_scan(p, &modes, &after));
        ls_state_write(p, "state", after);
    } else {
        y = read_out(p, mixer, "C1.weight", ls_diagonal_scan(p, &modes, NULL));
        modes.reversed = true;
        y = ls_plus(p, y, read_out(p, mixer, "C2.weight", ls_diagonal_scan(p, &modes, NULL)));
    }
    return ls_plus_scaled(p, y, u, skip);
}

static int64_t output_rows(const ls_mixer *mixer) {
    const s5_options *o = mixer->options;
    if (o->activation <= ACT_GELU) return 0;
    return o->activation == ACT_FULL_GLU ? 2 * mixer->width : mixer->width;
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const s5_options *o = mixer->options;
    const int64_t D = mixer->width, rows = output_rows(mixer);
    if (x == NULL) return NULL;
    ls_tensor *y = state_space(p, mixer, x);
    if (o->activation == ACT_NONE) return y;
    ls_tensor *v = ls_dropout_tied(p, ls_activate(p, LS_ACT_GELU_TANH, false, y), o->dropout);
    if (rows == 0) return v;
    ls_tensor *weight =
        ls_param(p, "out.weight", LS_DIMS(rows, D), ls_init_normal(1 / sqrt((double)D)));
    ls_tensor *out =
        ls_linear(p, v, weight, ls_param(p, "out.bias", LS_DIMS(rows), ls_init_bias()));
    if (o->activation == ACT_FULL_GLU) return ls_activate(p, LS_ACT_SIGMOID, true, out);
    return ls_gate(p, LS_ACT_SIGMOID, out, o->activation == ACT_HALF_GLU1 ? v : y);
}

static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)T;
    return 2 * modes_of(mixer->options) * ls_max(size, 4);
}

/* B, then scan and C of each direction, the skip, and the output. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const double D = (double)mixer->width, P = (double)modes_of(mixer->options);
    const double directions = mixer->causal ? 1 : 2;
    const double space = 4 * D * P + directions * (16 * P + 4 * D * P) + 2 * D;
    return (double)T * (space + 2 * D * (double)output_rows(mixer));
}

enum { VALUES = 1 };

/* Values stand behind the gates. */
static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    return layout == VALUES ? mixer->width + r : r;
}

static const ls_alias aliases[] = {
    {"B", "B.weight", LS_ALIAS_PAIRS},
    {"C", "C.weight", 0},
    {"C", "C1.weight", LS_ALIAS_SIDE}, /* complex_normal draws both at once */
    {"C", "C2.weight", LS_ALIAS_SIDE},
    {"C1", "C1.weight", 0},
    {"C2", "C2.weight", 0},
    {"out2.kernel", "out.weight", LS_ALIAS_TRANSPOSED}, /* gates */
    {"out2.bias", "out.bias", 0},
    {"out1.kernel", "out.weight", LS_ALIAS_TRANSPOSED | VALUES},
    {"out1.bias", "out.bias", VALUES},
    {0},
};

static const char *const at_test[] = {"step_scale", NULL};

static const ls_buffer buffers[] = {
    {"out.B_bar", NULL},
    {"out.Lambda_bar", NULL},
    {0},
};

const ls_mixer_type ls_mixer_s5 = {
    .name = "s5",
    .summary = "one diagonal state space for all channels: a scan between two products",
    .paper = "arXiv 2208.04933",
    .options = LS_OPTIONS(options, s5_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
    .at_test = at_test,
};
