/* The operations. Each records one node (see program.h); shapes are checked, NULL goes through.
 *
 * Letters: B batch, T time, D model width, H heads, G key-value heads, K key width, V value width,
 * N keys or states, E inner channels, F hidden width, R table rows. */
#ifndef LS_TENSOR_OPS_H
#define LS_TENSOR_OPS_H

#include "tensor/program.h"

/* y[.., out] = x[.., in] weight[out, in]^T + bias[out]; bias may be NULL. */
ls_tensor *ls_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias);

/* The same along time: y[b,m,h,:] = sum_t weight[t,m] x[b,t,h,:] for x [B,T,H,W] and a parameter
 * [N,M], or [H,N,M] where every head has its own; T <= N, the first T rows of the weight count. */
ls_tensor *ls_time_linear(ls_program *p, ls_tensor *x, ls_tensor *weight);

typedef enum { LS_NORM_LAYER, LS_NORM_RMS } ls_norm_kind;
/* sum = x + delta (delta may be NULL: sum is x), y = norm(sum) * weight + bias, over the last axis.
 * weight and bias may be NULL (1 and 0), and *sum where it is not wanted. */
ls_tensor *ls_residual_norm(ls_program *p, ls_norm_kind kind, double epsilon, ls_tensor *x,
                            ls_tensor *delta, ls_tensor *weight, ls_tensor *bias, ls_tensor **sum);

typedef enum {
    LS_ACT_NONE,
    LS_ACT_GELU,
    LS_ACT_GELU_TANH,
    LS_ACT_SILU,
    LS_ACT_RELU,
    LS_ACT_RELU2,
    LS_ACT_SIGMOID,
    LS_ACT_TANH
} ls_act_kind;
/* y = act(x); with `gated` the last axis holds [gate | value] and y = act(gate) * value. */
ls_tensor *ls_activate(ls_program *p, ls_act_kind kind, bool gated, ls_tensor *x);
/* y = act(gate) * value, of two tensors of one shape. */
ls_tensor *ls_gate(ls_program *p, ls_act_kind kind, ls_tensor *gate, ls_tensor *value);

ls_tensor *ls_plus(ls_program *p, ls_tensor *a, ls_tensor *b);
/* x + v where v's axes are the last ones of x (v may be a parameter). */
ls_tensor *ls_plus_broadcast(ls_program *p, ls_tensor *x, ls_tensor *v);
/* y + scale[d] x, scale a wide parameter as long as the last axis. */
ls_tensor *ls_plus_scaled(ls_program *p, ls_tensor *y, ls_tensor *x, ls_tensor *scale);
/* x * factor. */
ls_tensor *ls_times(ls_program *p, ls_tensor *x, double factor);
/* Sequence b of a where which[b] is not 0, else of b: two tensors of one shape [B,..], u8 [B]. */
ls_tensor *ls_pick(ls_program *p, ls_tensor *which, ls_tensor *a, ls_tensor *b);
/* y[..,j] / by[..] for y [..,V] and a wide `by` without its last axis; 0 where `by` is 0. */
ls_tensor *ls_divide(ls_program *p, ls_tensor *y, ls_tensor *by);
/* Draws a parameter that is not trained anew, as it was drawn at first, in each run of a training
 * program whose step is a multiple of `every` and not 0. */
void ls_redraw(ls_program *p, ls_tensor *parameter, int64_t every);
/* Zeroes a share of the elements and scales the rest; x itself outside training or at share 0. */
ls_tensor *ls_dropout(ls_program *p, ls_tensor *x, double share);

/* y[B,T,D] = table[ids[B,T]]; a row of zeros where the id is below 0 (padding). */
ls_tensor *ls_embed(ls_program *p, ls_tensor *ids, ls_tensor *table);
/* y[T,D] = table[min(start + t, R - 1)]: learned positions. A caller that does not want the last
 * row repeated sees to it that start + T <= R. */
ls_tensor *ls_position_rows(ls_program *p, ls_tensor *table, int64_t T);

/* Loss of the joined output projection and softmax cross-entropy: loss[n] = -log softmax(x W^T)
 * [target[n]], in pieces of rows, so that whole logits never exist. Rows with target < 0 have loss
 * 0. With `grad` the objective sum_n weight[n] * loss[n] seeds the backward part. ids and weights
 * are [B,T]; loss is [B,T] in the wide type. */
