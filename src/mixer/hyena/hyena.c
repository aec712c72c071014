/* Hyena (arXiv 2302.10866): products with projections of the input and long convolutions in turn,
 * whose filters are functions of time that a small network draws. See hyena.md. */
#include <math.h>

#include "mixer/mixer.h"

typedef struct hyena_options {
    int64_t order, taps, l_max, emb_dim, filter_width, filter_layers, heads, inner_factor;
    double frequency, fast_decay, slow_decay, target, floor;
    int features, beyond, heads_as, decay, activation, filters_by;
    bool normalized, skip;
} hyena_options;

enum { FEATURES_FIXED, FEATURES_TRAINED };
enum { BEYOND_EXTEND, BEYOND_CUT, BEYOND_STRETCH };
enum { HEADS_SHARE, HEADS_OUTER };
enum { DECAY_FIXED, DECAY_TRAINED };
enum { BY_CONVOLUTION, BY_CHANNEL };
enum { ORDER_MAX = 8, HEADS_MAX = 256, LENGTH_UNKNOWN = 1024 };

static const ls_act_kind activations[] = {LS_ACT_NONE, LS_ACT_GELU, LS_ACT_GELU_TANH, LS_ACT_SILU,
                                          LS_ACT_RELU, LS_ACT_TANH, LS_ACT_SIGMOID};

#define FIELD(name) hyena_options, name
static const ls_option options[] = {
    LS_INT("order", FIELD(order), "2", 2, ORDER_MAX,
           "Order of the operator: products with the input, with one long convolution fewer."),
    LS_INT("taps", FIELD(taps), "3", 1, 64, "Taps of the short convolution."),
    LS_INT("l_max", FIELD(l_max), "0", 0, 1 << 30,
           "Lag at which a filter's time is 1; 0: the training length (1024 where none is "
           "known)."),
    LS_CHOICE("beyond", FIELD(beyond), "extend", "extend|cut|stretch",
              "Filters at lags from l_max on: their time runs on past 1; they are 0; or time is "
              "1 at the end of what is to come, and filters are longer."),
    LS_INT("emb_dim", FIELD(emb_dim), "33", 1, 1025,
           "Width of the positional features of a time: itself, and cosines and sines in pairs."),
    LS_CHOICE("features", FIELD(features), "fixed", "fixed|trained",
              "Positional features: a function of time, or a learned table of l_max rows."),
    LS_INT("filter_width", FIELD(filter_width), "64", 1, 65536,
           "Hidden width of the filters' network."),
    LS_INT("filter_layers", FIELD(filter_layers), "3", 1, LS_SINES_MAX,
           "Layers of sines in the filters' network."),
    LS_REAL("w", FIELD(frequency), "10", 1e-6, 1e6, "Initial frequency of the sines."),
    LS_REAL("fast_decay", FIELD(fast_decay), "0.3", 1e-6, 1e6,
            "Time after which the window of the fastest channel has decayed to target.",
            .needs = "target!=1"),
    LS_REAL("slow_decay", FIELD(slow_decay), "1.5", 1e-6, 1e6,
            "Time after which the window of the slowest channel has decayed to target.",
            .needs = "target!=1"),
    LS_REAL("target", FIELD(target), "0.01", 1e-30, 1,
            "Value that the decays are measured by; 1: no channel decays."),
    LS_REAL("shift", FIELD(floor), "0", 0, 1e6, "Constant added to every window."),
    LS_BOOL("normalized", FIELD(normalized), "false",
            "Whether filters, their windows included, are divided by the L1 norm over all "
            "filters at each lag."),
    LS_CHOICE("filters_by", FIELD(filters_by), "convolution", "convolution|channel",
              "Order of the network's outputs: all filters of one convolution after another, or "
              "all of one channel.",
              .needs = "order!=2"),
    LS_BOOL("skip", FIELD(skip), "true",
            "Whether the input of a long convolution is added to its output, with a weight of "
            "its own."),
    LS_CHOICE("decay", FIELD(decay), "fixed", "fixed|trained",
              "Whether the windows' decays are fixed or trained."),
    LS_INT("heads", FIELD(heads), "1", 1, HEADS_MAX, "Heads."),
    LS_CHOICE("heads_as", FIELD(heads_as), "share", "share|outer",
              "Heads share one set of filters, of a head's width; or each head has one filter, "
              "for the outer products of its keys and values.",
              .needs = "heads!=1"),
    LS_INT("inner_factor", FIELD(inner_factor), "1", 1, 64,
           "Width inside the operator, in multiples of the model's width."),
    LS_CHOICE("activation", FIELD(activation), "none", "none|gelu|gelu_tanh|silu|relu|tanh|sigmoid",
              "Activation before the output projection."),
};

