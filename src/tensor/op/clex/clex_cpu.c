#include "tensor/cpu/vector.h"
#include "tensor/op/clex/clex_walk.h"

static size_t workspace(const ls_node *node, int threads) {
    (void)threads;
    return (size_t)ls_clex_room(node->attributes, node->in_count == 4) * sizeof(double);
}

static int64_t scale_of(const ls_run *run, const ls_clex *about, const ls_tensor *scale) {
    const int64_t given = scale == NULL ? 0 : *(const int32_t *)ls_data(scale);
    return ls_clex_scale(about, given, run->start + about->chunk);
}

static void load(double *to, const ls_tensor *from) {
    for (int64_t i = 0; i < ls_count(from); i++) to[i] = ls_tensor_at(from, i);
}

static void frequencies(const ls_run *run, const ls_node *node) {
    const ls_clex *about = node->attributes;
    const int64_t scale = scale_of(run, about, node->in[2]);
    clex_walk w = clex_walk_in(about, run->workspace, false);
    load(w.up, node->in[0]);
    load(w.down, node->in[1]);
    const double *z = clex_forward(&w, scale, false);
    for (int64_t i = 0; i < about->pairs; i++) {
        const double f = scale == 1 ? about->frequency[i] : exp(z[i]);
        ls_tensor_set(node->out[0], i, f);
        ls_tensor_set(node->out[0], about->pairs + i, f - ls_tensor_at(node->out[0], i));
    }
}

static void gradient(const ls_run *run, const ls_node *node) {
    const ls_clex *about = node->attributes;
    const int64_t scale = scale_of(run, about, node->in[3]);
    const int64_t weights = about->pairs * about->hidden;
    clex_walk w = clex_walk_in(about, run->workspace, true);
    load(w.up, node->in[1]);
    load(w.down, node->in[2]);
    for (int64_t i = 0; i < weights; i++) w.dup[i] = w.ddown[i] = 0;
    const double *z = clex_forward(&w, scale, true);
    for (int64_t i = 0; i < about->pairs; i++) w.dz[i] = exp(z[i]) * ls_tensor_at(node->in[0], i);
    clex_backward(&w, scale);
    for (int64_t i = 0; i < weights; i++) {
        ls_tensor_set(node->out[0], i, w.dup[i]);
        ls_tensor_set(node->out[1], i, w.ddown[i]);
    }
}

const ls_kernel LS_CPU_TABLE(clex)[] = {
    {"clex", {frequencies, frequencies, frequencies}, workspace},
    {"clex_grad", {gradient, gradient, gradient}, workspace},
    {0},
};
