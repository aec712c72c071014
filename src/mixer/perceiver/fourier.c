#include "mixer/perceiver/fourier.h"

#include <math.h>

int64_t ls_fourier_width(const ls_fourier *fourier) {
    return fourier->axes * (2 * fourier->bands + 1);
}

/* Step i of `count` even ones from `first` to `last`; a single one is the first. */
static double even_step(double first, double last, int64_t count, int64_t i) {
    return count < 2 ? first : first + (last - first) * (double)i / (double)(count - 1);
}

static double place(const ls_fourier *fourier, int64_t t, int axis) {
    int64_t inner = 1;
    for (int i = axis + 1; i < fourier->axes; i++) inner *= fourier->size[i];
    const int64_t at = axis == 0 ? t / inner : t / inner % fourier->size[axis];
    return even_step(-1, 1, fourier->size[axis], at);
}

double ls_fourier_at(const ls_fourier *fourier, int64_t t, int64_t c) {
    const double pi = acos(-1);
    if (c < fourier->axes) return place(fourier, t, (int)c);
    c -= fourier->axes;
    const int64_t each = fourier->axes * fourier->bands;
    const int axis = (int)(c % each / fourier->bands);
    const double turn =
        pi * place(fourier, t, axis) *
        even_step(1, fourier->fastest[axis] / 2, fourier->bands, c % fourier->bands);
    return c < each ? sin(turn) : cos(turn);
}

ls_tensor *ls_fourier_rows(ls_program *p, const ls_fourier *fourier, int64_t T) {
    ls_ctx *ctx = ls_program_ctx(p);
    const int64_t F = ls_fourier_width(fourier);
    double *values = ls_new(ctx, (size_t)(T * F), sizeof *values);
    if (values == NULL) {
        ls_refuse(p, LS_ENOMEM, "no memory for %lld features of %lld rows", (long long)F,
                  (long long)T);
        return NULL;
    }
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < F; c++) values[t * F + c] = ls_fourier_at(fourier, t, c);
    ls_tensor *rows = ls_constant(p, ls_type(p), LS_DIMS(T, F), values);
    ls_free(ctx, values);
    return rows;
}