/* Sizes that follow from the options: widths of the model, of a projection and of a head;
 * projections, long convolutions; channels that one of them has and filters that it has, filters
 * of all. */
typedef struct shape {
    int64_t D, E, W, M, convolutions, convolved, filters, channels, length;
} shape;

static bool is_outer(const hyena_options *o) {
    return o->heads_as == HEADS_OUTER;
}

static shape shape_of(const ls_mixer *mixer) {
    const hyena_options *o = mixer->options;
    shape s = {.D = mixer->width, .M = o->order, .convolutions = o->order - 1};
    s.E = s.D * o->inner_factor;
    s.W = s.E / o->heads;
    s.convolved = is_outer(o) ? o->heads : s.E;
    s.filters = is_outer(o) ? o->heads : s.W;
    s.channels = s.convolutions * s.filters;
    s.length = o->l_max > 0 ? o->l_max : mixer->trained_length;
    if (s.length == 0) s.length = LENGTH_UNKNOWN;
    return s;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const hyena_options *o = mixer->options;
    if (o->emb_dim % 2 == 0)
        return LS_FAIL(ctx, LS_EUSE, "hyena: emb_dim must be odd, not %lld", (long long)o->emb_dim);
    if (o->features == FEATURES_TRAINED && o->beyond != BEYOND_CUT)
        return LS_FAIL(ctx, LS_EUSE, "hyena: features=trained ends at l_max: it needs beyond=cut");
    if (mixer->width * o->inner_factor % o->heads != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "hyena: %lld heads (mixer.heads) do not divide a width of %lld "
                       "(model.width)",
                       (long long)o->heads, (long long)(mixer->width * o->inner_factor));
    if (is_outer(o) && o->order != 2)
        return LS_FAIL(ctx, LS_EUSE, "hyena: heads_as=outer has keys and values once: set order=2");
    return LS_OK;
}

/* ---- initial weights ---- */

static ls_init small(ls_init init) {
    init.no_decay = init.full = true;
    return init;
}

static ls_init uniform(int64_t inputs) {
    return small((ls_init){.kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)inputs)});
}

/* What the network sees of times 0, 1, ...; a: l_max, b: how many numbers. */
static void fill_features(const ls_init *init, double *values, int64_t count) {
    const int64_t width = (int64_t)init->b;
    for (int64_t i = 0; i < count; i++)
        values[i] = ls_sine_feature(i / width, i % width, (width - 1) / 2, init->a);
}

/* ---- filters ---- */

static ls_tensor *network(ls_program *p, const hyena_options *o, const shape *s, int64_t rows,
                          bool relative) {
    const int64_t F = o->filter_width;
    const ls_init at_w = {.kind = LS_INIT_CONSTANT, .a = o->frequency};
    const ls_init features = {.kind = LS_INIT_CUSTOM,
                              .a = (double)s->length,
                              .b = (double)o->emb_dim,
                              .fill = fill_features};
    ls_sines sines = {
        .layers = (int)o->filter_layers,
        .frequency = ls_param(p, "frequency", LS_DIMS(1, F), small(at_w)),
        .bands = (o->emb_dim - 1) / 2,
        .length = (double)s->length,
    };
    if (o->features == FEATURES_TRAINED)
        sines.table = ls_param(p, "features", LS_DIMS(1, s->length, o->emb_dim), small(features));
    for (int i = 0; i < sines.layers; i++) {
        const int64_t in = i == 0 ? o->emb_dim : F;
        ls_scope(p, "%d", i);
        sines.weight[i] = ls_param(p, "weight", LS_DIMS(F, in), uniform(in));
        sines.bias[i] = ls_param(p, "bias", LS_DIMS(F), uniform(in));
        ls_scope_end(p);
    }
    return ls_sine_network(p, &sines, rows, relative);
}

