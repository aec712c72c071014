/* Z x, where Z stands for the pseudo-inverse of A = softmax(scale q k^T), a matrix of landmarks
 * (arXiv 2102.03902):
 *   Z <- A^T / c,  then `iterations` times  Z <- Z (13 - A Z (15 - A Z (7 - A Z))) / 4
 * c is the largest column sum of A (its rows sum to 1), or with `joint` the largest of all heads
 * and sequences, as published code has it: then sequences see one another through it. Few
 * iterations leave the small singular values of A alone; that is part of the method. Gradients go
 * through the iteration as it is, with everything computed again. */
#include "tensor/op/landmark_inverse/landmark_inverse.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    const int64_t *dim = node->in[LS_LANDMARK_Q]->dim, V = node->in[LS_LANDMARK_X]->dim[3];
    const ls_landmark_options *o = node->attributes;
    double M = (double)dim[1], heads = (double)(dim[0] * dim[2]);
    return heads * 2 * M * M * (4 * (double)o->iterations * M + (double)(dim[3] + V));
}
static double grad_flops(const ls_node *node) {
    return 4 * flops(node); /* forward, each step once more, and two products for every one */
}
static const ls_op inverse_op = {.name = "landmark_inverse", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "landmark_inverse_grad", .flops = grad_flops};

ls_tensor *ls_landmark_inverse(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *x,
                               ls_landmark_options options) {
    if (ls_failed(p) || q == NULL || k == NULL || x == NULL) return NULL;
    bool fits = q->rank == 4 && k->rank == 4 && x->rank == 4 && options.iterations >= 0;
    for (int axis = 0; fits && axis < 4; axis++)
        fits = q->dim[axis] == k->dim[axis] && (axis == 3 || q->dim[axis] == x->dim[axis]);
    if (!fits) {
        ls_refuse(p, LS_EBUG, "landmark_inverse: the operands do not fit");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), 4, x->dim);
    ls_record(p, &inverse_op, &options, sizeof options, LS_LANDMARK_IN, (ls_tensor *[]){q, k, x}, 1,
              &y);
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_LANDMARK_GRAD_IN], *out[LS_LANDMARK_IN];
    for (int i = 0; i < LS_LANDMARK_IN; i++) {
        in[i] = node->in[i];
        out[i] = ls_grad_target(p, in[i]);
    }
    in[LS_LANDMARK_DY] = ls_grad_of(node->out[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_landmark_options), LS_LANDMARK_GRAD_IN, in,
              LS_LANDMARK_IN, out);
    for (int i = 0; i < LS_LANDMARK_IN; i++) ls_grad_add(p, in[i], out[i]);
}
