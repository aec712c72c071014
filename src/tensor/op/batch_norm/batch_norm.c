/* Batch norm (Ioffe and Szegedy 2015) of rows: every channel over all rows of a batch. */
#include "tensor/op/batch_norm/batch_norm.h"

static void backward(ls_program *p, const ls_node *node);
static const ls_op norm_op = {.name = "batch_norm", .any_batch = true, .backward = backward};
static const ls_op grad_op = {.name = "batch_norm_grad"};

ls_init ls_running(double from, double share) {
    return (ls_init){.kind = LS_INIT_CONSTANT,
                     .a = from,
                     .no_decay = true,
                     .full = true,
                     .fixed = true,
                     .running = share};
}

static bool is_row(const ls_program *p, const ls_tensor *x, int64_t width) {
    return x != NULL && ls_count(x) == width && x->type == ls_wide_type(p) &&
           x->role == LS_ROLE_PARAMETER;
}

static bool fits(const ls_program *p, const ls_batch_norm *norm, const ls_tensor *x) {
    int64_t rows, width, stride;
    const ls_tensor *valid = norm->valid;
    return x->rank == 3 && ls_rows(x, &rows, &width, &stride) &&
           (valid == NULL || (valid->type == LS_U8 && valid->rank == 2 &&
                              valid->dim[0] == x->dim[0] && valid->dim[1] == x->dim[1])) &&
           (norm->weight == NULL || is_row(p, norm->weight, width)) &&
           (norm->bias == NULL || is_row(p, norm->bias, width)) && is_row(p, norm->mean, width) &&
           is_row(p, norm->variance, width);
}

ls_tensor *ls_batch_norm_rows(ls_program *p, const ls_batch_norm *norm, ls_tensor *x) {
    if (ls_failed(p) || x == NULL) return NULL;
    const ls_program_options *about = ls_program_about(p);
    const bool own = about->train && ls_adapter_of(p)->rank == 0;
    if (!fits(p, norm, x)) {
        ls_refuse(p, LS_EBUG, "batch_norm: operands do not fit rows [B,T,D]");
        return NULL;
    }
    if (own && about->streaming) {
        ls_refuse(p, LS_EUSE,
                  "model.norm=batch is for whole sequences: it cannot be trained with train.carry "
                  "or train.context");
        return NULL;
    }
    ls_tensor *y = ls_activation(p, ls_type(p), x->rank, x->dim);
    if (y != NULL) y->port = x->port;
    ls_tensor *statistics =
        own ? ls_activation(p, ls_wide_type(p), LS_DIMS(LS_BATCH_NORM_STATISTICS, x->dim[2]))
            : NULL;
    const ls_batch_norm_attributes attributes = {norm->epsilon, norm->unbiased};
    ls_record(p, &norm_op, &attributes, sizeof attributes, 6,
              (ls_tensor *[]){x, norm->valid, norm->weight, norm->bias, norm->mean, norm->variance},
              2, (ls_tensor *[]){y, statistics});
    return y;
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *const *in = node->in, *dy = ls_grad_of(node->out[0]);
    ls_tensor *dx = ls_activation(p, ls_type(p), in[0]->rank, in[0]->dim);
    if (dx != NULL) dx->port = in[0]->port;
    ls_record(p, &grad_op, node->attributes, sizeof(ls_batch_norm_attributes), 8,
              (ls_tensor *[]){in[0], in[1], in[2], in[3], in[4], in[5], node->out[1], dy}, 1, &dx);
    ls_grad_add(p, in[0], dx);
}
