/* A bias table over distances from two rotated vectors (Mega, arXiv 2209.10655): see ops.h. */
#include "tensor/op/rotary_table/rotary_table.h"

static void backward(ls_program *p, const ls_node *node);

/* per pair: a rotation by one step, a sum */
double ls_rotary_table_flops(int64_t z) {
    return 3.5 * (double)z;
}
static double flops(const ls_node *node) {
    return (double)node->out[0]->dim[1] * ls_rotary_table_flops(ls_count(node->in[0]));
}
static double grad_flops(const ls_node *node) {
    return (double)node->in[2]->dim[1] * ls_rotary_table_flops(ls_count(node->in[0]));
}

static const ls_op table_op = {.name = "rotary_table", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "rotary_table_grad", .flops = grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p);
}

ls_tensor *ls_rotary_table(ls_program *p, ls_tensor *alpha, ls_tensor *beta, double base, int64_t R,
                           int64_t zero) {
    if (ls_failed(p) || alpha == NULL || beta == NULL) return NULL;
    if (!is_parameter(p, alpha) || !is_parameter(p, beta) || ls_count(alpha) != ls_count(beta) ||
        ls_count(alpha) % 2 != 0) {
        ls_refuse(p, LS_EBUG, "rotary_table: alpha and beta are parameters of one even width");
        return NULL;
    }
    const ls_rotary_table_attributes attributes = {base, zero};
    ls_tensor *table = ls_activation(p, ls_wide_type(p), LS_DIMS(1, R));
    ls_record(p, &table_op, &attributes, sizeof attributes, 2, (ls_tensor *[]){alpha, beta}, 1,
              &table);
    return table;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[3] = {node->in[0], node->in[1], ls_grad_of(node->out[0])};
    ls_record(p, &grad_op, node->attributes, sizeof(ls_rotary_table_attributes), 3, in, 0, NULL);
}
