/* Attention resolution (Sun et al. 2022, eq. 3), from the mean score before the softmax at each
 * distance, s[0..K-1]:
 *
 *   p = softmax(s),  R = sum_{k=0}^{K-2} p_k (p_k - p_{k+1}),  M = sum_{k=0}^{K-2} p_k [s_k >
 * s_{k+1}]
 *
 * R rises with oscillation too; M tells how much of the weight lies where the score falls, and O
 * how much of the curve no monotone one explains. */
#ifndef LS_EVAL_RESOLUTION_H
#define LS_EVAL_RESOLUTION_H

#include <signal.h>

#include "data/token_file.h"
#include "eval/protocol.h"
#include "model/model.h"

enum { LS_RESOLUTION_PAIRS_LEAST = 32, LS_RESOLUTION_POINTS_MAX = 64 };

/* R, M and O of a curve. */
typedef struct ls_resolution_value {
    double R, M, O;
} ls_resolution_value;
/* R and M of K >= 1 distances. */
ls_resolution_value ls_resolution_of(const double *s, int64_t K);

/* Oscillation: the share of the variance of s that is left by the best monotone curve, falling or
 * rising, all with the numbers of pairs as weights:
 *     O = min over monotone f of sum w_k (s_k - f_k)^2 / sum w_k (s_k - mean)^2
 * 0: s is monotone; 1: no monotone curve is nearer to it than its mean. By pooling of adjacent
 * violators; `room` has 2 K numbers. */
double ls_oscillation_of(const double *s, const double *pairs, int64_t K, double *room);

/* A curve of mean scores. The arrays are the caller's, with room for all distances. */
typedef struct ls_score_curve {
    int64_t K;
    int64_t *distance;
    double *s, *pairs;
} ls_score_curve;
/* Sums and numbers of scores by distance of `heads` heads, [heads][distances] each, to the curve of
 * their means: distances with fewer than `least` pairs in any of the heads are left out, the rest
 * move up. */
void ls_resolution_curve(const double *sum, const double *count, int64_t heads, int64_t distances,
                         double least, ls_score_curve *out);
/* At most LS_RESOLUTION_POINTS_MAX of K rising distances, the first and the last among them, whose
 * logarithms lie evenly: their indices. Returns how many. */
int64_t ls_resolution_thin(const int64_t *distance, int64_t K,
                           int64_t out[LS_RESOLUTION_POINTS_MAX]);

typedef struct ls_resolution {
    int64_t length;
    int64_t layers, heads;      /* layers that attend; heads of each */
    int64_t tokens, distances;  /* profiled; of the longest curve */
    double R_head, M_head;      /* means over layers and heads of each head's own curve */
    double R_layer, M_layer;    /* means over layers of the head-averaged curve */
    double O_head, O_layer;     /* the same of the oscillation */
    double O_expected;          /* of the curve that a rotation lets expect; NAN: there is none */
    ls_resolution_value *head;  /* [layers][heads] */
    ls_resolution_value *layer; /* [layers] */
    /* Head-averaged curves, less their values at the first distance, at the distances that all
     * layers have, thinned. */
    int64_t points;
    int64_t distance[LS_RESOLUTION_POINTS_MAX];
    double score[LS_RESOLUTION_POINTS_MAX];    /* the mean over layers */
    double expected[LS_RESOLUTION_POINTS_MAX]; /* ls_rotary_expected, over layers that rotate */
    double *layer_score;                       /* [layers][points] */
    double seconds;
} ls_resolution;

typedef struct ls_resolution_request {
    int64_t length, chunk;
    int64_t tokens; /* to profile, about: whole windows, at least one */
    const volatile sig_atomic_t *stop;
} ls_resolution_request;

/* Profiles a model over whole windows of one length, taken evenly from those of `selection`.
 * LS_EUSE where the model has no attention. Clear *out in any case. */
ls_status ls_resolution_measure(ls_model *model, const ls_token_file *file,
                                const ls_selection *selection, const ls_resolution_request *request,
                                ls_resolution *out);
void ls_resolution_clear(ls_ctx *ctx, ls_resolution *resolution);

#endif
