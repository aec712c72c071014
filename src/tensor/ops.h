/* The operations. Each records one node (see program.h); shapes are checked, NULL goes through.
 *
 * Letters: B batch, T time, D model width, H heads, G key-value heads, K key width, V value width,
 * N keys or states, E inner channels, F hidden width, R table rows. */
#ifndef LS_TENSOR_OPS_H
#define LS_TENSOR_OPS_H

#include "tensor/program.h"
#include "tensor/tile_schedule.h"

/* y[.., out] = x[.., in] weight[out, in]^T + bias[out]; bias may be NULL. Where x and weight are
 * wide, so is y. */
ls_tensor *ls_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias);

/* y[.., in] = x[.., out] weight[out, in]: the same weight the other way round. */
ls_tensor *ls_linear_turned(ls_program *p, ls_tensor *x, ls_tensor *weight);

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
/* y[c,r] = x[r,c], of any real type. */
ls_tensor *ls_transpose(ls_program *p, ls_tensor *x);
/* x * factor. */
ls_tensor *ls_times(ls_program *p, ls_tensor *x, double factor);
/* y[.., i W + j] = x[.., j] gain[i,j] + shift[i,j]: one row of W becomes as many as gain and shift,
 * wide parameters [P,W], have. */
ls_tensor *ls_scale_shift(ls_program *p, ls_tensor *x, ls_tensor *gain, ls_tensor *shift);
/* Sequence b of a where which[b] is not 0, else of b: two tensors of one shape [B,..], u8 [B]. */
ls_tensor *ls_pick(ls_program *p, ls_tensor *which, ls_tensor *a, ls_tensor *b);
/* y[..,j] / by[..] for y [..,V] and a wide `by` without its last axis; 0 where `by` is 0. */
ls_tensor *ls_divide(ls_program *p, ls_tensor *y, ls_tensor *by);
/* Draws a parameter that is not trained anew, as it was drawn at first, in each run of a training
 * program whose step is a multiple of `every` and not 0. */
void ls_redraw(ls_program *p, ls_tensor *parameter, int64_t every);
/* Zeroes a share of the elements and scales the rest; x itself outside training or at share 0. */
ls_tensor *ls_dropout(ls_program *p, ls_tensor *x, double share);
/* u8 [B,T], drawn in each run: 0 for a share of the first `count` rows of every sequence, 1 for all
 * others. NULL, which means all, outside training or where there is nothing to leave out. */
ls_tensor *ls_drop_rows(ls_program *p, int64_t B, int64_t T, int64_t count, double share);

/* y[B,T,D] = table[ids[B,T]]; a row of zeros where the id is below 0 (padding). */
ls_tensor *ls_embed(ls_program *p, ls_tensor *ids, ls_tensor *table);
/* y[T,D] = table[min(start + t, R - 1)]: learned positions. A caller that does not want the last
 * row repeated sees to it that start + T <= R. */
ls_tensor *ls_position_rows(ls_program *p, ls_tensor *table, int64_t T);

/* Loss of the joined output projection and softmax cross-entropy: loss[n] = -log softmax(x W^T)
 * [target[n]], in pieces of rows, so that whole logits never exist. Rows with target < 0 have loss
 * 0. With `grad` the objective sum_n weight[n] * loss[n] seeds the backward part. ids and weights
 * are [B,T]; loss is [B,T] in the wide type. With a label_smoothing s of the program the loss is
 * (1 - s) of that and s of its mean over all targets. */
ls_tensor *ls_linear_cross_entropy(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                                   ls_tensor *targets, ls_tensor *weights);
/* ---- a vocabulary in clusters ---- */

/* Cluster 0 of a vocabulary has the ids below first[1], cluster i those from first[i] on;
 * first[count] is their number. A softmax over cluster 0 and one column for each other cluster says
 * which, and one over its members says what (arXiv 1609.04309). */
enum { LS_CLUSTERS_MOST = 16 };
typedef struct ls_clusters {
    int count;
    int64_t first[LS_CLUSTERS_MOST + 1];
} ls_clusters;
/* ids [..] as numbers within cluster `which`; -1 for others. With `columns`, for cluster 0, others
 * are the number of their cluster's column, first[1] + cluster - 1. No gradient. */
