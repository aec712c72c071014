#include "model/head.h"

const ls_head_type *ls_head_of(const ls_model_settings *about) {
    size_t i = 0;
    while (i + 1 < ls_head_count && !ls_head_types[i]->serves(about)) i++;
    return ls_head_types[i];
}

ls_tensor *ls_head_logits(ls_program *p, const ls_model_settings *about, ls_output out) {
    const ls_head_type *head = ls_head_of(about);
    if (head->logits != NULL) return head->logits(p, about, out);
    ls_tensor *logits = ls_linear(p, out.x, out.weight, out.bias);
    if (about->logit_cap == 0) return logits;
    logits = ls_activate(p, LS_ACT_TANH, false, ls_times(p, logits, 1 / about->logit_cap));
    return ls_times(p, logits, about->logit_cap);
}

ls_tensor *ls_head_loss(ls_program *p, const ls_model_settings *about, ls_output out,
                        ls_tensor *targets, ls_tensor *weights, double smoothing) {
    const ls_head_type *head = ls_head_of(about);
    if (head->loss != NULL) return head->loss(p, about, out, targets, weights, smoothing);
    return ls_linear_cross_entropy(p, out.x, out.weight, out.bias, targets, weights, smoothing,
                                   about->logit_cap);
}

ls_tensor *ls_head_pool(ls_program *p, const ls_model_settings *about, const ls_head_input *in) {
    return ls_pool_rows(p, (ls_pool_kind)about->pool, in->x, in->valid);
}

ls_output ls_head_classes(ls_program *p, const ls_model_settings *about, ls_tensor *x) {
    if (x == NULL) return (ls_output){0};
    const ls_init init = ls_init_normal(about->head_init > 0 ? about->head_init : about->init);
    if (about->head_hidden > 0) {
        ls_tensor *weight =
            ls_param(p, "head.hidden.weight", LS_DIMS(about->head_hidden, x->dim[1]), init);
        ls_tensor *bias =
            ls_param(p, "head.hidden.bias", LS_DIMS(about->head_hidden), ls_init_bias());
        x = ls_dropout(p, ls_linear(p, x, weight, bias), about->dropout);
        x = ls_activate(p, LS_ACT_GELU, false, x);
        if (x == NULL) return (ls_output){0};
    }
    return (ls_output){x, ls_param(p, "head.weight", LS_DIMS(about->classes, x->dim[1]), init),
                       about->head_hidden > 0
                           ? NULL
                           : ls_param(p, "head.bias", LS_DIMS(about->classes), ls_init_bias())};
}

ls_status ls_head_classes_check(ls_ctx *ctx, const ls_model_settings *about) {
    if (ls_head_of(about)->classes && about->pool == LS_POOL_FIRST && about->causal)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.pool=first reads a row that has seen one token alone: set "
                       "model.causal=false or another pool");
    return LS_OK;
}

ls_status ls_head_classes_complete(ls_ctx *ctx, const ls_model_settings *about) {
    if (about->classes < 2)
        return LS_FAIL(ctx, LS_EUSE, "model.classes must be at least 2 (a task sets it by itself)");
    return LS_OK;
}
