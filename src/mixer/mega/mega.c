/* Mega (arXiv 2209.10655): a damped moving average of every channel, and one head of attention,
 * gated, whose queries and keys come from it. See mega.md. */
#include <math.h>

#include "mixer/mixer.h"

typedef struct mega_options {
    int64_t dims, key_width, value_width, chunk, max_positions, truncation;
    int attention, bias, beyond, norm, norm_place, residual, activation;
    double base, epsilon, dropout, hidden_dropout;
    bool rounded, norm_affine;
} mega_options;

enum { ATTENTION_SOFTMAX, ATTENTION_LAPLACE, ATTENTION_RELU2, ATTENTION_NONE };
enum { BIAS_ROTARY, BIAS_SIMPLE };
enum { BEYOND_REFUSE, BEYOND_CLAMP };
enum { NORM_NONE, NORM_LAYER, NORM_RMS, NORM_SCALE };
enum { PLACE_BEFORE, PLACE_AFTER };
enum { RESIDUAL_DIFFERENCE, RESIDUAL_STREAM, RESIDUAL_GATED };

static const ls_act_kind activations[] = {LS_ACT_SILU, LS_ACT_GELU, LS_ACT_GELU_TANH,
                                          LS_ACT_RELU, LS_ACT_TANH, LS_ACT_NONE};

#define FIELD(name) mega_options, name
static const ls_option options[] = {
    LS_INT("dims", FIELD(dims), "16", 1, LS_EMA_DIMS_MAX,
           "Dimensions of the moving average of each channel."),
    LS_INT("key_width", FIELD(key_width), "0", 0, 65536,
           "Width of queries and keys, even for the rotary bias; 0: width/4, rounded up to be "
           "even.",
           .needs = "attention!=none"),
    LS_INT("value_width", FIELD(value_width), "0", 0, 65536, "Width of values; 0: twice the width.",
           .needs = "attention!=none"),
    LS_CHOICE("attention", FIELD(attention), "softmax", "softmax|laplace|relu2|none",
              "Function from scores to weights; none: the layer is its moving average alone."),
    LS_CHOICE("activation", FIELD(activation), "silu", "silu|gelu|gelu_tanh|relu|tanh|none",
              "Activation of the values and of the output.", .needs = "attention!=none"),
    LS_INT("chunk", FIELD(chunk), "0", 0, 1e9,
           "Tokens of the chunks that attention stays within; 0: it sees everything.",
           .needs = "attention!=none"),
    LS_CHOICE("bias", FIELD(bias), "rotary", "rotary|simple",
              "Bias by distance: from two rotated vectors, for any distance; or one number per "
              "distance.",
              .needs = "attention!=none"),
    LS_INT("max_positions", FIELD(max_positions), "2048", 1, 1e9,
           "Distances that there are numbers for.",
           .needs = "attention!=none and bias=simple and no chunk"),
    LS_CHOICE("beyond", FIELD(beyond), "refuse", "refuse|clamp",
              "What becomes of longer distances: they are refused, or take the farthest number.",
              .needs = "attention!=none and bias=simple and no chunk"),
    LS_REAL("base", FIELD(base), "10000", 1, 1e12,
            "Ratio of the fastest to about the slowest frequency of the pairs.",
            .needs = "attention!=none and bias=rotary"),
    LS_INT("truncation", FIELD(truncation), "0", 0, 1e15,
           "Lags that the moving average of a whole sequence reaches; 0: to its beginning "
           "(streams are never cut, as in the authors' code)."),
    LS_BOOL("rounded", FIELD(rounded), "false",
            "Whether constants have six digits, as in the authors' code.",
            .needs = "attention=laplace"),
    LS_CHOICE("residual", FIELD(residual), "difference", "difference|stream|gated",
              "Output: the gated difference to the input, which a model adds to it; the difference "
              "to the rows that the input is the norm of (the authors' layer with a norm before "
              "it); or the sum itself."),
    LS_REAL("dropout", FIELD(dropout), "0", 0, 0.95,
            "Share of the moving average and of H dropped in training."),
    LS_REAL("hidden_dropout", FIELD(hidden_dropout), "0", 0, 0.95,
            "Share of the values dropped in training.", .needs = "attention!=none"),
    LS_CHOICE("norm", FIELD(norm), "none", "none|layer|rms|scale",
              "A norm of the layer's own (models have theirs); scale: RMSNorm with one gain for "
              "all channels."),
    LS_BOOL("norm_affine", FIELD(norm_affine), "true",
            "Whether that norm has gains (and a layer norm a bias).", .needs = "norm!=none"),
    LS_CHOICE("norm_place", FIELD(norm_place), "before", "before|after",
              "Place of the norm: on the input (the residual keeps the input as it came), or on "
              "the sum.",
              .needs = "norm!=none"),
    LS_REAL("eps", FIELD(epsilon), "1e-5", 0, 1, "Added to the mean square in that norm.",
            .needs = "norm!=none"),
};

