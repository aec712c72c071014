/* Every operation: gradients against differences in f64, fast types against f64, on every
 * instruction set this processor has. */
#include "harness.h"

static const char *const inputs[] = {"x", "z", "cot", "weights", NULL};

#define SHAPE LS_DIMS(2, 5, 24)

static ls_tensor *input(ls_program *p) {
    return ls_input(p, "x", ls_type(p), SHAPE, true);
}

static void linear(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *w = ls_param(p, "w", LS_DIMS(19, 24), ls_init_normal(1));
    ls_keep(p, "y", ls_linear(p, input(p), w, ls_param(p, "b", LS_DIMS(19), ls_init_bias())));
}

static void norm(ls_program *p, const void *about) {
    ls_norm_kind kind = *(const ls_norm_kind *)about;
    ls_tensor *x = input(p), *sum, *w = ls_param(p, "w", LS_DIMS(24), ls_init_gain());
    ls_tensor *b = kind == LS_NORM_LAYER ? ls_param(p, "b", LS_DIMS(24), ls_init_bias()) : NULL;
    ls_tensor *delta = ls_times(p, x, 0.5);
    ls_tensor *y = ls_residual_norm(p, kind, 1e-5, x, delta, w, b, &sum);
    ls_keep(p, "y", ls_plus(p, y, sum));
}

typedef struct act_case {
    ls_act_kind kind;
    bool gated;
} act_case;

static void activate(ls_program *p, const void *about) {
    const act_case *c = about;
    ls_keep(p, "y", ls_activate(p, c->kind, c->gated, input(p)));
}

static void pointwise(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = input(p), *v = ls_param(p, "v", LS_DIMS(5, 24), ls_init_normal(1));
    ls_tensor *row = ls_param(p, "row", LS_DIMS(24), ls_init_bias());
    ls_tensor *sum = ls_plus_broadcast(p, ls_plus_broadcast(p, x, v), row);
    ls_keep(p, "y", ls_plus(p, ls_times(p, sum, -1.5), x));
}

/* Rows taken out of views, and put back where others were. */
static void rows(ls_program *p, const void *about) {
    (void)about;
    const int64_t from[] = {0, 3, 4}, to[] = {1, 2, 4};
    ls_tensor *x = input(p), *parts[2];
    ls_split(p, x, 2, (const int64_t[]){16, 8}, parts);
    ls_tensor *heads = ls_reshape(p, parts[0], LS_DIMS(2, 5, 4, 4));
    ls_tensor *taken = ls_times(p, ls_take_rows(p, heads, 3, from), 0.5);
    ls_keep(p, "y", ls_put_rows(p, heads, taken, 3, to));
}

/* Blocks of two of five rows, with and without padding, the last row adopted or left over. */
static void block_sums(ls_program *p, const void *about) {
    const bool adopt = *(const bool *)about;
    const double some[10] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0};
    ls_tensor *most, *there, *valid = ls_constant(p, LS_U8, LS_DIMS(2, 5), some);
    ls_tensor *whole = ls_block_sums(p, input(p), NULL, 2, adopt, &most, &there);
    ls_tensor *padded = ls_block_sums(p, ls_program_find(p, "x"), valid, 2, adopt, &most, &there);
    ls_keep(p, "y", ls_plus(p, whole, ls_times(p, padded, 0.5)));
}

/* Products along time: a text as long as the weight or shorter, rows of a view, a weight for all
 * heads or for each. */
typedef struct time_case {
    int64_t T, H, W, N, M;
    bool own;
} time_case;

static void time_linear(ls_program *p, const void *about) {
    const time_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->H * c->W + 3), true), *part[2];
    ls_split(p, x, 2, (const int64_t[]){3, c->H * c->W}, part);
    ls_tensor *heads = ls_reshape(p, part[1], LS_DIMS(2, c->T, c->H, c->W));
    ls_tensor *w = c->own ? ls_param(p, "w", LS_DIMS(c->H, c->N, c->M), ls_init_normal(1))
                          : ls_param(p, "w", LS_DIMS(c->N, c->M), ls_init_normal(1));
    ls_keep(p, "y", ls_time_linear(p, heads, w));
}

static const time_case time_products[] = {{5, 2, 9, 5, 3, false}, {37, 3, 8, 50, 20, true}};

static void picked(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *which = ls_constant(p, LS_U8, LS_DIMS(2), (const double[]){0, 1}), *parts[2];
    ls_split(p, input(p), 2, (const int64_t[]){12, 12}, parts);
    ls_tensor *tanh = ls_activate(p, LS_ACT_TANH, false, parts[1]);
    ls_keep(p, "y", ls_pick(p, which, parts[0], tanh));
}

/* Landmarks: pieces of equal and unequal sizes, padding, texts that are short without it. */
typedef struct landmark_case {
    int64_t T, M, H, W;
    bool padded, joint;
} landmark_case;

static ls_tensor *flags_of(ls_program *p, int64_t T) {
    double flags[2 * 64];
    for (int64_t i = 0; i < 2 * T; i++) flags[i] = i < T ? i % 7 != 2 : i >= T + 2 && i < T + 5;
    return ls_constant(p, LS_U8, LS_DIMS(2, T), flags);
}

static void segment_means(ls_program *p, const void *about) {
    const landmark_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->H * c->W + 2), true), *parts[2];
    ls_split(p, x, 2, (const int64_t[]){2, c->H * c->W}, parts);
    ls_tensor *heads = ls_reshape(p, parts[1], LS_DIMS(2, c->T, c->H, c->W)), *used, *few;
    ls_tensor *valid = c->padded ? flags_of(p, c->T) : NULL;
    ls_tensor *means = ls_segment_means(p, heads, c->M, valid, &used, &few);
    ls_keep(p, "used", used);
    ls_keep(p, "few", few);
    ls_keep(p, "y", ls_gate(p, LS_ACT_TANH, means, means));
}

static void landmark_inverse(ls_program *p, const void *about) {
    const landmark_case *c = about;
    const int64_t each = c->H * c->W;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->M, 2 * each + c->H * 3), true);
    ls_tensor *part[3];
    ls_split(p, x, 3, (const int64_t[]){each, each, c->H * 3}, part);
    ls_keep(p, "y",
            ls_landmark_inverse(p, ls_reshape(p, part[0], LS_DIMS(2, c->M, c->H, c->W)),
                                ls_reshape(p, part[1], LS_DIMS(2, c->M, c->H, c->W)),
                                ls_reshape(p, part[2], LS_DIMS(2, c->M, c->H, 3)),
                                (ls_landmark_options){0.4, 3, c->joint}));
}

static void head_conv(ls_program *p, const void *about) {
    const landmark_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->H, c->W), true);
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_keep(p, "y", ls_head_conv(p, x, ls_param(p, "w", LS_DIMS(c->H, c->M), full)));
}

/* Features: every way of keeping them in bounds (those through which no gradient passes cancel in a
 * quotient), with directions and without, padding, several chunks of rows. */
typedef struct features_case {
    int64_t T, H, K, M;
    ls_features_kind kind;
    ls_stable stable;
    bool padded;
} features_case;

