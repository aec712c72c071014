/* Performer (arXiv 2009.14794): attention whose weights are inner products of positive features of
 * queries and keys, so that no pair is ever looked at. See performer.md. */
#include <math.h>

#include "mixer/heads.h"

typedef struct performer_options {
    ls_heads heads;
    int64_t features, redraw;
    int kernel, draw, lengths, stabiliser, padding;
    bool projection;
    double epsilon, sum_epsilon, scale;
} performer_options;

enum { KERNEL_SOFTMAX, KERNEL_RELU, KERNEL_EXP };
enum { DRAW_ORTHOGONAL, DRAW_PUBLISHED, DRAW_INDEPENDENT };
enum { LENGTHS_NORMAL, LENGTHS_ROOT };
enum { STABILISER_NONE, STABILISER_GLOBAL };
enum { PADDING_LEFT_OUT, PADDING_ZEROS };

#define FIELD(name) performer_options, name
static const ls_option options[] = {
    LS_HEADS_OPTIONS(performer_options),
    LS_CHOICE("kernel", FIELD(kernel), "softmax", "softmax|relu|exp",
              "Kernel that the features approximate: exp(q.k / sqrt(head dimension)); that of "
              "ReLU; or no random directions, but softmaxes of the elements of queries, and of "
              "those of keys over time."),
    LS_INT("features", FIELD(features), "0", 0, 65536,
           "Random directions; 0: w log w for heads of width w.",
           .needs = "kernel=softmax or kernel=relu and projection=true"),
    LS_BOOL("projection", FIELD(projection), "true",
            "Whether ReLU is taken along random directions; false: of the elements of queries "
            "and keys themselves.",
            .needs = "kernel=relu"),
    LS_CHOICE("draw", FIELD(draw), "orthogonal", "orthogonal|published|independent",
              "Random directions: orthogonal in blocks; the same with the signs that public code "
              "leaves in, which bias the kernel; independent.",
              .needs = "kernel=softmax or kernel=relu and projection=true"),
    LS_CHOICE("lengths", FIELD(lengths), "normal", "normal|root",
              "Lengths of directions: those of normal vectors, or all sqrt(head dimension).",
              .needs = "kernel=softmax or kernel=relu and projection=true"),
    LS_INT("redraw", FIELD(redraw), "1000", 0, 1e9,
           "Training steps after which directions are drawn anew; 0: never.",
           .needs = "kernel=softmax or kernel=relu and projection=true"),
    LS_CHOICE("stabiliser", FIELD(stabiliser), "none", "none|global",
              "Features of keys: as they are, or as published, over the maximum of the whole "
              "text, which lets later tokens be seen through eps.",
              .needs = "kernel=softmax"),
    LS_REAL("scale", FIELD(scale), "0", 0, 1e6,
            "Factor on queries and keys; 0: W^(-1/4) for heads of width W, 1 without directions."),
    LS_CHOICE("padding", FIELD(padding), "left-out", "left-out|zeros",
              "Rows that are padding: left out, or as published, keys like others with values of "
              "zero."),
    LS_REAL("eps", FIELD(epsilon), "-1", -1, 1,
            "Added to every feature; -1: 1e-6 for softmax, 1e-3 for relu."),
    LS_REAL("sum_eps", FIELD(sum_epsilon), "0", 0, 1,
            "Added to the sum of the keys' features of whole texts, as in public code.",
            .needs = "model.causal=true"),
};

/* Whether there are random directions. */
static bool projects(const performer_options *o) {
    return o->kernel == KERNEL_SOFTMAX || (o->kernel == KERNEL_RELU && o->projection);
}

static int64_t feature_count(const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    const int64_t W = ls_heads_width(mixer, &o->heads);
    if (!projects(o)) return W;
    return o->features > 0 ? o->features : ls_max(1, (int64_t)((double)W * log((double)W)));
}

/* Rotations of queries and keys are all that can be used of a position method here, and only those
 * that stay as they are: what keys were is not known once they are added up. */