typedef struct shape {
    int64_t D, N, Z, V;
} shape;

static shape shape_of(const ls_mixer *mixer) {
    const mega_options *o = mixer->options;
    const int64_t D = mixer->width;
    return (shape){.D = D,
                   .N = o->dims,
                   .Z = o->key_width > 0 ? o->key_width : ls_round_up(ls_max(D / 4, 1), 2),
                   .V = o->value_width > 0 ? o->value_width : 2 * D};
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const mega_options *o = mixer->options;
    const shape s = shape_of(mixer);
    if (o->bias == BIAS_ROTARY && s.Z % 2 != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "mega: a key_width of %lld cannot be rotated in pairs (set an even one, or "
                       "bias=simple)",
                       (long long)s.Z);
    if (o->norm != NORM_NONE && o->norm_place == PLACE_AFTER && o->residual != RESIDUAL_GATED)
        return LS_FAIL(ctx, LS_EUSE,
                       "mega: norm_place=after norms the sum, which residual=gated alone gives");
    if (o->attention == ATTENTION_NONE && o->residual == RESIDUAL_GATED)
        return LS_FAIL(ctx, LS_EUSE, "mega: attention=none has no gate: set residual=difference");
    return LS_OK;
}

/* ---- parts ---- */

static ls_init small(ls_init init) {
    init.no_decay = init.full = true;
    return init;
}

/* +1, -1, +1, .. along the a dimensions, and a normal number with the deviation b on top: the
 * numbers of a pair of draws are independent. */
static void fill_beta(const ls_init *init, double *values, int64_t count) {
    const double circle = 8 * atan(1);
    for (int64_t i = 0; i < count; i += 2) {
        double other = i + 1 < count ? values[i + 1] : 0.25;
        double size = init->b * sqrt(-2 * log1p(-values[i]));
        double pair[2] = {size * cos(circle * other), size * sin(circle * other)};
        for (int64_t j = i; j < ls_min(i + 2, count); j++)
            values[j] = (j % (int64_t)init->a % 2 == 0 ? 1 : -1) + pair[j - i];
    }
}

/* x times the one number of a parameter. */
static ls_tensor *scaled(ls_program *p, ls_tensor *x) {
    const ls_init one = {.kind = LS_INIT_CONSTANT, .a = 1, .no_decay = true};
    ls_tensor *scale = ls_param(p, "scale", LS_DIMS(1, 1), one);
    if (x == NULL) return NULL;
    ls_tensor *column = ls_reshape(p, x, LS_DIMS(x->dim[0], x->dim[1], x->dim[2], 1));
    return ls_reshape(p, ls_linear(p, column, scale, NULL),
                      LS_DIMS(x->dim[0], x->dim[1], x->dim[2]));
}

static ls_tensor *norm(ls_program *p, const mega_options *o, ls_tensor *x) {
    const int64_t D = x == NULL ? 1 : x->dim[x->rank - 1];
    const ls_norm_kind kind = o->norm == NORM_LAYER ? LS_NORM_LAYER : LS_NORM_RMS;
    const bool each = o->norm_affine && o->norm != NORM_SCALE;
    ls_scope(p, "norm");
    ls_tensor *weight = each ? ls_param(p, "weight", LS_DIMS(D), ls_init_gain()) : NULL;
    ls_tensor *bias =
        each && o->norm == NORM_LAYER ? ls_param(p, "bias", LS_DIMS(D), ls_init_bias()) : NULL;
    ls_tensor *y = ls_residual_norm(p, kind, o->epsilon, x, NULL, weight, bias, NULL);
    if (o->norm == NORM_SCALE && o->norm_affine) y = scaled(p, y);
    ls_scope_end(p);
    return y;
}

static ls_tensor *project(ls_program *p, const char *name, ls_tensor *x, int64_t rows) {
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(rows, x == NULL ? 1 : x->dim[x->rank - 1]),
                                 ls_init_normal(0.02));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(rows), ls_init_bias());
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

