/* Sparse attention, forward and with its gradients, beside attention over all pairs: the part of a
 * layer of 12 heads of 64 that is attention, by length. */
#include <string.h>

#include "bench/bench_parts.h"
#include "mixer/mixer.h"
#include "tensor/engine/machine.h"

enum { HEADS = 12, WIDTH = 768, OPERATIONS_MAX = 64, DEVICE_BATCH = 8 };

/* The same for all kinds; on a device enough that it is the kernels that are measured, not the
 * calls. */
static int64_t batch_of(const ls_ctx *ctx) {
    return ctx->device == NULL ? 1 : DEVICE_BATCH;
}

typedef struct sparse_kind {
    const char *name, *mixer;
    const char *key[2], *value[2]; /* options other than the defaults */
} sparse_kind;

/* The first sees all pairs. */
static const sparse_kind kinds[] = {
    {"all pairs", "attention", {0}, {0}},
    {"longformer, window 512", "longformer", {0}, {0}},
    {"longformer, 8 global", "longformer", {"globals"}, {"8"}},
    {"bigbird, 3 random", "bigbird", {0}, {0}},
    {"longt5, side tokens", "longt5", {0}, {0}},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

static ls_status choose(ls_ctx *ctx, const sparse_kind *kind, ls_mixer *out) {
    const ls_mixer_type *type = ls_mixer_find(kind->mixer);
    void *options = ls_new(ctx, 1, type->options.size);
    *out = (ls_mixer){.type = type, .options = options, .width = WIDTH};
    if (options == NULL) return LS_ENOMEM;
    LS_TRY(ls_options_default(ctx, &type->options, options));
    LS_TRY(ls_options_set(ctx, &type->options, "", "heads", "12", options));
    for (int i = 0; i < 2 && kind->key[i] != NULL; i++)
        LS_TRY(ls_options_set(ctx, &type->options, "", kind->key[i], kind->value[i], options));
    return ls_mixer_check(ctx, out);
}

static ls_status record(ls_ctx *ctx, const ls_mixer *mixer, ls_dtype type, int64_t T, bool grad,
                        ls_parameters *store, ls_program **out) {
    const int64_t B = batch_of(ctx);
    const ls_program_options options = {.type = type, .batch = B, .length = T, .grad = grad};
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_tensor *x = ls_input(*out, "x", type, LS_DIMS(B, T, WIDTH), grad);
    ls_tensor *y = ls_mixer_record(*out, mixer, x);
    ls_keep(*out, "y", y);
    if (grad) {
        ls_seed_gradient(*out, y, ls_input(*out, "cot", type, LS_DIMS(B, T, WIDTH), false));
        ls_keep_gradient(*out, "x", x);
    }
    return ls_failed(*out) ? ctx->error.code : LS_OK;
}

static ls_status make(ls_ctx *ctx, const ls_mixer *mixer, ls_dtype type, int64_t T,
                      ls_parameters **store, ls_program **out) {
    static const char *const inputs[] = {"x", "cot"};
    LS_TRY(ls_parameters_new(ctx, type, store));
    LS_TRY(record(ctx, mixer, type, 1, false, *store, out)); /* declares the parameters */
    ls_program_free(*out);
    *out = NULL;
    LS_TRY(ls_parameters_seal(*store, 1, true));
    LS_TRY(record(ctx, mixer, type, T, true, *store, out));
    LS_TRY(ls_program_finish(*out));
    for (int i = 0; i < 2; i++)
        LS_TRY(ls_machine_random(*out, ls_program_find(*out, inputs[i]),
                                 (ls_random){.seed = 1, .stream = ls_stream_of(inputs[i])}));
    return LS_OK;
}

/* What attention took in each of some runs, and its operations. */
static ls_status time_attention(ls_bench *bench, ls_program *program, ls_bench_times *out,
                                double *flops) {
    *out = (ls_bench_times){0};
    for (int64_t round = 0; round < bench->settings->rounds; round++) {
        ls_op_time times[OPERATIONS_MAX];
        double sum = 0;
        *flops = 0;
        LS_TRY(ls_bench_go_on(bench));
        ls_program_profile(program, true);
        LS_TRY(ls_program_run(program, NULL, 0, 0));
        size_t count = ls_program_times(program, times, OPERATIONS_MAX);
        for (size_t i = 0; i < count; i++) {
            if (strstr(times[i].name, "attention") == NULL) continue;
            sum += times[i].seconds;
            *flops += times[i].flops;
        }
        ls_turns_add(&out->ours, sum);
    }
    return LS_OK;
}

/* `dense` are the seconds and operations of all pairs; the first kind sets them. */
static ls_status bench_one(ls_bench *bench, const sparse_kind *kind, ls_dtype type, int64_t T,
                           double dense[2], json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    ls_mixer mixer;
    double flops = 0;
    ls_bench_times times;
    ls_status status;
    LS_TRY_GOTO(choose(ctx, kind, &mixer));
    status = make(ctx, &mixer, type, T, &store, &program);
    if (status == LS_EUSE && ctx->device != NULL) { /* an operation that the device does not have */
        ls_text_printf(ctx, &bench->text, "  %-5s %6lld %-23s left out: %s\n", ls_dtype_name(type),
                       (long long)T, kind->name, ctx->error.message);
        ctx->error = (ls_error){0};
        status = LS_OK;
        goto fail;
    }
    if (status != LS_OK) goto fail;
    LS_TRY_GOTO(time_attention(bench, program, &times, &flops));
    const double seconds = ls_turns_median(&times.ours);
    if (kind == kinds) dense[0] = seconds, dense[1] = flops;
    ls_text_printf(ctx, &bench->text,
                   "  %-5s %6lld %-23s %10.1f ms %6.1f%% of the pairs %6.2f times as fast",
                   ls_dtype_name(type), (long long)T, kind->name, 1e3 * seconds,
                   100 * flops / dense[1], dense[0] / seconds);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:s, s:I, s:i, s:i, s:I, s:b, s:f, s:f}", "dtype",
                           ls_dtype_name(type), "kind", kind->name, "batch",
                           (json_int_t)batch_of(ctx), "heads", HEADS, "width", WIDTH / HEADS,
                           "length", (json_int_t)T, "backward", 1, "share_of_pairs",
                           flops / dense[1], "times_as_fast", dense[0] / seconds),
                 &times);
