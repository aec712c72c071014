/* The layers as they are: every token sees all that its mixers let it see. */
#include "model/stack.h"
#include "model/wrap.h"

static bool serves(const ls_model_config *config) {
    return config->model.segment == 0 && config->encoder_layers == 0;
}

static ls_tensor *rows(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding) {
    (void)how;
    const ls_stack layers = ls_stack_whole(config);
    ls_tensor *x = ls_embed_tokens(p, &config->model, tokens, embedding);
    return ls_stack_record(p, config, &layers, x, valid);
}

const ls_wrap_type ls_wrap_plain = {
    .name = "plain", .summary = "the layers alone", .serves = serves, .rows = rows};
