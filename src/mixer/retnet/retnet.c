/* Multi-scale retention (RetNet, arXiv 2307.08621): a linear recurrence with one fixed decay per
 * head, rotated queries and keys, a norm per head and a gate. Its parallel, recurrent and chunkwise
 * forms are one function here, whatever the chunk. See retnet.md. */
#include <math.h>

#include "mixer/mixer.h"

typedef struct retnet_options {
    int64_t heads, key_width, value_width;
    int decay, rotation, norm, scaling, gate;
    ls_reals gamma;
    double base, scale_base, epsilon;
    bool gain, bias;
} retnet_options;

enum { DECAY_POWERS, DECAY_EVEN, DECAY_NONE };
enum { ROTATION_RETNET, ROTATION_ROPE, ROTATION_XPOS, ROTATION_NONE };
enum { NORM_RMS, NORM_LAYER, NORM_NONE };
enum { SCALING_WIDTH, SCALING_ROOT, SCALING_SUMS, SCALING_NONE };
enum { GATE_SILU, GATE_NONE };
enum { SUMS_MAX = 50000 }; /* the public code divides by no more */

#define FIELD(name) retnet_options, name
static const ls_option options[] = {
    LS_INT("heads", FIELD(heads), "4", 1, LS_OPTION_LIST_MAX, "Heads."),
    LS_INT("key_width", FIELD(key_width), "0", 0, 2 * LS_PAIRS_MAX,
           "Head dimension of queries and keys; 0: width/heads."),
    LS_INT("value_width", FIELD(value_width), "0", 0, 65536,
           "Head dimension of values; 0: twice width/heads."),
    LS_CHOICE("decay", FIELD(decay), "powers", "powers|even|none",
              "Decay of a head per token: 1/32, 1/64, ...; from 1/32 to 1/512 in even ratios "
              "(the paper's language models); none.",
              .needs = "no gamma"),
    LS_REALS("gamma", FIELD(gamma), "", 1e-30, 1,
             "What a head keeps per token, instead of decay: one number for all heads, or one "
             "for each."),
    LS_CHOICE("rotation", FIELD(rotation), "retnet", "retnet|rope|xpos|none",
              "Rotation of queries and keys by position: the authors' code; RoPE in halves; RoPE "
              "in neighbouring pairs that fade as xPos does; none."),
    LS_REAL("base", FIELD(base), "10000", 1, 1e12,
            "Ratio of the fastest to the slowest frequency of the pairs.",
            .needs = "rotation!=none"),
    LS_REAL("scale_base", FIELD(scale_base), "512", 2, 1e15,
            "Distance over which pair i fades by zeta_i.", .needs = "rotation=xpos"),
    LS_CHOICE("scaling", FIELD(scaling), "width", "width|root|sums|none",
              "Scaling of scores before the norm: 1/sqrt(key_width); that over sqrt(sum of "
              "decays) too; none."),
    LS_CHOICE("norm", FIELD(norm), "rms", "rms|layer|none", "Norm of each head's output."),
    LS_REAL("eps", FIELD(epsilon), "1e-6", 0, 1, "Added to the mean square in that norm.",
            .needs = "norm!=none"),
    LS_BOOL("gain", FIELD(gain), "false", "Whether the norm has a learned gain, one for all heads.",
            .needs = "norm!=none"),
    LS_CHOICE("gate", FIELD(gate), "silu", "silu|none", "Gate on the output."),
    LS_BOOL("bias", FIELD(bias), "false", "Biases on the projections."),
};

typedef struct shape {
    int64_t heads, K, V, parts; /* parts: projections as wide as the values, the gate being one */
} shape;

static shape shape_of(const ls_mixer *mixer) {
    const retnet_options *o = mixer->options;
    int64_t each = mixer->width / o->heads;
    return (shape){.heads = o->heads,
                   .K = o->key_width > 0 ? o->key_width : each,
                   .V = o->value_width > 0 ? o->value_width : 2 * each,
                   .parts = o->gate == GATE_NONE ? 1 : 2};
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const retnet_options *o = mixer->options;
    const shape s = shape_of(mixer);
    if ((o->key_width == 0 || o->value_width == 0) && mixer->width % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "retnet: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width): set mixer.key_width and mixer.value_width, or "
                       "another number",
                       (long long)o->heads, (long long)mixer->width);
    if (o->rotation != ROTATION_NONE && (s.K % 2 != 0 || s.K > 2 * LS_PAIRS_MAX))
        return LS_FAIL(ctx, LS_EUSE,
                       "retnet: a key_width of %lld cannot be rotated in pairs: it must be even "
                       "and at most %d",
                       (long long)s.K, 2 * LS_PAIRS_MAX);
    if (o->gamma.count > 1 && o->gamma.count != o->heads)
        return LS_FAIL(ctx, LS_EUSE,
                       "retnet: gamma has %lld numbers; give one, or one for each of %lld heads",
                       (long long)o->gamma.count, (long long)o->heads);
    if (o->scaling == SCALING_SUMS && o->rotation == ROTATION_XPOS)
        return LS_FAIL(ctx, LS_EUSE,
                       "retnet: scaling=sums has no form in which scores fade: choose another "
                       "rotation than xpos");
    if (o->gain && o->norm == NORM_NONE)
        return LS_FAIL(ctx, LS_EUSE, "retnet: gain belongs to a norm, and norm is none");
    return LS_OK;
}