ls_tensor *ls_linear_cross_entropy(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                                   ls_tensor *targets, ls_tensor *weights);
/* A carried value that begins as a parameter: v [...], repeated over the batch, where the run
 * starts at position 0, and x [B,...] where it does not (no gradient passes through x). */
ls_tensor *ls_begin_with(ls_program *p, ls_tensor *x, ls_tensor *v);
/* The last row of each sequence: [B,T,D] -> [B,D]. No gradient. */
ls_tensor *ls_last_row(ls_program *p, ls_tensor *x);

/* ---- padding ---- */

/* u8 [B,T]: 1 where ids[B,T] has a token, 0 where it is below 0. No gradient. */
ls_tensor *ls_valid_rows(ls_program *p, ls_tensor *ids);
/* x [B,T,D] with zeros in the rows that are not valid; x itself where valid is NULL. */
ls_tensor *ls_mask_rows(ls_program *p, ls_tensor *x, ls_tensor *valid);
typedef enum { LS_POOL_MEAN, LS_POOL_FIRST, LS_POOL_LAST } ls_pool_kind;
/* One row of each sequence's valid ones (valid NULL: all): [B,T,D] -> [B,D]; zeros where there is
 * none. */
ls_tensor *ls_pool_rows(ls_program *p, ls_pool_kind kind, ls_tensor *x, ls_tensor *valid);

/* ---- recurrences ---- */

/* A causal convolution of W taps in every channel: y[b,t,e] = act(bias[e] + sum_k weight[e,k]
 * x[b,t-W+1+k,e]) with act = SiLU or nothing. x is [B,T,E], weight wide [E,W] with W >= 2, bias
 * wide [E] or NULL. The rows before the chunk are `before` [B,W-1,E]; *after are those that the
 * next chunk needs (no gradient passes through either). */
ls_tensor *ls_short_conv(ls_program *p, bool silu, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                         ls_tensor *before, ls_tensor **after);

/* Mamba's recurrence, with A = -exp(A_log) and d = softplus(delta + bias):
 *   h_t[e,n] = exp(d_t[e] A[e,n]) h_{t-1}[e,n] + d_t[e] B_t[n] u_t[e]
 *   y_t[e] = (sum_n C_t[n] h_t[e,n] + D[e] u_t[e]) silu(z_t[e])
 * u, delta, z are [batch,T,E]; B and C [batch,T,N]; A_log [E,N], D [E] and bias [E] wide
 * parameters; D, z and bias may be NULL. The state before and after the chunk is wide [batch,E,N];
 * gradients pass through both. Backward recomputes states from those kept every LS_SCAN_CHUNK
 * tokens. */
typedef struct ls_scan {
    ls_tensor *u, *delta, *A_log, *B, *C, *D, *z, *bias, *before;
} ls_scan;
ls_tensor *ls_selective_scan(ls_program *p, const ls_scan *scan, ls_tensor **after);

/* Attention without a softmax, as a recurrence over the past, for every head h:
 *   S_t[i,j] = g_h f_i S_{t-1}[i,j] + k_t[i] v_t[j],   y_t[j] = r_t sum_i q_t[i] S_t[i,j]
 * q and k are [B,T,H,K], v is [B,T,H,V], y too. Where sums are asked for, v has one more column of
 * ones: *sums, wide [B,T,H], is what y would be for it (the weights' sum, a running denominator).
 * The state before and after the chunk is wide [B,H,K,V], [B,H,K,V+1] with sums; gradients pass
 * through q, k, v and both. Fast types go chunk by chunk; memory does not depend on their number.
 */
typedef struct ls_linear_scan_operands {
    ls_tensor *q, *k, *v, *before;
    const double *log_decay;         /* [H]: log g_h <= 0; copied; NULL: no decay */
    const double *feature_log_decay; /* [K]: log f_i in [-1,0]; copied; NULL: none */
    bool rooted; /* r_t = 1/sqrt(sum_{j<=n} g_h^j), n being the position of t; else r_t = 1 */
} ls_linear_scan_operands;
ls_tensor *ls_linear_scan(ls_program *p, const ls_linear_scan_operands *scan, ls_tensor **sums,
                          ls_tensor **after);
/* The same without a past and a future: every query sees every key, y_t[j] = sum_i q_t[i] S[i,j]
 * with S = sum_s k_s v_s^T, and *sums wide [B,T,H] is what y would be for a column of ones. */
ls_tensor *ls_linear_attention(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                               ls_tensor **sums);

