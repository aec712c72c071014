/* Landmark attention over a whole text: checks, recording, gradient rule, cost. */
#include "tensor/op/landmark_attention/landmark_attention.h"

static void backward(ls_program *p, const ls_node *node);

/* Every query meets the rows of all blocks up to its own. */
static double flops(const ls_node *node) {
    const ls_tensor *q = node->in[LS_GROUPED_Q], *v = node->in[LS_GROUPED_V];
    const double pairs = (double)q->dim[1] * (double)(q->dim[1] + 1) / 2;
    return 2 * (double)(q->dim[0] * q->dim[2] * (q->dim[3] + v->dim[3])) * pairs;
}

/* scores and products with dO twice over, once for queries and once for keys */
static double grad_flops(const ls_node *node) {
    return 3.5 * flops(node);
}

static const ls_op forward_op = {
    .name = "landmark_attention", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "landmark_attention_grad", .flops = grad_flops};

static bool fits(const ls_tensor *q, const ls_tensor *k, const ls_tensor *v) {
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || q->dim[3] != k->dim[3]) return false;
    if (k->dim[2] < 1 || q->dim[2] % k->dim[2] != 0 || v->dim[2] != k->dim[2]) return false;
    for (int axis = 0; axis < 2; axis++)
        if (q->dim[axis] != k->dim[axis] || q->dim[axis] != v->dim[axis]) return false;
    return true;
}

ls_tensor *ls_landmark_attention(ls_program *p, ls_tensor *q, ls_tensor *k, ls_tensor *v,
                                 int64_t block, double scale) {
    if (ls_failed(p) || q == NULL || k == NULL || v == NULL) return NULL;
    if (!fits(q, k, v) || block < 2 || ls_program_about(p)->streaming) {
        ls_refuse(p, LS_EBUG, "landmark_attention: the operands do not fit, or come in chunks");
        return NULL;
    }
    const ls_landmark_attributes attributes = {block, scale};
    ls_tensor *out[2] = {
        ls_activation(p, ls_type(p), LS_DIMS(q->dim[0], q->dim[1], q->dim[2], v->dim[3])),
        ls_activation(p, ls_wide_type(p), LS_DIMS(q->dim[0], q->dim[2], q->dim[1]))};
    ls_record(p, &forward_op, &attributes, sizeof attributes, 3, (ls_tensor *[]){q, k, v}, 2, out);
    return out[0];
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[6] = {NULL}, *out[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        in[i] = node->in[i];
        if (in[i]->needs_grad) out[i] = ls_grad_target(p, in[i]);
    }
    in[LS_GROUPED_Y] = node->out[0];
    in[LS_GROUPED_LSE] = node->out[1];
    in[LS_GROUPED_DY] = ls_grad_of(node->out[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_landmark_attributes), 6, in, 3, out);
    for (int i = 0; i < 3; i++)
        if (out[i] != NULL) ls_grad_add(p, in[i], out[i]);
}