static ls_tensor *directions(ls_program *p, int64_t M, int64_t K) {
    ls_init fixed = {.kind = LS_INIT_NORMAL, .a = 1, .no_decay = true, .full = true, .fixed = true};
    return M == 0 ? NULL : ls_param(p, "directions", LS_DIMS(M, K), fixed);
}

static void features(ls_program *p, const void *about) {
    const features_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->H * c->K + 1), true), *parts[2];
    ls_split(p, x, 2, (const int64_t[]){c->H * c->K, 1}, parts);
    ls_tensor *heads = ls_reshape(p, parts[0], LS_DIMS(2, c->T, c->H, c->K));
    ls_tensor *valid = c->padded ? flags_of(p, c->T) : NULL;
    ls_features_options o = {c->kind, c->stable, 0.7, 0.01};
    ls_keep(p, "y", ls_features(p, heads, directions(p, c->M, c->K), valid, o));
}

static void linear_attention(ls_program *p, const void *about) {
    const features_case *c = about;
    const int64_t each = c->H * c->K;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 2 * each + c->H * 3), true);
    ls_tensor *part[3], *sums;
    ls_split(p, x, 3, (const int64_t[]){each, each, c->H * 3}, part);
    ls_features_options o = {LS_FEATURES_EXP, LS_STABLE_ROW_PRODUCT, 0.7, 0};
    ls_tensor *w = directions(p, c->M, c->K), *valid = flags_of(p, c->T);
    ls_tensor *q = ls_features(p, ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, c->K)), w, NULL, o);
    o.stable = LS_STABLE_ALL_PRODUCTS;
    ls_tensor *k =
        ls_features(p, ls_reshape(p, part[1], LS_DIMS(2, c->T, c->H, c->K)), w, valid, o);
    ls_tensor *v = ls_reshape(p, part[2], LS_DIMS(2, c->T, c->H, 3));
    ls_tensor *y = ls_linear_attention(p, q, k, v, &sums);
    ls_keep(p, "y", ls_divide(p, y, sums));
}

static const features_case feature_cases[] = {
    {7, 2, 5, 20, LS_FEATURES_EXP, LS_STABLE_NONE, false},
    {60, 2, 8, 16, LS_FEATURES_EXP, LS_STABLE_ROW, true},
    {7, 3, 6, 9, LS_FEATURES_RELU, LS_STABLE_NONE, true},
    {7, 1, 20, 0, LS_FEATURES_RELU, LS_STABLE_NONE, false},
    {9, 2, 5, 20, LS_FEATURES_EXP, LS_STABLE_ALL_PRODUCTS, true}};

static const landmark_case landmarks[] = {
    {24, 6, 2, 9, false, false}, {29, 6, 3, 20, true, false}, {4, 7, 1, 5, false, false},
    {0, 9, 2, 5, false, false},  {0, 20, 2, 4, false, true},  {13, 5, 2, 9, false, false},
    {3, 9, 1, 20, false, false}, {0, 70, 1, 4, false, false}, {70, 33, 2, 40, false, false},
    {0, 132, 1, 4, false, false}};

static void dropped(ls_program *p, const void *about) {
    (void)about;
    ls_keep(p, "y", ls_dropout(p, input(p), 0.3));
}

static void blended(ls_program *p, const void *about) {
    ls_keep(p, "y", ls_blend(p, *(const ls_blend_kind *)about, input(p), 3));
}

static void row_grouped(ls_program *p, const void *about) {
    ls_keep(p, "y", ls_row_groups(p, "groups", input(p), *(const ls_groups *)about));
}

static void apart(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = input(p), *v = ls_param(p, "v", LS_DIMS(24), ls_init_normal(1));
    ls_keep(p, "y", ls_mean_square(p, x, ls_plus_broadcast(p, ls_times(p, x, 0.5), v)));
}

/* Views: parts that are used twice, once and not at all; a reshape beside a direct use. */
static void views(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = ls_times(p, input(p), 1.25), *parts[3];
    ls_split(p, x, 3, (const int64_t[]){8, 12, 4}, parts);
    ls_tensor *heads = ls_reshape(p, parts[0], LS_DIMS(2, 5, 2, 4));
    ls_tensor *between =
        ls_activate(p, LS_ACT_TANH, false, parts[0]); /* while the place is taken */
    ls_tensor *v = ls_param(p, "v", LS_DIMS(2, 4), ls_init_normal(1));
    ls_tensor *flat = ls_reshape(p, ls_plus_broadcast(p, heads, v), LS_DIMS(2, 5, 8));
    ls_tensor *twice = ls_plus(p, flat, ls_activate(p, LS_ACT_SILU, false, parts[0]));
    ls_tensor *w = ls_param(p, "w", LS_DIMS(8, 12), ls_init_normal(1));
    ls_tensor *other = ls_linear(p, parts[1], w, NULL);
    ls_tensor *wide = ls_reshape(p, x, LS_DIMS(10, 24));
    ls_tensor *to8 = ls_linear(p, ls_reshape(p, wide, LS_DIMS(2, 5, 24)),
                               ls_param(p, "to8", LS_DIMS(8, 24), ls_init_normal(1)), NULL);
    ls_keep(p, "y", ls_plus(p, ls_plus(p, ls_plus(p, twice, other), to8), between));
}

/* A gate and what it gates in two tensors, and one tensor in both places. */
static void gate(ls_program *p, const void *about) {
    ls_act_kind kind = *(const ls_act_kind *)about;
    ls_tensor *parts[2];
    ls_split(p, input(p), 2, (const int64_t[]){12, 12}, parts);
    ls_tensor *square = ls_gate(p, kind, parts[1], parts[1]);
    ls_keep(p, "y", ls_gate(p, kind, parts[0], ls_plus(p, parts[1], square)));
}

/* Norms per head, without a gain: rows of a view. */
static void head_norm(ls_program *p, const void *about) {
    ls_tensor *heads = ls_reshape(p, input(p), LS_DIMS(2, 5, 3, 8));
    ls_norm_kind kind = *(const ls_norm_kind *)about;
    ls_keep(p, "y", ls_residual_norm(p, kind, 1e-5, heads, NULL, NULL, NULL, NULL));
}

/* The linear recurrence: lengths that fill no chunk, widths that fill no vector, a state from
 * before, heads that forget at different rates. */
typedef struct scan_case {
    int64_t T, K, V;
    bool fading, rooted;
} scan_case;

static void linear_scan(ls_program *p, const void *about) {
    enum { H = 2 };
    const scan_case *c = about;
    const double log_decay[H] = {-0.03, 0}, fade[] = {-0.1, 0, -1, -0.002, -0.3, -0.01};
    double before[2 * H * 6 * 40];
    for (int i = 0; i < 2 * H * 6 * 40; i++) before[i] = sin(3.0 * i + 1);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *part[3];
    int64_t width[3] = {H * c->K, H * c->K, H * c->V}, all = width[0] + width[1] + width[2];
    ls_tensor *w = ls_param(p, "w", LS_DIMS(all, 12), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 3, width, part);
    const ls_linear_scan_operands scan = {
        .q = ls_reshape(p, part[0], LS_DIMS(2, c->T, H, c->K)),
        .k = ls_reshape(p, part[1], LS_DIMS(2, c->T, H, c->K)),
        .v = ls_reshape(p, part[2], LS_DIMS(2, c->T, H, c->V)),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, H, c->K, c->V), before),
        .log_decay = log_decay,
        .feature_log_decay = c->fading ? fade : NULL,
        .rooted = c->rooted,
    };
    ls_keep(p, "y", ls_linear_scan(p, &scan, NULL, NULL));
}

