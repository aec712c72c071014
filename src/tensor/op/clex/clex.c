/* Learned scaling of rotary frequencies. */
#include "tensor/op/clex/clex.h"

static const ls_op clex_grad = {.name = "clex_grad"};

static void backward(ls_program *p, const ls_node *node) {
    ls_tensor *df = ls_grad_of(node->out[0]), *up = node->in[0], *down = node->in[1];
    if (df == NULL || !up->needs_grad || !down->needs_grad) return;
    ls_tensor *out[2] = {ls_grad_target(p, up), ls_grad_target(p, down)};
    ls_record(p, &clex_grad, node->attributes, sizeof(ls_clex), 4,
              (ls_tensor *[]){df, up, down, node->in[2]}, 2, out);
    ls_grad_add(p, up, out[0]);
    ls_grad_add(p, down, out[1]);
}

static const ls_op clex = {.name = "clex", .backward = backward};

ls_tensor *ls_clex_frequencies(ls_program *p, const ls_clex *about, ls_tensor *up, ls_tensor *down,
                               ls_tensor *scale) {
    if (ls_failed(p) || up == NULL || down == NULL) return NULL;
    const ls_dtype wide = ls_wide_type(p);
    if (up->type != wide || down->type != wide || about->pairs < 2 || about->pairs > LS_PAIRS_MAX ||
        about->steps < 1 || about->most < 1 || about->trained < 1 || up->dim[0] != about->pairs ||
        up->dim[1] != about->hidden || down->dim[0] != about->hidden ||
        down->dim[1] != about->pairs) {
        ls_refuse(p, LS_EBUG,
                  "clex: weights [pairs,hidden] and [hidden,pairs] of at least 2 pairs");
        return NULL;
    }
    ls_clex attributes = *about;
    attributes.chunk = ls_program_about(p)->length;
    ls_tensor *f = ls_activation(p, wide, LS_DIMS(2, about->pairs));
    ls_record(p, &clex, &attributes, sizeof attributes, 3, (ls_tensor *[]){up, down, scale}, 1, &f);
    return f;
}
