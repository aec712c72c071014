#include "tensor/cpu/vector.h"
#include "tensor/op/embed/embed.h"

static void embed(const ls_run *run, const ls_node *node) {
    const int32_t *ids = ls_data(node->in[0]);
    const ls_tensor *table = node->in[1];
    int64_t rows = ls_count(node->in[0]), width = table->dim[1];
    size_t size = ls_dtype_size(table->type);
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t row = 0; row < rows; row++) {
        char *out = (char *)ls_data(node->out[0]) + (size_t)(row * width) * size;
        if (ids[row] < 0)
            memset(out, 0, (size_t)width * size);
        else
            memcpy(out, (const char *)ls_data(table) + (size_t)(ids[row] * width) * size,
                   (size_t)width * size);
    }
}

/* A piece of columns belongs to one thread, which walks the tokens in order. */
static void embed_grad(const ls_run *run, const ls_node *node) {
    enum { PIECE = 64 };
    const int32_t *ids = ls_data(node->in[1]);
    const void *dy = ls_data(node->in[0]);
    int64_t rows, width, stride;
    ls_rows(node->in[0], &rows, &width, &stride);
    void *gradient = ls_param_gradient(run, node->in[2]);
    ls_dtype type = node->in[0]->type;
#pragma omp parallel for schedule(static) num_threads(run->threads)
    for (int64_t first = 0; first < width; first += PIECE) {
        int64_t end = ls_min(width, first + PIECE);
        for (int64_t row = 0; row < rows; row++) {
            if (ids[row] < 0) continue;
            int64_t to = ids[row] * width, at = row * stride;
            for (int64_t i = first; i < end; i++) {
                if (type == LS_F64)
                    ((double *)gradient)[to + i] += ((const double *)dy)[at + i];
                else
                    ((float *)gradient)[to + i] += ls_load_one(dy, type, at + i);
            }
        }
    }
}

static void last_row(const ls_run *run, const ls_node *node) {
    (void)run;
    const ls_tensor *x = node->in[0], *y = node->out[0];
    size_t size = ls_dtype_size(x->type);
    for (int64_t b = 0; b < x->dim[0]; b++)
        memcpy((char *)ls_data(y) + (size_t)(b * x->dim[2]) * size,
               (const char *)ls_data(x) +
                   (size_t)(b * x->stride[0] + (x->dim[1] - 1) * x->stride[1]) * size,
               (size_t)x->dim[2] * size);
}

const ls_kernel LS_CPU_TABLE(embed)[] = {
    {"embed", {embed, embed, embed}, NULL},
    {"embed_grad", {embed_grad, embed_grad, embed_grad}, NULL},
    {"last_row", {last_row, last_row, last_row}, NULL},
    {0},
};