ls_tensor *ls_cluster_ids(ls_program *p, const ls_clusters *clusters, ls_tensor *ids, int which,
                          bool columns);
/* The sum of losses of one shape, which is not a gradient's way. */
ls_tensor *ls_cluster_losses(ls_program *p, int count, ls_tensor *const *losses);
/* Logarithms of all ids' probabilities, [.., V], from the clusters' logits: [.., first[1] + count -
 * 1], and [.., size] of each other one. No gradient. */
ls_tensor *ls_cluster_logits(ls_program *p, const ls_clusters *clusters, ls_tensor *const *logits);

/* A carried value that begins as a parameter: v [...] of every sequence that begins with this run,
 * and x [B,...] of one that does not (no gradient passes through x). */
ls_tensor *ls_begin_with(ls_program *p, ls_tensor *x, ls_tensor *v);
/* The last row of each sequence: [B,T,D] -> [B,D]. No gradient. */
ls_tensor *ls_last_row(ls_program *p, ls_tensor *x);
/* The rows with the given numbers, b T + t, of x [B,T,D]: at i32 [B,n] -> [B,n,D]. No gradient. */
ls_tensor *ls_pick_rows(ls_program *p, ls_tensor *x, ls_tensor *at);
/* Rows of every sequence, `at` rising (copied): y[b,i,..] = x[b,at[i],..] of x [B,T,..] of any
 * type; and x with the rows at[i] replaced by rows[b,i,..]. */
ls_tensor *ls_take_rows(ls_program *p, ls_tensor *x, int64_t count, const int64_t *at);
ls_tensor *ls_put_rows(ls_program *p, ls_tensor *x, ls_tensor *rows, int64_t count,
                       const int64_t *at);

/* ---- padding ---- */

/* u8 [B,T]: 1 where ids[B,T] has a token, 0 where it is below 0. No gradient. */
ls_tensor *ls_valid_rows(ls_program *p, ls_tensor *ids);
/* x [B,T,D] with zeros in the rows that are not valid; x itself where valid is NULL. */
ls_tensor *ls_mask_rows(ls_program *p, ls_tensor *x, ls_tensor *valid);
typedef enum { LS_POOL_MEAN, LS_POOL_FIRST, LS_POOL_LAST } ls_pool_kind;
/* One row of each sequence's valid ones (valid NULL: all): [B,T,D] -> [B,D]; zeros where there is
 * none. */
ls_tensor *ls_pool_rows(ls_program *p, ls_pool_kind kind, ls_tensor *x, ls_tensor *valid);

/* Sums of the valid rows of every block, [B,T / block,D] of x [B,T,D], T >= block; valid is u8
 * [B,T] or NULL. A block is complete where its last row is valid. With `adopt` the number F of
 * complete blocks counts: block j < F is there, the last of them takes all rows after it, and the
 * rest is zeros. *most, i32 [B], is then F - 1. Without, blocks that are not complete are not
 * there. *there, u8 [B,T / block], says which are. */
ls_tensor *ls_block_sums(ls_program *p, ls_tensor *x, ls_tensor *valid, int64_t block, bool adopt,
                         ls_tensor **most, ls_tensor **there);

/* The mean of (a - b)^2 over all elements, wide [1]; of the rows of a cache over those it holds (0
 * where it holds none). */
ls_tensor *ls_mean_square(ls_program *p, ls_tensor *a, ls_tensor *b);

/* ---- groups of rows ---- */

/* Rows that leave a memory, `rate` at a time. The memory holds `memory` rows before the segment in
 * which the sequence is; group k is made once rows [k rate, (k + 1) rate) lie before it. Rows of a
 * group are `dilation` apart and end with the last of these. segment and memory are multiples of
 * rate. */
typedef struct ls_groups {
    int64_t rate, dilation, segment, memory;
} ls_groups;
/* Groups that have been made when the sequence is at a position; and the most of one run of up to
 * `chunk` rows, in a sequence of up to `capacity`, at least 1. */
