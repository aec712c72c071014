/* Operations on rows, on blocks and for attention: gradients against differences in f64, fast types
 * against f64, on every instruction set; padding; the planner. Tier: unsanitized. */
#include "operations_fixture.h"

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

/* Heads that are parts of rows; the last two of five places are beyond the length. */
static void row_growth(ls_program *p, const void *about) {
    ls_tensor *parts[2];
    ls_split(p, input(p), 2, (const int64_t[]){9, 15}, parts);
    ls_tensor *heads = ls_reshape(p, parts[1], LS_DIMS(2, 5, 3, 5));
    ls_keep(p, "y", ls_row_growth(p, heads, *(const ls_growth *)about));
}

/* Rotations by frequencies that are learnt, halves or neighbours, at places that are given or
 * not. */
typedef struct learned_case {
    bool halves, placed;
} learned_case;

static void learned(ls_program *p, const void *about) {
    const learned_case *c = about;
    const double at[10] = {0, 1, 5, 6, 7, 2, 3, 9, 11, 12};
    const ls_clex by = {.pairs = 3,
                        .hidden = 4,
                        .steps = 5,
                        .most = 2,
                        .scale = 2,
                        .trained = 2,
                        .tanh = true,
                        .frequency = {1, 0.3, 0.1}};
    ls_rotary rotary = {.pairs = 3, .halves = c->halves, .factor = 1.5};
    rotary.learned = ls_clex_frequencies(p, &by, full_param(p, "up", LS_DIMS(3, 4)),
                                         full_param(p, "down", LS_DIMS(4, 3)), NULL);
    ls_tensor *places = c->placed ? ls_constant(p, LS_I32, LS_DIMS(2, 5), at) : NULL;
    ls_tensor *heads = ls_reshape(p, input(p), LS_DIMS(2, 5, 3, 8));
    ls_keep(p, "y",
            ls_rotate_at(p, heads, &rotary, (ls_position_map){LS_MAP_SCALE, 0.01, 0},
                         LS_ROTATE_ALONE, places));
}

static const learned_case learned_cases[] = {{true, true}, {false, false}};

/* Attention of queries and keys that were rotated, by halves or neighbours, with xPos's factors or
 * without, heads that share keys. A device may rotate both in one pass, and their gradients where
 * they are made. */
typedef struct turned_case {
    int64_t T, H, G;
    bool halves, xpos;
} turned_case;

static void turned(ls_program *p, const void *about) {
    const turned_case *c = about;
    enum { K = 64, PAIRS = K / 2 };
    ls_rotary rotary = {.pairs = PAIRS, .halves = c->halves, .factor = 1};
    for (int i = 0; i < PAIRS; i++) rotary.frequency[i] = pow(1e4, -i / (double)PAIRS);
    if (c->xpos) rotary.xpos = (ls_xpos){.pairs = PAIRS, .halves = c->halves, .block = 1 << 20};
    for (int i = 0; i < PAIRS; i++) rotary.xpos.log_decay[i] = -1e-4 * (i + 1);
    const ls_position_map here = {LS_MAP_IDENTITY, 0, 0};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, 24), true), *part[3];
    const int64_t width[3] = {c->H * K, c->G * K, c->G * K};
    ls_tensor *w = ls_param(p, "w", LS_DIMS(width[0] + width[1] + width[2], 24), ls_init_normal(1));
    ls_split(p, ls_linear(p, x, w, NULL), 3, width, part);
    ls_tensor *q = ls_rotate(p, ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, K)), &rotary, here,
                             c->xpos ? LS_ROTATE_QUERY : LS_ROTATE_ALONE);
    ls_tensor *k = ls_rotate(p, ls_reshape(p, part[1], LS_DIMS(2, c->T, c->G, K)), &rotary, here,
                             c->xpos ? LS_ROTATE_KEY : LS_ROTATE_ALONE);
    ls_key_set segment = ls_key_set_all(q, k, ls_reshape(p, part[2], LS_DIMS(2, c->T, c->G, K)));
    segment.lo = 0;
    ls_keep(p, "y", ls_attention(p, 1, &segment, (ls_attention_options){.scale = 0.02}, NULL));
}

static const turned_case turned_cases[] = {
    {130, 2, 1, true, false}, {130, 1, 1, false, false}, {130, 1, 1, true, true}};

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

/* Grouped softmax: blocks of several tiles or of a few rows, the last one whole or not; key heads
 * that are shared; a text that is shorter than a block. */
typedef struct grouped_case {
    int64_t T, H, G, K, V, block;
} grouped_case;

static void grouped(ls_program *p, const void *about) {
    const grouped_case *c = about;
    const int64_t widths[] = {c->H * c->K, c->G * c->K, c->G * c->V};
    ls_tensor *x = ls_input(p, "x", ls_type(p), LS_DIMS(2, c->T, widths[0] + widths[1] + widths[2]),
                            true),
              *part[3];
    ls_split(p, x, 3, widths, part);
    ls_keep(p, "y",
            ls_landmark_attention(p, ls_reshape(p, part[0], LS_DIMS(2, c->T, c->H, c->K)),
                                  ls_reshape(p, part[1], LS_DIMS(2, c->T, c->G, c->K)),
                                  ls_reshape(p, part[2], LS_DIMS(2, c->T, c->G, c->V)), c->block,
                                  0.7));
}

static const grouped_case grouped_cases[] = {
    {29, 2, 2, 5, 7, 6}, {150, 2, 1, 8, 4, 70}, {40, 4, 2, 16, 16, 2}, {9, 1, 1, 3, 3, 50}};

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

