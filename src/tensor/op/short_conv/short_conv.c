/* A causal convolution of a few taps, every channel for itself (Mamba and its relatives, Hyena,
 * H3): y[t] = act(bias + sum_k weight[k] x[t - W + 1 + k]). */
#include "tensor/op/short_conv/short_conv.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    return 2.0 * (double)ls_count(node->in[0]) * (double)node->in[1]->dim[1];
}
static double grad_flops(const ls_node *node) {
    return 3 * flops(node); /* the taps again, then both gradients */
}

static const ls_op conv_op = {.name = "short_conv", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "short_conv_grad", .flops = grad_flops};

static bool is_vector(const ls_program *p, const ls_tensor *tensor, int64_t width) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->type == ls_wide_type(p) &&
           ls_count(tensor) == width;
}

static bool is_past(const ls_program *p, const ls_tensor *before, const ls_tensor *x,
                    int64_t rows) {
    return before->rank == 3 && before->dim[0] == x->dim[0] && before->dim[1] == rows &&
           before->dim[2] == x->dim[2] && before->type == ls_type(p);
}

/* Where gradients pass through the rows kept they stand before the chunk as rows of it, which start
 * at nothing: their own results are not used, and what is kept are the last of all. */
static ls_tensor *conv_through(ls_program *p, bool silu, ls_tensor *x, ls_tensor *weight,
                               ls_tensor *bias, ls_tensor *before, ls_tensor **after) {
    const int64_t rows = before->dim[1], T = x->dim[1];
    ls_tensor *all = ls_join_rows(p, 2, (ls_tensor *[]){before, x}), *parts[2];
    ls_tensor *nothing = ls_constant(p, ls_type(p), before->rank, before->dim, NULL);
    ls_tensor *y = ls_short_conv(p, silu, all, weight, bias, nothing, NULL);
    if (y == NULL) return NULL;
    if (after != NULL) {
        ls_cut_rows(p, all, 2, (const int64_t[]){T, rows}, parts);
        *after = parts[1];
    }
    ls_cut_rows(p, y, 2, (const int64_t[]){rows, T}, parts);
    return parts[1];
}

ls_tensor *ls_short_conv(ls_program *p, bool silu, ls_tensor *x, ls_tensor *weight, ls_tensor *bias,
                         ls_tensor *before, ls_tensor **after) {
    if (after != NULL) *after = NULL;
    if (ls_failed(p) || x == NULL || weight == NULL) return NULL;
    int64_t rows, E, stride, taps = weight->dim[weight->rank - 1];
    if (taps > 1 && before == NULL) return NULL;
    bool fits = x->rank == 3 && ls_rows(x, &rows, &E, &stride) && weight->rank == 2 && taps >= 1 &&
                is_vector(p, weight, E * taps) && (bias == NULL || is_vector(p, bias, E)) &&
                (taps > 1 ? is_past(p, before, x, taps - 1) : before == NULL);
    if (!fits) {
        ls_refuse(p, LS_EBUG, "short_conv: operands for %lld taps do not fit", (long long)taps);
        return NULL;
    }
    if (before != NULL && before->needs_grad)
        return conv_through(p, silu, x, weight, bias, before, after);
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    ls_tensor *tail =
        before == NULL ? NULL : ls_activation(p, ls_type(p), before->rank, before->dim);
    ls_short_conv_attributes attributes = {silu};
    ls_record(p, &conv_op, &attributes, sizeof attributes, 4,
              (ls_tensor *[]){x, weight, bias, before}, 2, (ls_tensor *[]){y, tail});
    if (after != NULL) *after = tail;
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]), *tail = node->out[1];
    if (dy == NULL || (tail != NULL && ls_grad_of(tail) != NULL)) {
        ls_refuse(p, LS_EBUG, "short_conv: no gradient passes through the rows kept");
        return;
    }
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_short_conv_attributes), 5,
              (ls_tensor *[]){node->in[0], node->in[1], node->in[2], node->in[3], dy}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}
