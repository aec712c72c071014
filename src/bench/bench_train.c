/* Training: tokens per second of a few models, and where the time goes. On the processor a small
 * byte model, on a device the sizes that are compared there. */
#include <string.h>

#include "base/random.h"
#include "bench/bench_parts.h"
#include "model/model.h"
#include "tensor/engine/device.h"
#include "tensor/engine/machine.h"
#include "train/train.h"

enum { OPERATIONS_MAX = 64 };

static const ls_train_shape shapes[] = {
    {"6 x 384, RoPE, bytes", "model.preset=bench", 16, 256, 256, false, "6", "384", "6", "rope"},
    {"124M RoPE", "model.preset=gpt2-124m model.position=rope", 32, 1024, 50304, true, "12", "768",
     "12", "rope"},
    {"124M xPos", "model.preset=gpt2-124m model.position=xpos", 32, 1024, 50304, true, "12", "768",
     "12", "xpos"},
    {"124M ALiBi", "model.preset=gpt2-124m model.position=alibi", 32, 1024, 50304, true, "12",
     "768", "12", "alibi"},
    {"354M RoPE", "model.preset=gpt2-354m model.position=rope", 32, 1024, 50304, true, "24", "1024",
     "16", "rope"},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

typedef struct trainer {
    const ls_train_shape *shape;
    ls_model_config config;
    ls_model *model;
    ls_program *program;
    ls_optimizer *optimizer;
    int64_t step;
} trainer;

static void trainer_clear(ls_ctx *ctx, trainer *t) {
    ls_optimizer_free(ctx, t->optimizer);
    ls_program_free(t->program);
    ls_model_free(t->model);
    ls_model_config_clear(ctx, &t->config);
}

static ls_status read_config(ls_ctx *ctx, const ls_train_shape *shape, ls_model_config *out) {
    char words[256], *rest = NULL;
    ls_settings settings = {0};
    ls_status status = LS_OK;
    snprintf(words, sizeof words, "%s model.vocabulary=%lld", shape->words,
             (long long)shape->vocabulary);
    for (char *word = strtok_r(words, " ", &rest); word != NULL && status == LS_OK;
         word = strtok_r(NULL, " ", &rest))
        status = ls_settings_put_word(ctx, &settings, word);
    if (status == LS_OK) status = ls_model_config_read(ctx, &settings, out);
    ls_settings_clear(ctx, &settings);
    return status;
}

static ls_status put_batch(const trainer *t) {
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

static ls_status trainer_make(ls_bench *bench, const ls_train_shape *shape, ls_dtype type,
                              trainer *out) {
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

/* Everything that training keeps: arena and workspace, weights, gradients, moments. */
static size_t trainer_bytes(const trainer *t) {
    const ls_parameters *store = t->model->store;
    size_t each = 4 * ls_dtype_size(store->master_type);
    if (store->shadow != NULL) each += sizeof *store->shadow;
    return ls_program_bytes(t->program) + (size_t)store->total * each;
}

static ls_status step(ls_bench *bench, void *about) {
    trainer *t = about;
    LS_TRY(ls_program_run(t->program, NULL, 1, (uint32_t)t->step));
    double norm;
    LS_TRY(ls_optimizer_norm(bench->ctx, t->optimizer, &norm));
    ls_optimizer_update(bench->ctx, t->optimizer, 1e-4, norm, ++t->step);
    return ls_device_settle(bench->ctx);
}

static ls_status operation_table(ls_bench *bench, trainer *t, json_t *into) {
    enum { STEPS = 4 };
    ls_ctx *ctx = bench->ctx;
    ls_op_time times[OPERATIONS_MAX];
    ls_program_profile(t->program, true);
    for (int i = 0; i < STEPS; i++) LS_TRY(ls_program_run(t->program, NULL, 1, 0));
    size_t count = ls_program_times(t->program, times, OPERATIONS_MAX);
    ls_program_profile(t->program, false);
    ls_parameters_clear_gradient(t->model->store);
    double total = 0;
    json_t *rows = json_array();
    for (size_t i = 0; i < count; i++) total += times[i].seconds;
    for (size_t i = 0; i < count; i++) {
        double milliseconds = 1e3 * times[i].seconds / STEPS;
        double gflops = times[i].seconds > 0 ? 1e-9 * STEPS * times[i].flops / times[i].seconds : 0;
        ls_text_printf(ctx, &bench->text, "    %-28s %8.2f ms %5.1f%% %8.1f GFLOP/s\n",
                       times[i].name, milliseconds, 100 * times[i].seconds / total, gflops);
        json_array_append_new(rows, json_pack("{s:s, s:f, s:f}", "operation", times[i].name,
                                              "milliseconds", milliseconds, "gflops", gflops));
    }
    json_object_set_new(into, "operations", rows);
    return LS_OK;
}

static void start_peer(ls_bench *bench, const ls_train_shape *shape, ls_dtype type, ls_peer *peer) {
    const char *matmul = bench->settings->matmul == LS_TRAIN_MATMUL_TF32 ? "tf32" : "exact";
    char threads[16], batch[16], length[16], vocabulary[16], seconds[32];
    snprintf(threads, sizeof threads, "%d", bench->ctx->threads);
    snprintf(batch, sizeof batch, "%lld", (long long)shape->batch);
    snprintf(length, sizeof length, "%lld", (long long)shape->length);
    snprintf(seconds, sizeof seconds, "%g", bench->settings->seconds);
    snprintf(vocabulary, sizeof vocabulary, "%lld", (long long)shape->vocabulary);
    const char *const words[] = {"--dtype",
                                 ls_dtype_name(type),
                                 "--threads",
                                 threads,
                                 "--device",
                                 shape->device ? "cuda" : "cpu",
                                 "--layers",
                                 shape->layers,
                                 "--width",
                                 shape->width,
                                 "--heads",
                                 shape->heads,
                                 "--position",
                                 shape->position,
                                 "--batch",
                                 batch,
                                 "--length",
                                 length,
                                 "--vocabulary",
                                 vocabulary,
                                 "--matmul",
                                 matmul,
                                 "--seconds",
                                 seconds,
                                 NULL};
    ls_peer_start(bench, "train_torch.py", words, peer);
}

static ls_status take_turns(ls_bench *bench, trainer *t, ls_dtype type, ls_bench_times *out) {
    ls_peer peer;
    ls_turns unused = {0};
    const ls_bench_work warm = {step, t, 0}, work = {step, t, bench->settings->seconds};
    LS_TRY(ls_bench_turn(bench, &warm, &unused));
    start_peer(bench, t->shape, type, &peer);
    ls_status status = ls_bench_turns(bench, &work, &peer, out);
    ls_peer_stop(&peer);
    return status;
}

/* The peer by the faster of its ways. */
static void put_peer(ls_bench *bench, const ls_bench_times *times, double tokens, json_t *row) {
    const size_t which = ls_times_fastest(times);
    if (which == LS_METHODS_MAX) return;
    const ls_turns *turns = &times->peer[which].turns;
    const char *mode = times->peer[which].name;
    const double theirs = tokens / ls_turns_median(turns), spread = ls_turns_spread(turns);
    const double ratio = ls_turns_ratio(&times->ours, turns);
    ls_text_printf(bench->ctx, &bench->text,
                   "        %8.0f tokens/s PyTorch (%s), spread %.0f%%; ratio %.2f\n", theirs, mode,
                   100 * spread, ratio);
    json_object_set_new(row, "peer_tokens_per_second", json_real(theirs));
    json_object_set_new(row, "peer_spread", json_real(spread));
    json_object_set_new(row, "peer_mode", json_string(mode));
    json_object_set_new(row, "ratio", json_real(ratio));
}

static const char *type_name(const ls_bench *bench, ls_dtype type) {
    return bench->settings->dtype == LS_BENCH_FP8 ? "fp8" : ls_dtype_name(type);
}

static ls_status bench_type(ls_bench *bench, ls_dtype type, trainer *t, json_t *row) {
    ls_ctx *ctx = bench->ctx;
    double peak = 0;
    ls_bench_times times;
    LS_TRY(take_turns(bench, t, type, &times));
    /* other work on the machine can only lower a peak: the highest that was seen counts */
    LS_TRY(ls_machine_peak(ctx, type, &peak));
    if (peak > bench->peak[type]) bench->peak[type] = peak;
    const double tokens = (double)(t->shape->batch * t->shape->length);
    const double ours = tokens / ls_turns_median(&times.ours);
    const double spread = ls_turns_spread(&times.ours);
    double flops = ls_program_flops(t->program) / tokens * ours;
    double share = flops / bench->peak[type];
    ls_text_printf(ctx, &bench->text,
                   "  %-5s %8.0f tokens/s, spread %.0f%%, %.0f GFLOP/s, %.0f%% of the measured "
                   "matrix peak, %.0f MB\n",
                   type_name(bench, type), ours, 100 * spread, 1e-9 * flops, 100 * share,
                   1e-6 * (double)trainer_bytes(t));
    json_object_set_new(row, "tokens_per_second", json_real(ours));
    json_object_set_new(row, "spread", json_real(spread));
    json_object_set_new(row, "peak_share", json_real(share));
    json_object_set_new(row, "bytes", json_integer((json_int_t)trainer_bytes(t)));
    put_peer(bench, &times, tokens, row);
    ls_bench_put_taken(row, &times);
    return operation_table(bench, t, row);
}

ls_status ls_bench_train_shape(ls_bench *bench, const ls_train_shape *shape, json_t *rows) {
    ls_text_printf(bench->ctx, &bench->text, "training %s, length %lld, batch %lld\n", shape->name,
                   (long long)shape->length, (long long)shape->batch);
    for (int i = 0; i < bench->type_count; i++) {
        if (shape->device && bench->types[i] != LS_BF16 && bench->settings->dtype == 0) continue;
        json_t *row = json_object();
        trainer t = {0};
        json_object_set_new(row, "model", json_string(shape->name));
        json_object_set_new(row, "dtype", json_string(type_name(bench, bench->types[i])));
        json_object_set_new(row, "batch", json_integer((json_int_t)shape->batch));
        json_object_set_new(row, "length", json_integer((json_int_t)shape->length));
        if (bench->settings->recompute) json_object_set_new(row, "recompute", json_true());
        if (bench->settings->matmul == LS_TRAIN_MATMUL_TF32)
            json_object_set_new(row, "matmul", json_string("tf32"));
        json_array_append_new(rows, row);
        ls_status status = trainer_make(bench, shape, bench->types[i], &t);
        if (status == LS_OK) status = bench_type(bench, bench->types[i], &t, row);
        trainer_clear(bench->ctx, &t);
        LS_TRY(status);
    }
    return LS_OK;
}

static bool chosen(const ls_bench *bench, const ls_train_shape *shape) {
    return shape->device == (bench->ctx->device != NULL) &&
           strstr(shape->name, bench->settings->only) != NULL;
}

bool ls_bench_train_has(const ls_bench *bench) {
    for (int i = 0; i < SHAPES; i++)
        if (chosen(bench, &shapes[i])) return true;
    return false;
}

ls_status ls_bench_train(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "train", rows);
    for (int i = 0; i < SHAPES; i++)
        if (chosen(bench, &shapes[i])) LS_TRY(ls_bench_train_shape(bench, &shapes[i], rows));
    return LS_OK;
}
