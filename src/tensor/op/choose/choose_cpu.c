#include "tensor/cpu/vector.h"
#include "tensor/op/choose/choose.h"

static void choose(const ls_run *run, const ls_node *node) {
    const ls_choose_attributes *about = node->attributes;
    const ls_tensor *logits = node->in[0];
    int32_t *tokens = ls_data(node->in[1]), *choices = ls_data(node->in[2]);
    for (int64_t b = 0; b < logits->dim[0]; b++) {
        const int64_t first = b * logits->stride[0];
        int64_t best = 0;
        double most = ls_tensor_at(logits, first);
        for (int64_t i = 1; i < about->columns; i++) {
            const double value = ls_tensor_at(logits, first + i);
            if (value > most) most = value, best = i;
        }
        tokens[b] = choices[b * LS_CHOICES + run->start % LS_CHOICES] = (int32_t)best;
    }
}

extern const ls_kernel LS_CPU_TABLE(choose)[];
const ls_kernel LS_CPU_TABLE(choose)[] = {
    {"choose", {choose, choose, choose}, NULL},
    {0},
};
