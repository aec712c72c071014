/* Models: their programs, from tokens through wrap, layers and head: see model.h. */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "model/head.h"
#include "model/marks.h"
#include "model/stack.h"
#include "model/weights.h"
#include "model/wrap.h"

/* Tokens of each sequence that a program is recorded for. */
static int64_t tokens_in(const ls_program *p, const ls_model_config *config,
                         const ls_recording *how) {
    return ls_marks_tokens(ls_marks_every(config), ls_program_about(p)->length, how->mark_due);
}

/* The input "tokens": those of a batch, with those of its sources before them. */
static ls_tensor *tokens_of(ls_program *p, const ls_model_config *config, const ls_recording *how) {
    const ls_program_options *options = ls_program_about(p);
    int64_t source = 0;
    if (ls_wrap_of(config)->reads_source && !how->source_read) {
        if (how->source < 1)
            ls_refuse(p, LS_EUSE,
                      "a model with an encoder reads a source and answers: it needs a task, whose "
                      "samples have both");
        source = ls_max(how->pieces, 1) * how->source;
    }
    return ls_input(p, "tokens", LS_I32,
                    LS_DIMS(options->batch, source + tokens_in(p, config, how)), false);
}

/* The rows of each sequence whose logits are wanted. */
static ls_tensor *picked_rows(ls_program *p, const ls_recording *how, ls_tensor *x) {
    if (how->picked == 0) return ls_last_row(p, x);
    if (how->picked == LS_EVERY_ROW) return x;
    const int64_t B = ls_program_about(p)->batch;
    return ls_pick_rows(p, x, ls_input(p, "at", LS_I32, LS_DIMS(B, how->picked), false));
}

static void record(ls_program *p, const ls_model_config *config, const ls_recording *how) {
    const ls_model_settings *about = &config->model;
    const ls_head_type *head = ls_head_of(about);
    const ls_wrap_type *wrap = ls_wrap_of(config);
    const ls_model_example example = ls_model_example_of(config, tokens_in(p, config, how));
    const int64_t B = ls_program_about(p)->batch / example.sequences;
    if (head->classes && about->causal && ls_program_about(p)->streaming)
        ls_refuse(p, LS_EUSE, "a classifier reads whole sequences: it cannot take them in chunks");
    ls_tensor *tokens = tokens_of(p, config, how);
    ls_head_input in = {0};
    if (example.padded && !wrap->reads_source) in.valid = ls_valid_rows(p, tokens);
    in.x = wrap->rows(p, config, how, tokens, in.valid, &in.embedding);
    if (!head->classes && how->use == LS_MODEL_LOGITS) in.x = picked_rows(p, how, in.x);
    if (how->use == LS_MODEL_CHOICE) in.x = ls_last_row(p, in.x);
    if (head->rows_alone) return; /* parameters are declared: no program of it is run */
    if (ls_stack_other_rows(config)) in.valid = NULL;
    const ls_output out = head->output(p, about, &in);
    if (how->use == LS_MODEL_LOGITS) {
        ls_keep(p, "logits", ls_head_logits(p, about, out));
        return;
    }
    if (how->use == LS_MODEL_CHOICE) {
        ls_tensor *logits = ls_head_logits(p, about, out);
        const int64_t all = logits == NULL ? 0 : logits->dim[1];
        ls_keep(p, "choices", ls_choose(p, logits, how->picked > 0 ? how->picked : all, tokens));
        return;
    }
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, example.targets), false);
    ls_tensor *weights = NULL;
    if (how->use == LS_MODEL_TRAIN)
        weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, example.targets), false);
    ls_keep(p, "loss", ls_head_loss(p, about, out, targets, weights, how->label_smoothing));
}

