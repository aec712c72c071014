#include "mixer/mamba_layer.h"

#include <math.h>

#include "tensor/op/linear/linear.h"
#include "tensor/op/short_conv/short_conv.h"

ls_init ls_mamba_uniform(int64_t inputs, double shrink) {
    return (ls_init){.kind = LS_INIT_UNIFORM, .a = 1 / sqrt((double)inputs) / shrink};
}

ls_init ls_mamba_full(ls_init init) {
    init.no_decay = init.full = true;
    return init;
}

static void fill_dt_bias(const ls_init *init, double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        double step = fmax(exp(log(init->a) + values[i] * (log(init->b) - log(init->a))), init->c);
        values[i] = step + log(-expm1(-step));
    }
}

ls_init ls_mamba_dt_bias(double min, double max, double floor) {
    return ls_mamba_full(
        (ls_init){.kind = LS_INIT_CUSTOM, .a = min, .b = max, .c = floor, .fill = fill_dt_bias});
}

ls_tensor *ls_mamba_project(ls_program *p, const char *name, ls_tensor *x, int64_t out,
                            ls_init init, bool biased) {
    ls_scope(p, "%s", name);
    ls_tensor *weight =
        ls_param(p, "weight", LS_DIMS(out, x == NULL ? 1 : x->dim[x->rank - 1]), init);
    ls_tensor *bias = biased ? ls_param(p, "bias", LS_DIMS(out), ls_init_bias()) : NULL;
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

ls_tensor *ls_mamba_convolve(ls_program *p, ls_tensor *x, int64_t taps, ls_init init, bool biased) {
    if (x == NULL) return NULL;
    const int64_t E = x->dim[2];
    ls_scope(p, "conv");
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(E, taps), ls_mamba_full(init));
    ls_tensor *bias =
        biased ? ls_param(p, "bias", LS_DIMS(E), ls_mamba_full(ls_mamba_uniform(taps, 1))) : NULL;
    ls_tensor *before = NULL, *after;
    if (taps > 1) before = ls_state_read(p, "rows", ls_type(p), LS_DIMS(x->dim[0], taps - 1, E));
    ls_tensor *y = ls_short_conv(p, true, x, weight, bias, before, &after);
    ls_state_write(p, "rows", after);
    ls_scope_end(p);
    return y;
}
