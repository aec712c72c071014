#include "tensor/adamw.h"

#include <math.h>

#include "tensor/program_internal.h"

static void call(const char *name, const ls_adamw *pass, int threads) {
    const ls_kernel *kernel = ls__kernel_find(NULL, name);
    ls_run run = {.threads = threads};
    ls_node node = {.attributes = pass};
    kernel->by_type[pass->type](&run, &node);
}

double ls_adamw_norm(const ls_adamw *pass, int threads) {
    call("adamw_norm", pass, threads);
    double sum = 0;
    for (int64_t i = 0; i < pass->piece_count; i++) sum += pass->sums[i];
    return sqrt(sum);
}

void ls_adamw_apply(const ls_adamw *pass, int threads) {
    call("adamw", pass, threads);
}