static void record_observed(ls_program *p, const ls_model_config *config, const ls_recording *how) {
    const ls_model_settings *about = &config->model;
    const ls_head_type *head = ls_head_of(about);
    const ls_wrap_type *wrap = ls_wrap_of(config);
    const int64_t B = ls_program_about(p)->batch, T = tokens_in(p, config, how);
    if (head->classes)
        ls_refuse(p, LS_EUSE,
                  "model.head must be lm here: a classifier has neither rows nor logits "
                  "of its tokens");
    if (how->pieces < 0 || T % ls_max(how->pieces, 1) != 0 ||
        (!wrap->reads_source && how->pieces > 1))
        ls_refuse(p, LS_EBUG, "%lld pieces of %lld tokens", (long long)how->pieces, (long long)T);
    ls_tensor *tokens = tokens_of(p, config, how);
    if (ls_failed(p)) return;
    ls_head_input in = {0};
    if (head->padded) in.valid = ls_valid_rows(p, tokens);
    in.x = wrap->rows(p, config, how, tokens, in.valid, &in.embedding);
    ls_observe(p, "rows", in.x);
    if (head->rows_alone) return;
    ls_tensor *targets = ls_input(p, "targets", LS_I32, LS_DIMS(B, T), false);
    ls_tensor *weights = ls_input(p, "weights", ls_wide_type(p), LS_DIMS(B, T), false);
    if (!ls_program_about(p)->grad) weights = NULL;
    const ls_output out = head->output(p, about, &in);
    ls_tensor *logits = ls_head_logits(p, about, out);
    if (head->logits != NULL)
        ls_keep(p, "logits", logits); /* they have no gradient */
    else
        ls_observe(p, "logits", logits);
    ls_keep(p, "loss", ls_head_loss(p, about, out, targets, weights, how->label_smoothing));
}

ls_model_example ls_model_example_of(const ls_model_config *config, int64_t T) {
    const ls_head_type *head = ls_head_of(&config->model);
    const ls_mixer first = ls_model_mixer(config, 0);
    const int64_t trained = ls_mixer_result_of(&first).trained;
    return (ls_model_example){.sequences = head->sequences,
                              .inputs = head->sequences * T,
                              .targets = head->classes ? 1 : T,
                              .trained = head->classes ? 1
                                         : trained > 0 ? ls_min(trained, T)
                                                       : T,
                              .answers =
                                  head->classes ? config->model.classes : config->model.vocabulary,
                              .padded = head->padded || ls_wrap_of(config)->reads_source};
}

/* How a model's parameters begin. */
typedef struct beginning {
    const uint64_t *seed; /* NULL: blank */
    bool with_gradient, lean;
    const ls_adapter *adapter; /* or NULL */
} beginning;

/* What an adapter is to adapt must be there. */
static ls_status check_targets(ls_ctx *ctx, const ls_parameters *store) {
    ls_adapter one = store->adapter;
    for (const char *at = store->adapter.targets; *at != '\0';) {
        const int length = (int)strcspn(at, ",");
        bool found = false;
        snprintf(one.targets, sizeof one.targets, "%.*s", length, at);
        for (size_t i = 0; i < store->count && !found; i++) {
            char weight[LS_ADAPTER_TEXT];
            const size_t end = strlen(store->items[i].name) - strlen("lora_A.weight");
            if (!ls_adapter_owns(store->items[i].name) || end >= sizeof weight - 8) continue;
            snprintf(weight, sizeof weight, "%.*sweight", (int)end, store->items[i].name);
            found = ls_adapter_targets(&one, weight);
        }
        if (!found)
            return LS_FAIL(ctx, LS_EUSE,
                           "train.lora.targets: no product of this model has `%.*s` in its name "
                           "(`longshot inspect RUN` lists them)",
                           length, at);
        at += length + (at[length] == ',');
    }
    return LS_OK;
}

static ls_status make(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, beginning from,
                      ls_model **out) {
    *out = NULL;
    if (config->model.vocabulary < 1)
        return LS_FAIL(ctx, LS_EUSE,
                       "model.vocabulary must be set (a tokenizer sets it by itself)");
    const ls_head_type *head = ls_head_of(&config->model);
    if (head->complete != NULL) LS_TRY(head->complete(ctx, &config->model));
    ls_model *model = ls_new(ctx, 1, sizeof *model);
    if (model == NULL) return LS_ENOMEM;
    *model = (ls_model){.ctx = ctx, .config = config, .type = type};
    /* recording once, for a single token, declares the parameters */
    ls_program *program = NULL;
    const ls_program_options options = {.type = type, .batch = head->sequences, .length = 1};
    const ls_recording how = {.use = LS_MODEL_LOSS, .source = ls_wrap_of(config)->reads_source};
    ls_status status = ls_parameters_new(ctx, type, &model->store);
    if (status == LS_OK && from.adapter != NULL) model->store->adapter = *from.adapter;
    if (status == LS_OK) status = ls_program_new(ctx, &options, model->store, &program);
    if (status == LS_OK) {
        record(program, config, &how);
        if (ls_failed(program)) status = ctx->error.code;
    }
    ls_program_free(program);
    if (status == LS_OK && from.adapter != NULL) status = check_targets(ctx, model->store);
    if (status == LS_OK) {
        model->store->blank = from.seed == NULL;
        model->store->lean = from.lean;
        status = ls_parameters_seal(model->store, from.seed == NULL ? 0 : *from.seed,
                                    from.with_gradient);
    }
    if (status != LS_OK) {
        ls_model_free(model);
        return status;
    }
    *out = model;
    return LS_OK;
}

