#include <string.h>

#include "base/file.h"
#include "train/objective.h"
#include "train/train.h"
#include "train/validation.h"

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
    if (status == LS_EUSE && option != NULL && strcmp(option, "through") == 0)
        ls_fail_add(ctx, " (as train.context asks: set train.context=1)");
    return status;
}

/* Whether positions are drawn, and whether these settings leave something to draw. */
static ls_status try_draw(ls_ctx *ctx, const ls_model_config *config,
                          const ls_train_settings *settings, ls_train_job *job) {
    const ls_place_draw about = {.length = settings->length, .model_length = config->model.length};
    if (!ls_position_draws(&config->position)) return LS_OK;
    if (settings->carry > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.carry goes on in one text: positions that are drawn for each row do "
                       "not");
    job->drawn = &config->position;
    job->model_length = config->model.length;
    return ls_position_draw(ctx, job->drawn, &about, &(ls_places_drawn){0});
}

/* What the model decides about a source. */
static void settle_source(const ls_model *model, int64_t length, ls_train_source *source) {
    const ls_model_example example = ls_model_example_of(model->config, length);
    source->vocabulary = model->config->model.vocabulary;
    source->answers = example.answers;
    source->inputs = source->source + example.inputs;
    source->targets = example.targets;
    source->untrained = example.targets - example.trained;
    source->padded = example.padded;
}

/* Leaves *program and *out to the caller, who frees and clears them in any case. */
static ls_status record_validation(ls_ctx *ctx, ls_model *model, ls_train_job *job, int64_t length,
                                   ls_program **program, ls_validation *out) {
    const ls_train_settings *settings = job->settings;
    const ls_program_options options = {.batch = settings->batch / ls_train_parts(settings),
                                        .length = length / settings->context,
                                        .streaming = settings->context > 1,
                                        .capacity = length,
                                        .chunk_max = length / settings->context};
    const ls_recording how = {.use = LS_MODEL_LOSS, .source = job->validation_source.source};
    if (job->validation_rows == 0) return LS_OK;
    settle_source(model, length, &job->validation_source);
    LS_TRY(ls_model_record(model, &how, options, program));
    job->validation = out;
    return ls_validation_init(ctx, *program, &job->validation_source, job->validation_rows,
                              settings->context, out);
}

static ls_status check_settings(ls_ctx *ctx, const ls_model *model,
                                const ls_train_settings *settings) {
    if (settings->batch % ls_train_parts(settings) != 0 && settings->shards > 1)
        return LS_FAIL(
            ctx, LS_EUSE,
            "train.batch %lld is no multiple of train.shards %lld times train.accumulate "
            "%lld",
            (long long)settings->batch, (long long)settings->shards,
            (long long)settings->accumulate);
    if (settings->batch % settings->accumulate != 0)
        return LS_FAIL(ctx, LS_EUSE, "train.batch %lld is no multiple of train.accumulate %lld",
                       (long long)settings->batch, (long long)settings->accumulate);
    if (model->config->encoder_layers > 0 && settings->carry > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.carry has no meaning with model.encoder_layers: every sample has its "
                       "own source");
    return LS_OK;
}

/* What has parts of sequences: language models, whose sequences begin afresh. */
static ls_status check_context(ls_ctx *ctx, const ls_model *model, const ls_train_job *job) {
    const ls_train_settings *s = job->settings;
    const ls_model_example example = ls_model_example_of(model->config, s->length);
    if (s->context == 1) return LS_OK;
    if (s->length % s->context != 0)
        return LS_FAIL(
            ctx, LS_EUSE,
            "train.length %lld cannot be cut into train.context=%lld parts of one length",
            (long long)s->length, (long long)s->context);
    if (s->carry > 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.context passes state on within a sequence, train.carry from batch to "
                       "batch: they do not go together");
    if (job->source.source > 0 || example.padded || example.inputs != s->length ||
        example.targets != s->length)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.context cuts texts that a causal language model reads from left to "
                       "right: not those of a classifier, an encoder or a model with other rows");
    if (ls_position_draws(&model->config->position))
        return LS_FAIL(
            ctx, LS_EUSE,
            "train.context has no meaning with positions that are drawn for a whole row");
    return LS_OK;
}

