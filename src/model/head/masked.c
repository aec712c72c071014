/* A masked language model (arXiv 1810.04805): the token that stood at each place, from what stands
 * around it on both sides. Before the product there may be a layer with an activation and a
 * norm. */
#include "model/head.h"
#include "model/layers.h"

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_MASKED;
}

static ls_status check(ls_ctx *ctx, const ls_model_settings *about) {
    if (!serves(about)) return LS_OK;
    if (about->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.head=masked reads what stands on both sides of a token: set "
                       "model.causal=false");
    return LS_OK;
}

static ls_tensor *transform(ls_program *p, const ls_model_settings *about, ls_tensor *x) {
    static const ls_act_kind kinds[] = {LS_ACT_NONE, LS_ACT_GELU, LS_ACT_GELU_TANH,
                                        LS_ACT_SILU, LS_ACT_RELU, LS_ACT_RELU2};
    x = ls_project(p, about, "dense", x, about->width, true);
    x = ls_activate(p, kinds[about->head_activation], false, x);
    return ls_layer_norm(p, about, "norm", x, NULL, NULL);
}

static ls_output output(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    const int64_t V = about->vocabulary;
    ls_output out = {.x = in->x, .weight = in->embedding};
    ls_scope(p, "head");
    if (about->head_activation != 0) out.x = transform(p, about, in->x);
    if (about->head_bias) out.bias = ls_param(p, "bias", LS_DIMS(V), ls_init_bias());
    if (!about->tied)
        out.weight = ls_param(p, "weight", LS_DIMS(V, about->width), ls_init_normal(about->init));
    ls_scope_end(p);
    return out;
}

const ls_head_type ls_head_masked = {
    .name = "masked",
    .summary = "the tokens that were masked, from both sides",
    .paper = "arXiv 1810.04805",
    .sequences = 1,
    .padded = true,
    .serves = serves,
    .check = check,
    .output = output,
};