static ls_status check_position(ls_ctx *ctx, const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    const ls_position *position = mixer->position;
    if (position == NULL) return LS_OK;
    const ls_position_type *type = position->type;
    bool turns = (type->traits & LS_POSITION_ROTARY) && !(type->traits & LS_POSITION_CAUSAL);
    if (type->attend != NULL && !turns)
        return LS_FAIL(ctx, LS_EUSE,
                       "performer has no scores for position method %s to change: use rope, "
                       "learned, sinusoidal or none",
                       type->name);
    if (type->check != NULL)
        LS_TRY(type->check(ctx, position->options, mixer->width, o->heads.count));
    for (int i = 0; i < position->extensions; i++)
        if (!(position->extension[i].type->needs & LS_POSITION_ROTARY))
            return LS_FAIL(ctx, LS_EUSE,
                           "performer adds all keys up: extension %s cannot leave some out",
                           position->extension[i].type->name);
    const int64_t W = ls_heads_width(mixer, &o->heads);
    ls_attend attend =
        ls_attend_start(mixer->width, o->heads.count, o->heads.count, W, W, mixer->causal);
    attend.planned_length = 1;
    LS_TRY(ls_attend_extend(ctx, position, &attend));
    if (attend.rotary.dynamic != NULL)
        return LS_FAIL(ctx, LS_EUSE,
                       "performer cannot turn keys again that are added up already: give the "
                       "extension a fixed length");
    return LS_OK;
}

static ls_status check(ls_ctx *ctx, const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    LS_TRY(ls_heads_check(ctx, mixer, &o->heads));
    if (o->epsilon < 0 && o->epsilon != -1)
        return LS_FAIL(ctx, LS_EUSE, "performer: eps cannot be negative, but for -1");
    if (o->kernel == KERNEL_SOFTMAX && !o->projection)
        return LS_FAIL(ctx, LS_EUSE,
                       "performer: the softmax kernel is made of random directions (projection)");
    return check_position(ctx, mixer);
}

/* ---- directions ---- */

/* The number below which a standard normal one falls with probability u: Newton's method from the
 * middle, which never steps past the solution. */
static double normal_quantile(double u) {
    const double pi = 3.14159265358979323846;
    double tail = fmax(fmin(u, 1 - u), 0x1p-54), x = 0;
    for (int i = 0; i < 100; i++) {
        double step = (0.5 * erfc(x / sqrt(2.0)) - tail) * sqrt(2 * pi) * exp(x * x / 2);
        x += step;
        if (fabs(step) < 1e-13) break;
    }
    return u < 0.5 ? -x : x;
}

