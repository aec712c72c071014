/* HiPPO's matrices, and what they are in the modes of their normal part. */
#ifndef LS_MIXER_HIPPO_MATRIX_H
#define LS_MIXER_HIPPO_MATRIX_H

#include <complex.h>

#include "base/memory.h"

typedef enum {
    LS_MEASURE_LEGS, /* Legendre polynomials, scaled: all of the past */
    LS_MEASURE_LEGT, /* Legendre polynomials on a window */
    LS_MEASURE_FOUT, /* Fourier series on a window */
} ls_measure;
int ls_measure_rank(ls_measure measure);

/* x' = A x + B u with a state of N numbers: A [N,N], B [N]. */
void ls_hippo_matrix(ls_measure measure, int64_t N, double *A, double *B);
/* P [rank,N], for which A + P^T P is a number on the diagonal plus a skew-symmetric matrix. */
void ls_hippo_rank(ls_measure measure, int64_t N, double *P);

/* Eigenvectors v of a skew-symmetric K [N,N], N even, one of each conjugate pair: K v = i w v with
 * w <= 0, ascending; w [N/2], v of length 1, the rows of V [N/2,N]. At most one pair may be 0. */
ls_status ls_skew_modes(ls_ctx *ctx, int64_t N, const double *K, double *w, double complex *V);

/* A and B in those modes: A is diag(decay + i w) - P^H P there, and in their conjugates. B [N/2],
 * P [rank,N/2]. A mode's phase is arbitrary, the same in B and P. */
typedef struct ls_hippo_modes {
    int64_t count;
    double decay, *w;
    double complex *B, *P;
} ls_hippo_modes;
/* N even; release with ls_hippo_modes_clear in any case. */
ls_status ls_hippo_modes_find(ls_ctx *ctx, ls_measure measure, int64_t N, ls_hippo_modes *out);
void ls_hippo_modes_clear(ls_ctx *ctx, ls_hippo_modes *modes);

#endif