/* Mamba-2's recurrence: lengths that fill no chunk or several and more than what is kept, channels
 * and states that fill no vector, groups, several blocks of heads, steps at their limits. */
typedef struct ssd_case {
    int64_t T, H, G, P, N;
    double dt_min, dt_max;
    int64_t D; /* numbers of the skip; 0: none */
} ssd_case;

static void ssd(ls_program *p, const void *about) {
    const ssd_case *c = about;
    const int64_t maps = c->G * c->N, elements = 2 * c->H * c->P * c->N;
    double *before = malloc((size_t)elements * sizeof *before);
    for (int64_t i = 0; i < elements; i++) before[i] = sin((double)(3 * i + 1));
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *part[4];
    const int64_t width[4] = {c->H * c->P, maps, maps, c->H};
    ls_tensor *w = ls_param(p, "w", LS_DIMS(width[0] + 2 * maps + c->H, 12), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 4, width, part);
    const ls_ssd_operands scan = {
        .x = ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, c->P)),
        .dt = part[3],
        .B = ls_reshape(p, part[1], LS_DIMS(2, c->T, c->G, c->N)),
        .C = ls_reshape(p, part[2], LS_DIMS(2, c->T, c->G, c->N)),
        .A_log = ls_param(p, "A_log", LS_DIMS(c->H), ls_init_bias()),
        .D = c->D == 0 ? NULL : ls_param(p, "D", LS_DIMS(c->D), ls_init_gain()),
        .bias = c->D == 0 ? NULL : ls_param(p, "bias", LS_DIMS(c->H), ls_init_bias()),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->H, c->P, c->N), before),
        .dt_min = c->dt_min,
        .dt_max = c->dt_max,
    };
    ls_keep(p, "y", ls_ssd_scan(p, &scan, NULL));
    free(before);
}

static ls_tensor *made_from(ls_program *p, ls_tensor *x, const char *name, int64_t width) {
    int64_t in = x->dim[x->rank - 1];
    return ls_linear(p, x, ls_param(p, name, LS_DIMS(width, in), ls_init_normal(1)), NULL);
}

/* Rows divided by the sizes of their scores, below, within and above the bounds. Queries and keys
 * are constants: nothing passes to them. */
static void scored(ls_program *p, const void *about) {
    enum { H = 2, K = 5, V = 12, ROWS = 70 };
    const int64_t T = *(const int64_t *)about;
    const double log_decay[H] = {-0.03, 0};
    double q[2 * ROWS * H * K], k[2 * ROWS * H * K];
    for (int i = 0; i < 2 * ROWS * H * K; i++) q[i] = 2 * sin(5.0 * i), k[i] = cos(2.0 * i + 1);
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, T, H * V), true);
    ls_tensor *y = ls_reshape(p, made_from(p, x, "w", H * V), LS_DIMS(2, T, H, V));
    ls_keep(p, "y",
            ls_divide_by_scores(p, y, ls_constant(p, ls_type(p), LS_DIMS(2, T, H, K), q),
                                ls_constant(p, ls_type(p), LS_DIMS(2, T, H, K), k), log_decay,
                                (ls_score_bounds){3, 20}));
}

static void embedded(ls_program *p, const void *about) {
    (void)about;
    double ids[10] = {3, 1, 1, 0, 6, 6, 3, 2, 5, 6};
    ls_tensor *tokens = ls_constant(p, LS_I32, LS_DIMS(2, 5), ids);
    ls_tensor *table = ls_param(p, "table", LS_DIMS(7, 24), ls_init_normal(1));
    ls_keep(p, "y", ls_plus(p, ls_embed(p, tokens, table), input(p)));
}

/* Padding: sequences with some, without any, of nothing else; a token between two holes. Lengths
 * beyond a block of sums, widths that fill no vector. */
typedef struct padding_case {
    int64_t T, D;
    ls_pool_kind kind;
    bool all; /* no padding is told of */
} padding_case;

enum { PADDED_ROWS = 3 };

static ls_tensor *padded_ids(ls_program *p, int64_t T) {
    double ids[PADDED_ROWS * 150];
    for (int64_t t = 0; t < T; t++) {
        ids[t] = t < 3 || t > T - 2 ? -1 : (double)(t % 7);
        ids[T + t] = (double)(t % 5);
        ids[2 * T + t] = -1;
    }
    return ls_constant(p, LS_I32, LS_DIMS(PADDED_ROWS, T), ids);
}

/* x is twice as wide: what is pooled are the rows of a view. */
static void pooled(ls_program *p, const void *about) {
    const padding_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(PADDED_ROWS, c->T, 2 * c->D), true);
    ls_tensor *valid = c->all ? NULL : ls_valid_rows(p, padded_ids(p, c->T)), *half[2];
    ls_split(p, x, 2, (const int64_t[]){c->D, c->D}, half);
    ls_keep(p, "y",
            ls_plus(p, ls_pool_rows(p, c->kind, half[1], valid),
                    ls_times(p, ls_pool_rows(p, LS_POOL_MEAN, half[0], valid), 2)));
}

/* As it is, over a view, and in the place of what nobody else reads. */
static void masked(ls_program *p, const void *about) {
    const padding_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(PADDED_ROWS, c->T, 2 * c->D), true);
    ls_tensor *valid = ls_valid_rows(p, padded_ids(p, c->T)), *half[2];
    ls_split(p, ls_times(p, ls_mask_rows(p, x, valid), 2), 2, (const int64_t[]){c->D, c->D}, half);
    ls_tensor *y = ls_plus(p, half[0], ls_activate(p, LS_ACT_SILU, false, half[1]));
    ls_tensor *row = ls_param(p, "row", LS_DIMS(c->D), ls_init_normal(1));
    ls_tensor *shifted = ls_mask_rows(p, ls_plus_broadcast(p, y, row), valid);
    ls_keep(p, "y", ls_plus(p, ls_mask_rows(p, half[1], valid), shifted));
}

static void embedded_padding(ls_program *p, const void *about) {
    const padding_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(PADDED_ROWS, c->T, c->D), true);
    ls_tensor *table = ls_param(p, "table", LS_DIMS(7, c->D), ls_init_normal(1));
    ls_keep(p, "y", ls_plus(p, ls_embed(p, padded_ids(p, c->T), table), x));
}

static const padding_case paddings[] = {
    {5, 24, LS_POOL_MEAN, false},  {150, 19, LS_POOL_MEAN, true}, {150, 5, LS_POOL_MEAN, false},
    {9, 37, LS_POOL_FIRST, false}, {9, 16, LS_POOL_LAST, false},  {7, 3, LS_POOL_LAST, true},
    {6, 4, LS_POOL_FIRST, true}};

/* Recurrences: channels that fill no vector, lengths that fill no chunk, a state from before. */
typedef struct recurrent_case {
    int64_t T, E, N; /* N: states, or taps */
    bool gated, biased;
} recurrent_case;

