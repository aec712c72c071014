/* The impulse response of a shift register (H3, arXiv 2212.14052): see ops.h. */
#include "tensor/op/shift_kernel/shift_kernel.h"

static void backward(ls_program *p, const ls_node *node);
static double flops(const ls_node *node) {
    const ls_tensor *B = node->in[0];
    return (double)ls_count(B) * (double)(B->dim[1] + 1); /* half of all pairs, two each */
}
static double grad_flops(const ls_node *node) {
    return 2 * flops(node);
}
static const ls_op kernel_op = {
    .name = "shift_kernel", .pure = true, .backward = backward, .flops = flops};
/* in B, C, dk; adds to the gradients of B and C */
static const ls_op grad_op = {.name = "shift_kernel_grad", .flops = grad_flops};

ls_tensor *ls_shift_kernel(ls_program *p, ls_tensor *B, ls_tensor *C) {
    if (ls_failed(p) || B == NULL || C == NULL) return NULL;
    if (B->rank != 2 || ls_count(B) != ls_count(C) || B->role != LS_ROLE_PARAMETER ||
        C->role != LS_ROLE_PARAMETER || B->type != ls_wide_type(p) || C->type != B->type) {
        ls_refuse(p, LS_EBUG, "shift_kernel: the two parameters do not fit each other");
        return NULL;
    }
    ls_tensor *k = ls_activation(p, ls_wide_type(p), LS_DIMS(1, B->dim[1], B->dim[0]));
    ls_record(p, &kernel_op, NULL, 0, 2, (ls_tensor *[]){B, C}, 1, &k);
    return k;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_record(p, &grad_op, NULL, 0, 3,
              (ls_tensor *[]){node->in[0], node->in[1], ls_grad_of(node->out[0])}, 0, NULL);
}
