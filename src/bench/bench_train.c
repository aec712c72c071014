/* Training: tokens per second of a few models, and where the time goes. On the processor a small
 * byte model, on a device the sizes that are compared there. */
#include <string.h>

#include "bench/bench_parts.h"
#include "model/model.h"
#include "tensor/engine/machine.h"
#include "train/train.h"

enum { OPERATIONS_MAX = 64 };

static const ls_train_shape shapes[] = {
    {"6 x 384, RoPE, bytes", "model.preset=bench", 16, 256, 256, false, "6", "384", "6", "rope",
     false},
    {"6 x 384, GPT-2 shape, bytes",
     "model.preset=bench model.length=64 model.position=learned model.activation=gelu_tanh "
     "mixer.bias=true",
     4, 64, 256, false, "6", "384", "6", "learned", true},
    {"124M RoPE", "model.preset=gpt2-124m model.position=rope", 32, 1024, 50304, true, "12", "768",
     "12", "rope", false},
    {"124M GPT-2 shape", "model.preset=gpt2-124m mixer.bias=true", 32, 1024, 50304, true, "12",
     "768", "12", "learned", true},
    {"124M xPos", "model.preset=gpt2-124m model.position=xpos", 32, 1024, 50304, true, "12", "768",
     "12", "xpos", false},
    {"124M ALiBi", "model.preset=gpt2-124m model.position=alibi", 32, 1024, 50304, true, "12",
     "768", "12", "alibi", false},
    {"354M RoPE", "model.preset=gpt2-354m model.position=rope", 32, 1024, 50304, true, "24", "1024",
     "16", "rope", false},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static ls_status operation_table(ls_bench *bench, ls_trainer *t, json_t *into) {
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

static ls_status take_turns(ls_bench *bench, ls_trainer *t, ls_dtype type, ls_bench_times *out) {
    ls_peer peer = {0};
    ls_outside outside = {0};
    ls_turns unused = {0};
    const ls_bench_work warm = {ls_bench_trainer_step, t, 0},
                        work = {ls_bench_trainer_step, t, bench->settings->seconds};
    LS_TRY(ls_bench_turn(bench, &warm, &unused));
    ls_status status = LS_OK;
    if (t->shape->llm_c)
        status = ls_bench_llm_c(bench, t->shape, &outside, &peer);
    else
        start_peer(bench, t->shape, type, &peer);
    if (status == LS_OK) status = ls_bench_turns(bench, &work, &peer, out);
    ls_peer_stop(&peer);
    ls_outside_end(bench, &outside);
    return status;
}

void ls_bench_put_peer(ls_bench *bench, const ls_bench_times *times, const char *before,
                       double tokens, json_t *row) {
    const size_t which = ls_times_fastest(times);
    for (size_t i = 0; i < times->missing.count; i++)
        ls_text_printf(bench->ctx, &bench->text, "        no figure of %s: %s\n",
                       times->missing.at[i].name, times->missing.at[i].why);
    if (which == LS_METHODS_MAX) return;
    const ls_turns *turns = &times->peer[which].turns;
    const char *mode = times->peer[which].name;
    const double theirs = tokens / ls_turns_median(turns), spread = ls_turns_spread(turns);
    const double ratio = ls_turns_ratio(&times->ours, turns);
    ls_text_printf(bench->ctx, &bench->text,
                   "        %8.0f tokens/s %s%s%s, spread %.0f%%; ratio %.2f\n", theirs, before,
                   mode, before[0] == '\0' ? "" : ")", 100 * spread, ratio);
    json_object_set_new(row, "peer_tokens_per_second", json_real(theirs));
    json_object_set_new(row, "peer_spread", json_real(spread));
    json_object_set_new(row, "peer_mode", json_string(mode));
    json_object_set_new(row, "ratio", json_real(ratio));
}

static const char *type_name(const ls_bench *bench, ls_dtype type) {
    return bench->settings->dtype == LS_BENCH_FP8 ? "fp8" : ls_dtype_name(type);
}

static ls_status bench_type(ls_bench *bench, ls_dtype type, ls_trainer *t, json_t *row) {
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
                   1e-6 * (double)ls_bench_trainer_bytes(t));
    json_object_set_new(row, "tokens_per_second", json_real(ours));
    json_object_set_new(row, "spread", json_real(spread));
    json_object_set_new(row, "peak_share", json_real(share));
    json_object_set_new(row, "bytes", json_integer((json_int_t)ls_bench_trainer_bytes(t)));
    ls_bench_put_peer(bench, &times, t->shape->llm_c ? "" : "PyTorch (", tokens, row);
    ls_bench_put_taken(row, &times);
    return operation_table(bench, t, row);
}

ls_status ls_bench_train_shape(ls_bench *bench, const ls_train_shape *shape, json_t *rows) {
    ls_text_printf(bench->ctx, &bench->text, "training %s, length %lld, batch %lld\n", shape->name,
                   (long long)shape->length, (long long)shape->batch);
    for (int i = 0; i < bench->type_count; i++) {
        if (shape->device && bench->types[i] != LS_BF16 && bench->settings->dtype == 0) continue;
        if (shape->llm_c && !shape->device && bench->types[i] != LS_F32) continue;
        json_t *row = json_object();
        ls_trainer t = {.shape = shape};
        json_object_set_new(row, "model", json_string(shape->name));
        json_object_set_new(row, "dtype", json_string(type_name(bench, bench->types[i])));
        ls_bench_trainer_name(bench, &t, row);
        json_array_append_new(rows, row);
        ls_status status = ls_bench_trainer_make(bench, shape, bench->types[i], &t);
        if (status == LS_OK) status = bench_type(bench, bench->types[i], &t, row);
        ls_bench_trainer_clear(bench->ctx, &t);
        LS_TRY(status);
    }
    return LS_OK;
}

static bool chosen(const ls_bench *bench, const ls_train_shape *shape) {
    return shape->device == (bench->ctx->device != NULL) &&
           (!shape->llm_c || bench->settings->llm_c[0] != '\0') &&
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
