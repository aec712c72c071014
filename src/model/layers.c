#include "model/layers.h"

static const struct {
    ls_act_kind kind;
    bool gated;
} activations[] = {{LS_ACT_GELU, false}, {LS_ACT_GELU_TANH, false}, {LS_ACT_SILU, false},
                   {LS_ACT_RELU, false}, {LS_ACT_RELU2, false},     {LS_ACT_GELU, true},
                   {LS_ACT_SILU, true},  {LS_ACT_RELU, true},       {LS_ACT_GELU_TANH, true}};

ls_norm ls_layer_norm_of(ls_program *p, const ls_model_settings *about, const char *name,
                         int64_t width) {
    const bool batch = about->norm == LS_MODEL_NORM_BATCH, weighted = about->norm_weight;
    const bool layer = batch || about->norm == LS_MODEL_NORM_LAYER;
    const bool biased =
        about->norm_bias == LS_NORM_BIAS_AS_BIAS ? about->bias : about->norm_bias == LS_NORM_BIAS;
    ls_norm norm = {.kind = layer ? LS_NORM_LAYER : LS_NORM_RMS, .epsilon = about->epsilon};
    ls_scope(p, "%s", name);
    if (weighted) norm.weight = ls_param(p, "weight", LS_DIMS(width), ls_init_gain());
    if (weighted && layer && biased)
        norm.bias = ls_param(p, "bias", LS_DIMS(width), ls_init_bias());
    if (batch) {
        norm.mean = ls_param(p, "mean", LS_DIMS(width), ls_running(0, about->norm_momentum));
        norm.variance =
            ls_param(p, "variance", LS_DIMS(width), ls_running(1, about->norm_momentum));
        norm.unbiased = about->norm_unbiased;
    }
    ls_scope_end(p);
    return norm;
}

ls_tensor *ls_layer_norm(ls_program *p, const ls_model_settings *about, const char *name,
                         ls_tensor *x, ls_tensor *delta, ls_tensor *valid) {
    ls_norm norm = ls_layer_norm_of(p, about, name, about->width);
    norm.valid = about->norm_padding ? NULL : valid;
    return ls_norm_rows(p, &norm, x, delta, NULL);
}

int64_t ls_hidden_width(const ls_model_settings *about) {
    if (about->hidden > 0) return about->hidden;
    bool gated = activations[about->activation].gated;
    return gated ? ls_round_up(8 * about->width / 3, 32) : 4 * about->width;
}

ls_tensor *ls_feed_forward(ls_program *p, const ls_model_settings *about, ls_tensor *x) {
    ls_act_kind kind = activations[about->activation].kind;
    bool gated = activations[about->activation].gated;
    int64_t F = ls_hidden_width(about);
    ls_scope(p, "ffn");
    ls_tensor *up = ls_project(p, about, "up", x, gated ? 2 * F : F, about->bias);
    ls_tensor *hidden = ls_activate(p, kind, gated, up);
    if (about->inner_norm) {
        const ls_norm norm = ls_layer_norm_of(p, about, "norm", F);
        hidden = ls_norm_rows(p, &norm, hidden, NULL, NULL);
    }
    ls_tensor *down = ls_project(p, about, "down", hidden, about->width, about->bias);
    ls_scope_end(p);
    return ls_dropout(p, down, about->dropout);
}

ls_tensor *ls_project(ls_program *p, const ls_model_settings *about, const char *name, ls_tensor *x,
                      int64_t out, bool biased) {
    const int64_t in = x == NULL ? 1 : x->dim[x->rank - 1];
    ls_scope(p, "%s", name);
    ls_tensor *weight = ls_param(p, "weight", LS_DIMS(out, in), ls_init_normal(about->init));
    ls_tensor *bias = biased ? ls_param(p, "bias", LS_DIMS(out), ls_init_bias()) : NULL;
    ls_scope_end(p);
    return ls_linear(p, x, weight, bias);
}

ls_tensor *ls_gated_unit(ls_program *p, const ls_model_settings *about, const char *name,
                         const char *own, ls_tensor *x, ls_tensor *before) {
    const int64_t D = about->width, widths[3] = {D, D, D};
    ls_tensor *in[3], *kept[3];
    ls_scope(p, "%s", name);
    ls_tensor *from_x = ls_project(p, about, "input", x, 3 * D, true);
    ls_tensor *from_before = ls_project(p, about, own, before, 3 * D, true);
    ls_scope_end(p);
    if (from_x == NULL || from_before == NULL) return NULL;
    ls_split(p, from_x, 3, widths, in);
    ls_split(p, from_before, 3, widths, kept);
    ls_tensor *recalled = ls_gate(p, LS_ACT_SIGMOID, ls_plus(p, in[0], kept[0]), kept[2]);
    ls_tensor *fresh = ls_activate(p, LS_ACT_TANH, false, ls_plus(p, in[2], recalled));
    ls_tensor *change = ls_plus(p, before, ls_times(p, fresh, -1));
    return ls_plus(p, fresh, ls_gate(p, LS_ACT_SIGMOID, ls_plus(p, in[1], kept[1]), change));
}