int64_t ls_groups_due(ls_groups groups, int64_t position);
int64_t ls_groups_most(ls_groups groups, int64_t chunk, int64_t capacity);
/* The groups that this run makes from x [B,N,D] (a cache, or a whole sequence), side by side:
 * [B,most,rate*D]. They have an extent as a cache's rows do: number of the first, and count; what
 * lies behind it is 0. Rows before the sequence's start are 0. */
ls_tensor *ls_row_groups(ls_program *p, const char *name, ls_tensor *x, ls_groups groups);
/* Appends such rows x [B,most,...] (or what a row-wise operation made of them) to a cache of the
 * last `keep` before this run's; `most` is that of any program that shares the state. Without
 * streaming: x itself. */
ls_tensor *ls_rows_append(ls_program *p, const char *name, ls_tensor *x, int64_t keep,
                          int64_t most);
/* The same in two steps: x gives the shape of a row, which stands for `each` tokens. Only where the
 * program streams. */
ls_tensor *ls_rows_cache(ls_program *p, const char *name, ls_tensor *x, int64_t each, int64_t keep,
                         int64_t most);
void ls_rows_put(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep);
/* At the end of the run, so that it reads the cache as it was, the backward part too. */
void ls_rows_put_last(ls_program *p, ls_tensor *cache, ls_tensor *x, int64_t keep);
/* Of the rows that leave the memory with this segment, those 1 in `rate` that received the most
 * attention (ls_attention_received) from the segment's queries, in their order: [B,most,D], with an
 * extent as row_groups has. A run must lie within a segment. Only where the program streams; no
 * gradient. */
ls_tensor *ls_most_used(ls_program *p, const char *name, ls_tensor *x, ls_tensor *received,
                        ls_groups groups);

typedef enum { LS_BLEND_MEAN, LS_BLEND_MAX } ls_blend_kind;
/* y[.., D] of x[.., rate*D]: the mean or the largest of `rate` rows side by side. */
ls_tensor *ls_blend(ls_program *p, ls_blend_kind kind, ls_tensor *x, int64_t rate);

/* ---- recurrences ---- */

/* A causal convolution of W taps in every channel: y[b,t,e] = act(bias[e] + sum_k weight[e,k]
 * x[b,t-W+1+k,e]) with act = SiLU or nothing. x is [B,T,E], weight wide [E,W], bias wide [E] or
 * NULL. The rows before the chunk are `before` [B,W-1,E]; *after are those that the next chunk
 * needs (no gradient passes through either). One tap needs none: both are NULL. */
ls_tensor *ls_short_conv(ls_program *p, bool silu, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                         ls_tensor *before, ls_tensor **after);

/* Mamba's recurrence, with A = -exp(A_log) and d = softplus(delta + bias), or with plain_step
 * d = delta + bias, of either sign:
 *   h_t[e,n] = exp(d_t[e] A[e,n]) h_{t-1}[e,n] + d_t[e] B_t[n] u_t[e]
 *   y_t[e] = (sum_n C_t[n] h_t[e,n] + D[e] u_t[e]) silu(z_t[e])
 * u, delta, z are [batch,T,E]; B and C [batch,T,N]; A_log [E,N], D [E] and bias [E] wide
 * parameters; D, z and bias may be NULL. The state before and after the chunk is wide [batch,E,N];
 * gradients pass through both. Backward recomputes states from those kept every LS_SCAN_CHUNK
 * tokens.
 * With A_im, a wide parameter [E,N], states are complex and stand for themselves and their
 * conjugates: A = -exp(A_log) + i A_im, and 2 Re(sum_n C h) takes the place of the sum. B and C are
 * then [batch,T,2 N] and states [batch,E,2 N], re and im side by side. */
