/* Attention resolution (Sun et al. 2022, eq. 3), from the mean score before the softmax at each
 * distance, s[0..K-1]:
 *
 *   p = softmax(s),  R = sum_{k=0}^{K-2} p_k (p_k - p_{k+1}),  M = sum_{k=0}^{K-2} p_k [s_k >
 * s_{k+1}]
 *
 * R rises with oscillation too; M tells how much of the weight lies where the score falls. */
#ifndef LS_EVAL_RESOLUTION_H
#define LS_EVAL_RESOLUTION_H

#include <signal.h>

#include "data/token_file.h"
#include "eval/protocol.h"
#include "model/model.h"

enum { LS_RESOLUTION_PAIRS_LEAST = 32 };

/* R and M of a curve of K >= 1 distances. */
typedef struct ls_resolution_value {
    double R, M;
} ls_resolution_value;
ls_resolution_value ls_resolution_of(const double *s, int64_t K);

/* Sums and numbers of scores by distance of `heads` heads, [heads][distances] each, to the curve of
 * their means: distances with fewer than `least` pairs in any of the heads are left out, the rest
 * move up. Returns K; `s` has room for `distances`. */
int64_t ls_resolution_curve(const double *sum, const double *count, int64_t heads,
                            int64_t distances, double least, double *s);

typedef struct ls_resolution {
    int64_t length;
    int64_t layers, heads;      /* layers that attend; heads of each */
    int64_t tokens, distances;  /* profiled; of the longest curve */
    double R_head, M_head;      /* means over layers and heads of each head's own curve */
    double R_layer, M_layer;    /* means over layers of the head-averaged curve */
    ls_resolution_value *head;  /* [layers][heads] */
    ls_resolution_value *layer; /* [layers] */
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