/* A fixed state that is not zero. */
static ls_tensor *state_before(ls_program *p, ls_dtype type, int64_t rows, int64_t width) {
    double values[2 * 64 * 64];
    for (int64_t i = 0; i < 2 * rows * width; i++) values[i] = sin((double)(3 * i + 1));
    return ls_constant(p, type, LS_DIMS(2, rows, width), values);
}

static void convolved(ls_program *p, const void *about) {
    const recurrent_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->E), true);
    ls_tensor *w = ls_param(p, "w", LS_DIMS(c->E, c->N), full);
    ls_tensor *b = c->biased ? ls_param(p, "b", LS_DIMS(c->E), ls_init_bias()) : NULL;
    ls_tensor *before = c->N > 1 ? state_before(p, ls_type(p), c->N - 1, c->E) : NULL;
    ls_keep(p, "y", ls_short_conv(p, c->gated, x, w, b, before, NULL));
}

static void scan_states(ls_program *p, const recurrent_case *c, bool complex) {
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *BC[2];
    const int64_t M = complex ? 2 * c->N : c->N;
    ls_split(p, made_from(p, x, "BC", 2 * M), 2, (const int64_t[]){M, M}, BC);
    ls_scan scan = {
        .u = made_from(p, x, "u", c->E),
        .delta = made_from(p, x, "delta", c->E),
        .A_log = ls_param(p, "A_log", LS_DIMS(c->E, c->N), full),
        .A_im = complex ? ls_param(p, "A_im", LS_DIMS(c->E, c->N), full) : NULL,
        .B = BC[0],
        .C = BC[1],
        .D = c->biased ? ls_param(p, "D", LS_DIMS(c->E), ls_init_gain()) : NULL,
        .z = c->gated ? made_from(p, x, "z", c->E) : NULL,
        .bias = c->biased ? ls_param(p, "bias", LS_DIMS(c->E), ls_init_bias()) : NULL,
        .before = state_before(p, ls_wide_type(p), c->E, M),
    };
    ls_keep(p, "y", ls_selective_scan(p, &scan, NULL));
}

static void scanned(ls_program *p, const void *about) {
    scan_states(p, about, false);
}

static void scanned_complex(ls_program *p, const void *about) {
    scan_states(p, about, true);
}

/* Long convolutions: within one block, over several levels of blocks, kernels shorter and longer
 * than the sequence, channels that fill no vector. */
typedef struct long_case {
    int64_t T, D, taps;
    bool future, skip;
} long_case;

static void convolved_long(ls_program *p, const void *about) {
    const long_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_tensor *k = ls_param(p, "k", LS_DIMS(c->D, c->taps), full);
    ls_tensor *skip = c->skip ? ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain()) : NULL;
    ls_keep(p, "y", ls_long_conv(p, x, k, skip, c->future));
}

/* The same over rows of the past: without a state all of them lie in the chunk. */
static void convolved_past(ls_program *p, const void *about) {
    const long_case *c = about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_tensor *k = ls_shift_kernel(p, ls_param(p, "B", LS_DIMS(c->D, c->taps), full),
                                   ls_param(p, "C", LS_DIMS(1, c->D, c->taps), full));
    ls_tensor *skip = c->skip ? ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain()) : NULL;
    ls_keep(p, "y", ls_past_conv(p, x, k, skip));
}

/* A filter drawn by sines, from times or from a table that ends early, through a wide product and a
 * window. */
typedef struct sine_case {
    int64_t T;
    int layers;
    bool table, rates; /* rates: they are trained, some below 0; rows are normalised too */
} sine_case;

static void drawn(ls_program *p, const void *about) {
    enum { F = 12, IN = 5, D = 9, ROWS = 20 };
    static const char *const names[2][LS_SINES_MAX] = {{"w0", "w1", "w2"}, {"b0", "b1", "b2"}};
    const sine_case *c = about;
    ls_init full = {.kind = LS_INIT_NORMAL, .a = 1, .full = true};
    ls_init twice = {.kind = LS_INIT_CONSTANT, .a = 2, .full = true};
    ls_sines sines = {.layers = c->layers,
                      .frequency = ls_param(p, "frequency", LS_DIMS(1, F), twice),
                      .table = c->table ? ls_param(p, "table", LS_DIMS(1, ROWS, IN), full) : NULL,
                      .bands = (IN - 1) / 2,
                      .length = 30};
    for (int i = 0; i < c->layers; i++) {
        sines.weight[i] = ls_param(p, names[0][i], LS_DIMS(F, i == 0 ? IN : F), full);
        sines.bias[i] = ls_param(p, names[1][i], LS_DIMS(F), full);
    }
    double rate[D];
    for (int i = 0; i < D; i++) rate[i] = 0.5 + i;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, D), true);
    ls_tensor *h = ls_sine_network(p, &sines, c->T, true);
    h = ls_linear(p, h, ls_param(p, "out", LS_DIMS(D, F), full), NULL);
    ls_tensor *rates = c->rates ? ls_param(p, "rates", LS_DIMS(1, 1, D), full)
                                : ls_constant(p, ls_wide_type(p), LS_DIMS(D), rate);
    if (c->rates) h = ls_unit_rows(p, h);
    h = ls_fade(p, h, rates, 29, 0.1, true);
    ls_keep(p, "y", ls_long_conv(p, x, ls_transpose(p, h), NULL, false));
}

/* Outer products of heads, of parts of one tensor, and back; x is 24 wide. */
static void paired(ls_program *p, const void *about) {
    const int64_t heads = *(const int64_t *)about;
    ls_tensor *parts[2];
    ls_split(p, made_from(p, input(p), "w", 48), 2, (const int64_t[]){24, 24}, parts);
    ls_tensor *pairs = ls_head_outer(p, heads, parts[0], parts[1]);
    ls_keep(p, "y", ls_head_contract(p, heads, parts[1], pairs));
}

/* State spaces: modes and channels that fill no vector, copies that are shared, both holds, with a
 * rank and without, C as it is kept for a length; as a kernel beside x, and from a state. */
typedef struct space_case {
    int64_t T, D, S, h;
    ls_hold hold;
    ls_step step;
    int rank;
    bool scan;
    int64_t tilde;
    bool upper;
    ls_kept real, imag; /* both 0: as they are kept by default */
    double rate, band;
    enum { TIED, UNTIED, REAL, NO_INPUT } kind; /* a step size of every mode; no pairs; no B */
} space_case;

static ls_tensor *full_param(ls_program *p, const char *name, int rank, const int64_t *dim) {
    return ls_param(p, name, rank, dim, (ls_init){.kind = LS_INIT_NORMAL, .a = 1, .full = true});
}

