/* Rows of a batch in files, in the order of ours. */
#ifndef LS_COMPARE_STORED_ROWS_H
#define LS_COMPARE_STORED_ROWS_H

#include "model/safetensors.h"

/* Rows [B,T,D] of ours, which in the file may be transposed: [T,B,D]. */
typedef struct ls_rows_shape {
    int64_t B, T, D;
    bool transposed;
} ls_rows_shape;

/* A tensor's rows as doubles, in our order (free with ls_free). */
ls_status ls_stored_rows(ls_ctx *ctx, const ls_safetensor *tensor, ls_rows_shape shape,
                         double **out);
/* [a,b,width] -> [b,a,width]. */
void ls_exchange_axes(const double *from, int64_t a, int64_t b, int64_t width, double *to);

#endif
