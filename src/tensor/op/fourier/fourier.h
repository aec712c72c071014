#ifndef LS_TENSOR_OP_FOURIER_H
#define LS_TENSOR_OP_FOURIER_H

#include "tensor/engine/program.h"

/* Rows of a text as places of a grid, the last axis running fastest: every axis's place in [-1,1],
 * then sin(pi f x) of all axes, then cos(pi f x), with frequencies f from 1 to fastest/2 in even
 * steps (arXiv 2103.03206). */
enum { LS_FOURIER_AXES_MAX = 8 };
typedef struct ls_fourier {
    int axes;
    bool stretch; /* of one axis: a text longer than it spans [-1,1] all the same; else the first
                     axis goes on at the same steps */
    int64_t size[LS_FOURIER_AXES_MAX]; /* places of each axis */
    double fastest[LS_FOURIER_AXES_MAX];
    int64_t bands; /* frequencies of each axis */
} ls_fourier;
int64_t ls_fourier_width(const ls_fourier *fourier); /* axes (2 bands + 1) */
/* Column c of row t of a text that is not stretched. */
double ls_fourier_at(const ls_fourier *fourier, int64_t t, int64_t c);
/* [B,T,width]; a text is as long as its valid rows (u8 [B,T], NULL: T). No gradient. */
ls_tensor *ls_fourier_rows(ls_program *p, const ls_fourier *fourier, int64_t B, int64_t T,
                           ls_tensor *valid);

#endif
