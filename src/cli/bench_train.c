/* Training: tokens per second of the 6 x 384 byte model, and where the time goes. */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "cli/bench.h"
#include "cli/machine.h"
#include "model/model.h"
#include "train/train.h"

enum { BATCH = 16, LENGTH = 256, OPERATIONS_MOST = 64 };

typedef struct trainer {
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

static ls_status trainer_make(ls_ctx *ctx, ls_dtype type, trainer *out) {
    static const char *const words[] = {"model.preset=bench", "model.vocabulary=256"};
    static int32_t tokens[BATCH * LENGTH];
    ls_settings settings = {0};
    ls_status status = LS_OK;
    for (size_t i = 0; i < 2 && status == LS_OK; i++)
        status = ls_settings_put_word(ctx, &settings, words[i]);
    if (status == LS_OK) status = ls_model_config_read(ctx, &settings, &out->config);
    ls_settings_clear(ctx, &settings);
    LS_TRY(status);
    LS_TRY(ls_model_new(ctx, &out->config, type, 1, true, &out->model));
    const ls_program_options options = {.batch = BATCH, .length = LENGTH};
    LS_TRY(ls_model_program(out->model, LS_MODEL_TRAIN, options, &out->program));
    const ls_optimizer_settings adamw = ls_optimizer_settings_default();
    LS_TRY(ls_optimizer_new(ctx, out->model->store, &adamw, &out->optimizer));
    const ls_random key = {.seed = 1, .stream = ls_stream_of("bench")};
    for (int i = 0; i < BATCH * LENGTH; i++)
        tokens[i] = (int32_t)ls_random_below(key, (uint64_t)i, 256);
    LS_TRY(ls_model_put_tokens(out->model, out->program, "tokens", tokens));
    LS_TRY(ls_model_put_tokens(out->model, out->program, "targets", tokens));
    static float weights[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++) weights[i] = 1.0f / (BATCH * LENGTH);
    ls_tensor_put(out->program, ls_program_find(out->program, "weights"), weights);
    return LS_OK;
}

static ls_status step(ls_ctx *ctx, trainer *t) {
    LS_TRY(ls_program_run(t->program, NULL, 1, (uint32_t)t->step));
    double norm;
    LS_TRY(ls_optimizer_norm(ctx, t->optimizer, &norm));
    ls_optimizer_update(ctx, t->optimizer, 1e-4, norm, ++t->step);
    return LS_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Tokens per second by the median step of about `seconds`. */
static ls_status measure(ls_ctx *ctx, trainer *t, double seconds, double *out) {
    enum { STEPS_MOST = 256 };
    double times[STEPS_MOST], began = ls_machine_seconds();
    size_t count = 0;
    while (count < 3 || (count < STEPS_MOST && ls_machine_seconds() - began < seconds)) {
        double start = ls_machine_seconds();
        LS_TRY(step(ctx, t));
        times[count++] = ls_machine_seconds() - start;
    }
    qsort(times, count, sizeof *times, by_value);
    *out = BATCH * LENGTH / times[count / 2];
    return LS_OK;
}

static ls_status operation_table(ls_bench *bench, trainer *t, json_t *into) {
    enum { STEPS = 4 };
    ls_ctx *ctx = bench->ctx;
    ls_op_time times[OPERATIONS_MOST];
    ls_program_profile(t->program, true);
    for (int i = 0; i < STEPS; i++) LS_TRY(ls_program_run(t->program, NULL, 1, 0));
    size_t count = ls_program_times(t->program, times, OPERATIONS_MOST);
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

static ls_status bench_type(ls_bench *bench, ls_dtype type, trainer *t, json_t *row) {
    ls_ctx *ctx = bench->ctx;
    char threads[16];
    double ours = 0, theirs = 0;
    char mode[32] = "";
    ls_peer peer;
    LS_TRY(trainer_make(ctx, type, t));
    LS_TRY(measure(ctx, t, 0, &ours)); /* warms up */
    ours = 0;
    snprintf(threads, sizeof threads, "%d", ctx->threads);
    ls_peer_start(bench, "train_torch.py",
                  (const char *const[]){"--dtype", ls_dtype_name(type), "--threads", threads, NULL},
                  &peer);
    ls_status status = LS_OK;
    for (int64_t round = 0; round < bench->keys.rounds && status == LS_OK; round++) {
        double here = 0;
        status = measure(ctx, t, bench->keys.seconds, &here);
        if (here > ours) ours = here;
        json_t *line = ls_peer_go(bench, &peer);
        const json_t *figure = json_object_get(line, "tokens_per_second");
        if (json_number_value(figure) > theirs) {
            const char *name = json_string_value(json_object_get(line, "mode"));
            theirs = json_number_value(figure);
            snprintf(mode, sizeof mode, "%s", name == NULL ? "" : name);
        }
        json_decref(line);
    }
    ls_peer_stop(&peer);
    LS_TRY(status);
    /* other work on the machine can only lower a peak: the highest that was seen counts */
    double peak = 0;
    LS_TRY(ls_machine_peak(ctx, type, &peak));
    if (peak > bench->peak[type]) bench->peak[type] = peak;
    double flops = ls_program_flops(t->program) / (BATCH * LENGTH) * ours;
    double share = flops / bench->peak[type];
    ls_text_printf(
        ctx, &bench->text,
        "  %-5s %8.0f tokens/s, %.0f GFLOP/s, %.0f%% of the measured matrix peak, %.0f MB\n",
        ls_dtype_name(type), ours, 1e-9 * flops, 100 * share,
        1e-6 * (double)ls_program_bytes(t->program));
    json_object_set_new(row, "tokens_per_second", json_real(ours));
    json_object_set_new(row, "peak_share", json_real(share));
    json_object_set_new(row, "program_bytes",
                        json_integer((json_int_t)ls_program_bytes(t->program)));
    if (theirs > 0) {
        ls_text_printf(ctx, &bench->text, "        %8.0f tokens/s PyTorch (%s); ratio %.2f\n",
                       theirs, mode, ours / theirs);
        json_object_set_new(row, "peer_tokens_per_second", json_real(theirs));
        json_object_set_new(row, "peer_mode", json_string(mode));
        json_object_set_new(row, "ratio", json_real(ours / theirs));
    }
    return operation_table(bench, t, row);
}

ls_status ls_bench_train(ls_bench *bench) {
    json_t *rows = json_object();
    json_object_set_new(bench->json, "train", rows);
    ls_text_printf(bench->ctx, &bench->text,
                   "training 6 x 384, 6 heads, bytes, length %d, batch %d\n", LENGTH, BATCH);
    for (int i = 0; i < bench->type_count; i++) {
        json_t *row = json_object();
        trainer t = {0};
        json_object_set_new(rows, ls_dtype_name(bench->types[i]), row);
        ls_status status = bench_type(bench, bench->types[i], &t, row);
        trainer_clear(bench->ctx, &t);
        LS_TRY(status);
    }
    return LS_OK;
}
