/* The damped moving average of Mega (arXiv 2209.10655 section 3.1): see ops.h. As a kernel it knows
 * no length; as a recurrence it has a state. */
#include "tensor/op/ema/ema.h"

static void kernel_backward(ls_program *p, const ls_node *node);
static void scan_backward(ls_program *p, const ls_node *node);

static double dims_of(const ls_node *node) {
    return (double)node->in[LS_EMA_GAMMA]->dim[1];
}

/* per dimension: the power's next, the sum */
double ls_ema_kernel_flops(int64_t dims) {
    return 2 * (double)dims;
}
/* per dimension: the state's next, the sum */
double ls_ema_scan_flops(int64_t dims) {
    return 5 * (double)dims;
}

static double count_of(const ls_tensor *tensor) {
    return tensor == NULL ? 0 : (double)ls_count(tensor);
}
static double kernel_flops(const ls_node *node) {
    return 2 * dims_of(node) * (count_of(node->out[0]) + count_of(node->out[1]));
}
static double kernel_grad_flops(const ls_node *node) {
    return 4 * dims_of(node) *
           (count_of(node->in[LS_EMA_DKERNEL]) + count_of(node->in[LS_EMA_DAHEAD]));
}
static double scan_flops(const ls_node *node) {
    return 5 * dims_of(node) * count_of(node->in[LS_EMA_X]);
}
static double scan_grad_flops(const ls_node *node) {
    return 3 * scan_flops(node);
}

static const ls_op kernel_op = {
    .name = "ema_kernel", .backward = kernel_backward, .flops = kernel_flops};
static const ls_op kernel_grad_op = {.name = "ema_kernel_grad", .flops = kernel_grad_flops};
static const ls_op scan_op = {.name = "ema_scan", .backward = scan_backward, .flops = scan_flops};
static const ls_op scan_grad_op = {.name = "ema_scan_grad", .flops = scan_grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && ls_count(tensor) == count;
}

/* Whether the parameters are there and fit each other and `sides`. */
static bool complete(ls_program *p, const ls_ema *ema, int64_t sides, ls_tensor **in) {
    ls_tensor *all[LS_EMA_PARAMETERS] = {ema->delta, ema->alpha, ema->beta, ema->gamma};
    if (ls_failed(p)) return false;
    for (int i = 0; i < LS_EMA_PARAMETERS; i++) {
        in[i] = all[i];
        if (in[i] == NULL) return false;
    }
    bool fits = ema->gamma->rank == 2 && ema->gamma->dim[0] % sides == 0 &&
                ema->gamma->dim[1] <= LS_EMA_DIMS_MAX;
    for (int i = 0; i < LS_EMA_PARAMETERS; i++)
        fits = fits && is_parameter(p, in[i], ls_count(ema->gamma));
    if (!fits) ls_refuse(p, LS_EBUG, "ema: the parameters do not fit each other");
    return fits;
}

ls_tensor *ls_ema_kernel(ls_program *p, const ls_ema *ema, int64_t length, ls_tensor **ahead) {
    ls_tensor *in[LS_EMA_PARAMETERS], *out[2] = {NULL, NULL};
    const int64_t sides = ahead == NULL ? 1 : 2;
    if (ahead != NULL) *ahead = NULL;
    if (!complete(p, ema, sides, in)) return NULL;
    const int64_t D = ema->gamma->dim[0] / sides;
    out[0] = ls_activation(p, ls_wide_type(p), LS_DIMS(D, length));
    if (ahead != NULL && length > 1)
        out[1] = *ahead = ls_activation(p, ls_wide_type(p), LS_DIMS(D, length - 1));
    ls_record(p, &kernel_op, NULL, 0, LS_EMA_PARAMETERS, in, 2, out);
    return out[0];
}

static void kernel_backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_EMA_KERNEL_GRAD_IN];
    memcpy(in, node->in, LS_EMA_PARAMETERS * sizeof *in);
    in[LS_EMA_DKERNEL] = ls_grad_of(node->out[0]);
    in[LS_EMA_DAHEAD] = node->out[1] == NULL ? NULL : ls_grad_of(node->out[1]);
    ls_record(p, &kernel_grad_op, NULL, 0, LS_EMA_KERNEL_GRAD_IN, in, 0, NULL);
}

ls_tensor *ls_ema_scan(ls_program *p, const ls_ema *ema, ls_tensor *x, ls_tensor *skip,
                       ls_tensor *before, ls_tensor **after) {
    ls_tensor *in[LS_EMA_DY];
    if (after != NULL) *after = NULL;
    if (!complete(p, ema, 1, in) || x == NULL || before == NULL) return NULL;
    const int64_t D = ema->gamma->dim[0], N = ema->gamma->dim[1];
    int64_t rows, width, stride;
    bool fits = x->rank == 3 && ls_rows(x, &rows, &width, &stride) && x->dim[2] == D &&
                (skip == NULL || is_parameter(p, skip, D)) && before->rank == 3 &&
                before->base == NULL && before->type == ls_wide_type(p) &&
                before->dim[0] == x->dim[0] && before->dim[1] == D && before->dim[2] == N;
    if (!fits) {
        ls_refuse(p, LS_EBUG, "ema: an input of %lld channels does not fit",
                  (long long)x->dim[x->rank - 1]);
        return NULL;
    }
    in[LS_EMA_X] = x;
    in[LS_EMA_SKIP] = skip;
    in[LS_EMA_BEFORE] = before;
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_tensor *last = ls_activation(p, ls_wide_type(p), before->rank, before->dim);
    ls_record(p, &scan_op, NULL, 0, LS_EMA_DY, in, 2, (ls_tensor *[]){y, last});
    if (after != NULL) *after = last;
    return y;
}

static void scan_backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_EMA_SCAN_GRAD_IN], *out[2] = {NULL, NULL};
    ls_tensor *x = node->in[LS_EMA_X], *before = node->in[LS_EMA_BEFORE];
    memcpy(in, node->in, LS_EMA_DY * sizeof *in);
    in[LS_EMA_DY] = ls_grad_of(node->out[0]);
    in[LS_EMA_DAFTER] = ls_grad_of(node->out[1]);
    if (in[LS_EMA_DY] == NULL) {
        ls_refuse(p, LS_EBUG, "ema: the outputs must have a gradient too");
        return;
    }
    if (x->needs_grad) out[0] = ls_grad_target(p, x);
    if (before->needs_grad) out[1] = ls_grad_target(p, before);
    ls_record(p, &scan_grad_op, NULL, 0, LS_EMA_SCAN_GRAD_IN, in, 2, out);
    if (out[0] != NULL) ls_grad_add(p, x, out[0]);
    if (out[1] != NULL) ls_grad_add(p, before, out[1]);
}