/* From the slowest decay to the fastest, by the logarithm that public files have; a and b: the
 * first and the last. */
static void fill_decays(const ls_init *init, double *values, int64_t count) {
    for (int64_t c = 0; c < count; c++)
        values[c] =
            init->a + (count == 1 ? 0 : (init->b - init->a) * (double)c / (double)(count - 1));
}

static ls_init decays_of(const hyena_options *o) {
    return (ls_init){.kind = LS_INIT_CUSTOM,
                     .a = log(o->target) / o->slow_decay,
                     .b = log(o->target) / o->fast_decay,
                     .fill = fill_decays};
}

/* Decays of all filters; what counts is their size. */
static ls_tensor *rates(ls_program *p, const hyena_options *o, int64_t channels) {
    const ls_init decays = decays_of(o);
    if (o->decay == DECAY_TRAINED)
        return ls_param(p, "deltas", LS_DIMS(1, 1, channels), small(decays));
    ls_ctx *ctx = ls_program_ctx(p);
    double *values = ls_new(ctx, (size_t)channels, sizeof *values);
    if (values == NULL) {
        ls_refuse(p, LS_ENOMEM, "%s", ctx->error.message);
        return NULL;
    }
    fill_decays(&decays, values, channels);
    /* A factor that all windows share cancels in their norm, but might underflow before it. */
    if (o->normalized && o->floor == 0) {
        const double slowest = fmin(fabs(values[0]), fabs(values[channels - 1]));
        for (int64_t c = 0; c < channels; c++) values[c] = fabs(values[c]) - slowest;
    }
    ls_tensor *all = ls_constant(p, ls_wide_type(p), LS_DIMS(channels), values);
    ls_free(ctx, values);
    return all;
}

/* Columns once for every head. */
static ls_tensor *for_heads(ls_program *p, const hyena_options *o, ls_tensor *h) {
    ls_tensor *parts[HEADS_MAX];
    if (h == NULL || is_outer(o) || o->heads == 1) return h;
    ls_tensor *columns = ls_reshape(p, h, LS_DIMS(h->dim[0], h->dim[1], 1));
    for (int64_t i = 0; i < o->heads; i++) parts[i] = columns;
    return ls_reshape(p, ls_join_rows(p, (int)o->heads, parts),
                      LS_DIMS(h->dim[0], h->dim[1] * o->heads));
}

/* Columns [rows, filters] of every convolution. */
static void each_convolution(ls_program *p, const hyena_options *o, const shape *s, ls_tensor *h,
                             ls_tensor **parts) {
    int64_t widths[ORDER_MAX];
    const bool by_channel = o->filters_by == BY_CHANNEL && s->convolutions > 1;
    if (h == NULL) return;
    const int64_t rows = h->dim[0];
    for (int64_t i = 0; i < s->convolutions; i++) widths[i] = by_channel ? rows : s->filters;
    if (by_channel)
        h = ls_reshape(p, ls_transpose(p, h), LS_DIMS(s->filters, s->convolutions * rows));
    ls_split(p, h, (int)s->convolutions, widths, parts);
    for (int64_t i = 0; by_channel && i < s->convolutions; i++)
        parts[i] = ls_transpose(p, parts[i]);
}

/* The filters' values [rows, convolved] of every convolution: at lags from 0 on, or at those that
 * are the positions of the chunk. */