typedef enum { LS_FEATURES_EXP, LS_FEATURES_RELU } ls_features_kind;
typedef enum {
    LS_STABLE_NONE,         /* exponents stay as they are; those above 64 count as 64 */
    LS_STABLE_ROW,          /* the largest exponent of a row is taken off all of them */
    LS_STABLE_ROW_PRODUCT,  /* as published: the largest a_i of a row is */
    LS_STABLE_ALL_PRODUCTS, /* that of all rows of a sequence and head that are not padding is; no
                               gradient passes through this one and the one before */
} ls_stable;
typedef struct ls_features_options {
    ls_features_kind kind;
    ls_stable stable; /* of EXP */
    double scale;   /* of x */
    double epsilon; /* added to every feature */
} ls_features_options;
/* Features of queries or keys whose inner products are a kernel (arXiv 2009.14794), for x [B,T,H,K]
 * and wide directions [M,K], which get no gradient: with z = scale x and a = directions z
 *   EXP:  y_i = (exp(a_i - |z|^2 / 2 - what is taken off) + epsilon) / sqrt(M)
 *   RELU: y_i = max(a_i, 0) + epsilon; without directions (NULL) a is z.
 * Rows that are padding (u8 [B,T], NULL: none) are 0. */
ls_tensor *ls_features(ls_program *p, ls_tensor *x, ls_tensor *directions, ls_tensor *valid,
                       ls_features_options options);

/* ---- landmarks ---- */

/* Means of M consecutive pieces of every text x [B,T,H,W]: y [B,M,H,W]. Of n rows (those that are
 * not padding, u8 valid [B,T], NULL: all) the first (s+1) M - n pieces have s = floor(n / M) rows,
 * the others s + 1. A text of n <= M rows has them as they are, then zeros. *used (may be NULL) is
 * u8 [B,M], 0 for these zeros; *few (may be NULL) is u8 [B], 1 where n <= M. */
ls_tensor *ls_segment_means(ls_program *p, ls_tensor *x, int64_t M, ls_tensor *valid,
                            ls_tensor **used, ls_tensor **few);

typedef struct ls_landmark_options {
    double scale;       /* of q.k */
    int64_t iterations; /* of the pseudo-inverse */
    bool joint;         /* one starting value for all heads and sequences: see landmark_inverse.c */
} ls_landmark_options;
/* y = Z x for every head, with Z an iterated pseudo-inverse of softmax(scale q k^T): q and k are
 * [B,M,H,K], x and y [B,M,H,V]. Inside it is at least f32 (arXiv 2102.03902). */
ls_tensor *ls_landmark_inverse(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *x,
                               ls_landmark_options options);

/* A convolution that looks both ways, with the same S taps (odd) for all elements of a head:
 * y[b,t,h,:] = sum_s weight[h,s] x[b,t+s-(S-1)/2,h,:] for x [B,T,H,W], a wide parameter [H,S]. */
ls_tensor *ls_head_conv(ls_program *p, ls_tensor *x, ls_tensor *weight);

/* ---- long memory ---- */

/* Causal convolution of any length in every channel, y[b,t,d] = sum_s k[d,s] u[b,t-s,d] + skip[d]
 * u[b,t,d]; with `future` the other side, sum_s k[d,s] u[b,t+1+s,d]. u is [B,T,D], k wide [D,L] of
 * any length, skip a wide parameter [D] or NULL. Long ones go through transforms, of blocks that
 * lie wholly before what they act on: what comes later changes nothing before, to the bit. */
ls_tensor *ls_long_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip, bool future);
/* Operations of one channel of one sequence of T. */
double ls_long_conv_flops(int64_t T);

typedef enum { LS_HOLD_ZOH, LS_HOLD_BILINEAR } ls_hold; /* how time becomes discrete */
typedef enum { LS_STEP_EXP, LS_STEP_SOFTPLUS } ls_step; /* how a step size is kept */

/* A linear state space of every channel, with h complex modes that stand for themselves and their
 * conjugates: x' = A x + B u, y = 2 Re(C x), A = diag(L) - P P^H (the conjugates included; without
 * P just L) and L = -exp(A_real) - i A_imag, made discrete with the step sizes exp(dt) or
 * softplus(dt). All are wide parameters; complex ones are pairs. Channel d has copy d mod S of A, B
 * and P. With P the hold must be bilinear. */
