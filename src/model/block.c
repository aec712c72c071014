#include "model/block.h"

#include <stdio.h>
#include <string.h>

static const struct form {
    bool before, after, of_sum, last;
} forms[] = {
#define FORM(name, word, ...) [LS_PLACE_##name] = {__VA_ARGS__},
    LS_BLOCK_FORMS(FORM)
#undef FORM
};

/* A batch norm counts each row once, and knows which are padding. */
static ls_status check_batch_norm(ls_ctx *ctx, const ls_model_settings *about) {
    if (about->norm != LS_MODEL_NORM_BATCH) return LS_OK;
    if (about->segment > 0 || about->memory > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.norm=batch is for whole sequences, not for model.segment or "
                       "model.memory");
    if (strcmp(about->encoder_layers, "0") != 0)
        return LS_FAIL(ctx, LS_EUSE, "model.norm=batch is for models without model.encoder_layers");
    if (about->inner_norm || about->head == LS_HEAD_MASKED)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.norm=batch is for the norms of blocks, not for model.inner_norm or "
                       "model.head=masked");
    return LS_OK;
}

ls_status ls_block_check(ls_ctx *ctx, const ls_model_settings *about) {
    const struct form *form = &forms[about->norm_place];
    LS_TRY(check_batch_norm(ctx, about));
    if (about->residual == LS_RESIDUAL_GRU && form->of_sum)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.residual=gru is for model.norm_place=pre, sandwich or branch");
    if (about->residual == LS_RESIDUAL_NORMED && !form->before)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.residual=normed is for model.norm_place=pre or sandwich");
    if (about->residual == LS_RESIDUAL_NONE && form->of_sum)
        return LS_FAIL(ctx, LS_EUSE, "model.residual=none leaves no sum for model.norm_place=post");
    if (about->parallel == LS_PARALLEL_NO) return LS_OK;
    if (!about->feed_forward)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.parallel is for model.feed_forward=true: a mixer alone has nothing "
                       "beside it");
    if (form->of_sum)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.parallel is for model.norm_place=pre, sandwich or branch");
    if (about->parallel == LS_PARALLEL_ONE_NORM && !form->before)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.parallel=one_norm is for model.norm_place=pre or sandwich: there is "
                       "no norm to share");
    if (about->residual != LS_RESIDUAL_SUM)
        return LS_FAIL(ctx, LS_EUSE, "model.parallel is for model.residual=sum");
    return LS_OK;
}

static ls_norm norm_of(ls_program *p, const ls_model_settings *about, const ls_sublayer *sublayer,
                       const char *which, const ls_residual *rows) {
    char name[64];
    snprintf(name, sizeof name, "%snorm%s%s", sublayer->scope, sublayer->suffix, which);
    ls_norm norm = ls_layer_norm_of(p, about, name, about->width);
    norm.valid = about->norm_padding ? NULL : rows->valid;
    return norm;
}

/* What the sublayer reads. A later one of a parallel block reads what the first did. */
static ls_sublayer_input input_of(ls_program *p, const ls_model_settings *about,
                                  const ls_sublayer *sublayer, ls_residual *rows) {
    const bool again = rows->begun && about->parallel != LS_PARALLEL_NO;
    if (!forms[about->norm_place].before)
        return (ls_sublayer_input){.x = again ? rows->x : ls_residual_sum(p, rows)};
    if (again && about->parallel == LS_PARALLEL_ONE_NORM)
        return (ls_sublayer_input){.x = rows->block_norm};
    ls_sublayer_input in = {.norm = norm_of(p, about, sublayer, "", rows)};
    ls_tensor *delta = again ? NULL : rows->delta;
    in.x = ls_norm_rows(p, &in.norm, rows->x, delta, again ? NULL : &rows->x);
    in.stream = rows->x;
    if (again) return in;
    rows->delta = NULL;
    rows->block_norm = in.x;
    return in;
}

/* What the sublayer made joins the rows. */
static void join(ls_program *p, const ls_model_settings *about, const ls_sublayer *sublayer,
                 const ls_sublayer_input *in, ls_tensor *made, ls_residual *rows) {
    if (forms[about->norm_place].of_sum) {
        const ls_norm norm = norm_of(p, about, sublayer, "", rows);
        rows->x = ls_norm_rows(p, &norm, rows->x, made, NULL);
    } else if (about->residual == LS_RESIDUAL_GRU) {
        char name[64];
        snprintf(name, sizeof name, "%sgate%s", sublayer->scope, sublayer->suffix);
        rows->x = ls_gated_unit(p, about, name, "own", made, rows->x);
    } else if (about->residual == LS_RESIDUAL_NONE) {
        rows->x = made;
        rows->delta = NULL;
    } else {
        if (about->residual == LS_RESIDUAL_NORMED) rows->x = in->x;
        rows->delta = rows->delta == NULL ? made : ls_plus(p, rows->delta, made);
    }
}

void ls_block_begin(ls_residual *rows) {
    rows->begun = false;
    rows->block_norm = NULL;
}

void ls_block_add(ls_program *p, const ls_model_settings *about, const ls_sublayer *sublayer,
                  ls_residual *rows) {
    const ls_sublayer_input in = input_of(p, about, sublayer, rows);
    ls_tensor *made = sublayer->make(p, about, sublayer->what, &in);
    if (forms[about->norm_place].after) {
        const ls_norm norm = norm_of(p, about, sublayer, "_after", rows);
        made = ls_norm_rows(p, &norm, made, NULL, NULL);
    }
    join(p, about, sublayer, &in, made, rows);
    rows->begun = true;
}

ls_tensor *ls_residual_sum(ls_program *p, ls_residual *rows) {
    if (rows->delta != NULL) rows->x = ls_plus(p, rows->x, rows->delta);
    rows->delta = NULL;
    return rows->x;
}

ls_tensor *ls_block_last(ls_program *p, const ls_model_settings *about, const char *norm,
                         ls_residual *rows) {
    if (forms[about->norm_place].last && about->last_norm)
        return ls_layer_norm(p, about, norm, rows->x, rows->delta, rows->valid);
    return ls_residual_sum(p, rows);
}