static void filters(ls_program *p, const char *name, const hyena_options *o, const shape *s,
                    int64_t rows, bool relative, ls_tensor **parts) {
    ls_scope(p, "%s", name);
    ls_tensor *h = network(p, o, s, rows, relative);
    h = ls_linear(
        p, h,
        ls_param(p, "out.weight", LS_DIMS(s->channels, o->filter_width), uniform(o->filter_width)),
        NULL);
    h = ls_fade(p, h, rates(p, o, s->channels), fmax((double)s->length - 1, 1), o->floor, relative);
    if (o->normalized) h = ls_unit_rows(p, h);
    each_convolution(p, o, s, h, parts);
    for (int64_t i = 0; i < s->convolutions; i++) parts[i] = for_heads(p, o, parts[i]);
    ls_scope_end(p);
}

/* ---- the operator ---- */

static ls_tensor *project(ls_program *p, const char *name, ls_tensor *x, int64_t out,
                          double deviation) {
    ls_scope(p, "%s", name);
    ls_tensor *weight =
        ls_param(p, "weight", LS_DIMS(out, x == NULL ? 1 : x->dim[2]), ls_init_normal(deviation));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(out), ls_init_bias());
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

static ls_tensor *shorten(ls_program *p, int64_t taps, ls_tensor *x) {
    if (x == NULL) return NULL;
    const int64_t E = x->dim[2];
    ls_scope(p, "short");
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(E, taps), uniform(taps));
    ls_tensor *bias = ls_param(p, "bias", LS_DIMS(E), uniform(taps));
    ls_tensor *before = NULL, *after;
    if (taps > 1) before = ls_state_read(p, "rows", ls_type(p), LS_DIMS(x->dim[0], taps - 1, E));
    ls_tensor *y = ls_short_conv(p, false, x, weight, bias, before, &after);
    ls_state_write(p, "rows", after);
    ls_scope_end(p);
    return y;
}

/* Rows of the past that filters reach. */
static ls_retention reach(const hyena_options *o, const shape *s) {
    return (ls_retention){.window = o->beyond == BEYOND_CUT ? s->length : 0};
}

/* What lies ahead, the same row included: distance n has lag n of its filter. */
static ls_tensor *look_ahead(ls_program *p, ls_tensor *u, ls_tensor *h) {
    const int64_t rows = h->dim[0], width = h->dim[1];
    ls_tensor *part[2] = {ls_reshape(p, h, LS_DIMS(1, rows, width)), NULL};
    if (rows > 1) ls_cut_rows(p, part[0], 2, (const int64_t[]){1, rows - 1}, part);
    ls_tensor *y =
        ls_long_conv(p, u, ls_transpose(p, ls_reshape(p, part[0], LS_DIMS(1, width))), NULL, false);
    if (rows == 1) return y;
    ls_tensor *ahead = ls_transpose(p, ls_reshape(p, part[1], LS_DIMS(rows - 1, width)));
    return ls_plus(p, y, ls_long_conv(p, u, ahead, NULL, true));
}

/* In a stream the inputs of before are kept, and of filters what was computed so far: of a new
 * token the lag that it brings is computed, not all of them again. While training a filter must be
 * that of the present weights, and is whole. */
static ls_tensor *convolve(ls_program *p, const hyena_options *o, const shape *s, ls_tensor *u,
                           ls_tensor *h, ls_tensor *back) {
    const ls_program_options *about = ls_program_about(p);
    const ls_init normal = {.kind = LS_INIT_NORMAL, .a = 1};
    ls_tensor *skip = o->skip ? ls_param(p, "skip", LS_DIMS(s->convolved), small(normal)) : NULL;
    if (u == NULL || h == NULL) return NULL;
    if (!about->streaming) {
        ls_tensor *y = ls_long_conv(p, u, ls_transpose(p, h), skip, false);
        return back == NULL ? y : ls_plus(p, y, look_ahead(p, u, back));
    }
    ls_tensor *lags = ls_reshape(p, h, LS_DIMS(1, h->dim[0], s->convolved));
    if (!about->grad)
        lags = o->beyond == BEYOND_CUT
                   ? ls_cache_first(p, "filter", lags, ls_min(s->length, about->capacity))
                   : ls_cache_append(p, "filter", lags, (ls_retention){.whole = true});
    return ls_past_conv(p, ls_cache_append(p, "past", u, reach(o, s)), lags, skip);
}

