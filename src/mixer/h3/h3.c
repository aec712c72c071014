/* H3 (arXiv 2212.14052): a shift and a diagonal state space with two products between them, which
 * compare and recall as attention does. See h3.md. */
#include <math.h>

#include "mixer/ssm_layer.h"

typedef struct h3_options {
    ls_ssm_options space; /* the first: its options are entered as those of S4D are */
    int64_t head_dim;
} h3_options;

#define FIELD(name) h3_options, name
static const ls_option options[] = {
    LS_INT("d_state", LS_SSM_FIELD(d_state), "64", 2, 1024,
           "State size of each channel, of the shift and, in conjugate pairs, of the diagonal "
           "SSM."),
    LS_INT("head_dim", FIELD(head_dim), "1", 1, 1024,
           "Head dimension, over which keys and values are multiplied as an outer product."),
    LS_INT("copies", LS_SSM_FIELD(copies), "0", 0, 1e6,
           "Independent A and B, shared by the heads in turn; 0: one per head."),
    LS_SSM_DT_MIN,
    LS_SSM_DT_MAX,
    LS_CHOICE("hold", LS_SSM_FIELD(hold), "bilinear", "zoh|bilinear",
              "Discretisation: zero-order hold, or bilinear."),
    LS_SSM_INIT("lin"),
    LS_SSM_RATE,
    LS_SSM_BANDLIMIT,
    LS_SSM_REAL,
    LS_SSM_L_MAX,
};

static int64_t heads_of(const ls_mixer *mixer) {
    return mixer->width / ((const h3_options *)mixer->options)->head_dim;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const h3_options *o = mixer->options;
    if (mixer->width % o->head_dim != 0)
        return LS_FAIL(ctx, LS_EUSE, "h3: heads of %lld do not fill a width of %lld",
                       (long long)o->head_dim, (long long)mixer->width);
    LS_TRY(ls_ssm_check_space(ctx, "h3", &o->space, heads_of(mixer)));
    if (!mixer->causal)
        return LS_FAIL(ctx, LS_EUSE, "h3 looks back alone: it cannot be bidirectional");
    return LS_OK;
}

static ls_tensor *project(ls_program *p, const char *name, ls_tensor *x, int64_t out) {
    ls_scope(p, "%s", name);
    ls_tensor *weight =
        ls_param(p, "weight", LS_DIMS(out, x == NULL ? 1 : x->dim[2]), ls_init_normal(0.02));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(out), ls_init_bias());
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

/* Everything enters at the first place; a is their number. */
static void fill_first_place(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = i % (int64_t)init->a == 0;
}

static ls_init normal(double deviation) {
    return (ls_init){.kind = LS_INIT_NORMAL, .a = deviation, .full = true};
}

/* How many keys the shift reaches. */
static int64_t reach_of(const ls_ssm_options *o) {
    const int64_t lags = ls_ssm_lags(o);
    return lags > 0 ? ls_min(lags, o->d_state) : o->d_state;
}

/* A memory of the last N keys. */
static ls_tensor *shift(ls_program *p, const ls_ssm_options *o, ls_tensor *k) {
    if (k == NULL) return NULL;
    const int64_t D = k->dim[2], N = o->d_state, reach = reach_of(o);
    const ls_init first = {.kind = LS_INIT_CUSTOM,
                           .a = (double)N,
                           .fill = fill_first_place,
                           .no_decay = true,
                           .full = true};
    const ls_init uniform = {
        .kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)N), .no_decay = true, .full = true};
    ls_scope(p, "shift");
    ls_tensor *kernel = ls_shift_kernel(p, ls_param(p, "B", LS_DIMS(D, N), first),
                                        ls_param(p, "C", LS_DIMS(1, D, N), uniform));
    if (reach < N) {
        ls_tensor *parts[2];
        ls_cut_rows(p, kernel, 2, (const int64_t[]){reach, N - reach}, parts);
        kernel = parts[0];
    }
    ls_tensor *past = ls_cache_append(p, "keys", k, (ls_retention){.window = reach});
    ls_tensor *y = ls_past_conv(p, past, kernel, ls_param(p, "D", LS_DIMS(D), normal(1)));
    ls_scope_end(p);
    return y;
}

