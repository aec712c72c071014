#include "tensor/op/fp8/fp8.h"

#include "tensor/engine/program_internal.h"

/* ---- operands ---- */

/* in: x, bias; out: factor [1], codes, codes transposed (either may be NULL). Where x is the
 * gradient of a layer with a bias, its rows are added to the bias's gradient on the way. */
static double cast_flops(const ls_node *node) {
    return (double)ls_count(node->in[0]);
}
static const ls_op cast_op = {.name = "fp8_cast", .flops = cast_flops};

typedef struct operand {
    ls_tensor *factor, *codes, *turned;
} operand;

static operand cast(ls_program *p, ls_tensor *x, ls_tensor *bias, ls_dtype type, bool rows,
                    bool columns) {
    int64_t count, width, stride;
    ls_rows(x, &count, &width, &stride);
    operand made = {.factor = ls_activation(p, LS_F32, LS_DIMS(1))};
    if (rows) made.codes = ls_activation(p, type, LS_DIMS(count, width));
    if (columns) made.turned = ls_activation(p, type, LS_DIMS(width, count));
    ls_record(p, &cast_op, NULL, 0, 2, (ls_tensor *[]){x, bias}, 3,
              (ls_tensor *[]){made.factor, made.codes, made.turned});
    return made;
}

/* What several layers read is cast once: x of a forward part, whose tensors are written once, and a
 * weight. */
static operand cast_once(ls_program *p, ls_tensor *x, bool columns) {
    for (size_t i = p->nodes.count; i > 0 && !ls_failed(p); i--) {
        ls_node *node = p->nodes.at[i - 1];
        const bool here = node->apart == p->apart || x->role == LS_ROLE_PARAMETER;
        if (node->op != &cast_op || node->in[0] != x || !here) continue;
        if (columns && node->out[2] == NULL)
            node->out[2] =
                ls_activation(p, LS_E4M3, LS_DIMS(node->out[1]->dim[1], node->out[1]->dim[0]));
        return (operand){node->out[0], node->out[1], node->out[2]};
    }
    return cast(p, x, NULL, LS_E4M3, true, columns);
}

/* ---- products ---- */

/* C = A B^T: in: A [m, k], its factor, B [n, k], its factor, bias; out: C */
static double flops(const ls_node *node) {
    return 2.0 * (double)ls_count(node->in[0]) * (double)node->in[2]->dim[0];
}
static const ls_op input_grad_op = {.name = "linear_fp8_input_grad", .flops = flops};
/* in: A, its factor, B, its factor, weight: adds to its gradient */
static const ls_op weight_grad_op = {.name = "linear_fp8_weight_grad", .flops = flops};

/* What the backward part needs of a layer is among its operands. */
enum { FACTOR_X = 1, FACTOR_W = 3, BIAS, X, WEIGHT, X_TURNED, W_TURNED, OPERANDS };

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *const *in = node->in, *dy = ls_grad_of(node->out[0]);
    const bool weight = in[WEIGHT]->needs_grad, input = in[X]->needs_grad;
    const operand d = cast(p, dy, weight ? in[BIAS] : NULL, LS_E5M2, input, weight);
    if (weight)
        ls_record(p, &weight_grad_op, NULL, 0, 5,
                  (ls_tensor *[]){d.turned, d.factor, in[X_TURNED], in[FACTOR_X], in[WEIGHT]}, 0,
                  NULL);
    if (!input) return;
    ls_tensor *dx = ls_grad_target(p, in[X]);
    ls_record(p, &input_grad_op, NULL, 0, 5,
              (ls_tensor *[]){d.codes, d.factor, in[W_TURNED], in[FACTOR_W], NULL}, 1, &dx);
    ls_grad_add(p, in[X], dx);
}
static const ls_op linear_op = {.name = "linear_fp8", .backward = backward, .flops = flops};

bool ls_fp8_fits(const ls_program *p, const ls_tensor *x, const ls_tensor *weight) {
    int64_t rows, width, stride;
    return p->options.fp8 && p->options.grad && x->type == LS_BF16 && x->port < 0 &&
           x->role != LS_ROLE_STATE && ls_rows(x, &rows, &width, &stride) &&
           rows % LS_FP8_MULTIPLE == 0 && width % LS_FP8_MULTIPLE == 0 &&
           stride % LS_FP8_MULTIPLE == 0 && x->offset % LS_FP8_MULTIPLE == 0 &&
           weight->dim[0] % LS_FP8_MULTIPLE == 0;
}

ls_tensor *ls_fp8_linear(ls_program *p, ls_tensor *x, ls_tensor *weight, ls_tensor *bias) {
    int64_t dim[LS_RANK_MAX];
    memcpy(dim, x->dim, sizeof dim);
    dim[x->rank - 1] = weight->dim[0];
    const operand a = cast_once(p, x, weight->needs_grad), b = cast_once(p, weight, x->needs_grad);
    ls_tensor *y = ls_activation(p, x->type, x->rank, dim);
    ls_param_gated(p, weight);
    ls_record(
        p, &linear_op, NULL, 0, OPERANDS,
        (ls_tensor *[]){a.codes, a.factor, b.codes, b.factor, bias, x, weight, a.turned, b.turned},
        1, &y);
    return y;
}
