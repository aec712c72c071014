/* Initial spectra of state spaces. */
#ifndef LS_MIXER_HIPPO_H
#define LS_MIXER_HIPPO_H

#include <stdint.h>

typedef enum {
    LS_SPECTRUM_LEGS,
    LS_SPECTRUM_INV,
    LS_SPECTRUM_LIN,
    LS_SPECTRUM_QUAD,
    LS_SPECTRUM_REAL,
    LS_SPECTRUM_DIAG /* INV for half of the copies, LIN for the others */
} ls_spectrum;

/* Mode n of N/2 of a state of N (even), in the order of the published code: the sizes of the
 * imaginary and the real part of its pole, and its input, a positive number. */
double ls_spectrum_frequency(ls_spectrum kind, int64_t N, int64_t n);
double ls_spectrum_decay(ls_spectrum kind, int64_t n);
double ls_spectrum_input(ls_spectrum kind, int64_t N, int64_t n);

#endif