/* log of what head h keeps per token. */
static double log_decay(const retnet_options *o, int64_t h) {
    if (o->gamma.count > 0) return log(o->gamma.at[o->gamma.count > 1 ? h : 0]);
    if (o->decay == DECAY_NONE) return 0;
    if (o->decay == DECAY_POWERS) return log1p(-exp2(-5 - (double)h));
    double share = o->heads > 1 ? (double)h / (double)(o->heads - 1) : 0;
    return log1p(-exp(-log(32.0) - share * log(16.0)));
}

static ls_rotary rotary_of(const retnet_options *o, int64_t K) {
    ls_rotary rotary = {.pairs = K / 2, .halves = o->rotation == ROTATION_ROPE, .factor = 1};
    /* the authors' exponents run from 0 to 1 inclusive, RoPE's stop a step before 1 */
    int64_t steps = o->rotation == ROTATION_RETNET ? ls_max(rotary.pairs - 1, 1) : rotary.pairs;
    for (int64_t i = 0; i < rotary.pairs; i++)
        rotary.frequency[i] = pow(o->base, -(double)i / (double)steps);
    return rotary;
}

/* x, transposed by its positions and times a factor. */
static ls_tensor *place(ls_program *p, const retnet_options *o, ls_tensor *x, int64_t K,
                        double factor) {
    if (o->rotation == ROTATION_NONE) return ls_times(p, x, factor);
    ls_rotary rotary = rotary_of(o, K);
    rotary.factor = factor;
    return ls_rotate(p, x, &rotary, (ls_position_map){LS_MAP_IDENTITY, 0, 0}, false);
}

/* Uniform as Glorot and Bengio 2010 have it. */
static ls_init xavier(int64_t in, int64_t out, double gain) {
    return (ls_init){.kind = LS_INIT_UNIFORM, .a = gain * sqrt(6 / (double)(in + out))};
}

/* Projections that lie one below the other; each has the same number of rows. */
static ls_tensor *project(ls_program *p, const retnet_options *o, const char *name, ls_tensor *x,
                          int64_t parts, int64_t rows, double gain) {
    const int64_t width = x == NULL ? 1 : x->dim[x->rank - 1];
    ls_scope(p, "%s", name);
    ls_tensor *weight =
        ls_param(p, "weight", LS_DIMS(parts * rows, width), xavier(width, rows, gain));
    ls_tensor *bias = o->bias ? ls_param(p, "bias", LS_DIMS(parts * rows), ls_init_bias()) : NULL;
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

static ls_tensor *retain(ls_program *p, const retnet_options *o, const shape *s, ls_tensor *q,
                         ls_tensor *k, ls_tensor *v) {
    const int64_t B = ls_program_about(p)->batch;
    const double factor = o->scaling == SCALING_NONE ? 1 : 1 / sqrt((double)s->K);
    double decay[LS_OPTION_LIST_MAX], fade[2 * LS_PAIRS_MAX];
    for (int64_t h = 0; h < s->heads; h++) decay[h] = log_decay(o, h);
    for (int64_t i = 0; o->rotation == ROTATION_XPOS && i < s->K; i++)
        fade[i] = log(((double)(i / 2) / (double)(s->K / 2) + 0.4) / 1.4) / o->scale_base;
    const ls_linear_scan_operands scan = {
        .q = place(p, o, q, s->K, 1),
        .k = place(p, o, k, s->K, factor),
        .v = v,
        .before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(B, s->heads, s->K, s->V)),
        .log_decay = decay,
        .feature_log_decay = o->rotation == ROTATION_XPOS ? fade : NULL,
        .rooted = o->scaling == SCALING_ROOT || o->scaling == SCALING_SUMS,
    };
    ls_tensor *after, *y = ls_linear_scan(p, &scan, NULL, &after);
    ls_state_write(p, "state", after);
    if (o->scaling != SCALING_SUMS) return y;
    return ls_divide_by_scores(p, y, scan.q, scan.k, decay, (ls_score_bounds){1, SUMS_MAX});
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const retnet_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t B = x->dim[0], T = x->dim[1], keys = s.heads * s.K, values = s.heads * s.V;
    if (o->scaling == SCALING_SUMS && ls_program_about(p)->streaming) {
        ls_refuse(p, LS_EUSE,
                  "retnet with scaling=sums needs a text whole: a recurrence cannot know the sums "
                  "(scaling=root takes it in chunks)");
        return NULL;
    }
    ls_tensor *qk[2], *vg[2] = {0};
    ls_split(p, project(p, o, "qk", x, 2, keys, exp2(-2.5)), 2, (const int64_t[]){keys, keys}, qk);
    ls_split(p, project(p, o, "vg", x, s.parts, values, exp2(-2.5)), (int)s.parts,
             (const int64_t[]){values, values}, vg);
    ls_tensor *y = retain(p, o, &s, ls_reshape(p, qk[0], LS_DIMS(B, T, s.heads, s.K)),
                          ls_reshape(p, qk[1], LS_DIMS(B, T, s.heads, s.K)),
                          ls_reshape(p, vg[0], LS_DIMS(B, T, s.heads, s.V)));
    if (o->norm != NORM_NONE) {
        ls_tensor *gain = o->gain ? ls_param(p, "norm.weight", LS_DIMS(s.V), ls_init_gain()) : NULL;
        y = ls_residual_norm(p, o->norm == NORM_RMS ? LS_NORM_RMS : LS_NORM_LAYER, o->epsilon, y,
                             NULL, gain, NULL, NULL);
    }
    y = ls_reshape(p, y, LS_DIMS(B, T, values));
    if (o->gate != GATE_NONE) y = ls_gate(p, LS_ACT_SILU, vg[1], y);
    return project(p, o, "out", y, 1, mixer->width, 0.5);
}

