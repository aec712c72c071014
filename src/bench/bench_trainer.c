/* A model that is trained: what parts that measure training have in common. */
#include "base/random.h"
#include "bench/bench_parts.h"
#include "tensor/engine/device.h"
#include "train/train.h"

void ls_bench_trainer_clear(ls_ctx *ctx, ls_trainer *t) {
    ls_optimizer_free(ctx, t->optimizer);
    ls_program_free(t->program);
    ls_model_free(t->model);
    ls_model_config_clear(ctx, &t->config);
}

static ls_status read_config(ls_ctx *ctx, const ls_train_shape *shape, ls_model_config *out) {
    ls_text words = {0};
    ls_text_printf(ctx, &words, "%s model.vocabulary=%lld", shape->words,
                   (long long)shape->vocabulary);
    ls_status status = ls_text_status(&words);
    if (status == LS_OK) status = ls_model_config_read_words(ctx, words.bytes, out);
    ls_text_clear(ctx, &words);
    return status;
}

static ls_status put_batch(const ls_trainer *t) {
    ls_ctx *ctx = t->model->ctx;
    const int64_t count = t->shape->batch * t->shape->length;
    int32_t *tokens = ls_new(ctx, (size_t)count, sizeof *tokens);
    float *weights = ls_new(ctx, (size_t)count, sizeof *weights);
    const ls_random key = {.seed = 1, .stream = ls_stream_of("bench")};
    ls_status status = tokens == NULL || weights == NULL ? LS_ENOMEM : LS_OK;
    for (int64_t i = 0; status == LS_OK && i < count; i++) {
        tokens[i] = (int32_t)ls_random_below(key, (uint64_t)i, (uint64_t)t->shape->vocabulary);
        weights[i] = 1.0f / (float)count;
    }
    if (status == LS_OK) status = ls_model_put_tokens(t->model, t->program, "tokens", tokens);
    if (status == LS_OK) status = ls_model_put_tokens(t->model, t->program, "targets", tokens);
    if (status == LS_OK) ls_tensor_put(t->program, ls_program_find(t->program, "weights"), weights);
    ls_free(ctx, tokens);
    ls_free(ctx, weights);
    return status;
}

ls_status ls_bench_trainer_make(ls_bench *bench, const ls_train_shape *shape, ls_dtype type,
                                ls_trainer *out) {
    ls_ctx *ctx = bench->ctx;
    out->shape = shape;
    LS_TRY(read_config(ctx, shape, &out->config));
    LS_TRY(ls_model_new(ctx, &out->config, type, 1, true, &out->model));
    const ls_program_options options = {.batch = shape->batch,
                                        .length = shape->length,
                                        .recompute = bench->settings->recompute,
                                        .fp8 = bench->settings->dtype == LS_BENCH_FP8,
                                        .tf32 = type == LS_F32 &&
                                                bench->settings->matmul == LS_TRAIN_MATMUL_TF32};
    LS_TRY(ls_model_program(out->model, LS_MODEL_TRAIN, options, &out->program));
    const ls_optimizer_settings adamw = ls_optimizer_settings_default();
    LS_TRY(ls_optimizer_new(ctx, out->model->store, &adamw, &out->optimizer));
    return put_batch(out);
}

size_t ls_bench_trainer_bytes(const ls_trainer *t) {
    const ls_parameters *store = t->model->store;
    size_t each = 4 * ls_dtype_size(store->master_type);
    if (store->shadow != NULL) each += sizeof *store->shadow;
    return ls_program_bytes(t->program) + (size_t)store->total * each;
}

ls_status ls_bench_trainer_step(ls_bench *bench, void *about) {
    ls_trainer *t = about;
    LS_TRY(ls_program_run(t->program, NULL, 1, (uint32_t)t->step));
    double norm;
    LS_TRY(ls_optimizer_norm(bench->ctx, t->optimizer, &norm));
    ls_optimizer_update(bench->ctx, t->optimizer, 1e-4, norm, ++t->step);
    return ls_device_settle(bench->ctx);
}

void ls_bench_trainer_name(const ls_bench *bench, const ls_trainer *t, json_t *row) {
    const ls_bench_settings *settings = bench->settings;
    json_object_set_new(row, "batch", json_integer((json_int_t)t->shape->batch));
    json_object_set_new(row, "length", json_integer((json_int_t)t->shape->length));
    if (settings->recompute) json_object_set_new(row, "recompute", json_true());
    if (settings->matmul == LS_TRAIN_MATMUL_TF32)
        json_object_set_new(row, "matmul", json_string("tf32"));
}
