#ifndef LS_TENSOR_OP_FEATURES_H
#define LS_TENSOR_OP_FEATURES_H

#include "tensor/engine/program.h"

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

/* ---- for the kernels ---- */

enum { LS_FEATURES_X, LS_FEATURES_DIRECTIONS, LS_FEATURES_VALID, LS_FEATURES_IN };
/* of the gradient, after the same operands: */
enum { LS_FEATURES_DY = LS_FEATURES_IN, LS_FEATURES_GRAD_IN };

/* Exponents above this count as this: a text of a million such features still adds up in f32. */
#define LS_FEATURES_MAX 64.0

#endif
