/* Means of consecutive rows, as many of them for every text: landmarks (arXiv 2102.03902). */
#include "tensor/op/segment_means/segment_means.h"

static void backward(ls_program *p, const ls_node *node);
static const ls_op means_op = {.name = "segment_means", .backward = backward};
/* in: dy, valid or NULL; out: dx */
static const ls_op grad_op = {.name = "segment_means_grad"};

static bool fits(const ls_tensor *x, int64_t M, const ls_tensor *valid) {
    if (x->rank != 4 || M < 1 || (x->dim[2] > 1 && x->stride[2] != x->dim[3])) return false;
    return valid == NULL || (valid->rank == 2 && valid->type == LS_U8 &&
                             valid->dim[0] == x->dim[0] && valid->dim[1] == x->dim[1]);
}

ls_tensor *ls_segment_means(ls_program *p, ls_tensor *x, int64_t M, ls_tensor *valid,
                            ls_tensor **used, ls_tensor **few) {
    if (used != NULL) *used = NULL;
    if (few != NULL) *few = NULL;
    if (ls_failed(p) || x == NULL) return NULL;
    if (!fits(x, M, valid)) {
        ls_refuse(p, LS_EBUG, "segment_means: the operands do not fit");
        return NULL;
    }
    ls_tensor *out[3] = {
        ls_activation(p, ls_type(p), LS_DIMS(x->dim[0], M, x->dim[2], x->dim[3])),
        used == NULL ? NULL : ls_activation(p, LS_U8, LS_DIMS(x->dim[0], M)),
        few == NULL ? NULL : ls_activation(p, LS_U8, LS_DIMS(x->dim[0])),
    };
    ls_record(p, &means_op, NULL, 0, 2, (ls_tensor *[]){x, valid}, 3, out);
    if (used != NULL) *used = out[1];
    if (few != NULL) *few = out[2];
    return out[0];
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &grad_op, NULL, 0, 2, (ls_tensor *[]){ls_grad_of(node->out[0]), node->in[1]}, 1,
              &dx);
    ls_grad_add(p, node->in[0], dx);
}