static void state_space(ls_program *p, const void *about) {
    const space_case *c = about;
    const int pairs = c->kind == REAL ? 3 : 4;
    double state[2 * 24 * 16];
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true);
    ls_state_space space = {
        .A_real = full_param(p, "A_real", LS_DIMS(c->S, c->h)),
        .A_imag = c->kind == REAL ? NULL : full_param(p, "A_imag", LS_DIMS(c->S, c->h)),
        .B = c->kind == NO_INPUT ? NULL : full_param(p, "B", pairs, (int64_t[]){1, c->S, c->h, 2}),
        .P = c->rank > 0 ? full_param(p, "P", LS_DIMS(c->rank, c->S, c->h, 2)) : NULL,
        .C = full_param(p, "C", pairs, (int64_t[]){2, c->D, c->h, 2}),
        .dt = full_param(p, "dt", LS_DIMS(c->D, c->kind == UNTIED ? c->h : 1)),
        .hold = c->hold,
        .step = c->step,
        .tilde = c->tilde,
        .side = c->scan ? 0 : 1,
        .upper = c->upper,
        .real = c->real == LS_KEPT_PLAIN ? LS_KEPT_EXP : c->real,
        .imag = c->imag,
        .rate = c->rate,
        .band = c->band,
    };
    if (c->scan) {
        for (int64_t i = 0; i < 4 * c->D * c->h; i++) state[i] = sin((double)(3 * i + 1));
        ls_tensor *before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->D, 2 * c->h), state);
        ls_tensor *skip = ls_param(p, "skip", LS_DIMS(c->D), ls_init_gain());
        ls_keep(p, "y", ls_state_space_scan(p, &space, x, skip, before, NULL));
    } else {
        ls_tensor *kernel = ls_state_space_kernel(p, &space, c->T);
        ls_keep(p, "y", ls_long_conv(p, x, kernel, NULL, false));
    }
}

static const space_case spaces[] = {
    {9, 5, 5, 3, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, 0, 0, 0, 0, TIED},
    {70, 16, 2, 4, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 0, false, 0, false, 0, 0, 0, 0, TIED},
    {150, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 0, false, 0, 0, 0, 0, TIED},
    {9, 6, 6, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_SOFTPLUS, 0, true, 0, false, 0, 0, 0, 0, TIED},
    {150, 5, 1, 6, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, true, 0, false, 0, 0, 0, 0, TIED},
    {5, 4, 2, 2, LS_HOLD_ZOH, LS_STEP_EXP, 0, true, 6, false, 0, 0, 0, 0, TIED},
    {9, 5, 5, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 0, false, 0, true, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_SOFTPLUS, 0, true, 0, true, 0, 0, 0, 0, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, LS_KEPT_SOFTPLUS, LS_KEPT_EXP, 0,
     0.5, TIED},
    {33, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 1, true, 0, false, LS_KEPT_RELU,
     LS_KEPT_SOFTPLUS, 0.4, 0.2, TIED},
    {9, 6, 6, 3, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 2, 0.2, TIED},
    {70, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, 0, 0, 0.5, 0.5, UNTIED},
    {33, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 0, true, 0, false, 0, 0, 0, 0, UNTIED},
    {33, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 1, false, 13, false, 0, 0, 0, 0.5, UNTIED},
    {33, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, false, LS_KEPT_SIGMOID, 0, 0, 0, REAL},
    {9, 9, 9, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 0, true, 0, false, 0, 0, 0, 0, REAL},
    {33, 9, 3, 5, LS_HOLD_ZOH, LS_STEP_EXP, 0, false, 0, true, 0, 0, 0, 0, NO_INPUT},
    {70, 9, 3, 5, LS_HOLD_BILINEAR, LS_STEP_EXP, 2, false, 0, false, 0, 0, 0, 0, TIED},
    {9, 6, 3, 3, LS_HOLD_BILINEAR, LS_STEP_SOFTPLUS, 2, true, 13, false, 0, 0, 0, 0, UNTIED},
    {9, 5, 5, 4, LS_HOLD_BILINEAR, LS_STEP_EXP, 3, false, 0, false, 0, 0, 2, 0.2, TIED}};

/* Modes that fill no vector, in either direction, some rows not counting; the state that one scan
 * leaves enters another. */
typedef struct modes_case {
    int64_t T, P;
    ls_hold hold;
    bool reversed, masked;
} modes_case;

static void diagonal_scan(ls_program *p, const void *about) {
    const modes_case *c = about;
    const ls_init left = {.kind = LS_INIT_CONSTANT, .a = -0.4, .full = true};
    double counts[2 * 150], state[2 * 40];
    for (int64_t i = 0; i < 2 * c->T; i++) counts[i] = i % 5 != 2;
    for (int64_t i = 0; i < 4 * c->P; i++) state[i] = sin((double)(3 * i + 1));
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *after;
    ls_modes modes = {
        .v = made_from(p, x, "v", 2 * c->P),
        .real = ls_param(p, "real", LS_DIMS(c->P), left),
        .imag = full_param(p, "imag", LS_DIMS(c->P)),
        .log_step = full_param(p, "log_step", LS_DIMS(c->P)),
        .before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, 2 * c->P), state),
        .valid = c->masked ? ls_constant(p, LS_U8, LS_DIMS(2, c->T), counts) : NULL,
        .hold = c->hold,
        .real_max = -0.1,
        .step_scale = 0.5,
        .factor = 2,
        .reversed = c->reversed,
    };
    ls_tensor *y = ls_diagonal_scan(p, &modes, &after);
    modes.before = after;
    modes.reversed = !c->reversed;
    ls_keep(p, "y", ls_plus(p, y, ls_diagonal_scan(p, &modes, NULL)));
}

static const modes_case modes[] = {{5, 3, LS_HOLD_ZOH, false, false},
                                   {70, 9, LS_HOLD_BILINEAR, true, false},
                                   {150, 20, LS_HOLD_ZOH, true, true}};

static void plus_scaled(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, 70, 24), true);
    ls_tensor *scale = full_param(p, "scale", LS_DIMS(24));
    ls_keep(p, "y", ls_plus_scaled(p, made_from(p, x, "w", 24), x, scale));
}

static void scaled_alone(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *scale = ls_param(p, "scale", LS_DIMS(24), ls_init_gain());
    ls_keep(p, "y", ls_plus_scaled(p, NULL, input(p), scale));
}

/* Mega's moving average: kernels beside x, of one side and of two, and a scan from a state. */
typedef struct average_case {
    int64_t T, D, N;
    bool both, scan;
} average_case;

static void averaged(ls_program *p, const void *about) {
    const average_case *c = about;
    const int64_t rows = c->both ? 2 * c->D : c->D;
    double state[2 * 16 * 8];
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, c->D), true), *ahead = NULL;
    ls_tensor *skip = full_param(p, "skip", LS_DIMS(c->D));
    const ls_ema ema = {.delta = full_param(p, "delta", LS_DIMS(rows, c->N, 1)),
                        .alpha = full_param(p, "alpha", LS_DIMS(rows, c->N, 1)),
                        .beta = full_param(p, "beta", LS_DIMS(rows, c->N, 1)),
                        .gamma = full_param(p, "gamma", LS_DIMS(rows, c->N))};
    if (c->scan) {
        for (int64_t i = 0; i < 2 * c->D * c->N; i++) state[i] = sin((double)(3 * i + 1));
        ls_tensor *before = ls_constant(p, ls_wide_type(p), LS_DIMS(2, c->D, c->N), state);
        ls_keep(p, "y", ls_ema_scan(p, &ema, x, skip, before, NULL));
        return;
    }
    ls_tensor *kernel = ls_ema_kernel(p, &ema, c->T, c->both ? &ahead : NULL);
    ls_tensor *y = ls_long_conv(p, x, kernel, skip, false);
    if (ahead != NULL) y = ls_plus(p, y, ls_long_conv(p, x, ahead, NULL, true));
    ls_keep(p, "y", y);
}

