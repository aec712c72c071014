#include "compare/stored_rows.h"

#include <string.h>

ls_status ls_stored_rows(ls_ctx *ctx, const ls_safetensor *tensor, ls_rows_shape shape,
                         double **out) {
    LS_TRY(ls_safetensor_values(ctx, tensor, out));
    if (!shape.transposed) return LS_OK;
    double *values = ls_new(ctx, (size_t)ls_max(tensor->count, 1), sizeof *values);
    if (values != NULL) ls_exchange_axes(*out, shape.T, shape.B, shape.D, values);
    ls_free(ctx, *out);
    *out = values;
    return values == NULL ? LS_ENOMEM : LS_OK;
}

void ls_exchange_axes(const double *from, int64_t a, int64_t b, int64_t width, double *to) {
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            memcpy(to + (j * a + i) * width, from + (i * b + j) * width,
                   (size_t)width * sizeof *to);
}