/* Padding comes last: what looks back alone never sees it. */
static ls_tensor *padding(const ls_mixer *mixer) {
    return mixer->causal ? NULL : mixer->valid;
}

/* silu(moving average + omega x): in a stream the recurrence, else its kernel. */
static ls_tensor *average(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const mega_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t B = x == NULL ? 1 : x->dim[0], T = x == NULL ? 1 : x->dim[1];
    const int64_t rows = mixer->causal ? s.D : 2 * s.D;
    const ls_init gate = {.kind = LS_INIT_NORMAL, .a = 0.2}, one = {.kind = LS_INIT_NORMAL, .a = 1};
    const ls_init signs = {.kind = LS_INIT_CUSTOM, .a = (double)s.N, .b = 0.02, .fill = fill_beta};
    ls_scope(p, "ema");
    const ls_ema ema = {.delta = ls_param(p, "delta", LS_DIMS(rows, s.N, 1), small(gate)),
                        .alpha = ls_param(p, "alpha", LS_DIMS(rows, s.N, 1), small(gate)),
                        .beta = ls_param(p, "beta", LS_DIMS(rows, s.N, 1), small(signs)),
                        .gamma = ls_param(p, "gamma", LS_DIMS(rows, s.N), small(one))};
    ls_tensor *omega = ls_param(p, "omega", LS_DIMS(s.D), small(one)), *y, *ahead = NULL;
    if (ls_program_about(p)->streaming) {
        ls_tensor *before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(B, s.D, s.N)),
                  *after;
        y = ls_ema_scan(p, &ema, x, omega, before, &after);
        ls_state_write(p, "state", after);
    } else {
        const int64_t reach = o->truncation > 0 ? ls_min(o->truncation, T) : T;
        ls_tensor *kernel = ls_ema_kernel(p, &ema, reach, mixer->causal ? NULL : &ahead);
        y = ls_long_conv(p, x, kernel, omega, false);
        if (ahead != NULL) y = ls_plus(p, y, ls_long_conv(p, x, ahead, NULL, true));
    }
    ls_scope_end(p);
    return ls_activate(p, LS_ACT_SILU, false, y);
}

/* Positions that the numbers of bias=simple are for. */
static int64_t simple_reach(const mega_options *o) {
    return o->chunk > 0 ? o->chunk : o->max_positions;
}

/* Distances in one direction for which T tokens need a bias, 0 included; a table's ends serve
 * everything beyond. */
static int64_t reach_of(const mega_options *o, int64_t T) {
    const bool clamped = o->bias == BIAS_SIMPLE && o->beyond == BEYOND_CLAMP;
    const int64_t reach = o->chunk > 0 ? ls_min(o->chunk, T) : T;
    return clamped ? ls_min(reach, simple_reach(o)) : reach;
}

/* The authors' code counts from the farthest key behind: row r is for key - query = r
 * - (most - 1). */
static ls_tensor *simple_table(ls_program *p, const mega_options *o, int64_t R, int64_t zero) {
    const int64_t most = simple_reach(o);
    const ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02};
    ls_tensor *weight = ls_param(p, "bias", LS_DIMS(2 * most - 1, 1), small(init));
    if (R - zero > most) {
        ls_refuse(p, LS_EUSE,
                  "mega: bias=simple has numbers for %lld positions, not for %lld (set "
                  "max_positions, chunk, or beyond=clamp)",
                  (long long)most, (long long)(R - zero));
        return NULL;
    }
    int32_t *row = ls_new(ls_program_ctx(p), (size_t)R, sizeof *row);
    if (row == NULL) {
        ls_refuse(p, LS_ENOMEM, "%s", ls_program_ctx(p)->error.message);
        return NULL;
    }
    for (int64_t r = 0; r < R; r++) row[r] = (int32_t)(most - 1 - (r - zero));
    ls_tensor *table = ls_bucket_table(p, weight, R, row);
    ls_free(ls_program_ctx(p), row);
    return table;
}

/* Biases by distance for T tokens; *zero is the column of distance 0. */
static ls_tensor *table_of(ls_program *p, const ls_mixer *mixer, int64_t T, int64_t *zero) {
    const mega_options *o = mixer->options;
    const int64_t Z = shape_of(mixer).Z, reach = reach_of(o, T);
    const ls_init init = {.kind = LS_INIT_NORMAL, .a = 0.02};
    *zero = mixer->causal ? 0 : reach - 1;
    if (o->bias == BIAS_SIMPLE) return simple_table(p, o, *zero + reach, *zero);
    ls_tensor *alpha = ls_param(p, "bias.alpha", LS_DIMS(1, Z), small(init));
    ls_tensor *beta = ls_param(p, "bias.beta", LS_DIMS(1, Z), small(init));
    return ls_rotary_table(p, alpha, beta, o->base, *zero + reach, *zero);
}