static const average_case averages[] = {{9, 5, 3, false, false},  {70, 16, 8, true, false},
                                        {1, 3, 2, true, false},   {17, 3, 1, true, false},
                                        {150, 9, 5, false, true}, {3, 16, 8, false, true}};

/* Several rows of one, behind rows that are masked. */
static void scaled(ls_program *p, const void *about) {
    (void)about;
    static const double valid[10] = {1, 1, 0, 1, 0, 0, 1, 1, 1, 1};
    ls_tensor *x = ls_mask_rows(p, input(p), ls_constant(p, LS_U8, LS_DIMS(2, 5), valid)),
              *parts[2];
    ls_split(p, x, 2, (const int64_t[]){5, 19}, parts);
    ls_tensor *gain = full_param(p, "gain", LS_DIMS(3, 19));
    ls_keep(p, "y", ls_scale_shift(p, parts[1], gain, full_param(p, "shift", LS_DIMS(3, 19))));
}

/* A bias from rotated vectors, at distances of both signs and far apart. */
static void rotary_table(ls_program *p, const void *about) {
    (void)about;
    ls_tensor *alpha = full_param(p, "alpha", LS_DIMS(1, 6)),
              *beta = full_param(p, "beta", LS_DIMS(6));
    ls_keep(p, "y", ls_rotary_table(p, alpha, beta, 1000, 1301, 650));
}

/* Attention without a softmax: within a tile and over several, causal and both ways, in chunks,
 * with keys that do not count, heads that share keys, and a bias from rotated vectors. */
typedef struct weighted_case {
    int64_t T, H, G, K, V, chunk;
    bool causal, valid, rotary;
    ls_weight_kind kind;
} weighted_case;

static void weighted(ls_program *p, const void *about) {
    const weighted_case *c = about;
    const ls_weighting weighting = {c->kind, 0.7, 0.5};
    double valid[2 * 100];
    for (int64_t i = 0; i < 2 * c->T; i++) valid[i] = i % 7 != 3 && i % c->T < c->T - 2;
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 12), true), *part[3];
    int64_t width[3] = {c->H * c->K, c->G * c->K, c->G * c->V};
    ls_tensor *w = ls_param(p, "w", LS_DIMS(width[0] + width[1] + width[2], 12), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 3, width, part);
    ls_key_set segment = ls_key_set_all(ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, c->K)),
                                        ls_reshape(p, part[1], LS_DIMS(2, c->T, c->G, c->K)),
                                        ls_reshape(p, part[2], LS_DIMS(2, c->T, c->G, c->V)));
    if (c->causal) segment.lo = 0;
    if (c->valid) segment.valid = ls_constant(p, LS_U8, LS_DIMS(2, c->T), valid);
    segment.block = c->chunk;
    segment.alone = true;
    segment.table_zero = 11;
    segment.table = c->rotary ? ls_rotary_table(p, full_param(p, "alpha", LS_DIMS(10)),
                                                full_param(p, "beta", LS_DIMS(10)), 100, 30, 11)
                              : full_param(p, "table", LS_DIMS(c->H, 30));
    ls_keep(p, "y", ls_pointwise_attention(p, &segment, 1, weighting));
}

static const weighted_case weighings[] = {
    {5, 1, 1, 6, 7, 0, true, false, true, LS_WEIGHT_LAPLACE},
    {4, 4, 2, 19, 7, 0, false, true, false, LS_WEIGHT_LAPLACE},
    {100, 1, 1, 32, 64, 0, true, false, true, LS_WEIGHT_LAPLACE},
    {70, 4, 2, 5, 33, 0, false, true, false, LS_WEIGHT_LAPLACE},
    {80, 1, 1, 9, 20, 36, true, false, true, LS_WEIGHT_LAPLACE},
    {50, 2, 2, 8, 12, 24, false, true, false, LS_WEIGHT_RELU2},
};

typedef struct case_row {
    subject what;
    bool exact; /* the fast types need not be compared */
} case_row;

static const recurrent_case recurrences[] = {
    {5, 24, 4, true, true},   {3, 37, 5, false, false},  {150, 16, 2, true, false},
    {5, 20, 16, true, true},  {3, 37, 5, false, false},  {150, 16, 3, true, false},
    {70, 150, 2, true, true}, {70, 136, 16, true, true}, {67, 8, 16, false, true},
    {70, 24, 3, true, true},  {70, 37, 1, true, true},
};
static const recurrent_case complex_recurrences[] = {
    {70, 19, 3, true, true}, {130, 33, 8, false, true}, {5, 16, 1, true, false}};

static const long_case convolutions[] = {{5, 24, 5, false, true},    {64, 3, 80, true, false},
                                         {65, 17, 65, false, false}, {1, 4, 3, true, true},
                                         {150, 5, 7, false, true},   {600, 18, 600, false, true},
                                         {600, 3, 130, true, false}};

static const long_case past_convolutions[] = {{5, 24, 5, false, true},
                                              {30, 3, 40, false, false},
                                              {70, 17, 11, false, true},
                                              {1, 4, 3, false, true},
                                              {200, 40, 90, false, true}};
static const sine_case sines[] = {
    {40, 3, false, false}, {25, 1, true, false}, {33, 2, false, true}};
static const int64_t heads_of_8 = 3, heads_of_1 = 24;

static const ls_norm_kind layer = LS_NORM_LAYER, rms = LS_NORM_RMS;
static const act_case acts[] = {
    {LS_ACT_NONE, false}, {LS_ACT_GELU, false},     {LS_ACT_GELU_TANH, false}, {LS_ACT_SILU, false},
    {LS_ACT_RELU, false}, {LS_ACT_RELU2, false},    {LS_ACT_SIGMOID, false},   {LS_ACT_TANH, false},
    {LS_ACT_GELU, true},  {LS_ACT_GELU_TANH, true}, {LS_ACT_SILU, true},       {LS_ACT_RELU, true}};

static const ls_act_kind silu = LS_ACT_SILU, product = LS_ACT_NONE;
static const scan_case scans[] = {
    {5, 6, 4, false, false}, {70, 6, 37, true, true}, {150, 3, 16, false, true}};

static const ssd_case ssds[] = {{5, 2, 1, 6, 4, 0, INFINITY, 2},
                                {70, 3, 3, 5, 7, 0, INFINITY, 15},
                                {150, 6, 2, 90, 16, 0.4, 1.2, 6},
                                {530, 2, 1, 8, 5, 0, INFINITY, 0}};

static const ls_blend_kind blends[] = {LS_BLEND_MEAN, LS_BLEND_MAX};
static const ls_groups row_groups[] = {{2, 1, 2, 0}, {2, 3, 2, 0}};

