/* Convolution along time with kernels as long as the sequence, every channel for itself (state
 * space models, Hyena): see ops.h. */
#include "tensor/op/long_conv/long_conv.h"

#include <math.h>

static void backward(ls_program *p, const ls_node *node);

/* Sums within blocks, then per level two transforms and the products of spectra. */
double ls_long_conv_flops(int64_t T) {
    double flops = (double)(T * ls_min(T, LS_CONV_DIRECT));
    for (int64_t m = LS_CONV_DIRECT; m < T; m *= LS_CONV_SPLIT)
        flops += (double)T * (10 * log2((double)m) + 4 * (LS_CONV_SPLIT - 1));
    return flops;
}

static double flops(const ls_node *node) {
    const ls_tensor *u = node->in[0];
    return (double)(u->dim[0] * u->dim[2]) * ls_long_conv_flops(u->dim[1]);
}
static double grad_flops(const ls_node *node) {
    return 2 * flops(node);
}

static const ls_op conv_op = {.name = "long_conv", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "long_conv_grad", .flops = grad_flops};

/* exp(2 pi i j / count) for j < count, count = 4 m for the longest blocks of m: roots of unity for
 * the transforms of every level, and of -1 for the weights before and after them. */
static ls_tensor *roots_of_unity(ls_program *p, int64_t T) {
    int64_t count = 4 * ls_conv_longest(T);
    if (count == 0 || ls_type(p) == LS_F64) return NULL;
    double *values = ls_new(ls_program_ctx(p), (size_t)(2 * count), sizeof *values);
    if (values == NULL) {
        ls_refuse(p, LS_ENOMEM, "%s", ls_program_ctx(p)->error.message);
        return NULL;
    }
    for (int64_t j = 0; j < count; j++) {
        double angle = 8 * atan(1) * (double)j / (double)count;
        values[2 * j] = cos(angle);
        values[2 * j + 1] = sin(angle);
    }
    ls_tensor *roots = ls_constant(p, LS_F32, LS_DIMS(count, 2), values);
    ls_free(ls_program_ctx(p), values);
    return roots;
}

ls_tensor *ls_long_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip, bool future) {
    if (ls_failed(p) || u == NULL || k == NULL) return NULL;
    int64_t rows, width, stride;
    bool fits = u->rank == 3 && ls_rows(u, &rows, &width, &stride) && u->type == ls_type(p) &&
                k->rank == 2 && k->base == NULL && k->type == ls_wide_type(p) &&
                k->dim[0] == u->dim[2] &&
                (skip == NULL || (skip->role == LS_ROLE_PARAMETER && skip->base == NULL &&
                                  skip->type == ls_wide_type(p) && ls_count(skip) == u->dim[2]));
    if (!fits) {
        ls_refuse(p, LS_EBUG, "long_conv: kernels for %lld channels do not fit the input",
                  (long long)k->dim[0]);
        return NULL;
    }
    ls_tensor *roots = roots_of_unity(p, u->dim[1]);
    ls_tensor *y = ls_activation(p, ls_type(p), u->rank, u->dim);
    ls_long_conv_attributes attributes = {future};
    ls_record(p, &conv_op, &attributes, sizeof attributes, 4, (ls_tensor *[]){u, k, skip, roots}, 1,
              &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *u = node->in[0], *k = node->in[1];
    ls_tensor *in[5] = {u, k, node->in[2], node->in[3], ls_grad_of(node->out[0])};
    ls_tensor *du = u->needs_grad ? ls_grad_target(p, u) : NULL;
    ls_tensor *dk = k->needs_grad ? ls_grad_target(p, k) : NULL;
    ls_record(p, &grad_op, node->attributes, sizeof(ls_long_conv_attributes), 5, in, 2,
              (ls_tensor *[]){du, dk});
    if (du != NULL) ls_grad_add(p, u, du);
    if (dk != NULL) ls_grad_add(p, k, dk);
}