/* The programs of a part of the sequences: see ls_train_job. */
static ls_status record_programs(ls_ctx *ctx, ls_model *model, const ls_recording *how,
                                 ls_program_options options, ls_train_job *job) {
    const int64_t context = job->settings->context, length = options.length / context;
    if (context > 1) {
        options.streaming = options.through = true;
        options.length = options.chunk_max = length;
        options.shares *= context;
        options.runs *= context;
    }
    LS_TRY(in_words_of_recipes(ctx, ls_model_record(model, how, options, &job->program)));
    if (context == 1) return LS_OK;
    const int64_t unit = ls_program_unit(job->program);
    if (length % unit != 0)
        return LS_FAIL(
            ctx, LS_EUSE,
            "train.context=%lld: parts of %lld tokens are no multiple of the %lld tokens "
            "in a segment",
            (long long)context, (long long)length, (long long)unit);
    if (ls_program_chunk_limit(job->program) < length)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.context: this model goes on with a sequence in steps of %lld tokens "
                       "at most",
                       (long long)ls_program_chunk_limit(job->program));
    options.forward = true;
    return ls_model_record(model, how, options, &job->forward);
}

static ls_status check_programs(ls_ctx *ctx, const ls_train_settings *settings,
                                const ls_train_job *job) {
    const int64_t unit = ls_program_unit(job->program);
    if (job->drawn != NULL && ls_program_find(job->program, "places") == NULL)
        return LS_FAIL(
            ctx, LS_EUSE,
            "positions that are drawn go with layers alone: not with segments, memory or "
            "an encoder");
    if (settings->carry > 0 && settings->length % unit != 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "with train.carry a train.length of %lld must be a multiple of the %lld "
                       "tokens in a segment",
                       (long long)settings->length, (long long)unit);
    return LS_OK;
}

static ls_status count_fp8(ls_ctx *ctx, const ls_program *program, size_t *fp8, size_t *layers) {
    const size_t in_fp8 = ls_program_count(program, "linear_fp8");
    const size_t all = in_fp8 + ls_program_count(program, "linear");
    if (in_fp8 == 0)
        return LS_FAIL(ctx, LS_EUSE,
                       "train.dtype=fp8 would change nothing: no linear layer has rows and widths "
                       "that are multiples of 16");
    ls_say(ctx, "%zu of %zu linear layers are multiplied in fp8, the output projection in bf16%s",
           in_fp8, all,
           in_fp8 < all ? "; the others have rows or widths that are no multiples of 16" : "");
    *fp8 = in_fp8;
    *layers = all;
    return LS_OK;
}

static ls_status train_recorded(ls_ctx *ctx, ls_model *model, ls_train_job *job, int64_t length,
                                ls_train_result *result) {
    const ls_train_settings *settings = job->settings;
    ls_program *measured = NULL;
    ls_validation validation = {0};
    size_t fp8 = 0, layers = 0;
    job->store = model->store;
    settle_source(model, length, &job->source);
    if (model->store->adapter.rank > 0)
        ls_say(ctx, "%lld parameters are trained, all others are frozen",
               (long long)ls_parameters_trained(model->store));
    const double operations =
        (double)(ls_train_parts(settings) * settings->context) * ls_program_flops(job->program);
    ls_say(ctx, "%lld parameters; a step takes %.1f MB of activations and %.3g operations",
           (long long)ls_parameters_elements(model->store),
           1e-6 * (double)ls_program_bytes(job->program), operations);
    if (settings->matmul == LS_TRAIN_MATMUL_TF32)
        ls_say(ctx, "matrix products of training are computed in tf32");
    if (ls_train_fp8(settings)) LS_TRY(count_fp8(ctx, job->program, &fp8, &layers));
    ls_status status = record_validation(ctx, model, job, length, &measured, &validation);
    if (status == LS_OK) status = ls_train_run(ctx, job, result);
    result->layers_fp8 = (int64_t)fp8;
    result->layers = (int64_t)layers;
    ls_validation_clear(&validation);
    ls_program_free(measured);
    return status;
}

