/* A language model: a token after each token. */
#include <math.h>

#include "model/head.h"
#include "model/layers.h"

static bool serves(const ls_model_settings *about) {
    return about->head == LS_HEAD_LM && about->adaptive_cutoffs.count == 0;
}

static ls_status check(ls_ctx *ctx, const ls_model_settings *about) {
    if (about->head != LS_HEAD_LM) return LS_OK;
    if (!about->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.causal=false: a language model would see the tokens it predicts (set "
                       "model.head=masked, classify or match)");
    return LS_OK;
}

static ls_output output(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    const int64_t V = about->vocabulary, inner = about->embedding_width;
    ls_tensor *bias = NULL, *weight = in->embedding, *x = in->x;
    if (inner > 0) x = ls_project(p, about, "head.project", x, inner, false);
    if (about->head_bias) bias = ls_param(p, "head.bias", LS_DIMS(V), ls_init_bias());
    if (!about->tied)
        weight = ls_param(p, "head.weight", LS_DIMS(V, inner > 0 ? inner : about->width),
                          ls_init_normal(about->init));
    if (about->scale_head) x = ls_times(p, x, 1 / sqrt((double)about->width));
    return (ls_output){x, weight, bias};
}

const ls_head_type ls_head_language = {
    .name = "language",
    .summary = "the next token of each token",
    .sequences = 1,
    .serves = serves,
    .check = check,
    .output = output,
};
