/* The linear recurrence of retention and linear attention alone, forward and with its gradients, by
 * length and by the shape of a head: one sequence on the processor, on a device as many as make a
 * batch of training. */
#include <math.h>

#include "base/random.h"
#include "bench/bench_parts.h"
#include "tensor/engine/machine.h"
#include "tensor/ops.h"

typedef struct head_size {
    int64_t heads, keys, values;
} head_size;
enum { SIZES = 2, HEADS_MAX = 8, DEVICE_TOKENS = 65536 };
static const head_size processor_sizes[SIZES] = {{6, 64, 64}, {2, 256, 512}};
static const head_size device_sizes[SIZES] = {{8, 128, 128}, {4, 256, 512}};

static const head_size *sizes_on(const ls_ctx *ctx) {
    return ctx->device == NULL ? processor_sizes : device_sizes;
}
static int64_t batch_on(const ls_ctx *ctx, int64_t T) {
    return ctx->device == NULL ? 1 : ls_max(DEVICE_TOKENS / T, 1);
}

static ls_status record(ls_ctx *ctx, int size, ls_dtype type, int64_t T, bool grad,
                        ls_parameters *store, ls_program **out) {
    static const char *const names[] = {"q", "k", "v", "cot"};
    const head_size *sizes = sizes_on(ctx);
    const int64_t B = batch_on(ctx, T);
    const ls_program_options options = {.type = type, .batch = B, .length = T, .grad = grad};
    const int64_t H = sizes[size].heads, K = sizes[size].keys, V = sizes[size].values;
    double log_decay[HEADS_MAX];
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *in[4];
    for (int i = 0; i < 4; i++)
        in[i] = ls_input(p, names[i], type, LS_DIMS(B, T, H, i < 2 ? K : V), grad && i < 3);
    for (int64_t h = 0; h < H; h++) log_decay[h] = log1p(-exp2(-5 - (double)h));
    ls_linear_scan_operands scan = {.q = in[0], .k = in[1], .v = in[2], .log_decay = log_decay};
    scan.before = ls_state_read(p, "state", ls_wide_type(p), LS_DIMS(B, H, K, V));
    ls_tensor *y = ls_linear_scan(p, &scan, NULL, NULL);
    ls_keep(p, "y", y);
    if (grad) {
        ls_seed_gradient(p, y, in[3]);
        for (int i = 0; i < 3; i++) ls_keep_gradient(p, names[i], in[i]);
    }
    LS_TRY(ls_program_finish(p));
    for (int i = 0; i < 4; i++)
        LS_TRY(
            ls_machine_random(p, in[i], (ls_random){.seed = 1, .stream = ls_stream_of(names[i])}));
    return LS_OK;
}

static ls_status bench_one(ls_bench *bench, int size, ls_dtype type, int64_t T, bool grad,
                           json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    const head_size *sizes = sizes_on(ctx);
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    ls_bench_times times;
    ls_peer none = {0};
    ls_status status;
    LS_TRY_GOTO(ls_parameters_new(ctx, type, &store));
    LS_TRY_GOTO(ls_parameters_seal(store, 0, grad));
    LS_TRY_GOTO(record(ctx, size, type, T, grad, store, &program));
    LS_TRY_GOTO(ls_bench_program_turns(bench, program, &none, &times));
    const double ours = ls_turns_median(&times.ours);
    double flops = ls_program_flops(program); /* of the recurrence: no chunk's own products */
    ls_text_printf(ctx, &bench->text,
                   "  %-5s %2lld x %3lld x %3lld %6lld %-16s %10.3f ms %8.1f GFLOP/s",
                   ls_dtype_name(type), (long long)sizes[size].heads, (long long)sizes[size].keys,
                   (long long)sizes[size].values, (long long)T,
                   grad ? "forward+backward" : "forward", 1e3 * ours, 1e-9 * flops / ours);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:f}", "dtype",
                           ls_dtype_name(type), "batch", (json_int_t)batch_on(ctx, T), "heads",
                           (json_int_t)sizes[size].heads, "keys", (json_int_t)sizes[size].keys,
                           "values", (json_int_t)sizes[size].values, "length", (json_int_t)T,
                           "backward", grad, "gflops", 1e-9 * flops / ours, "peak_share",
                           flops / ours / bench->peak[type]),
                 &times);
fail:
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

ls_status ls_bench_retention(ls_bench *bench) {
    json_t *rows = json_array();
    json_object_set_new(bench->json, "retention", rows);
    if (bench->ctx->device == NULL)
        ls_text_printf(bench->ctx, &bench->text,
                       "retention, batch 1: heads x keys x values, length\n");
    else
        ls_text_printf(bench->ctx, &bench->text,
                       "retention, %d tokens in all: heads x keys x values, length\n",
                       DEVICE_TOKENS);
    for (int size = 0; size < SIZES; size++)
        for (int i = 0; i < bench->type_count; i++)
            for (int64_t j = 0; j < bench->settings->lengths.count; j++)
                for (int grad = 0; grad < 2; grad++)
                    LS_TRY(bench_one(bench, size, bench->types[i], bench->settings->lengths.at[j],
                                     grad == 1, rows));
    return LS_OK;
}