ls_status ls_model_new(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, uint64_t seed,
                       bool with_gradient, ls_model **out) {
    return make(ctx, config, type, (beginning){&seed, with_gradient, false, NULL}, out);
}

ls_status ls_model_adapt(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, uint64_t seed,
                         const ls_adapter *adapter, ls_model **out) {
    return make(ctx, config, type, (beginning){&seed, true, false, adapter}, out);
}

ls_status ls_model_plan(ls_ctx *ctx, const ls_model_config *config, ls_dtype type,
                        bool with_gradient, ls_model **out) {
    return make(ctx, config, type, (beginning){NULL, with_gradient, false, NULL}, out);
}

ls_status ls_model_hold(ls_ctx *ctx, const ls_model_config *config, ls_dtype type, ls_model **out) {
    return make(ctx, config, type, (beginning){NULL, false, true, NULL}, out);
}

void ls_model_free(ls_model *model) {
    if (model == NULL) return;
    ls_parameters_free(model->store);
    ls_free(model->ctx, model);
}

ls_status ls_model_load(ls_model *model, const char *path, size_t *missing) {
    return ls_weights_load(model->ctx, path, model->store, missing);
}

/* What a program has of marks beside its tokens. */
static void count_marks(const ls_model_config *config, const ls_recording *how,
                        ls_program_options *options) {
    const int64_t every = ls_marks_every(config);
    if (every == 0) return;
    options->length = ls_marks_rows(every, options->length, how->mark_due);
    if (!options->streaming) return;
    options->capacity = ls_marks_rows(every, options->capacity, false);
    options->chunk_max = ls_marks_rows(every, options->chunk_max, true);
}

ls_status ls_model_record(ls_model *model, const ls_recording *how, ls_program_options options,
                          ls_program **out) {
    options.type = model->type;
    count_marks(model->config, how, &options);
    if (ls_head_of(&model->config->model)->rows_alone && how->use != LS_MODEL_OBSERVED)
        return LS_FAIL(
            model->ctx, LS_EUSE,
            "the model has no head (model.head=none): its rows can be compared (`longshot "
            "apply`), but it predicts nothing");
    if (how->use != LS_MODEL_OBSERVED) options.grad = options.train = how->use == LS_MODEL_TRAIN;
    options.batch *= ls_head_of(&model->config->model)->sequences;
    LS_TRY(ls_program_new(model->ctx, &options, model->store, out));
    if (how->use == LS_MODEL_OBSERVED)
        record_observed(*out, model->config, how);
    else
        record(*out, model->config, how);
    ls_status status = ls_program_finish(*out);
    if (status == LS_OK) return LS_OK;
    ls_program_free(*out);
    *out = NULL;
    return status;
}

ls_status ls_model_program(ls_model *model, ls_model_use use, ls_program_options options,
                           ls_program **out) {
    return ls_model_record(model, &(ls_recording){.use = use}, options, out);
}

ls_status ls_model_put_tokens(const ls_model *model, ls_program *program, const char *input,
                              const int32_t *tokens) {
    ls_tensor *tensor = ls_program_find(program, input);
    if (tensor == NULL || tensor->type != LS_I32)
        return LS_FAIL(model->ctx, LS_EBUG, "the program has no token input %s", input);
    const int64_t T = tensor->dim[1];
    const ls_model_example example = ls_model_example_of(model->config, T);
    const int64_t border = T - ls_program_about(program)->length; /* behind a source; or 0 */
    const bool wanted = strcmp(input, "targets") == 0;
    const int32_t lowest = wanted || example.padded ? -1 : 0;
    const int64_t end = wanted ? example.answers : model->config->model.vocabulary;
    const bool classes = wanted && ls_head_of(&model->config->model)->classes;
    for (int64_t i = 0; i < ls_count(tensor); i++) {
        if (tokens[i] < lowest || tokens[i] >= end)
            return LS_FAIL(model->ctx, LS_EINPUT, "%s %d is outside the %s of %lld",
                           classes ? "class" : "token", tokens[i],
                           classes ? "classes" : "vocabulary", (long long)end);
        const bool begins = i % T == 0 || i % T == border;
        if (!wanted && !begins && tokens[i] >= 0 && tokens[i - 1] < 0)
            return LS_FAIL(model->ctx, LS_EINPUT,
                           "padding stands before a token of sequence %lld: it must come last",
                           (long long)(i / T));
    }
    ls_tensor_put(program, tensor, tokens);
    return LS_OK;
}
