/* Gains and shifts that make several rows of one (Mega's queries and keys): see ops.h. */
#include "tensor/op/scale_shift/scale_shift.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    return 2 * (double)ls_count(node->out[0]);
}
static double grad_flops(const ls_node *node) {
    return 5 * (double)ls_count(node->in[3]);
}

static const ls_op scale_op = {
    .name = "scale_shift", .any_batch = true, .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "scale_shift_grad", .flops = grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t width) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && tensor->rank == 2 && tensor->dim[1] == width;
}

ls_tensor *ls_scale_shift(ls_program *p, ls_tensor *x, ls_tensor *gain, ls_tensor *shift) {
    if (ls_failed(p) || x == NULL || gain == NULL || shift == NULL) return NULL;
    int64_t rows, width, stride, dim[LS_RANK_MAX];
    if (!ls_rows(x, &rows, &width, &stride) || !is_parameter(p, gain, width) ||
        !is_parameter(p, shift, width) || gain->dim[0] != shift->dim[0]) {
        ls_refuse(p, LS_EBUG, "scale_shift: gains and shifts do not fit the input");
        return NULL;
    }
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] = width * gain->dim[0];
    ls_tensor *out = ls_activation(p, ls_type(p), x->rank, dim);
    ls_record(p, &scale_op, NULL, 0, 3, (ls_tensor *[]){x, gain, shift}, 1, &out);
    return out;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *x = node->in[0];
    ls_tensor *in[4] = {x, node->in[1], node->in[2], ls_grad_of(node->out[0])};
    ls_tensor *dx = x->needs_grad ? ls_grad_target(p, x) : NULL;
    ls_record(p, &grad_op, NULL, 0, 4, in, 1, &dx);
    if (dx != NULL) ls_grad_add(p, x, dx);
}