typedef struct ls_scan {
    ls_tensor *u, *delta, *A_log, *A_im, *B, *C, *D, *z, *bias, *before;
    bool plain_step;
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
    double scale;     /* of x */
    double epsilon;   /* added to every feature */
} ls_features_options;
/* Features of queries or keys whose inner products are a kernel (arXiv 2009.14794), for x [B,T,H,K]
 * and wide directions [M,K], which get no gradient: with z = scale x and a = directions z
 *   EXP:  y_i = (exp(a_i - |z|^2 / 2 - what is taken off) + epsilon) / sqrt(M)
 *   RELU: y_i = max(a_i, 0) + epsilon
 * Without directions (NULL) a is z, M is K, and EXP has no |z|^2 / 2.
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
/* The same for a chunk of a stream, summed as defined: y[b,t,d] = sum_s k[s,d] u[b,n-s,d] + skip[d]
 * u[b,n,d], n being the position of t. u is [B,N,D], plain or a cache; rows that it does not hold
 * are 0. k is wide [1,L,D], one lag after the other: plain, or a cache that began with the stream.
 */
ls_tensor *ls_past_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip);

/* The impulse response of a register of N places, every channel for itself: x_t = (x_{t-1} shifted
 * by one place) + B u_t, y_t = C x_t. Wide [1,N,D], k[s,d] = sum_m B[d,m] C[d,m+s], from wide
 * parameters B [D,N] and C of as many elements. */
ls_tensor *ls_shift_kernel(ls_program *p, ls_tensor *B, ls_tensor *C);

/* With `heads` heads of width W in rows [B,T,H W]: the outer products s[(b,i,j),t,h] = a[b,t,h W+i]
 * c[b,t,h W+j], which is [B W W,T,H]; and the sums y[b,t,j H+h] = sum_i a[b,t,h W+i]
 * s[(b,i,j),t,h].
 */
ls_tensor *ls_head_outer(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *c);
ls_tensor *ls_head_contract(ls_program *p, int64_t heads, ls_tensor *a, ls_tensor *s);

/* A function of time that a network of sines draws. For position n of a row it is given
 *   x = [n/(l-1), cos(f_k w), -sin(f_k w)],  w = 2 pi n / l, f_k from 1e-4 to bands - 1 in even
 * steps or row n of a table of its own (0 beyond the table's end), and goes through the layers x <-
 * sin(frequency (weight x + bias)). Rows are wide [rows,F], for positions from the chunk's start
 * on, or from 0 on (relative). It is computed in double in any type. */
enum { LS_SINES_MOST = 8 };
typedef struct ls_sines {
    int layers;
    ls_tensor *weight[LS_SINES_MOST], *bias[LS_SINES_MOST]; /* wide parameters [F,in] and [F] */
    ls_tensor *frequency;                                   /* wide parameter [F], of all layers */
    ls_tensor *table;                                       /* wide parameter [..,R,in], or NULL */
    int64_t bands;                                          /* without a table */
    double length;                                          /* l */
} ls_sines;
ls_tensor *ls_sine_network(ls_program *p, const ls_sines *sines, int64_t rows, bool relative);
/* One element of what it is given of position n, for tables. */
double ls_sine_feature(int64_t n, int64_t column, int64_t bands, double length);
/* y[t,c] = x[t,c] (exp(-|rate[c]| n/length) + floor), n being the position of t as above; x wide
 * [rows,C], rate wide [C], constant or a parameter. */
ls_tensor *ls_fade(ls_program *p, ls_tensor *x, ls_tensor *rate, double length, double floor,
                   bool relative);

/* y[t,c] = x[t,c] / sum_c |x[t,c]|, for x wide [rows,C]; a row of zeros stays one. */
ls_tensor *ls_unit_rows(ls_program *p, ls_tensor *x);

typedef enum { LS_HOLD_ZOH, LS_HOLD_BILINEAR } ls_hold; /* how time becomes discrete */
typedef enum { LS_STEP_EXP, LS_STEP_SOFTPLUS } ls_step; /* how a step size is kept */
/* How a part of a pole is kept: as it is, or its size is e^x, max(x, 0) + 1e-4, log(1 + e^x) or
 * 1/(1 + e^-x). */
