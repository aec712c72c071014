/* Complex modes that all channels share, as S5 has them (arXiv 2208.04933): see ops.h. */
#include "tensor/op/diagonal_scan/diagonal_scan.h"

static void backward(ls_program *p, const ls_node *node);

/* per mode: times a, times b, their sum, the factor */
static double flops(const ls_node *node) {
    return 16 * (double)(ls_count(node->in[LS_MODES_V]) / 2);
}
static double grad_flops(const ls_node *node) {
    return 4 * flops(node); /* the states twice, then gradients of a, b, v and the state */
}

static const ls_op scan_op = {.name = "diagonal_scan", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "diagonal_scan_grad", .flops = grad_flops};

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && ls_count(tensor) == count;
}

static bool fits(const ls_program *p, const ls_modes *m) {
    const ls_tensor *v = m->v, *before = m->before, *valid = m->valid;
    int64_t rows, width, stride;
    if (v->rank != 3 || v->dim[2] % 2 != 0 || !ls_rows(v, &rows, &width, &stride)) return false;
    const int64_t P = v->dim[2] / 2;
    if (!is_parameter(p, m->real, P) || !is_parameter(p, m->imag, P) ||
        !is_parameter(p, m->log_step, P))
        return false;
    if (before != NULL &&
        (before->rank != 2 || before->base != NULL || before->type != ls_wide_type(p) ||
         before->dim[0] != v->dim[0] || before->dim[1] != 2 * P))
        return false;
    return valid == NULL || (valid->rank == 2 && valid->base == NULL && valid->type == LS_U8 &&
                             valid->dim[0] == v->dim[0] && valid->dim[1] == v->dim[1]);
}

ls_tensor *ls_diagonal_scan(ls_program *p, const ls_modes *m, ls_tensor **after) {
    if (after != NULL) *after = NULL;
    if (ls_failed(p) || m->v == NULL || m->real == NULL || m->imag == NULL || m->log_step == NULL)
        return NULL;
    const ls_tensor *v = m->v;
    if (!fits(p, m)) {
        ls_refuse(p, LS_EBUG, "diagonal_scan: operands for a width of %lld do not fit",
                  (long long)v->dim[v->rank - 1]);
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), v->rank, v->dim), *last = NULL;
    if (after != NULL)
        *after = last = ls_activation(p, ls_wide_type(p), LS_DIMS(v->dim[0], v->dim[2]));
    const ls_modes_attributes attributes = {m->hold, m->real_max, m->step_scale, m->factor,
                                            m->reversed};
    ls_tensor *in[LS_MODES_IN] = {m->v, m->real, m->imag, m->log_step, m->before, m->valid};
    ls_record(p, &scan_op, &attributes, sizeof attributes, LS_MODES_IN, in, LS_MODES_OUT,
              (ls_tensor *[]){y, last});
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_MODES_GRAD_IN], *out[LS_MODES_GRAD_OUT] = {0};
    static const int from[LS_MODES_GRAD_OUT] = {LS_MODES_V, LS_MODES_BEFORE};
    memcpy(in, node->in, LS_MODES_IN * sizeof *in);
    in[LS_MODES_DY] = ls_grad_of(node->out[LS_MODES_Y]);
    in[LS_MODES_DAFTER] =
        node->out[LS_MODES_AFTER] == NULL ? NULL : ls_grad_of(node->out[LS_MODES_AFTER]);
    if (in[LS_MODES_DY] == NULL) {
        ls_refuse(p, LS_EBUG, "diagonal_scan: the outputs must have a gradient too");
        return;
    }
    for (int i = 0; i < LS_MODES_GRAD_OUT; i++) {
        ls_tensor *input = in[from[i]];
        if (input != NULL && input->needs_grad) out[i] = ls_grad_target(p, input);
    }
    ls_record(p, &grad_op, node->attributes, sizeof(ls_modes_attributes), LS_MODES_GRAD_IN, in,
              LS_MODES_GRAD_OUT, out);
    for (int i = 0; i < LS_MODES_GRAD_OUT; i++)
        if (out[i] != NULL) ls_grad_add(p, in[from[i]], out[i]);
}