/* The state, which is never narrower than f32. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)T;
    const shape s = shape_of(mixer);
    return s.heads * s.K * s.V * ls_max(size, 4);
}

/* Projections, per token the state's update and reading, and the scores where they are summed. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const shape s = shape_of(mixer);
    const retnet_options *o = mixer->options;
    int64_t projected = s.heads * (2 * s.K + (s.parts + 1) * s.V);
    const double scores = o->scaling == SCALING_SUMS ? (double)(s.heads * s.K * (T + 1)) : 0;
    return (double)T * (2 * (double)mixer->width * (double)projected +
                        4 * (double)s.heads * (double)(s.K * s.V) + scores);
}

/* Which of the parts of a joint projection an official tensor is. */
enum { PART_FIRST, PART_KEYS, PART_GATE };

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const shape s = shape_of(mixer);
    if (layout == PART_KEYS) return s.heads * s.K + r;
    if (layout == PART_GATE) return s.heads * s.V + r;
    return r;
}

static const ls_alias aliases[] = {
    LS_ALIAS_LAYER("q_proj", "qk", PART_FIRST),
    LS_ALIAS_LAYER("k_proj", "qk", PART_KEYS),
    LS_ALIAS_LAYER("v_proj", "vg", PART_FIRST),
    LS_ALIAS_LAYER("g_proj", "vg", PART_GATE),
    LS_ALIAS_LAYER("out_proj", "out", PART_FIRST),
    LS_ALIAS_LAYER("o_proj", "out", PART_FIRST),
    {"g_norm_swish_gate.weight", "norm.weight", PART_FIRST},
    {"g_norm.weight", "norm.weight", PART_FIRST},
    {0},
};

/* Frequencies, each for both elements of a pair. */
static ls_status angles(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                        int64_t *count) {
    const retnet_options *o = mixer->options;
    const ls_rotary rotary = rotary_of(o, shape_of(mixer).K);
    (void)T;
    *count = o->rotation == ROTATION_NONE ? 0 : 2 * rotary.pairs;
    *out = ls_new(ctx, (size_t)*count + 1, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < *count; i++) (*out)[i] = rotary.frequency[i / 2];
    return LS_OK;
}

static ls_status decays(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                        int64_t *count) {
    const retnet_options *o = mixer->options;
    (void)T;
    *count = o->heads;
    *out = ls_new(ctx, (size_t)*count, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t h = 0; h < *count; h++) (*out)[h] = log_decay(o, h);
    return LS_OK;
}

static const ls_buffer buffers[] = {
    {"w.retnet_rel_pos.angle", angles},
    {"w.retnet_rel_pos.decay", decays},
    {"out.prenorm", NULL},
    {"out.state", NULL},
    {"out.state_scale", NULL},
    {0},
};

const ls_mixer_type ls_mixer_retnet = {
    .name = "retnet",
    .summary = "multi-scale retention: linear attention that forgets, with a gate; constant state",
    .paper = "arXiv 2307.08621",
    .options = LS_OPTIONS(options, retnet_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