/* Outer products of heads, of parts of one tensor, and back; x is 24 wide. */
static void paired(ls_program *p, const void *about) {
    const int64_t heads = *(const int64_t *)about;
    ls_tensor *parts[2];
    ls_split(p, made_from(p, input(p), "w", 48), 2, (const int64_t[]){24, 24}, parts);
    ls_tensor *pairs = ls_head_outer(p, heads, parts[0], parts[1]);
    ls_keep(p, "y", ls_head_contract(p, heads, parts[1], pairs));
}

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

static const int64_t heads_of_8 = 3, heads_of_1 = 24;

static const ls_norm_kind layer = LS_NORM_LAYER, rms = LS_NORM_RMS;

static const act_case acts[] = {
    {LS_ACT_NONE, false}, {LS_ACT_GELU, false},     {LS_ACT_GELU_TANH, false}, {LS_ACT_SILU, false},
    {LS_ACT_RELU, false}, {LS_ACT_RELU2, false},    {LS_ACT_SIGMOID, false},   {LS_ACT_TANH, false},
    {LS_ACT_GELU, true},  {LS_ACT_GELU_TANH, true}, {LS_ACT_SILU, true},       {LS_ACT_RELU, true}};

static const ls_act_kind silu = LS_ACT_SILU, product = LS_ACT_NONE;

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
    {"row growth", row_growth, &(const ls_growth){3.5, false}},
    {"row growth of the whole", row_growth, &(const ls_growth){3.5, true}},
    {"attention, rotated by halves", turned, &turned_cases[0]},
    {"attention, rotated by neighbours", turned, &turned_cases[1]},
    {"attention, rotated with xPos", turned, &turned_cases[2]},
    {"learned rotation", learned, &learned_cases[0]},
    {"learned rotation of neighbours", learned, &learned_cases[1]},
    {"block sums", block_sums, &(const bool){false}},
    {"block sums adopted", block_sums, &(const bool){true}},
    {"time linear", time_linear, &time_products[0]},
    {"time linear by head", time_linear, &time_products[1]},
    {"pick", picked, NULL},
    {"grouped softmax", grouped, &grouped_cases[0]},
    {"grouped softmax of large blocks", grouped, &grouped_cases[1]},
    {"grouped softmax of pairs", grouped, &grouped_cases[2]},
    {"grouped softmax within a block", grouped, &grouped_cases[3]},
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
    {"means", blended, &blends[0]},
    {"maxima", blended, &blends[1]},
    {"row groups", row_grouped, &row_groups[0]},
    {"row groups apart", row_grouped, &row_groups[1]},
    {"mean square", apart, NULL},
    {"gate", gate, &silu},
    {"product", gate, &product},
    {"head layer norm", head_norm, &layer},
    {"head rms norm", head_norm, &rms},
    {"rows over their scores", scored, &(const int64_t){70}},
    {"a row over its score", scored, &(const int64_t){1}},
    {"scaled sum", plus_scaled, NULL},
    {"scaled alone", scaled_alone, NULL},
    {"scale and shift", scaled, NULL},
    {"rotary table", rotary_table, NULL},
    {"weights in a tile", weighted, &weighings[0]},
    {"weights of few", weighted, &weighings[1]},
    {"weights", weighted, &weighings[2]},
    {"weights both ways", weighted, &weighings[3]},
    {"weights in chunks", weighted, &weighings[4]},
    {"weights in chunks both ways", weighted, &weighings[5]},
    {"pairs of heads", paired, &heads_of_8},
    {"pairs of single channels", paired, &heads_of_1},
};
enum { SUBJECTS = sizeof subjects / sizeof subjects[0] };

static void test_gradients(void **state) {
    (void)state;
    check_all_gradients(subjects, SUBJECTS);
}

static void test_fast_types(void **state) {
    (void)state;
    check_fast_types(subjects, SUBJECTS);
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

/* What is far below has an exponential of 0, however far: of features what is added stays. */
static void test_far_exponents(void **state) {
    (void)state;
    static const features_case far = {3, 2, 16, 32, LS_FEATURES_EXP, LS_STABLE_NONE, false};
    const subject what = {"far exponents", features, &far};
    const float sizes[] = {1e3f, 1e6f, 1e9f, 1e12f, 1e15f, 4e18f};
    ls_ctx ctx = ls_ctx_default();
    ls_program_options options = plain;
    options.type = LS_F32;
    for (int k = 0; test_isa(k) != NULL; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            ctx.isa = test_isa(k);
            bench b = bench_new(&ctx, &what, options);
            const ls_tensor *x = ls_program_find(b.program, "x");
            const ls_tensor *y = ls_program_find(b.program, "y");
            for (int64_t e = 0; e < ls_count(x); e++) put(x, e, (double)sizes[i]);
            expect(&ctx, ls_program_run(b.program, NULL, 1, 1));
            for (int64_t e = 0; e < ls_count(y); e++)
                if (!(fabs(get(y, e) - 0.01 / sqrt((double)far.M)) < 1e-8))
                    fail_msg("%s, elements of %g: a feature of %g", test_isa(k), (double)sizes[i],
                             get(y, e));
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
        cmocka_unit_test(test_gradients),        cmocka_unit_test(test_fast_types),
        cmocka_unit_test(test_far_exponents),    cmocka_unit_test(test_no_allocation_and_reuse),
        cmocka_unit_test(test_memory_is_reused), cmocka_unit_test(test_padding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
