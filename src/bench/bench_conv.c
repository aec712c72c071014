/* The long convolution alone, forward and with its gradients, by length: one sequence on the
 * processor, where time grows as n log n; on a device batches of as many tokens, of a wide model.
 */
#include <math.h>
#include <stdio.h>

#include "bench/bench_parts.h"
#include "tensor/engine/machine.h"
#include "tensor/ops.h"

enum { DEVICE_TOKENS = 1 << 16 };

typedef struct conv_shape {
    int64_t batch, length, channels;
} conv_shape;

static int64_t channels_on(const ls_ctx *ctx) {
    return ctx->device == NULL ? 64 : 768;
}

static conv_shape shape_on(const ls_ctx *ctx, int64_t length) {
    int64_t batch = ctx->device == NULL ? 1 : ls_max(1, DEVICE_TOKENS / length);
    return (conv_shape){batch, length, channels_on(ctx)};
}

static ls_status record(ls_ctx *ctx, ls_dtype type, conv_shape shape, bool grad,
                        ls_parameters *store, ls_program **out) {
    const int64_t B = shape.batch, T = shape.length, D = shape.channels;
    const ls_program_options options = {.type = type, .batch = B, .length = T, .grad = grad};
    LS_TRY(ls_program_new(ctx, &options, store, out));
    ls_program *p = *out;
    ls_tensor *u = ls_input(p, "u", type, LS_DIMS(B, T, D), true);
    ls_tensor *kernel = ls_input(p, "kernel", ls_wide_type(p), LS_DIMS(D, T), true);
    ls_tensor *cot = ls_input(p, "cot", type, LS_DIMS(B, T, D), false);
    const ls_init half = {.kind = LS_INIT_UNIFORM, .a = 0.5, .full = true};
    ls_tensor *y = ls_long_conv(p, u, kernel, ls_param(p, "skip", LS_DIMS(D), half), false);
    ls_keep(p, "y", y);
    if (grad) {
        ls_keep_gradient(p, "u", u);
        ls_keep_gradient(p, "kernel", kernel);
        ls_seed_gradient(p, y, cot);
    }
    return ls_failed(p) ? ctx->error.code : LS_OK;
}

static ls_status make(ls_ctx *ctx, ls_dtype type, conv_shape shape, bool grad,
                      ls_parameters **store, ls_program **out) {
    static const char *const inputs[] = {"u", "kernel", "cot"};
    LS_TRY(ls_parameters_new(ctx, type, store));
    LS_TRY(record(ctx, type, shape, false, *store, out)); /* declares the parameter */
    ls_program_free(*out);
    *out = NULL;
    LS_TRY(ls_parameters_seal(*store, 1, grad));
    LS_TRY(record(ctx, type, shape, grad, *store, out));
    LS_TRY(ls_program_finish(*out));
    for (int i = 0; i < 3; i++) {
        const ls_random key = {.seed = 1, .stream = ls_stream_of(inputs[i])};
        LS_TRY(ls_machine_random(*out, ls_program_find(*out, inputs[i]), key));
    }
    return LS_OK;
}

static void start_peer(ls_bench *bench, ls_dtype type, conv_shape shape, bool grad, ls_peer *peer) {
    char threads[16], batch[24], length[24], channels[24], seconds[32];
    snprintf(seconds, sizeof seconds, "%g", bench->settings->seconds / 4);
    snprintf(threads, sizeof threads, "%d", bench->ctx->threads);
    snprintf(batch, sizeof batch, "%lld", (long long)shape.batch);
    snprintf(length, sizeof length, "%lld", (long long)shape.length);
    snprintf(channels, sizeof channels, "%lld", (long long)shape.channels);
    const char *const words[] = {"--dtype",    ls_dtype_name(type),
                                 "--threads",  threads,
                                 "--device",   bench->ctx->device == NULL ? "cpu" : "cuda",
                                 "--batch",    batch,
                                 "--length",   length,
                                 "--channels", channels,
                                 "--grad",     grad ? "1" : "0",
                                 "--seconds",  seconds,
                                 NULL};
    ls_peer_start(bench, "conv_torch.py", words, peer);
}

static ls_status bench_one(ls_bench *bench, ls_dtype type, int64_t length, bool grad,
                           json_t *rows) {
    ls_ctx *ctx = bench->ctx;
    const conv_shape shape = shape_on(ctx, length);
    ls_program *program = NULL;
    ls_parameters *store = NULL;
    ls_bench_times times;
    ls_peer peer = {0};
    ls_status status;
    LS_TRY_GOTO(make(ctx, type, shape, grad, &store, &program));
    start_peer(bench, type, shape, grad, &peer);
    LS_TRY_GOTO(ls_bench_program_turns(bench, program, &peer, &times));
    const double ours = ls_turns_median(&times.ours);
    double n = (double)length, each = 1e9 * ours / ((double)(shape.batch * shape.channels) * n);
    each /= fmax(log2(n), 1); /* a text of one token */
    ls_text_printf(ctx, &bench->text, "  %-5s %4lld x %8lld %-17s %10.3f ms %8.3g ns / (n log n)",
                   ls_dtype_name(type), (long long)shape.batch, (long long)length,
                   grad ? "forward+backward" : "forward", 1e3 * ours, each);
    ls_bench_row(bench, rows,
                 json_pack("{s:s, s:I, s:I, s:I, s:b, s:f}", "dtype", ls_dtype_name(type), "batch",
                           (json_int_t)shape.batch, "channels", (json_int_t)shape.channels,
                           "length", (json_int_t)length, "backward", grad,
                           "nanoseconds_per_n_log_n", each),
                 &times);
fail:
    ls_peer_stop(&peer);
    ls_program_free(program);
    ls_parameters_free(store);
    return status;
}

ls_status ls_bench_conv(ls_bench *bench) {
    const ls_ints *lengths = &bench->settings->lengths;
    json_t *rows = json_array();
    json_object_set_new(bench->json, "conv", rows);
    ls_text_printf(bench->ctx, &bench->text,
                   "long convolution, batch x length, %lld channels, kernels as long as the text\n",
                   (long long)channels_on(bench->ctx));
    for (int i = 0; i < bench->type_count; i++)
        for (int64_t at = 0; at < lengths->count; at++)
            for (int grad = 0; grad < 2; grad++)
                LS_TRY(bench_one(bench, bench->types[i], lengths->at[at], grad == 1, rows));
    return LS_OK;
}
