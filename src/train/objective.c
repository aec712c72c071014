#include "train/objective.h"

#include <string.h>

#include "base/random.h"

ls_status ls_objective_of(ls_ctx *ctx, const ls_model_config *config, ls_objective *out) {
    const ls_model_settings *model = &config->model;
    *out = LS_OBJECTIVE_NEXT;
    if (model->head == LS_HEAD_NONE)
        return LS_FAIL(
            ctx, LS_EUSE,
            "the model has no head (model.head=none): there is nothing that it predicts");
    if (model->head != LS_HEAD_LM && model->head != LS_HEAD_MASKED)
        return LS_FAIL(ctx, LS_EUSE,
                       "a text has no classes: model.head must be lm or masked, or a task be "
                       "trained");
    if (model->head == LS_HEAD_MASKED) {
        *out = LS_OBJECTIVE_MASKED;
        if (model->mask_token < 0 || model->mask_token >= model->vocabulary)
            return LS_FAIL(ctx, LS_EUSE,
                           "it is not known which token masks others: set model.mask_token to an "
                           "id below model.vocabulary (the tokenizer has no [MASK] or <mask>)");
    }
    if (config->encoder_layers > 0) {
        *out = LS_OBJECTIVE_CONTINUE;
        if (model->start_token < 0 || model->start_token >= model->vocabulary)
            return LS_FAIL(
                ctx, LS_EUSE,
                "a text has no source and no answers of its own: the model needs a task, "
                "or model.start_token, the token that a decoder begins with, for the "
                "second half of a text to be told from the first");
    }
    return LS_OK;
}

ls_status ls_objective_mask_of(ls_ctx *ctx, const ls_tokenizer *tokenizer, int32_t *out) {
    static const char *const words[] = {"[MASK]", "<mask>"};
    *out = -1;
    for (size_t i = 0; i < 2 && *out < 0; i++) {
        ls_ids ids = {0};
        LS_TRY(ls_tokenizer_encode(ctx, tokenizer, words[i], strlen(words[i]), LS_ENCODE_SPECIAL,
                                   &ids));
        if (ids.count == 1) *out = ids.at[0];
        ls_ids_clear(ctx, &ids);
    }
    return LS_OK;
}

int64_t ls_objective_source(int64_t T) {
    return T / 2;
}

void ls_objective_cut(const ls_model_config *config, const int32_t *text, int64_t T,
                      int32_t *inputs, int32_t *targets) {
    const int64_t S = ls_objective_source(T);
    memmove(inputs, text, (size_t)S * sizeof *inputs);
    memcpy(targets, text + S, (size_t)(T - S) * sizeof *targets);
    inputs[S] = (int32_t)config->model.start_token;
    memcpy(inputs + S + 1, targets, (size_t)(T - S - 1) * sizeof *inputs);
}

/* Some tokens are chosen: most become the mask, some another token, some stay. */
static void mask_row(const ls_model_config *config, ls_random key, int64_t T, int32_t *inputs,
                     int32_t *targets) {
    const ls_model_settings *model = &config->model;
    for (int64_t t = 0; t < T; t++) {
        const uint64_t at = 3 * (uint64_t)t;
        const bool chosen = ls_random_unit(key, at) < model->mask_share;
        const double kind = ls_random_unit(key, at + 1);
        targets[t] = chosen ? inputs[t] : -1;
        if (!chosen || kind >= 0.9) continue;
        inputs[t] = kind < 0.8 ? (int32_t)model->mask_token
                               : (int32_t)ls_random_below(key, at + 2, (uint64_t)model->vocabulary);
    }
}

static void text_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                      int32_t *targets, bool *fresh) {
    const ls_objective_batches *b = user;
    const int64_t T = b->length, S = ls_objective_source(T);
    const bool masks = b->objective == LS_OBJECTIVE_MASKED;
    ls_loader_rows(b->loader, batch, row, rows, inputs, masks ? targets : b->spare, fresh);
    for (int64_t i = 0; i < rows; i++) {
        /* each row of each batch has numbers of its own */
        const ls_random key = {b->seed ^ (uint64_t)(row + i) << 32, ls_stream_of("mask"),
                               (uint32_t)batch};
        if (masks)
            mask_row(b->config, key, T, inputs + i * T, targets + i * T);
        else
            ls_objective_cut(b->config, inputs + i * T, T, inputs + i * T, targets + i * (T - S));
        fresh[i] = true;
    }
}

