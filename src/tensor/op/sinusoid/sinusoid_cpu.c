/* Sinusoidal tables, computed in f64 and narrowed. */
#include <math.h>

#include "tensor/op/sinusoid/sinusoid.h"

#define SAME(value) (value)
#define DEFINE_SINUSOID(name, STORED, STORE)                                                       \
    static void name(const ls_run *run, const ls_node *node) {                                     \
        const ls_sinusoid_attributes *at = node->attributes;                                       \
        const ls_tensor *y = node->out[0];                                                         \
        const int32_t *begins = node->in[0] == NULL ? NULL : ls_data(node->in[0]);                 \
        int64_t T = y->dim[y->rank - 2], width = y->dim[y->rank - 1];                              \
        int64_t rows = ls_count(y) / width, first = at->relative ? 0 : run->start;                 \
        STORED *out = ls_data(y);                                                                  \
        _Pragma(                                                                                   \
            "omp parallel for num_threads(run->threads) schedule(static)") for (int64_t column =   \
                                                                                    0;             \
                                                                                column < width;    \
                                                                                column++) {        \
            ls_sinusoid_column c = ls_sinusoid_column_of(at->layout, column, width);               \
            for (int64_t t = 0; t < rows; t++) {                                                   \
                int64_t place = first + t % T - (begins == NULL ? 0 : begins[t / T]);              \
                double angle = (double)(place + c.shift) * c.frequency;                            \
                out[t * width + column] = STORE(c.cosine ? cos(angle) : sin(angle));               \
            }                                                                                      \
        }                                                                                          \
    }
#define TO_F32(value) ((float)(value))
#define TO_BF16(value) ls_bf16_from_f32((float)(value))

DEFINE_SINUSOID(sinusoid_f64, double, SAME)
DEFINE_SINUSOID(sinusoid_f32, float, TO_F32)
DEFINE_SINUSOID(sinusoid_bf16, ls_bf16, TO_BF16)

extern const ls_kernel LS_CPU_TABLE(sinusoid)[];
const ls_kernel LS_CPU_TABLE(sinusoid)[] = {
    {"sinusoid", LS_KERNEL_BY_TYPE(sinusoid), NULL},
    {0},
};
