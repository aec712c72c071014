/* Attention whose weights are a function of the score alone (Mega, arXiv 2209.10655 section 3.4):
 * checks, recording, gradient rule, cost. */
#include "tensor/op/pointwise_attention/pointwise_attention.h"

#include "tensor/op/attention/attention.h"

static void backward(ls_program *p, const ls_node *node);

static double flops(const ls_node *node) {
    const ls_tensor *q = node->in[LS_ATTENTION_Q], *v = node->in[LS_ATTENTION_V];
    return 2 * (double)(q->dim[3] + v->dim[3]) * ls_attention_pairs(node);
}
/* scores and products with dO twice over, once for queries and once for keys */
static double grad_flops(const ls_node *node) {
    return 3.5 * flops(node);
}

static const ls_op forward_op = {
    .name = "pointwise_attention", .parts = true, .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "pointwise_attention_grad", .flops = grad_flops};

ls_tensor *ls_pointwise_attention(ls_program *p, const ls_key_set *set, double scale,
                                  ls_weighting weighting) {
    ls_tensor *in[LS_ATTENTION_SLOTS];
    size_t bytes;
    if (set->slopes != NULL || set->relative != NULL || set->xpos.pairs > 0 ||
        set->dilation != NULL || set->query_at.kind != LS_MAP_IDENTITY ||
        set->key_at.kind != LS_MAP_IDENTITY)
        ls_refuse(p, LS_EBUG, "pointwise_attention: a table is the only bias it takes");
    if (weighting.kind == LS_WEIGHT_LAPLACE && !(weighting.deviation > 0))
        ls_refuse(p, LS_EBUG, "pointwise_attention: a deviation of %g", weighting.deviation);
    ls_attention_attributes *attributes =
        ls_attention_describe(p, 1, set, (ls_attention_options){.scale = scale}, in, &bytes);
    if (attributes == NULL) return NULL;
    attributes->weighting = weighting;
    const ls_tensor *q = set->q;
    ls_tensor *out =
        ls_activation(p, ls_type(p), LS_DIMS(q->dim[0], q->dim[1], q->dim[2], set->v->dim[3]));
    ls_record(p, &forward_op, attributes, bytes, LS_ATTENTION_SLOTS, in, 1, &out);
    ls_free(ls_program_ctx(p), attributes);
    if (ls_in_parts(p, set->k)) ls_merge_parts(p, &out, NULL);
    return out;
}

static void backward(ls_program *p, const ls_node *node) {
    static const ls_attention_slot differentiable[] = {LS_ATTENTION_Q, LS_ATTENTION_K,
                                                       LS_ATTENTION_V, LS_ATTENTION_TABLE};
    const ls_attention_attributes *attributes = node->attributes;
    ls_tensor *in[LS_ATTENTION_SLOTS + 3] = {NULL}, *out[LS_ATTENTION_SLOTS] = {NULL};
    memcpy(in, node->in, LS_ATTENTION_SLOTS * sizeof *in);
    in[LS_ATTENTION_SLOTS + 2] = ls_grad_of(node->out[0]);
    for (int i = 0; i < 4; i++) {
        int at = (int)differentiable[i];
        if (in[at] != NULL && in[at]->needs_grad) out[at] = ls_grad_target(p, in[at]);
    }
    const size_t heads = (size_t)node->in[LS_ATTENTION_Q]->dim[2];
    ls_record(p, &grad_op, attributes, sizeof *attributes + heads * sizeof attributes->dilation[0],
              LS_ATTENTION_SLOTS + 3, in, LS_ATTENTION_SLOTS, out);
    for (int i = 0; i < LS_ATTENTION_SLOTS; i++)
        if (out[i] != NULL) ls_grad_add(p, in[i], out[i]);
}