void ls_objective_skip(const int32_t *inputs, const int32_t *targets, int64_t first, int64_t end,
                       int64_t length, int32_t *row, int32_t *wanted) {
    const int64_t gap = end - length;
    for (int64_t t = 0; t < length; t++) {
        row[t] = inputs[t < first ? t : t + gap];
        wanted[t] = targets[t < first ? t : t + gap];
    }
    wanted[first - 1] = row[first];
}

/* Two parts of each text, cut where the positions are. */
static void skipped_rows(const void *user, int64_t batch, int64_t row, int64_t rows,
                         int32_t *inputs, int32_t *targets, bool *fresh) {
    const ls_objective_batches *b = user;
    const int64_t T = b->length, S = b->text * T;
    int32_t *texts = b->spare, *follow = texts + rows * S;
    ls_loader_rows(b->loader, batch, row, rows, texts, follow, fresh);
    for (int64_t i = 0; i < rows; i++) {
        const ls_place_draw about = {.seed = b->seed,
                                     .batch = batch,
                                     .row = row + i,
                                     .length = T,
                                     .model_length = b->config->model.length};
        const ls_random key = {b->seed ^ (uint64_t)(row + i) << 32, ls_stream_of("gap"),
                               (uint32_t)batch};
        ls_ctx quiet = ls_ctx_default();
        ls_places_drawn drawn = {0};
        int64_t tokens = S;
        while (tokens > T && follow[i * S + tokens - 1] < 0) tokens--; /* a document that ends */
        ls_position_draw(&quiet, &b->config->position, &about, &drawn);
        const int64_t end = T + (int64_t)ls_random_below(key, 0, (uint64_t)(tokens - T + 1));
        ls_objective_skip(texts + i * S, follow + i * S, drawn.first, end, T, inputs + i * T,
                          targets + i * T);
    }
}

ls_status ls_objective_batches_init(ls_ctx *ctx, const ls_loader *loader,
                                    const ls_model_config *config,
                                    const ls_train_settings *settings, int64_t text,
                                    ls_objective_batches *out) {
    *out = (ls_objective_batches){.loader = loader, .config = config, .text = text};
    LS_TRY(ls_objective_of(ctx, config, &out->objective));
    out->length = settings->length;
    out->seed = (uint64_t)settings->seed;
    if (out->objective != LS_OBJECTIVE_NEXT && settings->carry > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.carry is for language models: a text that is read both ways, or cut "
                       "into a source and what follows, is whole");
    if (out->objective == LS_OBJECTIVE_CONTINUE && out->length < 2)
        return LS_FAIL(ctx, LS_EUSE, "train.length must be at least 2: half of it is the source");
    if (out->objective != LS_OBJECTIVE_CONTINUE && out->text == 1) return LS_OK;
    out->spare =
        ls_new(ctx, (size_t)(2 * out->text * settings->batch * out->length), sizeof *out->spare);
    return out->spare == NULL ? LS_ENOMEM : LS_OK;
}

static ls_status batches_status(ls_ctx *ctx, const void *user) {
    return ls_loader_status(ctx, ((const ls_objective_batches *)user)->loader);
}

ls_train_source ls_objective_batches_source(const ls_objective_batches *batches) {
    const int64_t V = batches->config->model.vocabulary;
    ls_train_source source = ls_train_source_of(batches->loader, V);
    if (batches->objective == LS_OBJECTIVE_NEXT && batches->text == 1) return source;
    source.user = batches;
    source.status = batches_status;
    if (batches->text > 1) {
        source.rows = skipped_rows;
        return source;
    }
    source.rows = text_rows;
    source.resets = false;
    if (batches->objective == LS_OBJECTIVE_CONTINUE) {
        source.source = ls_objective_source(batches->length);
        source.inputs = batches->length;
        source.targets = batches->length - source.source;
    }
    return source;
}
