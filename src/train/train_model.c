#include <string.h>

#include "train/objective.h"
#include "train/train.h"

static void loader_rows(const void *user, int64_t batch, int64_t row, int64_t rows, int32_t *inputs,
                        int32_t *targets, bool *fresh) {
    ls_loader_rows(user, batch, row, rows, inputs, targets, fresh);
}

static ls_status loader_status(ls_ctx *ctx, const void *user) {
    return ls_loader_status(ctx, user);
}

ls_train_source ls_train_source_of(const ls_loader *loader, int64_t vocabulary) {
    return (ls_train_source){.user = loader,
                             .rows = loader_rows,
                             .status = loader_status,
                             .identity = ls_loader_identity(loader),
                             .vocabulary = vocabulary,
                             .resets = ls_loader_resets(loader)};
}

/* A refusal of an option that stands under another name in a recipe. */
static ls_status in_words_of_recipes(ls_ctx *ctx, ls_status status) {
    const char *option = ctx->error.option;
    if (status == LS_EUSE && option != NULL && strcmp(option, "resets") == 0)
        ls_fail_add(ctx, " (as they do with train.carry and data.borders=true: set "
                         "data.borders=false, or another train.length)");
    return status;
}

ls_status ls_train_model_on(ls_ctx *ctx, ls_model *model, const ls_train_job *job,
                            ls_train_result *result) {
    const ls_train_settings *settings = job->settings;
    *result = (ls_train_result){0};
    if (settings->batch % settings->accumulate != 0)
        return LS_FAIL(ctx, LS_EUSE, "train.batch %lld is no multiple of train.accumulate %lld",
                       (long long)settings->batch, (long long)settings->accumulate);
    if (model->config->encoder_layers > 0 && settings->carry > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.carry has no meaning with model.encoder_layers: every sample has its "
                       "own source");
    const int64_t length = job->source.source > 0 ? job->source.targets : settings->length;
    ls_program_options options = {.batch = settings->batch / settings->accumulate,
                                  .length = length,
                                  .recompute = settings->recompute,
                                  .streaming = settings->carry > 0,
                                  .capacity = ls_max(settings->carry, length),
                                  .chunk_max = length,
                                  .resets = job->source.resets};
    const ls_recording how = {.use = LS_MODEL_TRAIN,
                              .source = job->source.source,
                              .label_smoothing = settings->label_smoothing};
    ls_train_job whole = *job;
    LS_TRY(in_words_of_recipes(ctx, ls_model_record(model, &how, options, &whole.program)));
    const int64_t unit = ls_program_unit(whole.program);
    if (settings->carry > 0 && settings->length % unit != 0) {
        ls_program_free(whole.program);
        return LS_FAIL(ctx, LS_EUSE,
                       "with train.carry a train.length of %lld must be a multiple of the %lld "
                       "tokens in a segment",
                       (long long)settings->length, (long long)unit);
    }
    whole.store = model->store;
    const ls_model_example example = ls_model_example_of(model->config, length);
    whole.source.vocabulary = model->config->model.vocabulary;
    whole.source.answers = example.answers;
    whole.source.inputs = job->source.source + example.inputs;
    whole.source.targets = example.targets;
    whole.source.untrained = example.targets - example.trained;
    whole.source.padded = example.padded;
    if (model->store->adapter.rank > 0)
        ls_say(ctx, "%lld parameters are trained, all others are frozen",
               (long long)ls_parameters_trained(model->store));
    ls_say(ctx, "%lld parameters; a step takes %.1f MB of activations and %.3g operations",
           (long long)ls_parameters_elements(model->store),
           1e-6 * (double)ls_program_bytes(whole.program),
           (double)settings->accumulate * ls_program_flops(whole.program));
    ls_status status = ls_train_run(ctx, &whole, result);
    ls_program_free(whole.program);
    return status;
}

ls_status ls_train_model(ls_ctx *ctx, ls_model *model, const ls_loader *loader,
                         const ls_train_job *job, ls_train_result *result) {
    ls_objective_batches batches;
    ls_status status =
        ls_objective_batches_init(ctx, loader, model->config, job->settings, &batches);
    ls_train_job whole = *job;
    if (status == LS_OK) {
        whole.source = ls_objective_batches_source(&batches);
        status = ls_train_model_on(ctx, model, &whole, result);
    }
    ls_free(ctx, batches.spare);
    return status;
}
