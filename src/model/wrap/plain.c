/* The layers as they are: every token sees all that its mixers let it see. */
#include "model/marks.h"
#include "model/stack.h"
#include "model/wrap.h"

static bool serves(const ls_model_config *config) {
    return config->model.segment == 0 && config->encoder_layers == 0;
}

/* What a row is of beside its token: a first or a second text, for example. */
static ls_tensor *add_types(ls_program *p, const ls_model_settings *about, const ls_recording *how,
                            ls_tensor *x) {
    if (x == NULL) return NULL;
    const int64_t B = x->dim[0], T = x->dim[1];
    ls_tensor *types = how->types ? ls_input(p, "types", LS_I32, LS_DIMS(B, T), false)
                                  : ls_constant(p, LS_I32, LS_DIMS(B, T), NULL);
    ls_tensor *table = ls_param(p, "embed.types", LS_DIMS(about->token_types, about->width),
                                ls_init_normal(about->init));
    return ls_plus(p, x, ls_embed(p, types, table));
}

/* Where the tokens stand, if training draws that. */
static ls_tensor *drawn_places(ls_program *p, const ls_model_config *config, ls_tensor *tokens) {
    if (tokens == NULL || !ls_program_about(p)->train || !ls_position_draws(&config->position))
        return NULL;
    for (int i = 0; i < config->mixers; i++) {
        const ls_mixer_type *type = config->mixer[i].type;
        if ((type->traits & LS_MIXER_POSITIONS) && !(type->traits & LS_MIXER_PLACES))
            ls_refuse(p, LS_EUSE, "mixer %s takes no positions that are drawn in training",
                      type->name);
    }
    return ls_input(p, "places", LS_I32, LS_DIMS(tokens->dim[0], tokens->dim[1]), false);
}

static ls_tensor *rows(ls_program *p, const ls_model_config *config, const ls_recording *how,
                       ls_tensor *tokens, ls_tensor *valid, ls_tensor **embedding) {
    ls_stack layers = ls_stack_whole(config);
    layers.places = drawn_places(p, config, tokens);
    ls_tensor *x = ls_embed_tokens(p, &config->model, tokens, embedding);
    if (config->model.token_types > 0) x = add_types(p, &config->model, how, x);
    if (ls_marks_every(config) == 0) return ls_stack_record(p, config, &layers, x, valid);
    x = ls_marks_put(p, config, how->mark_due, x);
    return ls_marks_drop(p, config, how->mark_due, ls_stack_record(p, config, &layers, x, valid));
}

static ls_status check(ls_ctx *ctx, const ls_model_config *config) {
    if (ls_marks_every(config) == 0 || (serves(config) && config->model.head == LS_HEAD_LM))
        return LS_OK;
    return LS_FAIL(ctx, LS_EUSE,
                   "extension landmark is for language models without segments and encoder");
}

const ls_wrap_type ls_wrap_plain = {
    .name = "plain", .summary = "the layers alone", .serves = serves, .check = check, .rows = rows};