static const subject subjects[] = {
    {"linear", linear, NULL},
    {"layer norm", norm, &layer},
    {"rms norm", norm, &rms},
    {"none", activate, &acts[0]},
    {"gelu", activate, &acts[1]},
    {"gelu_tanh", activate, &acts[2]},
    {"silu", activate, &acts[3]},
    {"relu", activate, &acts[4]},
    {"relu2", activate, &acts[5]},
    {"sigmoid", activate, &acts[6]},
    {"tanh", activate, &acts[7]},
    {"geglu", activate, &acts[8]},
    {"geglu_tanh", activate, &acts[9]},
    {"swiglu", activate, &acts[10]},
    {"reglu", activate, &acts[11]},
    {"pointwise", pointwise, NULL},
    {"rows", rows, NULL},
    {"block sums", block_sums, &(const bool){false}},
    {"block sums adopted", block_sums, &(const bool){true}},
    {"time linear", time_linear, &time_products[0]},
    {"time linear by head", time_linear, &time_products[1]},
    {"pick", picked, NULL},
    {"segment means", segment_means, &landmarks[0]},
    {"segment means, padded", segment_means, &landmarks[1]},
    {"segment means of few", segment_means, &landmarks[2]},
    {"landmark inverse", landmark_inverse, &landmarks[3]},
    {"landmark inverse, joint", landmark_inverse, &landmarks[4]},
    {"landmark inverse, a part of a large tile", landmark_inverse, &landmarks[7]},
    {"landmark inverse, several large tiles", landmark_inverse, &landmarks[9]},
    {"head conv", head_conv, &landmarks[5]},
    {"head conv, more taps than rows", head_conv, &landmarks[6]},
    {"head conv, many rows", head_conv, &landmarks[8]},
    {"features", features, &feature_cases[0]},
    {"features over the row's largest", features, &feature_cases[1]},
    {"relu features", features, &feature_cases[2]},
    {"relu features, no directions", features, &feature_cases[3]},
    {"linear attention", linear_attention, &feature_cases[4]},
    {"dropout", dropped, NULL},
    {"views", views, NULL},
    {"embed", embedded, NULL},
    {"embed padding", embedded_padding, &paddings[0]},
    {"mask", masked, &paddings[0]},
    {"mask narrow", masked, &paddings[5]},
    {"pool mean", pooled, &paddings[0]},
    {"pool mean of all", pooled, &paddings[1]},
    {"pool mean long", pooled, &paddings[2]},
    {"pool first", pooled, &paddings[3]},
    {"pool last", pooled, &paddings[4]},
    {"pool last of all", pooled, &paddings[5]},
    {"pool first of all", pooled, &paddings[6]},
    {"ssd scan", ssd, &ssds[0]},
    {"ssd scan of groups", ssd, &ssds[1]},
    {"ssd scan within limits", ssd, &ssds[2]},
    {"ssd scan long", ssd, &ssds[3]},
    {"conv silu", convolved, &recurrences[0]},
    {"conv", convolved, &recurrences[1]},
    {"conv long", convolved, &recurrences[2]},
    {"scan gated", scanned, &recurrences[3]},
    {"scan", scanned, &recurrences[4]},
    {"scan long", scanned, &recurrences[5]},
    {"scan wide", scanned, &recurrences[6]},
    {"scan of 16 states", scanned, &recurrences[7]},
    {"scan of 16 states, no gate", scanned, &recurrences[8]},
    {"scan of complex states", scanned_complex, &complex_recurrences[0]},
    {"scan of 8 complex states, no gate", scanned_complex, &complex_recurrences[1]},
    {"scan of one complex state", scanned_complex, &complex_recurrences[2]},
    {"conv of 3 taps", convolved, &recurrences[9]},
    {"conv of one tap", convolved, &recurrences[10]},
    {"means", blended, &blends[0]},
    {"maxima", blended, &blends[1]},
    {"row groups", row_grouped, &row_groups[0]},
    {"row groups apart", row_grouped, &row_groups[1]},
    {"mean square", apart, NULL},
    {"gate", gate, &silu},
    {"product", gate, &product},
    {"head layer norm", head_norm, &layer},
    {"head rms norm", head_norm, &rms},
    {"linear scan short", linear_scan, &scans[0]},
    {"linear scan", linear_scan, &scans[1]},
    {"linear scan long", linear_scan, &scans[2]},
    {"rows over their scores", scored, &(const int64_t){70}},
    {"a row over its score", scored, &(const int64_t){1}},
    {"long conv in a block", convolved_long, &convolutions[0]},
    {"long conv of the future", convolved_long, &convolutions[1]},
    {"long conv of two blocks", convolved_long, &convolutions[2]},
    {"long conv of nothing", convolved_long, &convolutions[3]},
    {"long conv, short kernel", convolved_long, &convolutions[4]},
    {"long conv of two levels", convolved_long, &convolutions[5]},
    {"long conv of the far future", convolved_long, &convolutions[6]},
    {"kernel, zoh", state_space, &spaces[0]},
    {"kernel, bilinear", state_space, &spaces[1]},
    {"kernel with a rank", state_space, &spaces[2]},
    {"kernel from C~", state_space, &spaces[3]},
    {"scan, zoh", state_space, &spaces[4]},
    {"kernel in a band", state_space, &spaces[9]},
    {"scan at another rate", state_space, &spaces[10]},
    {"kernel from C~ in a band", state_space, &spaces[11]},
    {"kernel, steps of modes", state_space, &spaces[12]},
    {"scan, steps of modes", state_space, &spaces[13]},
    {"kernel with a rank, steps of modes", state_space, &spaces[14]},
    {"kernel, real modes", state_space, &spaces[15]},
    {"scan, real modes", state_space, &spaces[16]},
    {"kernel without B", state_space, &spaces[17]},
    {"scan with a rank", state_space, &spaces[5]},
    {"scan from C~", state_space, &spaces[6]},
    {"kernel with a rank of 2", state_space, &spaces[18]},
    {"scan with a rank of 2, from C~, steps of modes", state_space, &spaces[19]},
    {"kernel with a rank of 3 in a band", state_space, &spaces[20]},
    {"diagonal scan", diagonal_scan, &modes[0]},
    {"diagonal scan, bilinear", diagonal_scan, &modes[1]},
    {"diagonal scan, masked", diagonal_scan, &modes[2]},
    {"scaled sum", plus_scaled, NULL},
    {"scaled alone", scaled_alone, NULL},
    {"average", averaged, &averages[0]},
    {"average of both sides", averaged, &averages[1]},
    {"average of nothing", averaged, &averages[2]},
    {"average in one dimension", averaged, &averages[3]},
    {"average from a state", averaged, &averages[4]},
    {"average of a few", averaged, &averages[5]},
    {"scale and shift", scaled, NULL},
    {"rotary table", rotary_table, NULL},
    {"weights in a tile", weighted, &weighings[0]},
    {"weights of few", weighted, &weighings[1]},
    {"weights", weighted, &weighings[2]},
    {"weights both ways", weighted, &weighings[3]},
    {"weights in chunks", weighted, &weighings[4]},
    {"weights in chunks both ways", weighted, &weighings[5]},
    {"kernel, upper poles", state_space, &spaces[7]},
    {"scan, upper poles", state_space, &spaces[8]},
    {"past conv", convolved_past, &past_convolutions[0]},
    {"past conv, long kernel", convolved_past, &past_convolutions[1]},
    {"past conv, short kernel", convolved_past, &past_convolutions[2]},
    {"past conv of one", convolved_past, &past_convolutions[3]},
    {"past conv of many", convolved_past, &past_convolutions[4]},
    {"filter of sines", drawn, &sines[0]},
    {"filter of sines from a table", drawn, &sines[1]},
    {"drawn filter under trained windows", drawn, &sines[2]},
    {"pairs of heads", paired, &heads_of_8},
    {"pairs of single channels", paired, &heads_of_1},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static const ls_program_options plain = {.batch = 2, .length = 5, .train = true, .guarded = true};

/* All of them, or those whose names contain LONGSHOT_TEST_OPERATION. */
static bool wanted(const subject *what) {
    const char *only = getenv("LONGSHOT_TEST_OPERATION");
    return only == NULL || strstr(what->name, only) != NULL;
}

static void test_gradients(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < SUBJECTS; i++)
        if (wanted(&subjects[i])) check_gradients(&ctx, &subjects[i], plain, inputs, 60);
}