typedef enum {
    LS_KEPT_PLAIN,
    LS_KEPT_EXP,
    LS_KEPT_RELU,
    LS_KEPT_SOFTPLUS,
    LS_KEPT_SIGMOID
} ls_kept;

/* A linear state space of every channel, with h complex modes that stand for themselves and their
 * conjugates: x' = A x + B u, y = 2 Re(C x), A = diag(L) - sum P_j P_j^H over the rows of P (the
 * conjugates included; without P just L) and L = -real(A_real) - i imag(A_imag) (or + i ..), made
 * discrete with the step sizes rate exp(dt) or rate softplus(dt). All are wide parameters; complex
 * ones are pairs. Channel d has copy d mod S of A, B and P. With P the hold must be bilinear.
 * Without A_imag everything is real: there are no pairs, and no P. */
enum { LS_STATE_SPACE_RANK_MOST = 8 };
typedef struct ls_state_space {
    ls_tensor *A_real, *A_imag; /* [S,h] */
    ls_tensor *B;               /* [1,S,h,2]; may be NULL, which is 1 everywhere */
    ls_tensor *P;               /* [rank,S,h,2], or NULL */
    ls_tensor *C;               /* [sides,D,h,2] */
    ls_tensor *dt;              /* [D,1], or [D,h]: of every mode */
    ls_hold hold;
    ls_step step;
    ls_kept real, imag; /* what is kept of L */
    double rate;        /* factor on step sizes; 0: 1 */
    double band;   /* modes that turn by band/2 or more in a step of rate 1 have C = 0; 0: none */
    int64_t tilde; /* n > 0: C stands for C (1 - A^n), A discrete, as S4's public code keeps it */
    int64_t side;  /* which part of C */
    bool upper;    /* + i A_imag: H3's public code keeps the other one of each pair */
} ls_state_space;

/* Its impulse response, wide [D,length]: kernel[d,l] = 2 Re(C A^l B), A and B discrete. */
ls_tensor *ls_state_space_kernel(ls_program *p, const ls_state_space *space, int64_t length);
/* The same recurrence from a state: y[b,t,d] = 2 Re(C x_t) + skip[d] u[b,t,d]. States are wide
 * [B,D,2h], no gradient passes through them; u [B,T,D], skip a wide parameter [D] or NULL. */
ls_tensor *ls_state_space_scan(ls_program *p, const ls_state_space *space, ls_tensor *u,
                               ls_tensor *skip, ls_tensor *before, ls_tensor **after);
/* Operations of one step of one channel. */
double ls_state_space_flops(int64_t modes, int64_t rank);

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

/* Mega's damped moving average in N dimensions of every channel: with p = sigmoid(delta), a =
 * sigmoid(alpha) and q = 1 - p a
 *   h_t = q h_{t-1} + p beta x_t,   y_t = sum_n gamma_n h_t[n] / sqrt(N) + skip x_t
 * The parameters are wide, of [sides D,N] elements; the second side, where there is one, looks
 * ahead. */
typedef struct ls_ema {
    ls_tensor *delta, *alpha, *beta, *gamma; /* gamma [sides D,N]; the others may have more axes */
} ls_ema;
enum { LS_EMA_DIMS_MOST = 256 }; /* N */

/* Its impulse response, wide [D,length]. With `ahead` there are two sides: *ahead is that of the
 * second from a distance of 1 on, wide [D,length-1], for the future of ls_long_conv (NULL for a
 * length of 1); at distance 0 the result is the sum of both. */
ls_tensor *ls_ema_kernel(ls_program *p, const ls_ema *ema, int64_t length, ls_tensor **ahead);
/* The same recurrence from a state, wide [B,D,N], through which no gradient passes; x [B,T,D], one
 * side, skip a wide parameter [D] or NULL. */
ls_tensor *ls_ema_scan(ls_program *p, const ls_ema *ema, ls_tensor *x, ls_tensor *skip,
                       ls_tensor *before, ls_tensor **after);
/* Operations of one step of one channel. */
double ls_ema_kernel_flops(int64_t dims);
double ls_ema_scan_flops(int64_t dims);

/* ---- positions ---- */

