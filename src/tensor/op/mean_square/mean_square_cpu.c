/* The mean of squared differences. Sums of rows are added up in the order of the rows, so that the
 * number of threads changes nothing. */
#include "tensor/cpu/vector.h"
#include "tensor/op/mean_square/mean_square.h"

typedef struct pair_of_rows {
    const ls_tensor *a, *b;
    int64_t rows, width, a_stride, b_stride;
    int64_t step, held; /* of every `step` rows the first `held` count */
} pair_of_rows;

static pair_of_rows rows_of(const ls_run *run, const ls_tensor *a, const ls_tensor *b) {
    pair_of_rows x = {.a = a, .b = b};
    ls_rows(a, &x.rows, &x.width, &x.a_stride);
    ls_rows(b, &x.rows, &x.width, &x.b_stride);
    x.step = x.held = x.rows;
    if (a->port >= 0 && a->rank > 2) {
        x.step = x.rows / a->dim[0];
        x.held = x.step / a->dim[1] * ls_cache_extent(run, a).count;
    }
    return x;
}

static double count_of(const pair_of_rows *x) {
    return (double)(x->rows / x->step * x->held) * (double)x->width;
}

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)(ls_count(node->in[0]) / node->in[0]->dim[node->in[0]->rank - 1]) *
           sizeof(double);
}

static void mean_square(const ls_run *run, const ls_node *node) {
    const pair_of_rows x = rows_of(run, node->in[0], node->in[1]);
    double *sums = run->workspace, sum = 0;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < x.rows; row++) {
        sums[row] = 0;
        for (int64_t i = 0; row % x.step < x.held && i < x.width; i++) {
            double apart =
                ls_tensor_at(x.a, row * x.a_stride + i) - ls_tensor_at(x.b, row * x.b_stride + i);
            sums[row] += apart * apart;
        }
    }
    for (int64_t row = 0; row < x.rows; row++) sum += sums[row];
    ls_tensor_set(node->out[0], 0, x.held > 0 ? sum / count_of(&x) : 0);
}

static void mean_square_grad(const ls_run *run, const ls_node *node) {
    const pair_of_rows x = rows_of(run, node->in[1], node->in[2]);
    const double by = x.held > 0 ? 2 * ls_tensor_at(node->in[0], 0) / count_of(&x) : 0;
    for (int side = 0; side < 2; side++) {
        const ls_tensor *d = node->out[side];
        int64_t rows, width, stride;
        if (d == NULL) continue;
        ls_rows(d, &rows, &width, &stride);
#pragma omp parallel for schedule(static) num_threads(run->threads)
        for (int64_t row = 0; row < rows; row++)
            for (int64_t i = 0; i < width; i++) {
                double apart = 0;
                if (row % x.step < x.held)
                    apart = ls_tensor_at(x.a, row * x.a_stride + i) -
                            ls_tensor_at(x.b, row * x.b_stride + i);
                ls_tensor_set(d, row * stride + i, side == 0 ? by * apart : -by * apart);
            }
    }
}

const ls_kernel LS_CPU_TABLE(mean_square)[] = {
    {"mean_square", {mean_square, mean_square, mean_square}, workspace},
    {"mean_square_grad", {mean_square_grad, mean_square_grad, mean_square_grad}, NULL},
    {0},
};
