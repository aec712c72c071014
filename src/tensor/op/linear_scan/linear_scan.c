/* The linear recurrence that retention (arXiv 2307.08621) and causal linear attention (arXiv
 * 2006.16236, 2009.14794) share: see ops.h for the formulas.
 *
 * Nothing of the size [B,T,H,K,V] is ever stored. The backward part keeps no states either: the
 * gradient of q needs those before each chunk, which it computes again on the way forward; those of
 * k and v need the gradient of the state, which comes back from the end. */
#include "tensor/op/linear_scan/linear_scan.h"

static void backward(ls_program *p, const ls_node *node);

/* Per token, head and element of the state: a product is added to it, and it is read. */
static double flops(const ls_node *node) {
    return 4.0 * (double)ls_count(node->in[LS_LINEAR_SCAN_K]) *
           (double)node->in[LS_LINEAR_SCAN_BEFORE]->dim[3];
}
static double grad_flops(const ls_node *node) {
    return 2.5 * flops(node); /* the state again, its gradient, and those of q, k and v */
}

static const ls_op scan_op = {.name = "linear_scan", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "linear_scan_grad", .flops = grad_flops};

static bool fits(const ls_program *p, const ls_linear_scan_operands *scan, bool sums) {
    const ls_tensor *q = scan->q, *k = scan->k, *v = scan->v, *before = scan->before;
    if (q->rank != 4 || k->rank != 4 || v->rank != 4 || before->rank != 4) return false;
    for (int axis = 0; axis < 4; axis++)
        if (q->dim[axis] != k->dim[axis] || (axis < 3 && q->dim[axis] != v->dim[axis]))
            return false;
    return before->base == NULL && before->type == ls_wide_type(p) && before->dim[0] == q->dim[0] &&
           before->dim[1] == q->dim[2] && before->dim[2] == q->dim[3] &&
           before->dim[3] == v->dim[3] + sums;
}

/* Fast kernels take powers of a feature's decay apart between queries and keys of a chunk, which
 * stays in range for what is checked here; a head's own decay is never taken apart. */
static bool decays_fit(const ls_linear_scan_operands *scan) {
    for (int64_t h = 0; scan->log_decay != NULL && h < scan->q->dim[2]; h++)
        if (!(scan->log_decay[h] <= 0)) return false;
    for (int64_t i = 0; scan->feature_log_decay != NULL && i < scan->q->dim[3]; i++)
        if (!(scan->feature_log_decay[i] <= 0 && scan->feature_log_decay[i] >= -1)) return false;
    return true;
}

ls_tensor *ls_linear_scan(ls_program *p, const ls_linear_scan_operands *scan, ls_tensor **sums,
                          ls_tensor **after) {
    if (after != NULL) *after = NULL;
    if (sums != NULL) *sums = NULL;
    if (ls_failed(p) || scan->q == NULL || scan->k == NULL || scan->v == NULL ||
        scan->before == NULL)
        return NULL;
    if (!fits(p, scan, sums != NULL) || !decays_fit(scan)) {
        ls_refuse(p, LS_EBUG, "linear_scan: the operands do not fit");
        return NULL;
    }
    const int64_t *dim = scan->v->dim, K = scan->q->dim[3];
    const ls_dtype wide = ls_wide_type(p);
    ls_tensor *y = ls_activation(p, ls_type(p), 4, dim);
    ls_tensor *last = ls_activation(p, wide, 4, scan->before->dim);
    ls_tensor *total = sums == NULL ? NULL : ls_activation(p, wide, 3, dim);
    ls_tensor *feature_decay = scan->feature_log_decay == NULL
                                   ? NULL
                                   : ls_constant(p, wide, LS_DIMS(K), scan->feature_log_decay);
    ls_tensor *in[LS_LINEAR_SCAN_IN] = {scan->q,
                                        scan->k,
                                        scan->v,
                                        scan->before,
                                        ls_constant(p, wide, 1, &dim[2], scan->log_decay),
                                        feature_decay,
                                        scan->rooted ? ls_begins(p) : NULL};
    const ls_linear_scan_attributes about = {.sums = sums != NULL, .rooted = scan->rooted};
    ls_record(p, &scan_op, &about, sizeof about, LS_LINEAR_SCAN_IN, in, LS_LINEAR_SCAN_OUT,
              (ls_tensor *[]){y, total, last});
    if (after != NULL) *after = last;
    if (sums != NULL) *sums = total;
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *in[LS_LINEAR_SCAN_GRAD_IN], *out[LS_LINEAR_SCAN_GRAD_OUT] = {0};
    const ls_tensor *sums = node->out[LS_LINEAR_SCAN_SUMS];
    for (int i = 0; i < LS_LINEAR_SCAN_IN; i++) in[i] = node->in[i];
    in[LS_LINEAR_SCAN_DY] = ls_grad_of(node->out[LS_LINEAR_SCAN_Y]);
    in[LS_LINEAR_SCAN_DSUMS] = sums == NULL ? NULL : ls_grad_of(sums);
    in[LS_LINEAR_SCAN_DAFTER] = ls_grad_of(node->out[LS_LINEAR_SCAN_AFTER]);
    for (int i = 0; i < LS_LINEAR_SCAN_GRAD_OUT; i++)
        if (i < LS_LINEAR_SCAN_DBEFORE || in[i]->needs_grad) out[i] = ls_grad_target(p, in[i]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_linear_scan_attributes),
              LS_LINEAR_SCAN_GRAD_IN, in, LS_LINEAR_SCAN_GRAD_OUT, out);
    for (int i = 0; i < LS_LINEAR_SCAN_GRAD_OUT; i++)
        if (out[i] != NULL) ls_grad_add(p, in[i], out[i]);
}