typedef struct ls_state_space {
    ls_tensor *A_real, *A_imag; /* [S,h] */
    ls_tensor *B, *P;           /* [1,S,h,2]; P may be NULL */
    ls_tensor *C;               /* [sides,D,h,2] */
    ls_tensor *dt;              /* [D,1] */
    ls_hold hold;
    ls_step step;
    int64_t tilde; /* n > 0: C stands for C (1 - A^n), A discrete, as S4's public code keeps it */
    int64_t side;  /* which part of C */
} ls_state_space;

/* Its impulse response, wide [D,length]: kernel[d,l] = 2 Re(C A^l B), A and B discrete. */
ls_tensor *ls_state_space_kernel(ls_program *p, const ls_state_space *space, int64_t length);
/* The same recurrence from a state: y[b,t,d] = 2 Re(C x_t) + skip[d] u[b,t,d]. States are wide
 * [B,D,2h], no gradient passes through them; u [B,T,D], skip a wide parameter [D] or NULL. */
ls_tensor *ls_state_space_scan(ls_program *p, const ls_state_space *space, ls_tensor *u,
                               ls_tensor *skip, ls_tensor *before, ls_tensor **after);
/* Operations of one step of one channel. */
double ls_state_space_flops(int64_t modes, bool ranked);

/* P complex modes, each a recurrence of its own that all channels may drive and read:
 *   x_t = a x_{t-1} + b v_t,   y_t = factor conj(x_t)
 * where a and b = step w are x' = L x + v made discrete, L = min(real, real_most) + i imag and
 * step = step_scale exp(log_step). v and y are [B,T,2P], pairs of re and im: a product before it
 * with rows in pairs is a complex one, and after it a product with columns in pairs gives factor
 * Re(C x). States are wide [B,2P]; gradients pass through them too. Phases are exact: fast types
 * walk in double. Backward computes the states again. */
typedef struct ls_modes {
    ls_tensor *v;
    ls_tensor *real, *imag, *log_step; /* P numbers each, wide parameters */
    ls_tensor *before;                 /* NULL: zeros */
    ls_tensor *valid;                  /* u8 [B,T]: v counts as 0 where it is 0; NULL: all count */
    ls_hold hold;
    double real_most; /* INFINITY: no bound */
    double step_scale, factor;
    bool reversed; /* from the last row to the first */
} ls_modes;
ls_tensor *ls_diagonal_scan(ls_program *p, const ls_modes *modes, ls_tensor **after);

/* ---- positions ---- */

/* Where a token stands, as a method wants to see it: a function of its true position. */
typedef enum {
    LS_MAP_IDENTITY, /* p */
    LS_MAP_CLAMP,    /* min(p, a) */
    LS_MAP_CONSTANT, /* a */
    LS_MAP_GROUP,    /* floor(p / a) + b */
} ls_map_kind;
typedef struct ls_position_map {
    ls_map_kind kind;
    double a, b;
} ls_position_map;
double ls_position_map_at(ls_position_map map, int64_t position);

enum { LS_PAIRS_MOST = 512 };
typedef struct ls_rotary ls_rotary;
/* Frequencies that depend on the current length: fills frequency[pairs] and *factor, starting from
 * the tables of the rotary itself. */
typedef void (*ls_frequency_fn)(const ls_rotary *rotary, int64_t length, double *frequency,
                                double *factor);

/* A rotation of pairs by position * frequency, with an optional exponential factor (xPos). */
struct ls_rotary {
    int64_t pairs;                   /* the first 2 * pairs elements of a head are rotated */
    bool halves;                     /* pair i = (i, i + pairs), else (2i, 2i + 1) */
    double factor;                   /* on cosine and sine (YaRN's and LongRoPE's temperature) */
    double frequency[LS_PAIRS_MOST]; /* radians per position */
    /* log of the xPos decay per position and pair, 0 for plain rotation. Keys carry
     * exp(log_decay * (block * floor(c / block) - c)) where c is their mapped position, so that it
     * stays in a narrow range; the query's part is applied inside ls_attention, per block of keys.
     */
    bool decays;
    int64_t decay_block;
    double log_decay[LS_PAIRS_MOST];
    ls_frequency_fn dynamic;  /* called at each run with its length, start + T; or NULL */
    const void *dynamic_user; /* for it; must outlive the program */
    int64_t trained_length;   /* for it */
};