/* Where a token stands, as a method wants to see it: a function of its true position. */
typedef enum {
    LS_MAP_IDENTITY, /* p */
    LS_MAP_CLAMP,    /* min(p, a) */
    LS_MAP_CONSTANT, /* a */
    LS_MAP_GROUP,    /* floor(p / a) + b */
    LS_MAP_SCALE,    /* p * a + b */
    LS_MAP_BLOCK,    /* p mod a + floor(p / a) * b: a step of b from block to block */
} ls_map_kind;
typedef struct ls_position_map {
    ls_map_kind kind;
    double a, b;
} ls_position_map;
double ls_position_map_at(ls_position_map map, int64_t position);
/* Refuses a map by which a sequence that begins later (ls_begins_differ) would see its own
 * distances otherwise. */
void ls_map_fits_begins(ls_program *p, ls_position_map map);

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
    LS_ROTATE_OWN,   /* the same, and where sequences begin anew each for itself by places counted
                        from   there: for who sees more of two rows than how far apart they are */
    LS_ROTATE_KEY,   /* with the key's factor, referred to its block */
    LS_ROTATE_QUERY, /* with the inverse one: all that is left to do where there is one block only
                      */
} ls_rotate_as;
/* Rotates x [B,T,H,K] at the mapped positions of its rows (for a cache: of the rows it holds). */
ls_tensor *ls_rotate(ls_program *p, ls_tensor *x, const ls_rotary *rotary, ls_position_map map,
                     ls_rotate_as as);

typedef enum { LS_SINUSOID_INTERLEAVED, LS_SINUSOID_FAIRSEQ, LS_SINUSOID_XL } ls_sinusoid_layout;
/* rows [T,D] for positions start..start+T-1 (relative = false; [B,T,D], counted from where each
 * sequence began, where ls_begins_differ), or [R,D] for distances 0..R-1. In the fairseq layout the
 * first position stands at 2, and the last column of an odd width is 0. */
ls_tensor *ls_sinusoid(ls_program *p, ls_sinusoid_layout layout, int64_t rows, int64_t width,
                       bool relative);
/* One element of such a table, for tests and `apply`. */
double ls_sinusoid_at(ls_sinusoid_layout layout, int64_t position, int64_t column, int64_t width);

/* Rows of a text as places of a grid, the last axis running fastest: every axis's place in [-1,1],
 * then sin(pi f x) of all axes, then cos(pi f x), with frequencies f from 1 to fastest/2 in even
 * steps (arXiv 2103.03206). */
enum { LS_FOURIER_AXES_MOST = 8 };
typedef struct ls_fourier {
    int axes;
    bool stretch; /* of one axis: a text longer than it spans [-1,1] all the same; else the first
                     axis goes on at the same steps */
    int64_t size[LS_FOURIER_AXES_MOST]; /* places of each axis */
    double fastest[LS_FOURIER_AXES_MOST];
    int64_t bands; /* frequencies of each axis */
} ls_fourier;
int64_t ls_fourier_width(const ls_fourier *fourier); /* axes (2 bands + 1) */
/* Column c of row t of a text that is not stretched. */
double ls_fourier_at(const ls_fourier *fourier, int64_t t, int64_t c);
/* [B,T,width]; a text is as long as its valid rows (u8 [B,T], NULL: T). No gradient. */
ls_tensor *ls_fourier_rows(ls_program *p, const ls_fourier *fourier, int64_t B, int64_t T,
                           ls_tensor *valid);

/* table[H,R] from weight[buckets,H]: table[h][r] = weight[bucket[r]][h]. */
ls_tensor *ls_bucket_table(ls_program *p, ls_tensor *weight, int64_t R, const int32_t *bucket);

/* Mega's rotary bias: the product of two learned vectors, rotated to two positions, which depends
 * on their distance alone. table[0][r] = Re sum_k A_k conj(B_k) e^{i (r - zero) theta_k}, wide
 * [1,R], with A_k = alpha[k] + i alpha[k + z/2], B_k likewise and theta_k = base^(-2k/z). alpha and
 * beta are wide parameters of z elements. */