static double dot(const double *a, const double *b, int64_t from, int64_t count) {
    double sum = 0;
    for (int64_t i = from; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* x - 2 v (v.x) / (v.v), where v is 1 at `at`, `tail` behind it and 0 before. */
static void reflect(const double *tail, int64_t at, int64_t W, double *x) {
    double square = 1 + dot(tail, tail, at + 1, W);
    double along = 2 * (x[at] + dot(tail, x, at + 1, W)) / square;
    x[at] -= along;
    for (int64_t i = at + 1; i < W; i++) x[i] -= along * tail[i];
}

/* Column `at` of a QR decomposition by reflections: above the diagonal and on it R, below it the
 * reflection that follows. As in LAPACK, the sign on the diagonal is against that of what was
 * there; a last column is left alone. */
static void decompose(double *rows, int64_t at, int64_t W) {
    double *x = rows + at * W;
    for (int64_t j = 0; j < at; j++) reflect(rows + j * W, j, W, x);
    double below = dot(x, x, at + 1, W);
    if (below == 0) return;
    double beta = -copysign(sqrt(x[at] * x[at] + below), x[at]);
    for (int64_t i = at + 1; i < W; i++) x[i] /= x[at] - beta;
    x[at] = beta;
}

/* `count` <= W independent normal rows become the transposed Q of their decomposition (they being
 * its columns). Each gets the length of the row it came from, which is R's: independent of Q. */
static void orthogonalise(double *rows, int64_t count, int64_t W, bool signs) {
    for (int64_t at = 0; at < count; at++) decompose(rows, at, W);
    for (int64_t at = count - 1; at >= 0; at--) {
        double *x = rows + at * W, length = sqrt(dot(x, x, 0, at + 1));
        bool transposed = dot(x, x, at + 1, W) > 0;
        if (signs && x[at] < 0) length = -length;
        for (int64_t j = at + 1; transposed && j < count; j++) reflect(x, at, W, rows + j * W);
        double square = 1 + dot(x, x, at + 1, W), along = transposed ? 2 / square : 0;
        for (int64_t i = 0; i < at; i++) x[i] = 0;
        for (int64_t i = at + 1; i < W; i++) x[i] *= -along * length;
        x[at] = (1 - along) * length;
    }
}

/* a: width of a head, b: how they are drawn, c: their lengths. */
static void fill_directions(const ls_init *init, double *values, int64_t count) {
    const int64_t W = (int64_t)init->a, rows = count / W;
    const int draw = (int)init->b, lengths = (int)init->c;
    for (int64_t i = 0; i < count; i++) values[i] = normal_quantile(values[i]);
    for (int64_t first = 0; draw != DRAW_INDEPENDENT && first < rows; first += W)
        orthogonalise(values + first * W, ls_min(W, rows - first), W, draw == DRAW_ORTHOGONAL);
    for (int64_t row = 0; lengths == LENGTHS_ROOT && row < rows; row++) {
        double *x = values + row * W, factor = sqrt((double)W / dot(x, x, 0, W));
        for (int64_t i = 0; i < W; i++) x[i] *= factor;
    }
}

static ls_tensor *directions_of(ls_program *p, const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    if (!projects(o)) return NULL;
    const int64_t W = ls_heads_width(mixer, &o->heads);
    const ls_init init = {.kind = LS_INIT_CUSTOM,
                          .a = (double)W,
                          .b = o->draw,
                          .c = o->lengths,
                          .fill = fill_directions,
                          .no_decay = true,
                          .full = true,
                          .fixed = true};
    ls_tensor *directions = ls_param(p, "directions", LS_DIMS(feature_count(mixer), W), init);
    ls_redraw(p, directions, o->redraw);
    return directions;
}

/* ---- queries, keys and values ---- */

static void rotate(ls_program *p, const ls_mixer *mixer, ls_tensor **q, ls_tensor **k) {
    const ls_program_options *about = ls_program_about(p);
    const ls_position *position = mixer->position;
    const performer_options *o = mixer->options;
    if (position == NULL || position->type->attend == NULL) return;
    const int64_t W = ls_heads_width(mixer, &o->heads);
    ls_attend attend =
        ls_attend_start(mixer->width, o->heads.count, o->heads.count, W, W, mixer->causal);
    attend.planned_length = about->streaming ? about->capacity : about->length;
    position->type->attend(p, position->options, &attend);
    ls_ctx *ctx = ls_program_ctx(p);
    ls_status status = ls_attend_extend(ctx, position, &attend);
    if (status != LS_OK && !ls_failed(p)) ls_refuse(p, status, "%s", ctx->error.message);
    if (ls_failed(p) || !attend.rotates) return;
    const ls_position_map here = {LS_MAP_IDENTITY, 0, 0};
    /* features of transposed rows show more of the angles than differences */
    *q = ls_rotate(p, *q, &attend.rotary, here, LS_ROTATE_OWN);
    *k = ls_rotate(p, *k, &attend.rotary, here, LS_ROTATE_OWN);
}

/* What is added to every feature. */
static double epsilon_of(const performer_options *o) {
    static const double usual[] = {[KERNEL_SOFTMAX] = 1e-6, [KERNEL_RELU] = 1e-3, [KERNEL_EXP] = 0};
    return o->epsilon >= 0 ? o->epsilon : usual[o->kernel];
}

static double scale_of(const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    if (o->scale > 0) return o->scale;
    return projects(o) ? pow((double)ls_heads_width(mixer, &o->heads), -0.25) : 1;
}

static ls_tensor *valid_keys(const ls_mixer *mixer) {
    const performer_options *o = mixer->options;
    return o->padding == PADDING_LEFT_OUT ? mixer->valid : NULL;
}

static void map_features(ls_program *p, const ls_mixer *mixer, ls_tensor **q, ls_tensor **k) {
    const performer_options *o = mixer->options;
    const bool published = o->stabiliser == STABILISER_GLOBAL && o->kernel == KERNEL_SOFTMAX;
    ls_tensor *directions = directions_of(p, mixer);
    ls_features_options about = {
        .kind = o->kernel == KERNEL_RELU ? LS_FEATURES_RELU : LS_FEATURES_EXP,
        .stable = published ? LS_STABLE_ROW_PRODUCT : LS_STABLE_ROW,
        .scale = scale_of(mixer),
        .epsilon = epsilon_of(o),
    };
    *q = ls_features(p, *q, directions, NULL, about);
    about.stable = published ? LS_STABLE_ALL_PRODUCTS : LS_STABLE_NONE;
    *k = ls_features(p, *k, directions, valid_keys(mixer), about);
}

/* The state before the text, or before this chunk of it. */
static ls_tensor *before(ls_program *p, const ls_mixer *mixer, const int64_t dim[4]) {
    const performer_options *o = mixer->options;
    ls_ctx *ctx = ls_program_ctx(p);
    const int64_t count = dim[0] * dim[1] * dim[2] * dim[3];
    if (o->sum_epsilon == 0) return ls_state_read(p, "state", ls_wide_type(p), 4, dim);
    double *values = ls_new(ctx, (size_t)count, sizeof *values);
    if (values == NULL) {
        ls_refuse(p, LS_ENOMEM, "performer: no memory for a state");
        return NULL;
    }
    /* features of elements have a factor that those of public code have not */
    const double factor = o->kernel == KERNEL_EXP ? 1 / sqrt((double)dim[2]) : 1;
    for (int64_t i = dim[3] - 1; i < count; i += dim[3]) values[i] = factor * o->sum_epsilon;
    ls_tensor *state = ls_constant(p, ls_wide_type(p), 4, dim, values);
    ls_free(ctx, values);
    return state;
}

static ls_tensor *look_back(ls_program *p, const ls_mixer *mixer, ls_tensor *q, ls_tensor *k,
                            ls_tensor *v, ls_tensor **sums) {
    const performer_options *o = mixer->options;
    const int64_t W = ls_heads_width(mixer, &o->heads);
    const int64_t dim[4] = {ls_program_about(p)->batch, o->heads.count, feature_count(mixer),
                            W + 1};
    const ls_linear_scan_operands scan = {.q = q, .k = k, .v = v, .before = before(p, mixer, dim)};
    ls_tensor *after, *y = ls_linear_scan(p, &scan, sums, &after);
    if (o->sum_epsilon == 0) ls_state_write(p, "state", after);
    return y;
}

/* e_1 .. e_W as rows of every head: attention with them for queries takes the softmax over time of
 * each element of the keys, with them for keys that of a query's elements. */
static ls_tensor *unit_rows(ls_program *p, int64_t B, int64_t H, int64_t W) {
    ls_ctx *ctx = ls_program_ctx(p);
    double *values = ls_new(ctx, (size_t)(B * W * H * W), sizeof *values);
    if (values == NULL) {
        ls_refuse(p, LS_ENOMEM, "performer: no memory for unit rows");
        return NULL;
    }
    for (int64_t i = 0; i < B * W * H; i++) values[i * W + i / H % W] = 1;
    ls_tensor *rows = ls_constant(p, ls_type(p), LS_DIMS(B, W, H, W), values);
    ls_free(ctx, values);
    return rows;
}

/* Both softmaxes over whole texts. */
static ls_tensor *read_elements(ls_program *p, const ls_mixer *mixer, ls_tensor *qkv[3]) {
    if (ls_failed(p)) return NULL;
    const ls_attention_options about = {.scale = scale_of(mixer)};
    ls_tensor *unit = unit_rows(p, qkv[0]->dim[0], qkv[0]->dim[2], qkv[0]->dim[3]);
    ls_key_set keys = ls_key_set_all(unit, qkv[1], qkv[2]);
    keys.valid = valid_keys(mixer);
    ls_tensor *means = ls_attention(p, 1, &keys, about, NULL);
    const ls_key_set queries = ls_key_set_all(qkv[0], unit, means);
    return ls_attention(p, 1, &queries, about, NULL);
}

static ls_tensor *forward(ls_program *p, const ls_mixer *mixer, ls_tensor *x) {
    const performer_options *o = mixer->options;
    if (x == NULL) return NULL;
    bool whole = o->sum_epsilon > 0 || o->stabiliser == STABILISER_GLOBAL;
    if (whole && ls_program_about(p)->streaming) {
        ls_refuse(p, LS_EUSE,
                  "performer with stabiliser=global or sum_eps needs a text whole: it cannot take "
                  "it in chunks");
        return NULL;
    }
    ls_tensor *qkv[3], *y, *sums = NULL;
    if (o->padding == PADDING_ZEROS)
        ls_heads_project(p, mixer, &o->heads, x, mixer->valid, qkv);
    else
        ls_heads_split(p, mixer, &o->heads, x, qkv);
    rotate(p, mixer, &qkv[0], &qkv[1]);
    if (o->kernel == KERNEL_EXP && !mixer->causal)
        return ls_heads_join(p, mixer, &o->heads, read_elements(p, mixer, qkv));
    map_features(p, mixer, &qkv[0], &qkv[1]);
    if (mixer->causal)
        y = look_back(p, mixer, qkv[0], qkv[1], qkv[2], &sums);
    else
        y = ls_linear_attention(p, qkv[0], qkv[1], qkv[2], &sums);
    return ls_heads_join(p, mixer, &o->heads, ls_divide(p, y, sums));
}

/* The sums over keys, which are never narrower than f32. */
static int64_t state_bytes(const ls_mixer *mixer, int64_t T, int64_t size) {
    (void)T;
    const performer_options *o = mixer->options;
    const int64_t W = ls_heads_width(mixer, &o->heads);
    return o->heads.count * feature_count(mixer) * (W + 1) * ls_max(size, 4);
}

/* Projections, features of queries and keys, and the sums' update and reading. */
static double flops(const ls_mixer *mixer, int64_t T) {
    const performer_options *o = mixer->options;
    const double W = (double)ls_heads_width(mixer, &o->heads), M = (double)feature_count(mixer);
    const double rows = (double)T * (double)o->heads.count;
    const double heads = ls_heads_flops(mixer, &o->heads, T);
    if (o->kernel == KERNEL_EXP && !mixer->causal) return heads + 8 * rows * W * W;
    return heads + (projects(o) ? 4 * rows * M * W : 0) + 4 * rows * M * (W + 1);
}

static int64_t row(const ls_mixer *mixer, int layout, int64_t r) {
    const performer_options *o = mixer->options;
    return ls_heads_row(mixer, &o->heads, layout, r);
}

static const ls_alias aliases[] = {
    LS_HEADS_ALIASES("to_q", "to_k", "to_v", "to_out"),
    {"fast_attention.projection_matrix", "directions", LS_ROWS_OUT},
    {"projection_matrix", "directions", LS_ROWS_OUT},
    {0},
};

static const ls_buffer buffers[] = {
    {"w.*projection_matrix", NULL}, /* drawn, but not used */
    {"out.phi_q", NULL},
    {"out.phi_k", NULL},
    {0},
};

const ls_mixer_type ls_mixer_performer = {
    .name = "performer",
    .summary = "attention by random positive features of queries and keys; linear, constant state",
    .paper = "arXiv 2009.14794",
    .options = LS_OPTIONS(options, performer_options),
    .traits = LS_MIXER_CAUSAL | LS_MIXER_BIDIRECTIONAL | LS_MIXER_STREAMING | LS_MIXER_POSITIONS,
    .check = check,
    .forward = forward,
    .state_bytes = state_bytes,
    .flops = flops,
    .aliases = aliases,
    .buffers = buffers,
    .row = row,
};
