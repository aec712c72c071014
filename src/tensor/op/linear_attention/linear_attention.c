/* Attention without a softmax where every query sees every key: the keys and values of a text are
 * added up once, and each query reads the sum. */
#include "tensor/op/linear_attention/linear_attention.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    return 4.0 * (double)ls_count(node->in[0]) * (double)(node->in[2]->dim[3] + 1);
}
static double grad_flops(const ls_node *node) {
    return 2.5 * flops(node); /* the sum again, its gradient, and those of q, k and v */
}
static const ls_op attention_op = {
    .name = "linear_attention", .backward = backward, .flops = flops};
/* in: q, k, v, dy, dsums (either may be NULL); out: dq, dk, dv */
static const ls_op grad_op = {.name = "linear_attention_grad", .flops = grad_flops};

ls_tensor *ls_linear_attention(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                               ls_tensor **sums) {
    *sums = NULL;
    if (ls_failed(p) || q == NULL || k == NULL || v == NULL) return NULL;
    bool fits = q->rank == 4 && k->rank == 4 && v->rank == 4 && q->dim[3] == k->dim[3];
    for (int axis = 0; fits && axis < 3; axis++)
        fits = q->dim[axis] == k->dim[axis] && q->dim[axis] == v->dim[axis];
    if (!fits) {
        ls_refuse(p, LS_EBUG, "linear_attention: the operands do not fit");
        return NULL;
    }
    ls_tensor *out[2] = {ls_activation(p, ls_type(p), 4, v->dim),
                         ls_activation(p, ls_wide_type(p), 3, v->dim)};
    ls_record(p, &attention_op, NULL, 0, 3, (ls_tensor *[]){q, k, v}, 2, out);
    *sums = out[1];
    return out[0];
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[5] = {node->in[0], node->in[1], node->in[2], ls_grad_of(node->out[0]),
                        ls_grad_of(node->out[1])};
    ls_tensor *out[3];
    for (int i = 0; i < 3; i++) out[i] = ls_grad_target(p, in[i]);
    ls_record(p, &grad_op, NULL, 0, 5, in, 3, out);
    for (int i = 0; i < 3; i++) ls_grad_add(p, in[i], out[i]);
}