ls_status ls_train_model_on(ls_ctx *ctx, ls_model *model, const ls_train_job *job,
                            ls_train_result *result) {
    const ls_train_settings *settings = job->settings;
    *result = (ls_train_result){0};
    LS_TRY(check_settings(ctx, model, settings));
    const int64_t length = job->source.source > 0 ? job->source.targets : settings->length;
    ls_program_options options = {.batch = settings->batch / ls_train_parts(settings),
                                  .length = length,
                                  .recompute = settings->recompute,
                                  .tf32 = settings->matmul == LS_TRAIN_MATMUL_TF32,
                                  .fp8 = ls_train_fp8(settings),
                                  .shares = settings->shards,
                                  .runs = ls_train_parts(settings),
                                  .streaming = settings->carry > 0,
                                  .capacity = ls_max(settings->carry, length),
                                  .chunk_max = length,
                                  .resets = job->source.resets};
    const ls_recording how = {.use = LS_MODEL_TRAIN,
                              .source = job->source.source,
                              .label_smoothing = settings->label_smoothing};
    ls_train_job whole = *job;
    LS_TRY(check_context(ctx, model, job));
    LS_TRY(try_draw(ctx, model->config, settings, &whole));
    if (job->ranks != NULL &&
        !ctx->rehearsal) { /* before anything that depends on them is shared */
        const uint64_t data[] = {job->source.identity, job->source.records,
                                 job->validation_source.identity};
        LS_TRY(ls_ranks_compare(ctx, job->ranks, ls_hash(data, sizeof data), "other data"));
    }
    const ls_optimizer_settings optimizer = ls_train_optimizer(settings);
    LS_TRY(ls_optimizer_new_among(ctx, model->store, &optimizer, job->ranks, &whole.optimizer));
    ls_status status = record_programs(ctx, model, &how, options, &whole);
    if (status == LS_OK) status = check_programs(ctx, settings, &whole);
    if (status == LS_OK) status = train_recorded(ctx, model, &whole, length, result);
    ls_program_free(whole.forward);
    ls_program_free(whole.program);
    ls_optimizer_free(ctx, whole.optimizer);
    return status;
}

/* The windows of the validation documents, in an order of their own: the same for all runs of a
 * length. */
static ls_status validation_batches(ls_ctx *ctx, const ls_model *model, const ls_train_job *job,
                                    ls_objective_batches *batches, ls_train_job *out) {
    const ls_train_settings *settings = job->settings;
    ls_train_settings own = *settings;
    if (job->validation_loader == NULL) return LS_OK;
    own.carry = 0;
    own.seed = 0;
    LS_TRY(ls_objective_batches_init(ctx, job->validation_loader, model->config, &own, 1, batches));
    out->validation_source = ls_objective_batches_source(batches);
    out->validation_rows = ls_loader_windows(job->validation_loader);
    if (settings->validate_tokens > 0)
        out->validation_rows =
            ls_min(out->validation_rows, ls_ceil_div(settings->validate_tokens, settings->length));
    return LS_OK;
}

ls_status ls_train_model(ls_ctx *ctx, ls_model *model, const ls_loader *loader,
                         const ls_train_job *job, ls_train_result *result) {
    ls_objective_batches batches, held_out = {0};
    ls_status status =
        ls_objective_batches_init(ctx, loader, model->config, job->settings,
                                  ls_position_text(&model->config->position), &batches);
    ls_train_job whole = *job;
    if (status == LS_OK) status = validation_batches(ctx, model, job, &held_out, &whole);
    if (status == LS_OK) {
        if (job->source.rows == NULL) /* a mixture has made its own of the loader */
            whole.source = ls_objective_batches_source(&batches);
        status = ls_train_model_on(ctx, model, &whole, result);
    }
    ls_free(ctx, batches.spare);
    ls_free(ctx, held_out.spare);
    return status;
}
