/* Fourier features, computed in f64 and narrowed. Texts that span the same have the same rows. */
#include "tensor/op/fourier/fourier.h"

/* Places that the text with these marks (NULL: none is padding) spans. */
static int64_t spanned(const ls_fourier *fourier, const uint8_t *valid, int64_t T) {
    int64_t rows = 0;
    if (!fourier->stretch) return fourier->size[0];
    for (int64_t t = 0; t < T; t++) rows += valid == NULL || valid[t] != 0;
    return ls_max(fourier->size[0], rows);
}

static void put(const ls_tensor *y, int64_t at, double value) {
    if (y->type == LS_F64)
        ((double *)ls_data(y))[at] = value;
    else if (y->type == LS_F32)
        ((float *)ls_data(y))[at] = (float)value;
    else
        ((ls_bf16 *)ls_data(y))[at] = ls_bf16_from_f32((float)value);
}

static void fourier(const ls_run *run, const ls_node *node) {
    const ls_tensor *y = node->out[0];
    const uint8_t *valid = node->in[0] == NULL ? NULL : ls_data(node->in[0]);
    const int64_t T = y->dim[1], F = y->dim[2];
    const size_t bytes = (size_t)(T * F) * ls_dtype_size(y->type);
    ls_fourier grid = *(const ls_fourier *)node->attributes;
    const int64_t given = grid.size[0];
    int64_t made = 0, source = 0; /* what `source` spans */
    for (int64_t b = 0; b < y->dim[0]; b++) {
        grid.size[0] = given;
        grid.size[0] = spanned(&grid, valid == NULL ? NULL : valid + b * T, T);
        char *rows = (char *)ls_data(y) + (size_t)b * bytes;
        if (grid.size[0] == made) {
            memcpy(rows, (const char *)ls_data(y) + (size_t)source * bytes, bytes);
            continue;
        }
        made = grid.size[0], source = b;
#pragma omp parallel for schedule(static) num_threads(run->threads)
        for (int64_t t = 0; t < T; t++)
            for (int64_t c = 0; c < F; c++) put(y, (b * T + t) * F + c, ls_fourier_at(&grid, t, c));
    }
}

extern const ls_kernel LS_CPU_TABLE(fourier)[];
const ls_kernel LS_CPU_TABLE(fourier)[] = {
    {"fourier", {fourier, fourier, fourier}, NULL},
    {0},
};
