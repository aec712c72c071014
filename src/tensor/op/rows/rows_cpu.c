/* Chosen rows, moved as bytes: one kernel for every type. */
#include <string.h>

#include "tensor/op/rows/rows.h"

static void take(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    const int32_t *at = ls_data(node->in[1]);
    for (int64_t b = 0; b < y->dim[0]; b++)
        for (int64_t i = 0; i < y->dim[1]; i++)
            memcpy(ls_row_at(y, b, i), ls_row_at(x, b, at[i]), ls_row_bytes(y));
}

static void put(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *rows = node->in[1], *y = node->out[0];
    const int32_t *at = ls_data(node->in[2]);
    const int64_t B = y->dim[0], T = y->dim[1], count = node->in[2]->dim[0];
    const size_t bytes = ls_row_bytes(y);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < B * T; row++) {
        char *to = ls_row_at(y, row / T, row % T);
        if (x == NULL)
            memset(to, 0, bytes);
        else
            memcpy(to, ls_row_at(x, row / T, row % T), bytes);
    }
    for (int64_t b = 0; b < B; b++)
        for (int64_t i = 0; i < count; i++) {
            if (rows == NULL)
                memset(ls_row_at(y, b, at[i]), 0, bytes);
            else
                memcpy(ls_row_at(y, b, at[i]), ls_row_at(rows, b, i), bytes);
        }
}

extern const ls_kernel LS_CPU_TABLE(rows)[];
const ls_kernel LS_CPU_TABLE(rows)[] = {
    {"take_rows", {take, take, take}, NULL},
    {"put_rows", {put, put, put}, NULL},
    {0},
};
