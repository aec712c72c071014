/* The selective state space of Mamba (arXiv 2312.00752): see ops.h for the formulas.
 *
 * A is exponentiated, B is not (Euler), as in the published code. Nothing of the size
 * [batch,T,E,N] is ever stored: backward starts at states kept every LS_SCAN_CHUNK tokens. */
#include "tensor/op/selective_scan/selective_scan.h"

static void backward(ls_program *p, const ls_node *node);

/* per state: d A, exp, times h, d u B and its addition, times C and its addition */
static double flops(const ls_node *node) {
    return 7.0 * (double)ls_count(node->in[LS_SCAN_U]) * (double)node->in[LS_SCAN_A_LOG]->dim[1];
}
static double grad_flops(const ls_node *node) {
    return 3 * flops(node); /* the states again, then gradients of five operands */
}

/* the same in complex numbers: d A 2, exp, cos and sin 3, their products 2, times h 6, d u
 * B 4, C 4 */
static double complex_flops(const ls_node *node) {
    return 3 * flops(node);
}
static double complex_grad_flops(const ls_node *node) {
    return 3 * complex_flops(node);
}

static const ls_op scan_op = {.name = "selective_scan", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "selective_scan_grad", .flops = grad_flops};
static const ls_op complex_op = {
    .name = "complex_scan", .backward = backward, .flops = complex_flops};
static const ls_op complex_grad_op = {.name = "complex_scan_grad", .flops = complex_grad_flops};

static bool is_rows(const ls_tensor *tensor, const int64_t *like, int64_t width) {
    int64_t rows, last, stride;
    return tensor->rank == 3 && tensor->dim[0] == like[0] && tensor->dim[1] == like[1] &&
           tensor->dim[2] == width && ls_rows(tensor, &rows, &last, &stride);
}

static bool is_parameter(const ls_program *p, const ls_tensor *tensor, int64_t count) {
    return tensor == NULL || (tensor->role == LS_ROLE_PARAMETER && tensor->base == NULL &&
                              tensor->type == ls_wide_type(p) && ls_count(tensor) == count);
}

ls_tensor *ls_selective_scan(ls_program *p, const ls_scan *scan, ls_tensor **after) {
    if (after != NULL) *after = NULL;
    const ls_tensor *u = scan->u, *A_log = scan->A_log, *before = scan->before;
    if (ls_failed(p) || u == NULL || scan->delta == NULL || A_log == NULL || scan->B == NULL ||
        scan->C == NULL || before == NULL)
        return NULL;
    int64_t E = u->dim[u->rank - 1], N = A_log->dim[A_log->rank - 1];
    int64_t M = scan->A_im == NULL ? N : 2 * N; /* numbers of a channel's states */
    bool fits = is_rows(u, u->dim, E) && is_rows(scan->delta, u->dim, E) &&
                (scan->z == NULL || is_rows(scan->z, u->dim, E)) && is_rows(scan->B, u->dim, M) &&
                is_rows(scan->C, u->dim, M) && A_log->rank == 2 && is_parameter(p, A_log, E * N) &&
                is_parameter(p, scan->A_im, E * N) && is_parameter(p, scan->D, E) &&
                is_parameter(p, scan->bias, E) && before->rank == 3 && before->base == NULL &&
                before->type == ls_wide_type(p) && before->dim[0] == u->dim[0] &&
                before->dim[1] == E && before->dim[2] == M;
    if (!fits) {
        ls_refuse(p, LS_EBUG, "selective_scan: operands for %lld channels of %lld do not fit",
                  (long long)E, (long long)N);
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), u->rank, u->dim);
    ls_tensor *last = ls_activation(p, ls_wide_type(p), before->rank, before->dim), *kept = NULL;
    if (ls_program_about(p)->grad)
        kept = ls_activation(p, ls_wide_type(p),
                             LS_DIMS(u->dim[0], ls_ceil_div(u->dim[1], LS_SCAN_CHUNK), E, M));
    ls_tensor *in[LS_SCAN_IN] = {scan->u, scan->delta, scan->A_log, scan->A_im, scan->B,
                                 scan->C, scan->D,     scan->z,     scan->bias, scan->before};
    const ls_scan_attributes about = {scan->plain_step};
    ls_record(p, scan->A_im == NULL ? &scan_op : &complex_op, &about, sizeof about, LS_SCAN_IN, in,
              LS_SCAN_OUT, (ls_tensor *[]){y, last, kept});
    if (after != NULL) *after = last;
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_SCAN_GRAD_IN], *out[LS_SCAN_GRAD_OUT] = {0};
    for (int i = 0; i < LS_SCAN_IN; i++) in[i] = node->in[i];
    in[LS_SCAN_STARTS] = node->out[LS_SCAN_KEPT];
    in[LS_SCAN_DY] = ls_grad_of(node->out[LS_SCAN_Y]);
    in[LS_SCAN_DAFTER] = ls_grad_of(node->out[LS_SCAN_AFTER]);
    if (in[LS_SCAN_DY] == NULL) {
        ls_refuse(p, LS_EBUG, "selective_scan: the outputs must have a gradient too");
        return;
    }
    static const int from[LS_SCAN_GRAD_OUT] = {LS_SCAN_U, LS_SCAN_DELTA, LS_SCAN_B,
                                               LS_SCAN_C, LS_SCAN_Z,     LS_SCAN_BEFORE};
    for (int i = 0; i < LS_SCAN_GRAD_OUT; i++) {
        ls_tensor *input = in[from[i]];
        bool wanted = i < LS_SCAN_DZ || (input != NULL && input->needs_grad);
        if (wanted) out[i] = ls_grad_target(p, input);
    }
    ls_record(p, node->op == &scan_op ? &grad_op : &complex_grad_op, node->attributes,
              sizeof(ls_scan_attributes), LS_SCAN_GRAD_IN, in, LS_SCAN_GRAD_OUT, out);
    for (int i = 0; i < LS_SCAN_GRAD_OUT; i++)
        if (out[i] != NULL) ls_grad_add(p, in[from[i]], out[i]);
}