ls_tensor *ls_rotary_table(ls_program *p, ls_tensor *alpha, ls_tensor *beta, double base, int64_t R,
                           int64_t zero);
/* Operations of one distance. */
double ls_rotary_table_flops(int64_t z);

/* ---- attention ---- */

enum { LS_SEGMENTS_MOST = 4 };

/* One set of keys that a query may see, and how it is scored. Position of query row i is n, of key
 * row j is m (true positions: a cache's extent, or start + row). Admitted are pairs with
 *   lo <= n - m <= hi,  key_first <= m < key_end,  valid[b][j] != 0,
 *   and with block > 0: 0 <= floor(n / block) - floor(m / block) <= 1, `alone` just 0,
 *   and with group > 0 (without dilation): m < floor(n / group), the groups that are complete,
 *   and with a list: the block of m is in the row of the block of n (of whole sequences, without
 *   bounds or dilation; times > 1 adds its logarithm to the score),
 *   or with span.block > 0: span.from <= m - floor(n / span.block) * span.step < span.to,
 *   and with dilation: (n - m) divisible by the head's dilation d, lo <= (n - m) / d <= hi.
 * Score: scale * q.k [with xPos decay] + bias of the distance between query and key coordinate. */
typedef struct ls_segment {
    ls_tensor *q;     /* [B,T,H,K] */
    ls_tensor *k, *v; /* [B,N,G,K], [B,N,G,V]: plain, or a cache from ls_cache_append */
    int64_t lo, hi;   /* LS_FAR for no bound */
    int64_t key_first, key_end;
    int64_t block, group;
    bool alone;
    const ls_block_rows *list; /* copied; or NULL */
    ls_span span;
    const int64_t *dilation;          /* [H] or NULL; copied */
    ls_tensor *valid;                 /* u8 [B,N] or NULL */
    ls_position_map query_at, key_at; /* coordinates whose difference the bias sees */
    ls_tensor *query_most; /* i32 [B] or NULL: no query's coordinate is above its sequence's */
    ls_tensor *slopes;     /* wide [H]: bias = -slope * distance (|distance| where bidirectional) */
    ls_tensor *table;      /* wide [H,R]: bias = table[clamp(distance + table_zero, 0, R - 1)] */
    int64_t table_zero;    /* column of distance 0 */
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

/* Attention without a softmax: the weight of a key is a function of its score alone. */
typedef enum {
    LS_WEIGHT_LAPLACE, /* (1 + erf((s - mean) / (deviation sqrt(2)))) / 2 */
    LS_WEIGHT_RELU2,   /* max(s, 0)^2 */
} ls_weight_kind;
typedef struct ls_weighting {
    ls_weight_kind kind;
    double mean, deviation; /* LAPLACE */
} ls_weighting;

/* y_n = sum_m f(s_nm) v_m over the admitted keys, s_nm = scale q_n . k_m / c_n + bias with c_n the
 * number of keys that n sees. The segment is as for ls_attention, with a table as its only bias,
 * and without dilation and coordinates of its own. Memory and gradients are those of ls_attention.
 */
ls_tensor *ls_pointwise_attention(ls_program *p, const ls_segment *segment, double scale,
                                  ls_weighting weighting);

/* How much of all heads' and queries' attention each key of segment 0 got: wide or narrow [B,N,H,V]
 * as its values, whose every element is the sum over queries of the softmax's weights. out and lse
 * are the attention's, of the same segments. No gradient. */
ls_tensor *ls_attention_received(ls_program *p, int segments, const ls_segment *segment,
                                 ls_attention_options options, ls_tensor *out, ls_tensor *lse);

/* A probe: scores as they go into the softmax of the same segments, added up by true distance n - m
 * over queries, sequences and segments. Returns f64 [2, H, distances], the sums and then the
 * numbers of pairs, of this run alone; pairs further apart (or later than the query) are not
 * counted. No gradient. */
ls_tensor *ls_score_profile(ls_program *p, int segments, const ls_segment *segment,
                            ls_attention_options options, int64_t distances);

#endif
