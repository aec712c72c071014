/* y = v at the start of a sequence, x after it; few rows, so any type goes one way. */
#include "tensor/cpu/vector.h"
#include "tensor/engine/program_internal.h"

/* Whether a sequence begins with this run. */
static bool begins(const ls_run *run, const ls_tensor *where, int64_t sequence) {
    return run->start == (where == NULL ? 0 : ((const int32_t *)ls_data(where))[sequence]);
}

static void begin_with(const ls_run *run, const ls_node *node) {
    const ls_tensor *x = node->in[0], *v = node->in[1], *y = node->out[0];
    int64_t each = ls_count(v), count = ls_count(y);
    for (int64_t i = 0; i < count; i++)
        ls_tensor_set(y, i,
                      begins(run, node->in[2], i / each) ? ls_tensor_at(v, i % each)
                                                         : ls_tensor_at(x, i));
}

static void begin_with_grad(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dv = node->out[0];
    int64_t each = ls_count(dv), count = ls_count(dy);
    for (int64_t i = 0; i < each; i++) {
        double sum = 0;
        for (int64_t j = i; j < count; j += each)
            if (begins(run, node->in[1], j / each)) sum += ls_tensor_at(dy, j);
        ls_tensor_set(dv, i, sum);
    }
}

static void begin_with_grad_x(const ls_run *run, const ls_node *node) {
    const ls_tensor *dy = node->in[0], *dx = node->out[0];
    const int64_t each = ls_count(dx) / dx->dim[0];
    for (int64_t i = 0; i < ls_count(dx); i++)
        ls_tensor_set(dx, i, begins(run, node->in[1], i / each) ? 0 : ls_tensor_at(dy, i));
}

extern const ls_kernel LS_CPU_TABLE(begin_with)[];
const ls_kernel LS_CPU_TABLE(begin_with)[] = {
    {"begin_with", {begin_with, begin_with, begin_with}, NULL},
    {"begin_with_grad", {begin_with_grad, begin_with_grad, begin_with_grad}, NULL},
    {"begin_with_grad_x", {begin_with_grad_x, begin_with_grad_x, begin_with_grad_x}, NULL},
    {0},
};