/* What a long convolution is given: products with a projection. */
static ls_tensor *together(ls_program *p, const hyena_options *o, ls_tensor *x, ls_tensor *v) {
    return is_outer(o) ? ls_head_outer(p, o->heads, x, v) : ls_gate(p, LS_ACT_NONE, v, x);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const hyena_options *o = mixer->options;
    const ls_program_options *about = ls_program_about(p);
    shape s = shape_of(mixer);
    int64_t widths[ORDER_MAX + 1], rows;
    ls_tensor *parts[ORDER_MAX + 1] = {0}, *h[ORDER_MAX] = {0}, *back[ORDER_MAX] = {0};
    if (x == NULL) return NULL;
    if (o->beyond == BEYOND_STRETCH)
        s.length = ls_max(s.length, about->streaming ? about->capacity : about->length);
    const bool relative = !about->streaming || about->grad;
    rows = about->streaming && about->grad ? about->capacity : x->dim[1];
    if (relative && o->beyond == BEYOND_CUT) rows = ls_min(rows, s.length);
    for (int64_t i = 0; i <= s.M; i++) widths[i] = s.E;
    ls_tensor *all = shorten(p, o->taps, project(p, "in", x, (s.M + 1) * s.E, 0.02));
    ls_split(p, ls_mask_rows(p, all, mixer->causal ? NULL : mixer->valid), (int)s.M + 1, widths,
             parts);
    filters(p, "filter", o, &s, rows, relative, h);
    if (!mixer->causal) filters(p, "reverse", o, &s, rows, relative, back);
    ls_tensor *y = parts[s.M];
    for (int64_t i = 0; i < s.convolutions; i++) {
        ls_scope(p, "conv.%d", (int)i);
        y = convolve(p, o, &s, together(p, o, parts[s.M - 1 - i], y), h[i], back[i]);
        ls_scope_end(p);
    }
    y = is_outer(o) ? ls_head_contract(p, o->heads, parts[0], y)
                    : ls_gate(p, LS_ACT_NONE, y, parts[0]);
    if (o->activation != 0) y = ls_activate(p, activations[o->activation], false, y);
    return project(p, "out", y, s.D, 0.02 / sqrt((double)ls_max(mixer->branches, 1)));
}

/* Rows of the short convolution; of every long one its inputs, and its filter, which is never
 * narrower than f32. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    const hyena_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t lags = o->beyond == BEYOND_CUT ? ls_min(s.length, T) : T;
    const int64_t inputs = is_outer(o) ? s.W * s.E : s.convolutions * s.E;
    return (o->taps - 1) * (s.M + 1) * s.E * size +
           inputs * ls_cache_rows(reach(o, &s), T, 1) * size +
           s.convolutions * s.convolved * lags * ls_max(size, 4);
}

/* Projections, taps, filters, convolutions (ahead: of the row itself and of those behind it), and
 * what heads multiply. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const hyena_options *o = mixer->options;
    const shape s = shape_of(mixer);
    const int64_t F = o->filter_width, lags = o->beyond == BEYOND_CUT ? ls_min(s.length, T) : T;
    const double E = (double)s.E, M = (double)s.M, sides = mixer->causal ? 1 : 2;
    const double convolved = is_outer(o) ? (double)(s.W * s.E) : (double)(s.convolutions * s.E);
    const double times = mixer->causal ? 1 : lags > 1 ? 3 : 2;
    return (double)T * E * (2 * (M + 2) * (double)s.D + 2 * (double)o->taps * (M + 1)) +
           sides * 2 * (double)lags * (double)F *
               (double)(o->emb_dim + (o->filter_layers - 1) * F + s.channels) +
           times * convolved * ls_long_conv_flops(T) +
           (is_outer(o) ? 3 * (double)T * convolved : 0);
}

/* ---- names of the public code ---- */

