/* Rows of scores, in the wide type, for the kernels of landmark attention. */
#ifndef LS_TENSOR_OP_LANDMARK_ROWS_CPU_H
#define LS_TENSOR_OP_LANDMARK_ROWS_CPU_H

#include <math.h>

#include "tensor/cpu/vector.h"

static inline double ls_row_largest(ls_dtype wide, const void *row, int64_t n) {
    double most = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        const double x =
            wide == LS_F64 ? ((const double *)row)[j] : (double)((const float *)row)[j];
        most = x > most ? x : most;
    }
    return most;
}

/* row = exp(scale row - shift), and the sum of that */
static inline double ls_row_exponentials(ls_dtype wide, void *row, int64_t n, double scale,
                                         double shift) {
    double sum = 0;
    if (wide == LS_F64) {
        double *x = row;
        for (int64_t j = 0; j < n; j++) sum += x[j] = exp(scale * x[j] - shift);
        return sum;
    }
    const ls_vec by = ls_vec_all((float)scale), less = ls_vec_all((float)shift);
    ls_vec sums = ls_vec_all(0);
    for (int64_t j = 0; j < n; j += LS_LANES) {
        const ls_vec e = ls_vec_exp(ls_load_left(row, LS_F32, j, n - j) * by - less);
        ls_store_left(row, LS_F32, j, n - j, e);
        if (n - j >= LS_LANES)
            sums += e;
        else
            for (int64_t i = j; i < n; i++) sum += (double)((const float *)row)[i];
    }
    return sum + (double)ls_vec_sum(sums);
}

#endif
