/* Places of rows in [-1,1], with sines and cosines of them (arXiv 2103.03206 section 3.2). */
#include <math.h>

#include "tensor/op/fourier/fourier.h"

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
    if (c < fourier->axes) return place(fourier, t, (int)c);
    c -= fourier->axes;
    const int64_t each = fourier->axes * fourier->bands, band = c % fourier->bands;
    const int axis = (int)(c % each / fourier->bands);
    const double frequency = even_step(1, fourier->fastest[axis] / 2, fourier->bands, band);
    const double angle = acos(-1) * frequency * place(fourier, t, axis);
    return c < each ? sin(angle) : cos(angle);
}

static double flops(const ls_node *node) {
    (void)node; /* like any table: what they take is not counted as work */
    return 0;
}
static const ls_op fourier_op = {.name = "fourier", .flops = flops};

ls_tensor *ls_fourier_rows(ls_program *p, const ls_fourier *fourier, int64_t B, int64_t T,
                           ls_tensor *valid) {
    if (ls_failed(p)) return NULL;
    bool fits = fourier->axes >= 1 && fourier->axes <= LS_FOURIER_AXES_MAX && fourier->bands >= 1;
    for (int i = 0; fits && i < fourier->axes; i++) fits = fourier->size[i] >= 1;
    if (!fits || (valid != NULL && (valid->type != LS_U8 || ls_count(valid) != B * T))) {
        ls_refuse(p, LS_EBUG, "fourier: axes of at least one place, and a mark for each row");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(B, T, ls_fourier_width(fourier)));
    if (y == NULL) return NULL;
    ls_record(p, &fourier_op, fourier, sizeof *fourier, 1, &valid, 1, &y);
    return y;
}