fail:
    ls_program_free(program);
    ls_parameters_free(store);
    ls_free(ctx, (void *)(uintptr_t)mixer.options);
    return status;
}

static bool chosen(const ls_bench *bench, const sparse_kind *kind) {
    return strstr(kind->name, bench->settings->only) != NULL;
}

bool ls_bench_sparse_has(const ls_bench *bench) {
    for (int k = 0; k < KINDS; k++)
        if (chosen(bench, &kinds[k])) return true;
    return false;
}

ls_status ls_bench_sparse(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "sparse", rows);
    ls_text_printf(bench->ctx, &bench->text,
                   "sparse attention, batch %lld, %d heads x %d, forward+backward: length, kind\n",
                   (long long)batch_of(bench->ctx), HEADS, WIDTH / HEADS);
    for (int i = 0; i < bench->type_count; i++) {
        /* on a device, as with attention, bf16 unless another type is asked for */
        bool other = bench->types[i] != LS_BF16 && bench->settings->dtype == 0;
        for (int64_t j = 0; j < bench->settings->lengths.count; j++) {
            if (bench->ctx->device != NULL && other) continue;
            double dense[2] = {0};
            for (int k = 0; k < KINDS; k++)
                if (k == 0 || chosen(bench, &kinds[k])) /* the first is what others stand beside */
                    LS_TRY(bench_one(bench, &kinds[k], bench->types[i],
                                     bench->settings->lengths.at[j], dense, rows));
        }
    }
    return LS_OK;
}