/* One head, over everything before or within chunks. */
static ls_tensor *attend(ls_program *p, const ls_mixer *mixer, ls_tensor *q, ls_tensor *k,
                         ls_tensor *v) {
    const mega_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    const ls_retention keep = {.window = o->chunk};
    ls_key_set segment =
        ls_key_set_all(q, ls_cache_append(p, "k", k, keep), ls_cache_append(p, "v", v, keep));
    segment.table =
        table_of(p, mixer, about->streaming ? about->capacity : about->length, &segment.table_zero);
    segment.valid = padding(mixer);
    segment.block = o->chunk;
    segment.alone = true;
    if (mixer->causal) segment.lo = 0;
    if (ls_failed(p)) return NULL;
    if (o->attention == ATTENTION_SOFTMAX) {
        ls_attention_options scale = {.scale = 1 / sqrt((double)shape_of(mixer).Z)};
        return ls_attention_seen(p, 1, &segment, scale);
    }
    /* with these constants laplace has the value and the slope of relu2 at its mean */
    ls_weighting weighting = {.kind = LS_WEIGHT_RELU2};
    if (o->attention == ATTENTION_LAPLACE)
        weighting = (ls_weighting){.kind = LS_WEIGHT_LAPLACE,
                                   .mean = o->rounded ? 0.707107 : sqrt(0.5),
                                   .deviation = o->rounded ? 0.282095 : 0.25 / sqrt(atan(1))};
    return ls_pointwise_attention(p, &segment, 1, weighting);
}

/* ---- the layer ---- */

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    if (x == NULL) return NULL;
    const mega_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t B = x->dim[0], T = x->dim[1];
    ls_tensor *in = o->norm != NORM_NONE && o->norm_place == PLACE_BEFORE ? norm(p, o, x) : x;
    ls_tensor *counted = ls_mask_rows(p, in, padding(mixer));
    if (o->attention == ATTENTION_NONE)
        return ls_dropout(p, average(p, mixer, counted), o->dropout);
    const ls_act_kind activation = activations[o->activation];
    ls_tensor *v = ls_activate(p, activation, false, project(p, "v", in, s.V));
    v = ls_dropout(p, v, o->hidden_dropout);
    ls_tensor *mixed = ls_dropout(p, average(p, mixer, counted), o->dropout);
    enum { UPDATE, SHARED, RESET, HIDDEN, PARTS };
    ls_tensor *part[PARTS], *qk[2];
    ls_split(p, project(p, "mx", mixed, 2 * s.D + s.Z + s.V), PARTS,
             (const int64_t[]){s.D, s.Z, s.V, s.D}, part);
    ls_tensor *shared = ls_activate(p, LS_ACT_SILU, false, part[SHARED]);
    ls_tensor *gain = ls_param(p, "qk.gain", LS_DIMS(2, s.Z),
                               small((ls_init){.kind = LS_INIT_NORMAL, .a = 0.02}));
    ls_tensor *shift = ls_param(p, "qk.shift", LS_DIMS(2, s.Z), ls_init_bias());
    ls_split(p, ls_scale_shift(p, shared, gain, shift), 2, (const int64_t[]){s.Z, s.Z}, qk);
    ls_tensor *seen = attend(p, mixer, ls_reshape(p, qk[0], LS_DIMS(B, T, 1, s.Z)),
                             ls_reshape(p, qk[1], LS_DIMS(B, T, 1, s.Z)),
                             ls_reshape(p, v, LS_DIMS(B, T, 1, s.V)));
    seen = ls_gate(p, LS_ACT_SILU, part[RESET], ls_reshape(p, seen, LS_DIMS(B, T, s.V)));
    ls_tensor *hidden =
        ls_activate(p, activation, false, ls_plus(p, part[HIDDEN], project(p, "h", seen, s.D)));
    hidden = ls_dropout(p, hidden, o->dropout);
    const bool of_stream = o->residual == RESIDUAL_STREAM && mixer->stream != NULL;
    ls_tensor *change = ls_gate(p, LS_ACT_SIGMOID, part[UPDATE],
                                ls_plus(p, hidden, ls_times(p, of_stream ? mixer->stream : x, -1)));
    if (o->residual != RESIDUAL_GATED) return change;
    ls_tensor *y = ls_plus(p, x, change);
    return o->norm != NORM_NONE && o->norm_place == PLACE_AFTER ? norm(p, o, y) : y;
}