enum { SKIP = 1 }; /* layouts: SKIP + I is the part of convolution I */

/* The public skips are one vector, ordered as the filters. */
static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const hyena_options *o = mixer->options;
    const shape s = shape_of(mixer);
    if (layout < SKIP) return r;
    const bool by_channel = o->filters_by == BY_CHANNEL;
    const int64_t convolution = by_channel ? r % s.convolutions : r / s.convolved;
    const int64_t channel = by_channel ? r / s.convolutions : r % s.convolved;
    return convolution == layout - SKIP ? channel : -1;
}

/* The public network counts its sines too; its last layer stands behind as many as there are. The
 * sines are one, under the name of the first and those of the others. */
#define FILTER(number) "filter_fn.implicit_filter." number
#define LAYER(official, sine, ours)                                                                \
    {FILTER(official) ".weight", "filter." ours ".weight", 0},                                     \
        {FILTER(official) ".bias", "filter." ours ".bias", 0},                                     \
        {FILTER(official) ".weight", "filter.out.weight", 0}, {                                    \
        FILTER(sine) ".freq", NULL, 0                                                              \
    }
#define CONVOLUTION(number)                                                                        \
    { "filter_fn.bias", "conv." #number ".skip", LS_ALIAS_PART | (SKIP + number) }
static const ls_alias aliases[] = {
    {"in_proj.weight", "in.weight", 0},
    {"in_proj.bias", "in.bias", 0},
    {"short_filter.weight", "short.weight", 0},
    {"short_filter.bias", "short.bias", 0},
    {"out_proj.weight", "out.weight", 0},
    {"out_proj.bias", "out.bias", 0},
    CONVOLUTION(0),
    CONVOLUTION(1),
    CONVOLUTION(2),
    CONVOLUTION(3),
    CONVOLUTION(4),
    CONVOLUTION(5),
    CONVOLUTION(6),
    {FILTER("1") ".freq", "filter.frequency", 0},
    LAYER("0", "1", "0"),
    LAYER("2", "3", "1"),
    LAYER("4", "5", "2"),
    LAYER("6", "7", "3"),
    LAYER("8", "9", "4"),
    LAYER("10", "11", "5"),
    LAYER("12", "13", "6"),
    LAYER("14", "15", "7"),
    {FILTER("16") ".weight", "filter.out.weight", 0},
    {"filter_fn.pos_emb.z", "filter.features", 0},
    {"filter_fn.modulation.deltas", "filter.deltas", 0},
    {0},
};

/* ---- tables of public files ---- */

static ls_status fixed_decays(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                              int64_t *count) {
    const ls_init decays = decays_of(mixer->options);
    (void)T;
    *count = shape_of(mixer).channels;
    *out = ls_new(ctx, (size_t)*count, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    fill_decays(&decays, *out, *count);
    return LS_OK;
}

static ls_status times(ls_ctx *ctx, const ls_mixer *mixer, int64_t T, double **out,
                       int64_t *count) {
    (void)T;
    *count = shape_of(mixer).length;
    *out = ls_new(ctx, (size_t)*count, sizeof **out);
    if (*out == NULL) return LS_ENOMEM;
    for (int64_t i = 0; i < *count; i++) (*out)[i] = (double)i / (double)ls_max(*count - 1, 1);
    return LS_OK;
}

static const ls_buffer buffers[] = {
    {"w.filter_fn.modulation.deltas", fixed_decays},
    {"w.filter_fn.pos_emb.t", times},
    {"w.filter_fn.bias", NULL}, /* there, but not used: skip=false */
    {"out.filter", NULL},
    {0},
};

const ls_mixer_type ls_mixer_hyena = {
    .name = "hyena",
    .summary = "gates and long convolutions in turn, with filters drawn by a network; keeps all",
    .paper = "arXiv 2302.10866",
    .options = LS_OPTIONS(options, hyena_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