typedef enum {
    LS_ROTATE_ALONE, /* no xPos factor */
    LS_ROTATE_KEY,   /* with the key's factor, referred to its block */
    LS_ROTATE_QUERY, /* with the inverse one: all that is left to do where there is one block only
                      */
} ls_rotate_as;
/* Rotates x [B,T,H,K] at the mapped positions of its rows (for a cache: of the rows it holds). */
ls_tensor *ls_rotate(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                     ls_rotate_as as);

typedef enum { LS_SINUSOID_INTERLEAVED, LS_SINUSOID_FAIRSEQ, LS_SINUSOID_XL } ls_sinusoid_layout;
/* rows [T,D] for positions start..start+T-1 (relative = false), or [R,D] for distances 0..R-1. In
 * the fairseq layout the first position stands at 2, and the last column of an odd width is 0. */
ls_tensor *ls_sinusoid(ls_program *p, ls_sinusoid_layout layout, int64_t rows, int64_t width,
                       bool relative);
/* One element of such a table, for tests and `apply`. */
double ls_sinusoid_at(ls_sinusoid_layout layout, int64_t position, int64_t column, int64_t width);

/* table[H,R] from weight[buckets,H]: table[h][r] = weight[bucket[r]][h]. */
ls_tensor *ls_bucket_table(ls_program *p, ls_tensor *weight, int64_t R, const int32_t *bucket);

/* ---- attention ---- */

enum { LS_SEGMENTS_MOST = 4 };

/* One set of keys that a query may see, and how it is scored. Position of query row i is n, of key
 * row j is m (true positions: a cache's extent, or start + row). Admitted are pairs with
 *   lo <= n - m <= hi,  key_first <= m < key_end,  valid[b][j] != 0,
 *   and with block > 0: 0 <= floor(n / block) - floor(m / block) <= 1,
 *   and with dilation: (n - m) divisible by the head's dilation d, lo <= (n - m) / d <= hi.
 * Score: scale * q.k [with xPos decay] + bias of the distance between query and key coordinate. */
typedef struct ls_segment {
    ls_tensor *q;     /* [B,T,H,K] */
    ls_tensor *k, *v; /* [B,N,G,K], [B,N,G,V]: plain, or a cache from ls_cache_append */
    int64_t lo, hi;   /* LS_FAR for no bound */
    int64_t key_first, key_end;
    int64_t block;
    const int64_t *dilation;          /* [H] or NULL; copied */
    ls_tensor *valid;                 /* u8 [B,N] or NULL */
    ls_position_map query_at, key_at; /* coordinates whose difference the bias sees */
    ls_tensor *slopes;  /* wide [H]: bias = -slope * distance (|distance| where bidirectional) */
    ls_tensor *table;   /* wide [H,R]: bias = table[clamp(distance + table_zero, 0, R - 1)] */
    int64_t table_zero; /* column of distance 0 */
    ls_tensor *relative, *relative_q; /* [R,H,K], [B,T,H,K]: score += scale * relative_q . relative[
                                         clamp(distance, 0, R - 1)] (Transformer-XL) */
    bool decays;                      /* xPos: keys are block-referenced as ls_rotary says */
    int64_t decay_block, decay_pairs;
    bool decay_halves;
    double log_decay[LS_PAIRS_MOST];
} ls_segment;
#define LS_FAR ((int64_t)1 << 60)

/* A segment that admits everything: lo = -LS_FAR, hi = LS_FAR, all keys, no bias. */
ls_segment ls_segment_all(ls_tensor *q, ls_tensor *k, ls_tensor *v);

typedef struct ls_attention_options {
    double scale;
    bool off_by_one; /* the softmax's sum has an extra 1 (a key of score 0 without value) */
} ls_attention_options;

/* One softmax over all segments. Returns [B,T,H,V]; *lse (optional) is the log of the sum of
 * exponentials, wide [B,H,T] (no gradient flows through it). A row that may see no key gives 0 and
 * -infinity. Memory is linear in T and N. Gradients reach q, k, v, table, relative, relative_q. */
ls_tensor *ls_attention(ls_program *p, int segments, const ls_segment *segment,
                        ls_attention_options options, ls_tensor **lse);

/* A probe: scores as they go into the softmax of the same segments, added up by true distance n - m
 * over queries, sequences and segments. Returns f64 [2, H, distances], the sums and then the
 * numbers of pairs, of this run alone; pairs further apart (or later than the query) are not
 * counted. No gradient. */
ls_tensor *ls_score_profile(ls_program *p, int segments, const ls_segment *segment,
                            ls_attention_options options, int64_t distances);

#endif
