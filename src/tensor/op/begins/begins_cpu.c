/* Rows and places that are a sequence's own: few bytes, so any type goes one way. */
#include "tensor/engine/program.h"

static void own_rows(const ls_run *run, const ls_node *node) {
    const int64_t each = *(const int64_t *)node->attributes;
    const int32_t *begins = ls_data(node->in[0]);
    const ls_tensor *own = node->out[0];
    const int64_t B = own->dim[0], N = own->dim[1], first = ls_cache_extent(run, own).first;
    uint8_t *to = ls_data(own);
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < N; j++) to[b * N + j] = (first + j) * each >= begins[b];
}

static void own_places(const ls_run *run, const ls_node *node) {
    const int64_t last = *(const int64_t *)node->attributes;
    const int32_t *begins = ls_data(node->in[0]);
    const ls_tensor *places = node->out[0];
    const int64_t B = places->dim[0], T = places->dim[1];
    int32_t *to = ls_data(places);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0; t < T; t++)
            to[b * T + t] = (int32_t)ls_min(run->start + t - begins[b], last);
}

extern const ls_kernel LS_CPU_TABLE(begins)[];
const ls_kernel LS_CPU_TABLE(begins)[] = {
    {"own_rows", {own_rows, own_rows, own_rows}, NULL},
    {"own_places", {own_places, own_places, own_places}, NULL},
    {0},
};