/* A memory without an end, one for every head: u is [.., T, heads]. */
static ls_tensor *remember(ls_program *p, const ls_ssm_options *o, ls_tensor *u) {
    if (u == NULL) return NULL;
    const int64_t H = u->dim[2], h = o->d_state / 2, S = o->copies > 0 ? o->copies : H;
    const ls_spectrum spectrum = (ls_spectrum)o->init;
    const ls_kept real = (ls_kept)o->real;
    ls_scope(p, "diagonal");
    const ls_state_space space = {
        .A_real = ls_param(p, "A_real", LS_DIMS(S, h), ls_ssm_decays(spectrum, h, real)),
        .A_imag =
            ls_param(p, "A_imag", LS_DIMS(S, h), ls_ssm_frequencies(spectrum, h, LS_KEPT_PLAIN)),
        .B = ls_param(p, "B", LS_DIMS(S, h, 2), ls_ssm_inputs(spectrum, h)),
        .C = ls_param(p, "C", LS_DIMS(1, H, h, 2), normal(sqrt(0.5))),
        .dt = ls_param(p, "log_dt", LS_DIMS(H), ls_ssm_steps(o->dt_min, o->dt_max, LS_STEP_EXP)),
        .hold = (ls_hold)o->hold,
        .step = LS_STEP_EXP,
        .real = real,
        .rate = o->rate,
        .band = o->bandlimit,
        .upper = true,
    };
    ls_tensor *skip = ls_param(p, "D", LS_DIMS(H), normal(1));
    ls_tensor *y = ls_ssm_mix(p, &space, ls_ssm_lags(o), u, skip);
    ls_scope_end(p);
    return y;
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const h3_options *o = mixer->options;
    const int64_t D = mixer->width, H = heads_of(mixer);
    ls_tensor *qkv[3];
    if (x == NULL) return NULL;
    ls_split(p, project(p, "in", x, 3 * D), 3, (const int64_t[]){D, D, D}, qkv);
    ls_tensor *k = shift(p, &o->space, qkv[1]), *y;
    if (o->head_dim == 1) {
        y = ls_gate(p, LS_ACT_NONE, k, qkv[2]);
        y = ls_gate(p, LS_ACT_NONE, qkv[0], remember(p, &o->space, y));
    } else {
        y = ls_head_outer(p, H, k, qkv[2]);
        y = ls_head_contract(p, H, qkv[0], remember(p, &o->space, y));
    }
    return project(p, "out", y, D);
}

/* Keys that the shift still reaches, and a state for every pair of a head's elements. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const h3_options *o = mixer->options;
    const int64_t D = mixer->width;
    return ls_cache_rows((ls_retention){.window = reach_of(&o->space)}, T, 1) * D * size +
           ls_ssm_mix_bytes(&o->space, o->head_dim * D, T, size);
}

/* Projections, the shift and its kernel, the diagonal's kernel and its convolutions. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const h3_options *o = mixer->options;
    const int64_t N = o->space.d_state;
    const double D = (double)mixer->width, H = (double)heads_of(mixer), W = (double)o->head_dim;
    return (double)T * D * (8 * D + 2 * (double)ls_min(N, T)) + D * (double)(N * (N + 1)) +
           H * (double)T * ls_state_space_flops(N / 2, 0) + D * W * ls_long_conv_flops(T);
}

/* Which of the parts of the joint projection an official tensor is. */
static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    return layout * mixer->width + r;
}

static const ls_alias aliases[] = {
    {"q_proj.weight", "in.weight", 0},
    {"q_proj.bias", "in.bias", 0},
    {"k_proj.weight", "in.weight", 1},
    {"k_proj.bias", "in.bias", 1},
    {"v_proj.weight", "in.weight", 2},
    {"v_proj.bias", "in.bias", 2},
    {"ssm_k_kernel.kernel.B", "shift.B", 0},
    {"ssm_k_kernel.kernel.C", "shift.C", 0},
    {"ssm_k_D", "shift.D", 0},
    {"kernel.kernel.inv_A_real", "diagonal.A_real", 0},
    {"kernel.kernel.A_imag", "diagonal.A_imag", 0},
    {"kernel.kernel.B", "diagonal.B", 0},
    {"kernel.kernel.C", "diagonal.C", 0},
    {"kernel.kernel.log_dt", "diagonal.log_dt", 0},
    {"D", "diagonal.D", 0},
    {"output_linear.weight", "out.weight", 0},
    {"output_linear.bias", "out.bias", 0},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.kernel", NULL},
    {"out.shift_kernel", NULL},
    {"out.state_diag", NULL},
    {"out.state_shift", NULL},
    {0},
};

const ls_mixer_type ls_mixer_h3 = {
    .name = "h3",
    .summary = "a shift and a diagonal state space with products between them; constant state",
    .paper = "arXiv 2212.14052",
    .options = LS_OPTIONS(options, h3_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
    .at_test = ls_ssm_at_test,
};