/* Outputs and all gradients of one run, end to end in one array. */
static double *everything(bench *b, int64_t *count) {
    const ls_tensor *y = ls_program_find(b->program, "y");
    const ls_tensor *dx = ls_program_find(b->program, "grad.x");
    int64_t n = ls_count(y), m = dx == NULL ? 0 : ls_count(dx);
    *count = n + m + b->store->total;
    double *all = calloc((size_t)*count, sizeof *all);
    for (int64_t i = 0; i < n; i++) all[i] = get(y, i);
    for (int64_t i = 0; i < m; i++) all[n + i] = get(dx, i);
    for (int64_t i = 0; i < b->store->total; i++)
        all[n + m + i] = b->store->master_type == LS_F64 ? ((double *)b->store->gradient)[i]
                                                         : (double)((float *)b->store->gradient)[i];
    return all;
}

static double *run_everything(ls_ctx *ctx, const subject *what, ls_dtype type, int64_t *count) {
    ls_program_options options = plain;
    options.type = type;
    options.grad = true;
    bench b = bench_new(ctx, what, options);
    fill_inputs(b.program, inputs, 11);
    ls_parameters_clear_gradient(b.store);
    expect(ctx, ls_program_run(b.program, NULL, 1, 1));
    assert_true(ls_program_guards_intact(b.program));
    double *all = everything(&b, count);
    bench_free(&b);
    return all;
}

static void test_fast_types(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (int i = 0; i < SUBJECTS; i++) {
        int64_t count;
        if (!wanted(&subjects[i]) || !device_can(&ctx, &subjects[i], plain)) continue;
        ctx.isa = NULL;
        double *want = run_everything(&ctx, &subjects[i], LS_F64, &count);
        for (int k = 0; test_isa(k) != NULL; k++) {
            ctx.isa = test_isa(k);
            for (int type = LS_F32; type <= LS_BF16; type++) {
                double *got = run_everything(&ctx, &subjects[i], (ls_dtype)type, &count);
                double error = nmse(got, want, count), limit = type == LS_F32 ? 1e-12 : 1e-4;
                if (!(error <= limit))
                    fail_msg("%s on %s in %s: error %.3g, at most %.0e", subjects[i].name,
                             test_isa(k), ls_dtype_name((ls_dtype)type), error, limit);
                ctx.threads = 1 + ctx.threads % 3;
                double *again = NULL;
                if (!test_is_brief()) {
                    again = run_everything(&ctx, &subjects[i], (ls_dtype)type, &count);
                    if (memcmp(got, again, (size_t)count * sizeof *got) != 0)
                        fail_msg("%s in %s: other bits with other threads", subjects[i].name,
                                 ls_dtype_name((ls_dtype)type));
                }
                free(got);
                free(again);
            }
        }
        free(want);
    }
}

/* ---- padding ---- */

/* The definitions, with rows of padding that would spoil everything if they were read. */
static void test_padding(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    for (size_t i = 0; i < sizeof paddings / sizeof paddings[0]; i++) {
        const padding_case *c = &paddings[i];
        const subject what = {"pool", pooled, c};
        ls_program_options options = plain;
        options.type = LS_F64;
        bench b = bench_new(&ctx, &what, options);
        fill_inputs(b.program, inputs, 4);
        const ls_tensor *x = ls_program_find(b.program, "x"), *y = ls_program_find(b.program, "y");
        const int64_t T = c->T, D = c->D;
        for (int64_t row = 0; row < PADDED_ROWS; row++) {
            const bool whole = c->all || row == 1;
            const int64_t first = whole ? 0 : 3, end = row == 2 && !c->all ? 3 : whole ? T : T - 1;
            for (int64_t t = 0; t < T; t++)
                for (int64_t j = 0; (t < first || t >= end) && j < 2 * D; j++)
                    put(x, (row * T + t) * 2 * D + j, NAN);
        }
        expect(&ctx, ls_program_run(b.program, NULL, 0, 0));
        for (int64_t row = 0; row < PADDED_ROWS; row++) {
            const bool whole = c->all || row == 1, none = row == 2 && !c->all;
            const int64_t first = whole ? 0 : 3, end = whole ? T : T - 1;
            for (int64_t j = 0; j < D; j++) {
                double mean = 0, other = 0;
                for (int64_t t = first; !none && t < end; t++) {
                    double share = 1 / (double)(end - first);
                    double weight = c->kind == LS_POOL_MEAN    ? share
                                    : c->kind == LS_POOL_FIRST ? t == first
                                                               : t == end - 1;
                    mean += share * get(x, (row * T + t) * 2 * D + j);
                    other += weight * get(x, (row * T + t) * 2 * D + D + j);
                }
                assert_true(fabs(get(y, row * D + j) - other - 2 * mean) < 1e-12);
            }
        }
        bench_free(&b);
    }
}

/* ---- the planner and the run ---- */

static void test_no_allocation_and_reuse(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_program_options options = plain;
    options.type = LS_F32;
    options.guarded = false;
    subject what = {"views", views, NULL};
    bench b = bench_new(&ctx, &what, options);
    fill_inputs(b.program, inputs, 1);
    int64_t before = ctx.allocations;
    size_t bytes = ls_program_bytes(b.program);
    for (int i = 0; i < 5; i++) expect(&ctx, ls_program_run(b.program, NULL, 1, (uint32_t)i));
    assert_int_equal(before, ctx.allocations);
    assert_int_equal(bytes, ls_program_bytes(b.program));
    bench_free(&b);
}

static void chain(ls_program *p, const void *about) {
    int length = *(const int *)about;
    ls_tensor *x = input(p);
    for (int i = 0; i < length; i++) x = ls_times(p, x, 1.01);
    ls_keep(p, "y", x);
}

static void test_memory_is_reused(void **state) {
    (void)state;
    ls_ctx ctx = ls_ctx_default();
    ls_program_options options = plain;
    options.type = LS_F32;
    options.guarded = false;
    int few = 4, many = 64;
    bench a = bench_new(&ctx, &(subject){"short", chain, &few}, options);
    bench b = bench_new(&ctx, &(subject){"long", chain, &many}, options);
    assert_int_equal(ls_program_bytes(a.program), ls_program_bytes(b.program));
    bench_free(&a);
    bench_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_fast_types),
        cmocka_unit_test(test_no_allocation_and_reuse),
        cmocka_unit_test(test_memory_is_reused),
        cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
