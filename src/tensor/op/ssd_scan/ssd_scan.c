/* The state space of Mamba-2: see ssd_scan.h for the formulas.
 *
 * Nothing of the size [batch,T,H,P,N] is ever stored: backward starts at states kept every
 * LS_SSD_KEPT tokens and computes those of the chunks between again. */
#include "tensor/op/ssd_scan/ssd_scan.h"

static void backward(ls_program *p, const ls_node *node);

/* Per token and element of the state: decay, what is added to it, and its reading. */
static double flops(const ls_node *node) {
    return 4.0 * (double)ls_count(node->in[LS_SSD_X]) * (double)node->in[LS_SSD_B]->dim[3];
}
static double grad_flops(const ls_node *node) {
    return 3 * flops(node); /* the state again and read, its gradient, those of x, B and C */
}

static const ls_op scan_op = {.name = "ssd_scan", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "ssd_scan_grad", .flops = grad_flops};

static bool is_rows(const ls_program *p, const ls_tensor *tensor, const ls_tensor *like, int rank) {
    return tensor->rank == rank && tensor->type == ls_type(p) && tensor->dim[0] == like->dim[0] &&
           tensor->dim[1] == like->dim[1];
}

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
           tensor->type == ls_wide_type(p) && ls_count(tensor) == count;
}

/* The stride of an axis of one is of no consequence. */
static bool is_last(const ls_tensor *tensor) {
    return tensor->dim[3] == 1 || tensor->stride[3] == 1;
}
/* Heads side by side. */
static bool is_dense(const ls_tensor *tensor) {
    return is_last(tensor) && (tensor->dim[2] == 1 || tensor->stride[2] == tensor->dim[3]);
}

static bool fits(const ls_program *p, const ls_ssd_operands *s) {
    const ls_tensor *x = s->x, *before = s->before;
    if (!is_rows(p, x, x, 4) || !is_rows(p, s->dt, x, 3) || !is_rows(p, s->B, x, 4) ||
        !is_rows(p, s->C, x, 4) || before->rank != 4)
        return false;
    const int64_t H = x->dim[2], P = x->dim[3], G = s->B->dim[2], N = s->B->dim[3];
    return is_dense(x) && is_last(s->B) && is_last(s->C) && s->dt->dim[2] == H &&
           (H == 1 || s->dt->stride[2] == 1) && s->C->dim[2] == G && s->C->dim[3] == N &&
           H % G == 0 && is_parameter(p, s->A_log, H) &&
           (s->bias == NULL || is_parameter(p, s->bias, H)) &&
           (s->D == NULL || is_parameter(p, s->D, H) || is_parameter(p, s->D, H * P)) &&
           before->base == NULL && before->type == ls_wide_type(p) && before->dim[0] == x->dim[0] &&
           before->dim[1] == H && before->dim[2] == P && before->dim[3] == N && s->dt_min >= 0 &&
           s->dt_min <= s->dt_max;
}

ls_tensor *ls_ssd_scan(ls_program *p, const ls_ssd_operands *ssd, ls_tensor **after) {
    if (after != NULL) *after = NULL;
    if (ls_failed(p) || ssd->x == NULL || ssd->dt == NULL || ssd->B == NULL || ssd->C == NULL ||
        ssd->A_log == NULL || ssd->before == NULL)
        return NULL;
    if (!fits(p, ssd)) {
        ls_refuse(p, LS_EBUG, "ssd_scan: the operands do not fit");
        return NULL;
    }
    const ls_tensor *x = ssd->x, *before = ssd->before;
    const int64_t *state = before->dim;
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim), *kept = NULL;
    ls_tensor *last = ls_activation(p, ls_wide_type(p), before->rank, state);
    if (ls_program_about(p)->grad)
        kept = ls_activation(
            p, ls_wide_type(p),
            LS_DIMS(state[0], ls_ceil_div(x->dim[1], LS_SSD_KEPT), state[1], state[2], state[3]));
    ls_tensor *in[LS_SSD_IN] = {ssd->x,     ssd->dt, ssd->B,    ssd->C,
                                ssd->A_log, ssd->D,  ssd->bias, ssd->before};
    const ls_ssd_attributes about = {ssd->dt_min, ssd->dt_max};
    ls_record(p, &scan_op, &about, sizeof about, LS_SSD_IN, in, LS_SSD_OUT,
              (ls_tensor *[]){y, last, kept});
    if (after != NULL) *after = last;
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_SSD_GRAD_IN], *out[LS_SSD_GRAD_OUT] = {0};
    for (int i = 0; i < LS_SSD_IN; i++) in[i] = node->in[i];
    in[LS_SSD_STARTS] = node->out[LS_SSD_KEPT_STATES];
    in[LS_SSD_DY] = ls_grad_of(node->out[LS_SSD_Y]);
    in[LS_SSD_DAFTER] = ls_grad_of(node->out[LS_SSD_AFTER]);
    if (in[LS_SSD_DY] == NULL) {
        ls_refuse(p, LS_EBUG, "ssd_scan: the outputs must have a gradient too");
        return;
    }
    static const int from[LS_SSD_GRAD_OUT] = {LS_SSD_X, LS_SSD_DT, LS_SSD_B, LS_SSD_C,
                                              LS_SSD_BEFORE};
    for (int i = 0; i < LS_SSD_GRAD_OUT; i++)
        if (i != LS_SSD_DBEFORE || in[LS_SSD_BEFORE]->needs_grad)
            out[i] = ls_grad_target(p, in[from[i]]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_ssd_attributes), LS_SSD_GRAD_IN, in,
              LS_SSD_GRAD_OUT, out);
    for (int i = 0; i < LS_SSD_GRAD_OUT; i++)
        if (out[i] != NULL) ls_grad_add(p, in[from[i]], out[i]);
}
