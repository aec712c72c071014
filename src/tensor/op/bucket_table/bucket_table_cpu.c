/* table[h][r] = weight[bucket[r]][h], and its gradient. Both are small: one thread, fixed order. */
#include "tensor/op/bucket_table/bucket_table.h"

#define SAME(value) (value)
#define DEFINE_TABLE(name, STORED, WIDE, LOAD)                                                     \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        (void)run;                                                                                 \
        const ls_tensor *table = node->out[0];                                                     \
        int64_t heads = table->dim[0], R = table->dim[1];                                          \
        const STORED *weight = ls_data(node->in[0]);                                               \
        const int32_t *bucket = ls_data(node->in[1]);                                              \
        WIDE *out = ls_data(table);                                                                \
        for (int64_t h = 0; h < heads; h++)                                                        \
            for (int64_t r = 0; r < R; r++) out[h * R + r] = LOAD(weight[bucket[r] * heads + h]);  \
    }
DEFINE_TABLE(table_f64, double, double, SAME)
DEFINE_TABLE(table_f32, float, float, SAME)
DEFINE_TABLE(table_of_bf16, ls_bf16, float, ls_bf16_to_f32)

/* A bf16 program keeps parameters marked `full` in f32. */
static void table_bf16(const ls_run *run, const ls_node *node) {
    (node->in[0]->type == LS_BF16 ? table_of_bf16 : table_f32)(run, node);
}

#define DEFINE_GRAD(name, WIDE)                                                                    \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        (void)run;                                                                                 \
        const ls_tensor *dtable = node->in[0], *dweight = node->out[0];                            \
        int64_t heads = dtable->dim[0], R = dtable->dim[1], row = dtable->stride[0];               \
        const WIDE *from = ls_data(dtable);                                                        \
        const int32_t *bucket = ls_data(node->in[1]);                                              \
        WIDE *to = ls_data(dweight);                                                               \
        memset(to, 0, (size_t)ls_count(dweight) * sizeof *to);                                     \
        for (int64_t h = 0; h < heads; h++)                                                        \
            for (int64_t r = 0; r < R; r++) to[bucket[r] * heads + h] += from[h * row + r];        \
    }
DEFINE_GRAD(grad_f64, double)
DEFINE_GRAD(grad_f32, float)

extern const ls_kernel LS_CPU_TABLE(bucket_table)[];
const ls_kernel LS_CPU_TABLE(bucket_table)[] = {
    {"bucket_table", LS_KERNEL_BY_TYPE(table), NULL},
    {"bucket_table_grad", {grad_f64, grad_f32, grad_f32}, NULL},
    {0},
};
