/* y[t] = table[min(start + t + offset, R - 1)], and its gradient, which is added to the
 * parameter's. */
#include "tensor/op/position_rows/position_rows.h"

static int64_t row_at(const ls_run *run, const ls_node *node, const ls_tensor *table, int64_t t) {
    int64_t position = run->start + t + ls_position_rows_offset(node), last = table->dim[0] - 1;
    return position < last ? position : last;
}

/* Table and rows have the program's compute type: whole rows are copied. */
static void position_rows(const ls_run *run, const ls_node *node) {
    const ls_tensor *table = node->in[0], *y = node->out[0];
    size_t bytes = (size_t)y->dim[1] * ls_dtype_size(y->type);
    for (int64_t t = 0; t < y->dim[0]; t++)
        memcpy((char *)ls_data(y) + (size_t)t * bytes,
               (const char *)ls_data(table) + (size_t)row_at(run, node, table, t) * bytes, bytes);
}

#define SAME(value) (value)
#define DEFINE_GRAD(name, STORED, WIDE, LOAD)                                                      \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        const ls_tensor *dy = node->in[0], *table = node->in[1];                                   \
        WIDE *gradient = ls_param_gradient(run, table);                                            \
        for (int64_t t = 0; t < dy->dim[0]; t++) {                                                 \
            const STORED *from = (const STORED *)ls_data(dy) + t * dy->stride[0];                  \
            WIDE *to = gradient + row_at(run, node, table, t) * table->dim[1];                     \
            for (int64_t i = 0; i < dy->dim[1]; i++) to[i] += LOAD(from[i]);                       \
        }                                                                                          \
    }
DEFINE_GRAD(grad_f64, double, double, SAME)
DEFINE_GRAD(grad_f32, float, float, SAME)
DEFINE_GRAD(grad_bf16, ls_bf16, float, ls_bf16_to_f32)

extern const ls_kernel LS_CPU_TABLE(position_rows)[];
const ls_kernel LS_CPU_TABLE(position_rows)[] = {
    {"position_rows", {position_rows, position_rows, position_rows}, NULL},
    {"position_rows_grad", LS_KERNEL_BY_TYPE(grad), NULL},
    {0},
};
