/* Positions as sines and cosines of a place in [-1,1] (arXiv 2103.03206 section 3.2). */
#ifndef LS_MIXER_PERCEIVER_FOURIER_H
#define LS_MIXER_PERCEIVER_FOURIER_H

#include "mixer/mixer.h"

enum { LS_FOURIER_AXES_MOST = 8 };
/* Rows of a text as places of a grid, row after row: the last axis runs fastest. */
typedef struct ls_fourier {
    int axes;
    int64_t size[LS_FOURIER_AXES_MOST];   /* places of each axis, which span [-1,1] */
    double fastest[LS_FOURIER_AXES_MOST]; /* mu: frequencies go from 1 to mu/2 in even steps */
    int64_t bands;                        /* K of them */
} ls_fourier;

/* axes (2 bands + 1): every axis's place, then all sines axis by axis, then all cosines. */
int64_t ls_fourier_width(const ls_fourier *fourier);
/* Column c of row t. Beyond the grid's end the first axis goes on at the same steps. */
double ls_fourier_at(const ls_fourier *fourier, int64_t t, int64_t c);
/* The first T rows, [T,width] in the program's type; a constant. */
ls_tensor *ls_fourier_rows(ls_program *p, const ls_fourier *fourier, int64_t T);

#endif
