/* Sums of blocks of rows (LongT5's side tokens, arXiv 2112.07916 section 3.1.2). */
#include "tensor/op/block_sums/block_sums.h"

static void backward(ls_program *p, const ls_node *node);
static double flops(const ls_node *node) {
    return (double)ls_count(node->in[0]);
}
static const ls_op sums_op = {.name = "block_sums", .backward = backward, .flops = flops};
static const ls_op grad_op = {.name = "block_sums_grad"};

ls_tensor *ls_block_sums(ls_program *p, ls_tensor *x, ls_tensor *valid, int64_t block, bool adopt,
                         ls_tensor **most, ls_tensor **there) {
    *most = *there = NULL;
    if (ls_failed(p) || x == NULL) return NULL;
    int64_t rows, width, stride;
    bool fits = x->rank == 3 && ls_rows(x, &rows, &width, &stride) && block >= 1 &&
                x->dim[1] >= block &&
                (valid == NULL || (valid->type == LS_U8 && valid->rank == 2 &&
                                   valid->dim[0] == x->dim[0] && valid->dim[1] == x->dim[1]));
    if (!fits) {
        ls_refuse(p, LS_EBUG, "block_sums: blocks of %lld rows do not fit", (long long)block);
        return NULL;
    }
    const int64_t B = x->dim[0], blocks = x->dim[1] / block;
    ls_tensor *out[3] = {ls_activation(p, ls_type(p), LS_DIMS(B, blocks, width)),
                         ls_activation(p, LS_I32, LS_DIMS(B)),
                         ls_activation(p, LS_U8, LS_DIMS(B, blocks))};
    ls_block_sums_attributes attributes = {block, adopt};
    ls_record(p, &sums_op, &attributes, sizeof attributes, 2, (ls_tensor *[]){x, valid}, 3, out);
    *most = out[1];
    *there = out[2];
    return out[0];
}

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *dy = ls_grad_of(node->out[0]);
    if (dy == NULL || !node->in[0]->needs_grad) return;
    ls_tensor *dx = ls_grad_target(p, node->in[0]);
    ls_record(p, &grad_op, node->attributes, sizeof(ls_block_sums_attributes), 2,
              (ls_tensor *[]){dy, node->in[1]}, 1, &dx);
    ls_grad_add(p, node->in[0], dx);
}
