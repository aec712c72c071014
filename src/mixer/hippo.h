/* Initial spectra of state spaces, mode by mode. */
#ifndef LS_MIXER_HIPPO_H
#define LS_MIXER_HIPPO_H

#include <complex.h>
#include <stdint.h>

typedef enum {
    LS_SPECTRUM_LEGS,
    LS_SPECTRUM_INV,
    LS_SPECTRUM_LIN,
    LS_SPECTRUM_QUAD,
    LS_SPECTRUM_REAL,
    LS_SPECTRUM_DIAG, /* INV for half of the copies, LIN for the others */
    LS_SPECTRUM_FOUT,
    LS_SPECTRUM_HIPPO, /* LEGS for half of the copies, FOUT for the others */
    LS_SPECTRUM_LEGT
} ls_spectrum;
enum { LS_SPECTRUM_LEGT_MAX = 1024 }; /* states that LEGT can have */

/* Mode n of N/2 of a state of N (even), in the order of the published code: the sizes of the
 * imaginary and the real part of its pole, its input, a positive number, and its part of each row
 * of the low rank that is taken away: 0 but for LEGS, FOUT and LEGT, which needs two rows. */
double ls_spectrum_frequency(ls_spectrum kind, int64_t N, int64_t n);
double ls_spectrum_decay(ls_spectrum kind, int64_t n);
double ls_spectrum_input(ls_spectrum kind, int64_t N, int64_t n);
int64_t ls_spectrum_ranks(ls_spectrum kind);
double complex ls_spectrum_rank(ls_spectrum kind, int64_t N, int64_t n, int64_t row);

#endif
