/* Convolution of a chunk with all of the past that is kept, as it is defined: the form of long
 * convolutions in a stream, and of those that are too short for transforms. See ops.h. */
#include "tensor/op/past_conv/past_conv.h"

static void backward(ls_program *p, const ls_node *node);

static double flops_of(const ls_tensor *u, const ls_tensor *k, const ls_tensor *y) {
    return 2 * (double)ls_count(y) * (double)ls_min(u->dim[1], k->dim[1]);
}
static double flops(const ls_node *node) {
    return flops_of(node->in[0], node->in[1], node->out[0]);
}
static double grad_flops(const ls_node *node) {
    return 2 * flops_of(node->in[0], node->in[1], node->in[3]);
}

static const ls_op conv_op = {
    .name = "past_conv", .parts = true, .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "past_conv_grad", .flops = grad_flops};

ls_tensor *ls_past_conv(ls_program *p, ls_tensor *u, ls_tensor *k, ls_tensor *skip) {
    if (ls_failed(p) || u == NULL || k == NULL) return NULL;
    bool fits = u->rank == 3 && u->type == ls_type(p) && k->rank == 3 && k->dim[0] == 1 &&
                k->type == ls_wide_type(p) && k->dim[2] == u->dim[2] &&
                (skip == NULL || (skip->role == LS_ROLE_PARAMETER && skip->base == NULL &&
                                  skip->type == ls_wide_type(p) && ls_count(skip) == u->dim[2]));
    if (!fits) {
        ls_refuse(p, LS_EBUG, "past_conv: kernels for %lld channels do not fit the input",
                  (long long)k->dim[k->rank - 1]);
        return NULL;
    }
    const bool part = ls_in_parts(p, u);
    int64_t T = u->port >= 0 ? ls_program_about(p)->length : u->dim[1];
    ls_tensor *y = ls_activation(p, ls_type(p), LS_DIMS(u->dim[0], T, u->dim[2]));
    ls_record(p, &conv_op, NULL, 0, 3, (ls_tensor *[]){u, k, skip}, 1, &y);
    if (part) ls_merge_parts(p, &y, NULL);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *u = node->in[0], *k = node->in[1];
    ls_tensor *du = u->needs_grad ? ls_grad_target(p, u) : NULL;
    ls_tensor *dk = k->needs_grad ? ls_grad_target(p, k) : NULL;
    const ls_past_conv_attributes about = {.past = ls_program_about(p)->through};
    ls_record(p, &grad_op, &about, sizeof about, 4,
              (ls_tensor *[]){u, k, node->in[2], ls_grad_of(node->out[0])}, 2,
              (ls_tensor *[]){du, dk});
    if (du != NULL) ls_grad_add(p, u, du);
    if (dk != NULL) ls_grad_add(p, k, dk);
}