/* The average's state, never narrower than f32, and rows of keys and values: of a chunk, twice, so
 * that they are moved rarely. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const mega_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t rows = o->attention == ATTENTION_NONE
                             ? 0
                             : ls_cache_rows((ls_retention){.window = o->chunk}, T, 1);
    return s.D * s.N * ls_max(size, 4) + rows * (s.Z + s.V) * size;
}

/* Pairs of T tokens that see each other. */
static double pairs(bool causal, double T) {
    return causal ? T * (T + 1) / 2 : T * T;
}

/* Products, the average as a convolution, scores and the rotary bias. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const mega_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t taps = o->truncation > 0 ? ls_min(o->truncation, T) : T;
    const int64_t ahead = mixer->causal ? 0 : taps - 1; /* the second kernel begins one later */
    const int64_t convolutions = ahead > 0 ? 2 : 1;
    const int64_t chunks = o->chunk > 0 ? T / o->chunk : 0, rest = T - chunks * o->chunk;
    const int64_t products = s.D * s.V + s.D * (2 * s.D + s.Z + s.V) + s.V * s.D;
    const int64_t reach = reach_of(o, T), rows = mixer->causal ? reach : 2 * reach - 1;
    const double seen = (double)chunks * pairs(mixer->causal, (double)o->chunk) +
                        pairs(mixer->causal, (double)rest);
    const bool scaled = o->norm == NORM_SCALE && o->norm_affine;
    const double average = (double)(s.D * (taps + ahead)) * ls_ema_kernel_flops(s.N) +
                           (double)(s.D * convolutions) * ls_long_conv_flops(T) +
                           (scaled ? 2 * (double)T * (double)s.D : 0);
    if (o->attention == ATTENTION_NONE) return average;
    return average + 2 * (double)T * (double)products + 2 * (double)(s.Z + s.V) * seen +
           (o->bias == BIAS_ROTARY ? (double)rows * ls_rotary_table_flops(s.Z) : 0);
}

static const ls_alias aliases[] = {
    LS_ALIAS_LAYER("v_proj", "v", 0),
    LS_ALIAS_LAYER("mx_proj", "mx", 0),
    LS_ALIAS_LAYER("h_proj", "h", 0),
    LS_ALIAS_LAYER("norm.norm", "norm", 0),
    {"norm.norm.scalar", "norm.scale", 0},
    {"gamma", "qk.gain", 0},
    {"beta", "qk.shift", 0},
    {"move.delta", "ema.delta", 0},
    {"move.alpha", "ema.alpha", 0},
    {"move.beta", "ema.beta", 0},
    {"move.gamma", "ema.gamma", 0},
    {"move.omega", "ema.omega", 0},
    {"rel_pos_bias.rel_pos_bias", "bias", 0},
    {"rel_pos_bias.alpha", "bias.alpha", 0},
    {"rel_pos_bias.beta", "bias.beta", 0},
    /* the average alone */
    {"delta", "ema.delta", 0},
    {"alpha", "ema.alpha", 0},
    {"beta", "ema.beta", 0},
    {"gamma", "ema.gamma", 0},
    {"omega", "ema.omega", 0},
    /* the port in transformers */
    {"qk_weight", "qk.gain", 0},
    {"qk_bias", "qk.shift", 0},
    {"ema_gate.damping_factor", "ema.delta", 0},
    {"ema_gate.decay_factor", "ema.alpha", 0},
    {"ema_gate.ema_expansion_matrix", "ema.beta", 0},
    {"ema_gate.kernel_projection_matrix", "ema.gamma", 0},
    {"ema_gate.residual_weight", "ema.omega", 0},
    {"rel_pos_bias.b_param", "bias.beta", 0},
    {0},
};

static const ls_buffer buffers[] = {
    {"out.kernel", NULL}, {"out.state", NULL}, {"out.bias", NULL}, {"out.weights", NULL}, {0},
};

const ls_mixer_type ls_mixer_mega = {
    .name = "mega",
    .summary =
        "a moving average of every channel and one gated head of attention, whole or chunked",
    .paper = "arXiv 2209.10655",
    .options = LS_OPTIONS(options, mega_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
};
