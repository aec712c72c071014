#include "tensor/op/head_pairs/head_pairs.h"

#include "base/memory.h"
#include "tensor/cpu/vector.h"

/* A vector of every head in rows of one stride. */
typedef struct vectors {
    void *data;
    int64_t stride, head, element; /* strides of rows, heads and elements */
} vectors;

static vectors vectors_of(const ls_tensor *x, int64_t heads, bool interleaved) {
    vectors v = {.data = ls_data(x)};
    int64_t rows, width;
    ls_rows(x, &rows, &width, &v.stride);
    v.head = interleaved ? 1 : width / heads;
    v.element = interleaved ? heads : 1;
    return v;
}

LS_INLINE void outer_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_head_pairs_attributes *about = node->attributes;
    const ls_tensor *a = node->in[0], *s = node->out[0];
    const int64_t T = a->dim[1], H = about->heads, W = a->dim[2] / H;
    const vectors x = vectors_of(a, H, about->interleaved[0]);
    const vectors z = vectors_of(node->in[1], H, about->interleaved[1]);
    int64_t rows, width, stride;
    void *pairs = ls_data(s);
    ls_rows(s, &rows, &width, &stride);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) { /* of ((b, i, j), t) */
        const int64_t pair = row / T, i = pair / W % W, j = pair % W;
        const int64_t from = pair / (W * W) * T + row % T;
        for (int64_t h = 0; h < H; h++)
            ls_element_set(
                pairs, type, row * stride + h,
                ls_element(x.data, type, from * x.stride + h * x.head + i * x.element) *
                    ls_element(z.data, type, from * z.stride + h * z.head + j * z.element));
    }
}

LS_INLINE void contract_typed(const ls_run *run, const ls_node *node, ls_dtype type) {
    const ls_head_pairs_attributes *about = node->attributes;
    const ls_tensor *a = node->in[0], *s = node->in[1];
    const int64_t T = a->dim[1], H = about->heads, W = a->dim[2] / H;
    const int over = about->over_second;
    const vectors x = vectors_of(a, H, about->interleaved[over]);
    const vectors y = vectors_of(node->out[0], H, about->interleaved[1 - over]);
    int64_t rows, width, stride;
    const void *pairs = ls_data(s);
    ls_rows(s, &rows, &width, &stride);
#pragma omp parallel for collapse(2) schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < a->dim[0] * T; row++)
        for (int64_t kept = 0; kept < W; kept++)
            for (int64_t first = 0; first < H; first += LS_LANES) {
                const int64_t count = ls_min(LS_LANES, H - first);
                double sum[LS_LANES] = {0};
                for (int64_t gone = 0; gone < W; gone++) {
                    const int64_t pair = over ? kept * W + gone : gone * W + kept;
                    const int64_t from = (row / T * W * W + pair) * T + row % T;
                    const int64_t at = row * x.stride + first * x.head + gone * x.element;
                    for (int64_t h = 0; h < count; h++)
                        sum[h] += ls_element(x.data, type, at + h * x.head) *
                                  ls_element(pairs, type, from * stride + first + h);
                }
                const int64_t to = row * y.stride + first * y.head + kept * y.element;
                for (int64_t h = 0; h < count; h++)
                    ls_element_set(y.data, type, to + h * y.head, sum[h]);
            }
}

LS_KERNEL_ALL(outer)
LS_KERNEL_ALL(contract)

const ls_kernel LS_CPU_TABLE(head_pairs)[] = {
    {"head_outer", LS_KERNEL_BY_TYPE(outer), NULL},
    {"head_contract", LS_KERNEL_BY_TYPE(contract), NULL},
    {0},
};
